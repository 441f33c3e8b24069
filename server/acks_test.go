package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
			status, err := a.DeliveryStatus(a.ctx, "alice", server.DeliveryStatusRequest{
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
		status, err := a.DeliveryStatus(a.ctx, "alice",
			server.DeliveryStatusRequest{Chat: chat, Limit: 10})
		if err != nil || status.Summary.Delivered != 2 {
			t.Errorf("after %v: got %+v, %v, want 2 delivered",
				time.Since(begun), status.Summary, err)
		}
	})
}

func TestStatus_delivery_query_authorization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		ask := func(user tidemark.UserID) error {
			_, err := a.DeliveryStatus(a.ctx, user,
				server.DeliveryStatusRequest{Chat: chat, Limit: 10})
			return err
		}
		wantCode(t, "a member", ask("bob"), "")
		wantCode(t, "a stranger", ask("eve"), tidemark.NotMember)
		a.remove(chat, "bob")
		wantCode(t, "a former member", ask("bob"), tidemark.NotMember)
		_, err := a.DeliveryState(a.ctx, "bob", chat)
		wantCode(t, "a former member's own state", err, tidemark.NotMember)
		for n, code := range map[tidemark.Sequence]tidemark.Code{
			0: tidemark.InvalidSequence, 1: "", 2: tidemark.InvalidSequence,
		} {
			_, err := a.DeliveryStatus(a.ctx, "carol", server.DeliveryStatusRequest{
				Chat:        chat,
				ForSequence: &n,
				Limit:       10,
			})
			wantCode(t, fmt.Sprintf("for_sequence %d of 1", n), err, code)
		}
	})
}

func TestStatus_group_delivered_requires_all_members(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		settle()
		delivered := func() string {
			s, err := a.DeliveryStatus(a.ctx, "alice",
				server.DeliveryStatusRequest{Chat: chat, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d of %d", s.Summary.Delivered, s.Summary.Members)
		}
		steps := []string{delivered()}
		a.ack("bob", chat, 1, 0)
		steps = append(steps, delivered())
		a.ack("carol", chat, 1, 0)
		steps = append(steps, delivered())
		a.add(chat, "dave")
		steps = append(steps, delivered())
		a.remove(chat, "dave")
		steps = append(steps, delivered())
		want(t, "delivered", steps, "1 of 3", "2 of 3", "3 of 3", "3 of 4", "3 of 3")
		settle()
	})
}

func TestStatus_read_implies_delivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		alice := a.open("alice")
		settle()
		alice.drain()
		a.ack("bob", chat, 0, 3)
		settle()
		want(t, "pushed", alice.drain(), "status ab bob 3 3")
		want(t, "in a snapshot", a.open("alice", withStatuses).drain(), "open resumed=false",
			"caught_up", "status ab alice 3 2", "status ab bob 3 3")
		s, err := a.DeliveryStatus(a.ctx, "alice",
			server.DeliveryStatusRequest{Chat: chat, Limit: 10})
		if err != nil || s.Summary.Delivered != 2 || s.Summary.Least.Acked != 3 {
			t.Errorf("asked: got %+v, %v, want 2 delivered, least 3", s.Summary, err)
		}
		w.wantState("bob's stored state stays raw", "bob", chat, 0, 3)
	})
}

func TestStatus_delivered_not_causal_across_chats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		ab, bc := a.chat("ab", "alice", "bob"), a.chat("bc", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", ab)
		a.send("carol", bc)
		events, err := bob.Next(a.ctx, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]bool{}
		for _, e := range events {
			if e.Type != tidemark.EventMessage {
				continue
			}
			var m map[string]json.RawMessage
			if err := json.Unmarshal(e.Payload, &m); err != nil {
				t.Fatal(err)
			}
			if string(m["sequence"]) != "1" {
				t.Errorf("got sequence %s in %s, want 1: each chat counts its own",
					m["sequence"], m["chat_id"])
			}
			for name := range m {
				fields[name] = true
			}
		}
		allowed := []string{
			"message_id", "chat_id", "sequence", "sender_id", "client_message_id", "content",
			"content_type", "attachment", "created_at",
		}
		for name := range fields {
			if !slices.Contains(allowed, name) {
				t.Errorf("a message has the new field %q: it must not order across chats", name)
			}
		}
		if len(fields) == 0 {
			t.Error("got no message")
		}
	})
}

// statusLines returns the status updates about a user.
func statusLines(lines []string, user string) []string {
	var out []string
	for _, l := range lines {
		if strings.HasPrefix(l, "status ") && strings.Contains(l, " "+user+" ") {
			out = append(out, l)
		}
	}
	return out
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

func TestStatus_coalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		for range 200 {
			a.send("alice", chat)
		}
		settle()
		alice, carol := a.open("alice"), a.open("carol")
		alice.drain()
		carol.drain()
		stops := []func() []string{alice.collect(), carol.collect()}
		for n := range 100 {
			a.ack("bob", chat, tidemark.Sequence(n+1), 0)
			time.Sleep(time.Millisecond)
		}
		settle()
		for i, stop := range stops {
			got := statusLines(stop(), "bob")
			if len(got) > 2 || len(got) == 0 || got[len(got)-1] != "status abc bob 100 0" {
				t.Errorf("member %d: got %v, want at most 2 updates, the last of them at 100",
					i, got)
			}
		}
	})
}

// TestStatus_one_unsent_boundary_per_member: a session that is not read holds at most one boundary
// per chat and member.
func TestStatus_one_unsent_boundary_per_member(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 20 {
			a.send("alice", chat)
		}
		settle()
		alice := a.open("alice")
		alice.drain()
		for n := range 20 {
			a.ack("bob", chat, tidemark.Sequence(n+1), 0)
			settle()
		}
		want(t, "alice, who did not read", alice.drain(), "status ab bob 20 0")
	})
}

func TestStatus_tick_monotone_aggregate_never_falls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		users := []tidemark.UserID{"alice"}
		for i := range 50 {
			users = append(users, tidemark.UserID(fmt.Sprintf("u%02d", i)))
		}
		chat := a.chat("big", users...)
		a.send("alice", chat)
		settle()
		alice := a.open("alice")
		alice.drain()
		acks := func(n tidemark.Sequence) {
			for _, u := range users[1:] {
				a.ack(u, chat, n, 0)
			}
			settle()
		}
		acks(1)
		want(t, "all have the first", alice.drain(), "status big all 1 0")
		a.add(chat, "zoe")
		settle()
		a.send("alice", chat)
		acks(2)
		for _, l := range alice.drain() {
			if strings.HasPrefix(l, "status") {
				t.Errorf("the aggregate moved while zoe has acknowledged nothing: %s", l)
			}
		}
		a.ack("zoe", chat, 2, 0)
		settle()
		want(t, "all have the second", alice.drain(), "status big all 2 0")
		a.send("alice", chat)
		acks(3)
		alice.drain()
		a.remove(chat, "zoe")
		settle()
		want(t, "removing the last member without it", alice.drain(),
			"membership big zoe removed", "status big all 3 0")
	})
}

func TestStatus_snapshot_follows_caught_up(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		a.send("bob", chat)
		a.ack("bob", chat, 1, 1)
		settle()
		a.ack("bob", chat, 2, 0)
		a.open("nobody").drain()
		want(t, "with statuses", a.open("alice", withStatuses).drain(),
			"open resumed=false", "message ab 2", "caught_up",
			"status ab alice 1 0", "status ab bob 2 1")
		want(t, "without", a.open("alice").drain(),
			"open resumed=false", "message ab 2", "caught_up")
		alice := a.open("alice")
		alice.drain()
		a.ack("bob", chat, 2, 2)
		settle()
		want(t, "a raise reaches both sessions", alice.drain(), "status ab bob 2 2")
	})
}
