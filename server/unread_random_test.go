package server_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// TestUnread_unread_exact_after_random_schedules lets users with a device on each of two nodes
// send, reply, read, mark as unread, leave and return at once, through the core. Storage takes
// random times. At rest the counts of both nodes are compared with counts over every message, and
// the marks with what was read. TIDEMARK_RANDOM_RUNS sets the number of runs.
func TestUnread_unread_exact_after_random_schedules(t *testing.T) {
	for seed := range randomRuns(t) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newUnreadRun(t, seed).run() })
		})
	}
}

// unreadRun is one random run.
type unreadRun struct {
	*cluster
	seed    uint64
	nodes   []*core
	users   []tidemark.UserID
	devices map[tidemark.UserID][]*client
	chats   []tidemark.ChatID

	mu   sync.Mutex
	dice *rand.Rand
	// read has the sequences up to which each user has certainly read.
	read map[storage.StateKey]tidemark.Sequence
}

func newUnreadRun(t *testing.T, seed uint64) *unreadRun {
	r := &unreadRun{
		cluster: newCluster(t), seed: seed, users: []tidemark.UserID{"alice", "bob", "carol"},
		devices: map[tidemark.UserID][]*client{}, read: map[storage.StateKey]tidemark.Sequence{},
		dice: rand.New(rand.NewPCG(seed, 7)), //nolint:gosec // The seed decides.
	}
	r.nodes = []*core{r.node("a"), r.node("b")}
	r.chats = []tidemark.ChatID{
		r.nodes[0].chat("group", r.users...), r.nodes[1].chat("direct", "bob", "alice"),
	}
	for _, user := range r.users {
		for _, n := range r.nodes {
			r.devices[user] = append(r.devices[user], n.open(user))
		}
	}
	r.before.set(func(string) error {
		time.Sleep(time.Duration(r.roll(20)) * time.Millisecond)
		return nil
	})
	return r
}

func (r *unreadRun) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dice.IntN(n)
}

// run makes phases of up to four concurrent steps, and compares after each.
func (r *unreadRun) run() {
	step := uint64(0)
	for range 10 {
		var phase sync.WaitGroup
		for range 1 + r.roll(4) {
			step++
			no := step
			dice := rand.New(rand.NewPCG(r.seed, 100+no)) //nolint:gosec // The seed decides.
			phase.Go(func() { r.step(dice, no) })
		}
		phase.Wait()
		// A reply that did not join the watermark is tried again after a second.
		settle()
		settle()
		r.compare()
	}
}

// step makes one step of a user's device. Refusals are ignored: a user may have left.
func (r *unreadRun) step(dice *rand.Rand, no uint64) {
	n := dice.IntN(len(r.nodes))
	node, user := r.nodes[n], r.users[dice.IntN(len(r.users))]
	chat := r.chats[dice.IntN(len(r.chats))]
	head := r.head(chat)
	some := func() tidemark.Sequence { return tidemark.Sequence(dice.Uint64N(uint64(head) + 1)) }
	switch kind := dice.IntN(12); {
	case kind < 5:
		r.send(node, user, chat, some(), dice, no)
	case kind < 7:
		acked, read := max(1, some()), some()
		results, err := node.Acknowledge(r.ctx, user,
			[]server.Ack{{Chat: chat, Acked: acked, Read: read}})
		if err == nil && results[0].Err == nil {
			r.hasRead(user, chat, read)
		}
	case kind < 9:
		device := r.devices[user][n]
		for range 1 + dice.IntN(2) { // out of order
			device.Ack(server.Ack{Chat: chat, Acked: some(), Read: some()})
		}
	case kind < 10:
		_, _ = node.MarkUnread(r.ctx, user, chat, some())
	case kind < 11:
		_ = node.RemoveMember(r.ctx, server.Caller{User: user, Backend: true}, r.chats[0], user)
	default:
		_, _ = node.AddMembers(r.ctx, server.Caller{User: r.users[dice.IntN(3)], Backend: true},
			r.chats[0], []tidemark.UserID{user}, "")
	}
}

// send sends a message of any kind, which may say what its sender had been shown.
func (r *unreadRun) send(
	node *core, user tidemark.UserID, chat tidemark.ChatID, seen tidemark.Sequence,
	dice *rand.Rand, no uint64,
) {
	d := tidemark.Draft{
		ChatID: chat, ClientMessageID: fmt.Sprint(no), Content: "x", ByBackend: true,
	}
	switch dice.IntN(8) {
	case 0:
		d.Kind = tidemark.KindSystem
	case 1:
		d.Kind = tidemark.KindControl
	}
	d.Mentions.All = dice.IntN(5) == 0
	if dice.IntN(2) == 0 {
		d.Seen = tidemark.SeenThrough(seen)
	}
	if _, err := node.Send(r.ctx, user, d); err == nil && d.Seen.Stated {
		r.hasRead(user, chat, seen)
	}
}

func (r *unreadRun) hasRead(user tidemark.UserID, chat tidemark.ChatID, n tidemark.Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := storage.StateKey{User: user, Chat: chat}
	r.read[key] = max(r.read[key], n)
}

// compare compares the totals and lists of both nodes with counts over every message.
func (r *unreadRun) compare() {
	r.t.Helper()
	for _, user := range r.users {
		var total storage.UnreadTotal
		counts := map[tidemark.ChatID]storage.Unread{}
		for _, chat := range r.chats {
			if count, member := r.count(user, chat); member {
				counts[chat] = count
				total.Add(count)
			}
		}
		for _, n := range r.nodes {
			got, err := n.Unread(r.ctx, user)
			if err != nil || got != total {
				r.t.Fatalf("%s at %s: got %+v, %v, want %+v", user, n.node, got, err, total)
			}
			page, err := n.Chats(r.ctx, user, 10, "")
			if err != nil || len(page.Chats) != len(counts) {
				r.t.Fatalf("%s at %s: got %+v, %v, want %+v", user, n.node, page, err, counts)
			}
			for _, chat := range page.Chats {
				if chat.Unread != counts[chat.ID] {
					r.t.Fatalf("%s at %s: got %+v unread in %s, want %+v", user, n.node,
						chat.Unread, chat.ID, counts[chat.ID])
				}
			}
		}
	}
}

// count counts a chat's unread messages by a look at every message.
func (r *unreadRun) count(
	user tidemark.UserID, chat tidemark.ChatID,
) (u storage.Unread, isMember bool) {
	rosters, err := r.raw.Rosters(r.ctx, []tidemark.ChatID{chat})
	if err != nil {
		r.t.Fatal(err)
	}
	member, isMember := rosters[0].Member(user)
	state := r.state(user, chat)
	if least := r.read[storage.StateKey{User: user, Chat: chat}]; state.Read < least {
		r.t.Fatalf("%s has read %d of %s, want at least %d", user, state.Read, chat, least)
	}
	after := state.Read
	if state.UnreadFrom > 0 {
		after = state.UnreadFrom - 1
	}
	pages, err := r.raw.Ranges(r.ctx, []storage.Range{{Chat: chat, After: after, Limit: 1_000}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range pages[0] {
		if m.Kind == tidemark.KindMessage && m.SenderID != user &&
			member.Intervals.Contains(m.Sequence) {
			u.Messages++
			if m.Mentions.All {
				u.Mentions++
			}
		}
	}
	return u, isMember
}
