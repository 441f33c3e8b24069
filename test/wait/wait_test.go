package wait_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/test/wait"
)

// TestPoll_gives_up_without_progress: Poll waits for slow progress, and gives up without progress.
func TestPoll_gives_up_without_progress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		steps := func(most int) func() (int, bool) {
			return func() (int, bool) {
				n := min(int(time.Since(began)/(wait.Hang/2)), most)
				return n, n == 10
			}
		}
		if last, ok := wait.Poll(steps(10)); last != 10 || !ok {
			t.Errorf("slow progress ended at step %d: %v", last, ok)
		}
		began = time.Now()
		if last, ok := wait.Poll(steps(3)); last != 3 || ok {
			t.Errorf("no progress after step 3 ended at step %d: %v", last, ok)
		}
		if took := time.Since(began); took < wait.Hang || took > 3*wait.Hang {
			t.Errorf("it gave up after %v", took)
		}
	})
}
