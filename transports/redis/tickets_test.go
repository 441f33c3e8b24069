package redis_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
)

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

func oneSession(t *testing.T, url string) {
	t.Helper()
	var nodes []node
	for range 3 {
		nodes = append(nodes, startOn(t, patient(t, url), time.Minute, time.Minute))
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
	url := service.Database(t)
	a := startOn(t, patient(t, url), time.Minute, time.Minute)
	b := startOn(t, patient(t, url), time.Minute, time.Minute)
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
	url := service.Database(t)
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

// While a connection is there, Redis keeps the ticket for two resume windows. After it has left,
// the ticket ends with one window.
func TestTickets_end_with_the_resume_window(t *testing.T) {
	t.Parallel()
	const resume = 4 * time.Second
	a := start(t, service.Database(t), time.Minute, resume)
	name := issue(t, a, ann())
	if !accepts(t, a, name, "") {
		t.Fatal("a fresh ticket is refused")
	}
	a.Bind(t.Context(), name, ann(), "s1")
	left := time.Now()
	a.Leave(name, "s1")
	until(t, "the ticket has ended", func() bool { return !accepts(t, a, name, "s1") })
	if took := time.Since(left); took < resume*9/10 || took > resume*19/10 {
		t.Errorf("it ended %v after the connection left, want %v", took, resume)
	}
}

// A node whose session was replaced does not take the ticket back when it prolongs its own tickets.
func TestTickets_of_a_session_that_was_replaced_elsewhere(t *testing.T) {
	t.Parallel()
	url := service.Database(t)
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

// Without Redis a node cannot know whether a ticket was used. A ticket still resumes a session of
// this node. If Redis returns without data, the node stores that ticket again.
func TestTickets_without_Redis(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	a := start(t, server.URL(), time.Minute, time.Minute)
	b := start(t, server.URL(), time.Minute, 2*time.Second)
	fresh, bound := issue(t, a, ann()), issue(t, a, ann())
	if !accepts(t, b, bound, "") {
		t.Fatal("a fresh ticket is refused")
	}
	b.Bind(t.Context(), bound, ann(), "s1")
	server.Kill(t)
	unavailable := func(what string, err error) {
		t.Helper()
		if tidemark.CodeOf(err) != tidemark.Unavailable ||
			!strings.Contains(tidemark.DetailOf(err), "try again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := a.Issue(t.Context(), ann())
	unavailable("a new one", err)
	_, err = a.Redeem(t.Context(), fresh, "")
	unavailable("one that this node made", err)
	_, err = a.Redeem(t.Context(), bound, "s1")
	unavailable("one of a session of another node", err)
	_, err = b.Redeem(t.Context(), bound, "s2")
	unavailable("one of a session of this node, for another session", err)
	_, err = b.Redeem(t.Context(), bound, "")
	unavailable("one of a session of this node, for a new session", err)
	_, err = a.Look(t.Context(), fresh)
	unavailable("a look at one", err)
	if !accepts(t, b, bound, "s1") {
		t.Error("the session that is here is not resumed")
	}
	if got, err := b.Look(t.Context(), bound); err != nil || got.User != "ann" {
		t.Errorf("a look at one of a session of this node: %+v, %v", got, err)
	}
	// Without a failure, this node would write to Redis again after half an hour.
	c := start(t, server.URL(), time.Minute, time.Hour)
	late := issueLate(t, c)
	frozen(t, server, a)

	server.RunEmpty(t)
	until(t, "the ticket is good everywhere again", func() bool {
		_, err := a.Redeem(t.Context(), bound, "s1")
		return err == nil
	})
	until(t, "so is one that was bound meanwhile", func() bool {
		_, err := a.Redeem(t.Context(), late, "s9")
		return err == nil
	})
	if accepts(t, a, fresh, "") {
		t.Error("one that Redis forgot is accepted")
	}
	if a.Counters()["tickets_unavailable_total"] == 0 {
		t.Error("nothing was counted")
	}
}

// issueLate binds a ticket while Redis is away, as if it had been redeemed just before.
func issueLate(t *testing.T, n node) string {
	t.Helper()
	const name = "REDEEMEDJUSTBEFORE"
	n.Bind(t.Context(), name, ann(), "s9")
	return name
}

func TestTickets_number_is_bounded_for_each_user(t *testing.T) {
	t.Parallel()
	n := start(t, service.Database(t), time.Minute, time.Minute)
	for range auth.MaxUserTickets {
		issue(t, n, ann())
	}
	if _, _, err := n.Issue(t.Context(), ann()); tidemark.CodeOf(err) != tidemark.Exhausted {
		t.Errorf("one more: %v", err)
	}
	issue(t, n, auth.Ticket{User: "bob"})
}

// TestTickets_that_ended_make_room: the first may end before the last is issued.
func TestTickets_that_ended_make_room(t *testing.T) {
	t.Parallel()
	n := start(t, service.Database(t), time.Second, time.Minute)
	for range auth.MaxUserTickets {
		issue(t, n, ann())
	}
	until(t, "there is room again", func() bool {
		_, _, err := n.Issue(t.Context(), ann())
		return err == nil
	})
}

func TestTickets_a_reader_of_Redis_cannot_use_them(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	n := start(t, server.URL(), time.Minute, time.Minute)
	name := issue(t, n, ann())
	if !accepts(t, n, name, "") {
		t.Fatal("a fresh ticket is refused")
	}
	n.Bind(t.Context(), name, ann(), "s1")
	if all := contents(t, server); !strings.Contains(all, "ann") || strings.Contains(all, name) {
		t.Errorf("Redis holds %s", all)
	}
}

// frozen tests that a Redis that does not answer delays no caller for long.
func frozen(t *testing.T, server *service.Server, n node) {
	t.Helper()
	server.RunEmpty(t)
	server.Freeze(t)
	defer server.Kill(t)
	var asking sync.WaitGroup
	began := time.Now()
	for range 50 {
		asking.Go(func() {
			_, _, err := n.Issue(t.Context(), ann())
			if tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Errorf("from a Redis that does not answer: %v", err)
			}
		})
	}
	asking.Wait()
	if took := time.Since(began); took > wait.Hang {
		t.Errorf("50 callers got their errors after %v", took)
	}
}
