package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

func TestSend_idempotent_under_races(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		var mu sync.Mutex
		first := 0
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				node := a
				if i%2 == 1 {
					node = b
				}
				sent, err := node.sendKey("alice", chat, "k", "once")
				mu.Lock()
				defer mu.Unlock()
				if err != nil || sent.Message.Sequence != 1 {
					t.Errorf("send %d: got sequence %d, %v, want 1", i, sent.Message.Sequence, err)
				}
				if !sent.Duplicate {
					first++
				}
			})
		}
		all.Wait()
		if first != 1 {
			t.Errorf("%d sends say that they stored the message, want 1", first)
		}
		if head := w.head(chat); head != 1 {
			t.Errorf("got head %d, want 1", head)
		}
	})
}

// TestSend_idempotent_after_a_lost_reply: the node resolves an append of unknown outcome itself.
// The caller gets the message as if nothing had happened.
func TestSend_idempotent_after_a_lost_reply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		w.after.set(once("Append", errDown, nil))
		sent, err := a.sendKey("alice", chat, "k", "once")
		if err != nil || sent.Duplicate || sent.Message.Sequence != 1 {
			t.Errorf("got %+v, %v, want message 1, not a duplicate", sent, err)
		}
		settle()
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
		w.wantState("her own message counts as acknowledged", "alice", chat, 1, 1)
	})
}

func TestSend_idempotent_retry_after_a_failed_mark_repeats_the_fan_out(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.leaveProof("bob")
		w.before.set(every("Mark", errDown))
		_, err := a.sendKey("alice", chat, "k", "once")
		wantCode(t, "a send that was not handed over", err, tidemark.Unavailable)
		w.wantRows("no row could be marked", "bob")
		w.before.clear()
		sent, err := a.sendKey("alice", chat, "k", "once")
		if err != nil || !sent.Duplicate || sent.Message.Sequence != 1 {
			t.Errorf("the retry: got %+v, %v, want the same message", sent, err)
		}
		w.wantRows("the retry repeats the fan-out", "bob", row("bob", chat, 1))
		w.wantRows("the retry repeats the fan-out", "carol", row("carol", chat, 1))
		settle()
	})
}

// TestSend_stored_and_not_handed_over_is_retried: a confirmed message has been handed over. The
// node hands over an unconfirmed one as well, even if the sender never retries.
func TestSend_stored_and_not_handed_over_is_retried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		w.before.set(every("Mark", errDown))
		_, err := a.sendKey("alice", chat, "k", "once")
		wantCode(t, "a send that was not handed over", err, tidemark.Unavailable)
		time.Sleep(5 * time.Second)
		w.wantRows("while storage is down", "bob")
		w.before.clear()
		time.Sleep(5 * time.Second)
		w.wantRows("retried", "bob", row("bob", chat, 1))
	})
}

// refusing is a store that never marks a row of one chat.
type refusing struct {
	storage.Store
	chat tidemark.ChatID
}

func (r refusing) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	if slices.ContainsFunc(rows, func(row tidemark.PendingDelivery) bool {
		return row.ChatID == r.chat
	}) {
		return nil, tidemark.Errorf(tidemark.Internal, "refused by order of the test")
	}
	return r.Store.Mark(ctx, rows)
}

// TestRetry_a_row_that_is_refused_is_dropped: a row that storage refuses is dropped, and delays no
// other row. The epoch rises, so that its user's session reconciles.
func TestRetry_a_row_that_is_refused_is_dropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterOn(t, refusing{memory.New(), "refused"})
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.open("eve")
		node := registry.Node{ID: "a", Boot: w.leases("eve")[0].Boot}
		before, err := w.reg.Epoch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.failing()
		for _, of := range []tidemark.ChatID{"refused", chat} {
			gone := registry.Lease{
				User:    "bob",
				Device:  "phone",
				Node:    node.ID,
				Boot:    node.Boot,
				Session: "gone",
			}
			event := bus.Event{
				To:           []registry.Lease{gone},
				Notification: &bus.Notification{Chat: of, Sequence: 1},
			}
			if err := bus.PublishOne(w.ctx, w.bus, node, event); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		w.wantRows("while storage is down", "bob")
		w.before.clear()
		time.Sleep(5 * time.Second)
		w.wantRows("retried", "bob", row("bob", chat, 1))
		if n := a.Counters()["retry_queue"]; n != 0 {
			t.Errorf("got %d in the retry queue, want 0", n)
		}
		if after, err := w.reg.Epoch(w.ctx); err != nil || after == before {
			t.Errorf("got the epoch %v, %v, want another than before", after, err)
		}
	})
}

// TestSend_idempotent_retry_at_another_node_hands_over: the node that stored the message died, and
// the sender retries at another node.
func TestSend_idempotent_retry_at_another_node_hands_over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.leaveProof("bob")
		carol := a.open("carol")
		carol.drain()
		w.appendDead("alice", chat, "k")
		sent, err := a.sendKey("alice", chat, "k", "from a dead node")
		if err != nil || !sent.Duplicate || sent.Message.Sequence != 1 {
			t.Errorf("the retry: got %+v, %v, want the same message", sent, err)
		}
		w.wantRows("offline", "bob", row("bob", chat, 1))
		want(t, "carol", messagesOf(carol.drain()), "message abc 1")
	})
}

func TestSend_idempotent_other_content_is_a_conflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		if _, err := a.sendKey("alice", chat, "k", "one"); err != nil {
			t.Fatal(err)
		}
		_, err := a.sendKey("alice", chat, "k", "another")
		wantCode(t, "other content", err, tidemark.Conflict)
		sent, err := a.sendKey("bob", chat, "k", "another")
		if err != nil || sent.Message.Sequence != 2 {
			t.Errorf("another sender's key: got %+v, %v, want message 2", sent, err)
		}
	})
}

// TestSend_idempotent_after_removal: the key is looked up before the membership. A sender who was
// removed meanwhile still learns that their message was stored.
func TestSend_idempotent_after_removal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		if _, err := a.sendKey("bob", chat, "k", "once"); err != nil {
			t.Fatal(err)
		}
		a.remove(chat, "bob")
		if sent, err := a.sendKey("bob", chat, "k", "once"); err != nil || !sent.Duplicate {
			t.Errorf("the same send again: got %+v, %v, want a duplicate", sent, err)
		}
		_, err := a.sendKey("bob", chat, "k2", "new")
		wantCode(t, "a new send", err, tidemark.NotMember)
	})
}

func TestSend_a_resend_of_an_old_message_sends_nobody_everything_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		if _, err := a.sendKey("alice", chat, "old", "old"); err != nil {
			t.Fatal(err)
		}
		for range 9 {
			a.send("alice", chat)
		}
		bob, carol := a.open("bob"), a.open("carol")
		bob.drain()
		carol.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 10})
		settle()
		fresh := a.open("bob", onDevice("fresh")) // it starts after 10
		fresh.drain()
		a.send("alice", chat)
		for _, c := range []*client{bob, carol, fresh} {
			c.drain()
		}
		before := a.store.Snapshot()
		if sent, err := a.sendKey("alice", chat, "old", "old"); err != nil || !sent.Duplicate {
			t.Fatalf("got %+v, %v, want a duplicate", sent, err)
		}
		settle()
		want(t, "bob, who acknowledged it", messagesOf(bob.drain()))
		want(t, "bob's other device", messagesOf(fresh.drain()))
		want(t, "carol, who had it", messagesOf(carol.drain()))
		if now := a.since(before); now.Marked != 0 {
			t.Errorf("got %d rows written, want 0", now.Marked)
		}
	})
}

func TestSend_sequence_gapless_under_concurrent_senders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		carol := b.open("carol")
		carol.drain()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				node, user := a, tidemark.UserID("alice")
				if i%2 == 1 {
					node, user = b, "bob"
				}
				if _, err := node.sendKey(user, chat, fmt.Sprintf("k%d", i), "hello"); err != nil {
					t.Errorf("send %d: %v", i, err)
				}
			})
		}
		all.Wait()
		var expected []string
		for n := range 100 {
			expected = append(expected, fmt.Sprintf("message abc %d", n+1))
		}
		want(t, "session_in_order", messagesOf(carol.drain()), expected...)
	})
}

// TestAuthor_a_contiguous_run_raises_the_watermark_in_few_writes: an author has their own messages
// (delivery.md §6).
func TestAuthor_a_contiguous_run_raises_the_watermark_in_few_writes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		before := a.store.Snapshot()
		for range 100 {
			a.send("alice", chat)
		}
		settle()
		w.wantState("100 of her own", "alice", chat, 100, 100)
		now := a.since(before)
		if n := now.Items["Advance"] - before.Items["Advance"]; n > 5 {
			t.Errorf("got %d raises for one run, want at most 5", n)
		}
		if now.Calls["Clear"] != 0 {
			t.Errorf("the author's raise cleared %d times, want 0", now.Calls["Clear"])
		}
		w.wantRows("a covered author has no row", "alice")
		w.wantRows("bob is offline", "bob", row("bob", chat, 1))
	})
}

// TestAuthor_is_covered_while_the_raise_is_being_written: an author needs no row from the moment
// their raise is queued, also while it is being written.
func TestAuthor_is_covered_while_the_raise_is_being_written(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		w.before.set(once("Advance", nil, func() { a.send("alice", chat) }))
		a.send("alice", chat)
		settle()
		w.wantState("both are hers", "alice", chat, 2, 2)
		w.wantRows("a covered author has no row", "alice")
	})
}

func TestAuthor_raise_clears_no_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("alice")
		row := []tidemark.PendingDelivery{row("alice", chat, 1)}
		if _, err := w.raw.Mark(w.ctx, row); err != nil {
			t.Fatal(err)
		}
		alice := a.open("alice") // her session lists the row
		alice.drain()
		before := a.store.Snapshot()
		a.send("alice", chat)
		settle()
		w.wantState("her own", "alice", chat, 1, 1)
		if n := a.since(before).Calls["Clear"]; n != 0 {
			t.Errorf("the author's raise cleared %d times, want 0", n)
		}
	})
}

func TestAuthor_a_run_that_does_not_join_is_tried_once_more(t *testing.T) {
	tests := []struct {
		name  string
		after time.Duration
		want  tidemark.Sequence
	}{
		{"the gap is acknowledged in time", 500 * time.Millisecond, 3},
		{"too late", 3 * time.Second, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a := w.node("a")
				chat := a.chat("ab", "alice", "bob")
				a.send("bob", chat)
				settle()
				a.send("alice", chat)
				a.send("alice", chat)
				time.Sleep(tt.after)
				w.wantState("before the acknowledgement", "alice", chat, 0, 0)
				a.ack("alice", chat, 1, 0)
				time.Sleep(5 * time.Second)
				if got := w.state("alice", chat).Acked; got != tt.want {
					t.Errorf("got watermark %d, want %d", got, tt.want)
				}
			})
		})
	}
}

// TestAuthor_who_is_behind_keeps_the_row: an author who is offline and behind has a row from the
// first message that they miss.
func TestAuthor_who_is_behind_keeps_the_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("bob", chat)
		a.send("alice", chat)
		time.Sleep(5 * time.Second)
		w.wantRows("alice", "alice", row("alice", chat, 1))
		want(t, "her device gets both", messagesOf(a.open("alice").drain()),
			"message ab 1", "message ab 2")
	})
}

// TestAuthor_pending_or_delivered_when_the_raise_fails_twice: if the raise that was to cover the
// author fails for good, they get a row, so that their other devices get the message.
func TestAuthor_pending_or_delivered_when_the_raise_fails_twice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("alice")
		w.before.set(every("Advance", errDown))
		a.send("alice", chat)
		time.Sleep(5 * time.Second)
		w.before.clear()
		time.Sleep(5 * time.Second)
		w.wantState("the raise failed twice", "alice", chat, 0, 0)
		w.wantRows("a row instead", "alice", row("alice", chat, 1))
	})
}

func TestSend_implicit_read(t *testing.T) {
	tests := []struct {
		name  string
		acked tidemark.Sequence
		seen  tidemark.Seen
		want  tidemark.Sequence
	}{
		{"all that was delivered, and the reply", 3, tidemark.Seen{}, 4},
		{"not what was never delivered", 1, tidemark.Seen{}, 1},
		{"nothing if nothing was delivered", 0, tidemark.Seen{}, 0},
		{"what the sender states as seen", 3, tidemark.SeenThrough(2), 2},
		{"nothing that the sender declines", 3, tidemark.SeenThrough(0), 0},
		{"the reply after all that precedes it", 3, tidemark.SeenThrough(3), 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a := w.node("a")
				chat := a.chat("ab", "alice", "bob")
				for range 3 {
					a.send("alice", chat)
				}
				if tt.acked > 0 {
					a.ack("bob", chat, tt.acked, 0)
				}
				r := tidemark.Draft{
					ChatID:          chat,
					ClientMessageID: "r",
					Content:         "reply",
					Seen:            tt.seen,
				}
				if _, err := a.Send(a.ctx, "bob", r); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				acked := tt.acked
				if acked == 3 {
					acked = 4 // the reply itself is contiguous
				}
				w.wantState("after the reply", "bob", chat, acked, tt.want)
			})
		})
	}
}

func TestSend_refuses_what_cannot_be_stored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for _, tt := range []struct {
			user    tidemark.UserID
			chat    tidemark.ChatID
			key     string
			content string
			want    tidemark.Code
		}{
			{"alice", chat, "k", "", tidemark.Invalid},
			{"alice", chat, "", "x", tidemark.Invalid},
			{"alice", chat, "k", strings.Repeat("x", tidemark.MaxContent+1), tidemark.TooLarge},
			{"alice", "nowhere", "k", "x", tidemark.NotFound},
			{"eve", chat, "k", "x", tidemark.NotMember},
		} {
			_, err := a.sendKey(tt.user, tt.chat, tt.key, tt.content)
			what := fmt.Sprintf("%s to %s with key %q and %d bytes",
				tt.user, tt.chat, tt.key, len(tt.content))
			wantCode(t, what, err, tt.want)
		}
		if head := w.head(chat); head != 0 {
			t.Errorf("got %d stored messages, want 0", head)
		}
	})
}

// TestSend_goes_to_its_end_when_its_caller_goes_away: a send that has begun does not end with its
// caller. Otherwise a stored message would not be handed over.
func TestSend_goes_to_its_end_when_its_caller_goes_away(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		ctx, cancel := context.WithCancel(w.ctx)
		w.before.set(once("Append", nil, cancel))
		draft := tidemark.Draft{ChatID: chat, ClientMessageID: "k", Content: "hello"}
		sent, err := a.Send(ctx, "alice", draft)
		if err != nil || sent.Message.Sequence != 1 || ctx.Err() == nil {
			t.Errorf("Send whose caller hangs up: got %+v, %v, want message 1", sent, err)
		}
		w.wantRows("offline", "bob", row("bob", chat, 1))
	})
}

// TestAuthor_pending_or_delivered_when_the_watermark_is_not_known: a restarted node does not know
// the author's watermark. It cannot expect their raise to be contiguous, and marks a row.
func TestAuthor_pending_or_delivered_when_the_watermark_is_not_known(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		settle()
		w.wantState("her own message", "alice", chat, 1, 1)
		w.node("b").send("alice", chat)
		w.wantRows("sent where her watermark is not known", "alice", row("alice", chat, 2))
	})
}
