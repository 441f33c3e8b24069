package inflight_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/internal/inflight"
)

func TestGate_Close_waits_for_calls_and_refuses_later_ones(t *testing.T) {
	for _, inside := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			var d inflight.Gate
			for range inside {
				if err := d.Enter(t.Context()); err != nil {
					t.Fatalf("Enter: %v", err)
				}
			}
			closed := make(chan struct{}, 2)
			for range cap(closed) {
				go func() {
					d.Close()
					closed <- struct{}{}
				}()
			}
			for left := inside; left > 0; left-- {
				synctest.Wait()
				if len(closed) > 0 {
					t.Errorf("Close returned while %d of %d calls were under way", left, inside)
				}
				if err := d.Enter(t.Context()); tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Errorf("Enter of a closed door: %v, want Unavailable", err)
				}
				d.Leave()
			}
			synctest.Wait()
			if got := len(closed); got != cap(closed) {
				t.Errorf("%d of %d calls of Close returned when no call was under way",
					got, cap(closed))
			}
			d.Close()
		})
	}
}

func TestGate_a_call_without_time_does_not_enter(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var d inflight.Gate
	if err := d.Enter(ctx); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("Enter: %v, want Unavailable", err)
	}
	d.Close() // would block if the call had entered
}
