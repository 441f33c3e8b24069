package requests

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestOutlets_pending_table meters on DynamoDB what outlets that want pending.created add to
// messages, and compares the units of writes with the table of request-costs.md. A burst is that of
// TestOutlets_table, in a direct chat whose other member is away.
func TestOutlets_pending_table(t *testing.T) {
	tableOfWants(t, "pending", "`pending.created`", "messages", missed)
}

// missed returns what a burst costs with some outlets that want pending.created. It is slow if the
// messages may not have been looked at together.
func missed(t *testing.T, outlets, messages int) (cost spent, slow bool) {
	t.Helper()
	b := openDynamoDB(t)
	chat := tidemark.ChatID(long("missed"))
	members := []tidemark.UserID{userNo("author", 0), userNo("other", 0)}
	if err := create(t, b, chat, tidemark.Direct, members); err != nil {
		t.Fatal(err)
	}
	w := &worker{backend: b, plain: b.again()}
	ack := func(users ...tidemark.UserID) {
		t.Helper()
		heads, err := w.plain.Heads(t.Context(), []tidemark.ChatID{chat})
		for _, user := range users {
			if err == nil {
				_, err = w.plain.Advance(t.Context(), []storage.Advance{{
					User: user, Chat: chat, Now: time.Now(), Raise: tidemark.Raise{Acked: heads[0]},
				}})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ack(members...)
	store := w.run(t, outlets, []outlet.Type{outlet.PendingCreated})
	b.take()
	began := time.Now()
	for n := range messages {
		d := draft(chat, members[0], 100+n)
		if _, err := storage.AppendOne(t.Context(), store, d); err != nil {
			t.Fatal(err)
		}
	}
	slow = time.Since(began) > linger/2
	ack(members[0])
	if outlets > 0 {
		w.quiet(t, outlets, 1)
	}
	for n := range outlets {
		wait.Until(t, "all messages are looked at", func() bool {
			<-time.After(20 * time.Millisecond)
			found, _, err := w.plain.Backlogs(t.Context(), storage.BacklogQuery{
				Outlet: storage.OutletID(fmt.Sprintf("o%d/pending", n)),
				Chats:  []tidemark.ChatID{chat},
			})
			return err == nil && len(found) == 0
		})
	}
	if outlets > 0 {
		w.stop() // What its last call costs is counted now.
	}
	if n := w.accepted.Load(); n != int64(outlets) {
		t.Errorf("%d events came, want %d", n, outlets)
	}
	return b.take(), slow
}
