package chores_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/internal/chores"
)

// later lets time pass, and waits until everything rests.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestJob_looks_when_it_is_time_and_when_it_is_woken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := chores.New()
		var looks atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			job.Run(ctx, func() time.Duration {
				looks.Add(1)
				return time.Hour
			})
		})
		check := func(what string, want int32) {
			t.Helper()
			if got := looks.Load(); got != want {
				t.Errorf("%s: it has looked %d times, want %d", what, got, want)
			}
		}
		later(chores.Every)
		check("after a minute", 1)
		later(30 * time.Minute)
		check("before an hour is over", 1)
		later(31 * time.Minute)
		check("after an hour", 2)
		job.Wake()
		synctest.Wait()
		check("when it was woken", 3)
		cancel()
		running.Wait()
		job.Wake()
		check("when it has ended", 3)
	})
}

// repeated is what a call of Repeat has done.
type repeated struct {
	claims, works int
	took          time.Duration
	failed, err   error
}

// repeat calls Repeat with work that takes a time, and whose results are given by its number.
func repeat(
	ctx context.Context, takes time.Duration, claim func(n int) error,
	work func(n int) (bool, error),
) (r repeated) {
	began := time.Now()
	r.failed, r.err = chores.Repeat(ctx, func() error {
		r.claims++
		return claim(r.claims)
	}, func() (bool, error) {
		time.Sleep(takes)
		r.works++
		return work(r.works)
	})
	r.took = time.Since(began)
	return r
}

func always(int) error { return nil }

// TestRepeat_rests_and_claims: it works for a fifth of the time, and says so in time.
func TestRepeat_rests_and_claims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := repeat(t.Context(), time.Second, always,
			func(n int) (bool, error) { return n == 100, nil })
		// The last call is followed by no rest. Claims come at 0, 75, … 450 and so on seconds.
		want := repeated{claims: 7, works: 100, took: 496 * time.Second}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

var errSaid = errors.New("the test says so")

func TestRepeat_leaves_what_fails_three_times_in_a_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := repeat(t.Context(), 0, always, func(n int) (bool, error) {
			if n == 3 {
				return false, nil
			}
			if n > 10 {
				return true, nil // A break ends, too.
			}
			return false, errSaid
		})
		want := repeated{claims: 1, works: 6, took: 40 * time.Second, failed: errSaid}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestRepeat_ends_when_another_process_goes_on(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := func(n int) error {
			if n == 2 {
				return errSaid
			}
			return nil
		}
		got := repeat(t.Context(), 20*time.Second, second,
			func(n int) (bool, error) { return n == 10, nil })
		want := repeated{claims: 2, works: 1, took: 100 * time.Second, err: errSaid}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestRepeat_ends_with_its_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		got := repeat(ctx, time.Second, always, func(n int) (bool, error) { return n == 100, nil })
		want := repeated{
			claims: 1, works: 2, took: 9 * time.Second, err: context.DeadlineExceeded,
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestAhead(t *testing.T) {
	const now, most = 1_000_000, time.Minute
	for at, want := range map[int64]bool{
		0: false, now - 1: false, now: false, now + 1: true, now + 60_000: true,
		now + 60_001: false,
	} {
		if got := chores.Ahead(now, at, most); got != want {
			t.Errorf("at %d: got %v, want %v", at, got, want)
		}
	}
}
