package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// watching starts two nodes that keep when users were last seen, with the chat "abc" of alice, bob
// and carol. The nodes know each other when it returns.
func watching(t *testing.T) (w *cluster, a, b *core) {
	t.Helper()
	w = newCluster(t)
	profiles := func(c *server.Config) { c.Documents, c.LastSeen = w.raw, true }
	a, b = w.node("a", profiles), w.node("b", profiles)
	a.chat("abc", "alice", "bob", "carol")
	nodesTrust()
	return w, a, b
}

// look shows chats, and waits until their presence has come.
func (c *client) look(chats ...tidemark.ChatID) {
	c.t.Helper()
	if err := c.Look(c.core.ctx, chats); err != nil {
		c.t.Fatalf("Look: %v", err)
	}
	told()
}

// told waits until every look has been answered, and changes were told.
func told() { time.Sleep(3 * time.Second) }

// hide hides a user, or shows them again.
func (c *core) hide(user tidemark.UserID, hide bool) {
	c.t.Helper()
	if err := c.SetVisible(c.ctx, user, !hide); err != nil {
		c.t.Fatal(err)
	}
	told()
}

// written returns how many times were written at which users were last seen.
func written(nodes ...*core) (n int64) {
	for _, c := range nodes {
		n += c.Counters()["last_seen_written_total"]
	}
	return n
}

// leave says goodbye, which ends the session.
func (c *client) leave() {
	c.t.Helper()
	if err := c.Close(c.core.ctx); err != nil {
		c.t.Fatal(err)
	}
}

func TestPresence_tells_who_comes_and_goes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		alice := a.open("alice")
		alice.drain()
		alice.look("abc")
		want(t, "alice, at first", alice.drain(), "presence abc alice+ bob- carol-")
		bob, again := b.open("bob"), a.open("bob")
		told()
		want(t, "alice, when bob comes", alice.drain(), "presence abc bob+")
		bob.leave()
		time.Sleep(40 * time.Second)
		alice.look("abc")
		want(t, "alice, while bob has another session", alice.drain())
		again.leave()
		time.Sleep(25 * time.Second)
		want(t, "alice, soon after bob left", alice.drain())
		time.Sleep(10 * time.Second)
		want(t, "alice, later", alice.drain(), "presence abc bob@")
		b.open("bob")
		told()
		want(t, "alice, when bob is back", alice.drain(), "presence abc bob+")
	})
}

func TestPresence_of_one_who_reconnects_does_not_change(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		bob := b.open("bob")
		alice := a.open("alice")
		alice.drain()
		alice.look("abc")
		want(t, "alice, at first", alice.drain(), "presence abc alice+ bob+ carol-")
		bob.leave()
		time.Sleep(20 * time.Second)
		a.open("bob")
		time.Sleep(30 * time.Second)
		want(t, "alice", alice.drain())
	})
}

// A node that dies says nothing. Its users go when their leases have expired.
func TestPresence_of_users_whose_node_died_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := watching(t)
		b.open("bob")
		alice := a.open("alice")
		alice.drain()
		alice.look("abc")
		want(t, "alice, at first", alice.drain(), "presence abc alice+ bob+ carol-")
		w.publish.set(func(registry.Node, bus.Event, func() error) error { return nil })
		if err := b.Stop(b.ctx); err != nil {
			t.Fatal(err)
		}
		w.publish.clear()
		for range 6 {
			time.Sleep(27 * time.Second)
			alice.look("abc")
		}
		want(t, "alice, later", alice.drain(), "presence abc bob-")
	})
}

func TestPresence_typing_comes_only_from_chats_that_are_shown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		a.chat("ab", "alice", "bob")
		older, alice, bob := a.open("alice"), a.open("alice"), b.open("bob")
		older.drain()
		alice.drain()
		alice.look("abc")
		alice.drain()
		typing := func() {
			bob.Typing(b.ctx, "ab")
			bob.Typing(b.ctx, "abc")
		}
		typing()
		want(t, "a client that never looked", older.drain(), "typing ab bob", "typing abc bob")
		want(t, "one that looks", alice.drain(), "typing abc bob")
		time.Sleep(time.Minute)
		typing()
		want(t, "one whose look is over", alice.drain())
	})
}

func TestPresence_nothing_outside_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		eve := a.open("eve")
		wantCode(t, "a stranger", eve.Look(a.ctx, []tidemark.ChatID{"abc"}), tidemark.NotMember)
		wantCode(t, "a stranger by REST",
			a.Look(a.ctx, "eve", eve.Session(), []tidemark.ChatID{"abc"}), tidemark.NotMember)
		wantCode(t, "no chat", eve.Look(a.ctx, []tidemark.ChatID{"none"}), tidemark.NotFound)
		read, err := a.Presence(a.ctx, "eve", []tidemark.ChatID{"abc"})
		if err != nil || tidemark.CodeOf(read[0].Err) != tidemark.NotMember || read[0].Known {
			t.Errorf("a stranger reads %+v, %v", read, err)
		}
		carol := a.open("carol")
		carol.drain()
		carol.look("abc")
		carol.drain()
		b.open("bob")
		told() // carol does not read the event
		a.remove("abc", "carol")
		want(t, "carol, when she was removed", carol.drain(), "membership abc carol removed")
		b.open("alice")
		told()
		want(t, "carol, later", carol.drain())
	})
}

// A client may not know yet that its user left a chat. It still gets the presence of the others.
func TestPresence_nothing_outside_membership_beside_own_chats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		a.chat("eves", "eve", "bob")
		eve := a.open("eve")
		eve.drain()
		eve.look("abc", "none", "eves", "abc")
		want(t, "eve", eve.drain(), "presence eves bob- eve+")
		chats := []tidemark.ChatID{"eves", "abc"}
		if err := a.Look(a.ctx, "eve", eve.Session(), chats); err != nil {
			t.Error(err)
		}
		b.open("bob")
		told()
		want(t, "eve, when bob comes", eve.drain(), "presence eves bob+")
	})
}

// A member whose removal has not reached their session yet is told nothing either.
func TestPresence_nothing_outside_membership_when_the_removal_is_late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := watching(t)
		carol := a.open("carol")
		carol.drain()
		carol.look("abc")
		carol.drain()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Membership != nil {
				return nil
			}
			return send()
		})
		a.remove("abc", "carol")
		b.open("bob")
		told()
		want(t, "carol", carol.drain())
	})
}

func TestPresence_nothing_outside_membership_about_those_who_hide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		bob, alice := b.open("bob"), a.open("alice")
		alice.drain()
		bob.drain()
		alice.look("abc")
		bob.look("abc")
		want(t, "alice, at first", alice.drain(), "presence abc alice+ bob+ carol-")
		want(t, "bob, at first", bob.drain(), "presence abc alice+ bob+ carol-")
		a.hide("bob", true) // by a node that does not have bob's session
		want(t, "alice, when bob hides", alice.drain(), "presence abc bob-")
		want(t, "bob, who hides", bob.drain(), "presence abc alice- bob- carol-")
		carol := a.open("carol")
		told()
		want(t, "bob, when carol comes", bob.drain())
		want(t, "alice, when carol comes", alice.drain(), "presence abc carol+")
		read, err := a.Presence(a.ctx, "bob", []tidemark.ChatID{"abc"})
		if err != nil || slices.ContainsFunc(read[0].Members,
			func(m tidemark.MemberPresence) bool { return m.Online }) {
			t.Errorf("bob reads %+v, %v", read, err)
		}
		bob.leave()
		carol.leave()
		time.Sleep(40 * time.Second)
		want(t, "alice, when bob and carol left", alice.drain(),
			"presence abc carol@")
		if n := written(a, b); n != 1 {
			t.Errorf("%d times were written, want that of carol", n)
		}
		a.hide("bob", false)
		alice.look("abc")
		bob = b.open("bob")
		bob.drain()
		bob.look("abc")
		want(t, "bob, who shows up", bob.drain(), "presence abc alice+ bob+ carol@")
		want(t, "alice, when bob shows up", alice.drain(), "presence abc bob+")
	})
}

// A session that moves, and one whose client calls another node, is reached.
func TestPresence_look_by_another_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := watching(t)
		alice := a.open("alice")
		alice.drain()
		err := b.Look(b.ctx, "alice", alice.Session(), []tidemark.ChatID{"abc"})
		if err != nil {
			t.Fatal(err)
		}
		told()
		want(t, "alice", alice.drain(), "presence abc alice+ bob- carol-")
		// Another node may be wrong about whose session it is.
		look := &bus.Look{
			ID: "q", Session: alice.Session(), User: "bob", Chats: []tidemark.ChatID{},
		}
		var to atomic.Pointer[registry.Node]
		w.publish.set(func(node registry.Node, e bus.Event, send func() error) error {
			if e.Presence != nil && e.Presence.Looking {
				to.Store(&e.Presence.From)
			}
			return send()
		})
		alice.look("abc")
		time.Sleep(20 * time.Second)
		w.publish.clear()
		event := bus.Event{Presence: &bus.Presence{From: registry.Node{ID: "b"}, Look: look}}
		if err := bus.PublishOne(a.ctx, w.bus, *to.Load(), event); err != nil {
			t.Fatal(err)
		}
		told()
		b.open("bob")
		told()
		want(t, "alice, who still looks", alice.drain(), "presence abc bob+")
		if err := b.Look(b.ctx, "alice", "gone", []tidemark.ChatID{"abc"}); err != nil {
			t.Errorf("a session that is gone: %v", err)
		}
		moved := b.open("alice", resuming(alice.Session(), alice.last))
		if lines := moved.drain(); lines[0] != "open resumed=true" {
			t.Errorf("after the move: %v", lines)
		}
		moved.look("abc")
		want(t, "alice, elsewhere", moved.drain(), "presence abc alice+ bob+ carol-")
	})
}

func TestPresence_new_stream_gets_all_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := watching(t)
		alice := a.open("alice")
		alice.drain()
		alice.look("abc")
		alice.Detach()
		again := a.open("alice", resuming(alice.Session(), alice.last))
		want(t, "alice, before she looks", again.drain(), "open resumed=true", "caught_up")
		again.look("abc")
		want(t, "alice", again.drain(), "presence abc alice+ bob- carol-")
	})
}

func TestPresence_long_poll_loses_nothing_between_two_polls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		alice := a.open("alice")
		alice.drain()
		alice.look("abc")
		alice.drain()
		alice.Detach()
		bob := b.open("bob")
		b.open("carol")
		told()
		bob.leave()
		time.Sleep(40 * time.Second)
		poll := a.open("alice", resuming(alice.Session(), alice.last),
			func(r *openRequest) { r.Poll = true })
		want(t, "alice", poll.drain(), "presence abc bob@ carol+")
	})
}

func TestPresence_members_who_join_and_leave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		b.open("dave")
		alice := a.open("alice")
		alice.drain()
		alice.look("abc")
		alice.drain()
		a.add("abc", "dave")
		told()
		want(t, "alice", alice.drain(), "membership abc dave added", "presence abc dave+")
		a.remove("abc", "dave")
		b.open("bob")
		told()
		want(t, "alice, later", alice.drain(), "membership abc dave removed", "presence abc bob+")
	})
}

func TestPresence_of_many_is_a_number(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		users := []tidemark.UserID{"alice"}
		for i := range tidemark.PresenceMembers {
			users = append(users, tidemark.UserID(fmt.Sprintf("u%d", i)))
		}
		a.chat("big", users...)
		alice := a.open("alice")
		alice.drain()
		alice.look("big")
		want(t, "alice", alice.drain(), "presence big 1")
		b.open("u1")
		b.open("u2")
		told()
		want(t, "alice, when two come", alice.drain(), "presence big 3")
		read, err := b.Presence(b.ctx, "alice", []tidemark.ChatID{"big"})
		if err != nil || !read[0].Known || read[0].Online != 3 || read[0].Members != nil {
			t.Errorf("alice reads %+v, %v", read, err)
		}
		a.remove("big", "u49")
		told()
		lines := alice.drain()
		if len(lines) != 2 || !strings.HasPrefix(lines[1], "presence big alice+ u0- u1+ ") {
			t.Errorf("of 50 members alice gets %v", lines)
		}
	})
}

func TestPresence_bounded_use(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := watching(t)
		alice := a.open("alice")
		many := slices.Repeat([]tidemark.ChatID{"abc"}, 21)
		wantCode(t, "21 chats", alice.Look(a.ctx, many), tidemark.Invalid)
		if err := alice.Look(a.ctx, many[:20]); err != nil {
			t.Error(err)
		}
		wantCode(t, "an impossible id", alice.Look(a.ctx, []tidemark.ChatID{"a b"}),
			tidemark.Invalid)
	})
}

// An absence costs one write, however often the user's sessions end.
func TestPresence_linear_one_write_for_an_absence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := watching(t)
		// When the first absence is due, bob is away again, and not for long.
		for _, stay := range []time.Duration{10 * time.Second, 15 * time.Second} {
			bob := b.open("bob")
			time.Sleep(stay)
			bob.leave()
			time.Sleep(10 * time.Second)
		}
		other := a.open("bob")
		time.Sleep(time.Minute)
		if n := written(a, b); n != 0 {
			t.Errorf("%d times were written while bob came back", n)
		}
		left := time.Now().UnixMilli()
		other.leave()
		time.Sleep(time.Minute)
		if n := written(a, b); n != 1 {
			t.Errorf("%d times were written, want 1", n)
		}
		alice := b.open("alice")
		alice.drain()
		alice.look("abc")
		want(t, "alice", alice.drain(), "presence abc alice+ bob@ carol-")
		read, err := a.Presence(a.ctx, "alice", []tidemark.ChatID{"abc"})
		if err != nil {
			t.Fatal(err)
		}
		if seen := int64(read[0].Members[1].LastSeen) - left; seen < 0 || seen > 2_000 {
			t.Errorf("bob was seen %d ms after they left, want 0 to 2,000", seen)
		}
	})
}

// Without a look nothing is sent, looked up or written.
func TestPresence_linear_nothing_while_nobody_looks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		a.chat("abc", "alice", "bob", "carol")
		alice := a.open("alice")
		alice.drain()
		if err := alice.Look(a.ctx, []tidemark.ChatID{"abc"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute) // the look is over
		before := b.Counters()
		for range 10 {
			b.open("bob").leave()
			time.Sleep(2 * time.Second)
		}
		after := b.Counters()
		for _, name := range []string{
			"presence_batches_total", "presence_entries_total", "presence_checks_total",
		} {
			if after[name] != before[name] {
				t.Errorf("%s rose from %d to %d", name, before[name], after[name])
			}
		}
	})
}
