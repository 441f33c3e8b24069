package server_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/test/wait"
)

// The rule nothing_outside_membership (delivery.md §5), and what an addition hands over.

// remove lets alice remove a member.
func (c *core) remove(chat tidemark.ChatID, user tidemark.UserID) {
	c.t.Helper()
	if err := c.RemoveMember(c.ctx, server.Caller{User: "alice"}, chat, user); err != nil {
		c.t.Fatalf("RemoveMember(%s, %s): %v", chat, user, err)
	}
}

// add lets alice add members.
func (c *core) add(chat tidemark.ChatID, users ...tidemark.UserID) {
	c.t.Helper()
	if _, err := c.AddMembers(c.ctx, server.Caller{User: "alice"}, chat, users, ""); err != nil {
		c.t.Fatalf("AddMembers(%s, %s): %v", chat, users, err)
	}
}

func TestMembership_nothing_outside_membership_while_messages_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob, carol := a.open("bob"), a.open("carol")
		bob.drain()
		carol.drain()
		a.send("alice", chat)
		a.send("alice", chat)
		a.remove(chat, "bob")
		a.send("alice", chat)
		want(t, "bob, who had not read them", bob.drain(), "membership abc bob removed")
		want(t, "carol", messagesOf(carol.drain()),
			"message abc 1", "message abc 2", "message abc 3")
		settle()
		w.wantRows("a former member has no row", "bob")
	})
}

func TestMembership_status_is_not_sent_to_one_who_was_removed(t *testing.T) {
	tests := map[string]func(w *cluster, a, b *core, chat tidemark.ChatID){
		"waiting in the session": func(_ *cluster, a, _ *core, chat tidemark.ChatID) {
			a.ack("carol", chat, 1, 0)
			settle()
			a.remove(chat, "bob")
		},
		"on the bus": func(w *cluster, a, _ *core, chat tidemark.ChatID) {
			late := &delayed{}
			w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
				if e.Status != nil && to.ID == "b" {
					late.keep(send)
					return nil
				}
				return send()
			})
			a.ack("carol", chat, 1, 0)
			settle()
			a.remove(chat, "bob")
			late.release(w.t)
		},
		"from a node with an old roster": func(w *cluster, a, b *core, chat tidemark.ChatID) {
			other := w.node("c")
			_, err := other.Members(w.ctx, server.Caller{User: "carol"}, chat, 10, "")
			if err != nil {
				w.t.Fatal(err)
			}
			a.remove(chat, "bob")
			other.ack("carol", chat, 1, 0)
		},
	}
	for name, act := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a, b := w.node("a"), w.node("b")
				chat := a.chat("abc", "alice", "bob", "carol")
				a.send("alice", chat)
				settle()
				bob := b.open("bob")
				w.say("bob", tidemark.StatusUpdate{
					ChatID:   chat,
					UserID:   "alice",
					Boundary: tidemark.Boundary{Acked: 1},
				})
				bob.drain() // the members' boundaries have been read now
				act(w, a, b, chat)
				settle()
				want(t, "bob", bob.drain(), "membership abc bob removed")
			})
		})
	}
}

func TestMembership_events_of_others_are_not_sent_to_one_who_was_removed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		a.add(chat, "dave") // bob does not read the event
		a.remove(chat, "bob")
		want(t, "bob", bob.drain(), "membership abc bob removed")
	})
}

func TestMembership_typing_is_not_sent_to_one_who_was_removed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob, carol := a.open("bob"), a.open("carol")
		bob.drain()
		carol.drain()
		carol.Typing(a.ctx, chat)
		want(t, "bob, as a member", bob.drain(), "typing abc carol")
		time.Sleep(3 * time.Second)
		carol.Typing(a.ctx, chat)
		a.remove(chat, "bob")
		want(t, "bob", bob.drain(), "membership abc bob removed")
		carol.drain()
		time.Sleep(3 * time.Second)
		carol.Typing(a.ctx, chat)
		want(t, "bob, later", bob.drain())
	})
}

func TestMembership_resume_sends_nothing_of_a_chat_that_was_left(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		position := bob.last
		a.send("alice", chat)
		a.ack("carol", chat, 1, 0)
		a.add(chat, "dave")
		settle()
		bob.drain()
		bob.Detach()
		a.remove(chat, "bob")
		again := a.open("bob", resuming(bob.Session(), position))
		again.last = bob.last
		want(t, "again", again.drain(),
			"open resumed=true", "membership abc bob removed", "caught_up")
	})
}

// watch ends a Next that never returns, by replacing its connection. Until stop is called,
// synctest.Wait must not be called.
func (c *client) watch() (stop func()) {
	var done atomic.Bool
	var watching sync.WaitGroup
	watching.Go(func() {
		for began := machineTime(); machineTime()-began < wait.Hang; {
			if done.Load() {
				return
			}
			pause := syscall.NsecToTimespec(int64(time.Millisecond))
			_ = syscall.Nanosleep(&pause, nil)
		}
		c.t.Error("Next does not return")
		_, _ = c.core.Open(context.Background(), openRequest{
			User:    c.user,
			Session: c.Session(),
			Poll:    true,
		})
	})
	return func() {
		done.Store(true)
		watching.Wait()
	}
}

// machineTime returns the time of the machine. The clock of a bubble stands still while one of its
// goroutines runs or is in a call of the system.
func machineTime() time.Duration {
	var now syscall.Timeval
	_ = syscall.Gettimeofday(&now) // never fails with this argument
	return time.Duration(now.Nano())
}

// TestMembership_removal_during_a_read_leaves_nothing_behind: a user is removed while their session
// reads their watermark or a page. What was read is discarded, and the session continues.
func TestMembership_removal_during_a_read_leaves_nothing_behind(t *testing.T) {
	for _, method := range []string{"States", "Ranges"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a := w.node("a", func(cfg *server.Config) {
					cfg.TailMessages, cfg.HotChats, cfg.KnownStates = 1, 1, 1
				})
				chat, other := a.chat("abc", "alice", "bob", "carol"), a.chat("bd", "bob", "dave")
				bob := a.open("bob")
				bob.drain()
				// A late notification makes the session rewind once it knows bob's watermark.
				late := w.holdNotifications("a", 1)
				a.send("alice", chat)
				w.publish.clear()
				a.send("alice", chat)
				a.send("dave", other)
				a.ack("dave", other, 1, 0) // no other watermark is known now
				settle()
				removed := false
				calls := 0
				w.before.set(func(m string) error {
					if calls++; calls > 1000 {
						return errDown // the session reads in a loop
					}
					if m == method && !removed {
						removed = true
						a.remove(chat, "bob")
					}
					return nil
				})
				var lines []string
				unwatch := bob.watch()
				for {
					events, err := bob.Next(w.ctx, nil, false)
					if err != nil || len(events) == 0 {
						break
					}
					for _, e := range events {
						lines, bob.last = append(lines, line(t, e)), e.ID
					}
				}
				unwatch()
				if calls > 1000 {
					t.Error("the session read in a loop")
				}
				if !removed {
					t.Error("nothing was read: the test shows nothing")
				}
				late.release(t)
				lines = append(lines, bob.drain()...)
				w.before.clear()
				a.send("dave", other)
				lines = append(lines, bob.drain()...)
				for _, l := range []string{"message bd 1", "message bd 2"} {
					if !slices.Contains(lines, l) {
						t.Errorf("%s is missing in %v", l, lines)
					}
				}
				at := slices.Index(lines, "membership abc bob removed")
				if at >= 0 && slices.Contains(messagesOf(lines[at:]), "message abc 1") {
					t.Errorf("got a message after the removal: %v", lines)
				}
			})
		})
	}
}

func TestMembership_return_yields_a_gap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		a.remove(chat, "bob")
		a.send("alice", chat)
		a.send("alice", chat)
		a.add(chat, "bob")
		a.send("alice", chat)
		want(t, "bob", messagesOf(bob.drain()), "gap abc 2-3", "message abc 4")
		bob.Ack(server.Ack{Chat: chat, Acked: 4})
		settle()
		w.wantState("an acknowledgement covers the gap", "bob", chat, 4, 0)
	})
}

// TestMembership_adding_is_a_send_to_the_new_member: new members are notified of the messages that
// they may see. Those who are offline get a row.
func TestMembership_adding_is_a_send_to_the_new_member(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		for range 3 {
			a.send("alice", chat)
		}
		a.leaveProof("dave")
		erin, frank := a.open("erin"), b.open("frank") // on the caller's node, and on another
		erin.drain()
		frank.drain()
		a.add(chat, "dave", "erin", "frank")
		w.wantRows("dave, who is offline", "dave", row("dave", chat, 1))
		all := []string{"message abc 1", "message abc 2", "message abc 3"}
		want(t, "erin", messagesOf(erin.drain()), all...)
		want(t, "frank", messagesOf(frank.drain()), all...)
		want(t, "dave", messagesOf(a.open("dave").drain()), all...)
		erin.Ack(server.Ack{Chat: chat, Acked: 3})
		frank.Ack(server.Ack{Chat: chat, Acked: 3})
		settle()
		w.wantRows("acknowledged", "erin")
		w.wantRows("acknowledged", "frank")
	})
}

func TestMembership_since_join_starts_at_the_head(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		_, _, err := a.CreateChat(a.ctx, server.Caller{User: "alice"}, server.CreateChatRequest{
			ChatID:    "abc",
			Type:      tidemark.Group,
			History:   tidemark.HistorySinceJoin,
			MemberIDs: []tidemark.UserID{"bob"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			a.send("alice", "abc")
		}
		carol := a.open("carol")
		carol.drain()
		a.add("abc", "carol")
		w.wantState("carol", "carol", "abc", 3, 3)
		w.wantRows("a member since the head has no row", "carol")
		a.send("alice", "abc")
		want(t, "carol", messagesOf(carol.drain()), "message abc 4")
		h, err := a.History(a.ctx, "carol", server.HistoryRequest{Chat: "abc", Limit: 10})
		if err != nil || len(h.Messages) != 1 || len(h.Gaps) != 1 || h.Gaps[0].To != 3 {
			t.Errorf("carol's history: got %+v, %v, want a gap up to 3 and one message", h, err)
		}
	})
}

func TestTyping_is_dropped_under_pressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("typists", crowd(50)...)
		bob := a.open("bob")
		bob.drain()
		for _, u := range crowd(50) {
			typist := a.open(u)
			for range 10 {
				typist.Typing(a.ctx, chat)
			}
			typist.goodbye()
		}
		a.send("alice", chat)
		lines := bob.drain()
		typing := slices.DeleteFunc(slices.Clone(lines),
			func(l string) bool { return !strings.HasPrefix(l, "typing") })
		if len(typing) == 0 || len(typing) > 32 {
			t.Errorf("got %d typing notices, want 1 to 32", len(typing))
		}
		want(t, "messages are not dropped", messagesOf(lines), "message typists 1")
		bob.Detach()
		time.Sleep(3 * time.Second)
		typist := a.open("alice")
		typist.Typing(a.ctx, chat)
		again := a.open("bob", resuming(bob.Session(), bob.last))
		again.last = bob.last
		for _, l := range again.drain() {
			if strings.HasPrefix(l, "typing") {
				t.Errorf("%q was kept while there was no connection", l)
			}
		}
		time.Sleep(time.Second)
	})
}

func TestTyping_bounded_use_tells_once_in_three_seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat, other := a.chat("abc", "alice", "bob", "carol"), a.chat("ab", "alice", "bob", "eve")
		bob := a.open("bob")
		bob.drain()
		typing := func(user tidemark.UserID, chat tidemark.ChatID) {
			if err := a.Typing(a.ctx, user, chat); err != nil {
				t.Errorf("Typing(%s, %s): %v", user, chat, err)
			}
		}
		typing("alice", chat)
		want(t, "bob", bob.drain(), "typing abc alice")
		time.Sleep(2_999 * time.Millisecond)
		typing("alice", chat)
		typing("carol", chat)
		typing("alice", other)
		want(t, "bob, too early", bob.drain(), "typing abc carol", "typing ab alice")
		time.Sleep(time.Millisecond)
		typing("alice", chat)
		want(t, "bob, 3 s later", bob.drain(), "typing abc alice")
		wantCode(t, "a stranger", a.Typing(a.ctx, "eve", chat), tidemark.NotMember)
		wantCode(t, "no chat", a.Typing(a.ctx, "eve", "none"), tidemark.NotFound)
	})
}

func TestMembership_removal_clears_the_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		w.wantRows("offline", "bob", row("bob", chat, 1))
		a.remove(chat, "bob")
		w.wantRows("removed", "bob")
	})
}

func TestMembership_typing_of_a_stranger_reaches_nobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob, eve := a.open("bob"), a.open("eve")
		bob.drain()
		eve.drain()
		eve.Typing(a.ctx, chat)
		want(t, "bob", bob.drain())
	})
}

func TestMembership_chat_shows_no_last_message_from_before(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.remove(chat, "bob")
		a.send("alice", chat)
		a.add(chat, "bob")
		for user, shown := range map[tidemark.UserID]bool{"alice": true, "bob": false} {
			view, err := a.Chat(a.ctx, server.Caller{User: user}, chat)
			if err != nil || (view.Last != nil) != shown {
				t.Errorf("%s: got last message %+v, %v, want it shown: %v",
					user, view.Last, err, shown)
			}
		}
	})
}

func TestUpdateChat_of_a_direct_chat_is_denied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		direct := a.chat("ab", "alice", "bob")
		name := "ours"
		_, err := a.UpdateChat(a.ctx, server.Caller{User: "alice"}, direct,
			server.ChatChange{Name: &name})
		wantCode(t, "UpdateChat", err, tidemark.Denied)
	})
}

func TestMembership_nothing_outside_membership_when_it_is_read_from_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.TailMessages = 1 })
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		a.send("alice", chat)
		a.remove(chat, "bob")
		a.send("alice", chat)
		a.send("alice", chat)
		a.add(chat, "bob")
		a.send("alice", chat)
		a.send("alice", chat)
		want(t, "bob", a.open("bob").drain()[:7],
			"open resumed=false", "message abc 1", "message abc 2", "gap abc 3-4",
			"message abc 5", "message abc 6", "caught_up")
	})
}

func TestCreateChat_post_retry_safe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		first := server.CreateChatRequest{
			Type: tidemark.Group, ClientChatID: "k", Name: "n",
			MemberIDs: []tidemark.UserID{"bob", "carol"},
		}
		create := func(
			c *core, user tidemark.UserID, change func(*server.CreateChatRequest),
		) (tidemark.ChatID, bool, error) {
			r := first
			change(&r)
			view, created, err := c.CreateChat(c.ctx, server.Caller{User: user}, r)
			return view.ID, created, err
		}
		same := func(*server.CreateChatRequest) {}
		id, created, err := create(a, "alice", same)
		if err != nil || !created {
			t.Fatalf("the first: created %v, %v", created, err)
		}
		for _, c := range []*core{a, b} {
			again, created, err := create(c, "alice", func(r *server.CreateChatRequest) {
				r.MemberIDs = []tidemark.UserID{"carol", "alice", "bob", "bob"}
			})
			if again != id || created || err != nil {
				t.Errorf("again: chat %s, created %v, %v", again, created, err)
			}
		}
		other, created, err := create(a, "bob", same)
		if other == id || !created || err != nil {
			t.Errorf("the key of another user: chat %s, created %v, %v", other, created, err)
		}
		for name, change := range map[string]func(*server.CreateChatRequest){
			"other members": func(r *server.CreateChatRequest) { r.MemberIDs = r.MemberIDs[:1] },
			"another name":  func(r *server.CreateChatRequest) { r.Name = "m" },
			"another history": func(r *server.CreateChatRequest) {
				r.History = tidemark.HistorySinceJoin
			},
		} {
			_, _, err := create(b, "alice", change)
			wantCode(t, name, err, tidemark.Conflict)
		}
		own := func(r *server.CreateChatRequest) { r.ClientChatID, r.ChatID = "", "own" }
		for _, want := range []bool{true, false} {
			got, created, err := create(a, "alice", own)
			if got != "own" || created != want || err != nil {
				t.Errorf("with a chat_id: chat %s, created %v, %v", got, created, err)
			}
		}
		_, _, err = create(a, "bob", own)
		wantCode(t, "a chat_id of another user", err, tidemark.Conflict)
		_, _, err = create(a, "alice", func(r *server.CreateChatRequest) { r.ChatID = "own" })
		wantCode(t, "both ids", err, tidemark.Invalid)
		if page, err := a.Chats(a.ctx, "alice", 10, ""); err != nil || len(page.Chats) != 2 {
			t.Errorf("alice has %d chats, %v", len(page.Chats), err)
		}
		if err := a.RemoveMember(a.ctx, server.Caller{User: "alice"}, id, "alice"); err != nil {
			t.Fatal(err)
		}
		_, _, err = create(b, "alice", same)
		wantCode(t, "one who has left", err, tidemark.NotMember)
	})
}

func TestRemoveMember_post_retry_safe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		for _, c := range []*core{a, b, a} {
			c.remove(chat, "bob")
			err := c.RemoveMember(c.ctx, server.Caller{User: "carol"}, chat, "carol")
			if err != nil {
				t.Errorf("carol leaves: %v", err)
			}
		}
		err := a.RemoveMember(a.ctx, server.Caller{User: "carol"}, chat, "alice")
		wantCode(t, "a former member removes another", err, tidemark.NotMember)
		page, err := a.Members(a.ctx, server.Caller{User: "alice"}, chat, 10, "")
		if err != nil || len(page.Members) != 1 {
			t.Errorf("the members are %+v, %v", page.Members, err)
		}
	})
}
