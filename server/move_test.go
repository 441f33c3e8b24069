package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// moving is two nodes, a chat, and bob's session on a, which has sent one message.
type moving struct {
	*cluster
	a, b *core
	chat tidemark.ChatID
	bob  *client
}

func newMoving(t *testing.T, change ...func(*server.Config)) *moving {
	t.Helper()
	w := newCluster(t)
	m := &moving{cluster: w, a: w.node("a", change...), b: w.node("b", change...)}
	time.Sleep(30 * time.Second) // until both know each other, and trust cached rosters
	m.chat = m.a.chat("ab", "alice", "bob")
	m.bob = m.a.open("bob", onDevice("phone"))
	m.bob.drain()
	m.a.send("alice", m.chat)
	want(t, "bob on a", m.bob.drain(), "message ab 1")
	return m
}

// There is no reconciliation: the lease had no gap, and b knows what a has sent.
func TestMove_resume_lossless_on_another_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		m.b.send("alice", m.chat)
		compares := m.b.Counters()["comparisons_total"]
		bob := m.b.open("bob", resuming(session, last), onDevice("phone"))
		if bob.Session() != session {
			t.Errorf("the session is %s, want %s", bob.Session(), session)
		}
		want(t, "bob on b", bob.drain()[:3], "open resumed=true", "message ab 2", "caught_up")
		if n := m.b.Counters()["comparisons_total"] - compares; n != 0 {
			t.Errorf("%d comparisons, want none", n)
		}
		m.a.send("alice", m.chat)
		want(t, "what is sent from now on", messagesOf(bob.drain()), "message ab 3")
		bob.Detach()
		back := m.a.open("bob", resuming(session, last))
		want(t, "back on a, from an older position", back.drain()[:3], "open resumed=true",
			"message ab 2", "message ab 3")
		back.Detach()
		third := m.b.open("bob", resuming(session, back.last))
		if lines := third.drain(); slices.Contains(lines, "message ab 3") ||
			lines[0] != "open resumed=true" {
			t.Errorf("on b, from behind the third message: %v", lines)
		}
		// The session is complete on b, so a clean close leaves a proof. Nothing is acknowledged,
		// so there is a row.
		third.goodbye()
		m.wantRows("closed on b", "bob", row("bob", m.chat, 1))
		compares = m.a.Counters()["comparisons_total"]
		want(t, "a new session", messagesOf(m.a.open("bob").drain()), "message ab 1",
			"message ab 2", "message ab 3")
		if n := m.a.Counters()["comparisons_total"] - compares; n != 0 {
			t.Errorf("%d comparisons after a clean close, want none", n)
		}
	})
}

// The client has got higher boundaries from the first node than the second one knows. The session
// moves or is lost.
func TestMove_tick_monotone(t *testing.T) {
	for _, name := range []string{"moved", "lost", "new"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a, b, c := w.node("a"), w.node("b"), w.node("c")
				chat := a.chat("ab", "alice", "bob")
				for range 3 {
					a.send("alice", chat)
				}
				settle()
				b.ack("bob", chat, 1, 0) // so that b knows an old boundary
				settle()
				alice := a.open("alice")
				alice.drain()
				c.ack("bob", chat, 3, 0)
				settle()
				want(t, "before", alice.drain(), "status ab bob 3 0")
				alice.Detach()
				session := alice.Session()
				if name == "lost" {
					session = "unknown"
				}
				if name != "moved" {
					alice.goodbye()
				}
				alice = b.open("alice", resuming(session, alice.last))
				alice.drain()
				w.say("alice", tidemark.StatusUpdate{
					ChatID:   chat,
					UserID:   "bob",
					Boundary: tidemark.Boundary{Acked: 2},
				})
				if got := alice.drain(); !slices.Contains(got, "status ab bob 3 0") ||
					slices.Contains(got, "status ab bob 2 0") {
					t.Errorf("what was late becomes %v", got)
				}
			})
		})
	}
}

// A late update about a former member is not below an earlier one, although former members are not
// in the roster.
func TestMove_tick_monotone_of_one_who_has_left(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		chat := m.a.chat("abc", "alice", "bob", "carol")
		for range 3 {
			m.a.send("alice", chat)
		}
		m.a.ack("carol", chat, 3, 0)
		settle()
		if got := m.bob.drain(); !slices.Contains(got, "status abc carol 3 0") {
			t.Fatalf("bob was told %v", got)
		}
		m.a.remove(chat, "carol")
		settle()
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		bob := m.b.open("bob", resuming(session, last))
		if _, err := m.b.Chat(m.ctx, server.Caller{User: "bob"}, chat); err != nil {
			t.Fatal(err)
		}
		m.say("bob", tidemark.StatusUpdate{
			ChatID:   chat,
			UserID:   "alice",
			Boundary: tidemark.Boundary{Acked: 3},
		})
		bob.drain() // the statuses of the members were read with it
		m.say("bob", tidemark.StatusUpdate{
			ChatID:   chat,
			UserID:   "carol",
			Boundary: tidemark.Boundary{Acked: 2},
		})
		if got := bob.drain(); !slices.Contains(got, "status abc carol 3 0") ||
			slices.Contains(got, "status abc carol 2 0") {
			t.Errorf("what was late becomes %v", got)
		}
	})
}

// A poll resumes without `session`, and replaces a connection at another node.
func TestMove_the_newest_connection_owns_the_session(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.b.send("alice", m.chat)
		settle()
		poll := m.b.open("bob",
			resuming(m.bob.Session(), m.bob.last), func(r *openRequest) { r.Poll = true })
		want(t, "a poll on b", messagesOf(poll.drain()), "message ab 2")
		_, err := m.bob.Next(m.ctx, nil, true)
		wantCode(t, "the connection on a", err, tidemark.Replaced)
		if n := m.a.Counters()["sessions"] + m.b.Counters()["sessions"]; n != 1 {
			t.Errorf("%d sessions, want one", n)
		}
	})
}

func TestMove_of_a_session_that_is_not_given(t *testing.T) {
	tests := map[string]func(m *moving){
		"its node does not answer": func(m *moving) {
			m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
				if e.Request != nil {
					return nil
				}
				return send()
			})
		},
		"its node cannot be reached": func(m *moving) {
			m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
				if e.Request != nil {
					return errDown
				}
				return send()
			})
		},
		"the transfer is lost": func(m *moving) {
			m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
				if e.Transfer != nil {
					return nil
				}
				return send()
			})
		},
		"the transfer is late": func(m *moving) {
			m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
				if e.Transfer != nil {
					time.Sleep(5 * time.Second)
				}
				return send()
			})
		},
		"the transfer is no session": func(m *moving) {
			m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
				if e.Transfer != nil {
					return bus.PublishOne(m.ctx, m.bus, to, bus.Event{Transfer: &bus.Transfer{
						ID: e.Transfer.ID, Snapshot: []byte(`{"LastID":`),
					}})
				}
				return send()
			})
		},
	}
	for name, silence := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMoving(t)
				silence(m)
				session, last := m.bob.Session(), m.bob.last
				m.bob.Detach()
				began := time.Now()
				_, err := m.b.Open(m.ctx, openRequest{
					User:    "bob",
					Session: session,
					After:   last,
					Poll:    true,
				})
				wantCode(t, "a poll", err, tidemark.Gone)
				bob := m.b.open("bob", resuming(session, last), onDevice("phone"))
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("two resumes took %v, want at most a second each", took)
				}
				lines := bob.drain()
				want(t, "what bob is told", lines[:2], "open resumed=false",
					"reset unknown_session")
				want(t, "what bob has not acknowledged", messagesOf(lines), "message ab 1")
				m.publish.clear()
				m.a.send("alice", m.chat)
				want(t, "what is sent later", messagesOf(bob.drain()), "message ab 2")
				time.Sleep(2 * time.Minute)
				m.a.send("alice", m.chat)
				want(t, "when a has given up what it still had",
					messagesOf(bob.drain()), "message ab 3")
			})
		})
	}
}

// A second connection that waits for the same arrival gets the same error as the first. With
// another one, its client would ask for a session that nobody has.
func TestMove_of_what_nobody_gives_tells_all_who_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Request != nil {
				return nil
			}
			return send()
		})
		request := openRequest{User: "bob", Session: m.bob.Session(), After: m.bob.last, Poll: true}
		m.bob.Detach()
		answers := make(chan error, 2)
		for range cap(answers) {
			go func() {
				_, err := m.b.Open(m.ctx, request)
				answers <- err
			}()
		}
		for range cap(answers) {
			wantCode(t, "a poll", <-answers, tidemark.Gone)
		}
	})
}

// What arrives while the session is moving is sent: before it is given away, before it lands, and
// late at the old node.
func TestMove_R_ADDR_nothing_is_lost_on_the_way(t *testing.T) {
	for name, stage := range map[string]func(e bus.Event) bool{
		"before the request arrives":  isRequest,
		"before the transfer arrives": isTransfer,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMoving(t)
				leases := m.leases("bob")
				late := func(sequence tidemark.Sequence) { // looked up before the lease moved
					err := bus.PublishOne(m.ctx, m.bus,
						registry.Node{ID: leases[0].Node, Boot: leases[0].Boot}, bus.Event{
							To:           leases,
							Notification: &bus.Notification{Chat: m.chat, Sequence: sequence},
						})
					if err != nil {
						t.Error(err)
					}
				}
				done := false
				m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
					if stage(e) && !done {
						done = true
						m.appendDead("alice", m.chat, "k1")
						late(2)
						m.b.send("alice", m.chat)
					}
					return send()
				})
				session, last := m.bob.Session(), m.bob.last
				m.bob.Detach()
				bob := m.b.open("bob", resuming(session, last))
				want(t, "bob", messagesOf(bob.drain()), "message ab 2", "message ab 3")
				m.appendDead("alice", m.chat, "k2")
				late(4)
				settle()
				want(t, "after a late hand-over to the old node",
					messagesOf(bob.drain()), "message ab 4")
			})
		})
	}
}

// A node died while the session moved. What it did not publish is found by reconciling.
func TestMove_R_EPOCH_a_death_on_the_way_is_noticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		m.ghost("c", time.Second)
		m.appendDead("alice", m.chat, "k")
		time.Sleep(1100 * time.Millisecond) // before the next heartbeat of a, so a has not noticed
		bob := m.b.open("bob", resuming(session, last))
		want(t, "bob", messagesOf(bob.drain()), "message ab 2")
	})
}

// While a node is degraded, its sessions reconcile again and again. No message waits for the next
// one of its chat.
func TestDegraded_sessions_reconcile_until_the_node_receives_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a")
		b := w.node("b", w.cutOffBy(&down))
		chat := a.chat("ab", "alice", "bob")
		bob := b.open("bob")
		bob.drain()
		down.Store(true)
		w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if to.ID == "b" {
				return nil // lost without an error
			}
			return send()
		})
		time.Sleep(5 * time.Second)
		for i := range 5 {
			a.send("alice", chat)
			time.Sleep(15 * time.Second)
			want(t, fmt.Sprint("while nothing arrives, ", i), messagesOf(bob.drain()),
				fmt.Sprint("message ab ", i+1))
		}
	})
}

// deafBus is a bus whose Check reports an interruption.
type deafBus struct {
	bus.Bus
	deaf *atomic.Bool
}

func (b deafBus) Check(context.Context) error {
	if b.deaf.Load() {
		return errDown
	}
	return nil
}

// A node receives no publications but reaches the registry. That is so on a cluster whose shard
// with the node's channel is away.
func TestDegraded_sessions_reconcile_while_only_the_bus_is_away(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var deaf atomic.Bool
		a := w.node("a")
		b := w.node("b", func(cfg *server.Config) { cfg.Bus = deafBus{cfg.Bus, &deaf} })
		chat := a.chat("ab", "alice", "bob")
		bob := b.open("bob")
		bob.drain()
		time.Sleep(30 * time.Second)
		deaf.Store(true)
		w.publish.set(func(to registry.Node, _ bus.Event, send func() error) error {
			if to.ID == "b" {
				return tidemark.Errorf(tidemark.NotFound, "nobody listens")
			}
			return send()
		})
		a.send("alice", chat)
		time.Sleep(20 * time.Second)
		want(t, "bob, whose node hears nothing", messagesOf(bob.drain()), "message ab 1")
	})
}

// A session that does not arrive marks the messages of its notifications.
func TestMove_R_WAKESET_of_a_session_that_does_not_arrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.bob.Ack(server.Ack{Chat: m.chat, Acked: 1})
		settle()
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Request != nil {
				m.b.send("alice", m.chat)
				return nil
			}
			return send()
		})
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		_, err := m.b.Open(m.ctx, openRequest{
			User:    "bob",
			Session: session,
			After:   last,
			Poll:    true,
		})
		wantCode(t, "a poll", err, tidemark.Gone)
		settle()
		m.wantRows("the session did not arrive", "bob", row("bob", m.chat, 2))
		for _, l := range m.leases("bob") { // a may have taken its own again
			if l.Node == m.b.node {
				t.Errorf("the lease %v of a session that did not arrive", l)
			}
		}
	})
}

func TestMove_a_foreign_session_is_not_given(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		session := m.bob.Session()
		_, err := m.b.Open(m.ctx, openRequest{User: "eve", Session: session, Poll: true})
		wantCode(t, "eve on b", err, tidemark.Gone)
		_, err = m.b.Sync(m.ctx, "eve", server.SyncRequest{Session: session, Limit: 10})
		wantCode(t, "eve's sync on b", err, tidemark.Gone)
		forged := bus.Request{
			ID:      "forged",
			Session: session,
			User:    "eve",
			To:      registry.Node{ID: m.b.node, Boot: "1"},
		}
		if err := bus.PublishOne(
			m.ctx, m.bus, m.leases("bob")[0].Holder(), bus.Event{Request: &forged},
		); err != nil {
			t.Fatal(err)
		}
		back := bus.Seek{
			ID: "forged", Session: session, User: "eve", From: m.leases("bob")[0].Holder(),
			Positions: []byte(`{"Positions": [{"Chat": "ab", "Cursor": 0, "Head": 1}]}`),
		}
		if err := bus.PublishOne(m.ctx, m.bus, back.From, bus.Event{Seek: &back}); err != nil {
			t.Fatal(err)
		}
		settle()
		m.a.send("alice", m.chat)
		want(t, "bob goes on", messagesOf(m.bob.drain()), "message ab 2")
	})
}

// A removed member is removed on every node, also where no session of the chat is.
func TestMembership_is_known_on_every_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		chat := m.a.chat("abc", "alice", "bob", "carol")
		if _, err := m.b.Chat(m.ctx, server.Caller{User: "carol"}, chat); err != nil {
			t.Fatal(err)
		}
		m.a.remove(chat, "carol")
		_, err := m.b.Chat(m.ctx, server.Caller{User: "carol"}, chat)
		wantCode(t, "carol on b", err, tidemark.NotMember)
	})
}

// A node that receives nothing does not trust its cached rosters.
func TestMembership_a_node_that_receives_nothing_asks_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		chat := m.a.chat("abc", "alice", "bob", "carol")
		if _, err := m.b.Chat(m.ctx, server.Caller{User: "carol"}, chat); err != nil {
			t.Fatal(err)
		}
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Membership != nil {
				return errDown
			}
			return send()
		})
		m.a.remove(chat, "carol")
		time.Sleep(5 * time.Second) // a joins again, because it could not publish to b
		_, err := m.b.Chat(m.ctx, server.Caller{User: "carol"}, chat)
		wantCode(t, "carol on b", err, tidemark.NotMember)
	})
}

// The limit of 32 sessions of a user covers all nodes together.
func TestOpen_sessions_per_user_on_all_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t, func(cfg *server.Config) { cfg.SessionsPerUser = 3 })
		m.b.open("bob")
		m.b.open("bob")
		_, err := m.b.Open(m.ctx, openRequest{User: "bob"})
		wantCode(t, "a fourth session", err, tidemark.Exhausted)
		if n := len(m.leases("bob")); n != 3 {
			t.Errorf("%d leases, want 3", n)
		}
	})
}

// tick_monotone: after a move, the baseline is read before any update is sent, even if the messages
// before it take long.
func TestStatus_tick_monotone_when_a_session_has_moved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.a.ack("alice", m.chat, 1, 0)
		for range 2 {
			m.bob.Ack(server.Ack{Chat: m.chat, Acked: m.a.send("bob", m.chat)})
			settle()
		}
		m.a.ack("alice", m.chat, 3, 3)
		settle()
		if got := m.bob.drain(); !slices.Contains(got, "status ab alice 3 3") {
			t.Fatalf("on a bob was told %v", got)
		}
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Status != nil {
				return nil // later updates are still under way
			}
			return send()
		})
		for range 300 { // several pages
			m.a.send("alice", m.chat)
		}
		bob := m.b.open("bob", resuming(session, last))
		// B caches the roster.
		if _, err := m.b.Chat(m.ctx, server.Caller{User: "bob"}, m.chat); err != nil {
			t.Fatal(err)
		}
		late := tidemark.StatusUpdate{
			ChatID:   m.chat,
			UserID:   "alice",
			Boundary: tidemark.Boundary{Acked: 3, Read: 2},
		}
		m.say("bob", late, late)
		got := bob.drain()
		if slices.Contains(got, "status ab alice 3 2") {
			t.Error("on b bob is told of alice's 3 2, after 3 3")
		}
		if len(messagesOf(got)) != 300 ||
			!slices.ContainsFunc(got,
				func(line string) bool { return strings.HasPrefix(line, "status ab alice ") }) {
			t.Errorf("%d messages, and no status of alice: %v",
				len(messagesOf(got)), got[len(got)-5:])
		}
	})
}
