package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// rules is a reviewer that refuses "spam", and replaces "damn" by stars. silent refuses everything.
type rules struct {
	asked  int
	silent bool
}

func (r *rules) Review(
	_ context.Context, drafts []tidemark.Draft,
) (reviewed []tidemark.Draft, refused []error) {
	for _, d := range drafts {
		r.asked++
		var err error
		switch {
		case r.silent:
			err = tidemark.Errorf(tidemark.Unavailable, "there is no answer")
		case d.Content == "spam":
			err = tidemark.Errorf(tidemark.Denied, "no spam here")
		}
		d.Content = strings.ReplaceAll(d.Content, "damn", "****")
		reviewed, refused = append(reviewed, d), append(refused, err)
	}
	return reviewed, refused
}

// worded returns a draft with a key and content.
func worded(key, content string) tidemark.Draft {
	return tidemark.Draft{ChatID: "abc", ClientMessageID: key, Content: content}
}

// reviewing starts two nodes with rules of their own, and the chat "abc".
func reviewing(t *testing.T) (a, b *core, atA, atB *rules) {
	t.Helper()
	w := newCluster(t)
	atA, atB = &rules{}, &rules{}
	a = w.node("a", func(c *server.Config) { c.Reviewer = atA })
	b = w.node("b", func(c *server.Config) { c.Reviewer = atB })
	a.chat("abc", "alice", "bob", "carol")
	return a, b, atA, atB
}

func TestSend_asked_before_stored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, atA, _ := reviewing(t)
		results := a.SendAll(a.ctx, "alice", []tidemark.Draft{
			worded("k1", "hello"), worded("k2", "spam"), worded("k3", "damn"),
		})
		wantCode(t, "what is refused", results[1].Err, tidemark.Denied)
		if got := tidemark.DetailOf(results[1].Err); got != "no spam here" {
			t.Errorf("alice reads %q, want the text of the rules", got)
		}
		for i, want := range map[int]string{0: "hello", 2: "****"} {
			if got := results[i]; got.Err != nil || got.Message.Content != want {
				t.Errorf("message %d: %q (%v), want %q", i, got.Message.Content, got.Err, want)
			}
		}
		if got := results[2].Message.Sequence; got != 2 {
			t.Errorf("the message after the refused one has the sequence %d, want 2", got)
		}
		edit := worded("k4", "damn it")
		edit.Kind, edit.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 1}
		sent, err := a.Send(a.ctx, "alice", edit)
		if err != nil || sent.Message.Relation.Target.Content != "**** it" {
			t.Errorf("an edit: %+v (%v), want its text replaced", sent.Message, err)
		}
		if atA.asked != 4 {
			t.Errorf("asked about %d messages, want 4", atA.asked)
		}
	})
}

func TestSend_asked_before_stored_and_not_about_these(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, atA, _ := reviewing(t)
		control, exempt := worded("k1", "spam"), worded("k2", "spam")
		control.Kind, exempt.Unreviewed = tidemark.KindControl, true
		for _, d := range []tidemark.Draft{control, exempt} {
			if _, err := a.Send(a.ctx, "alice", d); err != nil {
				t.Errorf("%s: %v", d.ClientMessageID, err)
			}
		}
		if atA.asked != 0 {
			t.Errorf("asked about %d messages, want none", atA.asked)
		}
	})
}

// A device that gets confirmations in place of its own messages gets the event of one that the
// reviewer replaced. Otherwise it would go on to show what it sent.
func TestSend_asked_before_stored_and_the_sender_sees_what_replaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, _ := reviewing(t)
		phone := a.open("alice")
		phone.drain()
		drafts := []tidemark.Draft{worded("k1", "hello"), worded("k2", "damn")}
		_, taken := phone.SendConfirmed(a.ctx, drafts, []string{"1", "2"})
		if !slices.Equal(taken, []bool{true, false}) {
			t.Errorf("taken = %v, want only what was not replaced", taken)
		}
		settle()
		got := strings.Join(phone.drain(), "\n")
		if !strings.Contains(got, "message abc 2") {
			t.Errorf("alice got\n%s\nwant the event of message 2", got)
		}
	})
}

// What a resend is answered is the message that was stored, whatever the rules say now.
func TestSend_asked_before_stored_and_a_resend_changes_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, atA, atB := reviewing(t)
		first, err := a.Send(a.ctx, "alice", worded("k1", "damn"))
		if err != nil {
			t.Fatal(err)
		}
		resend := func(what string, c *core) {
			t.Helper()
			again, err := c.Send(c.ctx, "alice", worded("k1", "damn"))
			if err != nil || !again.Duplicate || again.Message.Content != "****" ||
				again.Message.Sequence != first.Message.Sequence {
				t.Errorf("%s: %+v (%v), want the first message", what, again, err)
			}
		}
		resend("at the same node", a)
		if atA.asked != 1 {
			t.Errorf("asked %d times, want once", atA.asked)
		}
		atB.silent = true
		resend("at a node whose rules refuse it", b)
		atB.silent = false
		resend("once more", b)
		_, err = b.Send(b.ctx, "alice", worded("k2", "spam"))
		wantCode(t, "what was never stored", err, tidemark.Denied)
	})
}

// A message that came in time is found after its SendBy, though the rules replaced its text.
func TestSend_asked_before_stored_and_a_late_resend_changes_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, _ := reviewing(t)
		d := worded("k1", "damn")
		d.SendBy = time.Now().Add(time.Minute)
		if _, err := a.Send(a.ctx, "alice", d); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		again, err := a.Send(a.ctx, "alice", d)
		if err != nil || !again.Duplicate || again.Message.Content != "****" {
			t.Errorf("a late resend: %+v (%v), want the first message", again, err)
		}
	})
}

// The storage forgets keys after days. So a node does not trust its memory of a key for long.
func TestSend_asked_before_stored_again_after_a_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, atA, _ := reviewing(t)
		for i, after := range []time.Duration{0, time.Minute, 2 * time.Hour} {
			time.Sleep(after)
			if _, err := a.Send(a.ctx, "alice", worded("k1", "hello")); err != nil {
				t.Fatal(err)
			}
			if want := []int{1, 1, 2}[i]; atA.asked != want {
				t.Errorf("send %d: asked %d times, want %d", i, atA.asked, want)
			}
		}
	})
}

// While the storage does not say whether the message is stored, its sender is not told that it is
// refused.
func TestSend_asked_before_stored_and_refused_while_nobody_knows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(c *server.Config) { c.Reviewer = &rules{} })
		a.chat("abc", "alice", "bob", "carol")
		w.before.set(every("Sent", errDown))
		_, err := a.Send(a.ctx, "alice", worded("k1", "spam"))
		wantCode(t, "no answer of the storage", err, tidemark.Unavailable)
		w.before.clear()
		_, err = a.Send(a.ctx, "alice", worded("k1", "spam"))
		wantCode(t, "afterwards", err, tidemark.Denied)
	})
}
