package cost

import (
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/webhook/webhooktest"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestBacklog_is_drained creates a webhook that wants all messages since the start, and waits until
// its receiver, which is another process, has accepted them. It logs events a second, and the CPU
// time of this process and of Postgres for each. TIDEMARK_BACKLOG_EVENTS is the number of messages.
func TestBacklog_is_drained(t *testing.T) {
	const ofChat = 1_000
	events := number(t, "TIDEMARK_BACKLOG_EVENTS", 2_000)
	r := webhooktest.Start(t)
	for _, name := range []string{"Postgres", "SQLite"} {
		t.Run(name, func(t *testing.T) {
			w := openTold(t, name, r, hasty)
			w.chats = openedChats(t, w.store, tidemark.Direct, (events+ofChat-1)/ofChat)
			for first := 0; first < events; first += 500 {
				drafts := make([]tidemark.Draft, min(500, events-first))
				for i := range drafts {
					drafts[i] = draftFor(w.chats[(first+i)/ofChat], "anna")
				}
				appended, err := w.store.Append(t.Context(), drafts)
				if err == nil {
					err = appended[0].Err
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			e, stop := w.run(t, hasty)
			defer stop()
			made, err := e.Create(t.Context(), reach.NewOutlet{
				Kind: "webhook", URL: r.URL, Batch: true, FromStart: true,
				Events: []outlet.Type{outlet.MessagePersisted},
			})
			if err != nil {
				t.Fatal(err)
			}
			var cpu time.Duration
			var began time.Time
			wait.For(t, "everything is accepted, and no backlog is left", func() (int, bool) {
				info, err := e.Outlet(t.Context(), made.ID)
				if err != nil {
					t.Fatal(err)
				}
				if info.Accepted > 0 && began.IsZero() {
					cpu, began = w.cpu(t), time.Now()
				}
				<-time.After(10 * time.Millisecond)
				if info.Accepted < uint64(events) {
					return int(info.Accepted), false
				}
				waiting, err := e.Waiting(t.Context(), made.ID)
				return int(info.Accepted), err == nil && waiting == 0
			})
			cpu = w.cpu(t) - cpu
			t.Logf("%d events: %.0f a second, %.1f µs of CPU each", events,
				float64(events)/time.Since(began).Seconds(),
				float64(cpu.Microseconds())/float64(events))
			w.outlets = []storage.OutletID{made.ID}
			w.settled(t, e, uint64(events))
		})
	}
}
