package server_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// blocks lets a user block another one.
func (c *core) blocks(user, other tidemark.UserID) {
	c.t.Helper()
	if err := c.Block(c.ctx, user, other); err != nil {
		c.t.Fatalf("Block(%s, %s): %v", user, other, err)
	}
}

// writes makes the calls by which a user writes to the other one, and returns their errors.
func (c *core) writes(user tidemark.UserID, chat tidemark.ChatID) map[string]error {
	c.t.Helper()
	send := func(kind tidemark.Kind, relation *tidemark.Relation) error {
		c.sent++
		d := tidemark.Draft{
			ChatID: chat, ClientMessageID: strings.Join([]string{
				"late", string(c.node), string(user), string(kind),
			}, "-"), Kind: kind, Relation: relation,
		}
		if kind == tidemark.KindMessage || kind == tidemark.KindEdit {
			d.Content = "late"
		}
		_, err := c.Send(c.ctx, user, d)
		return err
	}
	own := tidemark.Sequence(1)
	if user == "bob" {
		own = 2
	}
	return map[string]error{
		"Send":       send(tidemark.KindMessage, nil),
		"an edit":    send(tidemark.KindEdit, &tidemark.Relation{Sequence: own}),
		"a reaction": send(tidemark.KindReact, &tidemark.Relation{Sequence: 1, Emoji: "👍"}),
		"a pin":      send(tidemark.KindPin, &tidemark.Relation{Sequence: 1}),
		"Typing":     c.Typing(c.ctx, user, chat),
	}
}

func TestBlock_blocked_is_closed_on_all_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat, group := a.chat("ab", "alice", "bob"), a.chat("abc", "alice", "bob", "carol")
		alice, bob := a.open("alice", withStatuses), b.open("bob", withStatuses)
		a.send("alice", chat)
		b.send("bob", chat)
		settle()
		alice.drain()
		bob.drain()
		a.blocks("alice", "bob")
		want(t, "alice", alice.drain(), "updated ab 2")
		want(t, "bob", bob.drain(), "updated ab 2")
		texts := map[string]bool{}
		for _, node := range []*core{a, b} {
			for _, user := range []tidemark.UserID{"alice", "bob"} {
				for call, err := range node.writes(user, chat) {
					wantCode(t, call+" by "+string(user), err, tidemark.Denied)
					texts[tidemark.DetailOf(err)] = true
				}
			}
		}
		if len(texts) != 1 {
			t.Errorf("got the texts %v, want one for all", texts)
		}
		b.ack("bob", chat, 2, 2)
		settle()
		for user, client := range map[string]*client{"alice": alice, "bob": bob} {
			for _, event := range client.drain() {
				if strings.HasPrefix(event, "message ab") || strings.HasPrefix(event, "typing") ||
					user == "alice" && strings.HasPrefix(event, "status ab bob") {
					t.Errorf("%s gets %s", user, event)
				}
			}
		}
		history, err := b.History(b.ctx, "bob", server.HistoryRequest{Chat: chat, Limit: 10})
		if err != nil || len(history.Messages) != 2 {
			t.Errorf("bob reads %d messages, %v, want 2", len(history.Messages), err)
		}
		a.send("alice", group)
		want(t, "bob in a group of both", messagesOf(bob.drain()), "message abc 1")
		if err := a.Unblock(a.ctx, "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		b.send("bob", chat)
		want(t, "alice, after she unblocked him", messagesOf(alice.drain()), "message abc 1",
			"message ab 3")
	})
}

func TestBlock_blocked_is_closed_and_a_second_block_says_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		c.blocks("alice", "bob")
		alice, bob := c.open("alice", withStatuses), c.open("bob", withStatuses)
		settle()
		alice.drain()
		bob.drain()
		for _, step := range []struct {
			what        string
			do          func(context.Context, tidemark.UserID, tidemark.UserID) error
			user, other tidemark.UserID
			want        []string
		}{
			{"alice blocks again", c.Block, "alice", "bob", nil},
			{"bob blocks, too", c.Block, "bob", "alice", nil},
			{"alice unblocks", c.Unblock, "alice", "bob", nil},
			{"alice blocks once more", c.Block, "alice", "bob", nil},
			{"bob unblocks", c.Unblock, "bob", "alice", nil},
			{"alice unblocks at last", c.Unblock, "alice", "bob", []string{"updated ab 3"}},
			{"alice unblocks again", c.Unblock, "alice", "bob", nil},
		} {
			if err := step.do(c.ctx, step.user, step.other); err != nil {
				t.Fatal(step.what, err)
			}
			settle()
			want(t, "alice, after "+step.what, alice.drain(), step.want...)
			want(t, "bob, after "+step.what, bob.drain(), step.want...)
			view, err := c.Chat(c.ctx, server.Caller{User: "bob"}, chat)
			version := uint64(2)
			if !view.Chat.State.Closed() {
				version = 3
			}
			if err != nil || view.Version != version || view.MembersVersion != version {
				t.Errorf("after %s: got the versions %d and %d, %v, want %d", step.what,
					view.Version, view.MembersVersion, err, version)
			}
		}
	})
}

func TestBlock_blocked_is_closed_until_it_is_opened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat := a.chat("ab", "alice", "bob")
		alice := a.open("alice", withStatuses)
		a.send("alice", chat)
		a.blocks("alice", "bob")
		b.ack("bob", chat, 1, 1)
		time.Sleep(10 * time.Second)
		want(t, "alice, while it is closed", statusesOf(alice.drain(), "bob"))
		if err := a.Unblock(a.ctx, "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		want(t, "alice, after it was opened", statusesOf(alice.drain(), "bob"),
			"status ab bob 1 1")
	})
}

func TestBlock_blocked_is_closed_also_to_questions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		c.send("alice", chat)
		c.send("bob", chat)
		c.ack("alice", chat, 2, 2)
		c.ack("bob", chat, 2, 2)
		c.blocks("bob", "alice")
		for _, user := range []tidemark.UserID{"alice", "bob"} {
			by := server.Caller{User: user}
			view, err := c.Chat(c.ctx, by, chat)
			if err != nil || view.Peer == nil || view.Peer.Acked != 0 || view.State.Read != 2 {
				t.Errorf("%s sees the peer %+v and their own state %+v, %v", user, view.Peer,
					view.State, err)
			}
			page, err := c.Chats(c.ctx, user, 10, "")
			if err != nil || page.Chats[0].Peer == nil || page.Chats[0].Peer.Acked != 0 {
				t.Errorf("%s lists the peer %+v, %v", user, page.Chats[0].Peer, err)
			}
			for _, limit := range []int{1, 2} {
				status, err := c.DeliveryStatus(c.ctx, by,
					server.DeliveryStatusRequest{Chat: chat, Limit: limit})
				if err != nil || status.Summary.Delivered != 1 || len(status.Members) != limit {
					t.Errorf("%s gets the status %+v, %v", user, status, err)
				}
				for _, m := range status.Members {
					if (m.Acked != 0) != (m.UserID == user) {
						t.Errorf("%s gets of %s that %d is acknowledged", user, m.UserID, m.Acked)
					}
				}
			}
			statuses, err := c.Statuses(c.ctx, user, []tidemark.ChatID{chat})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range statuses[0].Updates {
				if u.UserID != user {
					t.Errorf("%s gets the status of %s", user, u.UserID)
				}
			}
		}
		status, err := c.DeliveryStatus(c.ctx, backend,
			server.DeliveryStatusRequest{Chat: chat, Limit: 5})
		if err != nil || status.Summary.Delivered != 2 {
			t.Errorf("a backend gets the status %+v, %v", status, err)
		}
	})
}

func TestBlock_blocked_is_closed_for_new_chats_and_members(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		group := c.chat("abc", "alice", "carol", "dave")
		c.blocks("bob", "alice")
		create := func(by server.Caller, r server.CreateChatRequest) error {
			_, _, err := c.CreateChat(c.ctx, by, r)
			return err
		}
		for _, pair := range [][2]tidemark.UserID{{"alice", "bob"}, {"bob", "alice"}} {
			by, other := server.Caller{User: pair[0]}, []tidemark.UserID{pair[1]}
			wantCode(t, "a direct chat", create(by, server.CreateChatRequest{
				Type: tidemark.Direct, MemberIDs: other,
			}), tidemark.Denied)
			wantCode(t, "a group", create(by, server.CreateChatRequest{
				Type: tidemark.Group, ClientChatID: "key", MemberIDs: other,
			}), tidemark.Denied)
		}
		_, err := c.AddMembers(c.ctx, server.Caller{User: "alice"}, group,
			[]tidemark.UserID{"bob", "eve"}, "")
		wantCode(t, "AddMembers by alice", err, tidemark.Denied)
		_, err = c.AddMembers(c.ctx, backend, group, []tidemark.UserID{"bob"}, "")
		wantCode(t, "AddMembers by a backend", err, "")
		page, err := c.Blocks(c.ctx, "bob", 1, "")
		if err != nil || len(page.Blocks) != 1 || page.Blocks[0].User != "alice" {
			t.Errorf("bob has blocked %+v, %v", page, err)
		}
		wantCode(t, "a block of oneself", c.Block(c.ctx, "bob", "bob"), tidemark.Invalid)
		wantCode(t, "a bad id", c.Block(c.ctx, "bob", "a b"), tidemark.Invalid)
	})
}

func TestCreateChat_post_retry_safe_after_a_block(t *testing.T) {
	c := start(t)
	r := server.CreateChatRequest{
		Type: tidemark.Group, ClientChatID: "key", MemberIDs: []tidemark.UserID{"bob"},
	}
	by := server.Caller{User: "alice"}
	first, _, err := c.CreateChat(c.ctx, by, r)
	if err != nil {
		t.Fatal(err)
	}
	c.blocks("bob", "alice")
	again, created, err := c.CreateChat(c.ctx, by, r)
	if err != nil || created || again.ID != first.ID {
		t.Errorf("got %s, %v, %v, want %s again", again.ID, created, err, first.ID)
	}
}

func TestBlock_blocked_is_closed_whoever_is_first(t *testing.T) {
	w := newCluster(t)
	a, b := w.node("a"), w.node("b")
	chat := a.chat("ab", "alice", "bob")
	var sends sync.WaitGroup
	sends.Go(func() {
		for n := 0; ; n++ {
			_, err := b.Send(b.ctx, "bob", tidemark.Draft{
				ChatID: chat, ClientMessageID: "m" + strings.Repeat("x", n), Content: "hello",
			})
			if err != nil || n == 100 {
				return
			}
		}
	})
	a.blocks("alice", "bob")
	head := w.head(chat)
	sends.Wait()
	if got := w.head(chat); got != head {
		t.Errorf("the head is %d, and was %d when the block had answered", got, head)
	}
}

func TestBan_banned_stays_out(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := b.open("bob")
		bob.drain()
		alice := server.Caller{User: "alice"}
		for range 2 { // It may be repeated.
			if err := a.Ban(a.ctx, alice, chat, "bob"); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "bob", bob.drain(), "membership abc bob removed")
		for _, node := range []*core{a, b} {
			_, err := node.Send(node.ctx, "bob", tidemark.Draft{
				ChatID: chat, ClientMessageID: "late", Content: "late",
			})
			wantCode(t, "Send", err, tidemark.NotMember)
			_, err = node.AddMembers(node.ctx, alice, chat, []tidemark.UserID{"dave", "bob"}, "")
			wantCode(t, "AddMembers", err, tidemark.Denied)
			if err != nil && !strings.Contains(err.Error(), "bob is banned") {
				t.Errorf("AddMembers does not say who is banned: %v", err)
			}
		}
		page, err := b.Bans(b.ctx, backend, chat, 10, "")
		if err != nil || len(page.Bans) != 1 || page.Bans[0].User != "bob" {
			t.Errorf("got the bans %+v, %v", page, err)
		}
		if err := b.Unban(b.ctx, alice, chat, "bob"); err != nil {
			t.Fatal(err)
		}
		_, err = a.AddMembers(a.ctx, alice, chat, []tidemark.UserID{"bob"}, "")
		wantCode(t, "AddMembers after the ban", err, "")
	})
}

func TestBan_banned_stays_out_after_an_unknown_outcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		lost := false
		w.after.set(func(method string) error {
			if method == "Ban" && !lost {
				lost = true
				return tidemark.Errorf(tidemark.Unavailable, "the answer is lost")
			}
			return nil
		})
		if err := a.Ban(a.ctx, server.Caller{User: "alice"}, chat, "bob"); err != nil {
			t.Fatal(err)
		}
		want(t, "bob", bob.drain(), "membership abc bob removed")
	})
}

func TestBan_caller_does_only_what_they_may(t *testing.T) {
	c := start(t)
	chat, direct := c.chat("abc", "alice", "bob", "carol", "dave"), c.chat("ab", "alice", "bob")
	owner, admin := server.Caller{User: "alice"}, server.Caller{User: "bob"}
	_, err := c.UpdateMember(c.ctx, owner, chat, "bob", server.MemberChange{Role: tidemark.Admin})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what string
		by   server.Caller
		chat tidemark.ChatID
		user tidemark.UserID
		want tidemark.Code
	}{
		{"an admin bans the owner", admin, chat, "alice", tidemark.Denied},
		{"a member bans a member", server.Caller{User: "dave"}, chat, "carol", tidemark.Denied},
		{"a stranger", server.Caller{User: "mallory"}, chat, "carol", tidemark.NotMember},
		{"the owner bans themselves", owner, chat, "alice", tidemark.Invalid},
		{"of a direct chat", owner, direct, "bob", tidemark.Denied},
		{"of an unknown chat", backend, "unknown", "bob", tidemark.NotFound},
		{"a bad id", owner, chat, "a b", tidemark.Invalid},
		{"an admin bans a member", admin, chat, "carol", ""},
		{"an admin bans a stranger", admin, chat, "mallory", ""},
		{"a backend bans the owner", backend, chat, "alice", ""},
	} {
		wantCode(t, tc.what, c.Ban(c.ctx, tc.by, tc.chat, tc.user), tc.want)
	}
	_, err = c.Bans(c.ctx, server.Caller{User: "dave"}, chat, 10, "")
	wantCode(t, "a member lists the bans", err, tidemark.Denied)
	wantCode(t, "a member lifts a ban", c.Unban(c.ctx, server.Caller{User: "dave"}, chat, "carol"),
		tidemark.Denied)
}

func TestCreateChat_caller_does_only_what_they_may_by_backends(t *testing.T) {
	c := start(t, func(cfg *server.Config) { cfg.OnlyBackendsOpen = true })
	r := server.CreateChatRequest{
		Type: tidemark.Group, ClientChatID: "key", MemberIDs: []tidemark.UserID{"bob"},
	}
	for _, tc := range []struct {
		what string
		by   server.Caller
		want tidemark.Code
	}{
		{"a user", server.Caller{User: "alice"}, tidemark.Denied},
		{"a backend for a user", server.Caller{User: "alice", Backend: true}, ""},
		{"a backend", backend, ""},
	} {
		_, _, err := c.CreateChat(c.ctx, tc.by, r)
		wantCode(t, tc.what, err, tc.want)
	}
}

func TestBlock_blocked_is_closed_to_presence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		c.open("alice")
		c.open("bob")
		time.Sleep(2 * time.Second)
		online := func() []tidemark.UserID {
			all, err := c.Presence(c.ctx, "alice", []tidemark.ChatID{chat})
			if err != nil {
				t.Fatal(err)
			}
			var users []tidemark.UserID
			for _, m := range all[0].Members {
				if m.Online {
					users = append(users, m.UserID)
				}
			}
			return users
		}
		if got := online(); !slices.Contains(got, "bob") {
			t.Fatalf("%v are online before the block, want bob among them", got)
		}
		c.blocks("bob", "alice")
		if got := online(); len(got) != 0 {
			t.Errorf("%v are online in a closed chat", got)
		}
	})
}
