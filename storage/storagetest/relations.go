package storagetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// edit returns a draft that edits a message.
func (f *fixture) edit(
	c tidemark.ChatID, sender tidemark.UserID, target tidemark.Sequence, content string,
) tidemark.Draft {
	d := f.draft(c, sender, content)
	d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: target}
	return d
}

// redact returns a draft that redacts a message.
func (f *fixture) redact(
	c tidemark.ChatID, sender tidemark.UserID, target tidemark.Sequence,
) tidemark.Draft {
	d := f.edit(c, sender, target, "")
	d.Kind = tidemark.KindRedact
	return d
}

// one returns a message as a range has it.
func (f *fixture) one(c tidemark.ChatID, n tidemark.Sequence) tidemark.Message {
	f.Helper()
	page := f.messages(storage.Range{Chat: c, After: n - 1, Limit: 1})
	if len(page) != 1 {
		f.Fatalf("message %d: got %d messages, want 1", n, len(page))
	}
	return page[0]
}

// wantRelation appends a relation, and checks its result and both messages afterwards.
func (f *fixture) wantRelation(d tidemark.Draft, n tidemark.Sequence) {
	f.Helper()
	target := f.one(d.ChatID, d.Relation.Sequence)
	got := f.append(d)
	want := d.Message(n, got.Message.MembersVersion)
	revised := target.Revise(&d, n)
	want.Relation.Target = &revised
	f.equal("appended relation", got.Message, want)
	f.equal("no duplicate", got.Duplicate, false)
	f.equal("relation", f.one(d.ChatID, n), want)
	f.equal("target", f.one(d.ChatID, d.Relation.Sequence), revised)
	f.equal("head", f.info(d.ChatID).Head, n)
}

var relationRules = []rule{
	{"Append_edit_changes_its_target_in_the_same_step", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		f.wantRelation(f.edit(c, alice, 2, "better"), 4)
		full := f.edit(c, alice, 2, "all of it")
		full.ContentType = "text/markdown"
		full.Attachments = json.RawMessage(`[{ "a" : 1.50 }]`)
		full.Metadata = json.RawMessage(`{ "b" : "ü" }`)
		full.Mentions = tidemark.NewMentions(true, []tidemark.UserID{bob})
		f.wantRelation(full, 5)
		f.wantRelation(f.edit(c, alice, 2, "plain again"), 6)
		f.wantRelation(f.edit(c, alice, 1, "another one"), 7)
		f.send(c, bob, 1)
		f.wantRelation(f.edit(c, bob, 8, "of bob"), 9)
	}},
	{"Append_redacted_stays_nothing_of_what_the_target_said", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		d := f.draft(c, alice, "secret")
		d.ContentType = "text/secret"
		d.Attachments = json.RawMessage(`[{"name":"secret"}]`)
		d.Metadata = json.RawMessage(`{"secret":1}`)
		d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{bob})
		f.append(d)
		f.wantRelation(f.edit(c, alice, 1, "secret too"), 2)
		f.wantRelation(f.redact(c, alice, 1), 3)
		f.wantRelation(f.redact(c, alice, 1), 4) // it changes nothing more
		f.send(c, bob, 1)
		for _, m := range f.messages(storage.Range{Chat: c}) {
			if text := string(m.AppendJSON(nil)); strings.Contains(text, "secret") {
				f.Errorf("message %d still has what was redacted: %s", m.Sequence, text)
			}
		}
		got := f.one(c, 1)
		f.equal("redacted", got.Redacted(), true)
		f.equal("revision", got.Revision.Sequence, tidemark.Sequence(3))
	}},
	{"Append_relation_same_key_is_Duplicate_with_the_target_as_it_is", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		original := f.draft(c, alice, "first")
		f.append(original)
		first := f.edit(c, alice, 1, "second")
		f.append(first)
		again := f.append(first)
		f.equal("duplicate", again.Duplicate, true)
		f.equal("its target", again.Message.Relation.Target.Content, "second")
		other := first
		other.Content = "another text"
		_, err := storage.AppendOne(f.ctx, f.store, other)
		f.code(err, tidemark.Conflict)
		other = first
		other.Relation = &tidemark.Relation{Sequence: 2}
		_, err = storage.AppendOne(f.ctx, f.store, other)
		f.code(err, tidemark.Conflict)
		f.append(f.edit(c, alice, 1, "third"))
		again = f.append(first)
		f.equal("target of a later duplicate", again.Message.Relation.Target.Content, "third")
		again = f.append(original)
		f.equal("the original sent again", again.Message.Content, "third")
		f.equal("duplicate of the original", again.Duplicate, true)
		sent, found, err := f.store.Sent(f.ctx, storage.SendKeyOf(&first))
		f.ok(err)
		f.equal("found", found, true)
		f.equal("sent", sent.Message.Relation.Target.Content, "third")
		f.equal("head", f.info(c).Head, tidemark.Sequence(3))
	}},
	{"Append_relation_the_key_is_looked_up_before_target_and_membership", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, bob, 1)
		edit, redact := f.edit(c, bob, 1, "edited"), f.redact(c, bob, 1)
		f.append(edit)
		f.append(redact)
		f.remove(c, bob)
		for n, d := range []tidemark.Draft{edit, redact} {
			again := f.append(d)
			f.equal("duplicate", again.Duplicate, true)
			f.equal("sequence", again.Message.Sequence, tidemark.Sequence(n+2))
			f.equal("its target is redacted", again.Message.Relation.Target.Redacted(), true)
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(3))
	}},
	{"Append_relation_is_refused_to_those_who_may_not", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		dave, out := f.user("dave"), f.user("out")
		c := f.group("c", alice, bob, carol, dave, out)
		for user, r := range map[tidemark.UserID]tidemark.Role{
			alice: tidemark.Owner, carol: tidemark.Admin, dave: tidemark.Reader,
		} {
			_, err := f.store.UpdateMember(f.ctx, c, user, role(r))
			f.ok(err)
		}
		f.send(c, bob, 1)
		f.send(c, alice, 1)
		f.remove(c, out)
		backend := f.edit(c, bob, 2, "by the backend")
		backend.ByBackend = true
		for name, test := range map[string]struct {
			draft tidemark.Draft
			want  tidemark.Code
		}{
			"edit of another's":        {f.edit(c, alice, 1, "x"), tidemark.Denied},
			"redaction by a member":    {f.redact(c, bob, 2), tidemark.Denied},
			"redaction by a reader":    {f.redact(c, dave, 1), tidemark.Denied},
			"redaction by a stranger":  {f.redact(c, out, 1), tidemark.NotMember},
			"edit of nothing":          {f.edit(c, bob, 3, "x"), tidemark.NotFound},
			"edit far above the head":  {f.edit(c, bob, 1<<53-1, "x"), tidemark.NotFound},
			"edit in an unknown chat":  {f.edit(f.chat("none"), bob, 1, "x"), tidemark.NotFound},
			"redaction far above head": {f.redact(c, alice, 1<<40), tidemark.NotFound},
		} {
			_, err := storage.AppendOne(f.ctx, f.store, test.draft)
			if got := tidemark.CodeOf(err); got != test.want {
				f.Errorf("%s: got error %v, want code %s", name, err, test.want)
			}
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(2))
		f.wantRelation(backend, 3)
		f.wantRelation(f.redact(c, carol, 1), 4)
		f.wantRelation(f.redact(c, alice, 2), 5)
		for name, d := range map[string]tidemark.Draft{
			"edit of what was redacted": f.edit(c, bob, 1, "x"),
			"edit of a relation":        f.edit(c, carol, 4, "x"),
			"redaction of a relation":   f.redact(c, alice, 4),
		} {
			_, err := storage.AppendOne(f.ctx, f.store, d)
			if tidemark.CodeOf(err) != tidemark.Conflict {
				f.Errorf("%s: got error %v, want Conflict", name, err)
			}
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(5))
	}},
	{"Append_edits_are_bounded", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 1)
		for n := range tidemark.MaxEdits {
			f.append(f.edit(c, alice, 1, fmt.Sprint(n)))
		}
		_, err := storage.AppendOne(f.ctx, f.store, f.edit(c, alice, 1, "one more"))
		f.code(err, tidemark.Conflict)
		f.wantRelation(f.redact(c, alice, 1), tidemark.MaxEdits+2)
	}},
	{"Append_relations_and_messages_of_one_call_keep_their_order", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		one, two := f.group("one", alice, bob), f.group("two", alice, bob)
		drafts := []tidemark.Draft{
			f.draft(one, alice, "1 of one"),
			f.draft(two, bob, "1 of two"),
			f.edit(one, alice, 1, "1 of one, edited"),
			f.edit(two, alice, 1, "refused"),
			f.draft(one, bob, "3 of one"),
			f.edit(two, bob, 1, "1 of two, edited"),
			f.redact(one, bob, 3),
			f.draft(two, bob, "3 of two"),
		}
		results, err := f.store.Append(f.ctx, drafts)
		f.ok(err)
		var got []tidemark.Sequence
		for _, r := range results {
			got = append(got, r.Message.Sequence)
		}
		f.equal("sequences", got, []tidemark.Sequence{1, 1, 2, 0, 3, 2, 4, 3})
		f.code(results[3].Err, tidemark.Denied)
		var contents []string
		for _, c := range []tidemark.ChatID{one, two} {
			for _, m := range f.messages(storage.Range{Chat: c}) {
				contents = append(contents, m.Content)
			}
		}
		f.equal("contents", contents,
			[]string{"1 of one, edited", "", "", "", "1 of two, edited", "", "3 of two"})
	}},
	{"Append_countable_fixed_relations_change_no_count", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		d := f.draft(c, alice, "to bob")
		d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{bob})
		f.append(d)
		f.send(c, alice, 1)
		naming := f.edit(c, alice, 2, "to bob, too")
		naming.Mentions = d.Mentions
		f.append(naming)
		f.append(f.edit(c, alice, 1, "to nobody"))
		f.append(f.redact(c, alice, 2))
		want := storage.Unread{Messages: 2, Mentions: 1}
		f.eventually("unread", func() any { return f.unread(bob, c) }, want)
		f.equal("own", f.unread(alice, c), storage.Unread{})
		f.raise(bob, c, tidemark.Raise{Read: 1}, at(3))
		f.eventually("after reading one", func() any { return f.unread(bob, c) },
			storage.Unread{Messages: 1})
		f.raise(bob, c, tidemark.Raise{Read: 5}, at(4))
		f.eventually("after reading all", func() any { return f.unread(bob, c) },
			storage.Unread{})
	}},
	{"Ranges_have_the_targets_of_relations_and_count_them", func(f *fixture) {
		alice := f.user("alice")
		one, two := f.group("one", alice), f.group("two", alice)
		for _, c := range []tidemark.ChatID{one, two} {
			f.append(f.draft(c, alice, strings.Repeat("x", 1_000)))
			for n := range 5 {
				f.append(f.edit(c, alice, 1, strings.Repeat(fmt.Sprint(n), 1_000)))
			}
		}
		pages, err := f.store.Ranges(f.ctx, []storage.Range{
			{Chat: one, After: 1, Limit: 10},
			{Chat: two, After: 1, Limit: 10, Bare: true},
			{Chat: two, After: 1, Limit: 10, MaxBytes: 2_500},
			{Chat: one, Before: 7, Limit: 10, MaxBytes: 2_500},
			{Chat: one, After: 3, Limit: 10, MaxBytes: 1},
			{Chat: two, Limit: 1},
		})
		f.ok(err)
		var got []string
		for i, page := range pages {
			for _, m := range page {
				text := fmt.Sprint(i, ": ", m.Sequence)
				if m.Relation != nil && m.Relation.Target != nil {
					text += " " + m.Relation.Target.Content[:1]
				}
				got = append(got, text)
			}
		}
		f.equal("messages", got, []string{
			"0: 2 4", "0: 3 4", "0: 4 4", "0: 5 4", "0: 6 4",
			"1: 2", "1: 3", "1: 4", "1: 5", "1: 6",
			"2: 2 4", "2: 3 4", "2: 4 4",
			"3: 4 4", "3: 5 4", "3: 6 4",
			"4: 4 4",
			"5: 1",
		})
	}},
	{"ChatsOf_has_a_relation_as_last_message_without_target", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 1)
		d := f.edit(c, alice, 1, "edited")
		f.append(d)
		f.eventually("last", func() any { return f.chatsOf(alice, 10)[0].Last },
			new(d.Message(2, 1)))
	}},
	{"Append_concurrent_relations_are_one_after_the_other", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 1)
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() { f.append(f.edit(c, alice, 1, fmt.Sprint("edit ", n))) })
			all.Go(func() { f.send(c, bob, 1) })
		}
		all.Wait()
		f.append(f.edit(c, alice, 1, "the last edit"))
		got := f.one(c, 1)
		f.equal("content", got.Content, "the last edit")
		f.equal("revision", got.Revision.Sequence, tidemark.Sequence(18))
		f.equal("edits", got.Revision.Edits, 9)
		f.gapless(c, 18)
	}},
	{"Append_concurrent_edits_and_redaction_leave_nothing", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		_, err := f.store.UpdateMember(f.ctx, c, bob, role(tidemark.Admin))
		f.ok(err)
		f.send(c, alice, 1)
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				_, err := storage.AppendOne(f.ctx, f.store, f.edit(c, alice, 1, fmt.Sprint(n)))
				if code := tidemark.CodeOf(err); err != nil && code != tidemark.Conflict {
					f.Errorf("edit: %v", err)
				}
			})
		}
		all.Go(func() { f.append(f.redact(c, bob, 1)) })
		all.Wait()
		got := f.one(c, 1)
		f.equal("redacted", got.Redacted(), true)
		f.equal("content", got.Content, "")
	}},
}
