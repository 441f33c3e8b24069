package dynamodb

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// edit returns an edit of a message, with a key of its own.
func edit(
	chat tidemark.ChatID, sender tidemark.UserID, key string, target tidemark.Sequence,
) tidemark.Draft {
	d := draft(chat, sender, key)
	d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: target}
	return d
}

// redact returns a redaction of a message, with a key of its own.
func redact(
	chat tidemark.ChatID, sender tidemark.UserID, key string, target tidemark.Sequence,
) tidemark.Draft {
	d := edit(chat, sender, key, target)
	d.Kind, d.Content = tidemark.KindRedact, ""
	return d
}

// relate appends a relation, and demands its sequence.
func relate(t *testing.T, s *Store, d tidemark.Draft, want tidemark.Sequence) {
	t.Helper()
	got, err := storage.AppendOne(t.Context(), s, d)
	if err != nil || got.Message.Sequence != want {
		t.Errorf("the %s of %d: sequence %d, error %v; want %d", d.Kind, d.Relation.Sequence,
			got.Message.Sequence, err, want)
	}
}

// become gives a member a role.
func become(
	t *testing.T, s *Store, chat tidemark.ChatID, user tidemark.UserID, role tidemark.Role,
) {
	t.Helper()
	_, err := s.UpdateMember(t.Context(), chat, user, storage.MemberChange{Role: role})
	if err != nil {
		t.Errorf("UpdateMember of %s: %v", user, err)
	}
}

// messageOf returns a message as a range has it.
func messageOf(t *testing.T, s *Store, chat tidemark.ChatID, n tidemark.Sequence) tidemark.Message {
	t.Helper()
	pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: chat, After: n - 1, Limit: 1}})
	must(t, err)
	if len(pages[0]) != 1 {
		t.Fatalf("%d messages, want message %d", len(pages[0]), n)
	}
	return pages[0][0]
}

// says returns what a message says, how often it was edited, and the sequence of its revision.
func says(m *tidemark.Message) string {
	if m.Revision == nil {
		return m.Content
	}
	return fmt.Sprintf("%s, edits %d, by %d", m.Content, m.Revision.Edits, m.Revision.Sequence)
}

// A relation judges and changes its target as it is in its own step.
func TestRace_relation_beside_another_process(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	for i, tc := range []struct {
		name   string
		draft  func(tidemark.ChatID) tidemark.Draft
		before func(tidemark.ChatID)
		code   tidemark.Code // "" is stored
		says   string
		head   tidemark.Sequence
	}{
		{
			"sends a message",
			func(c tidemark.ChatID) tidemark.Draft { return edit(c, "anna", "own", 1) },
			func(c tidemark.ChatID) { send(t, other, c, "anna", "k", 2) },
			"", "text of own, edits 1, by 3", 3,
		},
		{
			"edits the message",
			func(c tidemark.ChatID) tidemark.Draft { return edit(c, "anna", "own", 1) },
			func(c tidemark.ChatID) { relate(t, other, edit(c, "anna", "k", 1), 2) },
			"", "text of own, edits 2, by 3", 3,
		},
		{
			"stores the same edit",
			func(c tidemark.ChatID) tidemark.Draft { return edit(c, "anna", "own", 1) },
			func(c tidemark.ChatID) { relate(t, other, edit(c, "anna", "own", 1), 2) },
			"", "text of own, edits 1, by 2", 2,
		},
		{
			"redacts the message before an edit",
			func(c tidemark.ChatID) tidemark.Draft { return edit(c, "anna", "own", 1) },
			func(c tidemark.ChatID) { relate(t, other, redact(c, "bob", "k", 1), 2) },
			tidemark.Conflict, ", edits 0, by 2", 2,
		},
		{
			"redacts the message before a redaction",
			func(c tidemark.ChatID) tidemark.Draft { return redact(c, "anna", "own", 1) },
			func(c tidemark.ChatID) { relate(t, other, redact(c, "bob", "k", 1), 2) },
			"", ", edits 0, by 2", 3,
		},
		{
			"edits the message before a redaction",
			func(c tidemark.ChatID) tidemark.Draft { return redact(c, "bob", "own", 1) },
			func(c tidemark.ChatID) { relate(t, other, edit(c, "anna", "k", 1), 2) },
			"", ", edits 1, by 3", 3,
		},
		{
			"demotes the admin",
			func(c tidemark.ChatID) tidemark.Draft { return redact(c, "bob", "own", 1) },
			func(c tidemark.ChatID) { become(t, other, c, "bob", tidemark.Ordinary) },
			tidemark.Denied, "text of first", 1,
		},
		{
			"removes the author",
			func(c tidemark.ChatID) tidemark.Draft { return edit(c, "anna", "own", 1) },
			func(c tidemark.ChatID) { remove(t, other, c, "anna") },
			tidemark.NotMember, "text of first", 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", i))
			createGroup(t, other, chat, "owner", "anna", "bob")
			become(t, other, chat, "bob", tidemark.Admin)
			send(t, one, chat, "anna", "first", 1)
			w.set(t, trap{
				operation: "TransactWriteItems",
				has:       appendsOne,
				before:    func() { tc.before(chat) },
			})
			got, err := storage.AppendOne(t.Context(), one, tc.draft(chat))
			if code := tidemark.CodeOf(err); err != nil && code != tc.code ||
				err == nil && tc.code != "" {
				t.Errorf("error %v, want %q", err, tc.code)
			}
			target := messageOf(t, other, chat, 1)
			if text := says(&target); text != tc.says {
				t.Errorf("the target says %q, want %q", text, tc.says)
			}
			if err == nil {
				if diff := cmp.Diff(&target, got.Message.Relation.Target); diff != "" {
					t.Errorf("the target of the result (-want +got):\n%s", diff)
				}
			}
			if keys := contents(t, other, chat); len(keys) != int(tc.head) {
				t.Errorf("the chat has %v, want %d messages", keys, tc.head)
			}
		})
	}
}

// A read of the target may miss an edit that the counter has already. The edit is not lost.
func TestRace_relation_whose_target_was_read_too_early(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	for edits := range tidemark.Sequence(3) {
		chat := tidemark.ChatID(fmt.Sprint("c", edits))
		createGroup(t, other, chat, "anna")
		send(t, one, chat, "anna", "first", 1)
		for n := range edits {
			relate(t, one, edit(chat, "anna", fmt.Sprint("e", n), 1), n+2)
		}
		read := trap{operation: "GetItem", has: `messages"`}
		var early []any
		read.edit = func(items []any) []any { early = items; return items }
		w.set(t, read)
		relate(t, one, edit(chat, "anna", "lost", 1), edits+2)
		read.edit = func([]any) []any { return early }
		w.set(t, read)
		relate(t, one, edit(chat, "anna", "own", 1), edits+3)
		got := messageOf(t, other, chat, 1)
		if want := int(edits + 2); got.Revision.Edits != want || got.Content != "text of own" {
			t.Errorf("the target says %q, want %d edits", says(&got), want)
		}
	}
}

// If the answer to the transaction of a relation is lost, the repeated call finds its own relation.
func TestRace_relation_whose_answer_is_lost(t *testing.T) {
	t.Parallel()
	one, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	send(t, one, "c", "anna", "first", 1)
	for n, d := range []tidemark.Draft{
		edit("c", "anna", "k2", 1), edit("c", "anna", "k3", 1), redact("c", "anna", "k4", 1),
	} {
		w.set(t, trap{operation: "TransactWriteItems", has: appendsOne, lose: true})
		got, err := storage.AppendOne(t.Context(), one, d)
		must(t, err)
		target := messageOf(t, other, "c", 1)
		if got.Duplicate || got.Message.Sequence != tidemark.Sequence(n+2) ||
			!cmp.Equal(got.Message.Relation.Target, &target) ||
			target.Revision.Sequence != got.Message.Sequence ||
			target.Revision.Edits != min(n+1, 2) {
			t.Errorf("relation %d: %+v of %s", n, got, says(&target))
		}
	}
	if diff := cmp.Diff([]string{"first", "k2", "k3", "k4"}, contents(t, other, "c")); diff != "" {
		t.Error(diff)
	}
}

// A process's remembered view of a chat refuses no relation: neither its head nor its roles do.
func TestAppend_relation_with_an_old_view(t *testing.T) {
	t.Parallel()
	one, _, other := trapped(t)
	createGroup(t, other, "c", "owner", "anna", "bob")
	send(t, one, "c", "anna", "first", 1)
	send(t, one, "c", "bob", "b", 2)
	send(t, other, "c", "anna", "later", 3)
	relate(t, one, edit("c", "anna", "e", 3), 4)
	become(t, other, "c", "bob", tidemark.Admin)
	relate(t, one, redact("c", "bob", "r", 3), 5)
	become(t, other, "c", "bob", tidemark.Ordinary)
	for _, d := range []tidemark.Draft{
		redact("c", "bob", "r2", 1), edit("c", "bob", "e2", 1),
	} {
		_, err := storage.AppendOne(t.Context(), one, d)
		if tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("the %s by one who is no admin any more: %v", d.Kind, err)
		}
	}
	if got, err := storage.AppendOne(t.Context(), one, redact("c", "bob", "r", 3)); err != nil ||
		!got.Duplicate || got.Message.Sequence != 5 {
		t.Errorf("the repeated redaction: %+v, %v", got, err)
	}
}

// Drafts of one call that repeat others of it get what these have become, in their order.
func TestAppend_relations_and_their_repetitions_in_one_call(t *testing.T) {
	t.Parallel()
	s := openTest(t, newTables(t))
	createGroup(t, s, "c", "anna")
	first, second := draft("c", "anna", "first"), edit("c", "anna", "second", 1)
	other := second
	other.Content = "another text"
	results, err := s.Append(t.Context(), []tidemark.Draft{
		first, first, second, first, other, edit("c", "anna", "third", 1), second,
		redact("c", "anna", "fourth", 1), first, second,
	})
	must(t, err)
	var got []string
	for _, r := range results {
		m, text := &r.Message, fmt.Sprint(r.Message.Sequence, " ")
		if m.Relation != nil {
			m = m.Relation.Target
		}
		if text += says(m); r.Err != nil {
			text = string(tidemark.CodeOf(r.Err))
		} else if r.Duplicate {
			text += ", duplicate"
		}
		got = append(got, text)
	}
	if diff := cmp.Diff([]string{
		"1 text of first",
		"1 text of first, duplicate",
		"2 text of second, edits 1, by 2",
		"1 text of second, edits 1, by 2, duplicate",
		string(tidemark.Conflict),
		"3 text of third, edits 2, by 3",
		"2 text of third, edits 2, by 3, duplicate",
		"4 , edits 2, by 4",
		"1 , edits 2, by 4, duplicate",
		"2 , edits 2, by 4, duplicate",
	}, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// TestAppend_redacted_stays_in_no_table: after a redaction no item of any table has anything of
// what the message and its edits said.
func TestAppend_redacted_stays_in_no_table(t *testing.T) {
	t.Parallel()
	url, canary := newTables(t), rand.Text()
	s := openTest(t, url)
	createGroup(t, s, "c", "anna", "bob")
	full := func(d tidemark.Draft) tidemark.Draft {
		d.Content, d.ContentType = canary, "text/"+canary
		d.Attachments = json.RawMessage(`[{"name":"` + canary + `"}]`)
		d.Metadata = json.RawMessage(`{"` + canary + `":1}`)
		d.Mentions = tidemark.NewMentions(true, []tidemark.UserID{"bob"})
		return d
	}
	must(t, appendAll(t, s, []tidemark.Draft{
		full(draft("c", "anna", "first")), draft("c", "anna", "second"),
		full(edit("c", "anna", "third", 2)), full(edit("c", "anna", "fourth", 1)),
	}))
	if found := itemsWith(t, url, canary); len(found) != 2 {
		t.Errorf("%q is in %d items, want 2: %s", canary, len(found), found)
	}
	must(t, appendAll(t, s, []tidemark.Draft{
		redact("c", "anna", "fifth", 2), draft("c", "bob", "sixth"),
		redact("c", "anna", "seventh", 1),
	}))
	if found := itemsWith(t, url, canary); len(found) != 0 {
		t.Errorf("what was redacted is in %s", found)
	}
	for target := range tidemark.Sequence(2) {
		if m := messageOf(t, s, "c", target+1); !m.Redacted() || !m.Mentions.None() {
			t.Errorf("the redacted message: %+v", m)
		}
	}
}

// itemsWith returns the items of all tables that have a text.
func itemsWith(t *testing.T, url, text string) []string {
	t.Helper()
	api, name := raw(t, url)
	prefix := *name("")
	list, err := api.ListTables(t.Context(),
		&dynamodb.ListTablesInput{ExclusiveStartTableName: &prefix})
	must(t, err)
	var items []string
	for _, table := range list.TableNames {
		if strings.HasPrefix(table, prefix) {
			items = append(items, itemsOf(t, api, table)...)
		}
	}
	if len(items) == 0 {
		t.Error("there are no items")
	}
	return slices.DeleteFunc(items, func(item string) bool {
		return !strings.Contains(item, text)
	})
}

// A relation whose target is lost fails alone.
func TestAppend_relation_of_a_lost_message_fails_alone(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	s := openTest(t, url)
	createGroup(t, s, "c", "anna")
	send(t, s, "c", "anna", "first", 1)
	send(t, s, "c", "anna", "second", 2)
	api, name := raw(t, url)
	_, err := api.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: name(record.Messages),
		Key:       call.Item{"chat_id": call.Text("c"), "sequence": call.Number(1)},
	})
	must(t, err)
	got, err := s.Append(t.Context(), []tidemark.Draft{
		edit("c", "anna", "e1", 2), edit("c", "anna", "e2", 1), draft("c", "anna", "third"),
	})
	must(t, err)
	wantRefused(t, "the edit", got[1].Err, tidemark.Unavailable, "message 1 of chat c is missing")
	if got[0].Message.Sequence != 3 || got[2].Message.Sequence != 4 {
		t.Errorf("the others: %+v and %+v, want 3 and 4", got[0], got[2])
	}
}

// Edits and redactions of two processes at once change their targets one after the other.
func TestAppend_relations_of_two_processes(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	stores := []*Store{openTest(t, url), openTest(t, url)}
	createGroup(t, stores[0], "c", "anna", "bob")
	send(t, stores[0], "c", "anna", "first", 1)
	send(t, stores[0], "c", "bob", "second", 2)
	const each = 8
	var all sync.WaitGroup
	for i, s := range stores {
		for n := range each {
			all.Go(func() {
				key := fmt.Sprint(i, "-", n)
				drafts := []tidemark.Draft{
					edit("c", "anna", "a"+key, 1), draft("c", "bob", "b"+key),
					edit("c", "bob", "c"+key, 2),
				}
				if err := appendAll(t, s, drafts); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	keys := contents(t, stores[1], "c")
	if len(keys) != 2+6*each {
		t.Errorf("the chat has %d messages, want %d", len(keys), 2+6*each)
	}
	for target := range tidemark.Sequence(2) {
		m := messageOf(t, stores[1], "c", target+1)
		last := keys[m.Revision.Sequence-1]
		if m.Revision.Edits != 2*each || m.Content != "text of "+last {
			t.Errorf("message %d says %q, want that of %s after %d edits", m.Sequence, says(&m),
				last, 2*each)
		}
	}
}

// relations returns the operations that change messages, and that read the changed ones.
func (w *workload) relations() []operation {
	// Nobody reads this chat in the other operations: relations cost those who count more reads.
	chat := tidemark.ChatID(long("revised"))
	relate := func(kind tidemark.Kind, target, size int) error {
		key := fmt.Sprint(kind, "-", target, "-", size)
		d := textsOf(key, size, chat)
		d[0].Kind, d[0].Relation = kind, &tidemark.Relation{Sequence: tidemark.Sequence(target)}
		return w.append(d)
	}
	small := bound{calls: "GetItem, TransactWriteItems", reads: 1, writes: 10}
	return []operation{
		{"`Append` of an edit", func(r int) error {
			if r > 0 {
				return nil
			}
			return errors.Join(w.create(chat, tidemark.Group, tidemark.HistoryFull,
				[]tidemark.UserID{"writer"}), w.append(textsOf("new", 200, repeated(chat, 45)...)))
		}, func(r int) error { return relate(tidemark.KindEdit, 1+r, 200) }, small},
		{"`Append` of an edit to 5,000 bytes", nil, func(r int) error {
			return relate(tidemark.KindEdit, 3+r, 5_000)
		}, bound{calls: small.calls}},
		{"`Append` of a redaction", nil, func(r int) error {
			return relate(tidemark.KindRedact, 5+r, 0)
		}, small},
		{"`Ranges`, 5 messages, 2 of them relations", nil, func(r int) error {
			_, err := w.s.Ranges(w.t.Context(), []storage.Range{{Chat: chat, After: 42, Limit: 5}})
			return err
		}, bound{calls: "3 Query", reads: 4}},
	}
}
