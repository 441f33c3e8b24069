package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// want compares lists of lines.
func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestSession_live_message_and_ticks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		alice, bob := c.open("alice"), c.open("bob")
		want(t, "alice at first", alice.drain(), "open resumed=false", "caught_up")
		want(t, "bob at first", bob.drain(), "open resumed=false", "caught_up")
		c.send("alice", chat)
		want(t, "bob", bob.drain(), "message ab 1")
		want(t, "alice gets her own message, and her own watermark",
			alice.drain(), "message ab 1")
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		want(t, "✓✓", alice.drain(), "status ab bob 1 0")
		bob.Ack(server.Ack{Chat: chat, Read: 1})
		settle()
		want(t, "blue ✓✓", alice.drain(), "status ab bob 1 1")
	})
}

// TestPending_once_and_cheap_catch_up: what a user missed is one row, written once. Their catch-up
// after a clean close is one listing and one read of ranges; with statuses it takes two more reads.
// Acknowledging all of it is one write of the watermark and one clear.
func TestPending_once_and_cheap_catch_up(t *testing.T) {
	for statuses, calls := range map[bool]map[string]int{
		false: {"PendingOf": 1, "Ranges": 1},
		true:  {"PendingOf": 1, "Ranges": 1, "ChatsOf": 1, "States": 1},
	} {
		t.Run(fmt.Sprintf("statuses=%t", statuses), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { countCatchUp(t, statuses, calls) })
		})
	}
}

func countCatchUp(t *testing.T, statuses bool, calls map[string]int) {
	c := start(t, func(cfg *server.Config) { cfg.TailMessages = 1 })
	chat := c.chat("ab", "alice", "bob")
	bob := c.open("bob")
	bob.drain()
	if err := bob.Close(c.ctx); err != nil {
		t.Fatal(err)
	}
	settle()
	before := c.store.Snapshot()
	for range 50 {
		c.send("alice", chat)
	}
	settle()
	if sent := c.since(before); sent.Marked != 1 {
		t.Errorf("50 messages to an offline user wrote %d pending rows, want 1", sent.Marked)
	}
	before = c.store.Snapshot()
	bob = c.open("bob", func(r *openRequest) { r.Statuses = statuses })
	lines := bob.drain()
	if len(lines) < 52 || lines[1] != "message ab 1" || lines[50] != "message ab 50" ||
		lines[51] != "caught_up" {
		t.Errorf("bob's catch-up: got %d events: %v", len(lines), lines)
	}
	if diff := cmp.Diff(calls, c.since(before).Calls); diff != "" {
		t.Errorf("calls of the catch-up (-want +got):\n%s", diff)
	}
	before = c.store.Snapshot()
	bob.Ack(server.Ack{Chat: chat, Acked: 50})
	settle()
	after := c.since(before)
	if diff := cmp.Diff(map[string]int{"Advance": 1, "Clear": 1}, after.Calls); diff != "" {
		t.Errorf("calls of the acknowledgement (-want +got):\n%s", diff)
	}
	if after.Moved != 1 || after.Cleared != 1 {
		t.Errorf("the acknowledgement moved %d watermarks and cleared %d rows, want 1 and 1",
			after.Moved, after.Cleared)
	}
	if rows, _, err := c.store.PendingOf(c.ctx, "bob", "", 10); err != nil || len(rows) != 0 {
		t.Errorf("got rows %v, %v, want none", rows, err)
	}
}

func TestSession_two_devices_both_get_what_was_appended_after_they_opened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		phone, tablet := c.open("bob", onDevice("phone")), c.open("bob", onDevice("tablet"))
		phone.drain()
		tablet.drain()
		c.send("alice", chat)
		c.send("alice", chat)
		phone.drain()
		phone.Ack(server.Ack{Chat: chat, Acked: 2})
		settle()
		c.send("alice", chat)
		settle()
		want(t, "tablet", messagesOf(tablet.drain()),
			"message ab 1", "message ab 2", "message ab 3")
	})
}

// messagesOf returns the messages and gaps among lines.
func messagesOf(lines []string) []string {
	var out []string
	for _, l := range lines {
		if len(l) > 4 && (l[:4] == "mess" || l[:4] == "gap ") {
			out = append(out, l)
		}
	}
	return out
}

// statusesOf returns the lines of statuses, all of them or those of the given users.
func statusesOf(lines []string, users ...string) []string {
	var out []string
	for _, l := range lines {
		about := func(user string) bool { return strings.Contains(l, " "+user+" ") }
		if strings.HasPrefix(l, "status ") &&
			(len(users) == 0 || slices.ContainsFunc(users, about)) {
			out = append(out, l)
		}
	}
	return out
}

func TestSession_resume_goes_back_to_the_position(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		ab, bc := c.chat("ab", "alice", "bob"), c.chat("bc", "bob", "carol")
		bob := c.open("bob")
		bob.drain()
		c.send("alice", ab)
		bob.drain()
		position := bob.last
		c.send("alice", ab)
		c.send("carol", bc)
		lost := bob.drain()
		bob.Detach()
		c.send("alice", ab)
		again := c.open("bob", resuming(bob.Session(), position))
		again.last = bob.last
		want(t, "lost", messagesOf(lost), "message ab 2", "message bc 1")
		want(t, "again", messagesOf(again.drain()), "message ab 2", "message ab 3", "message bc 1")
		if _, err := bob.Next(c.ctx, nil, true); tidemark.CodeOf(err) != tidemark.Replaced {
			t.Errorf("the older connection got %v, want %s", err, tidemark.Replaced)
		}
		third := c.open("bob", resuming(bob.Session(), position))
		third.last = again.last
		want(t, "the same position again", messagesOf(third.drain()),
			"message ab 2", "message ab 3", "message bc 1")
	})
}

func TestSession_unknown_position_is_reset_and_sync_goes_on(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		for range 5 {
			c.send("alice", chat)
		}
		bob := c.open("bob")
		bob.drain()
		never := c.open("bob", resuming(bob.Session(), bob.last+1))
		never.last = bob.last
		want(t, "a position that was never sent", never.drain(),
			"open resumed=false", "reset unknown_position")
		r := server.SyncRequest{
			Session: never.Session(),
			Limit:   50,
			Cursors: []server.Cursor{{Chat: chat, Acked: 2}},
		}
		if _, err := never.Sync(c.ctx, r); err != nil {
			t.Fatal(err)
		}
		settle()
		want(t, "after the cursor", messagesOf(never.drain()),
			"message ab 3", "message ab 4", "message ab 5")
		if st := c.ack("bob", chat, 1, 0); st.Acked != 2 {
			t.Errorf("got watermark %d, want 2, since a cursor is an acknowledgement", st.Acked)
		}
		other := c.open("bob", resuming("AAAAAAAAAAAAAAAAAAAAAA", 3))
		want(t, "an unknown session", other.drain()[:2],
			"open resumed=false", "reset unknown_session")
		_, err := c.Open(c.ctx, openRequest{User: "alice", Session: bob.Session(), Poll: true})
		wantCode(t, "another user's session", err, tidemark.Gone)
	})
}

func TestSession_no_acknowledgement_within_grace_marks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		bob.drain()
		time.Sleep(9 * time.Second)
		w.wantRows("within grace", "bob")
		time.Sleep(2 * time.Second)
		w.wantRows("after grace", "bob", row("bob", chat, 1))
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		w.wantRows("the session knows of its mark, so the acknowledgement clears it", "bob")
	})
}

func TestSession_expires_and_marks_what_was_not_acknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.Grace = time.Hour })
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		a.send("alice", chat)
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		bob.Detach()
		time.Sleep(62 * time.Second)
		w.wantRows("expired", "bob", row("bob", chat, 2))
		a.send("alice", chat)
		back := a.open("bob", resuming(bob.Session(), bob.last))
		want(t, "back", messagesOf(back.drain()), "message ab 2", "message ab 3")
	})
}

func TestPending_once_a_close_with_nothing_unacknowledged_marks_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		bob.goodbye()
		w.wantRows("everything was acknowledged", "bob")
	})
}

// TestSession_no_acknowledgement_of_a_later_message_within_grace_marks: a second message gets a
// grace period of its own when the first one is acknowledged.
func TestSession_no_acknowledgement_of_a_later_message_within_grace_marks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		time.Sleep(5 * time.Second)
		a.send("alice", chat)
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		time.Sleep(20 * time.Second)
		w.wantRows("the second message", "bob", row("bob", chat, 2))
	})
}

func TestR_CLEAR_the_last_of_several_acknowledgements_on_a_stream_ends_the_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		a.send("alice", chat)
		bob := a.open("bob")
		bob.drain()
		for n, rows := range [][]tidemark.PendingDelivery{
			{row("bob", chat, 1)}, {row("bob", chat, 2)}, nil,
		} {
			bob.Ack(server.Ack{Chat: chat, Acked: tidemark.Sequence(n)})
			settle()
			w.wantRows(fmt.Sprintf("acknowledged %d of 2", n), "bob", rows...)
		}
	})
}

// TestR_PROOF_rows_lead_to_the_end_of_a_long_chat: a row names the first message, not the last. The
// session reads pages up to the end.
func TestR_PROOF_rows_lead_to_the_end_of_a_long_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 500
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		for range messages {
			a.send("alice", chat)
		}
		got := messagesOf(a.open("bob").drain())
		if n := len(got); n != messages || got[n-1] != fmt.Sprintf("message ab %d", messages) {
			t.Errorf("got %d messages, want %d", n, messages)
		}
	})
}

// TestR_MIN_start_is_behind_the_watermark_when_a_notification_was_lost: after an unnoticed loss,
// the next notification makes the session read from the watermark on, not from the notified
// sequence.
func TestR_MIN_start_is_behind_the_watermark_when_a_notification_was_lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		lost := false
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && !lost {
				lost = true
				return nil
			}
			return send()
		})
		a.send("alice", chat)
		a.send("alice", chat)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1", "message ab 2")
	})
}

func TestSession_resume_lossless_of_every_kind_of_event(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		a.remove(chat, "bob")
		a.send("alice", chat)
		a.add(chat, "bob")
		a.send("alice", chat)
		a.add(chat, "dave")
		a.ack("carol", chat, 1, 0)
		settle()
		sent := bob.drain()
		again := a.open("bob", resuming(bob.Session(), 1))
		again.last = bob.last
		got := again.drain()
		for _, line := range []string{
			"caught_up", "membership abc bob removed", "gap abc 1-1", "message abc 2",
			"membership abc dave added", "status abc carol 1 0",
		} {
			if line != "caught_up" && !slices.Contains(sent, line) || !slices.Contains(got, line) {
				t.Errorf("%s: got %v, and after the resume %v, want it in both", line, sent, got)
			}
		}
	})
}
