package server_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// sendConfirmed sends messages of a client who wants confirmations in place of their events.
func (c *client) sendConfirmed(chat tidemark.ChatID, ids ...string) (taken []bool) {
	c.t.Helper()
	drafts := make([]tidemark.Draft, len(ids))
	for i, id := range ids {
		drafts[i] = tidemark.Draft{ChatID: chat, ClientMessageID: id, Content: id}
	}
	results, taken := c.SendConfirmed(c.core.ctx, drafts, ids)
	for _, r := range results {
		if r.Err != nil {
			c.t.Error(r.Err)
		}
	}
	return taken
}

// The session that sends gets confirmations. The user's other sessions, and the other members', get
// the messages as always. The sender's run acknowledges them.
func TestOwn_confirmation_is_for_the_session_that_sends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("team", "alice", "bob", "carol")
		c.send("bob", chat)
		phone, tablet := c.open("alice", onDevice("phone")), c.open("alice", onDevice("tablet"))
		bob := c.open("bob")
		for _, device := range []*client{phone, tablet, bob} {
			device.drain()
		}
		phone.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		phone.drain()
		if got := phone.sendConfirmed(chat, "a", "b"); !slices.Equal(got, []bool{true, true}) {
			t.Errorf("taken = %v, want all", got)
		}
		c.send("bob", chat)
		settle()
		messages := func(device *client) (got []string) {
			for _, l := range device.drain() {
				var sequence int
				for _, kind := range []string{"message", "confirmed"} {
					if n, _ := fmt.Sscanf(l, kind+" team %d", &sequence); n == 1 {
						got = append(got, l)
					}
				}
			}
			return got
		}
		for _, tt := range []struct {
			device *client
			want   []string
		}{
			{phone, []string{"confirmed team 2", "confirmed team 3", "message team 4"}},
			{tablet, []string{"message team 2", "message team 3", "message team 4"}},
			{bob, []string{"message team 2", "message team 3", "message team 4"}},
		} {
			if diff := cmp.Diff(tt.want, messages(tt.device)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.device.Session(), diff)
			}
		}
		states, err := c.store.States(c.ctx, []storage.StateKey{{User: "alice", Chat: chat}})
		if err != nil || states[0].Acked != 3 {
			t.Errorf("alice has acknowledged %v (%v), want 3", states, err)
		}
	})
}

// A confirmation that was lost with its connection comes again as the event. A repeated send is
// answered with the same sequence.
func TestOwn_confirmation_that_is_lost_comes_as_the_event(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		alice := c.open("alice")
		alice.drain()
		c.send("alice", chat)
		settle()
		alice.drain()
		at := alice.last
		alice.sendConfirmed(chat, "a")
		alice.drain() // and the client gets nothing of it
		alice.Detach()
		back := c.open("alice", resuming(alice.Session(), at))
		if got := back.drain(); !slices.Contains(got, "message ab 2") {
			t.Errorf("after the resume: %q, want the message", got)
		}
		if taken := back.sendConfirmed(chat, "a"); !taken[0] {
			t.Error("the confirmation of a repeated send is not taken")
		}
		if got, want := back.drain(), []string{"answered ab 2"}; !slices.Equal(got, want) {
			t.Errorf("after the same send again: %q, want %q", got, want)
		}
	})
}
