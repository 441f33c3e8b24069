package session

import (
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// What operators may ask for costs a message nothing: no memory, and no larger position.
func TestNotify_stats_cost_no_allocation(t *testing.T) {
	const sizeClass = 80 // the allocator's, for 65 to 80 bytes
	if size := unsafe.Sizeof(progress{}); size > sizeClass {
		t.Errorf("a progress has %d bytes, at most %d are allocated for it", size, sizeClass)
	}
	h := &Host{
		Latest:     NewLatest(nil, registry.Node{}),
		Watermarks: watermark.New(10), Log: slog.New(slog.DiscardHandler), MaxChats: 10,
		Now: time.Now, Grace: NewDeadlines(10 * time.Second),
	}
	s := h.New(registry.Lease{User: "bob", Session: "s", Device: "d"}, false)
	n := tidemark.Sequence(0)
	if got := testing.AllocsPerRun(1000, func() {
		n++
		s.Notify(Notification{Chat: "c", Sequence: n})
		s.Acknowledged("c", n)
		s.chats.get("c").grace = graceOff // so that each message begins a period
		h.Grace.queue = h.Grace.queue[:0]
	}); got != 0 {
		t.Errorf("%v allocations a message, want none", got)
	}
}
