package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// crowd returns n users. The first are alice and bob.
func crowd(n int) []tidemark.UserID {
	users := []tidemark.UserID{"alice", "bob"}
	for i := range n - 2 {
		users = append(users, tidemark.UserID(fmt.Sprintf("u%04d", i)))
	}
	return users
}

func TestLarge_chats_mark_nothing_and_an_open_finds_them(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.TailMessages = 1 })
		chat := a.chat("large", crowd(501)...)
		small := a.chat("small", "alice", "bob")
		a.leaveProof("bob")
		before := a.store.Snapshot()
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		sent := a.since(before)
		if sent.Calls["Mark"] != 0 || sent.Marked != 0 {
			t.Errorf("3 messages to 500 absent members: got %d calls of Mark and %d rows, want 0",
				sent.Calls["Mark"], sent.Marked)
		}
		a.send("alice", small)
		before = a.store.Snapshot()
		bob := a.open("bob")
		lines := bob.drain()
		got := messagesOf(lines)
		slices.Sort(got)
		want(t, "bob", got,
			"message large 1", "message large 2", "message large 3", "message small 1")
		calls := a.since(before).Calls
		if calls["PendingOf"] != 1 || calls["Behind"] != 1 {
			t.Errorf("the open listed %d times and compared %d times, want once each",
				calls["PendingOf"], calls["Behind"])
		}
		before = a.store.Snapshot()
		bob.Ack(server.Ack{Chat: chat, Acked: 3}, server.Ack{Chat: small, Acked: 1})
		settle()
		bob.goodbye()
		if n := a.since(before).Marked; n != 0 {
			t.Errorf("got %d rows written, want 0", n)
		}
		want(t, "bob again", messagesOf(a.open("bob").drain()))
	})
}

// TestLarge_stays_large: a chat that became large stays large when it shrinks again.
func TestLarge_stays_large(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("large", crowd(500)...)
		a.leaveProof("bob")
		a.add(chat, "zoe")
		a.remove(chat, "zoe")
		a.remove(chat, "u0001")
		before := a.store.Snapshot()
		a.send("alice", chat)
		if n := a.since(before).Marked; n != 0 {
			t.Errorf("got %d rows written, want 0", n)
		}
		want(t, "bob", messagesOf(a.open("bob").drain()), "message large 1")
		settle()
	})
}

// A client compares the version of its list of members with those of messages and of membership
// events. After a change they all are higher, and equal.
func TestMembers_have_a_version_that_messages_and_events_name(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := b.open("bob")
		seen := 0
		for version := uint64(1); version < 4; version++ {
			settle()
			page, err := b.Members(b.ctx, server.Caller{User: "bob"}, chat, 10, "")
			if err != nil || page.Version != version {
				t.Fatalf("the list has version %d (%v), want %d", page.Version, err, version)
			}
			a.send("alice", chat)
			settle()
			events, err := bob.Next(b.ctx, nil, false)
			for err == nil && len(events) > 0 {
				for _, e := range events {
					if e.Type != tidemark.EventMessage && e.Type != tidemark.EventMembership {
						continue
					}
					seen++
					want := fmt.Sprintf(`"members_version":%d}`, version)
					if !strings.HasSuffix(string(e.Payload), want) {
						t.Errorf("%s %s, want %s at its end", e.Type, e.Payload, want)
					}
				}
				events, err = bob.Next(b.ctx, nil, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			if version%2 == 1 {
				a.remove(chat, "carol")
			} else {
				a.add(chat, "carol")
			}
		}
		if seen != 5 {
			t.Errorf("saw %d messages and changes, want 5", seen)
		}
		settle()
	})
}
