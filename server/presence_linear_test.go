package server_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// reconnects returns how many users reconnect in the tests of presence (500), and how many look
// (10).
func reconnects(t *testing.T) (users, lookers int) {
	t.Helper()
	text := os.Getenv("TIDEMARK_PRESENCE_USERS")
	if text == "" {
		return 500, 10
	}
	users, err := strconv.Atoi(text)
	if err != nil || users < 100 {
		t.Fatalf("TIDEMARK_PRESENCE_USERS=%q is not a number of at least 100", text)
	}
	return users, users / 100
}

// onlookers is two nodes: all users are on the first, and those who look on the second.
type onlookers struct {
	a, b    *core
	users   []tidemark.UserID
	lookers []*client
	// shown has the chats at which each looker looks.
	shown [][]tidemark.ChatID
	// sent counts bytes that the nodes sent each other about presence: ids, and 16 for the rest.
	sent *atomic.Int64
	// seconds is how long it has lasted.
	seconds int
}

// Each chat of them but one has chatUsers users, and chatLookers who look at it.
const (
	chatUsers   = 40
	chatLookers = 3
	// inAll is how many users the chat of all has at most. Those who look are members, too.
	inAll = tidemark.MaxMembers - 1_000
)

// newOnlookers makes chats of few users, and one of them all. Everybody who looks looks at that
// one, too.
func newOnlookers(t *testing.T, users, lookers int) *onlookers {
	t.Helper()
	w := newCluster(t)
	c := &onlookers{sent: new(atomic.Int64), shown: make([][]tidemark.ChatID, lookers)}
	w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
		if p := e.Presence; p != nil {
			c.sent.Add(int64(len(p.From.ID) + len(p.From.Boot) + 16))
			for _, user := range slices.Concat(p.Came, p.Left, p.Changed) {
				c.sent.Add(int64(len(user) + 1))
			}
		}
		return send()
	})
	c.a, c.b = w.node("a"), w.node("b")
	for i := range users {
		c.users = append(c.users, tidemark.UserID(fmt.Sprintf("user-%05d", i)))
	}
	looker := func(i int) tidemark.UserID {
		return tidemark.UserID(fmt.Sprintf("looker-%03d", i))
	}
	all := c.a.chat("all", "alice", "bob", "carol")
	for part := range slices.Chunk(
		c.users[:min(users, inAll)], tidemark.MaxMembersPerCall) {
		c.a.add(all, part...)
	}
	for i := range lookers {
		c.a.add(all, looker(i))
		c.shown[i] = append(c.shown[i], all)
	}
	n := 0
	for part := range slices.Chunk(c.users, chatUsers) {
		chat := c.a.chat(tidemark.ChatID(fmt.Sprintf("chat-%d", n)), part...)
		for k := range chatLookers {
			i := (n + k) % lookers
			c.addAs(part[0], chat, looker(i))
			c.shown[i] = append(c.shown[i], chat)
		}
		n++
	}
	nodesTrust()
	for i := range lookers {
		c.lookers = append(c.lookers, c.b.open(looker(i)))
	}
	return c
}

func (c *onlookers) addAs(owner tidemark.UserID, chat tidemark.ChatID, user tidemark.UserID) {
	c.a.t.Helper()
	_, err := c.a.AddMembers(c.a.ctx, server.Caller{User: owner}, chat,
		[]tidemark.UserID{user}, "")
	if err != nil {
		c.a.t.Fatal(err)
	}
}

// wait lets seconds pass. Those who look read what comes, and repeat their looks. It returns the
// bytes of presence that they got.
func (c *onlookers) wait(seconds int) (bytes int64) {
	c.a.t.Helper()
	for range seconds {
		if c.seconds%25 == 0 {
			for i, looker := range c.lookers {
				if err := looker.Look(c.b.ctx, c.shown[i]); err != nil {
					c.a.t.Fatal(err)
				}
			}
		}
		c.seconds++
		time.Sleep(time.Second)
		for _, looker := range c.lookers {
			bytes += looker.presenceBytes()
		}
	}
	return bytes
}

// presenceBytes reads everything that is due, and returns the bytes of presence.
func (c *client) presenceBytes() (bytes int64) {
	c.t.Helper()
	for {
		events, err := c.Next(c.core.ctx, nil, false)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(events) == 0 {
			return bytes
		}
		for _, e := range events {
			if e.Type == tidemark.EventPresence {
				bytes += int64(len(e.Payload))
			}
		}
	}
}

// cost is what presence costs: what nodes send each other, the users who are looked up, and what
// sessions get. seconds is how long it took, and cpu the time of the process.
type cost struct {
	batches, entries, sent, checks, events, bytes, seconds int64
	cpu                                                    time.Duration
}

func (c *onlookers) cost() cost {
	a, b := c.a.Counters(), c.b.Counters()
	sum := func(name string) int64 { return a[name] + b[name] }
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return cost{
		batches: sum("presence_batches_total"), entries: sum("presence_entries_total"),
		sent: c.sent.Load(), checks: sum("presence_checks_total"),
		events: sum("presence_events_total"), seconds: int64(c.seconds),
		cpu: time.Duration(used.Utime.Nano() + used.Stime.Nano()),
	}
}

// within lets each user do something at a random second of 20. It returns the bytes of presence
// that those who look got in these seconds and some more.
func (c *onlookers) within(random *rand.Rand, more int, do func(user int)) (bytes int64) {
	c.a.t.Helper()
	at := make([][]int, 20)
	for i := range c.users {
		second := random.IntN(len(at))
		at[second] = append(at[second], i)
	}
	for _, now := range at {
		for _, i := range now {
			do(i)
		}
		bytes += c.wait(1)
	}
	return bytes + c.wait(more)
}

// comeAndGo connects all users, ends their sessions, and connects them again when they count as
// offline. It returns what that cost.
func (c *onlookers) comeAndGo() (spent cost) {
	c.a.t.Helper()
	c.wait(5)
	random := rand.New(rand.NewPCG(1, 2))
	sessions := make([]*client, len(c.users))
	come := func(i int) { sessions[i] = c.a.open(c.users[i]) }
	before := c.cost()
	spent.bytes = c.within(random, 5, come)
	spent.bytes += c.within(random, 40, func(i int) { sessions[i].leave() })
	spent.bytes += c.within(random, 5, come)
	after := c.cost()
	spent.batches, spent.entries = after.batches-before.batches, after.entries-before.entries
	spent.sent, spent.checks = after.sent-before.sent, after.checks-before.checks
	spent.events, spent.seconds = after.events-before.events, after.seconds-before.seconds
	spent.cpu = after.cpu - before.cpu
	return spent
}

// TestPresence_linear_reconnects: n users who come, go and come again cost O(n). With twice as
// many, entries, events and bytes are about twice as much, look-ups are within a bound for each
// user, and batches within one for each second.
func TestPresence_linear_reconnects(t *testing.T) {
	users, lookers := reconnects(t)
	var spent [2]cost
	for i, n := range []int{users, 2 * users} {
		synctest.Test(t, func(t *testing.T) { spent[i] = newOnlookers(t, n, lookers).comeAndGo() })
		got := spent[i]
		t.Logf("%d users, %d who look: %+v", n, lookers, got)
		changes := int64(3 * n) // each comes, goes and comes
		if got.entries != changes {
			t.Errorf("%d entries for %d changes", got.entries, changes)
		}
		// Users come, go and come in 20 seconds each. A change beside a batch waits for the next,
		// which makes 55 to 66 batches. With four in a second there are 75 or more.
		if most := int64(3 * (20 + 4)); got.batches > most {
			t.Errorf("%d batches in %d s, want at most %d", got.batches, got.seconds, most)
		}
		// A change is at most 100 bytes for each of those who look. The chat of all and the rest of
		// each event are at most 100 bytes, for each chat and second.
		counts := int64(lookers) * got.seconds * 100
		if most := changes*chatLookers*2*100 + counts; got.bytes > most {
			t.Errorf("sessions got %d bytes, want at most %d", got.bytes, most)
		}
		// A look-up of each member at first, when they are offline, and once a minute.
		if most := int64(n+lookers) * (3 + got.seconds/60); got.checks > most {
			t.Errorf("%d users were looked up, want at most %d", got.checks, most)
		}
		if most := changes*100 + got.batches*100; got.sent > most {
			t.Errorf("nodes sent %d bytes, want at most %d", got.sent, most)
		}
	}
	for _, figure := range []struct {
		name          string
		single, twice int64
	}{
		{"entries", spent[0].entries, spent[1].entries},
		{"bytes of nodes", spent[0].sent, spent[1].sent},
		{"events", spent[0].events, spent[1].events},
		{"bytes of sessions", spent[0].bytes, spent[1].bytes},
	} {
		if figure.twice > figure.single*22/10 {
			t.Errorf("%s: %d for n, %d for 2n", figure.name, figure.single, figure.twice)
		}
	}
	// A quadratic cost would be four times as much. Below, the time is too short to say anything.
	if users >= 10_000 && spent[1].cpu > 3*spent[0].cpu {
		t.Errorf("CPU: %v for n, %v for 2n", spent[0].cpu, spent[1].cpu)
	}
}
