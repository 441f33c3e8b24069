package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// canary is what redacted messages say. No test finds it where it may not be.
const canary = "canary-5f1c9e"

// tailsTrust waits until nodes keep in memory all that others send them: in the first minute of a
// term they keep only what certainly was stored in it.
func tailsTrust() {
	nodesTrust()
	time.Sleep(75 * time.Second)
}

// relate sends a relation, and returns its sequence.
func (c *core) relate(
	user tidemark.UserID, chat tidemark.ChatID, kind tidemark.Kind, target tidemark.Sequence,
	content string,
) tidemark.Sequence {
	c.t.Helper()
	sent, err := c.tryRelate(server.Caller{User: user}, chat, kind, target, content)
	if err != nil {
		c.t.Fatalf("%s of %s %d by %s: %v", kind, chat, target, user, err)
	}
	return sent.Message.Sequence
}

func (c *core) tryRelate(
	by server.Caller, chat tidemark.ChatID, kind tidemark.Kind, target tidemark.Sequence,
	content string,
) (server.Sent, error) {
	c.sent++
	d := tidemark.Draft{
		ChatID: chat, ClientMessageID: fmt.Sprintf("%s-%d", c.node, c.sent), Kind: kind,
		Relation: &tidemark.Relation{Sequence: target}, Content: content,
	}
	by.Author(&d)
	return c.Send(c.ctx, by.User, d)
}

// said reads everything that is due, and returns what its messages say: "3 edit of 1: text".
func (c *client) said() (lines []string) {
	c.t.Helper()
	for {
		synctest.Wait()
		events, err := c.Next(context.Background(), nil, false)
		if err != nil {
			c.t.Fatalf("Next of %s: %v", c.user, err)
		}
		if len(events) == 0 {
			return lines
		}
		for _, e := range events {
			c.last = max(c.last, e.ID)
			if e.Type != tidemark.EventMessage {
				continue
			}
			m, err := tidemark.ParseMessage(e.Payload)
			if err != nil {
				c.t.Fatal(err)
			}
			lines = append(lines, says(&m))
		}
	}
}

// says returns a message as said does.
func says(m *tidemark.Message) string {
	if m.Relation == nil {
		text := fmt.Sprint(m.Sequence, ": ", m.Content)
		if r := m.Revision; r != nil {
			text += fmt.Sprint(" (", r.Kind, " by ", r.By, " in ", r.Sequence, ")")
		}
		return text
	}
	text := fmt.Sprint(m.Sequence, " ", m.Kind, " of ")
	if t := m.Relation.Target; t != nil {
		return text + says(t)
	}
	if list := m.Relation.Sequences; list != nil {
		return text + fmt.Sprint(list)
	}
	text += fmt.Sprint(m.Relation.Sequence)
	if emoji := m.Relation.Emoji; emoji != "" {
		text += " " + emoji
	}
	return text
}

// wantNo checks that no line has the canary.
func wantNo(t *testing.T, what string, lines []string) {
	t.Helper()
	for _, l := range lines {
		if strings.Contains(l, canary) {
			t.Errorf("%s: a redacted text is still there: %s", what, l)
		}
	}
}

// groupOf creates a group with a history.
func (c *core) groupOf(
	id tidemark.ChatID, history tidemark.HistoryMode, users ...tidemark.UserID,
) tidemark.ChatID {
	c.t.Helper()
	_, _, err := c.CreateChat(c.ctx, server.Caller{User: users[0]}, server.CreateChatRequest{
		ChatID: id, Type: tidemark.Group, History: history, MemberIDs: users,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// secret sends a message with the canary.
func (c *core) secret(user tidemark.UserID, chat tidemark.ChatID) {
	c.t.Helper()
	if _, err := c.sendKey(user, chat, "secret", canary); err != nil {
		c.t.Fatal(err)
	}
}

func TestRelation_edits_and_redactions_reach_sessions_history_and_lists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.chat("ab", "alice", "bob")
		live := b.open("bob", onDevice("phone"))
		live.said()
		a.send("alice", chat)
		a.send("bob", chat)
		want(t, "before", live.said(), "1: message 1", "2: message 2")
		if n := a.relate("alice", chat, tidemark.KindEdit, 1, "better"); n != 3 {
			t.Errorf("got sequence %d, want 3", n)
		}
		want(t, "edited", live.said(), "3 edit of 1: better (edit by alice in 3)")
		a.relate("bob", chat, tidemark.KindRedact, 2, "")
		want(t, "redacted", live.said(), "4 redact of 2:  (redact by bob in 4)")
		b.relate("alice", chat, tidemark.KindEdit, 1, "best")
		now := []string{
			"1: best (edit by alice in 5)", "2:  (redact by bob in 4)",
			"3 edit of 1: best (edit by alice in 5)", "4 redact of 2:  (redact by bob in 4)",
			"5 edit of 1: best (edit by alice in 5)",
		}
		want(t, "another device", b.open("bob", onDevice("tablet")).said(), now...)
		var history []string
		page, err := a.History(a.ctx, "bob", server.HistoryRequest{Chat: chat, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Messages {
			history = append(history, says(&page.Messages[i]))
		}
		want(t, "history", history, now...)
		for _, last := range []*tidemark.Message{
			a.lastInList("bob"), a.lastOf("bob", chat),
		} {
			want(t, "last message", []string{says(last)}, "2:  (redact by bob in 4)")
		}
	})
}

// lastInList returns the last message of the user's only chat, as their list has it.
func (c *core) lastInList(user tidemark.UserID) *tidemark.Message {
	c.t.Helper()
	page, err := c.Chats(c.ctx, user, 10, "")
	if err != nil || len(page.Chats) != 1 {
		c.t.Fatalf("list of chats: got %+v, %v", page, err)
	}
	return page.Chats[0].Last
}

// lastOf returns the last message of a chat, as the chat itself has it.
func (c *core) lastOf(user tidemark.UserID, chat tidemark.ChatID) *tidemark.Message {
	c.t.Helper()
	view, err := c.Chat(c.ctx, server.Caller{User: user}, chat)
	if err != nil || view.Last == nil {
		c.t.Fatalf("chat: got %+v, %v", view, err)
	}
	return view.Last
}

func TestRelation_last_message_is_within_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		a.send("alice", chat)
		a.add(chat, "carol")
		a.relate("alice", chat, tidemark.KindEdit, 1, "edited")
		view, err := a.Chat(a.ctx, server.Caller{User: "carol"}, chat)
		if err != nil || view.Last != nil {
			t.Errorf("carol: got %+v, %v, want no last message", view.Last, err)
		}
		want(t, "bob", []string{says(a.lastOf("bob", chat))}, "1: edited (edit by alice in 2)")
	})
}

// TestRelation_last_messages_of_many_chats_are_read_together: a list of chats whose last messages
// are relations costs as many reads as one such chat.
func TestRelation_last_messages_of_many_chats_are_read_together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		const chats = 5
		for n := range chats {
			chat := a.groupOf(tidemark.ChatID(fmt.Sprint("g", n)), tidemark.HistoryFull, "alice",
				"bob")
			a.send("alice", chat)
			for range n + 1 {
				a.relate("alice", chat, tidemark.KindEdit, 1, fmt.Sprint("edited ", n))
			}
		}
		reads := 0
		w.before.set(func(method string) error {
			if method == "Ranges" || method == "Rosters" {
				reads++
			}
			return nil
		})
		page, err := w.node("b").Chats(a.ctx, "bob", chats, "")
		w.before.clear()
		if err != nil || len(page.Chats) != chats {
			t.Fatalf("list of chats: got %+v, %v", page, err)
		}
		if reads > 2 {
			t.Errorf("the list takes %d reads of rosters and messages, want 2", reads)
		}
		for n, view := range page.Chats {
			want := fmt.Sprintf("1: edited %d (edit by alice in %d)", n, n+2)
			if view.Last == nil || says(view.Last) != want {
				t.Errorf("%s: the last message is %+v, want %s", view.ID, view.Last, want)
			}
		}
	})
}

func TestRelation_invisible_targets_are_left_out(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		a.send("alice", chat)
		a.add(chat, "carol")
		live := a.open("carol", onDevice("phone"))
		live.said()
		a.relate("alice", chat, tidemark.KindEdit, 1, canary)
		lines := live.said()
		lines = append(lines, a.open("carol", onDevice("tablet")).said()...)
		// This node has nothing in memory.
		lines = append(lines, b.open("carol", onDevice("laptop")).said()...)
		page, err := a.History(a.ctx, "carol", server.HistoryRequest{Chat: chat, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Messages {
			lines = append(lines, says(&page.Messages[i]))
		}
		synced, err := a.Sync(a.ctx, "carol", server.SyncRequest{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range synced.Chats {
			for i := range c.Messages {
				lines = append(lines, says(&c.Messages[i]))
			}
		}
		want(t, "carol", lines, slices.Repeat([]string{"2 edit of 1"}, 5)...)
		want(t, "bob", a.open("bob").said(), "1: "+canary+" (edit by alice in 2)",
			"2 edit of 1: "+canary+" (edit by alice in 2)")
		_, err = a.tryRelate(server.Caller{User: "carol"}, chat, tidemark.KindRedact, 1, "")
		wantCode(t, "carol redacts what she does not see", err, tidemark.NotFound)
	})
}

func TestRelation_refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
		chat := a.groupOf("g", tidemark.HistoryFull, "alice", "bob", "carol")
		a.send("bob", chat)
		alice, bob := server.Caller{User: "alice"}, server.Caller{User: "bob"}
		carol, out := server.Caller{User: "carol"}, server.Caller{User: "out"}
		backend := server.Caller{User: "carol", Backend: true}
		for _, test := range []struct {
			what    string
			by      server.Caller
			kind    tidemark.Kind
			target  tidemark.Sequence
			content string
			want    tidemark.Code
		}{
			{"no content", bob, tidemark.KindEdit, 1, "", tidemark.Invalid},
			{"content of a redaction", bob, tidemark.KindRedact, 1, "x", tidemark.Invalid},
			{"target 0", bob, tidemark.KindEdit, 0, "x", tidemark.Invalid},
			{"target 2^53", bob, tidemark.KindEdit, 1 << 53, "x", tidemark.Invalid},
			{"above the head", bob, tidemark.KindEdit, 2, "x", tidemark.NotFound},
			{"itself", bob, tidemark.KindRedact, 2, "", tidemark.NotFound},
			{"another's, edited", alice, tidemark.KindEdit, 1, "x", tidemark.Denied},
			{"another's, redacted", carol, tidemark.KindRedact, 1, "", tidemark.Denied},
			{"a stranger", out, tidemark.KindRedact, 1, "", tidemark.NotMember},
			{"a plain message with a relation", bob, tidemark.KindMessage, 1, "x",
				tidemark.Invalid},
			{"an unknown kind", bob, "boost", 1, "x", tidemark.Invalid},
			{"by the owner", alice, tidemark.KindRedact, 1, "", ""},
			{"what was redacted, edited", bob, tidemark.KindEdit, 1, "x", tidemark.Conflict},
			{"redacted again", backend, tidemark.KindRedact, 1, "", ""},
			{"a relation", alice, tidemark.KindRedact, 2, "", tidemark.Conflict},
		} {
			sent, err := a.tryRelate(test.by, chat, test.kind, test.target, test.content)
			if got := tidemark.CodeOf(err); got != test.want {
				t.Errorf("%s: got error %v, want code %q", test.what, err, test.want)
			}
			if r := sent.Message.Relation; err == nil &&
				(r.Target == nil || r.Target.Revision.Sequence != 2) {
				t.Errorf("%s: got %s, want the stub of relation 2", test.what, says(&sent.Message))
			}
		}
		direct := a.chat("ab", "alice", "bob") // alice has the role of an owner there
		a.send("bob", direct)
		_, err := a.tryRelate(alice, direct, tidemark.KindRedact, 1, "")
		wantCode(t, "another's in a direct chat", err, tidemark.Denied)
		a.relate("bob", direct, tidemark.KindRedact, 1, "")
		d := tidemark.Draft{
			ChatID: chat, ClientMessageID: "k", Kind: tidemark.KindEdit, Content: "x",
		}
		_, err = a.Send(a.ctx, "bob", d)
		wantCode(t, "no relation", err, tidemark.Invalid)
	})
}

// TestRelation_reads_nothing: users who edit or redact need not have seen what came later. A read
// that they state counts.
func TestRelation_reads_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("bob", chat)
		a.send("alice", chat)
		a.ack("bob", chat, 2, 1)
		a.relate("bob", chat, tidemark.KindEdit, 1, "better")
		settle()
		if st := w.state("bob", chat); st.Read != 1 {
			t.Errorf("after an edit bob has read %d, want 1", st.Read)
		}
		d := tidemark.Draft{
			ChatID: chat, ClientMessageID: "seen", Kind: tidemark.KindRedact,
			Relation: &tidemark.Relation{Sequence: 1}, Seen: tidemark.SeenThrough(2),
		}
		if _, err := a.Send(a.ctx, "bob", d); err != nil {
			t.Fatal(err)
		}
		settle()
		if st := w.state("bob", chat); st.Read < 2 {
			t.Errorf("after a redaction that states a read of 2, bob has read %d", st.Read)
		}
	})
}

// TestRelation_same_send_again: a resend is answered with the first message, and the node that
// takes it tells the others once more.
func TestRelation_same_send_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		original := tidemark.Draft{ChatID: chat, ClientMessageID: "k1", Content: "one"}
		edit := tidemark.Draft{
			ChatID: chat, ClientMessageID: "k2", Content: "two", Kind: tidemark.KindEdit,
			Relation: &tidemark.Relation{Sequence: 1},
		}
		for _, d := range []tidemark.Draft{original, edit} {
			if _, err := a.Send(a.ctx, "alice", d); err != nil {
				t.Fatal(err)
			}
		}
		for _, node := range []*core{a, b} {
			for i, d := range []tidemark.Draft{original, edit} {
				again, err := node.Send(node.ctx, "alice", d)
				if err != nil || !again.Duplicate || int(again.Message.Sequence) != i+1 {
					t.Errorf("resend of %s: got %s, %v",
						d.ClientMessageID, says(&again.Message), err)
				}
			}
			other := edit
			other.Content = "three"
			_, err := node.Send(node.ctx, "alice", other)
			wantCode(t, "another text", err, tidemark.Conflict)
		}
		a.remove(chat, "alice")
		backend := server.Caller{User: "bob", Backend: true}
		if _, err := a.tryRelate(backend, chat, tidemark.KindEdit, 1, canary); err != nil {
			t.Fatal(err)
		}
		for _, d := range []tidemark.Draft{original, edit} {
			again, err := a.Send(a.ctx, "alice", d)
			if err != nil || !again.Duplicate {
				t.Errorf("resend of a former member: got %+v, %v", again, err)
			}
			wantNo(t, "a former member", []string{says(&again.Message)})
			d.SendBy = time.Now().Add(-time.Hour)
			again, err = a.Send(a.ctx, "alice", d)
			if err != nil || !again.Duplicate {
				t.Errorf("late resend of a former member: got %+v, %v", again, err)
			}
			wantNo(t, "a former member who is late", []string{says(&again.Message)})
		}
	})
}

// TestRelation_last_message_by_the_current_roster: this node was not told that bob left the chat,
// and came back after a message.
func TestRelation_last_message_by_the_current_roster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		b.send("alice", chat) // so that b knows the members
		w.dropping(func(to registry.Node, _ bus.Event) bool { return to.ID == "b" })
		a.remove(chat, "bob")
		a.send("alice", chat)
		a.add(chat, "bob")
		a.relate("alice", chat, tidemark.KindEdit, 2, canary)
		if view := b.lastInList("bob"); view != nil {
			t.Errorf("got %s, want no last message", says(view))
		}
	})
}

// TestRelation_last_messages_take_few_pages: a list has many chats that end with messages which
// are not shown. Not all of them get a last message.
func TestRelation_last_messages_take_few_pages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		const chats, further = 210, 200
		for n := range chats {
			chat := a.groupOf(tidemark.ChatID(fmt.Sprint("g", n)), tidemark.HistoryFull, "alice")
			a.send("alice", chat)
			for k := range 2 {
				d := tidemark.Draft{
					ChatID: chat, ClientMessageID: fmt.Sprint("control-", n, "-", k),
					Kind: tidemark.KindControl, Content: "x",
				}
				if _, err := a.Send(a.ctx, "alice", d); err != nil {
					t.Fatal(err)
				}
			}
		}
		page, err := a.Chats(a.ctx, "alice", chats, "")
		if err != nil {
			t.Fatal(err)
		}
		have := 0
		for _, view := range page.Chats {
			if view.Last != nil && view.Last.Sequence == 1 {
				have++
			} else if view.Last != nil {
				t.Fatalf("the last message of %s is %+v", view.ID, view.Last)
			}
		}
		if have != further {
			t.Errorf("%d of %d chats have a last message, want %d", have, chats, further)
		}
	})
}
