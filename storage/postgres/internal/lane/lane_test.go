package lane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/lane"
)

// a slow database: each write takes a second, and doubles its items.
type slow struct {
	mu     sync.Mutex
	writes [][]int
	fail   error
}

func (s *slow) write(collect func() []int) ([]int, error) {
	items := collect()
	s.mu.Lock()
	s.writes = append(s.writes, items)
	fail := s.fail
	s.mu.Unlock()
	time.Sleep(time.Second)
	if fail != nil {
		return nil, fail
	}
	results := make([]int, len(items))
	for i, item := range items {
		results[i] = 2 * item
	}
	return results, nil
}

// run runs test with a lane of one goroutine before a slow database.
func run(t *testing.T, most int, test func(t *testing.T, s *slow, l *lane.Lane[int, int])) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		l := lane.New(1, most, s.write)
		l.Start()
		test(t, s, l)
		l.Stop()
	})
}

// calls makes a call of each slice, one behind the other in the queue, and waits for all. It checks the results.
func calls(t *testing.T, l *lane.Lane[int, int], items ...[]int) {
	var group sync.WaitGroup
	for _, own := range items {
		group.Go(func() {
			got, err := l.Do(t.Context(), own)
			if err != nil {
				t.Errorf("Do(%v): %v", own, err)
				return
			}
			want := make([]int, len(own))
			for i, item := range own {
				want[i] = 2 * item
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Do(%v) (-want +got):\n%s", own, diff)
			}
		})
		synctest.Wait()
	}
	group.Wait()
}

func TestLane_what_queues_during_a_write_is_the_next_one(t *testing.T) {
	run(t, 100, func(t *testing.T, s *slow, l *lane.Lane[int, int]) {
		calls(t, l, []int{1}, []int{2, 3}, []int{4}, []int{5, 6, 7})
		if diff := cmp.Diff([][]int{{1}, {2, 3, 4, 5, 6, 7}}, s.writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestLane_a_write_ends_with_the_call_that_fills_it(t *testing.T) {
	run(t, 3, func(t *testing.T, s *slow, l *lane.Lane[int, int]) {
		calls(t, l, []int{1}, []int{2, 3}, []int{4, 5}, []int{6})
		if diff := cmp.Diff([][]int{{1}, {2, 3, 4, 5}, {6}}, s.writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestLane_an_error_is_that_of_all_who_were_written_together(t *testing.T) {
	run(t, 100, func(t *testing.T, s *slow, l *lane.Lane[int, int]) {
		s.fail = errors.New("no disk")
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if _, err := l.Do(t.Context(), []int{1}); !errors.Is(err, s.fail) {
					t.Errorf("got error %v, want %v", err, s.fail)
				}
			})
		}
		group.Wait()
		s.fail = nil
		calls(t, l, []int{1})
	})
}

// When there is no connection nothing is collected before the write fails; those who queued then need not wait for the next failure.
func TestLane_a_write_that_collects_nothing_fails_those_who_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := tidemark.Errorf(tidemark.Unavailable, "the database is away")
		writes := 0
		l := lane.New(1, 100, func(func() []int) ([]int, error) {
			writes++
			time.Sleep(time.Second)
			return nil, away
		})
		l.Start()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if _, err := l.Do(t.Context(), []int{1}); !errors.Is(err, away) {
					t.Errorf("got error %v, want %v", err, away)
				}
			})
		}
		group.Wait()
		if writes != 1 {
			t.Errorf("%d writes failed one behind the other, want 1", writes)
		}
		l.Stop()
	})
}

func TestLane_a_caller_who_gives_up_gets_Unavailable_and_is_written(t *testing.T) {
	run(t, 100, func(t *testing.T, s *slow, l *lane.Lane[int, int]) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.Do(ctx, []int{1}); tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Errorf("got error %v, want Unavailable", err)
		}
		calls(t, l, []int{2})
		if diff := cmp.Diff([][]int{{1}, {2}}, s.writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestLane_Stop_waits_for_the_write_under_way(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		l := lane.New(1, 100, s.write)
		l.Start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := l.Do(ctx, []int{1}); err == nil {
			t.Error("a write of a second took a millisecond")
		}
		l.Stop()
		if took := time.Since(began); took != time.Second {
			t.Errorf("Stop returned %v after the write began, want 1s", took)
		}
	})
}
