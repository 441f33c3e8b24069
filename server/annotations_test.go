package server_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// annotate sends a reaction, or a pin if there is no emoji, and returns its sequence.
func (c *core) annotate(
	user tidemark.UserID, chat tidemark.ChatID, target tidemark.Sequence, emoji string,
) tidemark.Sequence {
	c.t.Helper()
	kind := tidemark.KindReact
	if emoji == "" {
		kind = tidemark.KindPin
	}
	sent, err := c.tryAnnotate(server.Caller{User: user}, chat, kind, target, emoji)
	if err != nil {
		c.t.Fatalf("%s of %s %d by %s: %v", kind, chat, target, user, err)
	}
	return sent.Message.Sequence
}

func (c *core) tryAnnotate(
	by server.Caller, chat tidemark.ChatID, kind tidemark.Kind, target tidemark.Sequence,
	emoji string,
) (server.Sent, error) {
	c.sent++
	d := tidemark.Draft{
		ChatID: chat, ClientMessageID: fmt.Sprintf("%s-%d", c.node, c.sent), Kind: kind,
		Relation: &tidemark.Relation{Sequence: target, Emoji: emoji},
	}
	by.Author(&d)
	return c.Send(c.ctx, by.User, d)
}

// reacted returns a page of the history of a chat with its reactions: "2: 👍 3 own 7".
func (c *core) reacted(
	user tidemark.UserID, r server.HistoryRequest,
) (lines []string, page server.History, through tidemark.Sequence) {
	c.t.Helper()
	page, reactions, err := c.HistoryWithReactions(c.ctx, user, r)
	if err != nil {
		c.t.Fatal(err)
	}
	for i, of := range reactions.Of {
		for _, one := range of {
			if one.Sequence != page.Messages[i].Sequence {
				c.t.Errorf("message %d has a reaction to %d", page.Messages[i].Sequence,
					one.Sequence)
			}
			lines = append(lines, fmt.Sprint(one.Sequence, ": ", one.Emoji, " ", one.Count,
				" own ", one.Own))
		}
	}
	return lines, page, reactions.Through
}

// reactors returns a page of the reactions to a message: "bob 👍 3".
func (c *core) reactors(
	user tidemark.UserID, chat tidemark.ChatID, n tidemark.Sequence, limit int, cursor string,
) (lines []string, next string) {
	c.t.Helper()
	page, err := c.Reactions(c.ctx, user, tidemark.MessageRef{ChatID: chat, Sequence: n}, limit,
		cursor)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range page.Reactions {
		lines = append(lines, fmt.Sprint(r.User, " ", r.Emoji, " ", r.Sequence))
	}
	return lines, page.NextCursor
}

// pinned returns the pins of a chat: "alice 3 of 1: hello", "alice 5 unseen".
func (c *core) pinned(user tidemark.UserID, chat tidemark.ChatID) (lines []string) {
	c.t.Helper()
	pins, err := c.Pins(c.ctx, server.Caller{User: user}, chat)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, pin := range pins {
		text := fmt.Sprint(pin.By, " ", pin.Sequence, " unseen")
		if pin.Message != nil {
			text = fmt.Sprint(pin.By, " ", pin.Sequence, " of ", says(pin.Message))
		}
		lines = append(lines, text)
	}
	return lines
}

// TestAnnotation_goes_to_sessions_and_leaves_what_nodes_have: both nodes have messages in memory
// that their sessions have not sent yet. Nothing is read from storage.
func TestAnnotation_goes_to_sessions_and_leaves_what_nodes_have(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		slow := map[string]*client{"bob at a": a.open("bob"), "carol at b": b.open("carol")}
		for _, c := range slow {
			c.said()
		}
		a.send("alice", chat)
		a.send("alice", chat)
		settle()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if n := e.Notification; n != nil && !n.Marked && (n.Relation || n.Message == nil) {
				t.Errorf("the nodes get of message %d: %+v", n.Sequence, n)
			}
			return send()
		})
		a.annotate("alice", chat, 1, "👍")
		a.annotate("alice", chat, 2, "")
		settle()
		w.before.set(func(method string) error {
			if method == "Ranges" {
				t.Error("messages are read from storage")
			}
			return nil
		})
		for what, c := range slow {
			want(t, what, c.said(), "1: message 1", "2: message 2", "3 react of 1 👍",
				"4 pin of 2")
		}
		w.before.clear()
	})
}

// TestAnnotation_is_no_message_that_is_shown: it reads nothing, counts for nobody, and leaves the
// last message.
func TestAnnotation_is_no_message_that_is_shown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("bob", chat)
		a.send("alice", chat)
		a.ack("bob", chat, 2, 1)
		a.annotate("bob", chat, 1, "👍")
		a.annotate("alice", chat, 1, "")
		settle()
		if st := w.state("bob", chat); st.Read != 1 {
			t.Errorf("after a reaction bob has read %d, want 1", st.Read)
		}
		page, err := a.Chats(a.ctx, "bob", 10, "")
		if err != nil || len(page.Chats) != 1 || page.Chats[0].Unread.Messages != 1 {
			t.Errorf("list of chats: got %+v, %v, want one unread message", page, err)
		}
		for _, last := range []*tidemark.Message{a.lastInList("bob"), a.lastOf("bob", chat)} {
			want(t, "last message", []string{says(last)}, "2: message 2")
		}
	})
}

func TestAnnotation_refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
		chat := a.groupOf("g", tidemark.HistoryFull, "alice", "bob", "carol")
		a.send("bob", chat)
		alice, bob := server.Caller{User: "alice"}, server.Caller{User: "bob"}
		out, backend := server.Caller{User: "out"}, server.Caller{User: "carol", Backend: true}
		react, pin := tidemark.KindReact, tidemark.KindPin
		for _, test := range []struct {
			what   string
			by     server.Caller
			kind   tidemark.Kind
			target tidemark.Sequence
			emoji  string
			want   tidemark.Code
		}{
			{"no emoji", bob, react, 1, "", tidemark.Invalid},
			{"a text", bob, react, 1, "two words", tidemark.Invalid},
			{"an emoji of a pin", alice, pin, 1, "👍", tidemark.Invalid},
			{"target 0", bob, react, 0, "👍", tidemark.Invalid},
			{"above the head", bob, react, 2, "👍", tidemark.NotFound},
			{"a stranger", out, react, 1, "👍", tidemark.NotMember},
			{"a pin by a member", bob, pin, 1, "", tidemark.Denied},
			{"a reaction", bob, react, 1, "👍", ""}, // 2
			{"the same reaction", bob, react, 1, "👍", tidemark.Conflict},
			{"the same of another user", alice, react, 1, "👍", ""}, // 3
			{"to a reaction", bob, react, 2, "👍", tidemark.Conflict},
			{"a pin", alice, pin, 1, "", ""}, // 4
			{"the same pin", backend, pin, 1, "", tidemark.Conflict},
			{"to a pin", alice, pin, 4, "", tidemark.Conflict},
			{"another's reaction undone", bob, tidemark.KindRedact, 3, "", tidemark.Denied},
			{"a pin undone by a member", bob, tidemark.KindRedact, 4, "", tidemark.Denied},
			{"a reaction undone by an owner", alice, tidemark.KindRedact, 2, "", ""}, // 5
			{"undone again", bob, tidemark.KindRedact, 2, "", tidemark.Conflict},
			{"a pin undone by a backend", backend, tidemark.KindRedact, 4, "", ""}, // 6
			{"a redaction", bob, tidemark.KindRedact, 1, "", ""},                   // 7
			{"to what was redacted", bob, react, 1, "👍", tidemark.Conflict},
		} {
			_, err := a.tryAnnotate(test.by, chat, test.kind, test.target, test.emoji)
			if got := tidemark.CodeOf(err); got != test.want {
				t.Errorf("%s: got error %v, want code %q", test.what, err, test.want)
			}
		}
		direct := a.chat("ab", "alice", "bob") // alice has the role of an owner there
		a.send("alice", direct)
		a.annotate("bob", direct, 1, "")
		a.annotate("bob", direct, 1, "👍")
		_, err := a.tryRelate(alice, direct, tidemark.KindRedact, 3, "")
		wantCode(t, "the other's reaction in a direct chat", err, tidemark.Denied)
		a.relate("alice", direct, tidemark.KindRedact, 2, "")
		want(t, "pins", a.pinned("bob", direct))
	})
}

// TestAnnotation_nothing_outside_membership: carol does not see the first message.
func TestAnnotation_nothing_outside_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		a.send("alice", chat)
		a.add(chat, "carol")
		a.send("alice", chat)
		a.annotate("bob", chat, 1, "👍")
		a.annotate("carol", chat, 2, "👍")
		a.annotate("alice", chat, 1, "")
		a.annotate("alice", chat, 2, "")
		_, err := a.tryAnnotate(server.Caller{User: "carol"}, chat, tidemark.KindReact, 1, "👍")
		wantCode(t, "a reaction to what carol does not see", err, tidemark.NotFound)
		first := tidemark.MessageRef{ChatID: chat, Sequence: 1}
		_, err = a.Reactions(a.ctx, "carol", first, 10, "")
		wantCode(t, "the reactions to what carol does not see", err, tidemark.NotFound)
		want(t, "pins for carol", a.pinned("carol", chat), "alice 6 of 2: message 2")
		want(t, "pins for bob", a.pinned("bob", chat), "alice 6 of 2: message 2",
			"alice 5 of 1: message 1")
		all := server.HistoryRequest{Chat: chat, Limit: 10}
		lines, page, through := a.reacted("carol", all)
		want(t, "counts for carol", lines, "2: 👍 1 own 4")
		if through != 6 || page.Messages[0].Sequence != 2 {
			t.Errorf("carol gets messages from %d, and counts through %d, want 2 and 6",
				page.Messages[0].Sequence, through)
		}
		lines, _, _ = a.reacted("bob", all)
		want(t, "counts for bob", lines, "1: 👍 1 own 3", "2: 👍 1 own 0")
		for what, call := range map[string]func() error{
			"pins": func() error {
				_, err := a.Pins(a.ctx, server.Caller{User: "out"}, chat)
				return err
			},
			"reactions": func() error {
				_, err := a.Reactions(a.ctx, "out", first, 1, "")
				return err
			},
			"counts": func() error {
				_, _, err := a.HistoryWithReactions(a.ctx, "out", all)
				return err
			},
		} {
			wantCode(t, what+" for a stranger", call(), tidemark.NotMember)
		}
	})
}

// TestPins_by_the_current_roster: this node was not told that bob left the chat.
func TestPins_by_the_current_roster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		b.send("alice", chat) // so that b knows the members
		w.dropping(func(to registry.Node, _ bus.Event) bool { return to.ID == "b" })
		a.remove(chat, "bob")
		a.send("alice", chat)
		a.annotate("alice", chat, 2, "")
		pins, err := b.Pins(b.ctx, server.Caller{User: "bob"}, chat)
		if tidemark.CodeOf(err) != tidemark.NotMember {
			t.Errorf("got %+v, %v, want that bob is no member", pins, err)
		}
	})
}

// TestPins_nothing_outside_membership_but_their_numbers: the pins of 1 and of 3 are from times in
// which carol was away. They count, so she may undo them when she may pin. She sees no message.
func TestPins_nothing_outside_membership_but_their_numbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		a.secret("alice", chat)
		a.annotate("alice", chat, 1, "")
		a.add(chat, "carol")
		a.send("alice", chat)
		a.remove(chat, "carol")
		a.annotate("alice", chat, 3, "")
		a.annotate("alice", chat, 1, "👍")
		a.add(chat, "carol")
		a.send("alice", chat)
		settle()
		carol := server.Caller{User: "carol"}
		redacts := func(what string, n tidemark.Sequence, want tidemark.Code) {
			t.Helper()
			_, err := b.tryRelate(carol, chat, tidemark.KindRedact, n, "")
			wantCode(t, what, err, want)
		}
		want(t, "pins for a member", b.pinned("carol", chat), "alice 4 of 3: message 2")
		redacts("a pin, by a member", 2, tidemark.NotFound)
		a.become(chat, "carol", tidemark.Admin)
		settle()
		want(t, "pins for an admin", b.pinned("carol", chat), "alice 4 of 3: message 2",
			"alice 2 unseen")
		redacts("a message, by an admin", 1, tidemark.NotFound)
		redacts("a reaction, by an admin", 5, tidemark.NotFound)
		_, err := b.tryRelate(carol, chat, tidemark.KindEdit, 2, "x")
		wantCode(t, "an edit of a pin", err, tidemark.NotFound)
		_, err = b.tryAnnotate(carol, chat, tidemark.KindPin, 1, "")
		wantCode(t, "a further pin", err, tidemark.NotFound)
		live := b.open("carol")
		live.said()
		undo := tidemark.Draft{
			ChatID: chat, ClientMessageID: "undo", Kind: tidemark.KindRedact,
			Relation: &tidemark.Relation{Sequence: 2},
		}
		for n := range 2 {
			sent, err := b.Send(b.ctx, "carol", undo)
			if err != nil || sent.Duplicate != (n == 1) {
				t.Fatalf("send %d: got %+v, %v", n+1, sent, err)
			}
			want(t, "answer", []string{says(&sent.Message)}, "7 redact of 2")
		}
		redacts("the pin of a message that carol sees", 4, "")
		redacts("a pin that was undone", 2, tidemark.Conflict)
		settle()
		want(t, "events", live.said(), "7 redact of 2", "8 redact of 4")
		want(t, "pins in the end", b.pinned("carol", chat))
		want(t, "pins for alice", a.pinned("alice", chat))
	})
}

// TestPins_unseen_ones_by_the_stored_roles: this node was not told that bob is no admin any more.
func TestPins_unseen_ones_by_the_stored_roles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice")
		a.send("alice", chat)
		a.annotate("alice", chat, 1, "")
		a.add(chat, "bob")
		a.become(chat, "bob", tidemark.Admin)
		settle()
		want(t, "pins for an admin", b.pinned("bob", chat), "alice 2 unseen")
		w.dropping(func(to registry.Node, _ bus.Event) bool { return to.ID == "b" })
		a.become(chat, "bob", tidemark.Ordinary)
		want(t, "pins for a member", b.pinned("bob", chat))
	})
}

// TestAnnotation_own_reactions_can_be_undone: those of an earlier membership, too. They count
// against the user's limit.
func TestAnnotation_own_reactions_can_be_undone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		a.send("alice", chat)
		a.annotate("bob", chat, 1, "👍")
		a.remove(chat, "bob")
		a.send("alice", chat)
		a.add(chat, "bob")
		all := server.HistoryRequest{Chat: chat, Limit: 10}
		lines, _, _ := a.reacted("bob", all)
		want(t, "counts", lines, "1: 👍 1 own 2")
		bob := server.Caller{User: "bob"}
		_, err := a.tryAnnotate(bob, chat, tidemark.KindReact, 1, "👍")
		wantCode(t, "the same reaction", err, tidemark.Conflict)
		a.relate("bob", chat, tidemark.KindRedact, 2, "")
		lines, _, _ = a.reacted("bob", all)
		want(t, "counts after it was undone", lines)
		a.annotate("bob", chat, 1, "👍")
	})
}

// TestReactions_lists_those_that_stand: in pages, and none of a redacted message.
func TestReactions_lists_those_that_stand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("bob", chat)
		a.annotate("bob", chat, 1, "👍")
		a.annotate("carol", chat, 1, "👍")
		a.annotate("bob", chat, 1, "🎉")
		a.relate("bob", chat, tidemark.KindRedact, 2, "")
		lines, next := a.reactors("alice", chat, 1, 1, "")
		want(t, "first page", lines, "carol 👍 3")
		lines, next = a.reactors("alice", chat, 1, 1, next)
		want(t, "last page", lines, "bob 🎉 4")
		if next != "" {
			t.Errorf("the last page has the cursor %q", next)
		}
		first := tidemark.MessageRef{ChatID: chat, Sequence: 1}
		_, err := a.Reactions(a.ctx, "alice", first, 1, "cursor")
		wantCode(t, "an unknown cursor", err, tidemark.Invalid)
		all := server.HistoryRequest{Chat: chat, Limit: 10}
		lines, _, through := a.reacted("bob", all)
		want(t, "counts", lines, "1: 👍 1 own 0", "1: 🎉 1 own 4")
		if through != 5 {
			t.Errorf("they count through %d, want 5", through)
		}
		a.annotate("alice", chat, 1, "")
		a.relate("bob", chat, tidemark.KindRedact, 1, "")
		lines, _ = a.reactors("alice", chat, 1, 10, "")
		want(t, "of a redacted message", lines)
		lines, _, through = a.reacted("bob", all)
		want(t, "counts of a redacted message", lines)
		if through != 7 {
			t.Errorf("they count through %d, want 7", through)
		}
		want(t, "pins", a.pinned("bob", chat), "alice 6 of 1:  (redact by bob in 7)")
	})
}

// TestHistoryWithReactions_ends_a_page_earlier: at 200 sequences, in both directions. Going on has
// all messages and gaps.
func TestHistoryWithReactions_ends_a_page_earlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
		chat := a.groupOf("g", tidemark.HistorySinceJoin, "alice", "bob")
		more := func(n int) {
			for range n {
				a.send("alice", chat)
			}
		}
		more(130)
		a.remove(chat, "bob")
		more(100)
		a.add(chat, "bob")
		more(200)
		a.annotate("bob", chat, 130, "👍")
		type page struct {
			first, last, next tidemark.Sequence
			gaps              int
			lines             string
		}
		check := func(what string, r server.HistoryRequest, want page) {
			t.Helper()
			r.Chat, r.Limit = chat, 1000
			lines, h, _ := a.reacted("bob", r)
			got := page{
				h.Messages[0].Sequence, h.Messages[len(h.Messages)-1].Sequence, h.Next,
				len(h.Gaps), fmt.Sprint(lines),
			}
			if got != want || !h.HasMore {
				t.Errorf("%s: got %+v, more %v, want %+v", what, got, h.HasMore, want)
			}
		}
		zero, end, before := tidemark.Sequence(0), tidemark.Sequence(130), tidemark.Sequence(301)
		check("first", server.HistoryRequest{After: &zero},
			page{1, 130, 130, 0, "[130: 👍 1 own 431]"})
		check("then", server.HistoryRequest{After: &end}, page{231, 430, 430, 1, "[]"})
		check("before", server.HistoryRequest{Before: &before},
			page{101, 300, 101, 1, "[130: 👍 1 own 431]"})
	})
}

// TestAnnotation_same_send_again: a resend is answered with the first message, also to a former
// member.
func TestAnnotation_same_send_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		react := tidemark.Draft{
			ChatID: chat, ClientMessageID: "k", Kind: tidemark.KindReact,
			Relation: &tidemark.Relation{Sequence: 1, Emoji: "👍"},
		}
		if _, err := a.Send(a.ctx, "bob", react); err != nil {
			t.Fatal(err)
		}
		resends := func(what, says string) {
			t.Helper()
			for _, node := range []*core{a, b} {
				again, err := node.Send(node.ctx, "bob", react)
				if err != nil || !again.Duplicate {
					t.Errorf("%s: got %+v, %v", what, again, err)
					continue
				}
				want(t, what, []string{saysAll(&again.Message)}, says)
			}
		}
		resends("again", "2 react of 1 👍")
		a.relate("alice", chat, tidemark.KindRedact, 2, "")
		resends("after it was undone", "2 react of 1 👍 (redact in 3)")
		a.remove(chat, "bob")
		resends("of a former member", "2 react of 1 👍 (redact in 3)")
	})
}

// saysAll is says of a message with a relation and perhaps a revision.
func saysAll(m *tidemark.Message) string {
	text := says(m)
	if r := m.Revision; r != nil {
		text += fmt.Sprint(" (", r.Kind, " in ", r.Sequence, ")")
	}
	return text
}

// TestAnnotation_of_a_node_that_is_cut_off: it changes nothing that others have, so it goes on as
// messages do.
func TestAnnotation_of_a_node_that_is_cut_off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		w.node("b")
		tailsTrust()
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		down.Store(true)
		time.Sleep(10 * time.Second)
		n := a.annotate("bob", chat, 1, "👍")
		_, err := a.tryRelate(server.Caller{User: "bob"}, chat, tidemark.KindRedact, n, "")
		wantCode(t, "its redaction", err, tidemark.Unavailable)
		down.Store(false)
		time.Sleep(10 * time.Second)
	})
}

// TestPins_leaves_out_what_has_expired: the node knows the roster of before.
func TestPins_leaves_out_what_has_expired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("team", "alice", "bob", "carol")
		c.aged(chat)
		c.annotate("alice", chat, 5, "")
		c.annotate("alice", chat, 6, "")
		c.annotate("alice", chat, 5, "👍")
		if lines := c.pinned("bob", chat); len(lines) != 2 {
			t.Errorf("before: got %q, want two pins", lines)
		}
		c.expire(chat)
		want(t, "after", c.pinned("bob", chat), "alice 8 of 6: message 6")
		_, err := c.Reactions(c.ctx, "bob", tidemark.MessageRef{ChatID: chat, Sequence: 5}, 10, "")
		wantCode(t, "reactions to what has expired", err, tidemark.NotFound)
		pins, err := c.store.Pins(c.ctx, chat)
		if err != nil || !slices.Equal(targetsOf(pins), []tidemark.Sequence{6}) {
			t.Errorf("storage has the pins %+v, %v", pins, err)
		}
	})
}

func targetsOf(pins []storage.Pin) (targets []tidemark.Sequence) {
	for _, pin := range pins {
		targets = append(targets, pin.Target)
	}
	return targets
}
