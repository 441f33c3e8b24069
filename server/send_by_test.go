package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// sendBy sends a message that may be stored until a time.
func (c *core) sendBy(
	chat tidemark.ChatID, key, content string, by time.Time,
) (server.Sent, error) {
	return c.Send(c.ctx, "alice", tidemark.Draft{
		ChatID: chat, ClientMessageID: key, Content: content, SendBy: by,
	})
}

func TestSend_idempotent_after_send_by_stores_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		by := time.Now().Add(20 * time.Second)
		if _, err := a.sendBy(chat, "in-time", "x", by); err != nil {
			t.Fatalf("in time: %v", err)
		}
		time.Sleep(time.Until(by) + time.Second)
		_, err := a.sendBy(chat, "late", "x", by)
		wantCode(t, "an earlier try may still succeed", err, tidemark.Unavailable)
		time.Sleep(time.Minute)
		_, err = a.sendBy(chat, "late", "x", by)
		wantCode(t, "certain", err, tidemark.Expired)
		if param := tidemark.ParamOf(err); param != "send_by" {
			t.Errorf("got the parameter %q, want send_by", param)
		}
		_, err = a.sendBy("nowhere", "late", "x", by)
		wantCode(t, "no such chat", err, tidemark.NotFound)
		if head := w.head(chat); head != 1 {
			t.Errorf("got head %d, want 1", head)
		}
	})
}

// TestSend_idempotent_after_send_by_returns_the_first_message: every answer to the first send was
// lost, and its sender asks again when the time is over.
func TestSend_idempotent_after_send_by_returns_the_first_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		by := time.Now().Add(20 * time.Second)
		w.after.set(every("Append", errDown))
		_, err := a.sendBy(chat, "k", "x", by)
		wantCode(t, "every answer is lost", err, tidemark.Unavailable)
		time.Sleep(time.Until(by) + time.Second)
		sent, err := a.sendBy(chat, "k", "x", by)
		if err != nil || !sent.Duplicate || sent.Message.Sequence != 1 {
			t.Errorf("got %+v, %v, want message 1 as a duplicate", sent, err)
		}
		_, err = a.sendBy(chat, "k", "y", by)
		wantCode(t, "other content", err, tidemark.Conflict)
		settle()
		want(t, "bob", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

// TestSend_by_caller_does_only_what_they_may: who may not send is told so, not that their message
// expired. A message that they sent in time is still theirs.
func TestSend_by_caller_does_only_what_they_may(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("abcd", "alice", "bob", "carol", "dave")
		by := time.Now().Add(20 * time.Second)
		send := func(user tidemark.UserID, key string) error {
			_, err := c.Send(c.ctx, user, tidemark.Draft{
				ChatID: chat, ClientMessageID: key, Content: "x", SendBy: by,
			})
			return err
		}
		wantCode(t, "carol, in time", send("carol", "in-time"), "")
		c.become(chat, "bob", tidemark.Reader)
		c.remove(chat, "carol")
		for _, after := range []time.Duration{time.Second, time.Minute} {
			time.Sleep(time.Until(by) + after)
			wantCode(t, "a stranger", send("eve", "k"), tidemark.NotMember)
			wantCode(t, "a former member", send("carol", "k"), tidemark.NotMember)
			wantCode(t, "a former member's message", send("carol", "in-time"), "")
			wantCode(t, "a reader", send("bob", "k"), tidemark.Denied)
		}
		wantCode(t, "a member", send("dave", "k"), tidemark.Expired)
	})
}

// TestSend_idempotent_the_retry_queue_keeps_send_by: the storage is away until the time is over.
func TestSend_idempotent_the_retry_queue_keeps_send_by(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		by := time.Now().Add(20 * time.Second)
		w.before.set(every("Append", errDown))
		_, err := a.sendBy(chat, "k", "x", by)
		wantCode(t, "the storage is away", err, tidemark.Unavailable)
		time.Sleep(time.Until(by) + time.Second)
		w.before.clear()
		time.Sleep(2 * time.Minute)
		if head := w.head(chat); head != 0 {
			t.Errorf("got head %d, want 0", head)
		}
		_, err = a.sendBy(chat, "k", "x", by)
		wantCode(t, "afterwards", err, tidemark.Expired)
	})
}

// TestSend_pending_or_delivered_after_send_by: the message was stored in time, and the node learns
// of it when the time is over. It is handed over, though its sender never asks again.
func TestSend_pending_or_delivered_after_send_by(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		by := time.Now().Add(20 * time.Second)
		w.after.set(every("Append", errDown))
		_, err := a.sendBy(chat, "k", "x", by)
		wantCode(t, "every answer is lost", err, tidemark.Unavailable)
		time.Sleep(time.Until(by) + 5*time.Second)
		w.wantRows("bob, offline", "bob", row("bob", chat, 1))
	})
}

func TestSend_by_at_most_six_days_ahead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		if _, err := c.sendBy(chat, "a", "x", time.Now().Add(tidemark.MaxSendBy)); err != nil {
			t.Errorf("6 days: %v", err)
		}
		_, err := c.sendBy(chat, "b", "x", time.Now().Add(tidemark.MaxSendBy+time.Second))
		wantCode(t, "more", err, tidemark.Invalid)
	})
}
