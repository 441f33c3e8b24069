package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// moderated starts two nodes that keep who is suspended, with the chat "abc" of alice, bob and
// carol. The nodes know each other when it returns.
func moderated(t *testing.T, onB ...func(*server.Config)) (w *cluster, a, b *core) {
	t.Helper()
	w = newCluster(t)
	keeps := func(c *server.Config) { c.Documents = w.raw }
	a = w.node("a", keeps)
	b = w.node("b", append([]func(*server.Config){keeps}, onB...)...)
	a.chat("abc", "alice", "bob", "carol")
	tailsTrust()
	return w, a, b
}

// wantEnded fails the test unless a connection has ended with a code.
func (c *client) wantEnded(what string, code tidemark.Code) {
	c.t.Helper()
	for range 100 {
		events, err := c.Next(c.core.ctx, nil, false)
		if err != nil || len(events) == 0 {
			wantCode(c.t, what, err, code)
			return
		}
	}
	c.t.Errorf("%s: the events do not end", what)
}

// suspend suspends a user without an end.
func (c *core) suspend(user tidemark.UserID) {
	c.t.Helper()
	if _, err := c.Suspend(c.ctx, user, time.Time{}, "spam"); err != nil {
		c.t.Fatal(err)
	}
	settle()
}

func TestSuspend_suspended_does_nothing_on_any_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := moderated(t)
		here, there, alice := a.open("bob"), b.open("bob"), b.open("alice")
		for _, c := range []*client{here, there, alice} {
			c.drain()
		}
		for _, c := range []*core{a, b} {
			if err := c.Allowed(w.ctx, "bob", time.Time{}); err != nil {
				t.Fatalf("before: %v", err)
			}
		}
		a.suspend("bob")
		here.wantEnded("bob at a", tidemark.Denied)
		there.wantEnded("bob at b", tidemark.Denied)
		alice.wantEnded("alice", "")
		for _, c := range []*core{a, b} {
			wantCode(t, "a call", c.Allowed(w.ctx, "bob", time.Time{}), tidemark.Denied)
			_, err := c.Open(w.ctx, openRequest{User: "bob"})
			wantCode(t, "an open", err, tidemark.Denied)
		}
		n := a.send("alice", "abc")
		w.wantRows("what waits", "bob", row("bob", "abc", n))
		if err := b.EndSuspension(w.ctx, "bob"); err != nil {
			t.Fatal(err)
		}
		settle()
		want(t, "bob is back", messagesOf(a.open("bob").drain()), "message abc 1")
	})
}

func TestSuspend_suspended_does_nothing_until_it_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := moderated(t)
		until := time.Now().Add(time.Hour).UTC()
		if _, err := a.Suspend(w.ctx, "bob", until, ""); err != nil {
			t.Fatal(err)
		}
		settle()
		wantCode(t, "at first", b.Allowed(w.ctx, "bob", time.Time{}), tidemark.Denied)
		got, err := b.SuspensionOf(w.ctx, "bob")
		if err != nil || !got.Suspended || !got.Until.Equal(until.Truncate(time.Millisecond)) {
			t.Errorf("the suspension is %+v (%v), want one until %v", got, err, until)
		}
		time.Sleep(time.Hour)
		if err := b.Allowed(w.ctx, "bob", time.Time{}); err != nil {
			t.Errorf("after its end: %v", err)
		}
		_, err = a.Suspend(w.ctx, "bob", time.Now(), "")
		wantCode(t, "until now", err, tidemark.Invalid)
	})
}

// A node that was not told notices by its epoch, and ends the sessions.
func TestSuspend_suspended_does_nothing_at_a_node_that_was_not_told(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := moderated(t)
		bob := b.open("bob")
		bob.drain()
		w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if to.ID == "b" && e.Access != nil {
				return errDown
			}
			return send()
		})
		a.suspend("bob")
		time.Sleep(time.Minute)
		bob.wantEnded("bob at b", tidemark.Denied)
		wantCode(t, "a call", b.Allowed(w.ctx, "bob", time.Time{}), tidemark.Denied)
	})
}

// A node that is cut off cannot tell the others, so it changes nothing.
func TestSuspend_suspended_does_nothing_by_a_node_that_is_cut_off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, _ := moderated(t)
		a.Server.Reconcile() // The node has to join again first.
		_, err := a.Suspend(w.ctx, "bob", time.Time{}, "")
		wantCode(t, "while it joins", err, tidemark.Unavailable)
	})
}

type documents interface{ storage.Documents }

// interrupted calls a function once, after a read of documents and before its answer.
type interrupted struct {
	documents
	between func()
}

func (d *interrupted) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	found, err := d.documents.DocumentsOf(ctx, keys)
	if f := d.between; f != nil {
		d.between = nil
		f()
	}
	return found, err
}

// An open reads that bob may, and bob is suspended before it goes on.
func TestSuspend_suspended_does_nothing_by_an_open_that_began_before(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow *interrupted
		w, a, b := moderated(t, func(c *server.Config) {
			slow = &interrupted{documents: c.Documents}
			c.Documents = slow
		})
		slow.between = func() { a.suspend("bob") }
		_, err := b.Open(w.ctx, openRequest{User: "bob"})
		wantCode(t, "the open", err, tidemark.Denied)
		if n := b.Counters()["sessions"]; n != 0 {
			t.Errorf("%d sessions are left, want none", n)
		}
	})
}

func TestSignOut_signed_out_stays_out_with_older_credentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := moderated(t)
		old := time.Now()
		open := func(c *core, issued time.Time) error {
			conn, err := c.Server.Open(w.ctx, server.OpenRequest{User: "bob", Issued: issued})
			if err == nil {
				conn.Detach()
			}
			return err
		}
		here, there := a.open("bob"), b.open("bob")
		here.drain()
		there.drain()
		if err := open(b, old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		at, err := a.SignOut(w.ctx, "bob")
		if err != nil {
			t.Fatal(err)
		}
		settle()
		here.wantEnded("bob at a", tidemark.Unauthenticated)
		there.wantEnded("bob at b", tidemark.Unauthenticated)
		for _, tt := range []struct {
			what   string
			issued time.Time
			want   tidemark.Code
		}{
			{"an older token", old, tidemark.Unauthenticated},
			{"a token of the same second", at.Truncate(time.Second), tidemark.Unauthenticated},
			{"a token without a time", time.Unix(0, 0), tidemark.Unauthenticated},
			{"a token of the same moment", at, tidemark.Unauthenticated},
			{"a newer token", at.Truncate(time.Second).Add(time.Second), ""},
			{"an API key", time.Time{}, ""},
		} {
			for _, c := range []*core{a, b} {
				wantCode(t, tt.what, c.Allowed(w.ctx, "bob", tt.issued), tt.want)
				wantCode(t, tt.what+" opens", open(c, tt.issued), tt.want)
			}
		}
		later, err := b.SignOut(w.ctx, "bob")
		if err != nil || later.Before(at) {
			t.Errorf("a second sign-out: %v (%v), want %v or later", later, err, at)
		}
	})
}
