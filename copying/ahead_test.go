package copying_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

// A busy source is one on which others write: before is called before each call.
type busy struct {
	*storagetest.Faulty
	storage.CopyTarget
	source storage.CopySource
	before func()
}

// busyBefore returns a world's store as a busy source.
func (w *world) busyBefore(before func()) *busy {
	b := &busy{
		Faulty: storagetest.Fault(w.store), CopyTarget: w.store, source: w.store, before: before,
	}
	b.Faulty.Before = func(string) error {
		before()
		return nil
	}
	return b
}

func (b *busy) Incarnations() []tidemark.Incarnation { return b.source.Incarnations() }

func (b *busy) Nodes(ctx context.Context) ([]string, error) { return b.source.Nodes(ctx) }

func (b *busy) Activity(ctx context.Context, chat tidemark.ChatID) (time.Time, error) {
	b.before()
	return b.source.Activity(ctx, chat)
}

func (b *busy) MessageFacts(
	ctx context.Context, q storage.FactsQuery,
) ([]storage.MessageFacts, error) {
	b.before()
	return b.source.MessageFacts(ctx, q)
}

func (b *busy) Entries(
	ctx context.Context, kind storage.EntryKind, after string, limit int,
) ([]storage.Entry, string, error) {
	b.before()
	return b.source.Entries(ctx, kind, after, limit)
}

// ahead copies the world ahead, as if others wrote before each call of the source.
func (w *world) ahead(to copying.Store, before func()) *copying.Copier {
	w.t.Helper()
	c := copying.New(copying.Config{
		From: w.busyBefore(before), To: to, Clock: time.Now, Workers: 1,
	})
	w.ok(c.Ahead(w.ctx))
	if err := copying.Complete(w.ctx, to); tidemark.CodeOf(err) != tidemark.Conflict {
		w.t.Errorf("after Ahead, a server may begin: %v", err)
	}
	return c
}

func quiet() {}

// restless makes the world change at each call: a little, with all that may happen to a chat.
func (w *world) restless() func() {
	acting := false
	return func() {
		if acting {
			return
		}
		acting = true
		w.act(1)
		if w.IntN(300) == 0 {
			_, err := w.store.DeleteChat(w.ctx, w.chat(), w.at())
			w.may(err)
		}
		acting = false
	}
}

// TestCopy_copy_equal_ahead_while_others_write: something changes before each call of the source,
// twice over. The last run makes the target equal.
func TestCopy_copy_equal_ahead_while_others_write(t *testing.T) {
	for seed := range runs() {
		w := newWorld(t, memories(), seed)
		w.begin()
		w.act(200)
		to := stores.Open(t).(copying.Store)
		w.ahead(to, w.restless())
		w.act(int(seed) * 7 % 50)
		w.ahead(to, w.restless())
		w.move(to)
		w.same(fmt.Sprint("seed ", seed), to)
		w.sees(fmt.Sprint("seed ", seed), w.on(to, seed))
	}
}

// TestCopy_copy_equal_written_at_every_call: whatever call of the source it is at which others
// write a lot, the last run makes the target equal.
func TestCopy_copy_equal_written_at_every_call(t *testing.T) {
	step := 1
	if !onMemory() {
		step = 29
	}
	for n := 0; ; n += step {
		w := newWorld(t, memories(), 5)
		w.begin()
		w.act(150)
		to := stores.Open(t).(copying.Store)
		calls, wrote := 0, false
		w.ahead(to, func() {
			if calls++; calls == n+1 {
				wrote = true
				w.act(40)
			}
		})
		w.move(to)
		w.same(fmt.Sprint("written at call ", n), to)
		if t.Failed() {
			return
		}
		if !wrote {
			if n < 30 {
				t.Errorf("the source has only %d calls", n)
			}
			return
		}
	}
}

// TestCopy_copy_equal_ahead_killed_at_every_call: whatever call of the target is the last one of
// Ahead, with others writing, or of the last run, the next ones end with an equal store.
func TestCopy_copy_equal_ahead_killed_at_every_call(t *testing.T) {
	step := 3
	if !onMemory() {
		step = 97
	}
	for _, last := range []bool{false, true} {
		for n := 0; ; n += step {
			w := newWorld(t, memories(), 8)
			w.begin()
			w.act(150)
			to := stores.Open(t).(copying.Store)
			if last {
				w.ahead(to, w.restless())
			}
			calls, killed := 0, false
			die := func() error {
				if calls++; calls <= n {
					return nil
				}
				killed = true
				return tidemark.Errorf(tidemark.Unavailable, "the copy was killed")
			}
			faulty := storagetest.Fault(to)
			faulty.Before = func(string) error { return die() }
			c := copying.New(copying.Config{
				From: w.store, Clock: time.Now, Workers: 1,
				To: &mortal{Faulty: faulty, CopySource: to, target: to, die: die},
			})
			if last {
				w.interrupted(c.Run(w.ctx))
			} else {
				w.interrupted(c.Ahead(w.ctx))
				w.act(30)
				if n%2 == 0 {
					w.ahead(to, quiet)
				}
			}
			w.move(to)
			w.same(fmt.Sprintf("killed at call %d, in the last run: %t", n, last), to)
			if t.Failed() || !killed {
				break
			}
		}
	}
}

// TestCopy_copy_equal_reads_what_changed: the last run reads messages only of chats that have
// changed, writes only those that are new or differ, and drops what it cannot overwrite.
func TestCopy_copy_equal_reads_what_changed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *world)
		// chats are those that are not skipped, and messages those that are written.
		chats, messages int64
	}{
		{"nothing", func(*world) {}, 0, 0},
		{"a message", func(w *world) { w.sends(nil) }, 1, 1},
		{"an edit", func(w *world) {
			w.sends(func(d *tidemark.Draft) {
				d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 2}
			})
		}, 1, 2},
		{"a reaction ends", func(w *world) {
			w.sends(func(d *tidemark.Draft) {
				d.Kind, d.Content = tidemark.KindRedact, ""
				d.Relation = &tidemark.Relation{Sequence: 4}
			})
		}, 1, 5},
		{"a member reads", func(w *world) {
			_, err := w.store.Advance(w.ctx, []storage.Advance{
				{User: "u1", Chat: "group", Raise: tidemark.Raise{Acked: 3, Read: 3}, Now: began},
			})
			w.ok(err)
		}, 1, 0},
		{"a mark ends", func(w *world) {
			_, err := w.store.MarkUnread(w.ctx, "u2", "group", 0)
			w.ok(err)
		}, 1, 0},
		{"a ban is lifted", func(w *world) { w.ok(w.store.Unban(w.ctx, "group", "u7")) }, 1, 4},
		{"a ban", func(w *world) {
			_, err := w.store.Ban(w.ctx, "since", "u7", began)
			w.ok(err)
		}, 1, 0},
		{"the name", func(w *world) {
			name := "a new name"
			_, err := w.store.UpdateChat(w.ctx, "group", storage.ChatChange{Name: &name})
			w.ok(err)
		}, 1, 0},
		{"expiry", func(w *world) {
			_, err := w.store.Expire(w.ctx, "group", began.Add(time.Hour), 1)
			w.ok(err)
		}, 1, 3},
		{"a deleted chat", func(w *world) {
			_, err := w.store.DeleteChat(w.ctx, "group", w.at())
			w.ok(err)
		}, 1, 0},
		{"a member who said nothing is erased", func(w *world) {
			_, err := w.store.RemoveMember(w.ctx, "group", "u5", w.at())
			w.ok(err)
			_, err = w.store.EraseMember(w.ctx, "group",
				tidemark.Erasure{User: "u5", Alias: "somebody", At: w.at()}, 10)
			w.ok(err)
		}, 1, 4},
		{"an erasure has begun", func(w *world) { w.erases("u5") }, 5, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, memories(), 1)
			w.begin()
			for range 3 {
				w.sends(nil)
			}
			w.sends(func(d *tidemark.Draft) {
				d.Kind, d.Content = tidemark.KindReact, ""
				d.Relation = &tidemark.Relation{Sequence: 1, Emoji: "👍"}
			})
			_, err := w.store.Advance(w.ctx, []storage.Advance{
				{User: "u2", Chat: "group", Raise: tidemark.Raise{Acked: 3, Read: 3}, Now: began},
			})
			w.ok(err)
			_, err = w.store.MarkUnread(w.ctx, "u2", "group", 2)
			w.ok(err)
			_, err = w.store.Ban(w.ctx, "group", "u7", began)
			w.ok(err)
			to := stores.Open(t).(copying.Store)
			w.ahead(to, quiet)
			tt.change(w)
			c := w.copier(to)
			w.ok(c.Run(w.ctx))
			r := c.Report()
			if got := r.Chats - r.Unchanged; got != tt.chats || r.Messages != tt.messages {
				t.Errorf("%d chats were read and %d messages written, want %d and %d", got,
					r.Messages, tt.chats, tt.messages)
			}
			w.same("at the end", to)
			some := copying.New(copying.Config{From: w.store, To: to, Clock: time.Now, Ran: c})
			w.ok(some.Verify(w.ctx))
			if r := some.Report(); r.Chats-r.Unchanged != tt.chats || r.Different != 0 {
				t.Errorf("%+v is compared, want %d chats", r, tt.chats)
			}
			w.lateMessage(to, c)
		})
	}
}

// lateMessage fails the test if the comparison behind a run misses what a server has stored since
// in a chat that the run left out.
func (w *world) lateMessage(to copying.Store, ran *copying.Copier) {
	w.t.Helper()
	_, err := storage.AppendOne(w.ctx, w.store, w.draft("direct", "u0"))
	w.ok(err)
	c := copying.New(copying.Config{From: w.store, To: to, Clock: time.Now, Ran: ran})
	w.ok(c.Verify(w.ctx))
	if r := c.Report(); r.Different == 0 {
		w.t.Error("a message that came after the run is not noticed")
	}
}

// sends stores a message of u0 in the group.
func (w *world) sends(change func(d *tidemark.Draft)) {
	w.t.Helper()
	w.last += 3 - w.last%3 // of the last days, unless it is the first
	d := w.draft("group", "u0")
	if change != nil {
		change(&d)
	}
	_, err := storage.AppendOne(w.ctx, w.store, d)
	w.ok(err)
}

// erases begins the erasure of a user, as a server does.
func (w *world) erases(user tidemark.UserID) {
	w.t.Helper()
	r, err := erasure.OpenRegister(w.ctx, w.store, nil, nil, time.Now)
	w.ok(err)
	_, err = r.Begin(w.ctx, user)
	w.ok(err)
}

// erasesMentions erases a user who is no member of some chats, to the end.
func (w *world) erasesMentions(user tidemark.UserID, chats ...tidemark.ChatID) {
	w.t.Helper()
	w.erases(user)
	e := tidemark.Erasure{User: user, Alias: "somebody", At: began}
	for _, id := range chats {
		_, err := w.store.EraseMessages(w.ctx, id, e, storage.ErasePage{Limit: 10})
		w.ok(err)
	}
	found, _, err := w.store.Documents(w.ctx, "erasing", "", 10)
	w.ok(err)
	for _, d := range found {
		d.Value = nil
		_, err := w.store.PutDocument(w.ctx, d)
		w.ok(err)
	}
}

// TestCopy_copy_equal_ahead_goes_on: a call of Ahead that is interrupted goes on behind the chats
// that it has copied. A user who was erased in between is found in both parts.
func TestCopy_copy_equal_ahead_goes_on(t *testing.T) {
	w := newWorld(t, memories(), 1)
	for i := range 150 {
		id := tidemark.ChatID(fmt.Sprintf("g%03d", i))
		w.create(storage.NewChat{ID: id, Type: tidemark.Group, Members: w.users[:2]})
		d := w.draft(id, "u0")
		d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"stranger"})
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	to := memories()
	puts := 0
	die := func() error {
		if puts++; puts > 500 { // There are four for each chat.
			return tidemark.Errorf(tidemark.Unavailable, "the copy was killed")
		}
		return nil
	}
	m := &mortal{Faulty: storagetest.Fault(to), CopySource: to, target: to, die: die}
	cfg := copying.Config{From: w.store, To: m, Clock: time.Now, Workers: 1}
	first := copying.New(cfg)
	if err := first.Ahead(w.ctx); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Fatalf("the copy was not killed, but ended with %v", err)
	}
	w.erasesMentions("stranger", "g000", "g149")
	if r := w.ahead(to, quiet).Report(); r.Chats != 50 {
		t.Errorf("the second call looked at %d chats, want 50", r.Chats)
	}
	w.move(to)
	w.same("after an erasure between two parts", to)
}

// TestCopy_copy_equal_leaves_nothing_removed: texts and names that were removed from the source
// after they were copied ahead are nowhere in the target's file.
func TestCopy_copy_equal_leaves_nothing_removed(t *testing.T) {
	const canary = "canary-8c41"
	w := newWorld(t, memories(), 2)
	const half = "half-user"
	w.begin()
	for _, id := range []tidemark.ChatID{"edited", "expired", "erased", "half", "gone", "named"} {
		w.create(storage.NewChat{
			ID: id, Type: tidemark.Group, Creator: "u0",
			Members: []tidemark.UserID{"u0", "u1", half},
		})
	}
	_, err := w.store.AddMembers(w.ctx, "erased", []tidemark.UserID{canary}, tidemark.Ordinary,
		began)
	w.ok(err)
	say := func(id tidemark.ChatID, by tidemark.UserID, change func(d *tidemark.Draft)) {
		t.Helper()
		d := w.draft(id, by)
		d.CreatedAt = began
		change(&d)
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	text := func(d *tidemark.Draft) {
		d.Content, d.Metadata = canary+" said", []byte(`{"of":"`+canary+`"}`)
		d.Attachments = []byte(`[{"name":"` + canary + `"}]`)
	}
	for id, by := range map[tidemark.ChatID]tidemark.UserID{
		"edited": "u0", "expired": "u0", "erased": canary, "half": half, "gone": "u0",
	} {
		say(id, by, text)
		say(id, by, text)
	}
	say("named", "u0", func(d *tidemark.Draft) {
		d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{canary})
	})
	_, err = w.store.RemoveMember(w.ctx, "half", half, w.at())
	w.ok(err)
	path := filepath.Join(t.TempDir(), "to.db")
	open := func() *sqlite.Store {
		t.Helper()
		s, err := sqlite.Open(w.ctx, sqlite.Config{Path: path})
		w.ok(err)
		return s
	}
	has := func() bool {
		t.Helper()
		b, err := os.ReadFile(path)
		w.ok(err)
		return strings.Contains(string(b), canary)
	}
	to := open()
	w.ahead(to, quiet)
	w.ok(to.Close())
	if !has() {
		t.Fatal("the texts were not copied ahead")
	}

	w.erases(canary)
	say("edited", "u0", func(d *tidemark.Draft) {
		d.Kind, d.Content = tidemark.KindRedact, ""
		d.Relation = &tidemark.Relation{Sequences: []tidemark.Sequence{1, 2}}
	})
	_, err = w.store.Expire(w.ctx, "expired", time.Now().Add(-storage.MinAge-time.Hour), 10)
	w.ok(err)
	_, err = w.store.DeleteChat(w.ctx, "gone", w.at())
	w.ok(err)
	_, err = w.store.RemoveMember(w.ctx, "erased", canary, w.at())
	w.ok(err)
	for id, user := range map[tidemark.ChatID]tidemark.UserID{
		"erased": canary, "half": half, "named": canary,
	} {
		e := tidemark.Erasure{User: user, Alias: "somebody", At: w.at()}
		_, err := w.store.EraseMessages(w.ctx, id, e, storage.ErasePage{Limit: 10})
		w.ok(err)
		if user == half { // The erasure is under way: it has changed no number of the chat yet.
			continue
		}
		_, err = w.store.EraseMember(w.ctx, id, e, 10)
		w.ok(err)
	}
	to = open()
	w.move(to)
	for _, one := range w.differences(to) {
		t.Error(one)
	}
	// The documents of the erasure name the user as long as it is under way.
	for _, kind := range []string{"erasure", "erasing"} {
		found, _, err := to.Documents(w.ctx, kind, "", 10)
		w.ok(err)
		for _, d := range found {
			_, err := to.PutDocument(w.ctx, storage.Document{
				Kind: d.Kind, Name: d.Name, Version: d.Version,
			})
			w.ok(err)
		}
	}
	w.ok(to.Close())
	if has() {
		t.Error("the target has what was removed from the source")
	}
}

// TestCopy_copy_equal_reads_all_after_an_erasure: an erasure may rename a mention and leave no
// number changed. It is found also if it has ended before the last run, or before Ahead runs again.
func TestCopy_copy_equal_reads_all_after_an_erasure(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWorld(t, memories(), 1)
		w.begin()
		w.sends(func(d *tidemark.Draft) {
			d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"stranger"})
		})
		to := stores.Open(t).(copying.Store)
		w.ahead(to, quiet)
		w.erasesMentions("stranger", "group")
		if again {
			w.ahead(to, quiet)
		}
		c := w.copier(to)
		w.ok(c.Run(w.ctx))
		if r := c.Report(); again != (r.Unchanged == 5) {
			t.Errorf("%d chats are unchanged after Ahead ran again: %t", r.Unchanged, again)
		}
		w.same("after an erasure", to)
	}
}

// TestCopy_copy_equal_rereads_a_source_of_steps: a source may change a message without its chat, as
// DynamoDB does when the redaction of a list fails halfway.
func TestCopy_copy_equal_rereads_a_source_of_steps(t *testing.T) {
	w := newWorld(t, memories(), 1)
	w.begin()
	w.sends(nil)
	to := stores.Open(t).(copying.Store)
	cfg := copying.Config{From: w.store, To: to, Clock: time.Now, Reread: true}
	w.ok(copying.New(cfg).Ahead(w.ctx))
	e := tidemark.Erasure{User: "u0", Alias: "somebody", At: began}
	_, err := w.store.EraseMessages(w.ctx, "group", e, storage.ErasePage{Limit: 10})
	w.ok(err)
	c := copying.New(cfg)
	w.ok(c.Run(w.ctx))
	if r := c.Report(); r.Unchanged != 0 || r.Messages != 1 {
		t.Errorf("%d chats were not read and %d messages written, want 0 and 1", r.Unchanged,
			r.Messages)
	}
	w.same("of a source of steps", to)
}
