package redis_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
)

// far is a Redis whose round trip takes a second, and doubles numbers.
type far struct {
	mu    sync.Mutex
	trips [][]int
	fail  error
}

func (f *far) trip(ctx context.Context, items []int) ([]int, error) {
	f.mu.Lock()
	f.trips = append(f.trips, items)
	fail := f.fail
	f.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	doubled := make([]int, len(items))
	for i, item := range items {
		doubled[i] = 2 * item
	}
	return doubled, fail
}

// run runs test with a lane to a far Redis.
func run(t *testing.T, most int, test func(t *testing.T, f *far, l *redis.Lane[int, int])) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{}
		l := redis.NewLane(most, f.trip)
		l.Start()
		test(t, f, l)
		l.Stop()
	})
}

// calls makes a call of each slice, one behind the other in the queue, and waits for all.
func calls(t *testing.T, l *redis.Lane[int, int], items ...[]int) {
	t.Helper()
	var group sync.WaitGroup
	for _, own := range items {
		group.Go(func() {
			got, err := l.Do(t.Context(), own)
			want := make([]int, len(own))
			for i, item := range own {
				want[i] = 2 * item
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("Do(%v): %v (-want +got):\n%s", own, err, diff)
			}
		})
		synctest.Wait()
	}
	group.Wait()
}

func TestLane_what_queues_during_a_round_trip_shares_the_next_one(t *testing.T) {
	run(t, 100, func(t *testing.T, f *far, l *redis.Lane[int, int]) {
		calls(t, l, []int{1}, []int{2, 3}, []int{4}, []int{5, 6, 7})
		calls(t, l, []int{8})
		if diff := cmp.Diff([][]int{{1}, {2, 3, 4, 5, 6, 7}, {8}}, f.trips); diff != "" {
			t.Errorf("round trips (-want +got):\n%s", diff)
		}
	})
}

func TestLane_a_round_trip_ends_with_the_call_that_fills_it(t *testing.T) {
	run(t, 3, func(t *testing.T, f *far, l *redis.Lane[int, int]) {
		calls(t, l, []int{1}, []int{2, 3}, []int{4, 5}, []int{6})
		if diff := cmp.Diff([][]int{{1}, {2, 3, 4, 5}, {6}}, f.trips); diff != "" {
			t.Errorf("round trips (-want +got):\n%s", diff)
		}
	})
}

// While Redis does not answer, a call waits for one timeout at most, whatever queues, and for a moment after it nobody waits at all.
func TestLane_nobody_waits_for_more_than_one_round_trip_that_fails(t *testing.T) {
	run(t, 2, func(t *testing.T, f *far, l *redis.Lane[int, int]) {
		f.fail = errors.New("no answer")
		began := time.Now()
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				if _, err := l.Do(t.Context(), []int{i, i}); !errors.Is(err, f.fail) {
					t.Errorf("got %v, want %v", err, f.fail)
				}
			})
		}
		group.Wait()
		if _, err := l.Do(t.Context(), []int{1}); !errors.Is(err, f.fail) {
			t.Errorf("got %v, want %v", err, f.fail)
		}
		if took := time.Since(began); took != time.Second || len(f.trips) != 1 {
			t.Errorf("it took %v and %d round trips, want 1s and 1", took, len(f.trips))
		}
		f.fail = nil
		time.Sleep(200 * time.Millisecond)
		calls(t, l, []int{1})
	})
}

func TestLane_ctx_ends_only_the_waiting(t *testing.T) {
	run(t, 100, func(t *testing.T, f *far, l *redis.Lane[int, int]) {
		var group sync.WaitGroup
		group.Go(func() { _, _ = l.Do(t.Context(), []int{1}) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := l.Do(ctx, []int{2}); tidemark.CodeOf(err) != tidemark.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %s", err, tidemark.Unavailable)
		}
		group.Wait()
		calls(t, l, []int{3})
		if diff := cmp.Diff([]int{1, 2, 3}, slices.Concat(f.trips...)); diff != "" { // the last two together or not
			t.Errorf("what was asked (-want +got):\n%s", diff)
		}
	})
}

func TestLane_stop_lets_nobody_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redis.NewLane(1, (&far{}).trip)
		l.Start()
		began := time.Now()
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if _, err := l.Do(t.Context(), []int{1}); err == nil {
					t.Error("a call that was broken off succeeded")
				}
			})
		}
		synctest.Wait()
		l.Stop()
		group.Wait()
		if _, err := l.Do(t.Context(), []int{1}); tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Errorf("a late call: %v, want %s", err, tidemark.Unavailable)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
