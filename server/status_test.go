package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

func TestStatus_delivery_query_authorization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		ask := func(user tidemark.UserID) error {
			_, err := a.DeliveryStatus(a.ctx, server.Caller{User: user},
				server.DeliveryStatusRequest{Chat: chat, Limit: 10})
			return err
		}
		wantCode(t, "a member", ask("bob"), "")
		wantCode(t, "a stranger", ask("eve"), tidemark.NotMember)
		a.remove(chat, "bob")
		wantCode(t, "a former member", ask("bob"), tidemark.NotMember)
		_, err := a.DeliveryState(a.ctx, "bob", chat)
		wantCode(t, "a former member's own state", err, tidemark.NotMember)
		for n, code := range map[tidemark.Sequence]tidemark.Code{
			0: tidemark.InvalidSequence, 1: "", 2: tidemark.InvalidSequence,
		} {
			_, err := a.DeliveryStatus(a.ctx, server.Caller{User: "carol"},
				server.DeliveryStatusRequest{
					Chat:        chat,
					ForSequence: &n,
					Limit:       10,
				})
			wantCode(t, fmt.Sprintf("for_sequence %d of 1", n), err, code)
		}
	})
}

func TestStatus_group_delivered_requires_all_members(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		settle()
		delivered := func() string {
			s, err := a.DeliveryStatus(a.ctx, server.Caller{User: "alice"},
				server.DeliveryStatusRequest{Chat: chat, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d of %d", s.Summary.Delivered, s.Summary.Members)
		}
		steps := []string{delivered()}
		a.ack("bob", chat, 1, 0)
		steps = append(steps, delivered())
		a.ack("carol", chat, 1, 0)
		steps = append(steps, delivered())
		a.add(chat, "dave")
		steps = append(steps, delivered())
		a.remove(chat, "dave")
		steps = append(steps, delivered())
		want(t, "delivered", steps, "1 of 3", "2 of 3", "3 of 3", "3 of 4", "3 of 3")
		settle()
	})
}

// TestStatus_of_an_author_as_a_reader: who has read everything before their message has read the
// message, in both answers. A bot that declines reading has not: it is a reader of its own message
// in the answer about this message, and holds the sequence back that all have read.
func TestStatus_of_an_author_as_a_reader(t *testing.T) {
	for _, tc := range []struct {
		who     string
		members int
		seen    tidemark.Seen
		told    string
	}{
		{"a person", 3, tidemark.Seen{}, "status team alice 2 2"},
		{"a person who says what they saw", 3, tidemark.SeenThrough(1), "status team alice 2 2"},
		{"a bot", 3, tidemark.SeenThrough(0), "status team alice 2 0"},
		{"a person", 60, tidemark.Seen{}, "status team all 2 2"},
		{"a person who says what they saw", 60, tidemark.SeenThrough(1), "status team all 2 2"},
		{"a bot", 60, tidemark.SeenThrough(0), "status team all 2 0"},
	} {
		t.Run(fmt.Sprint(tc.who, " of ", tc.members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a := w.node("a")
				users := []tidemark.UserID{"alice"}
				for i := range tc.members - 1 {
					users = append(users, tidemark.UserID(fmt.Sprintf("u%02d", i)))
				}
				chat := a.chat("team", users...)
				a.send(users[1], chat)
				a.ack("alice", chat, 1, 0)
				settle()
				_, err := a.Send(a.ctx, "alice", tidemark.Draft{
					ChatID: chat, ClientMessageID: "2", Content: "hello", Seen: tc.seen,
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, u := range users[1:] {
					a.ack(u, chat, 2, 2)
				}
				settle()
				told := statusesOf(a.open("u01", withStatuses).drain(), "alice", "all")
				want(t, "the snapshot of a reader", told, tc.told)
				s, err := a.DeliveryStatus(a.ctx, server.Caller{User: "u01"},
					server.DeliveryStatusRequest{
						Chat: chat, Limit: 1,
					})
				if err != nil || s.Summary.Read != tc.members {
					t.Errorf("the answer about the message has %d readers of %d (%v), want all",
						s.Summary.Read, tc.members, err)
				}
			})
		})
	}
}

func TestStatus_read_implies_delivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		alice := a.open("alice")
		settle()
		alice.drain()
		a.ack("bob", chat, 0, 3)
		settle()
		want(t, "pushed", alice.drain(), "status ab bob 3 3")
		want(t, "in a snapshot", a.open("alice", withStatuses).drain(), "open resumed=false",
			"caught_up", "status ab alice 3 3", "status ab bob 3 3")
		s, err := a.DeliveryStatus(a.ctx, server.Caller{User: "alice"},
			server.DeliveryStatusRequest{Chat: chat, Limit: 10})
		if err != nil || s.Summary.Delivered != 2 || s.Summary.Least.Acked != 3 {
			t.Errorf("asked: got %+v, %v, want 2 delivered, least 3", s.Summary, err)
		}
		w.wantState("bob's stored state stays raw", "bob", chat, 0, 3)
	})
}

func TestStatus_delivered_not_causal_across_chats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		ab, bc := a.chat("ab", "alice", "bob"), a.chat("bc", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", ab)
		a.send("carol", bc)
		events, err := bob.Next(a.ctx, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]bool{}
		for _, e := range events {
			if e.Type != tidemark.EventMessage {
				continue
			}
			var m map[string]json.RawMessage
			if err := json.Unmarshal(e.Payload, &m); err != nil {
				t.Fatal(err)
			}
			if string(m["sequence"]) != "1" {
				t.Errorf("got sequence %s in %s, want 1: each chat counts its own",
					m["sequence"], m["chat_id"])
			}
			for name := range m {
				fields[name] = true
			}
		}
		allowed := []string{
			"message_id", "chat_id", "sequence", "sender_id", "client_message_id", "content",
			"content_type", "kind", "relation", "revision", "mentions", "attachments", "metadata",
			"created_at", "members_version",
		}
		for name := range fields {
			if !slices.Contains(allowed, name) {
				t.Errorf("a message has the new field %q: it must not order across chats", name)
			}
		}
		if len(fields) == 0 {
			t.Error("got no message")
		}
	})
}

func TestStatus_coalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		for range 200 {
			a.send("alice", chat)
		}
		settle()
		alice, carol := a.open("alice"), a.open("carol")
		alice.drain()
		carol.drain()
		stops := []func() []string{alice.collect(), carol.collect()}
		for n := range 100 {
			a.ack("bob", chat, tidemark.Sequence(n+1), 0)
			time.Sleep(time.Millisecond)
		}
		settle()
		for i, stop := range stops {
			got := statusesOf(stop(), "bob")
			if len(got) > 2 || len(got) == 0 || got[len(got)-1] != "status abc bob 100 0" {
				t.Errorf("member %d: got %v, want at most 2 updates, the last of them at 100",
					i, got)
			}
		}
	})
}

// TestStatus_one_unsent_boundary_per_member: a session that is not read holds at most one boundary
// per chat and member.
func TestStatus_one_unsent_boundary_per_member(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 20 {
			a.send("alice", chat)
		}
		settle()
		alice := a.open("alice")
		alice.drain()
		for n := range 20 {
			a.ack("bob", chat, tidemark.Sequence(n+1), 0)
			settle()
		}
		want(t, "alice, who did not read", alice.drain(), "status ab bob 20 0")
	})
}

func TestStatus_tick_monotone_aggregate_never_falls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		users := []tidemark.UserID{"alice"}
		for i := range 50 {
			users = append(users, tidemark.UserID(fmt.Sprintf("u%02d", i)))
		}
		chat := a.chat("big", users...)
		a.send("alice", chat)
		settle()
		alice := a.open("alice")
		alice.drain()
		acks := func(n tidemark.Sequence) {
			for _, u := range users[1:] {
				a.ack(u, chat, n, 0)
			}
			settle()
		}
		acks(1)
		want(t, "all have the first", alice.drain(), "status big all 1 0")
		a.add(chat, "zoe")
		settle()
		a.send("alice", chat)
		acks(2)
		for _, l := range alice.drain() {
			if strings.HasPrefix(l, "status") {
				t.Errorf("the aggregate moved while zoe has acknowledged nothing: %s", l)
			}
		}
		a.ack("zoe", chat, 2, 0)
		settle()
		want(t, "all have the second", alice.drain(), "status big all 2 0")
		a.send("alice", chat)
		acks(3)
		alice.drain()
		a.remove(chat, "zoe")
		settle()
		want(t, "removing the last member without it", alice.drain(),
			"membership big zoe removed", "status big all 3 0")
		a.add(chat, "yan")
		a.ack("yan", chat, 1, 0)
		settle()
		want(t, "a new member who has the first one only", statusesOf(alice.drain(), "all"))
	})
}

// TestStatus_group_that_becomes_small_says_who_has_what: while it was large, the boundaries of its
// members were not published one by one.
func TestStatus_group_that_becomes_small_says_who_has_what(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		users := []tidemark.UserID{"alice"}
		for i := range tidemark.StatusFanoutLimit {
			users = append(users, tidemark.UserID(fmt.Sprintf("u%02d", i)))
		}
		chat := a.chat("big", users...)
		a.send("alice", chat)
		alice := b.open("alice")
		alice.drain()
		late, others := users[1], users[2:]
		var wanted []string
		for _, u := range others {
			a.ack(u, chat, 1, 1)
			wanted = append(wanted, fmt.Sprintf("status big %s 1 1", u))
		}
		settle()
		want(t, "one member has nothing", alice.drain())
		a.remove(chat, late)
		settle()
		got := statusesOf(alice.drain())
		slices.Sort(got)
		want(t, "the last one without it has gone", got, wanted...)
	})
}

// TestStatus_group_that_becomes_small_by_two_removals_at_once: the first one reads the members when
// the second one has been made as well.
func TestStatus_group_that_becomes_small_by_two_removals_at_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		users := []tidemark.UserID{"alice"}
		for i := range tidemark.StatusFanoutLimit {
			users = append(users, tidemark.UserID(fmt.Sprintf("u%02d", i)))
		}
		chat := a.chat("big", users...)
		a.send("alice", chat)
		alice := a.open("alice")
		alice.drain()
		a.ack("u00", chat, 1, 1)
		settle()
		removing, removed := false, false
		w.before.set(func(method string) error {
			if method == "RemoveMember" {
				removing = true
			}
			if method == "Rosters" && removing && !removed {
				removed = true
				b.remove(chat, "u02")
			}
			return nil
		})
		a.remove(chat, "u01")
		w.before.clear()
		settle()
		want(t, "of a chat that has become small", statusesOf(alice.drain(), "alice", "u00"),
			"status big u00 1 1")
	})
}

func TestStatus_snapshot_follows_caught_up(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		a.send("bob", chat)
		a.ack("bob", chat, 1, 1)
		a.send("alice", chat)
		settle()
		a.ack("bob", chat, 3, 0)
		a.open("nobody").drain()
		want(t, "with statuses", a.open("alice", withStatuses).drain(),
			"open resumed=false", "message ab 2", "message ab 3", "caught_up",
			"status ab alice 1 1", "status ab bob 3 2")
		want(t, "without", a.open("alice").drain(),
			"open resumed=false", "message ab 2", "message ab 3", "caught_up")
		alice := a.open("alice")
		alice.drain()
		a.ack("bob", chat, 3, 3)
		settle()
		want(t, "a raise reaches both sessions", alice.drain(), "status ab bob 3 3")
	})
}

// What others acknowledge while a user is no member reaches the user's session when they return.
func TestStatus_delivered_is_eventually_consistent_after_a_return(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := b.open("bob")
		a.send("bob", chat)
		settle()
		bob.drain()
		a.remove(chat, "bob")
		a.ack("alice", chat, 1, 1)
		a.ack("carol", chat, 1, 0)
		settle()
		want(t, "a former member", bob.drain(), "membership abc bob removed")
		a.add(chat, "bob")
		settle()
		want(t, "a member again", statusesOf(bob.drain(), "alice", "carol"),
			"status abc alice 1 1", "status abc carol 1 0")
	})
}

// The session need not have had an event of the chat before: Bob sends without a session, and opens
// one later.
func TestStatus_delivered_is_eventually_consistent_after_a_return_to_a_silent_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		small := a.chat("abc", "alice", "bob", "carol")
		many := crowd(tidemark.StatusFanoutLimit + 1)
		large := a.chat("large", many...)
		chats := []tidemark.ChatID{small, large}
		for _, chat := range chats {
			a.send("bob", chat)
		}
		settle()
		bob := b.open("bob", withStatuses)
		settle()
		bob.drain()
		for _, chat := range chats {
			a.remove(chat, "bob")
		}
		a.ack("alice", small, 1, 1)
		for _, user := range many {
			if user != "bob" {
				a.ack(user, large, 1, 1)
			}
		}
		settle()
		bob.drain()
		for _, chat := range chats {
			a.add(chat, "bob")
		}
		settle()
		want(t, "a member again", statusesOf(bob.drain(), "alice", "large"),
			"status large all 1 1", "status abc alice 1 1")
	})
}

// A chat has no unread messages from a time when the user was no member, however many there are.
func TestChat_nothing_outside_membership_in_the_unread_count(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		a.ack("bob", chat, 1, 1)
		settle()
		a.remove(chat, "bob")
		for range 210 {
			a.send("alice", chat)
		}
		a.add(chat, "bob")
		for unread := range int64(3) {
			view, err := a.Chat(a.ctx, server.Caller{User: "bob"}, chat)
			page, listErr := a.Chats(a.ctx, "bob", 10, "")
			if err != nil || listErr != nil {
				t.Fatal(err, listErr)
			}
			if view.Unread.Messages != unread || page.Chats[0].Unread != view.Unread {
				t.Errorf("got %v unread, and %v in the list, want %d",
					view.Unread, page.Chats[0].Unread, unread)
			}
			a.send("alice", chat)
		}
		settle()
	})
}

// A client that polls the status of a direct chat causes one read of both states.
func TestStatus_few_round_trips_for_a_direct_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		a.ack("bob", chat, 1, 1)
		settle()
		before := a.store.Snapshot()
		got, err := a.DeliveryStatus(a.ctx, server.Caller{User: "alice"},
			server.DeliveryStatusRequest{Chat: chat, Limit: 50})
		if err != nil {
			t.Fatal(err)
		}
		sum := storage.Summary{
			Members: 2, Delivered: 2, Read: 2, Least: tidemark.Boundary{Acked: 1, Read: 1},
		}
		if got.Summary != sum ||
			len(got.Members) != 2 || got.Members[0].UserID != "alice" || got.Members[1].Read != 1 {
			t.Errorf("got %+v", got)
		}
		calls := a.since(before).Calls
		if calls["States"] != 1 || calls["Summary"] != 0 || calls["StatesIn"] != 0 {
			t.Errorf("got the calls %v, want one of States", calls)
		}
		page, err := a.DeliveryStatus(a.ctx, server.Caller{User: "alice"},
			server.DeliveryStatusRequest{Chat: chat, Limit: 1})
		if err != nil || len(page.Members) != 1 || page.NextCursor == "" {
			t.Errorf("a page of one: %+v, %v", page, err)
		}
	})
}

// A list of chats has what a client needs for the titles and ticks of direct chats. It takes two
// reads, however many chats there are.
func TestChats_few_round_trips_for_the_peers_of_direct_chats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		made, _, err := a.CreateChat(a.ctx, server.Caller{User: "alice"}, server.CreateChatRequest{
			Type: tidemark.Direct, MemberIDs: []tidemark.UserID{"zoe"},
		})
		if err != nil || made.Peer == nil || made.Peer.UserID != "zoe" {
			t.Fatalf("a new chat: %+v, %v", made, err)
		}
		group := a.chat("abc", "alice", "bob", "carol")
		for _, peer := range []tidemark.UserID{"bob", "carol", "dave"} {
			chat := a.chat(tidemark.ChatID("with-"+peer), "alice", peer)
			a.send("alice", chat)
			a.ack(peer, chat, 1, 1)
		}
		settle()
		nodesTrust()
		for _, round := range []string{"the first time", "again"} {
			before := a.store.Snapshot()
			page, err := a.Chats(a.ctx, "alice", 10, "")
			if err != nil {
				t.Fatal(err)
			}
			got := map[tidemark.ChatID]string{}
			for _, c := range page.Chats {
				if got[c.ID] = "none"; c.Peer != nil {
					got[c.ID] = fmt.Sprint(c.Peer.UserID, " ", c.Peer.Read)
				}
			}
			want := map[tidemark.ChatID]string{
				group: "none", made.ID: "zoe 0",
				"with-bob": "bob 1", "with-carol": "carol 1", "with-dave": "dave 1",
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: got the peers %v, want %v", round, got, want)
			}
			if calls := a.since(before).Calls; calls["States"] != 1 || calls["Rosters"] > 1 {
				t.Errorf("%s: got the calls %v", round, calls)
			}
		}
		// A chat alone has the same, by one read of states.
		for id, want := range map[tidemark.ChatID]*tidemark.DeliveryState{
			group: nil, "with-bob": {UserID: "bob", ChatID: "with-bob", Acked: 1, Read: 1},
		} {
			before := a.store.Snapshot()
			view, err := a.Chat(a.ctx, server.Caller{User: "alice"}, id)
			if err != nil || view.State.UserID != "alice" || (view.Peer == nil) != (want == nil) ||
				want != nil && (view.Peer.UserID != want.UserID || view.Peer.Read != want.Read) {
				t.Errorf("%s: got %+v of %+v, %v, want %+v", id, view.Peer, view.State, err, want)
			}
			if calls := a.since(before).Calls; calls["States"] != 1 {
				t.Errorf("%s: got the calls %v", id, calls)
			}
		}
	})
}
