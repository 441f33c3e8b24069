package redis_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/sharedtest"
)

func TestTickets_carry_what_they_stand_for(t *testing.T) {
	sharedtest.Carried(t, patiently(t, service.Database(t)))
}

func TestTickets_end_in_time_on_all_nodes(t *testing.T) {
	t.Parallel()
	sharedtest.EndInTime(t, patiently(t, service.Database(t)))
}

// While a connection is there, Redis keeps the ticket for two resume windows. After it has left,
// the ticket ends with one window.
func TestTickets_end_with_the_resume_window(t *testing.T) {
	t.Parallel()
	const resume = 4 * time.Second
	a := start(t, service.Database(t), time.Minute, resume)
	name := a.Redeemed(t, a)
	a.Bind(t.Context(), name, sharedtest.Ann(), "s1")
	left := time.Now()
	a.Leave(name, "s1")
	wait.Until(t, "the ticket has ended", func() bool { return !a.Accepts(t, name, "s1") })
	if took := time.Since(left); took < resume*9/10 {
		t.Errorf("it ended %v after the connection left, want %v", took, resume)
	}
}

func TestTickets_of_a_session_that_was_replaced_elsewhere(t *testing.T) {
	t.Parallel()
	sharedtest.Replaced(t, patiently(t, service.Database(t)))
}

// Without Redis a node cannot know whether a ticket was used. A ticket still resumes a session of
// this node. If Redis returns without data, the node stores that ticket again.
func TestTickets_without_Redis(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	a := start(t, server.URL(), time.Minute, time.Minute)
	b := start(t, server.URL(), time.Minute, 2*time.Second)
	fresh, bound := a.Issued(t), a.Redeemed(t, b)
	b.Bind(t.Context(), bound, sharedtest.Ann(), "s1")
	server.Kill(t)
	unavailable := func(what string, err error) {
		t.Helper()
		if tidemark.CodeOf(err) != tidemark.Unavailable ||
			!strings.Contains(tidemark.DetailOf(err), "try again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := a.Issue(t.Context(), sharedtest.Ann())
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
	if !b.Accepts(t, bound, "s1") {
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
	wait.Until(t, "the ticket is good everywhere again", func() bool {
		_, err := a.Redeem(t.Context(), bound, "s1")
		return err == nil
	})
	wait.Until(t, "so is one that was bound meanwhile", func() bool {
		_, err := a.Redeem(t.Context(), late, "s9")
		return err == nil
	})
	if a.Accepts(t, fresh, "") {
		t.Error("one that Redis forgot is accepted")
	}
	if a.Counters()["tickets_unavailable_total"] == 0 {
		t.Error("nothing was counted")
	}
}

// issueLate binds a ticket while Redis is away, as if it had been redeemed just before.
func issueLate(t *testing.T, n sharedtest.Node) string {
	t.Helper()
	const name = "REDEEMEDJUSTBEFORE"
	n.Bind(t.Context(), name, sharedtest.Ann(), "s9")
	return name
}

func TestTickets_number_is_bounded_for_each_user(t *testing.T) {
	t.Parallel()
	n := start(t, service.Database(t), time.Minute, time.Minute)
	for range auth.MaxUserTickets {
		n.Issued(t)
	}
	_, _, err := n.Issue(t.Context(), sharedtest.Ann())
	if tidemark.CodeOf(err) != tidemark.Exhausted {
		t.Errorf("one more: %v", err)
	}
	n.IssuedTo(t, auth.Ticket{User: "bob"})
}

// TestTickets_that_ended_make_room: the first may end before the last is issued.
func TestTickets_that_ended_make_room(t *testing.T) {
	t.Parallel()
	n := start(t, service.Database(t), time.Second, time.Minute)
	for range auth.MaxUserTickets {
		n.Issued(t)
	}
	wait.Until(t, "there is room again", func() bool {
		_, _, err := n.Issue(t.Context(), sharedtest.Ann())
		return err == nil
	})
}

func TestTickets_a_reader_of_Redis_cannot_use_them(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	n := start(t, server.URL(), time.Minute, time.Minute)
	name := n.Redeemed(t, n)
	n.Bind(t.Context(), name, sharedtest.Ann(), "s1")
	if all := contents(t, server); !strings.Contains(all, "ann") || strings.Contains(all, name) {
		t.Errorf("Redis holds %s", all)
	}
}

// frozen tests that a Redis that does not answer delays no caller for long.
func frozen(t *testing.T, server *service.Server, n sharedtest.Node) {
	t.Helper()
	server.RunEmpty(t)
	server.Freeze(t)
	defer server.Kill(t)
	var asking sync.WaitGroup
	began := time.Now()
	for range 50 {
		asking.Go(func() {
			_, _, err := n.Issue(t.Context(), sharedtest.Ann())
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
