package call_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// TestWithPatience_ends_without_progress: a call continues while parts of it complete. It ends when
// none completed for its patience.
func TestWithPatience_ends_without_progress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := call.WithPatience(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := call.Together(ctx, 1_000, func(ctx context.Context, i int) error {
			if i == 900 {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(4 * time.Second)
			return nil
		})
		// 32 parts run at once, each for 4 s. The parts before 900 take 29 rounds. Then the
		// patience ends.
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
			took < 100*time.Second {
			t.Errorf("it ended after %v with %v, want a deadline after the parts that were done",
				took, err)
		}
	})
}

// TestWithPatience_ends_with_its_parent: the caller's own deadline holds, whatever the progress.
func TestWithPatience_ends_with_its_parent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		ctx, cancel := call.WithPatience(parent, 5*time.Second)
		defer cancel()
		for range 4 {
			time.Sleep(time.Second - time.Millisecond)
			call.Progress(ctx)
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("after the deadline of its parent it says %v", ctx.Err())
		}
		cancel()
		call.Progress(ctx) // Too late, like that of an append whose caller has left.
	})
}
