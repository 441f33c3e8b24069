package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestRandom_nothing_is_lost is the model of docs/internals/delivery.md §4 on the real core: devices on several nodes open, read, acknowledge, lose connections, resume, close and open
// again, while others send; storage and bus are slow at random, so that everything overlaps with everything; publications are late, doubled or fail; storage
// fails now and then; a node may die. In the end every session has what is owed to it (delivery.md §3): every message that no device of its user has acknowledged, and,
// unless a node died, every message appended after it opened. The runs are short: a later message of a chat makes up for most of what is lost.
// There are TIDEMARK_RANDOM_RUNS of them, 150 if it is not set.
func TestRandom_nothing_is_lost(t *testing.T) {
	runs := uint64(150)
	if given := os.Getenv("TIDEMARK_RANDOM_RUNS"); given != "" {
		var err error
		if runs, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("TIDEMARK_RANDOM_RUNS: %v", err)
		}
	}
	for seed := range runs {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRandom(t, seed) })
		})
	}
}

// mayhem is one random run.
type mayhem struct {
	*world
	mu    sync.Mutex
	dice  *rand.Rand
	calm  atomic.Bool
	died  atomic.Bool
	nodes []*mortal
	chats []tidemark.ChatID
}

// mortal is a node that may die: from then on it reaches nothing, and nothing reaches it.
type mortal struct {
	*core
	m    *mayhem
	id   tidemark.NodeID
	dead atomic.Bool
}

func (m *mayhem) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dice.IntN(n)
}

// linger lets a little time pass, so that others come in between.
func (m *mayhem) linger() {
	if !m.calm.Load() && m.roll(3) == 0 {
		time.Sleep(time.Duration(m.roll(40)) * time.Millisecond)
	}
}

func (m *mayhem) node(id tidemark.NodeID) *mortal {
	m.t.Helper()
	n := &mortal{m: m, id: id}
	m.mu.Lock()
	m.nodes = append(m.nodes, n)
	m.mu.Unlock()
	store := storagetest.Fault(m.raw)
	store.Before = func(string) error {
		m.linger()
		if n.dead.Load() || !m.calm.Load() && m.roll(100) == 0 {
			return errDown
		}
		return nil
	}
	store.After = func(string) error {
		m.linger()
		if n.dead.Load() || !m.calm.Load() && m.roll(100) == 0 {
			return errDown // a lost reply
		}
		return nil
	}
	reg := mortalRegistry{unreachable{m.reg, &n.dead}}
	s, err := server.New(server.Config{
		Storage:      store,
		Registry:     reg,
		Nodes:        reg,
		Bus:          mortalBus{n},
		Node:         id,
		Logger:       quiet(),
		TailMessages: 3,
	})
	if err == nil {
		err = s.Start(m.ctx)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	n.core = &core{Server: s, t: m.t, ctx: m.ctx}
	return n
}

type mortalRegistry struct{ unreachable }

func (r mortalRegistry) Leave(ctx context.Context, n registry.Node) error {
	if r.down.Load() {
		return errDown
	}
	return r.Registry.Leave(ctx, n)
}

type mortalBus struct{ n *mortal }

func (b mortalBus) Subscribe(
	ctx context.Context, n registry.Node, s bus.Subscriber,
) (func(), error) {
	return b.n.m.bus.Subscribe(ctx, n, bus.Subscriber{Receive: func(e bus.Event) {
		if !b.n.dead.Load() {
			s.Receive(e)
		}
	}})
}

func (b mortalBus) Publish(ctx context.Context, publications []bus.Publication) []error {
	return oneByOne(publications,
		func(to registry.Node, e bus.Event) error { return b.publish(ctx, to, e) })
}

func (b mortalBus) publish(ctx context.Context, to registry.Node, e bus.Event) error {
	m := b.n.m
	m.linger()
	if b.n.dead.Load() || m.dead(to.ID) {
		return errDown
	}
	if m.calm.Load() {
		return bus.PublishOne(ctx, m.bus, to, e)
	}
	switch m.roll(10) {
	case 0:
		return errDown
	case 1: // arrived, and nobody knows
		_ = bus.PublishOne(ctx, m.bus, to, e)
		return errDown
	case 2, 3: // late, or late and again; if it finds nobody then, the sender is not told: only its target's death makes up for that
		again := m.roll(2)
		after := time.Duration(m.roll(300)) * time.Millisecond
		go func() { // the bubble waits for it
			for range again + 1 {
				time.Sleep(after)
				_ = bus.PublishOne(ctx, m.bus, to, e)
			}
		}()
		return nil
	default:
		return bus.PublishOne(ctx, m.bus, to, e)
	}
}

func (m *mayhem) dead(id tidemark.NodeID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes {
		if n.id == id {
			return n.dead.Load()
		}
	}
	return true
}

// gadget is a device of a user. It holds what it received in its present session.
type gadget struct {
	m      *mayhem
	user   tidemark.UserID
	id     tidemark.DeviceID
	at     *mortal
	conn   *server.Connection
	last   uint64
	opened map[tidemark.ChatID]tidemark.Sequence
	got    map[tidemark.ChatID]map[tidemark.Sequence]bool
	top    map[tidemark.ChatID]tidemark.Sequence
}

func (g *gadget) open() {
	n := g.m.nodes[g.m.roll(len(g.m.nodes))]
	if n.dead.Load() {
		return
	}
	conn, err := n.Open(g.m.ctx, openRequest{User: g.user, Device: g.id})
	if err != nil {
		return
	}
	g.conn, g.at, g.last = conn, n, 0
	g.opened, g.top = map[tidemark.ChatID]tidemark.Sequence{}, map[tidemark.ChatID]tidemark.Sequence{}
	g.got = map[tidemark.ChatID]map[tidemark.Sequence]bool{}
	for _, chat := range g.m.chats {
		g.opened[chat], g.got[chat] = g.m.head(chat), map[tidemark.Sequence]bool{}
	}
}

// resume comes back at the same node after a cut.
func (g *gadget) resume() {
	conn, err := g.at.Open(g.m.ctx, openRequest{
		User:    g.user,
		Device:  g.id,
		Session: g.conn.Session(),
		After:   g.last,
		Poll:    true,
	})
	if err != nil {
		g.conn = nil
		return
	}
	g.conn = conn
}

// read takes a page; lost says that it never reaches the device. It reports whether there was one.
func (g *gadget) read(lost bool) bool {
	before := map[tidemark.ChatID]tidemark.Sequence{}
	for _, chat := range g.m.chats {
		before[chat] = g.m.state(g.user, chat).Acked
	}
	events, err := g.conn.Next(g.m.ctx, nil, false)
	if err != nil {
		g.conn = nil
		return false
	}
	if lost {
		g.conn.Detach()
		g.resume()
		return true
	}
	for _, e := range events {
		g.last = e.ID
		l := line(g.m.t, e)
		if l == "reset unknown_position" {
			g.m.t.Errorf("%s %s: reset of a position that it was sent", g.user, g.id)
		}
		if !strings.HasPrefix(l, "message ") {
			continue
		}
		var chat tidemark.ChatID
		var n tidemark.Sequence
		if _, err := fmt.Sscanf(l, "message %s %d", &chat, &n); err != nil {
			g.m.t.Error(err)
		}
		// It may go back, but never leave one out: neither above what it had, nor above what the user had acknowledged.
		if n > g.top[chat]+1 &&
			(g.top[chat] != 0 || n > max(before[chat], g.m.state(g.user, chat).Acked)+1) {
			g.m.t.Errorf("%s %s: %s %d follows %d, and %d is acknowledged",
				g.user, g.id, chat, n, g.top[chat], before[chat])
		}
		g.top[chat] = n
		g.got[chat][n] = true
	}
	return len(events) > 0
}

// act does one thing.
func (g *gadget) act() {
	if g.conn != nil && g.at.dead.Load() {
		g.conn = nil
	}
	if g.conn == nil {
		g.open()
		return
	}
	switch g.m.roll(16) {
	case 0:
		_ = g.conn.Close(g.m.ctx)
		g.conn = nil
	case 1:
		g.conn.Detach()
		time.Sleep(time.Duration(g.m.roll(80)) * time.Second)
		g.resume()
	case 2:
		g.read(true)
	case 3:
		g.conn = nil // it loses its memory, and nobody is told
	case 4, 5, 6, 7:
		for _, chat := range g.m.chats {
			if top := g.top[chat]; top > 0 && g.m.roll(2) == 0 {
				g.conn.Ack(server.Ack{Chat: chat, Acked: top})
			}
		}
	default:
		g.read(false)
	}
}

// check says what the session is owed and has not received.
func (g *gadget) check() {
	for _, chat := range g.m.chats {
		if _, member := g.m.member(chat, g.user); !member {
			continue
		}
		acked, head := g.m.state(g.user, chat).Acked, g.m.head(chat)
		from := acked
		if !g.m.died.Load() {
			from = min(from, g.opened[chat])
		}
		for n := from + 1; n <= head; n++ {
			if !g.got[chat][n] && (n > acked || n > g.opened[chat]) {
				g.m.t.Errorf("%s %s at %s has not received %s %d: head %d, acknowledged %d, head "+
					"at its open %d, rows %v; it has had up to %d",
					g.user, g.id, g.at.id, chat, n, head, acked, g.opened[chat], g.m.rows(g.user), g.top[chat])
			}
		}
	}
}

func runRandom(t *testing.T, seed uint64) {
	m := &mayhem{world: newWorld(t), dice: rand.New(rand.NewPCG(seed, 7))}
	m.calm.Store(true)
	for _, id := range []tidemark.NodeID{"a", "b", "c"} {
		m.node(id)
	}
	m.chats = []tidemark.ChatID{
		m.nodes[0].chat("ab", "alice", "bob"), m.nodes[0].chat("abc", "alice", "bob", "carol"),
	}
	gadgets := []*gadget{
		{m: m, user: "bob", id: "phone"}, {m: m, user: "bob", id: "tablet"},
		{m: m, user: "carol", id: "phone"},
	}
	m.calm.Store(false)
	crash := seed%2 == 1
	var all sync.WaitGroup
	for _, g := range gadgets {
		all.Go(func() {
			for range 16 {
				g.act()
				time.Sleep(time.Duration(m.roll(400)) * time.Millisecond)
			}
		})
	}
	for sender := range 2 {
		all.Go(func() {
			for i := range 4 {
				n := m.nodes[m.roll(3)]
				for range 20 { // until it is confirmed, at any node
					_, err := n.sendKey("alice",
						m.chats[m.roll(2)], fmt.Sprintf("s%d-%d", sender, i), "x")
					if err == nil {
						break
					}
					n = m.nodes[m.roll(3)]
				}
				time.Sleep(time.Duration(m.roll(1500)) * time.Millisecond)
			}
		})
	}
	all.Go(func() { // acknowledgements from elsewhere
		for range 3 {
			time.Sleep(time.Duration(m.roll(3000)) * time.Millisecond)
			chat := m.chats[m.roll(2)]
			if head := m.head(chat); head > 1 {
				_, _ = m.nodes[0].Acknowledge(m.ctx, "bob", []server.Ack{
					{Chat: chat, Acked: 1 + head/2},
				})
			}
		}
	})
	if crash {
		all.Go(func() {
			time.Sleep(time.Duration(m.roll(6000)) * time.Millisecond)
			m.died.Store(true)
			m.nodes[2].dead.Store(true)
		})
	}
	all.Wait()
	m.calm.Store(true)
	time.Sleep(5 * time.Minute) // leases of the dead end, sessions compare
	for _, g := range gadgets {
		if g.conn != nil && g.at.dead.Load() {
			g.conn = nil
		}
		for range 300 {
			if g.conn == nil {
				g.open()
			} else if !g.read(false) && g.conn != nil {
				break
			}
		}
		g.check()
	}
	for _, n := range m.nodes {
		if err := n.Stop(m.ctx); err != nil && !n.dead.Load() {
			t.Errorf("Stop of %s: %v", n.id, err)
		}
	}
	m.checkAfterStop()
}

// checkAfterStop opens once more, at a new node: everybody gets what he has not acknowledged.
func (m *mayhem) checkAfterStop() {
	last := m.node("z")
	for _, user := range []tidemark.UserID{"alice", "bob", "carol"} {
		c := last.open(user)
		got := map[string]bool{}
		for _, l := range c.drain() {
			got[l] = true
		}
		for _, chat := range m.chats {
			if _, member := m.member(chat, user); !member {
				continue
			}
			for n := m.state(user, chat).Acked + 1; n <= m.head(chat); n++ {
				if !got[fmt.Sprintf("message %s %d", chat, n)] {
					m.t.Errorf("after the stop, %s does not get %s %d: rows %v, acknowledged %d",
						user, chat, n, m.rows(user), m.state(user, chat).Acked)
				}
			}
		}
	}
	if err := last.Stop(m.ctx); err != nil {
		m.t.Error(err)
	}
}

func (m *mayhem) member(chat tidemark.ChatID, user tidemark.UserID) (tidemark.Member, bool) {
	rosters, err := m.raw.Rosters(m.ctx, []tidemark.ChatID{chat})
	if err != nil {
		m.t.Fatal(err)
	}
	return rosters[0].Member(user)
}
