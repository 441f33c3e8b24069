package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// TestUpdateChat_reaches_all_members_on_all_nodes: also in groups above 50 members. Strangers and
// former members get nothing.
func TestUpdateChat_reaches_all_members_on_all_nodes(t *testing.T) {
	for _, members := range []int{3, 60} {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			a, b := w.node("a"), w.node("b")
			users := []tidemark.UserID{"alice", "bob", "carol"}
			for i := len(users); i < members; i++ {
				users = append(users, tidemark.UserID(fmt.Sprint("u", i)))
			}
			chat := a.chat("team", users...)
			alice, bob, carol := a.open("alice"), b.open("bob"), b.open("carol")
			dave := b.open("dave")
			a.remove(chat, "carol")
			settle()
			for _, c := range []*client{alice, bob, carol, dave} {
				c.drain()
			}
			name := "Crew"
			got, err := a.UpdateChat(a.ctx, server.Caller{User: "alice"}, chat,
				server.ChatChange{Name: &name, Metadata: json.RawMessage(`{"color":"teal"}`)})
			if err != nil || got.Name != name || got.Chat.Version != 2 ||
				string(got.Metadata) != `{"color":"teal"}` {
				t.Fatalf("got %+v, %v, want Crew in version 2", got.Chat, err)
			}
			settle()
			want(t, "alice", alice.drain(), "updated team 2")
			want(t, "bob", bob.drain(), "updated team 2")
			want(t, "carol, who was removed", carol.drain())
			want(t, "dave, who never was a member", dave.drain())

			for _, object := range []string{`{}`, " { } "} {
				got, err = a.UpdateChat(a.ctx, server.Caller{User: "alice"}, chat,
					server.ChatChange{Metadata: json.RawMessage(object)})
				if err != nil || got.Metadata != nil || got.Chat.Version != 3 || got.Name != name {
					t.Errorf("%q: got %+v, %v, want version 3 without metadata", object, got.Chat,
						err)
				}
			}
			// A client that comes back gets one event for all changes that it missed.
			settle()
			want(t, "bob, later", bob.drain(), "updated team 3")
		})
	}
}

// TestUpdateChat_nothing_outside_membership: the event reaches the node of a member after their
// removal, when the node knows the members.
func TestUpdateChat_nothing_outside_membership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := b.open("bob")
		settle()
		bob.drain()
		var late func() error
		w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if e.Update != nil && to.ID == "b" {
				late = send
				return nil
			}
			return send()
		})
		name := "Crew"
		if _, err := a.UpdateChat(a.ctx, server.Caller{User: "alice"}, chat,
			server.ChatChange{Name: &name}); err != nil {
			t.Fatal(err)
		}
		a.remove(chat, "bob")
		settle()
		b.send("carol", chat) // the node knows the members now
		settle()
		if err := late(); err != nil {
			t.Fatal(err)
		}
		settle()
		want(t, "bob", bob.drain(), "membership abc bob removed")
	})
}

// TestUpdateChat_of_too_much_is_refused has what the schema cannot say.
func TestUpdateChat_of_too_much_is_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		long := strings.Repeat("x", tidemark.MaxChatName+1)
		for what, test := range map[string]struct {
			change server.ChatChange
			want   tidemark.Code
		}{
			"a long name": {server.ChatChange{Name: &long}, tidemark.TooLarge},
			"long metadata": {
				server.ChatChange{Metadata: json.RawMessage(`{"a":"` +
					strings.Repeat("x", tidemark.MaxMetadata) + `"}`)}, tidemark.TooLarge,
			},
			"an array": {server.ChatChange{Metadata: json.RawMessage(`[]`)}, tidemark.Invalid},
		} {
			_, err := a.UpdateChat(a.ctx, server.Caller{User: "alice"}, chat, test.change)
			wantCode(t, what, err, test.want)
		}
	})
}

// TestCreateChat_post_retry_safe_with_metadata: they belong to the request.
func TestCreateChat_post_retry_safe_with_metadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		create := func(metadata string) (server.ChatView, bool, error) {
			return a.CreateChat(a.ctx, server.Caller{User: "alice"}, server.CreateChatRequest{
				ClientChatID: "k", Type: tidemark.Group, Metadata: json.RawMessage(metadata),
			})
		}
		first, created, err := create(`{"a":1}`)
		if err != nil || !created || string(first.Metadata) != `{"a":1}` {
			t.Fatalf("got %+v, %v, %v", first.Chat, created, err)
		}
		again, created, err := create(`{"a":1}`)
		if err != nil || created || again.ID != first.ID || string(again.Metadata) != `{"a":1}` {
			t.Errorf("again: got %+v, %v, %v, want the first chat", again.Chat, created, err)
		}
		_, _, err = create(`{"a":2}`)
		wantCode(t, "other metadata", err, tidemark.Conflict)
	})
}

// The id of a client_chat_id can be computed by anyone. Nobody can take it before its owner.
func TestChats_post_retry_safe_although_the_id_can_be_computed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, other := w.node("a"), newCluster(t).node("b")
		request := server.CreateChatRequest{Type: tidemark.Group, ClientChatID: "order-17"}
		alice := server.Caller{User: "alice"}
		computed, _, err := other.CreateChat(other.ctx, alice, request)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = a.CreateChat(a.ctx, server.Caller{User: "mallory"},
			server.CreateChatRequest{Type: tidemark.Group, ChatID: computed.Chat.ID})
		if tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("another user takes the id: %v", err)
		}
		if _, created, err := a.CreateChat(a.ctx, alice, request); err != nil || !created {
			t.Errorf("its owner: %v, %v", created, err)
		}
	})
}
