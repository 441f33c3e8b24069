package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestRandom_nothing_is_lost runs the model of docs/internals/delivery.md §4 on the real core.
//
// Devices on several nodes open, read, acknowledge, lose connections, resume and close, while
// others send. Storage and the bus take random times, so that steps overlap. Publications arrive
// late, twice or not at all, storage fails at times, and a node may die.
//
// At the end every session must have every message that its user has not acknowledged (delivery.md
// §3). Unless a node died, it must also have every message appended after it opened. Runs are
// short, because a later message of a chat repairs most losses.
//
// TIDEMARK_RANDOM_RUNS sets the number of runs, 150 by default.
func TestRandom_nothing_is_lost(t *testing.T) {
	for seed := range randomRuns(t) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRandom(t, seed, false) })
		})
	}
}

// TestR_LATER_nothing_is_lost is TestRandom_nothing_is_lost with nodes that mostly leave the
// hand-over to others. Those read what is stored, some seconds late, and call any node.
func TestR_LATER_nothing_is_lost(t *testing.T) {
	for seed := range randomRuns(t) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRandom(t, seed, true) })
		})
	}
}

// randomRuns returns TIDEMARK_RANDOM_RUNS, or 150.
func randomRuns(t *testing.T) uint64 {
	t.Helper()
	given := os.Getenv("TIDEMARK_RANDOM_RUNS")
	if given == "" {
		return 150
	}
	runs, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("TIDEMARK_RANDOM_RUNS: %v", err)
	}
	return runs
}

// coreRun is one random run.
type coreRun struct {
	*cluster
	mu    sync.Mutex
	dice  *rand.Rand
	calm  atomic.Bool
	died  atomic.Bool
	nodes []*crashingNode
	chats []tidemark.ChatID
	// later says that nodes may leave the hand-over to a worker.
	later bool
}

// crashingNode is a node that may die. A dead node reaches nothing, and nothing reaches it.
type crashingNode struct {
	*core
	run  *coreRun
	id   tidemark.NodeID
	dead atomic.Bool
}

func (r *coreRun) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dice.IntN(n)
}

// linger pauses for a short time at random, so that other goroutines run in between.
func (r *coreRun) linger() {
	if !r.calm.Load() && r.roll(3) == 0 {
		time.Sleep(time.Duration(r.roll(40)) * time.Millisecond)
	}
}

func (r *coreRun) node(id tidemark.NodeID) *crashingNode {
	r.t.Helper()
	n := &crashingNode{run: r, id: id}
	r.mu.Lock()
	r.nodes = append(r.nodes, n)
	r.mu.Unlock()
	store := storagetest.Fault(r.raw)
	store.Before = func(string) error {
		r.linger()
		if n.dead.Load() || !r.calm.Load() && r.roll(100) == 0 {
			return errDown
		}
		return nil
	}
	store.After = func(string) error {
		r.linger()
		if n.dead.Load() || !r.calm.Load() && r.roll(100) == 0 {
			return errDown // the reply is lost
		}
		return nil
	}
	reg := crashingRegistry{unreachable{r.reg, &n.dead}}
	s, err := server.New(server.Config{
		Storage:      store,
		Registry:     reg,
		Nodes:        reg,
		Bus:          crashingBus{n},
		Node:         id,
		Logger:       quiet(),
		TailMessages: 3,
		Workers:      r,
	})
	if err == nil {
		err = s.Start(r.ctx)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	n.core = &core{Server: s, t: r.t, ctx: r.ctx}
	return n
}

// crashingRegistry fails all calls of a dead node.
type crashingRegistry struct{ unreachable }

func (r crashingRegistry) Leave(ctx context.Context, n registry.Node) error {
	if r.down.Load() {
		return errDown
	}
	return r.Registry.Leave(ctx, n)
}

// crashingBus carries nothing from or to a dead node. While the run is not calm, it fails and
// delays publications at random.
type crashingBus struct{ n *crashingNode }

func (b crashingBus) Subscribe(
	ctx context.Context, n registry.Node, s bus.Subscriber,
) (func(), error) {
	return b.n.run.bus.Subscribe(ctx, n, bus.Subscriber{Receive: func(e bus.Event) {
		if !b.n.dead.Load() {
			s.Receive(e)
		}
	}})
}

func (b crashingBus) Publish(ctx context.Context, publications []bus.Publication) []error {
	return oneByOne(publications,
		func(to registry.Node, e bus.Event) error { return b.publish(ctx, to, e) })
}

func (b crashingBus) publish(ctx context.Context, to registry.Node, e bus.Event) error {
	r := b.n.run
	r.linger()
	if b.n.dead.Load() || r.dead(to.ID) {
		return errDown
	}
	if r.calm.Load() {
		return bus.PublishOne(ctx, r.bus, to, e)
	}
	switch r.roll(10) {
	case 0:
		return errDown
	case 1: // it arrives, but the publisher gets an error
		_ = bus.PublishOne(ctx, r.bus, to, e)
		return errDown
	case 2, 3:
		// It arrives late, perhaps twice, although the publisher got nil. If it then finds no
		// session, no sender knows: only the death of its target repairs that.
		again := r.roll(2)
		after := time.Duration(r.roll(300)) * time.Millisecond
		go func() { // the bubble waits for it
			for range again + 1 {
				time.Sleep(after)
				_ = bus.PublishOne(ctx, r.bus, to, e)
			}
		}()
		return nil
	default:
		return bus.PublishOne(ctx, r.bus, to, e)
	}
}

func (r *coreRun) dead(id tidemark.NodeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		if n.id == id {
			return n.dead.Load()
		}
	}
	return true
}

// randomDevice is a user's device, with what it received in its current session.
type randomDevice struct {
	run    *coreRun
	user   tidemark.UserID
	id     tidemark.DeviceID
	at     *crashingNode
	conn   *server.Connection
	last   uint64
	opened map[tidemark.ChatID]tidemark.Sequence
	got    map[tidemark.ChatID]map[tidemark.Sequence]bool
	top    map[tidemark.ChatID]tidemark.Sequence
}

func (d *randomDevice) open() {
	n := d.run.nodes[d.run.roll(len(d.run.nodes))]
	if n.dead.Load() {
		return
	}
	conn, err := n.Open(d.run.ctx, openRequest{User: d.user, Device: d.id})
	if err != nil {
		return
	}
	d.conn, d.at, d.last = conn, n, 0
	d.opened = map[tidemark.ChatID]tidemark.Sequence{}
	d.top = map[tidemark.ChatID]tidemark.Sequence{}
	d.got = map[tidemark.ChatID]map[tidemark.Sequence]bool{}
	for _, chat := range d.run.chats {
		d.opened[chat], d.got[chat] = d.run.head(chat), map[tidemark.Sequence]bool{}
	}
}

// resume resumes the session on the same node after a cut.
func (d *randomDevice) resume() {
	conn, err := d.at.Open(d.run.ctx, openRequest{
		User:    d.user,
		Device:  d.id,
		Session: d.conn.Session(),
		After:   d.last,
		Poll:    true,
	})
	if err != nil {
		d.conn = nil
		return
	}
	d.conn = conn
}

// read reads a page and reports whether there was one. If lost is set, the page does not reach the
// device.
func (d *randomDevice) read(lost bool) bool {
	before := map[tidemark.ChatID]tidemark.Sequence{}
	for _, chat := range d.run.chats {
		before[chat] = d.run.state(d.user, chat).Acked
	}
	events, err := d.conn.Next(d.run.ctx, nil, false)
	if err != nil {
		d.conn = nil
		return false
	}
	if lost {
		d.conn.Detach()
		d.resume()
		return true
	}
	for _, e := range events {
		d.last = e.ID
		l := line(d.run.t, e)
		if l == "reset unknown_position" {
			d.run.t.Errorf("%s %s: got a reset of a position that it was sent", d.user, d.id)
		}
		if !strings.HasPrefix(l, "message ") {
			continue
		}
		var chat tidemark.ChatID
		var n tidemark.Sequence
		if _, err := fmt.Sscanf(l, "message %s %d", &chat, &n); err != nil {
			d.run.t.Error(err)
		}
		// A session may rewind, but must not skip a message. Its first one follows what the user
		// had acknowledged, or is below.
		if n > d.top[chat]+1 &&
			(d.top[chat] != 0 || n > max(before[chat], d.run.state(d.user, chat).Acked)+1) {
			d.run.t.Errorf("%s %s: %s %d follows %d, while %d is acknowledged",
				d.user, d.id, chat, n, d.top[chat], before[chat])
		}
		d.top[chat] = n
		d.got[chat][n] = true
	}
	return len(events) > 0
}

// act performs one random action.
func (d *randomDevice) act() {
	if d.conn != nil && d.at.dead.Load() {
		d.conn = nil
	}
	if d.conn == nil {
		d.open()
		return
	}
	switch d.run.roll(16) {
	case 0:
		_ = d.conn.Close(d.run.ctx)
		d.conn = nil
	case 1:
		d.conn.Detach()
		time.Sleep(time.Duration(d.run.roll(80)) * time.Second)
		d.resume()
	case 2:
		d.read(true)
	case 3:
		d.conn = nil // the device loses its state and does not say goodbye
	case 4, 5, 6, 7:
		for _, chat := range d.run.chats {
			if top := d.top[chat]; top > 0 && d.run.roll(2) == 0 {
				d.conn.Ack(server.Ack{Chat: chat, Acked: top})
			}
		}
	default:
		d.read(false)
	}
}

// check reports the messages that the session must have received and did not.
func (d *randomDevice) check() {
	for _, chat := range d.run.chats {
		if _, member := d.run.member(chat, d.user); !member {
			continue
		}
		acked, head := d.run.state(d.user, chat).Acked, d.run.head(chat)
		from := acked
		if !d.run.died.Load() {
			from = min(from, d.opened[chat])
		}
		for n := from + 1; n <= head; n++ {
			if !d.got[chat][n] && (n > acked || n > d.opened[chat]) {
				d.run.t.Errorf("%s %s at %s has not received %s %d: head %d, acknowledged %d, "+
					"head "+
					"at its open %d, rows %v; its last is %d", d.user, d.id, d.at.id, chat, n,
					head, acked, d.opened[chat], d.run.rows(d.user), d.top[chat])
			}
		}
	}
}

// HandOver implements server.Workers.
func (r *coreRun) HandOver() bool { return r.later && r.roll(10) > 0 }

// work hands over what is stored until stop is closed, and then the rest. It is late, begins
// anywhere, and repeats what failed, as the workers of a queue do.
func (r *coreRun) work(stop <-chan struct{}) {
	handed := map[tidemark.ChatID]tidemark.Sequence{}
	for last := false; ; {
		select {
		case <-stop:
			last = true
		default:
		}
		for _, chat := range r.chats {
			pages, err := r.raw.Ranges(r.ctx,
				[]storage.Range{{Chat: chat, After: handed[chat], Limit: 1 + r.roll(3)}})
			if err != nil {
				r.t.Error(err)
				return
			}
			for i, err := range r.nodes[r.roll(len(r.nodes))].HandOver(r.ctx, pages[0]) {
				if err != nil {
					break
				}
				handed[chat] = pages[0][i].Sequence
			}
			if again := r.roll(10) == 0; again && !last {
				handed[chat] -= min(handed[chat], 2) // A crash repeats what is not committed.
			}
		}
		behind := func(chat tidemark.ChatID) bool { return handed[chat] < r.head(chat) }
		if last && !slices.ContainsFunc(r.chats, behind) {
			return
		}
		time.Sleep(time.Duration(r.roll(4000)) * time.Millisecond)
	}
}

func runRandom(t *testing.T, seed uint64, later bool) {
	r := &coreRun{cluster: newCluster(t), dice: rand.New(rand.NewPCG(seed, 7)), later: later}
	r.calm.Store(true)
	for _, id := range []tidemark.NodeID{"a", "b", "c"} {
		r.node(id)
	}
	r.chats = []tidemark.ChatID{
		r.nodes[0].chat("ab", "alice", "bob"), r.nodes[0].chat("abc", "alice", "bob", "carol"),
	}
	devices := []*randomDevice{
		{run: r, user: "bob", id: "phone"}, {run: r, user: "bob", id: "tablet"},
		{run: r, user: "carol", id: "phone"},
	}
	r.calm.Store(false)
	crash := seed%2 == 1
	var all sync.WaitGroup
	for _, d := range devices {
		all.Go(func() {
			for range 16 {
				d.act()
				time.Sleep(time.Duration(r.roll(400)) * time.Millisecond)
			}
		})
	}
	for sender := range 2 {
		all.Go(func() {
			for i := range 4 {
				n := r.nodes[r.roll(3)]
				for range 20 { // until it is confirmed, by any node
					_, err := n.sendKey("alice",
						r.chats[r.roll(2)], fmt.Sprintf("s%d-%d", sender, i), "x")
					if err == nil {
						break
					}
					n = r.nodes[r.roll(3)]
				}
				time.Sleep(time.Duration(r.roll(1500)) * time.Millisecond)
			}
		})
	}
	all.Go(func() { // acknowledgements by the API
		for range 3 {
			time.Sleep(time.Duration(r.roll(3000)) * time.Millisecond)
			chat := r.chats[r.roll(2)]
			if head := r.head(chat); head > 1 {
				_, _ = r.nodes[0].Acknowledge(r.ctx, "bob", []server.Ack{
					{Chat: chat, Acked: 1 + head/2},
				})
			}
		}
	})
	if crash {
		all.Go(func() {
			time.Sleep(time.Duration(r.roll(6000)) * time.Millisecond)
			r.died.Store(true)
			r.nodes[2].dead.Store(true)
		})
	}
	stop, worked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(worked)
		if later {
			r.work(stop)
		}
	}()
	all.Wait()
	close(stop)
	<-worked
	r.calm.Store(true)
	time.Sleep(5 * time.Minute) // leases of the dead node expire, and sessions reconcile
	for _, d := range devices {
		if d.conn != nil && d.at.dead.Load() {
			d.conn = nil
		}
		for range 300 {
			if d.conn == nil {
				d.open()
			} else if !d.read(false) && d.conn != nil {
				break
			}
		}
		d.check()
	}
	for _, n := range r.nodes {
		if err := n.Stop(r.ctx); err != nil && !n.dead.Load() {
			t.Errorf("Stop of %s: %v", n.id, err)
		}
	}
	r.checkAfterStop()
}

// checkAfterStop opens a session for each user on a new node. Each must get what they have not
// acknowledged.
func (r *coreRun) checkAfterStop() {
	last := r.node("z")
	for _, user := range []tidemark.UserID{"alice", "bob", "carol"} {
		c := last.open(user)
		got := map[string]bool{}
		for _, l := range c.drain() {
			got[l] = true
		}
		for _, chat := range r.chats {
			if _, member := r.member(chat, user); !member {
				continue
			}
			for n := r.state(user, chat).Acked + 1; n <= r.head(chat); n++ {
				if !got[fmt.Sprintf("message %s %d", chat, n)] {
					r.t.Errorf("after the stop, %s does not get %s %d: rows %v, acknowledged %d",
						user, chat, n, r.rows(user), r.state(user, chat).Acked)
				}
			}
		}
	}
	if err := last.Stop(r.ctx); err != nil {
		r.t.Error(err)
	}
}

func (r *coreRun) member(chat tidemark.ChatID, user tidemark.UserID) (tidemark.Member, bool) {
	rosters, err := r.raw.Rosters(r.ctx, []tidemark.ChatID{chat})
	if err != nil {
		r.t.Fatal(err)
	}
	return rosters[0].Member(user)
}
