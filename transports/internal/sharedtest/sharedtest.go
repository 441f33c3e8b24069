// Package sharedtest tests what the nodes of a cluster share in front of the core: the tickets and
// the rate limits. Each kind of cluster runs it (transports/redis, transports/postgres).
package sharedtest

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Tickets are the tickets of a node.
type Tickets interface {
	auth.Tickets
	Run(ctx context.Context)
	Counters() map[string]int64
}

// New makes the tickets of a further node. Unused ones are valid for ttl, and those of a session
// for resume after its last connection.
type New func(ttl, resume time.Duration) Tickets

// Node holds the tickets of a node, which runs until the test ends or Kill.
type Node struct {
	Tickets
	Kill func()
}

// Start starts a node with these tickets.
func Start(t *testing.T, tickets Tickets) Node {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { tickets.Run(ctx) })
	n := Node{Tickets: tickets, Kill: func() { cancel(); running.Wait() }}
	t.Cleanup(n.Kill)
	return n
}

// Ann returns what a ticket of ann stands for.
func Ann() auth.Ticket { return auth.Ticket{User: "ann"} }

// Issued returns a new ticket of ann.
func (n Node) Issued(t *testing.T) string {
	t.Helper()
	return n.IssuedTo(t, Ann())
}

// IssuedTo returns a new ticket.
func (n Node) IssuedTo(t *testing.T, of auth.Ticket) string {
	t.Helper()
	name, ends, err := n.Issue(t.Context(), of)
	if err != nil || len(name) < 20 || !ends.After(time.Now()) {
		t.Fatalf("%q until %v, %v", name, ends, err)
	}
	return name
}

// Redeemed returns a new ticket of ann that a node has accepted.
func (n Node) Redeemed(t *testing.T, by Node) string {
	t.Helper()
	name := n.Issued(t)
	if !by.Accepts(t, name, "") {
		t.Fatal("a fresh ticket is refused")
	}
	return name
}

// Accepts reports whether the node accepts a ticket of ann for a session. Any error but
// Unauthenticated fails the test. With a session, Accepts asks again while the service does not
// answer.
func (n Node) Accepts(t *testing.T, name string, session tidemark.SessionID) bool {
	t.Helper()
	got, err := n.Redeem(t.Context(), name, session)
	for began := time.Now(); session != "" && tidemark.CodeOf(err) == tidemark.Unavailable &&
		time.Since(began) < wait.Hang; {
		got, err = n.Redeem(t.Context(), name, session)
	}
	if err != nil && tidemark.CodeOf(err) != tidemark.Unauthenticated ||
		err == nil && got.User != "ann" {
		t.Fatalf("%+v, %v", got, err)
	}
	return err == nil
}

// Stays calls f repeatedly for d, and fails the test if it returns false.
func Stays(t *testing.T, what string, d time.Duration, f func() bool) {
	t.Helper()
	deadline := time.After(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for f() {
		select {
		case <-deadline:
			return
		case <-tick.C:
		}
	}
	t.Fatalf("%s: no more", what)
}

// OneSession tests that a ticket opens one session, on any node, once.
func OneSession(t *testing.T, open New) {
	t.Helper()
	var nodes []Node
	for range 3 {
		nodes = append(nodes, Start(t, open(time.Minute, time.Minute)))
	}
	a, b, c := nodes[0], nodes[1], nodes[2]
	for range 10 {
		name := a.Issued(t)
		if got, err := c.Look(t.Context(), name); err != nil || got.User != "ann" {
			t.Fatalf("a look at it elsewhere: %+v, %v", got, err)
		}
		var accepted atomic.Int32
		var racing sync.WaitGroup
		for i := range 9 {
			racing.Go(func() {
				if nodes[i%3].Accepts(t, name, "") {
					accepted.Add(1)
				}
			})
		}
		racing.Wait()
		if accepted.Load() != 1 {
			t.Fatalf("it was accepted %d times", accepted.Load())
		}
		b.Bind(t.Context(), name, Ann(), "s1")
		if a.Accepts(t, name, "") || c.Accepts(t, name, "s2") {
			t.Error("it opens a second session")
		}
		for _, n := range nodes {
			if !n.Accepts(t, name, "s1") {
				t.Error("it does not resume its session")
			}
		}
		c.Bind(t.Context(), name, Ann(), "s3") // which replaced s1
		if a.Accepts(t, name, "s1") || !a.Accepts(t, name, "s3") {
			t.Error("it resumes its first session, or not the one that replaced it")
		}
	}
	if a.Accepts(t, "NOSUCHTICKET", "") || a.Accepts(t, "", "s1") {
		t.Error("an unknown ticket is accepted")
	}
}

// Carried tests that a ticket carries what it stands for, and ends no later.
func Carried(t *testing.T, open New) {
	t.Helper()
	a, b := Start(t, open(time.Minute, time.Minute)), Start(t, open(time.Minute, time.Minute))
	want := auth.Ticket{
		User:    "ann",
		Expires: time.Now().Add(20 * time.Second).Truncate(time.Millisecond),
		Key:     "0123",
	}
	name, ends, err := a.Issue(t.Context(), want)
	if err != nil || ends.After(want.Expires) {
		t.Fatalf("until %v, %v: that is after its credentials", ends, err)
	}
	if got, err := b.Redeem(t.Context(), name, ""); err != nil || got.User != want.User ||
		!got.Expires.Equal(want.Expires) || got.Key != want.Key {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// EndInTime tests that tickets end in time, and not before, on all nodes.
func EndInTime(t *testing.T, open New) {
	t.Helper()
	const ttl, resume = 3 * time.Second, 2500 * time.Millisecond
	a, b := Start(t, open(ttl, resume)), Start(t, open(ttl, resume))
	unused := a.Issued(t)
	used, moved, orphan := a.Redeemed(t, b), a.Redeemed(t, b), a.Redeemed(t, b)
	b.Bind(t.Context(), used, Ann(), "s1")
	b.Bind(t.Context(), moved, Ann(), "s1")
	b.Leave(moved, "s1")
	a.Bind(t.Context(), moved, Ann(), "s1")
	dead := Start(t, open(ttl, resume))
	dead.Bind(t.Context(), orphan, Ann(), "s1")
	dead.Kill()

	wait.Until(t, "the unused ticket has ended", func() bool {
		_, err := b.Look(t.Context(), unused)
		return tidemark.CodeOf(err) == tidemark.Unauthenticated
	})
	wait.Until(t, "the ticket of a killed node has ended",
		func() bool { return !a.Accepts(t, orphan, "s1") })
	Stays(t, "good while a connection is there",
		3*resume, func() bool { return a.Accepts(t, used, "s1") && b.Accepts(t, moved, "s1") })
	if a.Counters()["tickets"] != 1 || b.Counters()["tickets"] != 1 {
		t.Errorf("they hold %d and %d tickets, want one each",
			a.Counters()["tickets"], b.Counters()["tickets"])
	}
	left := time.Now()
	b.Leave(used, "s1")
	wait.Until(t, "the ticket has ended", func() bool { return !a.Accepts(t, used, "s1") })
	if took := time.Since(left); took < resume*9/10 {
		t.Errorf("it ended %v after the connection left, want %v", took, resume)
	}
	wait.Until(t, "it is forgotten", func() bool { return b.Counters()["tickets"] == 0 })
}

// Replaced tests that a node whose session was replaced does not take the ticket back when it
// prolongs its own tickets.
func Replaced(t *testing.T, open New) {
	t.Helper()
	const resume = 4 * time.Second
	a, b := Start(t, open(time.Minute, resume)), Start(t, open(time.Minute, resume))
	name := a.Redeemed(t, a)
	a.Bind(t.Context(), name, Ann(), "s1")
	b.Bind(t.Context(), name, Ann(), "s2")
	Stays(t, "good for the newer session",
		2*resume, func() bool { return a.Accepts(t, name, "s2") && !b.Accepts(t, name, "s1") })
	wait.Until(t, "the node of the older session has forgotten the ticket",
		func() bool { return a.Counters()["tickets"] == 0 })
}

// OneBucket tests that the nodes a and b share one bucket of each user.
func OneBucket(t *testing.T, a, b limit.Shared) {
	t.Helper()
	slow := limit.Bucket{Name: "sends", Rate: limit.Rate{PerSecond: 0.001, Burst: 100}}
	for i, tt := range []struct {
		node limit.Shared
		rate limit.Bucket
		take []limit.Taken
		want []float64
	}{
		{a, slow, []limit.Taken{{User: "ann", N: 30}, {User: "bob", N: 1}}, []float64{70, 99}},
		{b, slow, []limit.Taken{{User: "ann", N: 30}}, []float64{40}},
		// ann's bucket is below 0.
		{a, slow, []limit.Taken{{User: "cid", N: 5}, {User: "ann", N: 100}}, []float64{95, -60}},
		{b, limit.Bucket{Name: "calls", Rate: limit.Rate{PerSecond: 0.001, Burst: 1_000}},
			[]limit.Taken{{User: "ann", N: 30}}, []float64{970}},
		{b, slow, []limit.Taken{{User: "ann", N: 0}}, []float64{-60}},
	} {
		left, err := tt.node.Take(t.Context(), tt.rate, tt.take)
		if err != nil || len(left) != len(tt.want) {
			t.Fatalf("call %d: %v, %v", i, left, err)
		}
		for k := range left {
			if math.Abs(left[k]-tt.want[k]) > 0.1 {
				t.Errorf("call %d: %v are left, want %v", i, left, tt.want)
			}
		}
	}
}

// Fill tests that a bucket fills by its rate. take takes n tokens more from it, and returns what is
// left.
func Fill(t *testing.T, r limit.Shared) (take func(n int) float64) {
	t.Helper()
	quick := limit.Bucket{Name: "sends", Rate: limit.Rate{PerSecond: 100, Burst: 50}}
	take = func(n int) float64 {
		t.Helper()
		left, err := r.Take(t.Context(), quick, []limit.Taken{{User: "ann", N: n}})
		if err != nil {
			t.Fatal(err)
		}
		return left[0]
	}
	began := time.Now()
	first := take(60)
	wait.Until(t, "it fills", func() bool { return take(0) >= 10 })
	if took := time.Since(began); first > -9.9 || took < 190*time.Millisecond {
		t.Errorf("from %v to 10 in %v, at 100 a second", first, took)
	}
	return take
}
