package requests

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// TestAbsent_messages_after_the_first_cost_an_append sends messages to a user without a session, on
// each backend. The first one writes the pending row and the news for outlets. Each further one
// costs what the store needs to append it, to raise its author's watermark, and to look whether the
// pending row stands: no statement and no write unit more.
func TestAbsent_messages_after_the_first_cost_an_append(t *testing.T) {
	const further = 5
	for name, open := range map[string]func(*testing.T) backend{
		"Postgres": openPostgres, "SQLite": openSQLite, "DynamoDB": openDynamoDB,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			author, chat := userNo("author", 0), tidemark.ChatID(long("absent"))
			alone := tidemark.ChatID(long("alone"))
			for _, id := range []tidemark.ChatID{chat, alone} {
				err := create(t, b, id, tidemark.Direct,
					[]tidemark.UserID{author, userNo("absent-"+string(id[:4]), 0)})
				if err == nil {
					_, err = b.Advance(t.Context(), []storage.Advance{{
						User: author, Chat: id, Now: time.UnixMilli(4),
						Raise: tidemark.Raise{Acked: 2},
					}})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			standing := []tidemark.PendingDelivery{{
				UserID: userNo("absent-alon", 0), ChatID: alone, FirstUndelivered: 1,
			}}
			if _, err := b.Mark(t.Context(), standing); err != nil {
				t.Fatal(err)
			}
			b.take()
			for n := range further {
				_, err := storage.AppendOne(t.Context(), b, draft(alone, author, 3+n))
				if err != nil {
					t.Fatal(err)
				}
				_, err = b.Advance(t.Context(), []storage.Advance{{
					User: author, Chat: alone, Now: time.UnixMilli(4),
					Raise: tidemark.Raise{Acked: tidemark.Sequence(3 + n)},
				}})
				if err == nil {
					_, err = b.Mark(t.Context(), standing)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			want := b.take()
			s := transporttest.New(t, transporttest.Options{Storage: b}).Server

			send := func(n int) {
				if _, err := s.Send(t.Context(), author, draft(chat, author, n)); err != nil {
					t.Fatal(err)
				}
				// The author has no session either.
				wait.Until(t, "the author's watermark and two pending rows follow", func() bool {
					now := s.Counters()
					return now["advances_moved_total"] == int64(n-2) &&
						now["pending_rows_written_total"] == 2
				})
			}
			send(3)
			first := b.take()
			for n := range further {
				send(4 + n)
			}
			got := b.take()
			t.Logf("the first: %s; %d further ones: %s; that many appends, raises and looks: %s",
				text(first), further, text(got), text(want))
			// A statement may be left of the first message.
			if got.statements > want.statements+1 || got.writes > want.writes {
				t.Errorf("%d messages after the first cost %s, want %s", further, text(got),
					text(want))
			}
		})
	}
}

// text writes statements, or calls and units.
func text(s spent) string {
	if s.calls == nil {
		return fmt.Sprint(s.statements, " statements")
	}
	return fmt.Sprintf("%s, %s write units", s.kinds(), figure(s.writes))
}
