package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// answering answers the questions of other nodes with a node's name, until the test ends.
func (c *core) answering() *core {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			q, err := c.NextQuestion(ctx)
			if err != nil {
				return
			}
			if err := c.AnswerQuestion(ctx, q, []byte(c.node)); err != nil {
				c.t.Log(err)
			}
		}
	})
	c.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// wantSurvey compares what all nodes say, as "id: figures" or "id: code".
func (c *core) wantSurvey(what string, want ...string) {
	c.t.Helper()
	var got []string
	for _, f := range c.Survey(c.ctx, []byte("own")) {
		said := string(f.Figures)
		if f.Err != nil {
			said = string(tidemark.CodeOf(f.Err))
		}
		got = append(got, fmt.Sprintf("%s: %s", f.ID, said))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Each node is in the answer once, ordered by id. One that does not answer says why, until its
// lease has ended.
func TestSurvey_stats_of_all_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		b := w.node("b").answering()
		b.wantSurvey("alone", "b: own")
		a, c := w.node("a").answering(), w.node("c")
		time.Sleep(10 * time.Second)
		began := time.Now()
		b.wantSurvey("c does not answer", "a: a", "b: own", "c: UNAVAILABLE")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s to give c up, want at most a second", took)
		}
		c.answering()
		time.Sleep(10 * time.Second)
		b.wantSurvey("three nodes", "a: a", "b: own", "c: c")
		a.wantSurvey("the same from another one", "a: own", "b: b", "c: c")
		w.ghost("d", 5*time.Second)
		time.Sleep(4 * time.Second)
		b.wantSurvey("d was killed", "a: a", "b: own", "c: c", "d: NOT_FOUND")
		time.Sleep(10 * time.Second)
		b.wantSurvey("its lease has ended", "a: a", "b: own", "c: c")
	})
}

// A bus may double and delay publications. A node counts once, and an answer to an earlier question
// does not count for a later one.
func TestSurvey_stats_of_all_nodes_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		w.node("b").answering()
		w.node("c")
		time.Sleep(10 * time.Second)
		self := a.registered()
		var held []bus.Event
		var mu sync.Mutex
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Report != nil {
				mu.Lock()
				held = append(held, e)
				mu.Unlock()
				_ = send() // the first of two
			}
			return send()
		})
		a.wantSurvey("doubled answers", "a: own", "b: b", "c: UNAVAILABLE")
		mu.Lock()
		late := held[0]
		mu.Unlock()
		late.Report.Figures = []byte("late")
		w.dropping(func(_ registry.Node, e bus.Event) bool { return e.Survey != nil })
		asking := make(chan struct{})
		go func() {
			defer close(asking)
			a.wantSurvey("lost questions", "a: own", "b: UNAVAILABLE", "c: UNAVAILABLE")
		}()
		synctest.Wait()
		if err := bus.PublishOne(w.ctx, w.bus, self, late); err != nil {
			t.Error(err)
		}
		<-asking
	})
}

// registered returns the node as the registry knows it.
func (c *core) registered() registry.Node {
	for _, f := range c.Survey(c.ctx, nil) {
		if f.ID == c.node {
			return registry.Node{ID: f.ID, Boot: f.Boot}
		}
	}
	c.t.Fatal("the node is not in its own survey")
	return registry.Node{}
}

// Questions beyond the queue of a node that does not answer are dropped, and block nobody.
func TestSurvey_bounded_use_of_a_node_that_does_not_answer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		time.Sleep(10 * time.Second)
		for range 100 {
			a.Survey(a.ctx, nil)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		waiting := 0
		for {
			if _, err := b.NextQuestion(ctx); err != nil {
				break
			}
			waiting++
		}
		if waiting == 0 || waiting > 16 {
			t.Errorf("%d questions wait, want 1 to 16", waiting)
		}
	})
}

// slow returns the session of a slow client, without its id, and with its age in seconds.
func slow(s server.SlowSession) string {
	return fmt.Sprintf("%s on %q, connected %v, %d s: %d messages in %d chats, %d unsent", s.User,
		s.Device, s.Connected, int(time.Since(s.Since).Seconds()), s.Messages, s.Chats, s.Unsent)
}

func (c *core) wantSlow(what string, most int, want ...string) {
	c.t.Helper()
	var got []string
	for _, s := range c.SlowSessions(most) {
		got = append(got, slow(s))
	}
	if len(got) == 2 && strings.Contains(got[0], ", 0 s:") {
		slices.Sort(got) // of two that are equally slow, either is first
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The oldest message of a client that does not acknowledge makes its session slow. What is
// acknowledged does not count.
func TestSlowSessions_are_those_with_the_oldest_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t)
		one, two := a.chat("one", "alice", "bob", "carol"), a.chat("two", "alice", "bob", "dave")
		bob, carol := a.open("bob", onDevice("phone")), a.open("carol")
		bob.drain()
		carol.drain()
		a.wantSlow("nothing was sent", 10)
		a.send("alice", one)
		a.send("alice", one)
		bob.drain()
		a.wantSlow("at once", 10,
			`bob on "phone", connected true, 0 s: 2 messages in 1 chats, 0 unsent`,
			`carol on "", connected true, 0 s: 2 messages in 1 chats, 1 unsent`)
		time.Sleep(5 * time.Second)
		a.ack("carol", one, 2, 0)
		time.Sleep(25 * time.Second)
		a.send("alice", one)
		a.send("alice", two)
		a.wantSlow("carol has acknowledged", 10,
			`bob on "phone", connected true, 30 s: 4 messages in 2 chats, 2 unsent`,
			`carol on "", connected true, 0 s: 1 messages in 1 chats, 1 unsent`)
		a.wantSlow("at most one", 1,
			`bob on "phone", connected true, 30 s: 4 messages in 2 chats, 2 unsent`)
		bob.Detach()
		a.ack("carol", one, 3, 0)
		time.Sleep(5 * time.Second)
		a.ack("bob", one, 3, 0)
		a.wantSlow("the chat two is left, and bob has left", 1,
			`bob on "phone", connected false, 5 s: 1 messages in 1 chats, 2 unsent`)
		a.ack("bob", two, 1, 0)
		a.wantSlow("all is acknowledged", 10)
	})
}

// However many sessions are slow, the list has the slowest.
func TestSlowSessions_bounded_use(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t)
		var want []string
		for i := range 30 {
			user := tidemark.UserID(fmt.Sprintf("u%02d", i))
			a.open(user).drain()
			a.send("alice", a.chat(tidemark.ChatID("c-"+user), "alice", user))
			if i < 3 {
				want = append(want, fmt.Sprintf(`%s on "", connected true, %d s: 1 messages in `+
					`1 chats, 1 unsent`, user, 30-i))
			}
			time.Sleep(time.Second)
		}
		a.wantSlow("three of thirty", 3, want...)
	})
}

// Under a steady stream, a client that acknowledges is at most two grace periods behind, however
// long the stream is. A session that was opened late counts from when it learned of the messages.
func TestSlowSessions_age_is_that_of_the_oldest_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t)
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		for range 120 {
			n := a.send("alice", chat)
			bob.drain()
			if n > 1 {
				a.ack("bob", chat, n-1, 0) // one is always missing
			}
			time.Sleep(time.Second)
		}
		list := a.SlowSessions(10)
		if len(list) != 1 || list[0].Messages != 1 || time.Since(list[0].Since) > 21*time.Second {
			t.Errorf("%+v, want one message of about 10 s at most", list)
		}
		bob.goodbye()
		a.wantSlow("no session is left", 10)
		time.Sleep(time.Minute)
		late := a.open("bob")
		late.drain()
		time.Sleep(3 * time.Second)
		a.wantSlow("opened 3 s ago", 10,
			`bob on "", connected true, 3 s: 1 messages in 1 chats, 0 unsent`)
	})
}

// A session that has moved counts from its arrival.
func TestSlowSessions_of_a_session_that_has_moved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		time.Sleep(20 * time.Second)
		m.bob.drain()
		m.a.wantSlow("on a", 10,
			`bob on "phone", connected true, 20 s: 1 messages in 1 chats, 0 unsent`)
		bob := m.b.open("bob", resuming(m.bob.Session(), m.bob.last), onDevice("phone"))
		bob.drain()
		time.Sleep(2 * time.Second)
		m.a.wantSlow("a has it no more", 10)
		m.b.wantSlow("on b", 10,
			`bob on "phone", connected true, 2 s: 1 messages in 1 chats, 0 unsent`)
	})
}
