package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Answers to writes are lost, callers hang up, and things happen at the same time.

// TestSend_confirmed_or_not_a_stored_message_is_handed_over: the caller hangs up, and storage's
// answer is lost. The message is stored, and bob's proof says that the rows are complete, so bob
// must get one.
func TestSend_confirmed_or_not_a_stored_message_is_handed_over(t *testing.T) {
	for _, lost := range []int{1, 5} { // fewer, and more, than Send itself tries
		t.Run(fmt.Sprintf("%d answers lost", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a := w.node("a")
				chat := a.chat("ab", "alice", "bob")
				a.leaveProof("bob")
				ctx, hangUp := context.WithCancel(w.ctx)
				w.after.set(func(method string) error {
					if method != "Append" || lost == 0 {
						return nil
					}
					lost--
					hangUp()
					return errDown
				})
				_, _ = a.Send(ctx, "alice", tidemark.Draft{
					ChatID:          chat,
					ClientMessageID: "k",
					Content:         "hello",
				})
				time.Sleep(10 * time.Second)
				w.wantRows("bob, offline", "bob", row("bob", chat, 1))
				want(t, "bob", messagesOf(a.open("bob").drain()), "message ab 1")
			})
		})
	}
}

// TestMembership_adding_again_after_a_lost_answer_is_a_send_to_the_new_member: if the caller
// repeats the call, the member gets their row.
func TestMembership_adding_again_after_a_lost_answer_is_a_send_to_the_new_member(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		a.leaveProof("dave")
		w.after.set(every("AddMembers", errDown))
		_, err := a.AddMembers(w.ctx, server.Caller{User: "alice"}, chat,
			[]tidemark.UserID{"dave"}, "")
		wantCode(t, "every answer is lost", err, tidemark.Unavailable)
		w.wantRows("before the call is repeated", "dave")
		w.after.clear()
		a.add(chat, "dave")
		w.wantRows("dave", "dave", row("dave", chat, 1))
	})
}

func TestMembership_adding_whose_answer_is_lost_adds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		a.leaveProof("dave")
		bob := a.open("bob")
		bob.drain()
		w.after.set(once("AddMembers", errDown, nil))
		a.add(chat, "dave")
		w.wantRows("dave", "dave", row("dave", chat, 1))
		want(t, "bob", bob.drain(), "membership abc dave added")
	})
}

// TestMembership_adding_whose_outcome_stays_unknown_makes_all_sessions_reconcile: the call is not
// repeated, and dave's proof says that the rows are complete.
func TestMembership_adding_whose_outcome_stays_unknown_makes_all_sessions_reconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		a.leaveProof("dave")
		w.after.set(every("AddMembers", errDown))
		_, err := a.AddMembers(w.ctx, server.Caller{User: "alice"}, chat,
			[]tidemark.UserID{"dave"}, "")
		wantCode(t, "every answer is lost", err, tidemark.Unavailable)
		settle()
		want(t, "dave", messagesOf(a.open("dave").drain()), "message abc 1")
	})
}

// TestMembership_removal_that_is_published_after_the_return_loses_nothing: the bus delivers a
// removal after the return, and after the notification of a message.
func TestMembership_removal_that_is_published_after_the_return_loses_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := b.open("bob")
		bob.drain()
		var late []func() error
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Membership != nil && e.Membership.Changes[0].Change == tidemark.Removed {
				late = append(late, send)
				return nil
			}
			return send()
		})
		a.remove(chat, "bob")
		a.add(chat, "bob")
		a.send("alice", chat)
		for _, send := range late {
			if err := send(); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "bob", messagesOf(bob.drain()), "message abc 1")
	})
}

// TestMembership_return_to_a_session_that_is_past_the_first_message: bob's session does not learn
// that bob left and rejoined. Another message was stored before that and never handed over. Adding
// bob hands it over.
func TestMembership_return_to_a_session_that_is_past_the_first_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		a.send("alice", chat)
		want(t, "bob", messagesOf(bob.drain()), "message abc 1")
		w.appendDead("alice", chat, "k")
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Membership != nil {
				return errDown
			}
			return send()
		})
		a.remove(chat, "bob")
		a.add(chat, "bob")
		want(t, "bob, who is back", messagesOf(bob.drain()), "message abc 2")
	})
}

// TestRetry_notifications_of_one_chat_reach_its_end: two notifications of one chat wait in the
// retry queue. When they are retried, the session is already past the first.
func TestRetry_notifications_of_one_chat_reach_its_end(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && e.Notification.Sequence != 2 {
				return errDown
			}
			return send()
		})
		for range 3 {
			a.send("alice", chat)
		}
		want(t, "bob", messagesOf(bob.drain()), "message ab 1", "message ab 2")
		w.publish.clear()
		settle()
		want(t, "bob, when the bus is back", messagesOf(bob.drain()), "message ab 3")
	})
}

// TestStop_resolves_a_send_and_marks_its_author: a node that stops finds out that a message of
// alice is stored. It no longer writes alice's watermark, so it marks a row for her.
func TestStop_resolves_a_send_and_marks_its_author(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("alice")
		w.after.set(every("Append", errDown))
		_, err := a.sendKey("alice", chat, "k", "hello")
		wantCode(t, "the outcome is unknown", err, tidemark.Unavailable)
		synctest.Wait()
		w.after.clear()
		if err := a.Stop(w.ctx); err != nil {
			t.Fatal(err)
		}
		want(t, "alice's other device", messagesOf(b.open("alice").drain()), "message ab 1")
	})
}

// TestOpen_row_is_no_watermark: rows of earlier messages may not be written yet. A client that got
// the later message first would acknowledge both.
func TestOpen_row_is_no_watermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		w.appendDead("alice", chat, "k")
		a.send("alice", chat)
		w.wantRows("of the second message", "bob", row("bob", chat, 2))
		want(t, "bob", messagesOf(a.open("bob").drain()), "message ab 1", "message ab 2")
	})
}

func TestOpen_row_above_the_head_holds_nothing_up(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.ack("bob", chat, a.send("alice", chat), 0)
		a.leaveProof("bob")
		above := []tidemark.PendingDelivery{row("bob", chat, 2)}
		if _, err := w.raw.Mark(w.ctx, above); err != nil {
			t.Fatal(err)
		}
		bob := a.open("bob")
		want(t, "bob", bob.drain(), "open resumed=false", "caught_up")
		a.send("alice", chat)
		want(t, "bob, later", messagesOf(bob.drain()), "message ab 2")
	})
}

func TestClose_marks_nothing_above_the_head(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		a.send("alice", chat)
		// The session finds the row. Before it has read the chat to its end, another device
		// acknowledges everything.
		bob := a.open("bob")
		if _, err := bob.Next(w.ctx, nil, false); err != nil {
			t.Fatal(err)
		}
		w.before.set(once("Ranges", errDown, nil))
		if _, err := bob.Next(w.ctx, nil, false); err != nil {
			t.Fatal(err)
		}
		a.ack("bob", chat, 1, 0)
		bob.goodbye()
		w.wantRows("after the goodbye", "bob")
		bob = a.open("bob")
		a.send("alice", chat)
		bob.drain()
		a.ack("bob", chat, 2, 0)
		bob.goodbye()
		w.wantRows("everything is acknowledged", "bob")
	})
}

func TestStatus_snapshot_of_a_node_with_an_old_roster(t *testing.T) {
	for _, tc := range []struct {
		name         string
		back, opener tidemark.UserID
	}{
		{"the member came back", "bob", "bob"},
		{"another member came back", "bob", "carol"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a, b := w.node("a"), w.node("b")
				chat := a.chat("abc", "alice", "bob", "carol")
				a.send("alice", chat)
				a.ack("bob", chat, 1, 0)
				a.ack("carol", chat, 1, 0)
				a.remove(chat, tc.back)
				b.open("alice", withStatuses).drain() // b caches the roster without them
				w.publish.set(func(registry.Node, bus.Event, func() error) error { return errDown })
				a.add(chat, tc.back)
				w.publish.clear()
				got := b.open(tc.opener, withStatuses).drain()
				if !slices.Contains(got, "status abc bob 1 0") {
					t.Errorf("%s got %v, want bob's status in it", tc.opener, got)
				}
			})
		})
	}
}

func TestMembership_removal_whose_answer_is_lost_removes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		w.after.set(once("RemoveMember", errDown, nil))
		a.remove(chat, "bob")
		want(t, "bob", bob.drain(), "membership abc bob removed")
		a.ack("carol", chat, 0, 0+a.send("carol", chat))
		settle()
		want(t, "bob, later", bob.drain())
	})
}

// TestStatus_aggregate_that_was_lost_is_sent_again: a client resumes from before the status of a
// large chat.
func TestStatus_aggregate_that_was_lost_is_sent_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		users := crowd(tidemark.StatusFanoutLimit + 1)
		chat := a.chat("crowd", users...)
		alice := a.open("alice")
		alice.drain()
		a.send("alice", chat)
		settle()
		alice.drain()
		position := alice.last
		for _, user := range users {
			a.ack(user, chat, 1, 0)
		}
		settle()
		if got := alice.drain(); !slices.Contains(got, "status crowd all 1 0") {
			t.Fatalf("alice got %v, want the status in it", got)
		}
		again := a.open("alice", resuming(alice.Session(), position))
		again.last = alice.last
		if got := again.drain(); !slices.Contains(got, "status crowd all 1 0") {
			t.Errorf("alice got %v, want the status that she lost in it", got)
		}
	})
}

func TestMembership_status_that_was_read_before_a_removal_is_not_sent_after(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		a.ack("carol", chat, 1, 1)
		settle()
		bob := a.open("bob", withStatuses)
		removed := false
		w.after.set(func(method string) error {
			if method == "States" && !removed {
				removed = true
				a.remove(chat, "bob")
			}
			return nil
		})
		lines := bob.drain()
		if !slices.Contains(lines, "membership abc bob removed") {
			t.Fatalf("bob got %v: bob was not removed while statuses were read", lines)
		}
		for _, l := range lines {
			if strings.HasPrefix(l, "status abc") {
				t.Errorf("%q was sent after the removal", l)
			}
		}
	})
}

func TestSession_client_that_never_acknowledges_is_marked_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		bob := c.open("bob")
		bob.drain()
		before := c.store.Snapshot()
		c.send("alice", chat)
		bob.drain()
		time.Sleep(time.Hour)
		if n := c.since(before).Calls["Mark"]; n != 1 {
			t.Errorf("got %d calls of Mark in an hour for one message, want 1", n)
		}
	})
}

// TestSession_goodbye_does_not_end_a_connection_that_came_meanwhile: the client says goodbye on one
// connection and resumes on another. The session stays.
func TestSession_goodbye_does_not_end_a_connection_that_came_meanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		var again *client
		w.before.set(once("Advance", nil,
			func() { again = a.open("bob", resuming(bob.Session(), bob.last)) }))
		bob.goodbye()
		settle()
		if again == nil {
			t.Fatal("the goodbye wrote no acknowledgement: the test shows nothing")
		}
		again.last = bob.last
		a.send("alice", chat)
		want(t, "the newer connection", messagesOf(again.drain()), "message ab 2")
	})
}

// TestTicks_folded_raises_are_what_they_are_one_by_one: raises that are coalesced have the effect
// of the same raises one by one.
func TestTicks_folded_raises_are_what_they_are_one_by_one(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)                     // 1
		a.send("bob", chat)                       // 2: not contiguous with bob's watermark yet
		bob.Ack(server.Ack{Chat: chat, Acked: 1}) // now it is
		a.send("bob", chat)                       // 3
		settle()
		settle()
		w.wantState("their own messages are read, too", "bob", chat, 3, 3)
		a.send("alice", chat) // 4, never acknowledged
		bob.Ack(server.Ack{Chat: chat, Read: 1})
		synctest.Wait() // it is written, and what follows waits for the interval
		bob.Ack(server.Ack{Chat: chat, Acked: 3})
		a.send("bob", chat) // 5: not contiguous, because of 4
		time.Sleep(5 * time.Second)
		w.wantState("an undelivered message is neither read nor skipped", "bob", chat, 3, 3)
	})
}

// TestLease_of_a_device_that_moved_is_not_taken_back: a device opens a session on another node. It
// keeps the lease there, and its older session ends.
func TestLease_of_a_device_that_moved_is_not_taken_back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		old := a.open("bob", onDevice("phone"))
		old.drain()
		now := b.open("bob", onDevice("phone"))
		now.drain()
		time.Sleep(time.Minute)
		if _, err := old.Next(w.ctx, nil, false); tidemark.CodeOf(err) != tidemark.Replaced {
			t.Errorf("Next of the older session: got %v, want %s", err, tidemark.Replaced)
		}
		leases := w.leases("bob")
		if len(leases) != 1 || leases[0].Session != now.Session() {
			t.Errorf("got leases %+v, want that of the newer session", leases)
		}
		a.send("alice", chat)
		want(t, "the device", messagesOf(now.drain()), "message ab 1")
	})
}

// TestSession_in_order_when_it_goes_back_during_a_read: a sync moves the session back while a page
// is read. That page is discarded.
func TestSession_in_order_when_it_goes_back_during_a_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.TailMessages = 1 })
		chat := a.chat("ab", "alice", "bob")
		for range 5 {
			a.send("alice", chat)
		}
		a.ack("bob", chat, 2, 0)
		bob := a.open("bob")
		w.before.set(once("Ranges", nil, func() {
			_, err := bob.Sync(w.ctx, server.SyncRequest{
				Session: bob.Session(),
				Limit:   10,
				Cursors: []server.Cursor{{Chat: chat}},
			})
			if err != nil {
				t.Error(err)
			}
		}))
		want(t, "bob", messagesOf(bob.drain()),
			"message ab 1", "message ab 2", "message ab 3", "message ab 4", "message ab 5")
	})
}

func TestLarge_chats_live_session_that_a_publication_did_not_reach_is_notified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("large", crowd(tidemark.PendingFanoutLimit+1)...)
		bob := a.open("bob")
		bob.drain()
		failures := 1
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && failures > 0 {
				failures--
				return errDown
			}
			return send()
		})
		a.send("alice", chat)
		settle()
		settle()
		want(t, "bob", messagesOf(bob.drain()), "message large 1")
	})
}

// TestSession_in_order_when_a_late_notification_comes_during_a_read: a late notification is below
// the page that is being read. The page must not move the session past it.
func TestSession_in_order_when_a_late_notification_comes_during_a_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		small := func(cfg *server.Config) { cfg.TailMessages = 1 }
		a, b := w.node("a", small), w.node("b", small)
		chat := a.chat("ab", "alice", "bob")
		phone, tablet := a.open("bob", onDevice("phone")), b.open("bob", onDevice("tablet"))
		phone.drain()
		tablet.drain()
		late := w.holdNotifications("b", 1)
		a.send("alice", chat)
		phone.drain()
		phone.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		a.send("alice", chat)
		a.send("alice", chat) // the cache holds only this one
		w.before.set(once("Ranges", nil, func() { late.release(t) }))
		want(t, "tablet", messagesOf(tablet.drain()),
			"message ab 1", "message ab 2", "message ab 3")
	})
}

// TestSession_resume_lossless_when_the_older_connection_is_reading: a newer connection gets what
// the older one is reading.
func TestSession_resume_lossless_when_the_older_connection_is_reading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.TailMessages = 1 })
		chat := a.chat("ab", "alice", "bob")
		older := a.open("bob")
		older.drain()
		a.send("alice", chat)
		a.send("alice", chat)
		var newer *client
		w.before.set(once("Ranges", nil,
			func() { newer = a.open("bob", resuming(older.Session(), older.last)) }))
		events, err := older.Next(a.ctx, nil, false)
		wantCode(t, "Next of the older connection", err, tidemark.Replaced)
		want(t, "the newer connection", messagesOf(newer.drain()), "message ab 1", "message ab 2")
		if len(events) > 0 {
			t.Errorf("the older connection got %d events, want 0", len(events))
		}
	})
}
