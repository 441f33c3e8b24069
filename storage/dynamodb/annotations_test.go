package dynamodb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// react returns a reaction to a message, with its emoji as its key.
func react(
	chat tidemark.ChatID, sender tidemark.UserID, emoji string, target tidemark.Sequence,
) tidemark.Draft {
	d := redact(chat, sender, emoji, target)
	d.Kind, d.Relation.Emoji = tidemark.KindReact, emoji
	return d
}

// pin returns a pin of a message by a backend.
func pin(chat tidemark.ChatID, key string, target tidemark.Sequence) tidemark.Draft {
	d := redact(chat, "anna", key, target)
	d.Kind, d.ByBackend = tidemark.KindPin, true
	return d
}

// wantReactions checks the emoji of the reactions to messages 1 to 9, and up to which sequence they
// count.
func wantReactions(
	t *testing.T, s *Store, chat tidemark.ChatID, through tidemark.Sequence, want ...string,
) {
	t.Helper()
	found, got, err := s.Reactions(t.Context(),
		storage.ReactionsQuery{Chat: chat, From: 1, To: 9, User: "anna"})
	must(t, err)
	var emoji []string
	for _, one := range found {
		emoji = append(emoji, one.Emoji)
	}
	if !slices.Equal(emoji, want) || got != through {
		t.Errorf("the reactions are %v up to %d, want %v up to %d", emoji, got, want, through)
	}
}

// A query may miss a reaction, or have one that was undone, although the counter has it already.
func TestRace_reactions_that_were_read_too_early(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	send(t, other, "c", "anna", "first", 1)
	relate(t, other, react("c", "anna", "a", 1), 2)
	read := trap{operation: "Query", has: `reaction|c"`}
	var early []any
	read.edit = func(items []any) []any { early = items; return items }
	w.set(t, read)
	wantReactions(t, one, "c", 2, "a")

	relate(t, other, react("c", "bob", "b", 1), 3)
	read.edit = func([]any) []any { return early }
	w.set(t, read)
	wantReactions(t, one, "c", 3, "a", "b")

	relate(t, other, redact("c", "anna", "r", 2), 4)
	w.set(t, read)
	wantReactions(t, one, "c", 4, "b")
}

// A query may have a reaction that the counter does not have yet, although that is read later.
func TestRace_reactions_that_the_counter_does_not_have_yet(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	send(t, other, "c", "anna", "first", 1)
	relate(t, other, react("c", "anna", "a", 1), 2)
	const counter = `chat_counters"`
	var early []any
	w.set(t, trap{operation: "GetItem", has: counter, edit: func(items []any) []any {
		early = items
		return items
	}})
	w.set(t, trap{operation: "Query", has: `reaction|c"`, before: func() {
		relate(t, other, react("c", "bob", "b", 1), 3)
	}})
	w.set(t, trap{
		operation: "GetItem", has: counter, edit: func([]any) []any { return early },
	})
	wantReactions(t, one, "c", 3, "a", "b")
}

// What happens after the query, and before the head that the answer names, is in the answer.
func TestRace_reactions_beside_another_process(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna", "bob")
	send(t, other, "c", "anna", "first", 1)
	relate(t, other, react("c", "anna", "a", 1), 2)
	w.set(t, trap{operation: "GetItem", has: `chat_counters"`, skip: 1, before: func() {
		relate(t, other, react("c", "bob", "b", 1), 3)
		silent := draft("c", "bob", "silent")
		silent.Kind = tidemark.KindControl
		must(t, appendAll(t, other, []tidemark.Draft{silent}))
	}})
	wantReactions(t, one, "c", 4, "a", "b")
}

// What expires while reactions are read is not counted in part.
func TestRace_reactions_while_their_targets_expire(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	agedChat(t, other, "c", 3)
	relate(t, other, react("c", "alice", "a", 1), 4)
	relate(t, other, react("c", "alice", "b", 3), 5)
	w.set(t, trap{operation: "GetItem", has: `chat_counters"`, skip: 1, before: func() {
		_, err := other.Expire(t.Context(), "c", cutoff, 1)
		must(t, err)
	}})
	wantReactions(t, one, "c", 5, "b")
}

// Another process may react, pin or undo between the reads of an append and its transaction.
func TestRace_annotation_beside_another_process(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	for i, tc := range []struct {
		name   string
		draft  func(tidemark.ChatID) tidemark.Draft
		before func(tidemark.ChatID)
		code   tidemark.Code // "" is stored
		head   tidemark.Sequence
	}{
		{
			"sends a message",
			func(c tidemark.ChatID) tidemark.Draft { return react(c, "anna", "a", 1) },
			func(c tidemark.ChatID) { send(t, other, c, "bob", "k", 2) },
			"", 3,
		},
		{
			"reacts with the same emoji",
			func(c tidemark.ChatID) tidemark.Draft {
				d := react(c, "anna", "a", 1)
				d.ClientMessageID = "another key"
				return d
			},
			func(c tidemark.ChatID) { relate(t, other, react(c, "anna", "a", 1), 2) },
			tidemark.Conflict, 2,
		},
		{
			"stores the same reaction",
			func(c tidemark.ChatID) tidemark.Draft { return react(c, "anna", "a", 1) },
			func(c tidemark.ChatID) { relate(t, other, react(c, "anna", "a", 1), 2) },
			"", 2,
		},
		{
			"redacts the message before a reaction",
			func(c tidemark.ChatID) tidemark.Draft { return react(c, "bob", "a", 1) },
			func(c tidemark.ChatID) { relate(t, other, redact(c, "anna", "r", 1), 2) },
			tidemark.Conflict, 2,
		},
		{
			"pins the same message",
			func(c tidemark.ChatID) tidemark.Draft { return pin(c, "p", 1) },
			func(c tidemark.ChatID) { relate(t, other, pin(c, "q", 1), 2) },
			tidemark.Conflict, 2,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", i))
			createGroup(t, other, chat, "anna", "bob")
			send(t, one, chat, "anna", "first", 1)
			w.set(t, trap{
				operation: "TransactWriteItems", has: appendsOne,
				before: func() { tc.before(chat) },
			})
			_, err := storage.AppendOne(t.Context(), one, tc.draft(chat))
			if code := tidemark.CodeOf(err); code != tc.code {
				t.Errorf("error %v, want %q", err, tc.code)
			}
			if keys := contents(t, other, chat); len(keys) != int(tc.head) {
				t.Errorf("the chat has %v, want %d messages", keys, tc.head)
			}
		})
	}
}

// TestExpire_of_annotations_may_end_anywhere: a call dies before it has removed the reactions or
// the pins. Nobody sees those of what has expired, and a later call removes them.
func TestExpire_of_annotations_may_end_anywhere(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	one, w, other := trappedOn(t, url)
	for i, has := range []string{"reaction|", "pin|"} {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		agedChat(t, other, chat, 4)
		pinned := pin(chat, "p", 1)
		pinned.SenderID = "alice"
		relate(t, other, react(chat, "alice", "a", 1), 5)
		relate(t, other, react(chat, "bob", "a", 2), 6)
		relate(t, other, react(chat, "bob", "b", 4), 7)
		relate(t, other, pinned, 8)
		at := trap{operation: "BatchWriteItem", has: has}
		if _, err := one.Expire(die(t, w, at), chat, cutoff, 2); err == nil {
			t.Fatal("the call did not die")
		}
		wantReactions(t, other, chat, 8, "b")
		for _, target := range []tidemark.Sequence{1, 2} {
			found, _, err := other.Reactors(t.Context(), chat, target, 0, 10)
			if err != nil || len(found) != 0 {
				t.Errorf("the reactions to %d are %+v, %v", target, found, err)
			}
		}
		pins, err := other.Pins(t.Context(), chat)
		if err != nil || len(pins) != 0 {
			t.Errorf("the pins are %+v, %v", pins, err)
		}
		_, err = other.Expire(t.Context(), chat, cutoff, 2)
		must(t, err)
		left := itemsWith(t, url, "|"+string(chat)+`"`)
		left = slices.DeleteFunc(left, func(item string) bool {
			return !strings.Contains(item, "reaction|") && !strings.Contains(item, "pin|")
		})
		if len(left) != 1 {
			t.Errorf("the items are %v, want one: that of the reaction to message 4", left)
		}
	}
}

// A user may search for two emoji that have one key. The second reaction is refused, so that the
// other messages of the chat do not wait for it.
func TestAppend_two_emoji_of_one_key(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	var first, second string
	for n := 0; first == "" && n < 5_000_000; n++ {
		second = fmt.Sprint("e", n)
		d := react("c", "anna", second, 1)
		m := d.Message(2, 1)
		key := fmt.Sprint(record.AnnotationKey(&m)["sequence"])
		first, seen[key] = seen[key], second
	}
	s := openTest(t, newTables(t))
	s.appends.Patience = 5 * time.Second // so that it fails before wait.Hang
	createGroup(t, s, "c", "anna", "bob")
	send(t, s, "c", "anna", "first", 1)
	relate(t, s, react("c", "anna", first, 1), 2)
	_, err := storage.AppendOne(t.Context(), s, react("c", "anna", second, 1))
	if tidemark.CodeOf(err) != tidemark.Conflict {
		t.Fatalf("%q beside %q: got error %v, want Conflict", second, first, err)
	}
	relate(t, s, react("c", "bob", second, 1), 3)
	wantReactions(t, s, "c", 3, first, second)
}

// Users and emoji of any length give keys of at most 38 digits, which DynamoDB tells apart.
func TestAnnotationKey(t *testing.T) {
	seen := make(map[string]string)
	for _, target := range []tidemark.Sequence{1, 10, tidemark.MaxSequence} {
		for _, user := range []tidemark.UserID{"a", "b", tidemark.UserID(long("anna"))} {
			for _, emoji := range []string{"a", "b", strings.Repeat("👍", 16)} {
				d := react("c", user, emoji, target)
				m := d.Message(tidemark.MaxSequence, 1)
				key := fmt.Sprint(record.AnnotationKey(&m)["sequence"])
				what := fmt.Sprint(target, " ", user, " ", emoji)
				if seen[key] != "" {
					t.Errorf("%s has the key of %s", what, seen[key])
				}
				seen[key] = what
			}
		}
	}
	s := openTest(t, newTables(t))
	createGroup(t, s, "c", "anna", "bob")
	send(t, s, "c", "anna", "first", 1)
	for i, emoji := range []string{"a", "b", "ab", "👍", strings.Repeat("x", tidemark.MaxEmoji)} {
		relate(t, s, react("c", "anna", emoji, 1), tidemark.Sequence(i+2))
	}
	found, more, err := s.Reactors(t.Context(), "c", 1, 2, 2)
	must(t, err)
	for i := range found {
		found[i].At = time.Time{}
	}
	want := []storage.Reaction{
		{Target: 1, User: "anna", Emoji: "b", Sequence: 3},
		{Target: 1, User: "anna", Emoji: "ab", Sequence: 4},
	}
	if diff := cmp.Diff(want, found); diff != "" || !more {
		t.Errorf("reactions (-want +got), more %v:\n%s", more, diff)
	}
}

// annotations returns a reaction and a pin, their redactions, and the reads of both.
func (w *workload) annotations() []operation {
	chat := tidemark.ChatID(long("annotated"))
	relate := func(kind tidemark.Kind, target int) error {
		d := textsOf(fmt.Sprint(kind, "-", target), 0, chat)
		d[0].Kind, d[0].ByBackend = kind, true
		d[0].Relation = &tidemark.Relation{Sequence: tidemark.Sequence(target)}
		if kind == tidemark.KindReact {
			d[0].Relation.Emoji = "👍"
		}
		return w.append(d)
	}
	const calls = "GetItem, Query, TransactWriteItems"
	// Each round has four messages more.
	of := func(kind tidemark.Kind, name string, at int) []operation {
		return []operation{
			{"`Append` of " + name, nil, func(r int) error {
				return relate(kind, 1+r)
			}, bound{calls: calls, reads: 2, writes: 10}},
			{"`Append` of the redaction of " + name, nil, func(r int) error {
				return relate(tidemark.KindRedact, 20+at+4*r)
			}, bound{calls: "GetItem, TransactWriteItems", reads: 1, writes: 12}},
		}
	}
	all := append(of(tidemark.KindReact, "a reaction", 1), of(tidemark.KindPin, "a pin", 3)...)
	all[0].before = func(r int) error {
		if r > 0 {
			return nil
		}
		return errors.Join(w.create(chat, tidemark.Group, tidemark.HistoryFull,
			[]tidemark.UserID{"writer"}), w.append(textsOf("new", 200, repeated(chat, 20)...)))
	}
	ctx := w.t.Context()
	return append(all, []operation{
		{"`Reactions`, none to 20 messages", nil, func(int) error {
			_, _, err := w.s.Reactions(ctx, storage.ReactionsQuery{Chat: chat, From: 1, To: 20})
			return err
		}, bound{reads: 4}},
		{"`Reactions` of a chat without any", nil, func(int) error {
			_, _, err := w.s.Reactions(ctx, storage.ReactionsQuery{
				Chat: chatNo(7), From: 1, To: 20,
			})
			return err
		}, bound{calls: "GetItem", reads: 1}},
		{"`Reactors`", nil, func(int) error {
			_, _, err := w.s.Reactors(ctx, chat, 1, 0, 20)
			return err
		}, bound{calls: "GetItem, Query", reads: 2}},
		{"`Pins`", nil, func(int) error {
			_, err := w.s.Pins(ctx, chat)
			return err
		}, bound{calls: "GetItem, Query", reads: 2}},
	}...)
}
