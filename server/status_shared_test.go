package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// The least boundary of a large chat is read once for all who need it, and published when it rose.

// group creates a chat of n users with a message that alice sent, and waits until nothing is
// published any more. Alice has acknowledged it.
func (c *core) group(n int) (chat tidemark.ChatID, users []tidemark.UserID) {
	c.t.Helper()
	users = crowd(n)
	chat = c.chat("crowd", users...)
	c.send("alice", chat)
	time.Sleep(3 * time.Second)
	synctest.Wait()
	return chat, users
}

// acknowledged makes users acknowledge, and waits until nothing is published any more.
func (c *core) acknowledged(chat tidemark.ChatID, n tidemark.Sequence, users ...tidemark.UserID) {
	c.t.Helper()
	for _, user := range users {
		c.ack(user, chat, n, 0)
	}
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// TestStatus_least_is_shared_by_all_who_open: n members open, all at once or one after the other.
func TestStatus_least_is_shared_by_all_who_open(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every time.Duration
		most  int
	}{
		// One read at once, and one for those who may have missed what rose since.
		{"at once", 0, 2},
		// One read a second, and a last one.
		{"in five seconds", 25 * time.Millisecond, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 200
				w := newCluster(t)
				a := w.node("a")
				chat, users := a.group(n)
				a.acknowledged(chat, 1, users...)
				before := a.store.Snapshot()
				var clients []*client
				var told [n]func() []string
				for i, user := range users {
					clients = append(clients, a.open(user, withStatuses))
					told[i] = clients[i].collect()
					time.Sleep(tc.every)
				}
				time.Sleep(3 * time.Second)
				for i := range clients {
					want(t, string(users[i]), statusesOf(told[i](), "all"), "status crowd all 1 0")
				}
				got := a.since(before).Calls
				if got["Summary"] == 0 || got["Summary"] > tc.most {
					t.Errorf("%d opens read the group %d times, want 1 to %d", n, got["Summary"],
						tc.most)
				}
			})
		})
	}
}

// TestStatus_least_is_shared_by_all_who_join: each of them changes the members, and opens.
func TestStatus_least_is_shared_by_all_who_join(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, users := a.group(60)
		a.acknowledged(chat, 1, users...)
		before := a.store.Snapshot()
		var told []func() []string
		for i := range 40 {
			user := tidemark.UserID(fmt.Sprint("new", i))
			a.add(chat, user)
			a.ack(user, chat, 1, 0)
			told = append(told, a.open(user, withStatuses).collect())
			time.Sleep(25 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		for i := range told {
			got := statusesOf(told[i](), "all")
			if len(got) == 0 || got[len(got)-1] != "status crowd all 1 0" {
				t.Errorf("new%d got %v, want the least of all", i, got)
			}
		}
		if n := a.since(before).Calls["Summary"]; n == 0 || n > 4 {
			t.Errorf("40 who joined and opened in a second read the group %d times, want 1 to 4", n)
		}
	})
}

// TestStatus_least_is_shared_by_acknowledgements: 200 members acknowledge each of five messages, in
// five seconds. The group is read once a second, and each rise is published once.
func TestStatus_least_is_shared_by_acknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, users := a.group(200)
		alice := a.open("alice")
		alice.drain()
		before, updates := a.store.Snapshot(), a.Counters()["status_updates_total"]
		for range 5 {
			sequence := a.send("alice", chat)
			for _, user := range users {
				a.ack(user, chat, sequence, 0)
				time.Sleep(time.Second / 200)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		got := statusesOf(alice.drain(), "all")
		if len(got) == 0 || got[len(got)-1] != "status crowd all 6 0" {
			t.Errorf("alice got %v, want the least of all in the end", got)
		}
		if n := a.since(before).Calls["Summary"]; n == 0 || n > 7 {
			t.Errorf("1,000 acknowledgements in 5 s read the group %d times, want 1 to 7", n)
		}
		if n := a.Counters()["status_updates_total"] - updates; n == 0 || n > 6 {
			t.Errorf("%d aggregates were published, want 1 to 6: those that rose", n)
		}
		updates = a.Counters()["status_updates_total"]
		a.send("alice", chat)
		a.acknowledged(chat, 7, users[1:100]...)
		if n := a.Counters()["status_updates_total"] - updates; n != 0 {
			t.Errorf("%d aggregates were published, and none rose", n)
		}
	})
}

// TestStatus_least_is_shared_by_the_acknowledgements_of_a_message: 200 members acknowledge it in a
// tenth of a second. One read has them all, and the tick comes soon.
func TestStatus_least_is_shared_by_the_acknowledgements_of_a_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, users := a.group(200)
		alice := a.open("alice")
		alice.drain()
		before := a.store.Snapshot()
		for _, user := range users {
			a.ack(user, chat, 1, 0)
			time.Sleep(time.Second / 2000)
		}
		time.Sleep(200 * time.Millisecond)
		want(t, "alice", statusesOf(alice.drain(), "all"), "status crowd all 1 0")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := a.since(before).Calls["Summary"]; n != 1 {
			t.Errorf("the acknowledgements of a message read the group %d times, want 1", n)
		}
	})
}

// TestStatus_delivered_is_eventually_consistent_for_one_who_opens_after_the_last_acknowledgement:
// the node has read the group shortly before. It was published shortly before the session came.
func TestStatus_delivered_is_eventually_consistent_for_one_who_opens_shortly_after(t *testing.T) {
	for _, at := range []tidemark.NodeID{"a", "b"} {
		t.Run("acknowledged at "+string(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a, b := w.node("a"), w.node("b")
				chat, users := b.group(60)
				b.acknowledged(chat, 1, users[2:]...)
				b.open("u0000", withStatuses).drain() // now b has read it
				time.Sleep(time.Millisecond)
				map[tidemark.NodeID]*core{"a": a, "b": b}[at].ack("bob", chat, 1, 0)
				time.Sleep(300 * time.Millisecond) // now it was published
				alice := b.open("alice", withStatuses)
				told := alice.collect()
				time.Sleep(3 * time.Second)
				want(t, "alice", statusesOf(told(), "all"), "status crowd all 1 0")
			})
		})
	}
}

// TestStatus_group_delivered_requires_all_members_that_there_are_now: the node has read the group
// shortly before zoe joined, and did not read it since.
func TestStatus_group_delivered_requires_all_members_that_there_are_now(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat, users := b.group(60)
		b.acknowledged(chat, 1, users...)
		want(t, "bob", statusesOf(b.open("bob", withStatuses).drain(), "all"),
			"status crowd all 1 0")
		a.add(chat, "zoe")
		time.Sleep(10 * time.Millisecond)
		alice := b.open("alice", withStatuses)
		told := alice.collect()
		time.Sleep(3 * time.Second)
		want(t, "alice, before zoe has it", statusesOf(told(), "all"))
		// The members had the same aggregate before zoe came. Alice's session did not.
		told = alice.collect()
		b.acknowledged(chat, 1, "zoe")
		want(t, "alice, when zoe has it", statusesOf(told(), "all"), "status crowd all 1 0")
	})
}

// TestStatus_aggregate_that_was_lost_is_sent_again_while_it_cannot_be_read: zoe has just joined.
func TestStatus_aggregate_that_was_lost_is_sent_again_while_it_cannot_be_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, users := a.group(60)
		alice := a.open("alice")
		alice.drain()
		position := alice.last
		a.acknowledged(chat, 1, users...)
		want(t, "alice", statusesOf(alice.drain(), "all"), "status crowd all 1 0")
		a.open("bob", withStatuses).drain() // now a has read it
		a.add(chat, "zoe")
		time.Sleep(10 * time.Millisecond)
		again := a.open("alice", resuming(alice.Session(), position))
		again.last = alice.last
		told := again.collect()
		time.Sleep(3 * time.Second)
		want(t, "alice, who lost it", statusesOf(told(), "all"), "status crowd all 1 0")
	})
}

// TestStatus_aggregate_is_published_again_if_that_failed: the bus fails once, and nobody
// acknowledges any more.
func TestStatus_aggregate_is_published_again_if_that_failed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat, users := a.group(60)
		alice := b.open("alice")
		alice.drain()
		var fail sync.Once
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) (err error) {
			if e.Status != nil {
				fail.Do(func() { err = errDown })
			}
			if err != nil {
				return err
			}
			return send()
		})
		a.acknowledged(chat, 1, users...)
		w.publish.clear()
		want(t, "alice", statusesOf(alice.drain(), "all"), "status crowd all 1 0")
	})
}

// TestStatus_aggregate_is_read_again_if_that_failed: storage fails once, and nobody acknowledges
// any more.
func TestStatus_aggregate_is_read_again_if_that_failed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, users := a.group(60)
		a.acknowledged(chat, 1, users[2:]...)
		alice := a.open("alice")
		alice.drain()
		w.before.set(once("Summary", errDown, nil))
		a.acknowledged(chat, 1, "bob")
		w.before.clear()
		want(t, "alice", statusesOf(alice.drain(), "all"), "status crowd all 1 0")
	})
}

// TestStatus_query_is_exact_although_the_group_was_just_read: a session may get an aggregate of the
// second before. An answer to a query is of now.
func TestStatus_query_is_exact_although_the_group_was_just_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, users := a.group(60)
		a.acknowledged(chat, 1, users[2:]...)
		a.open("alice", withStatuses).drain()
		a.ack("bob", chat, 1, 0)
		all, err := a.Statuses(a.ctx, "alice", []tidemark.ChatID{chat})
		if err != nil || len(all[0].Updates) != 1 || all[0].Updates[0].Acked != 1 {
			t.Errorf("got %+v, %v, want that all have message 1", all, err)
		}
	})
}

// TestStatus_updates_of_a_group_grow_with_its_members: 20 messages a second for five seconds, which
// each member acknowledges. Updates about each member go to each, so there are fewer for each. A
// member more makes it an aggregate, which costs about as much.
func TestStatus_updates_of_a_group_grow_with_its_members(t *testing.T) {
	statuses := func(members int) (sent int) {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			a := w.node("a")
			chat, users := a.group(members)
			var told []func() []string
			for _, user := range users {
				told = append(told, a.open(user).collect())
			}
			for range 100 {
				sequence := a.send("alice", chat)
				for _, user := range users {
					a.ack(user, chat, sequence, 0)
				}
				time.Sleep(50 * time.Millisecond)
			}
			time.Sleep(3 * time.Second)
			for i := range users {
				got := statusesOf(told[i]())
				last := fmt.Sprintf("status crowd %s 101 0", users[len(users)-1])
				if members > tidemark.StatusFanoutLimit {
					last = "status crowd all 101 0"
				}
				// Nobody is told of themselves.
				if !slices.Contains(got, last) && !strings.Contains(last, string(users[i])) {
					t.Errorf("%d members: %s did not get %q", members, users[i], last)
				}
				sent += len(got)
			}
		})
		return sent
	}
	// Messages that reach the members: 100 for each.
	for _, tc := range []struct{ members, most int }{
		{3, 3 * 2 * 52},   // ten updates a second about each, to the others
		{10, 10 * 9 * 27}, // five
		{50, 50 * 49 * 7}, // one
		{51, 51 * 7},      // one about all
	} {
		if got := statuses(tc.members); got > tc.most {
			t.Errorf("%d members got %d status updates in all, want %d at most", tc.members, got,
				tc.most)
		}
	}
}
