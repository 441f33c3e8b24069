package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// The tests are named after the invariants of ADR-008 Appendix E that concern the core.

func TestAck_watermark_monotonic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 5 {
			a.send("alice", chat)
		}
		bob := a.open("bob")
		bob.drain()
		for _, tt := range []struct{ ack, want tidemark.Sequence }{{3, 3}, {2, 3}, {5, 5}, {1, 5}} {
			if st := a.ack("bob", chat, tt.ack, 0); st.Acked != tt.want {
				t.Errorf("after %d over HTTP: got %d, want %d, what is stored",
					tt.ack, st.Acked, tt.want)
			}
			bob.Ack(server.Ack{Chat: chat, Acked: tt.ack})
			settle()
			w.wantState("after the same on the stream", "bob", chat, tt.want, 0)
		}
	})
}

// TestAck_conditional_write_prevents_regression: if an acknowledgement overtakes another on its way
// to storage, the higher one stays.
func TestAck_conditional_write_prevents_regression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		for range 5 {
			a.send("alice", chat)
		}
		settle() // the author's raises are written now
		w.before.set(once("Advance", nil, func() { b.ack("bob", chat, 5, 4) }))
		if st := a.ack("bob", chat, 2, 1); st.Acked != 5 || st.Read != 4 {
			t.Errorf("overtaken acknowledgement: got %d, %d, want 5, 4", st.Acked, st.Read)
		}
		w.wantState("both written", "bob", chat, 5, 4)
	})
}

func TestAck_cumulative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 5 {
			a.send("alice", chat)
		}
		a.ack("bob", chat, 4, 0)
		for n := tidemark.Sequence(1); n <= 5; n++ {
			status, err := a.DeliveryStatus(a.ctx, server.Caller{User: "alice"},
				server.DeliveryStatusRequest{
					Chat:        chat,
					ForSequence: &n,
					Limit:       10,
				})
			if err != nil {
				t.Fatal(err)
			}
			delivered := 0
			settle()
			for _, m := range status.Members {
				if m.UserID == "bob" && m.Acked >= n {
					delivered = 1
				}
			}
			if want := map[bool]int{true: 1, false: 0}[n <= 4]; delivered != want {
				t.Errorf("message %d: delivered to bob %d, want %d", n, delivered, want)
			}
		}
		want(t, "unacknowledged", messagesOf(a.open("bob").drain()), "message ab 5")
	})
}

func TestAck_watermark_bounded_by_counter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		results, err := a.Acknowledge(a.ctx, "bob", []server.Ack{
			{Chat: chat, Acked: 2}, {Chat: chat, Read: 2}, {Chat: chat},
			{Chat: "nowhere", Acked: 1}, {Chat: chat, Acked: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		codes := []tidemark.Code{
			tidemark.InvalidSequence, tidemark.InvalidSequence, tidemark.Invalid, tidemark.NotFound,
			"",
		}
		for i, r := range results {
			wantCode(t, fmt.Sprintf("item %d", i), r.Err, codes[i])
		}
		w.wantState("each item stands alone", "bob", chat, 1, 0)
		bob := a.open("bob")
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 7}, server.Ack{Chat: chat, Read: 7})
		settle()
		w.wantState("a stream's bad acknowledgement is dropped", "bob", chat, 1, 0)
		if n := a.Counters()["acks_refused_total{beyond_head}"]; n != 1 {
			t.Errorf("got %d refused acknowledgements, want 1: both became one raise", n)
		}
	})
}

func TestAck_delivered_implies_persisted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		w.before.set(every("Append", errDown))
		_, err := a.sendKey("alice", chat, "k", "never stored")
		wantCode(t, "a send while storage is down", err, tidemark.Unavailable)
		want(t, "bob", messagesOf(bob.drain()))
		w.before.clear()
		results, err := a.Acknowledge(a.ctx, "bob", []server.Ack{{Chat: chat, Acked: 1}})
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, "acknowledging what is not stored", results[0].Err, tidemark.InvalidSequence)
	})
}

func TestAck_multi_device_highest_wins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		for range 5 {
			a.send("alice", chat)
		}
		phone, tablet := a.open("bob", onDevice("phone")), b.open("bob", onDevice("tablet"))
		phone.drain()
		tablet.drain()
		phone.Ack(server.Ack{Chat: chat, Acked: 5})
		tablet.Ack(server.Ack{Chat: chat, Acked: 3})
		settle()
		w.wantState("phone 5, tablet 3", "bob", chat, 5, 0)
		tablet.Ack(server.Ack{Chat: chat, Acked: 4, Read: 2})
		settle()
		w.wantState("tablet 4", "bob", chat, 5, 2)
	})
}

func TestAck_delivery_state_independent_of_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		for range 3 {
			a.send("alice", chat)
		}
		a.ack("bob", chat, 2, 1)
		a.remove(chat, "bob")
		w.wantState("removed", "bob", chat, 2, 1)
		_, err := a.DeliveryState(a.ctx, "bob", chat)
		wantCode(t, "the state of a former member", err, tidemark.NotMember)
		a.add(chat, "bob")
		st, err := a.DeliveryState(a.ctx, "bob", chat)
		if err != nil || st.Acked != 2 || st.Read != 1 {
			t.Errorf("after the return: got %+v, %v, want 2, 1", st, err)
		}
		settle()
	})
}

// TestAck_fire_and_forget: a thousand acknowledgements on a stream, some of them bad, cause no
// event and few writes.
func TestAck_fire_and_forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, foreign := a.chat("ab", "alice", "bob"), a.chat("xy", "xavier", "yvonne")
		for range 1000 {
			key := fmt.Sprintf("k%d", w.head(chat))
			if _, err := a.sendKey("alice", chat, key, "x"); err != nil {
				t.Fatal(err)
			}
		}
		a.send("xavier", foreign)
		bob := a.open("bob")
		bob.drain()
		settle()
		bob.drain()
		before := a.store.Snapshot()
		for n := range 1000 {
			bob.Ack(server.Ack{Chat: chat, Acked: tidemark.Sequence(n + 1)})
			switch n % 5 {
			case 0:
				bob.Ack(server.Ack{Chat: chat, Acked: 999_999})
			case 1:
				bob.Ack(server.Ack{Chat: "no such chat", Acked: 1})
			case 2:
				bob.Ack(server.Ack{})
			case 3:
				bob.Ack(server.Ack{Chat: "nowhere", Acked: 1})
			}
		}
		settle()
		now := a.since(before)
		if n := now.Calls["Advance"]; n > 6 {
			t.Errorf("got %d writes, want at most 6", n)
		}
		for _, l := range bob.drain() {
			if !strings.HasPrefix(l, "status") {
				t.Errorf("got an event for an acknowledgement: %s", l)
			}
		}
		if n := a.Counters()["acks_refused_total{malformed}"]; n < 400 {
			t.Errorf("got %d malformed ones counted, want at least 400", n)
		}
	})
}

func TestAck_coalesced_within_the_interval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 200 {
			a.send("alice", chat)
		}
		bob := a.open("bob")
		bob.drain()
		settle()
		before := a.store.Snapshot()
		for n := range 200 { // for 200 ms, four intervals
			bob.Ack(server.Ack{Chat: chat, Acked: tidemark.Sequence(n + 1)})
			time.Sleep(time.Millisecond)
		}
		settle()
		w.wantState("all acknowledged", "bob", chat, 200, 0)
		if n := a.since(before).Calls["Advance"]; n > 6 {
			t.Errorf("got %d writes in 4 intervals, want about one in each", n)
		}
	})
}

// TestAck_a_bad_one_does_not_spoil_the_good_ones_beside_it: coalesced with a bad acknowledgement, a
// good one is still written.
func TestAck_a_bad_one_does_not_spoil_the_good_ones_beside_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		bob := a.open("bob")
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 3}, server.Ack{Chat: chat, Acked: 4})
		settle()
		w.wantState("3 is right, 4 is beyond the head", "bob", chat, 3, 0)
	})
}

// TestAck_of_a_stranger_is_not_pushed: an acknowledgement on a stream by a user who is no member
// changes nothing that others see (ADR-008 §3.1).
func TestAck_of_a_stranger_is_not_pushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		settle()
		alice, eve := a.open("alice"), a.open("eve")
		alice.drain()
		eve.drain()
		eve.Ack(server.Ack{Chat: chat, Acked: 1, Read: 1})
		settle()
		for _, l := range alice.drain() {
			if strings.Contains(l, "eve") {
				t.Errorf("alice got a status of a user who is no member: %s", l)
			}
		}
		results, err := a.Acknowledge(a.ctx, "eve", []server.Ack{{Chat: chat, Acked: 1}})
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, "over HTTP", results[0].Err, tidemark.NotMember)
	})
}

// TestAck_delivered_is_eventually_consistent_within_a_second: an acknowledgement waits behind more
// others than one write takes. On stores where a chat costs more, there are fewer others.
func TestAck_delivered_is_eventually_consistent_within_a_second(t *testing.T) {
	others := fewer(t, 2_500)
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("z", "alice", "bob") // its acknowledgement is written last
		a.send("alice", chat)
		w.manyChats(others)
		bob := a.open("bob")
		bob.drain()
		for i := range others {
			bob.Ack(server.Ack{Chat: tidemark.ChatID(fmt.Sprintf("c%05d", i)), Acked: 1})
		}
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		begun := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		status, err := a.DeliveryStatus(a.ctx, server.Caller{User: "alice"},
			server.DeliveryStatusRequest{Chat: chat, Limit: 10})
		if err != nil || status.Summary.Delivered != 2 {
			t.Errorf("after %v: got %+v, %v, want 2 delivered",
				time.Since(begun), status.Summary, err)
		}
	})
}

// collect reads a connection continuously. stop ends this and returns the lines.
func (c *client) collect() (stop func() []string) {
	var lines []string
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		for {
			events, err := c.Next(ctx, nil, true)
			if err != nil {
				return
			}
			for _, e := range events {
				lines = append(lines, line(c.t, e))
			}
		}
	})
	return func() []string {
		synctest.Wait()
		cancel()
		running.Wait()
		return lines
	}
}
