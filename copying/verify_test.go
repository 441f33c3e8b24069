package copying_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/storage"
)

// scene returns a small world with something of each kind, and without chance.
func scene(t *testing.T) *world {
	w := newWorld(t, memories(), 5)
	w.begin()
	send := func(change func(d *tidemark.Draft)) {
		d := w.draft("group", "u0")
		change(&d)
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	send(func(*tidemark.Draft) {})
	send(func(d *tidemark.Draft) { d.Mentions = tidemark.NewMentions(false, w.users[1:3]) })
	send(func(d *tidemark.Draft) {
		d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 2}
	})
	send(func(d *tidemark.Draft) {
		d.Kind, d.Content = tidemark.KindReact, ""
		d.Relation = &tidemark.Relation{Sequence: 2, Emoji: "👍"}
	})
	for w.last = 899; w.last%3 != 2; w.last++ {
	}
	send(func(*tidemark.Draft) {})
	_, err := w.store.Ban(w.ctx, "group", "u7", w.at())
	w.ok(err)
	_, err = w.store.PutBlock(w.ctx, "u5", "u6", w.at())
	w.ok(err)
	w.ok(w.store.SetReceipts(w.ctx, "u1", "", tidemark.ReceiptsOff))
	w.tells()
	w.notes()
	return w
}

// message returns a copied message of the scene as it is in a store.
func (w *world) message(s copying.Store, n tidemark.Sequence) storage.CopiedMessage {
	w.t.Helper()
	pages, err := s.Ranges(w.ctx, []storage.Range{{Chat: "group", After: n - 1, Limit: 1}})
	w.ok(err)
	facts, err := s.MessageFacts(w.ctx, storage.FactsQuery{
		Chat: "group", From: n, To: n, Users: w.users, Mentions: true,
	})
	w.ok(err)
	return storage.CopiedMessage{Message: pages[0][0].WithoutTarget(), MessageFacts: facts[0]}
}

// TestVerify_copy_equal_finds_what_differs: each part of a copy that is not as in the source is in
// the report.
func TestVerify_copy_equal_finds_what_differs(t *testing.T) {
	w := scene(t)
	ctx := w.ctx
	name := "another"
	for _, tt := range []struct {
		name   string
		change func(s copying.Store) error
		want   string
	}{
		{"nothing", func(copying.Store) error { return nil }, ""},
		{"a name", func(s copying.Store) error {
			_, err := s.UpdateChat(ctx, "group", storage.ChatChange{Name: &name})
			return err
		}, "chat group: it is"},
		{"white space", func(s copying.Store) error {
			copied := storage.CopiedChat{Pair: ""}
			var err error
			if copied.Chat, err = s.Chat(ctx, "group"); err != nil {
				return err
			}
			copied.Activity, _ = s.Activity(ctx, "group")
			copied.Open = true
			copied.Metadata = json.RawMessage(`{"topic":"fish","n":1.0}`)
			return s.PutChat(ctx, copied)
		}, "chat group: it is"},
		{"a message too many", func(s copying.Store) error {
			_, err := storage.AppendOne(ctx, s, w.draft("direct", "u0"))
			return err
		}, "chat direct: it is"},
		{"another chat", func(s copying.Store) error {
			_, _, err := s.CreateChat(ctx, storage.NewChat{
				ID: "new", Type: tidemark.Group, History: tidemark.HistoryFull,
				Members: w.users[:1], CreatedAt: began,
			})
			return err
		}, "the source has 5 chats, and the target 6"},
		{"a watermark", func(s copying.Store) error {
			_, err := s.Advance(ctx, []storage.Advance{
				{User: "u2", Chat: "group", Raise: tidemark.Raise{Acked: 2}, Now: began},
			})
			return err
		}, "chat group: the member u2 is"},
		{"what is unread", func(s copying.Store) error {
			_, err := s.MarkUnread(ctx, "u0", "group", 0)
			if err == nil {
				m := w.message(s, 2)
				m.MessageFacts.Mentions = tidemark.Mentions{All: true}
				err = s.PutMessages(ctx, "group", []storage.CopiedMessage{m})
			}
			return err
		}, "are unread for u3"},
		{"a ban", func(s copying.Store) error { return s.Unban(ctx, "group", "u7") },
			"chat group: bans, pins and incarnations"},
		{"a content", func(s copying.Store) error {
			m := w.message(s, 1)
			m.Content = "something else"
			return s.PutMessages(ctx, "group", []storage.CopiedMessage{m})
		}, "chat group: the messages 1 to 5 differ"},
		{"a reaction", func(s copying.Store) error {
			m := w.message(s, 4)
			m.Relation.Emoji, m.Stands = "🌊", true
			return s.PutMessages(ctx, "group", []storage.CopiedMessage{m})
		}, "chat group: the reactions to 1 to 5 differ"},
		{"a block", func(s copying.Store) error {
			_, err := s.RemoveBlock(ctx, "u5", "u6")
			return err
		}, "the blocks differ: there are 0, and were 1"},
		{"a setting", func(s copying.Store) error {
			return s.SetReceipts(ctx, "u1", "", tidemark.ReceiptsOn)
		}, "the receipts differ: there are 0, and were 1"},
		{"a document", func(s copying.Store) error {
			_, err := s.PutDocument(ctx,
				storage.Document{Kind: "k", Name: "n", Value: []byte("1")})
			return err
		}, "the documents differ: there are 2, and were 1"},
		{"the audit log", func(s copying.Store) error {
			return s.RecordAudit(ctx, storage.AuditEntry{
				ID: storage.NewAuditID(began), Operation: "import", State: storage.AuditBegun,
			})
		}, "the audit entries differ: there are 1, and were 0"},
		{"the state of the copy", func(s copying.Store) error {
			_, _, err := storage.EditDocument(ctx, s, storage.DocumentKey{
				Kind: "copy", Name: "state",
			}, func([]byte) ([]byte, error) { return nil, nil })
			return err
		}, "the target has no complete copy"},
	} {
		to := memories() // What is compared is the same on each.
		w.move(to)
		w.ok(tt.change(to))
		got := w.differences(to)
		found := slices.ContainsFunc(got, func(one string) bool {
			return strings.Contains(one, tt.want)
		})
		if (tt.want != "") != (len(got) > 0) || tt.want != "" && !found {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestNodes_copy_equal_notices_a_server: a worker writes its heartbeat, and one that has died does
// not.
func TestNodes_copy_equal_notices_a_server(t *testing.T) {
	s := memories()
	beat := func(name string) {
		_, _, err := storage.EditDocument(t.Context(), s,
			storage.DocumentKey{Kind: "workers", Name: name},
			func(old []byte) ([]byte, error) { return append(old[:len(old):len(old)], '1'), nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	look := func(meanwhile func()) []string {
		nodes, err := copying.Nodes(t.Context(), s,
			func(context.Context, time.Duration) { meanwhile() })
		if err != nil {
			t.Fatal(err)
		}
		return nodes
	}
	if got := look(func() { t.Error("nobody has written, and it waits") }); len(got) > 0 {
		t.Errorf("nodes of an empty store: %q", got)
	}
	beat("dead")
	beat("living")
	if got := look(func() {}); len(got) > 0 {
		t.Errorf("nodes that write nothing: %q", got)
	}
	got := look(func() { beat("living") })
	if want := []string{"workers living"}; !slices.Equal(got, want) {
		t.Errorf("nodes that write: got %q, want %q", got, want)
	}
}

// TestBeat_copy_equal_one_copy_at_a_time: another copy is noticed as long as it works. If one takes
// its place, because it was stopped for a while, it ends.
func TestBeat_copy_equal_one_copy_at_a_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memories()
		waits := func(ctx context.Context, d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}
		ended := make(chan error)
		first := make(chan struct{})
		go func() {
			ended <- copying.Beat(t.Context(), s, func(ctx context.Context) error {
				close(first)
				waits(ctx, time.Hour)
				return ctx.Err()
			})
		}()
		<-first
		nodes, err := copying.Nodes(t.Context(), s, waits)
		if want := []string{"another tidemark copy"}; err != nil || !slices.Equal(nodes, want) {
			t.Errorf("while a copy works: got %q, %v, want %q", nodes, err, want)
		}
		err = copying.Beat(t.Context(), s, func(context.Context) error {
			if err := <-ended; tidemark.CodeOf(err) != tidemark.Conflict {
				t.Errorf("the first copy ended with %v, want a Conflict", err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("the second copy ended with %v", err)
		}
		nodes, err = copying.Nodes(t.Context(), s, func(context.Context, time.Duration) {
			t.Error("both have ended, and it waits")
		})
		if err != nil || len(nodes) > 0 {
			t.Errorf("after both: got %q, %v, want none", nodes, err)
		}
	})
}
