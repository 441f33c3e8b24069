package reach

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// TestEngine_writes_a_log_seldom: while an outlet refuses much, its log is not written after each
// poll. No refusal is missing, also after the process has stopped.
func TestEngine_writes_a_log_seldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{})
		var refused, writes atomic.Int64
		w.inbox(home).does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			if events[0].Type == outlet.MessagePersisted {
				refused.Add(1)
				return 0, &outlet.Refusal{Status: 422}
			}
			return len(events), nil
		})
		w.onWrite(func(_ *process, d storage.Document) {
			if d.Kind == logKind(id) {
				writes.Add(1) // before and after each
			}
		})
		for range 60 {
			w.send(w.group(), p)
			time.Sleep(time.Second)
		}
		p.stop()
		log, _, err := logOf(w.ctx, w.store, id)
		w.ok(err)
		if got, want := int64(len(log)), refused.Load(); got != want || want < 60 {
			t.Errorf("the log has %d of %d refusals", got, want)
		}
		if n := writes.Load() / 2; n > 8 {
			t.Errorf("the log was written %d times in a minute, want at most 8", n)
		}
	})
}
