package reach

import (
	"testing"

	"github.com/tidemark-im/tidemark/reach/outlet"
)

// TestReceiver_begins_nothing_after_its_end: what would begin then waits in the outlet's own
// backlogs, and close need not wait for it.
func TestReceiver_begins_nothing_after_its_end(t *testing.T) {
	w := newWorld(t)
	p := &process{}
	r := newReceiver(Spec{ID: "a"}, &fakeOutlet{w.inbox(home), false, &p.dead},
		func(*receiver, outlet.Event, *outlet.Refusal) {}, new(counts))
	steps := []step{{Event: outlet.Event{ID: "e", Type: outlet.ChatUpdated, Chat: "c"}}}
	if out := <-r.start("c", steps); out.accepted != 1 {
		t.Errorf("before its end: %+v", out)
	}
	r.end()
	r.mu.Lock()
	r.closed = true // as close does first; its lane still works
	r.mu.Unlock()
	if out := <-r.start("c", steps); !out.unanswered || out.accepted != 0 {
		t.Errorf("after its end: %+v", out)
	}
	if r.queued.Load() != 0 || len(r.busy) != 0 {
		t.Errorf("%d events wait, and %d chats are busy", r.queued.Load(), len(r.busy))
	}
	r.close()
}
