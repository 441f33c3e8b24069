package server_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Strangers can put a user into many large groups. An open reads the states of a bounded number of
// members, and the statuses of small chats that were active before these groups.
func TestStatus_snapshot_of_a_member_of_many_large_groups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		small := a.chat("ab", "alice", "bob")
		a.send("alice", small)
		a.ack("bob", small, 1, 1)
		for n := range 12 {
			id := tidemark.ChatID(fmt.Sprint("large", n))
			a.send("alice", a.chat(id, crowd(tidemark.MaxMembersPerCall)...))
			if n%2 == 0 { // the others are found while the session catches up
				a.ack("bob", id, 1, 0)
			}
		}
		time.Sleep(3 * time.Second) // what was read before is too old
		before := a.store.Snapshot()
		bob := a.open("bob", withStatuses)
		got := statusesOf(bob.drain(), "alice", "bob")
		want(t, "the small chat", got, "status ab alice 1 1", "status ab bob 1 1")
		if n := a.since(before).Calls["Summary"]; n == 0 || n > 5 {
			t.Errorf("an open reads %d groups of 1,000 members, want 1 to 5", n)
		}
	})
}

// Strangers can put a user into many large groups while the user is connected.
func TestStatus_of_a_user_who_is_added_to_many_large_groups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		bob := b.open("bob", withStatuses)
		settle()
		bob.drain()
		others := crowd(tidemark.MaxMembersPerCall)
		others = slices.DeleteFunc(others, func(u tidemark.UserID) bool { return u == "bob" })
		for n := range 12 {
			id := tidemark.ChatID(fmt.Sprint("large", n))
			a.send("alice", a.chat(id, others...))
			if n == 6 {
				time.Sleep(30 * time.Second)
			}
			settle()
			before := b.store.Snapshot()
			a.add(id, "bob")
			settle()
			bob.drain()
			got, want := b.since(before).Calls["Summary"], 1
			if n >= 5 {
				want = 0
			}
			if got != want {
				t.Errorf("group %d: its members are read %d times, want %d", n, got, want)
			}
		}
		time.Sleep(time.Minute)
		a.chat("abc", "alice", "carol", "dave")
		a.send("alice", "abc")
		a.ack("carol", "abc", 1, 1)
		settle()
		a.add("abc", "bob")
		settle()
		want(t, "a minute later", statusesOf(bob.drain(), "carol"), "status abc carol 1 1")
	})
}

// TestStatus_of_chats_that_are_unknown: what does not exist, and what the user is not in, costs two
// reads at most, however many chats are named.
func TestStatus_of_chats_that_are_unknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		strange := a.chat("strange", "alice", "bob")
		a.send("alice", strange) // its members are in memory
		own := a.chat("own", "alice", "eve")
		a.send("alice", own)
		a.ack("eve", own, 1, 1)
		settle()
		ids := []tidemark.ChatID{strange, own}
		for n := range 98 {
			ids = append(ids, tidemark.ChatID(fmt.Sprint("unknown", n)))
		}
		before := a.store.Snapshot()
		all, err := a.Statuses(a.ctx, "eve", ids)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []tidemark.Code{tidemark.NotMember, "", tidemark.NotFound} {
			wantCode(t, string(ids[i]), all[i].Err, want)
		}
		if got := len(all[1].Updates); len(all) != 100 || got != 2 {
			t.Errorf("%d chats, and %d updates of the own one, want 100 and 2", len(all), got)
		}
		if got := a.since(before).Calls; got["Rosters"] > 2 || got["States"] > 1 {
			t.Errorf("it makes the calls %v, want 2 Rosters and one States at most", got)
		}
	})
}
