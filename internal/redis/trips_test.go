package redis_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/internal/redis"
)

// While Redis does not answer, concurrent calls wait for one timeout. Calls within 200 ms after it
// do not wait.
func TestTrips_nobody_waits_for_more_than_one_that_fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, trips := errors.New("no answer"), 0
		b := redis.NewTrips(2, func(context.Context, []int) ([]int, error) {
			trips++
			time.Sleep(time.Second)
			return nil, away
		})
		b.Start()
		began := time.Now()
		errs := make(chan error)
		for i := range 10 {
			go func() {
				_, err := b.DoOne(t.Context(), i)
				errs <- err
			}()
		}
		for range 10 {
			if err := <-errs; !errors.Is(err, away) {
				t.Errorf("got error %v, want %v", err, away)
			}
		}
		for _, tt := range []struct {
			after     time.Duration
			wantTrips int
		}{{1, 1}, {199 * time.Millisecond, 1}, {200 * time.Millisecond, 2}} {
			time.Sleep(time.Until(began.Add(time.Second + tt.after)))
			if _, err := b.DoOne(t.Context(), 1); !errors.Is(err, away) {
				t.Errorf("%v after the failure: got error %v, want %v", tt.after, err, away)
			}
			if trips != tt.wantTrips {
				t.Errorf("%v after the failure: %d trips, want %d", tt.after, trips, tt.wantTrips)
			}
		}
		b.Abort()
	})
}
