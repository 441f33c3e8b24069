package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/registry"
)

// wantSessions fails the test unless a user has exactly these sessions, as a node sees it.
func (c *core) wantSessions(what string, user tidemark.UserID, want ...server.SessionInfo) {
	c.t.Helper()
	got, err := c.Sessions(c.ctx, user)
	if err != nil || !slices.Equal(got, want) {
		c.t.Errorf("%s: the sessions of %s are %v (%v), want %v", what, user, got, err, want)
	}
}

// A user ends a session from the node that has it, or from another one. Its connection ends with
// Replaced, and a pending row says what its device lacks.
func TestEndSession_sessions_end_when_told(t *testing.T) {
	for _, from := range []string{"the same node", "another node"} {
		t.Run(from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMoving(t)
				asked := m.a
				if from == "another node" {
					asked = m.b
				}
				tablet := m.b.open("bob")
				tablet.drain()
				asked.wantSessions("before", "bob", sorted(
					server.SessionInfo{Session: m.bob.Session(), Node: "a", Device: "phone"},
					server.SessionInfo{Session: tablet.Session(), Node: "b"})...)
				m.a.send("alice", m.chat)
				m.bob.drain()
				settle()
				for _, id := range []tidemark.SessionID{m.bob.Session(), "unknown"} {
					if err := asked.EndSession(m.ctx, "alice", id); err != nil {
						t.Errorf("alice ends %s: %v", id, err)
					}
				}
				asked.wantSessions("ended by a stranger", "bob", sorted(
					server.SessionInfo{Session: m.bob.Session(), Node: "a", Device: "phone"},
					server.SessionInfo{Session: tablet.Session(), Node: "b"})...)
				if err := asked.EndSession(m.ctx, "bob", m.bob.Session()); err != nil {
					t.Fatal(err)
				}
				_, err := m.bob.Next(m.ctx, nil, false)
				wantCode(t, "the connection of the ended session", err, tidemark.Replaced)
				m.wantRows("what it had not acknowledged", "bob", row("bob", m.chat, 1))
				asked.wantSessions("afterwards", "bob",
					server.SessionInfo{Session: tablet.Session(), Node: "b"})
				if err := asked.EndSession(m.ctx, "bob", m.bob.Session()); err != nil {
					t.Errorf("once more: %v", err)
				}
				again := m.b.open("bob", onDevice("phone"))
				want(t, "the device returns", messagesOf(again.drain()),
					"message ab 1", "message ab 2")
			})
		})
	}
}

// sorted returns sessions in the order of Sessions.
func sorted(list ...server.SessionInfo) []server.SessionInfo {
	slices.SortFunc(list, func(a, b server.SessionInfo) int {
		if a.Device != b.Device {
			return strings.Compare(string(a.Device), string(b.Device))
		}
		return strings.Compare(string(a.Session), string(b.Session))
	})
	return list
}

// A node that is gone, and still holds leases, does not keep the sessions of others alive.
func TestEndSessions_sessions_end_when_told_beside_unreachable_ones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		gone := m.ghost("gone", time.Minute)
		for i := range 20 {
			name := fmt.Sprintf("a%02d", i)
			if _, err := m.reg.Open(m.ctx, registry.LeaseRequest{
				Lease: registry.Lease{
					User: "bob", Device: tidemark.DeviceID(name), Node: gone.ID, Boot: gone.Boot,
					Session: tidemark.SessionID(name),
				},
				TTL: time.Minute,
			}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		err := m.b.EndSessions(m.ctx, "bob", "")
		wantCode(t, "twenty sessions of a node that is gone", err, tidemark.Unavailable)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the call took %v", took)
		}
		_, err = m.bob.Next(m.ctx, nil, false)
		wantCode(t, "the session of a node that lives", err, tidemark.Replaced)
	})
}

func TestEndSessions_all_but_one(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		here, there := m.a.open("bob", onDevice("here")), m.b.open("bob", onDevice("there"))
		alice := m.b.open("alice", onDevice("hers"))
		if err := m.b.EndSessions(m.ctx, "bob", here.Session()); err != nil {
			t.Fatal(err)
		}
		m.a.wantSessions("all but one", "bob",
			server.SessionInfo{Session: here.Session(), Node: "a", Device: "here"})
		if err := m.b.EndSessions(m.ctx, "bob", ""); err != nil {
			t.Fatal(err)
		}
		m.a.wantSessions("all", "bob")
		m.a.wantSessions("of another user", "alice",
			server.SessionInfo{Session: alice.Session(), Node: "b", Device: "hers"})
		for name, c := range map[string]*client{"here": here, "there": there, "phone": m.bob} {
			_, err := c.Next(m.ctx, nil, false)
			wantCode(t, name, err, tidemark.Replaced)
		}
	})
}
