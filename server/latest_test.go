package server_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// silent creates n direct chats of bob, c000 first. Each has a message of bob that the other member
// has received. Then bob visits once, so that the latest chats are known.
func (c *core) silent(n int) {
	c.t.Helper()
	for i := range n {
		chat, friend := silentChat(i), silentFriend(i)
		c.chat(chat, friend, "bob")
		c.send("bob", chat)
		c.ack(friend, chat, 1, 0)
		time.Sleep(time.Second)
	}
	c.visit("bob")
}

func silentChat(i int) tidemark.ChatID   { return tidemark.ChatID(fmt.Sprintf("c%03d", i)) }
func silentFriend(i int) tidemark.UserID { return tidemark.UserID(fmt.Sprintf("u%03d", i)) }

// visit opens a stream with statuses, reads and acknowledges all, and closes. It returns the lines.
func (c *core) visit(user tidemark.UserID) []string {
	c.t.Helper()
	client := c.open(user, withStatuses)
	lines := client.drain()
	client.goodbye()
	settle()
	return lines
}

// TestLatest_open_costs_nothing_for_silent_chats counts the calls of an open against the user's
// chats. Most of them are silent.
func TestLatest_open_costs_nothing_for_silent_chats(t *testing.T) {
	calls := map[int]map[string]int{}
	for _, n := range []int{60, 600} {
		synctest.Test(t, func(t *testing.T) {
			a := newClusterInMemory(t).node("a")
			a.silent(n)
			before := a.store.Snapshot()
			lines := a.visit("bob")
			if got := len(statusesOf(lines)); got != 2*50 {
				t.Errorf("%d statuses, want those of both members of 50 chats", got)
			}
			calls[n] = a.since(before).Calls
			if known := a.Counters()["latest_chats_known_total"]; known == 0 {
				t.Errorf("with %d chats the node counts no snapshot without a list", n)
			}
		})
	}
	want := map[string]int{"PendingOf": 1, "States": 1}
	for n, got := range calls {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with %d chats an open calls %v, want %v", n, got, want)
		}
	}
}

// TestLatest_delivered_is_eventually_consistent: a chat that was not among the latest becomes
// active in each way that there is. The next snapshot has it, and the chats are not listed for it.
func TestLatest_delivered_is_eventually_consistent(t *testing.T) {
	old, friend := silentChat(0), silentFriend(0)
	tests := map[string]struct {
		act   func(w *cluster, a *core)
		lists int
	}{
		"a message while the user is away": {act: func(_ *cluster, a *core) {
			a.send(friend, old)
		}},
		"a message that the user acknowledges without a session": {act: func(_ *cluster, a *core) {
			a.send(friend, old)
			a.ack("bob", old, 2, 2)
		}},
		"a message to a session": {act: func(_ *cluster, a *core) {
			bob := a.open("bob")
			bob.drain()
			a.send(friend, old)
			bob.drain()
			bob.Ack(server.Ack{Chat: old, Acked: 2})
			settle()
			bob.goodbye()
		}},
		"a message to a session, and an answer of the store is lost": {
			act: func(w *cluster, a *core) {
				bob := a.open("bob")
				bob.drain()
				a.send(friend, old)
				bob.drain()
				settle()
				w.after.set(once("Advance", errDown, nil))
				bob.Ack(server.Ack{Chat: old, Acked: 2})
				settle()
				w.after.clear()
				bob.Ack(server.Ack{Chat: old, Acked: 2})
				settle()
				bob.goodbye()
			}},
		"the user sends without a session": {act: func(_ *cluster, a *core) {
			a.send("bob", old)
			settle()
		}},
		"the user sends without a session, and their run takes time": {
			act: func(w *cluster, a *core) {
				w.before.set(once("Advance", nil, func() { time.Sleep(time.Minute) }))
				a.send(silentFriend(1), silentChat(1)) // the run that is written first
				time.Sleep(100 * time.Millisecond)
				a.send("bob", old)
				synctest.Wait()
				w.before.clear()
			}},
		"a message while another device is connected": {act: func(_ *cluster, a *core) {
			a.open("bob").drain()
			a.send(friend, old)
		}},
		"a message that the user acknowledges beside another device": {
			act: func(_ *cluster, a *core) {
				a.open("bob").drain()
				a.send(friend, old)
				a.ack("bob", old, 2, 2)
			}},
		"the user joins": {act: func(_ *cluster, a *core) {
			a.add("since", "bob")
			settle()
		}},
		"another node joins, where the user sends without a session": {
			act: func(w *cluster, _ *core) {
				w.node("b").send("bob", old)
				settle()
			}, lists: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClusterInMemory(t)
				a := w.node("a")
				_, _, err := a.CreateChat(a.ctx, server.Caller{User: "alice"},
					server.CreateChatRequest{
						ChatID: "since", Type: tidemark.Group, History: tidemark.HistorySinceJoin,
						MemberIDs: []tidemark.UserID{"alice", "carol"},
					})
				if err != nil {
					t.Fatal(err)
				}
				a.silent(70)
				a.send("alice", "since")
				a.ack("carol", "since", 1, 1)
				settle()
				test.act(w, a)
				a.ack(friend, old, 1, 1)
				settle() // no session gets it as news
				before := a.store.Snapshot()
				lines := a.visit("bob")
				about := string(friend)
				if name == "the user joins" {
					about = "carol"
				}
				if len(statusesOf(lines, about)) != 1 {
					t.Errorf("the snapshot is %q, want the status of %s", statusesOf(lines), about)
				}
				if got := a.since(before).Calls["ChatsOf"]; got != test.lists {
					t.Errorf("the open lists the chats %d times, want %d", got, test.lists)
				}
			})
		})
	}
}

// TestLatest_bounded_use: more than a hundred chats are listed anew, and what was listed counts.
func TestLatest_bounded_use(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClusterInMemory(t).node("a")
		a.silent(120)
		for i := range 70 {
			a.send(silentFriend(i), silentChat(i))
			a.ack("bob", silentChat(i), 2, 2)
			time.Sleep(time.Second)
		}
		for visit, want := range []int{1, 0} {
			before := a.store.Snapshot()
			if n := len(statusesOf(a.visit("bob"))); n != 2*50 {
				t.Errorf("visit %d: %d statuses, want those of 50 chats", visit, n)
			}
			if got := a.since(before).Calls["ChatsOf"]; got != want {
				t.Errorf("visit %d lists the chats %d times, want %d", visit, got, want)
			}
		}
	})
}

// TestLatest_random_actions: whatever a user and others do, a snapshot has the present boundaries
// of each of the 50 latest chats.
func TestLatest_random_actions(t *testing.T) {
	listed, opens := 0, 0
	for seed := range min(randomRuns(t), 150) / 5 {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClusterInMemory(t)
				a := w.node("a")
				a.silent(60)
				r := latestRun{cluster: w, a: a, dice: rand.New(rand.NewPCG(seed, 18))}
				before := a.store.Snapshot()
				for range 40 {
					r.act()
				}
				opens += r.opens
				listed += a.since(before).Calls["ChatsOf"] - r.opens // each is checked with a list
			})
		})
	}
	if opens == 0 || listed*2 > opens {
		t.Errorf("%d of %d opens listed the chats: the rest shows too little", listed, opens)
	}
}

// TestLatest_bounded_use_members: chats of too many members for one snapshot are listed, so that
// those with the latest activity come first.
func TestLatest_bounded_use_members(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClusterInMemory(t).node("a")
		for n := range 6 {
			id := tidemark.ChatID(fmt.Sprint("large", n))
			a.send("alice", a.chat(id, crowd(tidemark.MaxMembersPerCall)...))
		}
		settle()
		a.visit("bob")
		bob := a.open("bob")
		for n := range 6 {
			bob.Ack(server.Ack{Chat: tidemark.ChatID(fmt.Sprint("large", n)), Acked: 1})
		}
		bob.drain()
		settle()
		bob.goodbye()
		before := a.store.Snapshot()
		a.visit("bob")
		if got := a.since(before).Calls["ChatsOf"]; got != 1 {
			t.Errorf("the open lists the chats %d times, want once", got)
		}
	})
}

// latestRun is a run of TestLatest_random_actions.
type latestRun struct {
	*cluster
	a     *core
	dice  *rand.Rand
	bob   *client
	phone *client // a second device, which may be connected while bob opens
	opens int
}

// act does one thing at random.
func (r *latestRun) act() {
	i := r.dice.IntN(60)
	chat, friend := silentChat(i), silentFriend(i)
	switch r.dice.IntN(10) {
	case 9:
		if r.phone != nil {
			r.phone.goodbye()
			r.phone = nil
		} else {
			r.phone = r.a.open("bob")
			r.phone.drain()
		}
	case 0, 1:
		r.a.send(friend, chat)
	case 2:
		r.a.send("bob", chat)
	case 3:
		head := r.head(chat)
		r.a.ack(friend, chat, head, head)
	case 4:
		r.a.ack("bob", chat, r.head(chat), 0)
	case 5, 6:
		if r.bob == nil {
			r.open()
		}
	case 7:
		if r.bob != nil {
			r.bob.drain()
			r.bob.Ack(server.Ack{Chat: chat, Acked: r.head(chat)})
		}
	default:
		if r.bob != nil {
			r.bob.goodbye()
			r.bob = nil
		}
	}
	time.Sleep(time.Duration(r.dice.IntN(3)) * 40 * time.Millisecond)
}

// open opens a stream and checks its snapshot.
func (r *latestRun) open() {
	r.bob = r.a.open("bob", withStatuses)
	lines := r.bob.drain()
	latest, _, err := r.a.store.ChatsOf(r.ctx, "bob", storage.ChatsPage{Limit: 50, Brief: true})
	if err != nil {
		r.t.Fatal(err)
	}
	r.opens++
	for _, c := range latest {
		for _, user := range []tidemark.UserID{"bob", tidemark.UserID("u" + c.Chat.ID[1:])} {
			b := r.state(user, c.Chat.ID).Exposed()
			want := fmt.Sprintf("status %s %s %d %d", c.Chat.ID, user, b.Acked, b.Read)
			if b != (tidemark.Boundary{}) && !slices.Contains(lines, want) {
				r.t.Fatalf("the snapshot lacks %q: %q", want, statusesOf(lines))
			}
		}
	}
}

// TestLatest_delivered_is_eventually_consistent_while_the_list_is_read: a chat becomes active after
// the read, and before its result is remembered.
func TestLatest_delivered_is_eventually_consistent_while_the_list_is_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a")
		old, friend := silentChat(0), silentFriend(0)
		w.after.set(once("ChatsOf", nil, func() {
			a.send("bob", old)
			time.Sleep(time.Second)
		}))
		a.silent(70)
		w.after.clear()
		a.ack(friend, old, 2, 2)
		settle()
		if got := statusesOf(a.visit("bob"), string(friend)); len(got) != 1 {
			t.Errorf("the snapshot has %q of %s, want one status", got, friend)
		}
	})
}

// TestLatest_delivered_is_eventually_consistent_while_it_is_acknowledged: a chat became active, and
// a device opens when the acknowledgement is stored, before its sender gets the answer. Another
// device is connected, so the open compares all chats, and finds nothing new.
func TestLatest_delivered_is_eventually_consistent_while_it_is_acknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a")
		old, friend := silentChat(0), silentFriend(0)
		a.silent(70)
		a.open("bob").drain()
		a.send(friend, old)
		a.ack(friend, old, 2, 2)
		settle()
		var got []string
		lists := a.store.Snapshot().Calls["ChatsOf"]
		w.after.set(once("Advance", nil, func() {
			got = statusesOf(a.open("bob", withStatuses).drain(), string(friend))
		}))
		a.ack("bob", old, 2, 2)
		w.after.clear()
		if len(got) != 1 {
			t.Errorf("the snapshot has %q of %s, want one status", got, friend)
		}
		if n := a.store.Snapshot().Calls["ChatsOf"] - lists; n != 0 {
			t.Errorf("the open lists the chats %d times, want 0", n)
		}
	})
}
