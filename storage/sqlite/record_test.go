package sqlite

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// record holds what a store with a chat "c" has confirmed to its callers.
type record struct {
	t     *testing.T
	place string
	// sent holds the confirmed sequence of each key, or 0 if the send was not confirmed.
	sent   map[string]tidemark.Sequence
	acked  tidemark.Sequence
	marked bool
	joined bool
}

// historyKeys are the keys of the messages that history sends. The content of "b" needs pages of
// its own.
var historyKeys = []string{"a", "b", "c", "d", "e", "f"}

func historyContent(key string) string {
	if key == "b" {
		return strings.Repeat("long ", 4000)
	}
	return "content of " + key
}

func (r *record) clone() *record {
	copied := *r
	copied.sent = maps.Clone(r.sent)
	return &copied
}

// history makes writes of every kind, and records which are confirmed. Every error must be
// Unavailable.
func (r *record) history(s *Store) {
	r.t.Helper()
	r.append(s, "a")
	r.append(s, "b")
	_, err := s.Mark(r.t.Context(), []tidemark.PendingDelivery{
		{UserID: "ben", ChatID: "c", FirstUndelivered: 4},
	})
	r.marked = r.succeeded("Mark", err)
	r.advance(s, 3)
	r.checkpoint(s)
	_, err = s.AddMembers(r.t.Context(), "c", []tidemark.UserID{"cleo"}, tidemark.Ordinary,
		draft("", "").CreatedAt)
	r.joined = r.succeeded("AddMembers", err)
	r.append(s, "c", "d", "e")
	r.read(s)
	r.advance(s, max(3, r.sent["a"]))
	_, err = s.Clear(r.t.Context(), []storage.Clear{{User: "ben", Chat: "c", Through: 4}})
	r.succeeded("Clear", err)
	r.checkpoint(s)
	r.append(s, "f")
	r.succeeded("Check", s.Check(r.t.Context()))
}

// checkpoint makes a checkpoint run after the next commit.
func (r *record) checkpoint(s *Store) {
	r.t.Helper()
	r.succeeded("a change", s.change(r.t.Context(), func(w *writer) error {
		w.checkpointEvery, w.checkpointAt = 1, 1
		return nil
	}))
	r.succeeded("a change", s.change(r.t.Context(), func(w *writer) error {
		w.checkpointEvery, w.checkpointAt = checkpointFrames, checkpointFrames
		return nil
	}))
}

// succeeded reports whether err is nil. Any other error than Unavailable fails the test.
func (r *record) succeeded(what string, err error) bool {
	r.t.Helper()
	if err != nil && tidemark.CodeOf(err) != tidemark.Unavailable {
		r.t.Errorf("%s: %s: %v, want Unavailable", r.place, what, err)
	}
	return err == nil
}

func (r *record) append(s *Store, keys ...string) {
	r.t.Helper()
	drafts := make([]tidemark.Draft, len(keys))
	for i, key := range keys {
		drafts[i] = draft(key, historyContent(key))
	}
	appended, err := s.Append(r.t.Context(), drafts)
	if !r.succeeded("Append", err) {
		return
	}
	for i, key := range keys {
		if appended[i].Err != nil {
			r.t.Errorf("%s: Append(%s): %v", r.place, key, appended[i].Err)
		}
		if was := r.sent[key]; was != 0 && was != appended[i].Message.Sequence {
			r.t.Errorf("%s: %s was confirmed as %d, and then as %d",
				r.place, key, was, appended[i].Message.Sequence)
		}
		r.sent[key] = appended[i].Message.Sequence
	}
}

func (r *record) advance(s *Store, to tidemark.Sequence) {
	r.t.Helper()
	raised, err := s.Advance(r.t.Context(), []storage.Advance{
		{User: "ben", Chat: "c", Raise: tidemark.Raise{Acked: to}},
	})
	if r.succeeded("Advance", err) && raised[0].Err == nil {
		r.acked = max(r.acked, to)
	}
}

// sendAgain sends all messages again. Now each must be confirmed.
func (r *record) sendAgain(s *Store, when string) {
	r.t.Helper()
	for _, key := range historyKeys {
		r.append(s, key)
		if r.sent[key] == 0 {
			r.t.Errorf("%s: %s could not be sent %s", r.place, key, when)
		}
	}
}

// read checks the messages. A failed read is no error.
func (r *record) read(s *Store) (messages int) {
	r.t.Helper()
	pages, err := s.Ranges(r.t.Context(), []storage.Range{{Chat: "c", Limit: 1000}})
	if !r.succeeded("Ranges", err) {
		return 0
	}
	at := map[string]tidemark.Sequence{}
	for i, m := range pages[0] {
		if want := tidemark.Sequence(i + 1); m.Sequence != want {
			r.t.Errorf("%s: message %d has sequence %d", r.place, want, m.Sequence)
		}
		if at[m.ClientMessageID] != 0 {
			r.t.Errorf("%s: %s is stored twice", r.place, m.ClientMessageID)
		}
		at[m.ClientMessageID] = m.Sequence
		old := strings.HasPrefix(m.ClientMessageID, "old")
		if !old && m.Content != historyContent(m.ClientMessageID) {
			r.t.Errorf("%s: %s has another content", r.place, m.ClientMessageID)
		}
	}
	for key, sequence := range r.sent {
		if sequence != 0 && at[key] != sequence {
			r.t.Errorf("%s: %s was confirmed as %d, and is stored as %d (0: not at all)",
				r.place, key, sequence, at[key])
		}
	}
	return len(pages[0])
}

// check compares the stored data with the record. No call may fail.
func (r *record) check(s *Store, when string) {
	r.t.Helper()
	place := r.place
	defer func() { r.place = place }()
	r.place = fmt.Sprint(place, ", ", when)
	ctx := r.t.Context()
	messages := r.read(s)
	heads, err := s.Heads(ctx, []tidemark.ChatID{"c"})
	if err != nil || heads[0] != tidemark.Sequence(messages) {
		r.t.Errorf("%s: Heads: %v, %v, want %d", r.place, heads, err, messages)
	}
	states, err := s.States(ctx, []storage.StateKey{{User: "ben", Chat: "c"}})
	if err != nil || states[0].Acked < r.acked {
		r.t.Errorf("%s: States: %v, %v, want at least %d", r.place, states, err, r.acked)
	}
	rows, _, err := s.PendingOf(ctx, "ben", "", 10)
	if err != nil || r.marked && (len(rows) != 1 || rows[0].FirstUndelivered > 5) {
		r.t.Errorf("%s: PendingOf: %v, %v, want a row from 5 or below", r.place, rows, err)
	}
	rosters, err := s.Rosters(ctx, []tidemark.ChatID{"c"})
	if err != nil || r.joined && len(rosters[0].Members) != 3 {
		r.t.Errorf("%s: Rosters: %v, %v, want three members", r.place, rosters, err)
	}
	// The store remembers a failed read for some seconds after its cause has gone.
	err = s.Check(ctx)
	if err != nil && !strings.Contains(tidemark.DetailOf(err), "system's log") {
		r.t.Errorf("%s: Check: %v", r.place, err)
	}
	r.integrity(s)
}

// integrity runs SQLite's integrity check.
func (r *record) integrity(s *Store) {
	r.t.Helper()
	err := s.read(r.t.Context(), func(c *conn) error {
		q, err := c.prepared("PRAGMA integrity_check")
		if err != nil {
			return err
		}
		return q.each(func(row *stmt) bool {
			if text := row.stringAt(0); text != "ok" {
				r.t.Errorf("%s: integrity_check: %s", r.place, text)
			}
			return true
		})
	})
	if err != nil {
		r.t.Errorf("%s: integrity_check: %v", r.place, err)
	}
}
