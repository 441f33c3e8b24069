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
)

// owns returns the lines of own states among those of a drain.
func owns(lines []string) (owns []string) {
	for _, l := range lines {
		if strings.HasPrefix(l, "own ") {
			owns = append(owns, l)
		}
	}
	return owns
}

// TestOwnState_own_state_reaches_devices follows bob, who has a phone and a laptop on two nodes, in
// chats of 3 and of 60 members.
func TestOwnState_own_state_reaches_devices(t *testing.T) {
	for _, members := range []int{3, 60} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testOwnState(t, members) })
		})
	}
}

func testOwnState(t *testing.T, members int) {
	w := newCluster(t)
	a, b := w.node("a"), w.node("b")
	users := []tidemark.UserID{"alice", "bob"}
	for i := len(users); i < members; i++ {
		users = append(users, tidemark.UserID(fmt.Sprint("u", i)))
	}
	chat := a.chat("c", users...)
	phone, laptop, alice := a.open("bob"), b.open("bob"), a.open("alice")
	for range 5 {
		a.send("alice", chat)
	}
	settle()
	all := func(what string, onPhone, onLaptop []string) {
		t.Helper()
		settle()
		want(t, what+", on the phone", owns(phone.drain()), onPhone...)
		want(t, what+", on the laptop", owns(laptop.drain()), onLaptop...)
		want(t, what+", to alice", owns(alice.drain()))
	}
	only := func(lines ...string) []string { return lines }

	phone.Ack(server.Ack{Chat: chat, Acked: 5})
	all("an acknowledgement", nil, nil)
	phone.Ack(server.Ack{Chat: chat, Acked: 5, Read: 3})
	all("a read on the phone", nil, only("own c 5 3 from 0: 2 0"))
	phone.Ack(server.Ack{Chat: chat, Read: 4})
	laptop.Ack(server.Ack{Chat: chat, Read: 3})
	all("a read on both", nil, only("own c 5 4 from 0: 1 0"))
	a.ack("bob", chat, 0, 5)
	all("a read by a backend", only("own c 5 5 from 0: 0 0"), only("own c 5 5 from 0: 0 0"))
	if _, err := a.MarkUnread(a.ctx, "bob", chat, 2); err != nil {
		t.Fatal(err)
	}
	all("a mark", only("own c 5 5 from 2: 4 0"), only("own c 5 5 from 2: 4 0"))
	a.send("bob", chat)
	all("a message ends the mark", only("own c 6 6 from 0: 0 0"), only("own c 6 6 from 0: 0 0"))
	a.send("bob", chat)
	all("another one changes nothing", nil, nil)
	a.send("alice", chat)
	settle()
	phone.drain()
	laptop.drain()
	seen := tidemark.SeenThrough(8)
	if _, err := b.Send(b.ctx, "bob", tidemark.Draft{
		ChatID: chat, ClientMessageID: "reply", Content: "yes", Seen: seen,
	}); err != nil {
		t.Fatal(err)
	}
	settle()
	if got := owns(phone.drain()); len(got) == 0 || got[len(got)-1] != "own c 7 9 from 0: 0 0" &&
		got[len(got)-1] != "own c 9 9 from 0: 0 0" {
		t.Errorf("a reply that reads: got %q on the phone", got)
	}
}

// TestOwnState_own_state_reaches_devices_that_come_back: a device gets what it missed after a
// resume, after its cursors, and after the registry lost everything. Former members get nothing.
func TestOwnState_own_state_reaches_devices_that_come_back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat, other := a.chat("abc", "alice", "bob", "carol"), a.chat("ab", "alice", "bob")
		phone := a.open("bob", withStatuses)
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		phone.drain()
		position := phone.last
		phone.Detach()
		a.ack("bob", chat, 3, 2)
		settle()
		phone = b.open("bob", resuming(phone.Session(), position))
		settle()
		want(t, "after a move", owns(phone.drain()), "own abc 3 2 from 0: 1 0")
		phone.Detach()
		phone = b.open("bob", resuming(phone.Session(), position))
		settle()
		want(t, "sent again", owns(phone.drain()), "own abc 3 2 from 0: 1 0")

		if _, err := phone.Sync(b.ctx, server.SyncRequest{
			Session: phone.Session(), Statuses: true,
			Cursors: []server.Cursor{{Chat: chat, Acked: 3}}, Limit: 10,
		}); err != nil {
			t.Fatal(err)
		}
		settle()
		got := owns(phone.drain())
		slices.Sort(got)
		want(t, "after its cursors", got, "own ab 0 0 from 0: 0 0", "own abc 3 2 from 0: 1 0")

		w.reg.Forget()
		time.Sleep(time.Minute)
		settle()
		got = owns(phone.drain())
		slices.Sort(got)
		want(t, "after an epoch", got, "own ab 0 0 from 0: 0 0", "own abc 3 2 from 0: 1 0")

		a.send("alice", other)
		a.ack("bob", other, 1, 1)
		a.ack("bob", chat, 3, 3)
		a.remove(chat, "bob")
		settle()
		want(t, "after a removal", owns(phone.drain()), "own ab 1 1 from 0: 0 0")
	})
}

// TestOwnState_own_state_reaches_devices_when_the_registry_answers_again: nobody knew the user's
// sessions when they read.
func TestOwnState_own_state_reaches_devices_when_the_registry_answers_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		nodesTrust()
		time.Sleep(20 * time.Second)
		chat := a.chat("ab", "alice", "bob")
		bob := b.open("bob")
		b.send("alice", chat)
		settle()
		bob.drain()
		down.Store(true)
		a.ack("bob", chat, 1, 1)
		time.Sleep(100 * time.Millisecond)
		down.Store(false)
		time.Sleep(30 * time.Second)
		want(t, "bob", owns(bob.drain()), "own ab 1 1 from 0: 0 0")
	})
}

// TestOwnState_nothing_outside_membership: an own state that was read before a removal is not sent
// after it, and a former member's is not read.
func TestOwnState_nothing_outside_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		settle()
		bob := a.open("bob")
		bob.drain()
		a.ack("bob", chat, 1, 1)
		settle()
		removed := false
		w.after.set(func(method string) error {
			if method == "Unread" && !removed {
				removed = true
				a.remove(chat, "bob")
			}
			return nil
		})
		if got := owns(bob.drain()); !removed || len(got) > 0 {
			t.Errorf("removed %v while it was read, then got %q", removed, got)
		}

		carol := a.open("carol")
		carol.drain()
		position := carol.last
		a.ack("carol", chat, 1, 1)
		settle()
		want(t, "carol", owns(carol.drain()), "own abc 1 1 from 0: 0 0")
		carol.Detach()
		a.remove(chat, "carol")
		carol = a.open("carol", resuming(carol.Session(), position))
		want(t, "carol, who comes back for it", owns(carol.drain()))
	})
}
