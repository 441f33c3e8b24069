package sqlite

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// told is what the callers of a store with a chat "c" were told.
type told struct {
	t     *testing.T
	place string
	// sent is the confirmed sequences by key, 0 where the send was not confirmed.
	sent   map[string]tidemark.Sequence
	acked  tidemark.Sequence
	marked bool
	joined bool
}

// The keys that history sends, and the content of each; one needs pages of its own.
var historyKeys = []string{"a", "b", "c", "d", "e", "f"}

func historyContent(key string) string {
	if key == "b" {
		return strings.Repeat("long ", 4000)
	}
	return "content of " + key
}

func (w *told) clone() *told {
	copied := *w
	copied.sent = maps.Clone(w.sent)
	return &copied
}

// history does some of everything that writes. Errors are noted, and have to be Unavailable.
func (w *told) history(s *Store) {
	w.t.Helper()
	w.append(s, "a")
	w.append(s, "b")
	_, err := s.Mark(w.t.Context(), []tidemark.PendingDelivery{
		{UserID: "ben", ChatID: "c", FirstUndelivered: 4},
	})
	w.marked = w.succeeded("Mark", err)
	w.advance(s, 3)
	w.checkpoint(s)
	_, err = s.AddMembers(w.t.Context(), "c", []tidemark.UserID{"cleo"}, draft("", "").CreatedAt)
	w.joined = w.succeeded("AddMembers", err)
	w.append(s, "c", "d", "e")
	w.read(s)
	w.advance(s, max(3, w.sent["a"]))
	_, err = s.Clear(w.t.Context(), []storage.Clear{{User: "ben", Chat: "c", Through: 4}})
	w.succeeded("Clear", err)
	w.checkpoint(s)
	w.append(s, "f")
	w.succeeded("Check", s.Check(w.t.Context()))
}

// checkpoint makes the next commit be followed by one.
func (w *told) checkpoint(s *Store) {
	w.t.Helper()
	w.succeeded("a change", s.change(w.t.Context(), func(w *writer) error {
		w.checkpointEvery, w.checkpointAt = 1, 1
		return nil
	}))
	w.succeeded("a change", s.change(w.t.Context(), func(w *writer) error {
		w.checkpointEvery, w.checkpointAt = checkpointFrames, checkpointFrames
		return nil
	}))
}

// succeeded reports whether there is no error; one that is not Unavailable fails the test.
func (w *told) succeeded(what string, err error) bool {
	w.t.Helper()
	if err != nil && tidemark.CodeOf(err) != tidemark.Unavailable {
		w.t.Errorf("%s: %s: %v, want Unavailable", w.place, what, err)
	}
	return err == nil
}

func (w *told) append(s *Store, keys ...string) {
	w.t.Helper()
	drafts := make([]tidemark.Draft, len(keys))
	for i, key := range keys {
		drafts[i] = draft(key, historyContent(key))
	}
	appended, err := s.Append(w.t.Context(), drafts)
	if !w.succeeded("Append", err) {
		return
	}
	for i, key := range keys {
		if appended[i].Err != nil {
			w.t.Errorf("%s: Append(%s): %v", w.place, key, appended[i].Err)
		}
		if was := w.sent[key]; was != 0 && was != appended[i].Message.Sequence {
			w.t.Errorf("%s: %s was confirmed as %d, and then as %d",
				w.place, key, was, appended[i].Message.Sequence)
		}
		w.sent[key] = appended[i].Message.Sequence
	}
}

func (w *told) advance(s *Store, to tidemark.Sequence) {
	w.t.Helper()
	raised, err := s.Advance(w.t.Context(), []storage.Advance{
		{User: "ben", Chat: "c", Raise: tidemark.Raise{Acked: to}},
	})
	if w.succeeded("Advance", err) && raised[0].Err == nil {
		w.acked = max(w.acked, to)
	}
}

// sendAgain settles what was not confirmed.
func (w *told) sendAgain(s *Store, when string) {
	w.t.Helper()
	for _, key := range historyKeys {
		w.append(s, key)
		if w.sent[key] == 0 {
			w.t.Errorf("%s: %s could not be sent %s", w.place, key, when)
		}
	}
}

// read checks that what can be read is right. That it cannot be read is no error.
func (w *told) read(s *Store) (messages int) {
	w.t.Helper()
	pages, err := s.Ranges(w.t.Context(), []storage.Range{{Chat: "c", Limit: 1000}})
	if !w.succeeded("Ranges", err) {
		return 0
	}
	at := map[string]tidemark.Sequence{}
	for i, m := range pages[0] {
		if want := tidemark.Sequence(i + 1); m.Sequence != want {
			w.t.Errorf("%s: message %d has sequence %d", w.place, want, m.Sequence)
		}
		if at[m.ClientMessageID] != 0 {
			w.t.Errorf("%s: %s is stored twice", w.place, m.ClientMessageID)
		}
		at[m.ClientMessageID] = m.Sequence
		if old := strings.HasPrefix(m.ClientMessageID, "old"); !old && m.Content != historyContent(m.ClientMessageID) {
			w.t.Errorf("%s: %s has another content", w.place, m.ClientMessageID)
		}
	}
	for key, sequence := range w.sent {
		if sequence != 0 && at[key] != sequence {
			w.t.Errorf("%s: %s was confirmed as %d, and is stored as %d (0: not at all)",
				w.place, key, sequence, at[key])
		}
	}
	return len(pages[0])
}

// check compares what is stored with what was told. Nothing may fail any more.
func (w *told) check(s *Store, when string) {
	w.t.Helper()
	place := w.place
	defer func() { w.place = place }()
	w.place = fmt.Sprint(place, ", ", when)
	ctx := w.t.Context()
	messages := w.read(s)
	heads, err := s.Heads(ctx, []tidemark.ChatID{"c"})
	if err != nil || heads[0] != tidemark.Sequence(messages) {
		w.t.Errorf("%s: Heads: %v, %v, want %d", w.place, heads, err, messages)
	}
	states, err := s.States(ctx, []storage.StateKey{{User: "ben", Chat: "c"}})
	if err != nil || states[0].Acked < w.acked {
		w.t.Errorf("%s: States: %v, %v, want at least %d", w.place, states, err, w.acked)
	}
	rows, _, err := s.PendingOf(ctx, "ben", "", 10)
	if err != nil || w.marked && (len(rows) != 1 || rows[0].FirstUndelivered > 5) {
		w.t.Errorf("%s: PendingOf: %v, %v, want a row from 5 or below", w.place, rows, err)
	}
	rosters, err := s.Rosters(ctx, []tidemark.ChatID{"c"})
	if err != nil || w.joined && len(rosters[0].Members) != 3 {
		w.t.Errorf("%s: Rosters: %v, %v, want three members", w.place, rosters, err)
	}
	// A read that failed is remembered for some seconds, though its cause has gone.
	if err := s.Check(ctx); err != nil && !strings.Contains(tidemark.DetailOf(err), "system's log") {
		w.t.Errorf("%s: Check: %v", w.place, err)
	}
	w.integrity(s)
}

// integrity asks SQLite itself.
func (w *told) integrity(s *Store) {
	w.t.Helper()
	err := s.read(w.t.Context(), func(c *conn) error {
		q, err := c.prepared("PRAGMA integrity_check")
		if err != nil {
			return err
		}
		return q.each(func(row *stmt) bool {
			if text := row.stringAt(0); text != "ok" {
				w.t.Errorf("%s: integrity_check: %s", w.place, text)
			}
			return true
		})
	})
	if err != nil {
		w.t.Errorf("%s: integrity_check: %v", w.place, err)
	}
}
