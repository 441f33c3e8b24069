package server_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

const day = 24 * time.Hour

// calm gives leases a long time, so that a test that lasts for days takes few steps.
func calm(c *server.Config) { c.NodeTTL, c.LeaseTTL = 20*day, 20*day }

// expire lets the messages of a chat expire that are old enough.
func (c *core) expire(chat tidemark.ChatID) tidemark.Sequence {
	c.t.Helper()
	done, err := c.store.Expire(c.ctx, chat, time.Now().Add(-storage.MinAge), storage.MaxExpired)
	if err != nil {
		c.t.Fatal(err)
	}
	return done.Floor
}

// aged sends five messages, which are ten days old then, and one more.
func (c *core) aged(chat tidemark.ChatID) {
	c.t.Helper()
	for range 5 {
		c.send("alice", chat)
	}
	time.Sleep(10 * day)
	c.send("alice", chat)
}

// TestFloor_what_has_expired_is_a_gap: for a client that has not read yet, and for one that comes
// back. The node has cached the members and the messages of before.
func TestFloor_what_has_expired_is_a_gap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("team", "alice", "bob", "carol")
		reader := c.open("bob")
		want(t, "at first", messagesOf(reader.drain()))
		c.aged(chat)
		if floor := c.expire(chat); floor != 6 {
			t.Fatalf("the floor is %d, want 6", floor)
		}
		want(t, "who has not read", messagesOf(reader.drain()), "gap team 1-5", "message team 6")
		carol := c.open("carol")
		want(t, "who comes back", messagesOf(carol.drain()), "gap team 1-5", "message team 6")
		again := c.open("carol")
		want(t, "with the floor known", messagesOf(again.drain()), "gap team 1-5", "message team 6")
	})
}

// TestFloor_an_empty_chat_is_received: its gap can be acknowledged, which clears the row.
func TestFloor_an_empty_chat_is_received(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("team", "alice", "bob", "carol")
		for range 3 {
			c.send("alice", chat)
		}
		time.Sleep(10 * day)
		c.expire(chat)
		bob := c.open("bob")
		want(t, "bob", messagesOf(bob.drain()), "gap team 1-3")
		bob.Ack(server.Ack{Chat: chat, Acked: 3})
		settle()
		rows, _, err := c.store.PendingOf(c.ctx, "bob", "", 10)
		if err != nil || len(rows) > 0 {
			t.Errorf("rows of bob: %v, %v", rows, err)
		}
		view, err := c.Chat(c.ctx, server.Caller{User: "carol"}, chat)
		if err != nil || view.Last != nil || view.Unread.Messages != 0 || view.Floor != 4 {
			t.Errorf("the chat is %+v, %v", view, err)
		}
		c.send("alice", chat)
		want(t, "the next one", messagesOf(bob.drain()), "message team 4")
	})
}

// TestFloor_the_gap_of_an_empty_chat_may_be_late: the node has cached the members with the floor of
// before. A session that finds the chat by its row asks storage where the chat ends, and reads
// nothing. It gets the gap before the next message, also in a small chat.
func TestFloor_the_gap_of_an_empty_chat_may_be_late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("team", "alice", "bob", "carol")
		first := c.open("carol")
		want(t, "nothing yet", messagesOf(first.drain()))
		// After a clean close, the next session begins with the rows.
		if err := first.Close(c.ctx); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			c.send("alice", chat)
		}
		time.Sleep(10 * day)
		want(t, "before", messagesOf(c.open("bob").drain()),
			"message team 1", "message team 2", "message team 3")
		c.expire(chat)
		carol := c.open("carol")
		want(t, "at first", messagesOf(carol.drain()))
		c.send("alice", chat)
		want(t, "with the next one", messagesOf(carol.drain()), "gap team 1-3", "message team 4")
	})
}

// TestFloor_history_ends_at_it in both directions, and beside times without membership.
func TestFloor_history_ends_at_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("team", "alice", "bob", "carol")
		gaps := func(user tidemark.UserID, r server.HistoryRequest) (all []tidemark.Gap, n int) {
			t.Helper()
			r.Chat, r.Limit = chat, 2
			for {
				h, err := c.History(c.ctx, user, r)
				if err != nil {
					t.Fatal(err)
				}
				all, n = append(all, h.Gaps...), n+len(h.Messages)
				if !h.HasMore {
					return all, n
				}
				next := h.Next
				if r.After != nil {
					r.After = &next
				} else {
					r.Before = &next
				}
			}
		}
		gaps("bob", server.HistoryRequest{}) // The node knows the members from now on.
		c.aged(chat)
		c.expire(chat)
		first := tidemark.Sequence(0)
		expired := tidemark.Gap{ChatID: chat, From: 1, To: 5, Reason: tidemark.GapExpired}
		for name, r := range map[string]server.HistoryRequest{
			"downwards": {}, "upwards": {After: &first},
		} {
			if got, n := gaps("bob", r); n != 1 || !slices.Equal(got, []tidemark.Gap{expired}) {
				t.Errorf("%s: %d messages, gaps %v", name, n, got)
			}
		}
		if err := c.RemoveMember(c.ctx, server.Caller{User: "alice"}, chat, "carol"); err != nil {
			t.Fatal(err)
		}
		c.send("alice", chat)
		_, err := c.AddMembers(c.ctx, server.Caller{User: "alice"}, chat,
			[]tidemark.UserID{"carol"}, "")
		if err != nil {
			t.Fatal(err)
		}
		c.send("alice", chat)
		absent := tidemark.Gap{ChatID: chat, From: 7, To: 7, Reason: tidemark.GapNotMember}
		for name, r := range map[string]server.HistoryRequest{
			"downwards": {}, "upwards": {After: &first},
		} {
			got, n := gaps("carol", r)
			slices.SortFunc(got, func(a, b tidemark.Gap) int { return int(a.From) - int(b.From) })
			if n != 2 || !slices.Equal(got, []tidemark.Gap{expired, absent}) {
				t.Errorf("carol, %s: %d messages, gaps %v", name, n, got)
			}
		}
		// Another ten days later, the floor is in the time without carol.
		time.Sleep(10 * day)
		c.send("alice", chat)
		c.expire(chat)
		got, n := gaps("carol", server.HistoryRequest{After: &first})
		want := []tidemark.Gap{{ChatID: chat, From: 1, To: 8, Reason: tidemark.GapExpired}}
		if n != 1 || !slices.Equal(got, want) {
			t.Errorf("carol, later: %d messages, gaps %v", n, got)
		}
	})
}

// TestFloor_two_gaps_follow_each_other: what has expired, and then a time without membership.
func TestFloor_two_gaps_follow_each_other(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("team", "alice", "bob", "carol")
		c.send("alice", chat)
		time.Sleep(10 * day)
		alice := server.Caller{User: "alice"}
		if err := c.RemoveMember(c.ctx, alice, chat, "carol"); err != nil {
			t.Fatal(err)
		}
		c.send("alice", chat)
		if _, err := c.AddMembers(c.ctx, alice, chat, []tidemark.UserID{"carol"}, ""); err != nil {
			t.Fatal(err)
		}
		c.send("alice", chat)
		c.expire(chat)
		want(t, "carol", messagesOf(c.open("carol").drain()),
			"gap team 1-1", "gap team 2-2", "message team 3")
	})
}

// TestFloor_nothing_can_be_said_about_what_has_expired: an edit and a redaction are refused.
func TestFloor_nothing_can_be_said_about_what_has_expired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("ab", "alice", "bob")
		c.aged(chat)
		c.expire(chat)
		for i, user := range []tidemark.UserID{"alice", "bob"} {
			_, err := c.Send(c.ctx, user, tidemark.Draft{
				ChatID: chat, ClientMessageID: string(rune('a' + i)), Kind: tidemark.KindRedact,
				Relation: &tidemark.Relation{Sequence: 2},
			})
			if tidemark.CodeOf(err) != tidemark.NotFound {
				t.Errorf("redaction by %s: got %v, want NotFound", user, err)
			}
		}
	})
}

// TestFloor_an_edit_in_memory_says_nothing_that_has_expired: the node has cached the edit with its
// target. The edit is kept, and the target expires.
func TestFloor_an_edit_in_memory_says_nothing_that_has_expired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, calm)
		chat := c.chat("team", "alice", "bob", "carol")
		c.send("alice", chat)
		time.Sleep(5 * day)
		reader, other := c.open("bob"), c.open("carol")
		want(t, "at first", messagesOf(reader.drain()), "message team 1")
		want(t, "the other one", messagesOf(other.drain()), "message team 1")
		_, err := c.Send(c.ctx, "alice", tidemark.Draft{
			ChatID: chat, ClientMessageID: "edit", Content: "a secret", Kind: tidemark.KindEdit,
			Relation: &tidemark.Relation{Sequence: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "who puts the edit into memory", messagesOf(other.drain()), "message team 2")
		time.Sleep(5 * day)
		if floor := c.expire(chat); floor != 2 {
			t.Fatalf("the floor is %d, want 2", floor)
		}
		events, err := reader.Next(c.ctx, nil, false)
		if err != nil || len(events) != 1 || events[0].Type != tidemark.EventMessage {
			t.Fatalf("got %v, %v", events, err)
		}
		if text := string(events[0].Payload); strings.Contains(text, "a secret") {
			t.Errorf("the edit says what has expired: %s", text)
		}
	})
}
