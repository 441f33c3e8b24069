package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// TestR_EPOCH_a_live_session_gets_what_another_device_acknowledged: a message was never handed
// over. Another device of the user finds it when it opens, and acknowledges it. The watermark then
// says nothing about this session, which needs the message as well.
func TestR_EPOCH_a_live_session_gets_what_another_device_acknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		laptop := a.open("bob")
		a.send("alice", chat)
		want(t, "before", messagesOf(laptop.drain()), "message ab 1")
		w.ghost("dead", time.Second)
		w.appendDead("alice", chat, "k")
		phone := a.open("bob")
		want(t, "the phone", messagesOf(phone.drain()), "message ab 1", "message ab 2")
		a.ack("bob", chat, 2, 0)
		time.Sleep(time.Minute)
		want(t, "the laptop", messagesOf(laptop.drain()), "message ab 2")
		want(t, "the phone again", messagesOf(phone.drain()))
	})
}

// TestR_EPOCH_a_session_gets_what_another_device_acknowledged_in_a_quiet_chat: the same, in a chat
// of which the session has not been notified since it opened.
func TestR_EPOCH_a_session_gets_what_another_device_acknowledged_in_a_quiet_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		quiet, old := a.chat("quiet", "alice", "bob"), a.chat("old", "alice", "bob", "carol")
		a.send("alice", old)
		a.ack("bob", old, 1, 0)
		time.Sleep(time.Hour)
		for range 3 {
			a.send("alice", quiet)
		}
		a.ack("bob", quiet, 3, 0)
		time.Sleep(time.Hour)
		phone, laptop := a.open("bob"), b.open("bob")
		phone.drain()
		laptop.drain()
		w.dropping(notificationTo("b"))
		a.send("alice", quiet)
		a.send("alice", quiet)
		want(t, "the phone", messagesOf(phone.drain()), "message quiet 4", "message quiet 5")
		phone.Ack(server.Ack{Chat: quiet, Acked: 5})
		settle()
		want(t, "the laptop, before b notices", messagesOf(laptop.drain()))
		w.publish.clear()
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after its session reconciled",
			messagesOf(laptop.drain()), "message quiet 4", "message quiet 5")
		w.ghost("d", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after it reconciled again", messagesOf(laptop.drain()))
	})
}

// TestR_EPOCH_a_session_gets_what_was_lost_before_its_first_notification: the same, if the
// session's first notification of the chat came after those that were lost.
func TestR_EPOCH_a_session_gets_what_was_lost_before_its_first_notification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat, busy := a.chat("ab", "alice", "bob"), a.chat("abc", "alice", "bob", "carol")
		a.send("alice", busy)
		a.ack("bob", busy, 1, 0)
		time.Sleep(time.Minute)
		phone, laptop := a.open("bob"), b.open("bob")
		a.send("alice", busy)
		want(t, "both", slices.Concat(messagesOf(phone.drain()), messagesOf(laptop.drain())),
			"message abc 2", "message abc 2")
		time.Sleep(time.Hour)
		w.dropping(notificationTo("b"))
		a.send("alice", chat)
		a.send("alice", chat)
		want(t, "the phone", messagesOf(phone.drain()), "message ab 1", "message ab 2")
		phone.Ack(server.Ack{Chat: chat, Acked: 2})
		phone.Ack(server.Ack{Chat: busy, Acked: 2})
		settle()
		w.publish.clear()
		a.send("alice", chat)
		want(t, "the laptop, before b notices", messagesOf(laptop.drain()), "message ab 3")
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after its session reconciled", messagesOf(laptop.drain()),
			"message ab 1", "message ab 2", "message ab 3")
		w.ghost("d", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after it reconciled again", messagesOf(laptop.drain()))
	})
}

// TestR_EPOCH_what_is_not_acknowledged_is_found_whatever_the_clocks_say: the clock of the dead node
// was slow by an hour. Its message seems older than the session, but nobody has acknowledged it.
func TestR_EPOCH_what_is_not_acknowledged_is_found_whatever_the_clocks_say(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		time.Sleep(2 * time.Hour)
		bob := a.open("bob")
		bob.drain()
		w.ghost("dead", time.Second)
		w.appendDeadAt(time.Now().Add(-time.Hour), "alice", chat, "k")
		time.Sleep(time.Minute)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

// TestR_EPOCH_many_active_chats_are_read_page_by_page: a comparison keeps the messages of at most
// 32 active chats in memory. The others come with its next pages.
func TestR_EPOCH_many_active_chats_are_read_page_by_page(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chats = 70
		w := newClusterInMemory(t)
		a := w.node("a")
		laptop := a.open("bob")
		laptop.drain()
		w.manyChats(chats)
		var all []string
		for i := range chats {
			id := tidemark.ChatID(fmt.Sprintf("c%05d", i))
			a.ack("bob", id, 1, 0)
			all = append(all, fmt.Sprintf("message %s 1", id))
		}
		before := a.Counters()["comparisons_total"]
		w.ghost("dead", time.Second)
		time.Sleep(time.Minute)
		got := messagesOf(laptop.drain())
		slices.Sort(got)
		want(t, "the laptop", got, all...)
		if n := a.Counters()["comparisons_total"] - before; n != 3 {
			t.Errorf("the session read %d pages, want 3", n)
		}
	})
}

// emptyPages is a store whose first and last pages of Behind are empty, as those of a user with
// thousands of chats may be.
type emptyPages struct{ storage.Store }

// Behind implements storage.Pending.
func (s emptyPages) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	const beforeAll, afterAll = "!", "~"
	switch q.After {
	case "":
		return nil, beforeAll, true, nil
	case afterAll:
		return nil, "", false, nil
	case beforeAll:
		q.After = ""
	}
	lags, next, more, err := s.Store.Behind(ctx, user, q)
	if !more {
		next = afterAll
	}
	return lags, next, true, err
}

// TestReconcile_pending_or_delivered_reads_on_after_an_empty_page, whether a session opens, another
// node dies, or a client asks.
func TestReconcile_pending_or_delivered_reads_on_after_an_empty_page(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterOn(t, emptyPages{memory.New()})
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		w.appendDead("alice", chat, "1")
		synced, err := a.Sync(w.ctx, "bob", server.SyncRequest{Limit: 1})
		if err != nil || len(synced.Chats) != 1 || synced.HasMore {
			t.Errorf("sync found %+v, error %v, want one chat", synced, err)
		}
		bob := a.open("bob")
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
		w.ghost("dead", time.Second)
		w.appendDead("alice", chat, "2")
		time.Sleep(time.Minute)
		want(t, "bob, after the death", messagesOf(bob.drain()), "message ab 2")
	})
}

// TestReconcile_bounded_use_sessions_compare_some_at_a_time: while storage is slow, a new epoch
// does not make all sessions wait for it. Those that have not begun go on with their messages.
func TestReconcile_bounded_use_sessions_compare_some_at_a_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users, most = 1_000, 700
		w := newClusterInMemory(t)
		a := w.node("a")
		ctx, cancel := context.WithCancel(context.Background())
		var readers sync.WaitGroup
		for i := range users {
			c := a.open(tidemark.UserID(fmt.Sprintf("u%04d", i)))
			c.drain()
			readers.Go(func() {
				for err := error(nil); err == nil; {
					_, err = c.Next(ctx, nil, true)
				}
			})
		}
		slow := make(chan struct{})
		var compared atomic.Int64
		w.before.set(func(method string) error {
			if method == "Behind" {
				compared.Add(1)
				<-slow
			}
			return nil
		})
		w.ghost("dead", time.Second)
		time.Sleep(time.Minute)
		if n := compared.Load(); n < 1 || n > most {
			t.Errorf("%d sessions compare at once, want at most %d", n, most)
		}
		close(slow)
		time.Sleep(time.Minute)
		if n := compared.Load(); n != users {
			t.Errorf("%d sessions have compared, want %d", n, users)
		}
		cancel()
		readers.Wait()
	})
}

// TestSend_unknown_leases_of_those_who_need_no_row_are_looked_up_again: a node that cannot ask the
// registry for a moment keeps its lease, so no session reconciles. The author, and a user with a
// device here, may have a device elsewhere.
func TestSend_unknown_leases_of_those_who_need_no_row_are_looked_up_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		chat := a.chat("ab", "alice", "bob")
		phone, laptop, desk := a.open("bob"), b.open("bob"), b.open("alice")
		for _, c := range []*client{phone, laptop, desk} {
			c.drain()
		}
		time.Sleep(time.Minute)
		before := b.Counters()["epochs_total"]
		down.Store(true)
		a.send("alice", chat)
		want(t, "bob's phone, on the sender's node", messagesOf(phone.drain()), "message ab 1")
		time.Sleep(time.Second)
		down.Store(false)
		time.Sleep(5 * time.Second)
		want(t, "bob's laptop", messagesOf(laptop.drain()), "message ab 1")
		want(t, "alice's other device", messagesOf(desk.drain()), "message ab 1")
		if after := b.Counters()["epochs_total"]; after != before {
			t.Errorf("the epoch rose %d times: the test shows nothing", after-before)
		}
	})
}

// TestR_EPOCH_ticks_are_sent_again: lost status updates are sent again when the session reconciles.
func TestR_EPOCH_ticks_are_sent_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		alice := b.open("alice", withStatuses)
		a.send("alice", chat)
		alice.drain()
		w.dropping(isStatus)
		a.ack("bob", chat, 1, 1)
		settle()
		want(t, "alice", alice.drain())
		w.publish.clear()
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		if got := alice.drain(); !slices.Contains(got, "status ab bob 1 1") {
			t.Errorf("alice got %v, want bob's status", got)
		}
	})
}
