// Package registrytest is the suite that every registry passes. A test of a registry is one line:
//
//	registrytest.Run(t, synctest.Test, func(t *testing.T) registrytest.Registry {
//		return memory.New()
//	})
package registrytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Registry has both roles of a registry.
type Registry interface {
	registry.Registry
	registry.Nodes
}

// TTL is the life of the leases that expire in the suite.
const TTL = time.Second

const long = time.Hour

// Run runs the suite. open returns a new registry for each test. in runs each test: with
// synctest.Test, leases expire at once. It is nil for a registry with a clock of its own; the suite
// then waits.
func Run(t *testing.T, in func(*testing.T, func(*testing.T)), open func(t *testing.T) Registry) {
	if in == nil {
		in = func(t *testing.T, test func(*testing.T)) { test(t) }
	}
	tests := map[string]func(*suite){
		"Lookup returns unexpired leases in the order asked": lookup,
		"Open replaces the lease of the same device":         replace,
		"Open consumes the proof":                            consume,
		"Close leaves a proof for the last lease only":       lastOut,
		"Close without a proof leaves none":                  noProof,
		"Close of another lease does nothing":                conditional,
		"Close with a proof of another epoch proves nothing": stale,
		"Refresh prolongs, and names what is lost":           refresh,
		"Leases expire":                              expire,
		"a node without a lease is refused":          unjoined,
		"Join over a life that did not leave raises": rejoin,
		"Join after an end that was noticed raises":  late,
		"Open of a session that moves":               move,
		"Open with Continue":                         continues,
		"Refresh names the nodes":                    nodes,
		"Leave raises nothing, and its leases do":    leave,
		"an expired node raises, and voids proofs":   crash,
		"concurrent closes leave one proof or none":  concurrent,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) { test(&suite{T: t, ctx: t.Context(), r: open(t)}) })
		})
	}
}

// suite is the state of one test.
type suite struct {
	*testing.T
	ctx context.Context
	r   Registry
}

func (s *suite) join(id tidemark.NodeID, boot string, ttl time.Duration) registry.Node {
	s.Helper()
	n := registry.Node{ID: id, Boot: boot}
	if err := s.r.Join(s.ctx, n, ttl); err != nil {
		s.Fatalf("Join(%s, %s): %v", id, boot, err)
	}
	return n
}

func (s *suite) epoch() registry.Epoch {
	s.Helper()
	e, err := s.r.Epoch(s.ctx)
	if err != nil {
		s.Fatalf("Epoch: %v", err)
	}
	return e
}

// runOut waits until leases of TTL have expired.
func (s *suite) runOut() {
	select {
	case <-time.After(TTL + TTL/2):
	case <-s.ctx.Done():
	}
}

func lease(
	n registry.Node, user tidemark.UserID, device tidemark.DeviceID, session tidemark.SessionID,
) registry.Lease {
	return registry.Lease{User: user, Device: device, Node: n.ID, Boot: n.Boot, Session: session}
}

// open opens a lease, and compares the result.
func (s *suite) open(l registry.Lease, ttl time.Duration, proof *registry.Epoch, others bool) {
	s.Helper()
	got, err := s.r.Open(s.ctx, registry.LeaseRequest{Lease: l, TTL: ttl})
	if err != nil {
		s.Fatalf("Open(%v): %v", l, err)
	}
	if got.Proof != nil && *got.Proof != s.epoch() {
		got.Proof = nil // a proof of another epoch is worth nothing
	}
	got.Leases = 0
	if diff := cmp.Diff(registry.Opened{Proof: proof, Others: others}, got); diff != "" {
		s.Errorf("Open(%v) (-want +got):\n%s", l, diff)
	}
}

func (s *suite) close(l registry.Lease, proof *registry.Epoch) {
	s.Helper()
	if err := s.r.Close(s.ctx, l, proof); err != nil {
		s.Fatalf("Close(%v): %v", l, err)
	}
}

func (s *suite) wantLeases(user tidemark.UserID, want ...registry.Lease) {
	s.Helper()
	got, err := s.r.Lookup(s.ctx, []tidemark.UserID{user})
	if err != nil || len(got) != 1 {
		s.Fatalf("Lookup: %v, %v", got, err)
	}
	set := func(leases []registry.Lease) map[registry.Lease]bool {
		m := map[registry.Lease]bool{}
		for _, l := range leases {
			m[l] = true
		}
		return m
	}
	if diff := cmp.Diff(set(want), set(got[0])); diff != "" || len(got[0]) != len(want) {
		s.Errorf("leases of %s (-want +got):\n%s", user, diff)
	}
}

func lookup(s *suite) {
	a, b := s.join("a", "1", long), s.join("b", "1", long)
	alice, bob := lease(a, "alice", "phone", "s1"), lease(a, "bob", "phone", "s2")
	bob2 := lease(b, "bob", "tablet", "s3")
	s.open(alice, long, nil, false)
	s.open(bob, long, nil, false)
	s.open(bob2, long, nil, true)
	got, err := s.r.Lookup(s.ctx, []tidemark.UserID{"bob", "nobody", "alice", "bob"})
	if err != nil || len(got) != 4 {
		s.Fatalf("Lookup: %v, %v", got, err)
	}
	if len(got[0]) != 2 || len(got[1]) != 0 || len(got[2]) != 1 || len(got[3]) != 2 ||
		got[2][0] != alice {
		s.Errorf("Lookup of bob, nobody, alice, bob: %v", got)
	}
	if got, err := s.r.Lookup(s.ctx, nil); err != nil || len(got) != 0 {
		s.Errorf("Lookup of nobody at all: %v, %v", got, err)
	}
}

func replace(s *suite) {
	a, b := s.join("a", "1", long), s.join("b", "1", long)
	older, newer := lease(a, "bob", "phone", "s1"), lease(b, "bob", "phone", "s2")
	s.open(older, long, nil, false)
	s.open(newer, long, nil, true)
	s.wantLeases("bob", newer)
}

func consume(s *suite) {
	a := s.join("a", "1", long)
	l, e := lease(a, "bob", "phone", "s1"), s.epoch()
	s.open(l, long, nil, false)
	s.close(l, &e)
	s.wantLeases("bob")
	s.open(l, long, &e, false)
	s.close(l, nil)
	s.open(l, long, nil, false)
}

func lastOut(s *suite) {
	a := s.join("a", "1", long)
	phone, tablet, e := lease(a, "bob", "phone", "s1"), lease(a, "bob", "tablet", "s2"), s.epoch()
	s.open(phone, long, nil, false)
	s.open(tablet, long, nil, true)
	s.close(phone, &e)
	s.open(phone, long, nil, true)
	s.close(tablet, &e)
	s.close(phone, &e)
	s.open(tablet, long, &e, false)
}

func noProof(s *suite) {
	a := s.join("a", "1", long)
	l := lease(a, "bob", "phone", "s1")
	s.open(l, long, nil, false)
	s.close(l, nil)
	s.open(l, long, nil, false)
}

func conditional(s *suite) {
	a, b := s.join("a", "1", long), s.join("b", "1", long)
	e := s.epoch()
	newer := lease(a, "bob", "phone", "s2")
	s.open(newer, long, nil, false)
	for _, other := range []registry.Lease{
		lease(a, "bob", "phone", "s1"), lease(a, "bob", "tablet", "s2"),
		lease(b, "bob", "phone", "s2"), lease(a, "alice", "phone", "s2"),
	} {
		s.close(other, &e)
	}
	s.wantLeases("bob", newer)
	s.open(lease(a, "bob", "tablet", "s3"), long, nil, true)
	s.open(lease(a, "alice", "phone", "s4"), long, nil, false)
}

func stale(s *suite) {
	a := s.join("a", "1", long)
	e := s.epoch()
	other := e
	other.Incarnation += "x"
	l := lease(a, "bob", "phone", "s1")
	s.open(l, long, nil, false)
	s.close(l, &other)
	s.open(l, long, nil, false)
	s.join("b", "1", long)
	s.join("b", "2", long) // raises
	s.close(l, &e)
	s.open(l, long, nil, false)
}

func refresh(s *suite) {
	a := s.join("a", "1", long)
	kept, gone := lease(a, "bob", "phone", "s1"), lease(a, "bob", "tablet", "s2")
	never := lease(a, "carol", "phone", "s3")
	s.open(gone, long, nil, false)
	s.close(gone, nil)
	s.open(kept, TTL, nil, false)
	got, err := s.r.Refresh(s.ctx, a, long, []registry.Lease{kept, gone, never}, long)
	if err != nil {
		s.Fatal(err)
	}
	want := registry.Refreshed{
		Lost: []registry.Lease{gone, never}, Epoch: s.epoch(), Nodes: []registry.Node{a},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("Refresh (-want +got):\n%s", diff)
	}
	s.runOut()
	s.wantLeases("bob", kept)
	newer := lease(a, "bob", "phone", "s4")
	s.open(newer, long, nil, true)
	got, err = s.r.Refresh(s.ctx, a, long, []registry.Lease{kept, newer}, long)
	if err != nil || len(got.Lost) != 0 || !slices.Equal(got.Replaced, []registry.Lease{kept}) {
		s.Errorf("Refresh after a newer session of the device: %v, %v, want %v replaced",
			got, err, kept)
	}
	s.wantLeases("bob", newer)
}

func expire(s *suite) {
	a := s.join("a", "1", long)
	l := lease(a, "bob", "phone", "s1")
	s.open(l, long, nil, false)
	s.wantLeases("bob", l)
	stays := lease(a, "carol", "tablet", "s3")
	s.open(stays, long, nil, false)
	s.open(lease(a, "carol", "phone", "s2"), TTL, nil, true)
	s.open(l, TTL, nil, false)
	s.runOut()
	s.wantLeases("bob")
	s.wantLeases("carol", stays)
	got, err := s.r.Refresh(s.ctx, a, long, []registry.Lease{l}, long)
	if err != nil || len(got.Lost) != 1 {
		s.Errorf("Refresh of an expired lease: %v, %v, want it lost", got, err)
	}
	e := s.epoch()
	s.close(l, &e) // too late for a proof
	s.open(l, long, nil, false)
}

func unjoined(s *suite) {
	a := s.join("a", "1", long)
	l, e := lease(a, "bob", "phone", "s1"), s.epoch()
	s.open(l, long, nil, false)
	if _, err := s.r.Refresh(s.ctx, a, TTL, nil, long); err != nil {
		s.Fatal(err)
	}
	s.runOut()
	stranger := registry.Node{ID: "b", Boot: "1"}
	earlier := s.join("c", "2", long)
	earlier.Boot = "1"
	for what, n := range map[string]registry.Node{
		"an expired node": a, "a node that never joined": stranger, "an earlier life": earlier,
	} {
		q := registry.LeaseRequest{Lease: lease(n, "carol", "phone", "s2"), TTL: long}
		if _, err := s.r.Open(s.ctx, q); tidemark.CodeOf(err) != tidemark.NotFound {
			s.Errorf("Open by %s: %v, want %s", what, err, tidemark.NotFound)
		}
		_, err := s.r.Refresh(s.ctx, n, long, nil, long)
		if tidemark.CodeOf(err) != tidemark.NotFound {
			s.Errorf("Refresh by %s: %v, want %s", what, err, tidemark.NotFound)
		}
	}
	if err := s.r.Close(s.ctx, l, &e); tidemark.CodeOf(err) != tidemark.NotFound {
		s.Errorf("Close by an expired node: %v, want %s", err, tidemark.NotFound)
	}
	s.wantLeases("carol")
}

func rejoin(s *suite) {
	before := s.epoch()
	a := s.join("a", "1", long)
	if e := s.epoch(); e != before {
		s.Errorf("a first Join changed the epoch from %v to %v", before, e)
	}
	s.join("a", "1", long)
	again := s.epoch()
	if again == before {
		s.Error("the same life joined again, and the epoch is the same")
	}
	s.join("a", "2", long)
	if e := s.epoch(); e == again {
		s.Error("another life joined over one that did not leave, and the epoch is the same")
	}
	if err := s.r.Leave(s.ctx, a); err != nil {
		s.Errorf("Leave of an earlier life: %v", err)
	}
	l := lease(registry.Node{ID: "a", Boot: "2"}, "bob", "phone", "s")
	if _, err := s.r.Open(s.ctx, registry.LeaseRequest{Lease: l, TTL: long}); err != nil {
		s.Errorf("an earlier life's Leave ended the present one: %v", err)
	}
}

// late: a node may have stored messages without publishing them after its lease expired, until it
// joins again.
func late(s *suite) {
	a := s.join("a", "1", TTL)
	s.runOut()
	noticed := s.epoch()
	if again := s.epoch(); again != noticed {
		s.Errorf("the same end raised twice: %v, then %v", noticed, again)
	}
	s.join("a", a.Boot, long)
	if e := s.epoch(); e == noticed {
		s.Error("a node joined again after its lease had run out and that had been noticed, and " +
			"the epoch is the same")
	}
}

// move: a session that moves is not another session, and had a lease at any time.
func move(s *suite) {
	a, b := s.join("a", "1", long), s.join("b", "1", long)
	at := func(n registry.Node) registry.Lease { return lease(n, "bob", "phone", "s1") }
	opened := func(what string, l registry.Lease, ttl time.Duration, want registry.Opened) {
		s.Helper()
		got, err := s.r.Open(s.ctx, registry.LeaseRequest{Lease: l, TTL: ttl})
		if err != nil || got != want {
			s.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	opened("a first lease", at(a), long, registry.Opened{Leases: 1})
	opened("the same again", at(a), long, registry.Opened{Leases: 1})
	opened("the session on another node", at(b), long, registry.Opened{Previous: a, Leases: 1})
	s.wantLeases("bob", at(b))
	old := []registry.Lease{at(a)}
	got, err := s.r.Refresh(s.ctx, a, long, old, long)
	if err != nil || len(got.Lost)+len(got.Replaced) != 0 || !slices.Equal(got.Elsewhere, old) {
		s.Errorf("Refresh of a session that moves: %+v, %v, want it elsewhere, neither lost nor "+
			"replaced", got, err)
	}
	opened("another device",
		lease(a, "bob", "tablet", "s2"), long, registry.Opened{Others: true, Leases: 2})
	opened("the session back", at(a), long, registry.Opened{Others: true, Previous: b, Leases: 2})
	opened("another session of the device",
		lease(a, "bob", "phone", "s3"), TTL, registry.Opened{Others: true, Leases: 2})
	s.runOut()
	opened("a lease that has run out did not move",
		lease(a, "bob", "phone", "s3"), long, registry.Opened{Others: true, Leases: 2})
}

// continues: Continue takes a lease only in place of another node's lease of the same session.
// Otherwise no lease and no proof changes.
func continues(s *suite) {
	a, b := s.join("a", "1", long), s.join("b", "1", long)
	mine, other := lease(a, "bob", "phone", "s1"), lease(b, "bob", "phone", "s1")
	ask := registry.LeaseRequest{Lease: mine, TTL: long, Continue: true}
	for _, tt := range []struct {
		name string
		held registry.Lease
		ttl  time.Duration
		want registry.Opened
	}{
		{"no lease", registry.Lease{}, 0, registry.Opened{}},
		{"its own lease", mine, long, registry.Opened{}},
		{"a newer session of the device", lease(b, "bob", "phone", "s2"), long, registry.Opened{}},
		{"the session on another device", lease(b, "bob", "tablet", "s1"), long, registry.Opened{}},
		{"an expired lease", other, TTL, registry.Opened{}},
		{"another node's lease", other, long, registry.Opened{Previous: b, Leases: 1}},
	} {
		if tt.ttl > 0 {
			s.open(tt.held, tt.ttl, nil, false)
		}
		left := []registry.Lease{tt.held}
		switch {
		case tt.want.Leases > 0:
			left[0] = mine
		case tt.ttl == TTL:
			s.runOut()
			left = nil
		case tt.ttl == 0:
			left = nil
		}
		if got, err := s.r.Open(s.ctx, ask); err != nil || got != tt.want {
			s.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
		s.wantLeases("bob", left...)
		for _, l := range left {
			s.close(l, nil)
		}
	}
	e := s.epoch()
	s.open(mine, long, nil, false)
	s.close(mine, &e)
	if got, err := s.r.Open(s.ctx, ask); err != nil || got != (registry.Opened{}) {
		s.Errorf("with a proof and no lease: %+v, %v, want nothing", got, err)
	}
	s.open(mine, long, &e, false)
}

func nodes(s *suite) {
	a, left := s.join("a", "1", long), s.join("c", "1", long)
	s.join("b", "1", TTL)
	s.runOut()
	if err := s.r.Leave(s.ctx, left); err != nil {
		s.Fatal(err)
	}
	d := s.join("d", "1", long)
	got, err := s.r.Refresh(s.ctx, a, long, nil, long)
	if err != nil {
		s.Fatal(err)
	}
	want := map[registry.Node]bool{a: true, d: true}
	if len(got.Nodes) != 2 || !want[got.Nodes[0]] || !want[got.Nodes[1]] {
		s.Errorf("nodes %v, want %v and %v", got.Nodes, a, d)
	}
}

func leave(s *suite) {
	a, b := s.join("a", "1", long), s.join("b", "1", long)
	before := s.epoch()
	closed, left := lease(a, "bob", "phone", "s1"), lease(b, "carol", "phone", "s2")
	s.open(closed, long, nil, false)
	s.close(closed, &before)
	if err := s.r.Leave(s.ctx, a); err != nil {
		s.Fatal(err)
	}
	if e := s.epoch(); e != before {
		s.Errorf("a clean Leave changed the epoch from %v to %v", before, e)
	}
	s.join("a", "2", long)
	if e := s.epoch(); e != before {
		s.Errorf("Join after a clean Leave changed the epoch from %v to %v", before, e)
	}
	s.open(left, long, nil, false)
	if err := s.r.Leave(s.ctx, b); err != nil {
		s.Fatal(err)
	}
	if e := s.epoch(); e == before {
		s.Error("a node left with a session's lease, and the epoch is the same")
	}
	s.wantLeases("carol")
}

func crash(s *suite) {
	a := s.join("a", "1", long)
	before := s.epoch()
	l := lease(a, "bob", "phone", "s1")
	s.open(l, long, nil, false)
	s.close(l, &before)
	s.join("dead", "1", TTL)
	s.runOut()
	if e := s.epoch(); e == before {
		s.Error("a node died, and the epoch is the same")
	}
	got, err := s.r.Open(s.ctx, registry.LeaseRequest{Lease: l, TTL: long})
	if err != nil || (got.Proof != nil && *got.Proof == s.epoch()) {
		s.Errorf("Open after a node died: %+v, %v, want no proof of the present epoch", got, err)
	}
	refreshed, err := s.r.Refresh(s.ctx, a, long, []registry.Lease{l}, long)
	if err != nil || refreshed.Epoch != s.epoch() {
		s.Errorf("Refresh: %v, %v, want the present epoch", refreshed, err)
	}
}

func concurrent(s *suite) {
	a, e := s.join("a", "1", long), s.epoch()
	const devices = 16
	var all sync.WaitGroup
	for i := range devices {
		all.Go(func() {
			l := lease(a, "bob",
				tidemark.DeviceID(fmt.Sprint(i)), tidemark.SessionID(fmt.Sprint(i)))
			for range 50 {
				_, err := s.r.Open(s.ctx, registry.LeaseRequest{Lease: l, TTL: long})
				if err != nil {
					s.Error(err)
				}
				if err := s.r.Close(s.ctx, l, &e); err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.wantLeases("bob")
	// The last close left the proof.
	s.open(lease(a, "bob", "phone", "s"), long, &e, false)
}
