package postgres_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	store "github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// migrated returns an empty database.
func migrated(t *testing.T) string {
	t.Helper()
	url := service.Shared(t).Database(t)
	if err := store.Migrate(t.Context(), url, store.Up); err != nil {
		t.Fatal(err)
	}
	return url
}

// connect returns connections of a node to a database.
func connect(t *testing.T, url string) store.Pool {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := s.Peers(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return pool
}

// node holds the tickets of a node, which runs until the test ends or kill.
type node struct {
	*postgres.Tickets
	kill func()
}

func start(t *testing.T, url string, ttl, resume time.Duration) node {
	t.Helper()
	n := node{Tickets: postgres.NewTickets(postgres.TicketsConfig{
		Pool: connect(t, url), TTL: ttl, ResumeWindow: resume,
	})}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	n.kill = func() { cancel(); running.Wait() }
	t.Cleanup(n.kill)
	return n
}

// until calls f until it reports true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	wait.Until(t, what, f)
}

// stays calls f repeatedly for d, and fails the test if it returns false.
func stays(t *testing.T, what string, d time.Duration, f func() bool) {
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

func issue(t *testing.T, n node, of auth.Ticket) string {
	t.Helper()
	name, ends, err := n.Issue(t.Context(), of)
	if err != nil || len(name) < 20 || !ends.After(time.Now()) {
		t.Fatalf("%q until %v, %v", name, ends, err)
	}
	return name
}

func ann() auth.Ticket { return auth.Ticket{User: "ann"} }

// accepts reports whether a node accepts a ticket of ann for a session. Any error but
// Unauthenticated fails the test.
func accepts(t *testing.T, n node, name string, session tidemark.SessionID) bool {
	t.Helper()
	got, err := n.Redeem(t.Context(), name, session)
	if err != nil && tidemark.CodeOf(err) != tidemark.Unauthenticated ||
		err == nil && got.User != "ann" {
		t.Fatalf("%+v, %v", got, err)
	}
	return err == nil
}

func TestTickets_open_one_session_on_any_node_once(t *testing.T) {
	url := migrated(t)
	var nodes []node
	for range 3 {
		nodes = append(nodes, start(t, url, time.Minute, time.Minute))
	}
	a, b, c := nodes[0], nodes[1], nodes[2]
	for range 10 {
		name := issue(t, a, ann())
		if got, err := c.Look(t.Context(), name); err != nil || got.User != "ann" {
			t.Fatalf("a look at it elsewhere: %+v, %v", got, err)
		}
		var accepted atomic.Int32
		var racing sync.WaitGroup
		for i := range 9 {
			racing.Go(func() {
				if accepts(t, nodes[i%3], name, "") {
					accepted.Add(1)
				}
			})
		}
		racing.Wait()
		if accepted.Load() != 1 {
			t.Fatalf("it was accepted %d times", accepted.Load())
		}
		b.Bind(t.Context(), name, ann(), "s1")
		if accepts(t, a, name, "") || accepts(t, c, name, "s2") {
			t.Error("it opens a second session")
		}
		for _, n := range nodes {
			if !accepts(t, n, name, "s1") {
				t.Error("it does not resume its session")
			}
		}
		c.Bind(t.Context(), name, ann(), "s3") // which replaced s1
		if accepts(t, a, name, "s1") || !accepts(t, a, name, "s3") {
			t.Error("it resumes its first session, or not the one that replaced it")
		}
	}
	if accepts(t, a, "NOSUCHTICKET", "") || accepts(t, a, "", "s1") {
		t.Error("an unknown ticket is accepted")
	}
}

func TestTickets_carry_what_they_stand_for(t *testing.T) {
	url := migrated(t)
	a := start(t, url, time.Minute, time.Minute)
	b := start(t, url, time.Minute, time.Minute)
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

func TestTickets_end_in_time_on_all_nodes(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	const ttl, resume = 3 * time.Second, 2500 * time.Millisecond
	a, b := start(t, url, ttl, resume), start(t, url, ttl, resume)
	unused, used := issue(t, a, ann()), issue(t, a, ann())
	moved, orphan := issue(t, a, ann()), issue(t, a, ann())
	for _, name := range []string{used, moved, orphan} {
		if !accepts(t, b, name, "") {
			t.Fatal("a fresh ticket is refused")
		}
	}
	b.Bind(t.Context(), used, ann(), "s1")
	b.Bind(t.Context(), moved, ann(), "s1")
	b.Leave(moved, "s1")
	a.Bind(t.Context(), moved, ann(), "s1")
	dead := start(t, url, ttl, resume)
	dead.Bind(t.Context(), orphan, ann(), "s1")
	dead.kill()

	until(t, "the unused ticket has ended", func() bool {
		_, err := b.Look(t.Context(), unused)
		return tidemark.CodeOf(err) == tidemark.Unauthenticated
	})
	until(t, "the ticket of a killed node has ended",
		func() bool { return !accepts(t, a, orphan, "s1") })
	stays(t, "good while a connection is there",
		3*resume, func() bool { return accepts(t, a, used, "s1") && accepts(t, b, moved, "s1") })
	if a.Counters()["tickets"] != 1 || b.Counters()["tickets"] != 1 {
		t.Errorf("they hold %d and %d tickets, want one each",
			a.Counters()["tickets"], b.Counters()["tickets"])
	}
	left := time.Now()
	b.Leave(used, "s1")
	until(t, "the ticket has ended", func() bool { return !accepts(t, a, used, "s1") })
	if took := time.Since(left); took < resume*9/10 {
		t.Errorf("it ended %v after the connection left, want %v", took, resume)
	}
	until(t, "it is forgotten", func() bool { return b.Counters()["tickets"] == 0 })
}

// A node whose session was replaced does not take the ticket back when it prolongs its own tickets.
func TestTickets_of_a_session_that_was_replaced_elsewhere(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	const resume = time.Second
	a, b := start(t, url, time.Minute, resume), start(t, url, time.Minute, resume)
	name := issue(t, a, ann())
	if !accepts(t, a, name, "") {
		t.Fatal("a fresh ticket is refused")
	}
	a.Bind(t.Context(), name, ann(), "s1")
	b.Bind(t.Context(), name, ann(), "s2")
	stays(t, "good for the newer session",
		5*resume, func() bool { return accepts(t, a, name, "s2") && !accepts(t, b, name, "s1") })
	until(t, "the node of the older session has forgotten the ticket",
		func() bool { return a.Counters()["tickets"] == 0 })
}

// Without the database a node cannot know whether a ticket was used. If it crashed, the tickets of
// sessions are stored again, and the others are gone.
func TestTickets_without_the_database(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	url := server.Database(t)
	if err := store.Migrate(t.Context(), url, store.Up); err != nil {
		t.Fatal(err)
	}
	a, b := start(t, url, time.Minute, time.Minute), start(t, url, time.Minute, 2*time.Second)
	fresh, bound := issue(t, a, ann()), issue(t, a, ann())
	if !accepts(t, b, bound, "") {
		t.Fatal("a fresh ticket is refused")
	}
	b.Bind(t.Context(), bound, ann(), "s1")
	server.Kill(t)
	_, err := a.Redeem(t.Context(), fresh, "")
	if tidemark.CodeOf(err) != tidemark.Unavailable ||
		!strings.Contains(tidemark.DetailOf(err), "try again") {
		t.Errorf("without the database: %v", err)
	}
	if !accepts(t, b, bound, "s1") {
		t.Error("the session that is here is not resumed")
	}
	server.Run(t)
	until(t, "the ticket of a session is good everywhere again", func() bool {
		_, err := a.Redeem(t.Context(), bound, "s1")
		return err == nil
	})
	if accepts(t, a, fresh, "") {
		t.Error("one that the database forgot is accepted")
	}
}

func TestTickets_a_reader_of_the_database_cannot_use_them(t *testing.T) {
	url := migrated(t)
	n := start(t, url, time.Minute, time.Minute)
	name := issue(t, n, ann())
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	var row string
	if err := c.QueryRow(t.Context(), "SELECT t::text FROM tickets AS t").Scan(&row); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(row, "ann") || strings.Contains(row, name) {
		t.Errorf("the database holds %s", row)
	}
}

func TestRates_have_one_bucket_of_each_user(t *testing.T) {
	url := migrated(t)
	a, b := postgres.NewRates(connect(t, url)), postgres.NewRates(connect(t, url))
	slow := limit.Bucket{Name: "sends", Rate: limit.Rate{PerSecond: 0.001, Burst: 100}}
	for i, tt := range []struct {
		node *postgres.Rates
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

// TestRates_fill: a bucket fills by its rate, and is removed when it is full. So are tickets.
func TestRates_fill(t *testing.T) {
	t.Parallel()
	pool := connect(t, migrated(t))
	r := postgres.NewRates(pool)
	quick := limit.Bucket{Name: "sends", Rate: limit.Rate{PerSecond: 100, Burst: 50}}
	take := func(n int) float64 {
		t.Helper()
		left, err := r.Take(t.Context(), quick, []limit.Taken{{User: "ann", N: n}})
		if err != nil {
			t.Fatal(err)
		}
		return left[0]
	}
	began := time.Now()
	first := take(60)
	until(t, "it fills", func() bool { return take(0) >= 10 })
	if took := time.Since(began); first > -9.9 || took < 190*time.Millisecond {
		t.Errorf("from %v to 10 in %v, at 100 a second", first, took)
	}
	take(1_000)
	rows := func() (n int) {
		t.Helper()
		err := pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM rates) + "+
			"(SELECT count(*) FROM tickets)").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	postgres.SweepOnce(t.Context(), pool)
	if n := rows(); n != 1 {
		t.Errorf("%d buckets are left, want the one that is not full", n)
	}
	take(-1_000) // gives the 1,000 back
	n := start(t, pool.Config().ConnString(), time.Millisecond, time.Minute)
	if _, _, err := n.Issue(t.Context(), ann()); err != nil {
		t.Fatal(err)
	}
	until(t, "both are removed", func() bool {
		postgres.SweepOnce(t.Context(), pool)
		return rows() == 0
	})
}
