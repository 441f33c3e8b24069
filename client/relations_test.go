package client

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// all returns what the bot has handled.
func (b *bot) all() []tidemark.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]tidemark.Message(nil), b.handled...)
}

// asAlice is an edit of newBot: the client is alice's.
func asAlice(c *Config) {
	c.User = alice
	c.Token = func(context.Context) (string, error) { return "dev:alice", nil }
}

// TestRun_hands_over_relations: edits and redactions come in order, with their targets. So a
// program that applies each newer target ends with what the history has.
func TestRun_hands_over_relations(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		s := transporttest.New(t, quick())
		chat := s.Group(alice, bob)
		a, b := newBot(t, s.URL, asAlice), newBot(t, s.URL, only(over)).start()
		text := rand.Text()
		send := func(m tidemark.Message, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "bob handles it", func() bool {
				got := b.all()
				return len(got) > 0 && got[len(got)-1].Sequence == m.Sequence
			})
		}
		send(a.Send(t.Context(), Draft{ChatID: chat, Content: text}))
		send(a.Send(t.Context(), Draft{ChatID: chat, Content: "2"}))
		send(a.Edit(t.Context(), 2, Draft{
			ChatID: chat, Content: "new", ContentType: "text/markdown", Metadata: []byte(`{"k":1}`),
		}))
		send(a.Redact(t.Context(), 1, Draft{ChatID: chat}))
		got := b.all()
		if len(got) != 4 {
			t.Fatalf("handled %+v", got)
		}
		edit, redaction := got[2], got[3]
		if edit.Kind != tidemark.KindEdit || edit.Content != "" || edit.Relation.Sequence != 2 {
			t.Errorf("the edit is %+v", edit)
		}
		if of := edit.Relation.Target; of == nil || of.Content != "new" || of.Sequence != 2 ||
			of.ContentType != "text/markdown" || string(of.Metadata) != `{"k":1}` ||
			of.Revision.Sequence != 3 || of.Revision.Kind != tidemark.KindEdit ||
			of.Revision.By != alice {
			t.Errorf("the edited message is %+v", of)
		}
		if of := redaction.Relation.Target; redaction.Kind != tidemark.KindRedact || of == nil ||
			!of.Redacted() || of.Content != "" || of.Sequence != 1 || of.Revision.Sequence != 4 {
			t.Errorf("the redaction is %+v of %+v", redaction, of)
		}
		kept := map[tidemark.Sequence]tidemark.Message{}
		for _, m := range got {
			kept[m.Sequence] = m
			if m.Relation != nil {
				kept[m.Relation.Sequence] = *m.Relation.Target
			}
		}
		history, _, err := b.History(t.Context(), chat, 0, 10)
		if err != nil || len(history) != 4 {
			t.Fatalf("the history is %+v, %v", history, err)
		}
		for i := range history {
			of := kept[history[i].Sequence]
			if want := string(history[i].AppendJSON(nil)); string(of.AppendJSON(nil)) != want ||
				strings.Contains(want, text) {
				t.Errorf("message %d is %+v, want %s", i+1, of, want)
			}
		}
		isAcked(t, s, bob, chat, 4)
	})
}

// TestRun_hands_over_reactions_and_pins: a program that counts them knows what their redactions
// take back.
func TestRun_hands_over_reactions_and_pins(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		s := transporttest.New(t, quick())
		chat := s.Group(alice, bob)
		a, b := newBot(t, s.URL, asAlice), newBot(t, s.URL, only(over)).start()
		must := func(m tidemark.Message, err error) tidemark.Message {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		in := Draft{ChatID: chat}
		must(a.Send(t.Context(), Draft{ChatID: chat, Content: "1"}))
		react := must(a.React(t.Context(), 1, "👍", in))
		must(a.Pin(t.Context(), 1, in))
		_, err := a.React(t.Context(), 1, "👍", in)
		if tidemark.CodeOf(err) != tidemark.Conflict {
			t.Errorf("the same reaction: got %v, want Conflict", err)
		}
		wait.Until(t, "bob handles the pin", func() bool { return len(b.all()) == 3 })
		for range 2 {
			must(a.Redact(t.Context(), react.Sequence, in))
		}
		wait.Until(t, "bob handles the redaction", func() bool { return len(b.all()) == 4 })
		got := b.all()
		if m := got[1]; m.Kind != tidemark.KindReact || m.Redacted() ||
			!cmp.Equal(*m.Relation, tidemark.Relation{Sequence: 1, Emoji: "👍"}) {
			t.Errorf("the reaction is %+v", m)
		}
		if m := got[2]; m.Kind != tidemark.KindPin ||
			!cmp.Equal(*m.Relation, tidemark.Relation{Sequence: 1}) {
			t.Errorf("the pin is %+v", m)
		}
		undone := got[3].Relation.Target
		if undone == nil || undone.Sequence != 2 || undone.Revision.Sequence != 4 ||
			!cmp.Equal(*undone.Relation, tidemark.Relation{Sequence: 1, Emoji: "👍"}) {
			t.Errorf("what was undone is %+v", undone)
		}
		isAcked(t, s, bob, chat, 4)
	})
}

// TestClient_sends_once_what_changes_a_message: an edit whose answer is lost is repeated with its
// ID, and edits once. So does a redaction, whose ID follows from its target.
func TestClient_sends_once_what_changes_a_message(t *testing.T) {
	s := transporttest.New(t, quick())
	chat := s.Group(bob, alice)
	var tries atomic.Int64
	b := newBot(t, proxied(t, s.URL, func(_ http.ResponseWriter, r *http.Request) bool {
		if isSend(r) && tries.Add(1) == 1 {
			forward(t, s, r) // stored, and the answer is lost
			panic(http.ErrAbortHandler)
		}
		return false
	}))
	for n := range 2 {
		s.SendText(bob, chat, string(rune('a'+n)), "text")
	}
	m, err := b.Edit(t.Context(), 1, Draft{ID: "edit", ChatID: chat, Content: "new"})
	if err != nil || m.Sequence != 3 || m.Relation.Target.Content != "new" || tries.Load() != 2 {
		t.Fatalf("after %d tries: %+v, %v", tries.Load(), m, err)
	}
	tries.Store(0)
	for range 2 {
		m, err = b.Redact(t.Context(), 2, Draft{ChatID: chat})
		if err != nil || m.Sequence != 4 || m.ClientMessageID != "redact-2" ||
			!m.Relation.Target.Redacted() {
			t.Fatalf("after %d tries: %+v, %v", tries.Load(), m, err)
		}
	}
	if tries.Load() != 3 {
		t.Errorf("%d tries, want 3", tries.Load())
	}
	for name, tc := range map[string]struct {
		send func() (tidemark.Message, error)
		want tidemark.Code
	}{
		"no such message": {func() (tidemark.Message, error) {
			return b.Edit(t.Context(), 9, Draft{ChatID: chat, Content: "x"})
		}, tidemark.NotFound},
		"redacted": {func() (tidemark.Message, error) {
			return b.Edit(t.Context(), 2, Draft{ChatID: chat, Content: "x"})
		}, tidemark.Conflict},
		"a relation": {func() (tidemark.Message, error) {
			return b.Redact(t.Context(), 3, Draft{ChatID: chat})
		}, tidemark.Conflict},
		"other content": {func() (tidemark.Message, error) {
			return b.Edit(t.Context(), 1, Draft{ID: "edit", ChatID: chat, Content: "x"})
		}, tidemark.Conflict},
		"of another user": {func() (tidemark.Message, error) {
			return newBot(t, s.URL, asAlice).Edit(t.Context(), 1, Draft{ChatID: chat, Content: "x"})
		}, tidemark.Denied},
		"content of a redaction": {func() (tidemark.Message, error) {
			return b.Redact(t.Context(), 1, Draft{ChatID: chat, Content: "x"})
		}, tidemark.Invalid},
	} {
		_, err := tc.send()
		var e *tidemark.Error
		if !errors.As(err, &e) || e.Code != tc.want || errors.Is(err, ErrUnknown) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

// TestInbox_redacted_stays: what waits for its handler is handed over as the latest relation says:
// messages, and the targets of relations. What the inbox measures stays right.
func TestInbox_redacted_stays(t *testing.T) {
	text := rand.Text()
	b := newRun(newBot(t, "http://127.0.0.1:1").Client, nil).inbox
	b.session("1-a", true)
	message := func(n tidemark.Sequence, sender tidemark.UserID) tidemark.Message {
		return tidemark.Message{
			ChatID: "c", Sequence: n, MessageID: "m", SenderID: sender, Content: text,
			Kind: tidemark.KindMessage,
		}
	}
	relate := func(
		n, target tidemark.Sequence, by tidemark.UserID, revision tidemark.Revision, content string,
	) {
		m, of := message(n, by), message(target, alice)
		of.Content, of.Revision = content, &revision
		m.Kind, m.Content = revision.Kind, ""
		m.Relation = &tidemark.Relation{Sequence: target, Target: &of}
		b.message(m)
	}
	for n := range tidemark.Sequence(3) {
		b.message(message(n+1, alice))
	}
	edit := func(n tidemark.Sequence) tidemark.Revision {
		return tidemark.Revision{Sequence: n, Kind: tidemark.KindEdit}
	}
	redaction := func(n tidemark.Sequence) tidemark.Revision {
		return tidemark.Revision{Sequence: n, Kind: tidemark.KindRedact}
	}
	relate(4, 1, alice, edit(4), "longer than what it was before")
	relate(5, 2, alice, edit(5), text)
	relate(6, 2, bob, redaction(6), "") // by another device of the user
	relate(7, 3, alice, redaction(8), "")
	relate(8, 3, alice, edit(7), "older")
	b.mu.Lock()
	defer b.mu.Unlock()
	size, says := 0, map[tidemark.Sequence]string{}
	for _, e := range b.chats["c"].queue {
		if e.message == nil {
			continue
		}
		if size += e.size; e.size != e.message.Size() {
			t.Errorf("message %d has %d bytes, and counts %d", e.message.Sequence,
				e.message.Size(), e.size)
		}
		if strings.Contains(string(e.message.AppendJSON(nil)), text) {
			t.Errorf("the text waits in %+v", e.message)
		}
		says[e.message.Sequence] = e.message.Content
	}
	if size != b.bytes || says[1] != "longer than what it was before" || says[3] != "" {
		t.Errorf("%d bytes wait, and %d count; the messages say %v", size, b.bytes, says)
	}
}

// TestInbox_redacted_stays_though_the_relation_is_not_queued: a redaction that has no place in the
// queue, and one that comes while a page with its message is on its way, change what is handed
// over.
func TestInbox_redacted_stays_though_the_relation_is_not_queued(t *testing.T) {
	message := func(n tidemark.Sequence) tidemark.Message {
		return tidemark.Message{
			ChatID: "c", Sequence: n, MessageID: "m", SenderID: alice, Content: "secret",
			Kind: tidemark.KindMessage,
		}
	}
	redaction := func(n, target tidemark.Sequence) tidemark.Message {
		m, of := message(n), message(target)
		of.Content = ""
		of.Revision = &tidemark.Revision{Sequence: n, Kind: tidemark.KindRedact}
		m.Kind, m.Content = tidemark.KindRedact, ""
		m.Relation = &tidemark.Relation{Sequence: target, Target: &of}
		return m
	}
	saysOf := func(b *inbox, n tidemark.Sequence) string {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.chats["c"].queue {
			if e.message != nil && e.message.Sequence == n {
				return e.message.Content
			}
		}
		return "nothing waits"
	}
	newInbox := func() *inbox {
		b := newRun(newBot(t, "http://127.0.0.1:1").Client, nil).inbox
		b.session("1-a", true)
		return b
	}
	// fill gets the page after message 1, as the turn of the chat does.
	fill := func(b *inbox) {
		c := b.chats["c"]
		b.mu.Lock()
		b.running++
		c.step = running
		b.mu.Unlock()
		b.fill(t.Context(), c, 1, pageSize)
	}
	t.Run("a list", func(t *testing.T) {
		b := newInbox()
		for n := range tidemark.Sequence(3) {
			b.message(message(n + 1))
		}
		list := redaction(4, 1)
		list.Relation = &tidemark.Relation{Sequences: []tidemark.Sequence{1, 3}}
		b.message(list)
		for n, want := range map[tidemark.Sequence]string{1: "", 2: "secret", 3: ""} {
			if got := saysOf(b, n); got != want {
				t.Errorf("message %d says %q, want %q", n, got, want)
			}
		}
	})
	t.Run("a full queue", func(t *testing.T) {
		b := newInbox()
		for n := range tidemark.Sequence(mostOfChat) {
			b.message(message(n + 1))
		}
		b.message(message(mostOfChat + 1))
		b.message(redaction(mostOfChat+2, 10))
		if got := saysOf(b, 10); got != "" {
			t.Errorf("message 10 says %q, want nothing", got)
		}
	})
	t.Run("many changes of a page", func(t *testing.T) {
		b := newInbox()
		b.message(message(1))
		b.fetch = func(
			_ context.Context, _ tidemark.ChatID, after tidemark.Sequence, _ int,
		) (page, error) {
			for n := range tidemark.Sequence(mostOfChat) {
				b.message(redaction(after+1_000+n, after+1+n))
			}
			return page{Messages: []tidemark.Message{message(after + 1)}}, nil
		}
		fill(b)
		if got := saysOf(b, 2); got != "nothing waits" {
			t.Errorf("message 2 says %q, want that its page comes again", got)
		}
	})
	t.Run("a page on its way", func(t *testing.T) {
		b := newInbox()
		b.message(message(1))
		b.fetch = func(
			_ context.Context, _ tidemark.ChatID, after tidemark.Sequence, _ int,
		) (page, error) {
			p := page{Messages: []tidemark.Message{message(after + 1), message(after + 2)}}
			b.message(redaction(after+4, after+1))
			return p, nil
		}
		fill(b)
		if got := [2]string{saysOf(b, 2), saysOf(b, 3)}; got != [2]string{"", "secret"} {
			t.Errorf("the messages of the page say %q, want that the first one is redacted", got)
		}
	})
}
