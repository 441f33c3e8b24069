package server_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// roles returns the role of each member of a chat, as a backend without a user sees them.
func (c *core) roles(id tidemark.ChatID) map[tidemark.UserID]tidemark.Role {
	c.t.Helper()
	page, err := c.Members(c.ctx, server.Caller{Backend: true}, id, 100, "")
	if err != nil {
		c.t.Fatal(err)
	}
	roles := make(map[tidemark.UserID]tidemark.Role)
	for _, m := range page.Members {
		roles[m.UserID] = m.Role
	}
	return roles
}

// TestBackend_without_a_user_creates_groups_without_an_owner: nobody becomes an owner until a
// backend makes somebody one.
func TestBackend_without_a_user_creates_groups_without_an_owner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		backend := server.Caller{Backend: true}
		bob := b.open("bob")
		settle()
		bob.drain()
		view, created, err := a.CreateChat(a.ctx, backend, server.CreateChatRequest{
			Type: tidemark.Group, ChatID: "team",
			MemberIDs: []tidemark.UserID{"carol", "bob", "alice", "bob"},
		})
		if err != nil || !created || view.MemberCount != 3 || view.State.UserID != "" {
			t.Fatalf("got %+v, created %v, %v", view, created, err)
		}
		settle()
		want(t, "bob", bob.drain(), "membership team bob added")
		ordinary := tidemark.Ordinary
		members := map[tidemark.UserID]tidemark.Role{
			"alice": ordinary, "bob": ordinary, "carol": ordinary,
		}
		if diff := cmp.Diff(members, b.roles("team")); diff != "" {
			t.Errorf("members (-want +got):\n%s", diff)
		}
		name := "x"
		_, err = a.UpdateChat(a.ctx, server.Caller{User: "bob"}, "team",
			server.ChatChange{Name: &name})
		wantCode(t, "a member renames it", err, tidemark.Denied)

		if err := b.RemoveMember(b.ctx, server.Caller{User: "bob"}, "team", "bob"); err != nil {
			t.Fatal(err)
		}
		if err := b.RemoveMember(b.ctx, backend, "team", "carol"); err != nil {
			t.Fatal(err)
		}
		members = map[tidemark.UserID]tidemark.Role{"alice": ordinary}
		if diff := cmp.Diff(members, a.roles("team")); diff != "" {
			t.Errorf("members after two have gone (-want +got):\n%s", diff)
		}
		a.become("team", "alice", tidemark.Owner)
		if _, err := b.AddMembers(b.ctx, server.Caller{User: "alice"}, "team",
			[]tidemark.UserID{"dave"}, ""); err != nil {
			t.Errorf("the owner whom the backend made: %v", err)
		}
	})
}

// TestBackend_without_a_user_post_retry_safe: all backends count as one creator, which is not a
// user.
func TestBackend_without_a_user_post_retry_safe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		backend := server.Caller{Backend: true}
		r := server.CreateChatRequest{
			Type: tidemark.Group, ClientChatID: "k", MemberIDs: []tidemark.UserID{"alice", "bob"},
		}
		first, created, err := a.CreateChat(a.ctx, backend, r)
		if err != nil || !created {
			t.Fatalf("the first: created %v, %v", created, err)
		}
		again, created, err := b.CreateChat(b.ctx, backend, r)
		if again.ID != first.ID || created || err != nil {
			t.Errorf("again: chat %s, created %v, %v", again.ID, created, err)
		}
		r.MemberIDs = r.MemberIDs[1:]
		other, created, err := a.CreateChat(a.ctx, server.Caller{User: "alice", Backend: true}, r)
		if other.ID == first.ID || !created || err != nil {
			t.Errorf("the key of a user: chat %s, created %v, %v", other.ID, created, err)
		}
		_, _, err = b.CreateChat(b.ctx, backend, r)
		wantCode(t, "with other members", err, tidemark.Conflict)
		r.ChatID, r.ClientChatID, r.MemberIDs = "empty", "", nil
		for _, want := range []bool{true, false} {
			view, created, err := a.CreateChat(a.ctx, backend, r)
			if err != nil || created != want || view.MemberCount != 0 {
				t.Errorf("nobody in it: %+v, created %v, %v", view, created, err)
			}
		}
	})
}

// TestBackend_without_a_user_sees_chats_but_nothing_of_a_user reads chats of every type and
// members.
func TestBackend_without_a_user_sees_chats_but_nothing_of_a_user(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		backend := server.Caller{Backend: true}
		create := func(users ...tidemark.UserID) (server.ChatView, bool, error) {
			return a.CreateChat(a.ctx, backend, server.CreateChatRequest{
				Type: tidemark.Direct, ChatID: "pair", MemberIDs: users,
			})
		}
		for _, users := range [][]tidemark.UserID{
			nil, {"alice"}, {"alice", "alice"}, {"alice", "bob", "carol"}, {"alice", ""},
		} {
			_, _, err := create(users...)
			wantCode(t, "a direct chat", err, tidemark.Invalid)
			if got := tidemark.ParamOf(err); got != "member_ids" {
				t.Errorf("%q: the error is about %q: %v", users, got, err)
			}
		}
		for _, want := range []bool{true, false} {
			view, created, err := create("bob", "alice")
			if err != nil || created != want || view.Peer != nil {
				t.Errorf("got %+v, created %v, %v, want created %v", view, created, err, want)
			}
		}
		group := a.chat("team", "alice", "bob", "carol")
		for _, id := range []tidemark.ChatID{"pair", group} {
			a.send("alice", id)
			settle()
			got, err := a.Chat(a.ctx, backend, id)
			stored, err2 := a.Chat(a.ctx, server.Caller{User: "alice"}, id)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			want := server.ChatView{Chat: stored.Chat}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", id, diff)
			}
		}
		_, err := a.Chat(a.ctx, backend, "nowhere")
		wantCode(t, "no chat", err, tidemark.NotFound)
		_, err = a.Members(a.ctx, backend, "nowhere", 10, "")
		wantCode(t, "members of no chat", err, tidemark.NotFound)
		_, err = a.Chat(a.ctx, server.Caller{}, group)
		wantCode(t, "nobody", err, tidemark.NotMember)
		page, err := a.Members(a.ctx, backend, group, 1, "")
		if err != nil || len(page.Members) != 1 || page.NextCursor == "" {
			t.Errorf("a page of members: %+v, %v", page, err)
		}
		if got := slices.Sorted(maps.Keys(a.roles("pair"))); len(got) != 2 || got[0] != "alice" {
			t.Errorf("members of the direct chat: %v", got)
		}
	})
}
