package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// rolesTable says who may do what in a group. There is a row for each verb, and a column for each
// caller. The group has an owner, an admin, a member and a reader, and a second one of each role.
// key is a backend that calls for a stranger, and backend calls without a user. + means that the
// call succeeds, D is DENIED, N is NOT_A_MEMBER, I is INVALID.
const rolesTable = `
verb                  owner admin member reader stranger key backend
rename                +     +     D      D      N        +   +
add                   +     +     D      D      N        +   +
add owner             +     D     D      D      N        +   +
add admin             +     D     D      D      N        +   +
add member            +     +     D      D      N        +   +
add reader            +     +     D      D      N        +   +
remove owner2         +     D     D      D      N        +   +
remove admin2         +     D     D      D      N        +   +
remove member2        +     +     D      D      N        +   +
remove reader2        +     +     D      D      N        +   +
remove SELF           +     +     +      +      +        +   I
make owner2 admin     +     D     D      D      N        +   +
make admin2 owner     +     D     D      D      N        +   +
make admin2 member    +     D     D      D      N        +   +
make member2 owner    +     D     D      D      N        +   +
make member2 admin    +     D     D      D      N        +   +
make member2 reader   +     +     D      D      N        +   +
make reader2 member   +     +     D      D      N        +   +
make reader2 admin    +     D     D      D      N        +   +
describe owner2       +     D     D      D      N        + +
describe admin2       +     D     D      D      N        + +
describe member2      +     +     D      D      N        + +
describe reader2      +     +     D      D      N        + +
describe owner        +     D     D      D      N        + +
describe admin        +     +     D      D      N        + +
describe member       +     +     D      D      N        + +
describe reader       +     +     D      D      N        + +
make owner admin      +     D     D      D      N        +   +
make admin reader     +     +     D      D      N        +   +
make admin owner      +     D     D      D      N        +   +
make member reader    +     +     D      D      N        +   +
make member admin     +     D     D      D      N        +   +
make reader member    +     +     D      D      N        +   +
send                  +     +     +      D      N        N   I
call everybody        +     +     D      D      N        N   I
type                  +     +     +      D      N        N   N
read                  +     +     +      +      N        N   N
`

// TestRoles_caller_does_only_what_they_may tries every verb as every caller, on a node that has
// seen the roles and on one that has not.
func TestRoles_caller_does_only_what_they_may(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(rolesTable), "\n")
	callers := strings.Fields(lines[0])[1:]
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		nodes := []*core{w.node("a"), w.node("b")}
		for n, line := range lines[1:] {
			words := strings.Fields(line)
			verb, outcomes := words[:len(words)-len(callers)], words[len(words)-len(callers):]
			for i, name := range callers {
				id := tidemark.ChatID(fmt.Sprintf("g%d-%d", n, i))
				nodes[0].ranks(id)
				c := server.Caller{User: tidemark.UserID(name)}
				switch name {
				case "key":
					c = server.Caller{User: "stranger", Backend: true}
				case "backend":
					c = server.Caller{Backend: true}
				}
				err := try(nodes[i%2], c, id, verb)
				got, known := map[tidemark.Code]string{
					"": "+", tidemark.Denied: "D", tidemark.NotMember: "N", tidemark.Invalid: "I",
				}[tidemark.CodeOf(err)]
				if !known || got != outcomes[i] {
					t.Errorf("%s, as %s: %v, want %s", strings.Join(verb, " "), name, err,
						outcomes[i])
				}
			}
		}
	})
}

// ranks creates a group with two members of each role.
func (c *core) ranks(id tidemark.ChatID) {
	c.t.Helper()
	c.chat(id, "owner", "owner2", "admin", "admin2", "member", "member2", "reader", "reader2")
	for _, role := range []tidemark.Role{tidemark.Owner, tidemark.Admin, tidemark.Reader} {
		for _, user := range []string{string(role), string(role) + "2"} {
			c.become(id, tidemark.UserID(user), role)
		}
	}
}

// become has a backend give a user a role.
func (c *core) become(id tidemark.ChatID, user tidemark.UserID, role tidemark.Role) {
	c.t.Helper()
	_, err := c.UpdateMember(c.ctx, server.Caller{User: "system", Backend: true}, id, user,
		server.MemberChange{Role: role})
	if err != nil {
		c.t.Fatalf("%s becomes %s: %v", user, role, err)
	}
}

// try does what a row of rolesTable says.
func try(node *core, c server.Caller, id tidemark.ChatID, verb []string) error {
	ctx := node.ctx
	update := func(change server.MemberChange) error {
		_, err := node.UpdateMember(ctx, c, id, tidemark.UserID(verb[1]), change)
		return err
	}
	draft := tidemark.Draft{
		ChatID: id, ClientMessageID: "m", Content: "x",
		ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
	}
	switch verb[0] {
	case "rename":
		name := "Crew"
		_, err := node.UpdateChat(ctx, c, id, server.ChatChange{Name: &name})
		return err
	case "add":
		var role tidemark.Role
		if len(verb) > 1 {
			role = tidemark.Role(verb[1])
		}
		_, err := node.AddMembers(ctx, c, id, []tidemark.UserID{"new"}, role)
		return err
	case "remove":
		user := tidemark.UserID(verb[1])
		if user == "SELF" {
			user = c.User
		}
		return node.RemoveMember(ctx, c, id, user)
	case "make":
		return update(server.MemberChange{Role: tidemark.Role(verb[2])})
	case "describe":
		return update(server.MemberChange{Metadata: json.RawMessage(`{"a":1}`)})
	case "call":
		draft.Mentions = tidemark.NewMentions(true, nil)
		fallthrough
	case "send":
		_, err := node.Send(ctx, c.User, draft)
		return err
	case "type":
		return node.Typing(ctx, c.User, id)
	case "read":
		_, err := node.DeliveryState(ctx, c.User, id)
		return err
	}
	return errors.New("there is no such verb")
}

// TestUpdateMember_reaches_all_members_on_all_nodes: also who succeeds.
func TestUpdateMember_reaches_all_members_on_all_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("team", "alice", "bob", "carol")
		alice, bob, dave := a.open("alice"), b.open("bob"), b.open("dave")
		settle()
		alice.drain()
		bob.drain()
		dave.drain()
		owner := server.Caller{User: "alice"}
		got, err := a.UpdateMember(a.ctx, owner, chat, "bob",
			server.MemberChange{Metadata: json.RawMessage(`{"color":"teal"}`)})
		if err != nil || got.Version != 2 || string(got.Metadata) != `{"color":"teal"}` {
			t.Fatalf("got %+v, %v, want version 2 with metadata", got, err)
		}
		settle()
		want(t, "alice", alice.drain(), "membership team bob metadata_changed member")
		want(t, "bob", bob.drain(), "membership team bob metadata_changed member")
		for _, object := range []string{`{}`, " { } "} {
			got, err = a.UpdateMember(a.ctx, owner, chat, "bob",
				server.MemberChange{Metadata: json.RawMessage(object)})
			if err != nil || got.Metadata != nil || got.Version != 3 {
				t.Errorf("%q: got %+v, %v, want version 3 without metadata", object, got, err)
			}
		}
		settle()
		alice.drain()
		bob.drain()
		if _, err := a.UpdateMember(a.ctx, owner, chat, "alice",
			server.MemberChange{Role: tidemark.Reader}); err != nil {
			t.Fatal(err)
		}
		settle()
		for who, c := range map[string]*client{"alice": alice, "bob": bob} {
			want(t, who, c.drain(), "membership team alice role_changed reader",
				"membership team bob role_changed owner")
		}
		// The node of bob knows at once what bob may do now, and alice may do no more.
		if _, err := b.UpdateMember(b.ctx, server.Caller{User: "bob"}, chat, "carol",
			server.MemberChange{Role: tidemark.Admin}); err != nil {
			t.Errorf("the successor: %v", err)
		}
		_, err = b.UpdateMember(b.ctx, owner, chat, "carol",
			server.MemberChange{Role: tidemark.Ordinary})
		wantCode(t, "the former owner", err, tidemark.Denied)
		want(t, "dave, who never was a member", dave.drain())
	})
}

// TestAddMembers_with_a_role: the new members have the role, in their events and in the chat that
// they see. Those who were members already keep theirs.
func TestAddMembers_with_a_role(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("team", "alice", "bob", "erin")
		bob := b.open("bob")
		settle()
		bob.drain()
		page, err := a.AddMembers(a.ctx, server.Caller{User: "alice"}, chat,
			[]tidemark.UserID{"bob", "carol"}, tidemark.Reader)
		if err != nil {
			t.Fatal(err)
		}
		settle()
		want(t, "bob", bob.drain(), "membership team carol added reader")
		wanted := map[tidemark.UserID]tidemark.Role{
			"alice": tidemark.Owner, "bob": tidemark.Ordinary, "carol": tidemark.Reader,
			"erin": tidemark.Ordinary,
		}
		for _, m := range page.Members {
			if m.Role != wanted[m.UserID] {
				t.Errorf("%s is %s, want %s", m.UserID, m.Role, wanted[m.UserID])
			}
		}
		for user, role := range wanted {
			view, err := b.Chat(b.ctx, server.Caller{User: user}, chat)
			list, listErr := b.Chats(b.ctx, user, 10, "")
			if err != nil || listErr != nil || view.Role != role || list.Chats[0].Role != role {
				t.Errorf("%s sees the role %q, %v, and in the list %+v, %v, want %s", user,
					view.Role, err, list.Chats, listErr, role)
			}
		}
		name := "Crew"
		view, err := b.UpdateChat(b.ctx, server.Caller{User: "system", Backend: true}, chat,
			server.ChatChange{Name: &name})
		if err != nil || view.Role != "" {
			t.Errorf("a backend that is no member sees the role %q, %v, want none", view.Role, err)
		}
		_, err = a.AddMembers(a.ctx, server.Caller{User: "alice"}, chat,
			[]tidemark.UserID{"dave"}, "king")
		wantCode(t, "a role that does not exist", err, tidemark.Invalid)
	})
}

func TestRemoveMember_tells_who_succeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("team", "alice", "bob", "carol")
		a.become(chat, "carol", tidemark.Admin)
		bob := a.open("bob")
		settle()
		bob.drain()
		a.remove(chat, "alice")
		settle()
		want(t, "bob", bob.drain(), "membership team alice removed",
			"membership team carol role_changed owner")
	})
}

// TestUpdateMember_of_nobody_is_refused has what the schema cannot say.
func TestUpdateMember_of_nobody_is_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("team", "alice", "bob", "carol")
		direct := a.chat("ab", "alice", "bob")
		owner, key := server.Caller{User: "alice"}, server.Caller{User: "bot", Backend: true}
		admin, king := server.MemberChange{Role: tidemark.Admin}, server.MemberChange{Role: "king"}
		large := server.MemberChange{Metadata: json.RawMessage(
			`{"a":"` + strings.Repeat("x", tidemark.MaxMemberMetadata) + `"}`)}
		for what, test := range map[string]struct {
			by     server.Caller
			chat   tidemark.ChatID
			user   tidemark.UserID
			change server.MemberChange
			want   tidemark.Code
		}{
			"a stranger":                {owner, chat, "dave", admin, tidemark.NotFound},
			"a stranger, by a backend":  {key, chat, "dave", admin, tidemark.NotFound},
			"a direct chat":             {owner, direct, "bob", admin, tidemark.Denied},
			"a direct chat, a backend":  {key, direct, "bob", admin, tidemark.Denied},
			"no chat":                   {owner, "none", "bob", admin, tidemark.NotFound},
			"no chat, by a backend":     {key, "none", "bob", admin, tidemark.NotFound},
			"no such role":              {owner, chat, "bob", king, tidemark.Invalid},
			"too large metadata":        {owner, chat, "bob", large, tidemark.TooLarge},
			"the last owner of readers": {owner, chat, "alice", admin, tidemark.Denied},
		} {
			if strings.Contains(what, "readers") {
				a.become(chat, "bob", tidemark.Reader)
				a.become(chat, "carol", tidemark.Reader)
			}
			_, err := a.UpdateMember(a.ctx, test.by, test.chat, test.user, test.change)
			wantCode(t, what, err, test.want)
			if strings.Contains(what, "readers") {
				a.become(chat, "bob", tidemark.Ordinary)
				a.become(chat, "carol", tidemark.Ordinary)
			}
		}
	})
}

// TestUpdateMember_post_retry_safe: the answers of the database are lost. The change happens once,
// and who succeeds is told by the version.
func TestUpdateMember_post_retry_safe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("team", "alice", "bob", "carol")
		bob := a.open("bob")
		settle()
		bob.drain()
		w.after.set(once("UpdateMember", errDown, nil))
		got, err := a.UpdateMember(a.ctx, server.Caller{User: "alice"}, chat, "alice",
			server.MemberChange{Role: tidemark.Ordinary})
		if err != nil || got.Version != 2 || got.Role != tidemark.Ordinary {
			t.Errorf("got %+v, %v, want version 2", got, err)
		}
		settle()
		want(t, "bob", bob.drain(), "membership team alice role_changed member")
		page, err := a.Members(a.ctx, server.Caller{User: "bob"}, chat, 10, "")
		if err != nil || page.Version != 2 || page.Members[1].Role != tidemark.Owner {
			t.Errorf("got %+v, %v, want bob to be the owner", page, err)
		}
	})
}

// TestUpdateMember_as_the_roles_are_stored: no event has told the node of a former owner what they
// are now.
func TestUpdateMember_as_the_roles_are_stored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("team", "alice", "bob", "carol")
		a.become(chat, "bob", tidemark.Owner)
		nodesTrust()
		b.send("bob", chat) // the node knows the members now
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Membership != nil {
				return nil
			}
			return send()
		})
		a.become(chat, "bob", tidemark.Ordinary)
		a.become(chat, "carol", tidemark.Admin)
		_, err := b.UpdateMember(b.ctx, server.Caller{User: "bob"}, chat, "alice",
			server.MemberChange{Role: tidemark.Reader})
		wantCode(t, "the former owner", err, tidemark.Denied)
		if _, err := b.AddMembers(b.ctx, server.Caller{User: "carol"}, chat,
			[]tidemark.UserID{"dave"}, ""); err != nil {
			t.Errorf("the new admin: %v", err)
		}
	})
}
