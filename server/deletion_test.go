package server_test

import (
	"context"
	"errors"
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
	"github.com/tidemark-im/tidemark/storage"
)

// backend is a backend that calls for itself.
var backend = server.Caller{Backend: true}

// deletes lets a backend delete a chat.
func (c *core) deletes(chat tidemark.ChatID) {
	c.t.Helper()
	if err := c.DeleteChat(c.ctx, backend, chat); err != nil {
		c.t.Fatalf("DeleteChat(%s): %v", chat, err)
	}
}

// asks makes the calls that need a membership, and returns their errors.
func (c *core) asks(by server.Caller, chat tidemark.ChatID) map[string]error {
	c.t.Helper()
	errs := map[string]error{}
	name := "another"
	_, errs["Chat"] = c.Chat(c.ctx, by, chat)
	_, errs["Members"] = c.Members(c.ctx, by, chat, 10, "")
	_, errs["DeliveryStatus"] = c.DeliveryStatus(c.ctx, by,
		server.DeliveryStatusRequest{Chat: chat, Limit: 10})
	_, errs["UpdateChat"] = c.UpdateChat(c.ctx, by, chat, server.ChatChange{Name: &name})
	_, errs["AddMembers"] = c.AddMembers(c.ctx, by, chat, []tidemark.UserID{"dave"}, "")
	_, errs["UpdateMember"] = c.UpdateMember(c.ctx, by, chat, "bob",
		server.MemberChange{Role: tidemark.Reader})
	errs["RemoveMember"] = c.RemoveMember(c.ctx, by, chat, "carol")
	user := by
	if user.User == "" {
		user.User = "alice"
	}
	d := tidemark.Draft{ChatID: chat, ClientMessageID: "late", Content: "late"}
	user.Author(&d)
	_, errs["Send"] = c.Send(c.ctx, user.User, d)
	d.SendBy = time.Now().Add(-time.Hour)
	_, errs["Send that is late"] = c.Send(c.ctx, user.User, d)
	return errs
}

// asksAsUser makes the calls that only users make, and returns their errors.
func (c *core) asksAsUser(user tidemark.UserID, chat tidemark.ChatID) map[string]error {
	c.t.Helper()
	errs := c.asks(server.Caller{User: user}, chat)
	_, errs["History"] = c.History(c.ctx, user, server.HistoryRequest{Chat: chat, Limit: 10})
	_, errs["Message"] = c.Message(c.ctx, user, tidemark.MessageRef{ChatID: chat, Sequence: 1})
	_, errs["DeliveryState"] = c.DeliveryState(c.ctx, user, chat)
	_, errs["MarkUnread"] = c.MarkUnread(c.ctx, user, chat, 1)
	acked, err := c.Acknowledge(c.ctx, user, []server.Ack{{Chat: chat, Acked: 1}})
	if err != nil {
		c.t.Fatal(err)
	}
	errs["Acknowledge"] = acked[0].Err
	return errs
}

func TestDeleteChat_deleted_is_gone_for_everybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat, other := a.chat("abc", "alice", "bob", "carol"), a.chat("ab", "alice", "bob")
		bob, carol := a.open("bob"), b.open("carol")
		bob.drain()
		carol.drain()
		a.send("alice", chat)
		want(t, "carol", messagesOf(carol.drain()), "message abc 1")
		if err := a.DeleteChat(a.ctx, server.Caller{User: "alice"}, chat); err != nil {
			t.Fatal(err)
		}
		want(t, "bob, who had not read", bob.drain(), "membership abc bob removed")
		want(t, "carol at the other node", carol.drain(), "membership abc carol removed")
		for _, node := range []*core{a, b} {
			for _, user := range []tidemark.UserID{"alice", "bob", "carol", "mallory"} {
				for call, err := range node.asksAsUser(user, chat) {
					if call == "RemoveMember" && user == "carol" {
						wantCode(t, "who leaves again", err, "")
						continue
					}
					wantCode(t, call+" by "+string(user), err, tidemark.NotMember)
					if err != nil && strings.Contains(err.Error(), "deleted") {
						t.Errorf("%s tells %s that the chat was deleted: %v", call, user, err)
					}
				}
			}
			for call, err := range node.asks(backend, chat) {
				wantCode(t, call+" by a backend", err, tidemark.NotFound)
				if err != nil && !strings.Contains(err.Error(), "was deleted") {
					t.Errorf("%s does not tell a backend that the chat was deleted: %v", call, err)
				}
			}
			page, err := node.Chats(node.ctx, "bob", 10, "")
			if err != nil || len(page.Chats) != 1 || page.Chats[0].ID != other {
				t.Errorf("bob has the chats %+v, %v", page.Chats, err)
			}
			_, _, err = node.CreateChat(node.ctx, backend, server.CreateChatRequest{
				ChatID: chat, Type: tidemark.Group, MemberIDs: []tidemark.UserID{"bob"},
			})
			wantCode(t, "CreateChat with the id", err, tidemark.Conflict)
		}
		a.send("alice", other)
		want(t, "bob, later", messagesOf(bob.drain()), "message ab 1")
		a.ack("bob", other, 1, 1)
		settle()
		w.wantRows("a former member has no row", "bob")
	})
}

func TestDeleteChat_who_may(t *testing.T) {
	for _, tc := range []struct {
		what string
		chat tidemark.ChatID
		by   server.Caller
		want tidemark.Code
	}{
		{"an owner", "abc", server.Caller{User: "alice"}, ""},
		{"an admin", "abc", server.Caller{User: "bob"}, tidemark.Denied},
		{"a member", "abc", server.Caller{User: "carol"}, tidemark.Denied},
		{"a stranger", "abc", server.Caller{User: "mallory"}, tidemark.NotMember},
		{"a backend", "abc", backend, ""},
		{"a backend for a member", "abc", server.Caller{User: "carol", Backend: true}, ""},
		{"a backend for a stranger", "abc", server.Caller{User: "mallory", Backend: true}, ""},
		{"a member of a direct chat", "ab", server.Caller{User: "alice"}, tidemark.Denied},
		{"a stranger of a direct chat", "ab", server.Caller{User: "carol"}, tidemark.NotMember},
		{"a backend, a direct chat", "ab", backend, ""},
		{"nobody knows the chat", "none", backend, tidemark.NotFound},
		{"nobody knows the chat", "none", server.Caller{User: "alice"}, tidemark.NotFound},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t)
			group, direct := c.chat("abc", "alice", "bob", "carol"), c.chat("ab", "alice", "bob")
			_, err := c.UpdateMember(c.ctx, server.Caller{User: "alice"}, group, "bob",
				server.MemberChange{Role: tidemark.Admin})
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, tc.what, c.DeleteChat(c.ctx, tc.by, tc.chat), tc.want)
			for _, chat := range []tidemark.ChatID{group, direct} {
				_, err := c.Chat(c.ctx, backend, chat)
				deleted := tc.want == "" && chat == tc.chat
				if deleted != (tidemark.CodeOf(err) == tidemark.NotFound) {
					t.Errorf("%s: the chat %s is there, %v", tc.what, chat, err)
				}
			}
			if tc.want == "" {
				wantCode(t, "a backend again", c.DeleteChat(c.ctx, backend, tc.chat), "")
				err := c.DeleteChat(c.ctx, server.Caller{User: "alice"}, tc.chat)
				wantCode(t, "the owner again", err, tidemark.NotMember)
			}
		})
	}
}

// A pair whose direct chat was deleted opens another one, under an id that the server makes.
func TestDeleteChat_a_pair_begins_anew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		old := c.chat("ab", "alice", "bob")
		c.send("alice", old)
		c.deletes(old)
		view, created, err := c.CreateChat(c.ctx, server.Caller{User: "bob"},
			server.CreateChatRequest{
				Type: tidemark.Direct, MemberIDs: []tidemark.UserID{"alice"},
			})
		if err != nil || !created || view.ID == old {
			t.Fatalf("got %+v, created %v, %v", view, created, err)
		}
		want(t, "alice", messagesOf(c.open("alice").drain()))
		if n := c.send("bob", view.ID); n != 1 {
			t.Errorf("the first message has sequence %d", n)
		}
	})
}

func TestDeleteChat_resume_sends_nothing_of_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		position := bob.last
		a.send("alice", chat)
		bob.drain()
		bob.Detach()
		a.deletes(chat)
		again := a.open("bob", resuming(bob.Session(), position))
		again.last = bob.last
		want(t, "again", again.drain(),
			"open resumed=true", "membership abc bob removed", "caught_up")
		want(t, "another device", messagesOf(a.open("bob", onDevice("tablet")).drain()))
	})
}

// wantNothingAt lets bob's session move to b and read. It gets nothing.
func (w *wiped) wantNothingAt() {
	w.t.Helper()
	want(w.t, "bob at b", w.b.open("bob", resuming(w.bob.Session(), w.bob.last)).said())
}

// Each of the two things that nodes are told is enough for them to serve nothing from memory: that
// the chat has no members, and that its messages are outdated.
func TestDeleteChat_a_node_that_missed_a_part_serves_nothing(t *testing.T) {
	for what, lost := range map[string]func(registry.Node, bus.Event) bool{
		"nothing is lost":                   func(registry.Node, bus.Event) bool { return false },
		"that the messages are outdated":    unheard,
		"that the members are outdated":     isMembership,
		"both, and the publications fail":   nil,
		"both, and storage does not answer": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(what)
			w := newWiped(t)
			switch {
			case lost != nil:
				w.dropping(lost)
				w.a.deletes(w.chat)
			case strings.Contains(what, "fail"):
				w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
					if unheard(to, e) || to.ID == "b" && e.Membership != nil {
						return errDown
					}
					return send()
				})
				w.a.deletes(w.chat)
			default:
				w.after.set(every("DeleteChat", errDown))
				err := w.a.DeleteChat(w.a.ctx, backend, w.chat)
				wantCode(t, "without an answer", err, tidemark.Unavailable)
				w.after.clear()
			}
			w.publish.clear()
			if lost == nil {
				time.Sleep(6 * time.Second)
			}
			w.wantNothingAt()
			wantCode(t, "again", w.a.DeleteChat(w.a.ctx, backend, w.chat), "")
		})
	}
}

// A node that is cut off could tell nobody.
func TestDeleteChat_a_node_that_is_cut_off_deletes_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		w.node("b")
		nodesTrust()
		chat := a.chat("ab", "alice", "bob")
		down.Store(true)
		time.Sleep(10 * time.Second)
		err := a.DeleteChat(a.ctx, backend, chat)
		wantCode(t, "cut off", err, tidemark.Unavailable)
		if found, err := w.raw.Chat(w.ctx, chat); err != nil || found.State != tidemark.ChatLive {
			t.Errorf("the chat is %+v, %v, want a live one", found, err)
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		a.deletes(chat)
	})
}

// recorder is a server.Deletions that notes what it is told.
type recorder struct {
	store storage.Store
	err   error
	calls []string
}

func (r *recorder) Begin(ctx context.Context, chat tidemark.ChatID) error {
	found, err := r.store.Chat(ctx, chat)
	state := "live"
	if found.State != "" {
		state = string(found.State)
	}
	r.calls = append(r.calls, "begin "+string(chat)+" "+state)
	return errors.Join(err, r.err)
}

func (r *recorder) Wake() { r.calls = append(r.calls, "wake") }

// What is to be removed is recorded before the chat is deleted, and is ready after it.
func TestDeleteChat_is_recorded_before_the_step(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		r := &recorder{store: w.raw}
		c := w.node("a", func(cfg *server.Config) { cfg.Deletions = r })
		chat := c.chat("abc", "alice", "bob", "carol")
		err := c.DeleteChat(c.ctx, server.Caller{User: "bob"}, chat)
		wantCode(t, "who may not", err, tidemark.Denied)
		r.err = errDown
		err = c.DeleteChat(c.ctx, server.Caller{User: "alice"}, chat)
		wantCode(t, "not recorded", err, tidemark.Unavailable)
		if found, err := w.raw.Chat(w.ctx, chat); err != nil || found.State != tidemark.ChatLive {
			t.Errorf("the chat is %+v, %v, want a live one", found, err)
		}
		r.err = nil
		c.deletes(chat)
		c.deletes(chat)
		want := []string{
			"begin abc live", "begin abc live", "wake", "begin abc deleted", "wake",
		}
		if !slices.Equal(r.calls, want) {
			t.Errorf("got %q, want %q", r.calls, want)
		}
	})
}

// A message that another node stored before the deletion is handed over to nobody.
func TestDeleteChat_of_a_message_that_is_not_handed_over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		m := w.appendDead("alice", chat, "between")
		a.deletes(chat)
		for _, err := range a.HandOver(a.ctx, []tidemark.Message{m}) {
			wantCode(t, "HandOver", err, "")
		}
		want(t, "bob", bob.drain(), "membership abc bob removed")
		settle()
		w.wantRows("who is away", "carol")
	})
}

// A chat that is deleted after the membership was checked, and before the step, is gone for a user
// as any other one is. A backend learns that it was deleted.
func TestDeleteChat_deleted_is_gone_also_beside_a_call(t *testing.T) {
	calls := map[string]string{
		"UpdateChat": "UpdateChat", "AddMembers": "AddMembers", "UpdateMember": "UpdateMember",
		"RemoveMember": "RemoveMember", "Leave": "RemoveMember", "Send": "Append",
		"MarkUnread":  "MarkUnread",
		"Acknowledge": "Advance", "SetReceipts": "SetReceipts", "Ban": "Ban", "Unban": "Unban",
		"Send that is refused": "Sent",
	}
	for name, step := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a := w.node("a", func(c *server.Config) { c.Reviewer = &rules{} })
				for _, by := range []server.Caller{{User: "alice"}, backend} {
					chat := a.chat(tidemark.ChatID("by-"+string(by.User)), "alice", "bob", "carol")
					a.send("bob", chat)
					w.before.set(func(method string) error {
						if method != step {
							return nil
						}
						w.before.clear()
						_, err := w.raw.DeleteChat(w.ctx, chat, time.Now())
						return err
					})
					err := a.does(name, by, chat)
					w.before.clear()
					want := tidemark.NotMember
					if name == "Leave" && !by.Backend {
						if err != nil {
							t.Errorf("alice cannot leave: %v", err)
						}
						continue
					}
					if by.Backend && name != "MarkUnread" && name != "Acknowledge" &&
						name != "SetReceipts" {
						want = tidemark.NotFound
					}
					wantCode(t, string(by.User), err, want)
					if want == tidemark.NotMember && strings.Contains(err.Error(), "deleted") {
						t.Errorf("a user is told that the chat was deleted: %v", err)
					}
				}
			})
		})
	}
}

// does makes one call of a chat, and returns its error. What only users do, alice does.
func (c *core) does(name string, by server.Caller, chat tidemark.ChatID) (err error) {
	c.t.Helper()
	another := "another"
	switch name {
	case "UpdateChat":
		_, err = c.UpdateChat(c.ctx, by, chat, server.ChatChange{Name: &another})
	case "AddMembers":
		_, err = c.AddMembers(c.ctx, by, chat, []tidemark.UserID{"dave"}, "")
	case "UpdateMember":
		_, err = c.UpdateMember(c.ctx, by, chat, "bob", server.MemberChange{Role: tidemark.Reader})
	case "RemoveMember":
		err = c.RemoveMember(c.ctx, by, chat, "carol")
	case "Leave":
		err = c.RemoveMember(c.ctx, by, chat, "alice")
	case "Ban":
		err = c.Ban(c.ctx, by, chat, "carol")
	case "Unban":
		err = c.Unban(c.ctx, by, chat, "dave")
	case "Send", "Send that is refused":
		d := tidemark.Draft{ChatID: chat, ClientMessageID: "late", Content: "late"}
		if name != "Send" {
			d.Content = "spam"
		}
		if by.Author(&d); by.User == "" {
			d.SenderID = "alice"
		}
		_, err = c.Send(c.ctx, "alice", d)
	case "MarkUnread":
		_, err = c.MarkUnread(c.ctx, "alice", chat, 1)
	case "Acknowledge":
		var acked []server.AckResult
		acked, err = c.Acknowledge(c.ctx, "alice", []server.Ack{{Chat: chat, Acked: 1}})
		if err == nil {
			err = acked[0].Err
		}
	case "SetReceipts":
		_, err = c.SetReceipts(c.ctx, "alice", chat, tidemark.ReceiptsOff)
	default:
		c.t.Fatalf("no call is named %s", name)
	}
	return err
}

// While a chat is imported, its members change nothing. A node that has the members of that time in
// memory asks storage.
func TestImport_importing_is_closed_for_changes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		c := w.node("a")
		nodesTrust()
		const chat tidemark.ChatID = "moved"
		_, _, err := w.raw.CreateChat(w.ctx, storage.NewChat{
			ID: chat, State: tidemark.ChatImporting, Type: tidemark.Group,
			History: tidemark.HistoryFull, CreatedAt: time.Now(), Creator: "alice",
			Members: []tidemark.UserID{"alice", "bob", "carol"},
		})
		if err != nil {
			t.Fatal(err)
		}
		name := "a name"
		alice := server.Caller{User: "alice"}
		changes := func(want tidemark.Code) {
			t.Helper()
			for _, by := range []server.Caller{backend, alice} {
				_, err := c.UpdateChat(c.ctx, by, chat, server.ChatChange{Name: &name})
				wantCode(t, "UpdateChat", err, want)
				_, err = c.AddMembers(c.ctx, by, chat, []tidemark.UserID{"dave"}, "")
				wantCode(t, "AddMembers", err, want)
				_, err = c.UpdateMember(c.ctx, by, chat, "dave",
					server.MemberChange{Role: tidemark.Reader})
				wantCode(t, "UpdateMember", err, want)
				err = c.RemoveMember(c.ctx, by, chat, "bob")
				wantCode(t, "RemoveMember", err, want)
			}
			err := c.RemoveMember(c.ctx, server.Caller{User: "carol"}, chat, "carol")
			wantCode(t, "who leaves", err, want)
			d := tidemark.Draft{ChatID: chat, ClientMessageID: "k", Content: "text"}
			_, err = c.Send(c.ctx, "alice", d)
			wantCode(t, "Send", err, want)
		}
		changes(tidemark.Unavailable)
		wantCode(t, "its owner", c.DeleteChat(c.ctx, alice, chat), tidemark.Unavailable)
		if err := w.raw.FinishImport(w.ctx, chat, time.Now()); err != nil {
			t.Fatal(err)
		}
		changes("")
	})
}

// Only backends change for how long a chat is kept, and whether it is on hold, also of a direct
// chat. A chat on hold is not deleted.
func TestUpdateChat_policy_by_backends_only(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		group, direct := c.chat("abc", "alice", "bob", "carol"), c.chat("ab", "alice", "bob")
		bob := c.open("bob")
		bob.drain()
		days, none, short, on, off := 30, 0, 7, true, false
		held := server.ChatChange{KeepDays: &days, Hold: &on}
		for user, want := range map[tidemark.UserID]tidemark.Code{
			"alice": tidemark.Denied, "bob": tidemark.Denied, "mallory": tidemark.NotMember,
		} {
			for _, chat := range []tidemark.ChatID{group, direct} {
				for param, change := range map[string]server.ChatChange{
					"keep_days": {KeepDays: &days}, "hold": {Hold: &off},
				} {
					_, err := c.UpdateChat(c.ctx, server.Caller{User: user}, chat, change)
					what := param + " of " + string(chat) + " by " + string(user)
					wantCode(t, what, err, want)
					if want == tidemark.Denied && tidemark.ParamOf(err) != param {
						t.Errorf("%s: got %v, want an error of %s", what, err, param)
					}
				}
			}
		}
		_, err := c.UpdateChat(c.ctx, backend, group, server.ChatChange{KeepDays: &short})
		wantCode(t, "seven days", err, tidemark.Invalid)
		want(t, "bob, before", bob.drain())
		for _, chat := range []tidemark.ChatID{group, direct} {
			view, err := c.UpdateChat(c.ctx, backend, chat, held)
			if err != nil || view.Policy != (tidemark.Policy{KeepDays: 30, Hold: true}) {
				t.Errorf("the policy of %s is %+v, %v", chat, view.Policy, err)
			}
			want(t, "bob", bob.drain(), "updated "+string(chat)+" 2")
			wantCode(t, "by a backend", c.DeleteChat(c.ctx, backend, chat), tidemark.Conflict)
		}
		alice := server.Caller{User: "alice"}
		wantCode(t, "by the owner", c.DeleteChat(c.ctx, alice, group), tidemark.Conflict)
		c.send("alice", group)
		end := server.ChatChange{KeepDays: &none, Hold: &off}
		view, err := c.UpdateChat(c.ctx, backend, group, end)
		if err != nil || view.Policy != (tidemark.Policy{}) {
			t.Errorf("the policy is %+v, %v; want none", view.Policy, err)
		}
		wantCode(t, "when the hold has ended", c.DeleteChat(c.ctx, alice, group), "")
		_, err = c.UpdateChat(c.ctx, backend, group, held)
		wantCode(t, "of a deleted chat", err, tidemark.NotFound)
	})
}
