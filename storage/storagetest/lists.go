package storagetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// redactAll returns a draft that redacts a list of messages.
func (f *fixture) redactAll(
	c tidemark.ChatID, sender tidemark.UserID, targets ...tidemark.Sequence,
) tidemark.Draft {
	d := f.redact(c, sender, 0)
	d.Relation = &tidemark.Relation{Sequences: targets}
	return d
}

// wantList appends a redaction of a list, and checks its result and all messages afterwards.
func (f *fixture) wantList(d tidemark.Draft, n tidemark.Sequence) {
	f.Helper()
	want := f.messages(storage.Range{Chat: d.ChatID})
	for i := range want {
		if d.Relation.Has(want[i].Sequence) {
			want[i] = want[i].Revise(&d, n)
		}
	}
	got := f.append(d)
	relation := d.Message(n, got.Message.MembersVersion)
	f.equal("appended list", got.Message, relation)
	f.equal("no duplicate", got.Duplicate, false)
	after := f.messages(storage.Range{Chat: d.ChatID})
	f.equal("messages", bare(after), bare(append(want, relation)))
}

// bare returns messages without the targets of their relations.
func bare(messages []tidemark.Message) []tidemark.Message {
	all := slices.Clone(messages)
	for i := range all {
		all[i] = all[i].WithoutTarget()
	}
	return all
}

var listRules = []rule{
	{"Append_redacted_stays_of_a_list_in_the_same_step", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		f.append(f.edit(c, alice, 2, "edited"))
		f.wantList(f.redactAll(c, alice, 1, 2), 5)
		f.wantList(f.redactAll(c, alice, 2, 3), 6) // one of them was redacted before
		f.wantList(f.redactAll(c, alice, 1), 7)
		f.equal("first redaction", f.one(c, 2).Revision.Sequence, tidemark.Sequence(5))
		f.equal("unread", f.unread(bob, c).Messages, int64(3))
	}},
	{"Append_redacted_stays_of_the_longest_list", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, tidemark.MaxRedactions)
		var all []tidemark.Sequence
		for n := range tidemark.Sequence(tidemark.MaxRedactions) {
			all = append(all, n+1)
		}
		f.wantList(f.redactAll(c, alice, all...), tidemark.MaxRedactions+1)
	}},
	{"Append_redacted_stays_nothing_of_a_list_if_one_is_refused", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice, bob, carol)
		_, err := f.store.UpdateMember(f.ctx, c, carol, role(tidemark.Admin))
		f.ok(err)
		f.send(c, bob, 2)
		f.send(c, alice, 1)
		f.append(f.edit(c, bob, 1, "edited"))
		f.append(f.react(c, bob, 1, "a"))
		before := f.messages(storage.Range{Chat: c})
		for name, test := range map[string]struct {
			draft tidemark.Draft
			want  tidemark.Code
			index int
		}{
			"another's":  {f.redactAll(c, bob, 1, 2, 3), tidemark.Denied, 2},
			"an edit":    {f.redactAll(c, bob, 2, 4), tidemark.Conflict, 1},
			"a reaction": {f.redactAll(c, bob, 1, 5), tidemark.Conflict, 1},
			"nothing":    {f.redactAll(c, bob, 1, 9), tidemark.NotFound, 1},
			"far above":  {f.redactAll(c, carol, 3, 1<<40), tidemark.NotFound, 1},
		} {
			_, err := storage.AppendOne(f.ctx, f.store, test.draft)
			f.code(err, test.want)
			f.equal(name, tidemark.ParamOf(err),
				fmt.Sprintf("relation.sequences[%d]", test.index))
		}
		f.equal("messages", f.messages(storage.Range{Chat: c}), before)
		f.wantReactions(c, alice, 5, "1 a 1 0")
		f.wantList(f.redactAll(c, carol, 1, 3), 6)
		backend := f.redactAll(c, bob, 2, 3)
		backend.ByBackend = true
		f.wantList(backend, 7)
	}},
	{"Append_same_key_of_a_list_is_Duplicate", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 3)
		d := f.redactAll(c, alice, 1, 2)
		f.wantList(d, 4)
		again := f.append(d)
		f.equal("duplicate", again.Duplicate, true)
		f.equal("relation", again.Message.Relation, d.Relation)
		sent, found, err := f.store.Sent(f.ctx, storage.SendKeyOf(&d))
		f.ok(err)
		f.equal("found", found, true)
		f.equal("sent", sent.Message.Relation, d.Relation)
		for _, other := range []*tidemark.Relation{
			{Sequences: []tidemark.Sequence{1, 3}}, {Sequence: 1},
			{Sequences: []tidemark.Sequence{1}},
		} {
			d.Relation = other
			_, err := storage.AppendOne(f.ctx, f.store, d)
			f.code(err, tidemark.Conflict)
		}
		f.equal("what another list names", f.one(c, 3).Revision == nil, true)
		f.equal("head", f.info(c).Head, tidemark.Sequence(4))
	}},
	{"Append_lists_and_other_messages_of_one_call_keep_their_order", func(f *fixture) {
		alice := f.user("alice")
		one, two := f.group("one", alice), f.group("two", alice)
		drafts := []tidemark.Draft{
			f.draft(one, alice, "1"), f.draft(one, alice, "2"), f.draft(two, alice, "1"),
			f.redactAll(one, alice, 1, 2), f.redactAll(two, alice, 1),
			f.draft(one, alice, "4"), f.redactAll(one, alice, 2, 4), f.draft(two, alice, "3"),
		}
		results, err := f.store.Append(f.ctx, drafts)
		f.ok(err)
		var got []tidemark.Sequence
		for _, r := range results {
			f.ok(r.Err)
			got = append(got, r.Message.Sequence)
		}
		f.equal("sequences", got, []tidemark.Sequence{1, 2, 1, 3, 2, 4, 5, 3})
		var contents []string
		for _, c := range []tidemark.ChatID{one, two} {
			for _, m := range f.messages(storage.Range{Chat: c}) {
				contents = append(contents, m.Content)
			}
		}
		f.equal("contents", strings.Join(contents, ","), ",,,,,,,3")
	}},
	{"erasure_is_announced_by_one_who_is_no_member", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		f.send(c, bob, 1)
		f.append(f.redact(c, alice, 2))
		f.remove(c, alice)
		e := erasureOf(alice, 7)
		unread := f.unread(bob, c)
		for range 2 { // A repeated call finds what an earlier one has wiped.
			got, err := f.store.EraseMessages(f.ctx, c, e, storage.ErasePage{Limit: 500})
			f.ok(err)
			f.equal("erased", got.Erased, []tidemark.Sequence{1})
		}
		d := f.redactAll(c, e.Alias, 1)
		_, err := storage.AppendOne(f.ctx, f.store, d)
		f.code(err, tidemark.NotMember)
		d.ByServer = true
		before := f.messages(storage.Range{Chat: c})
		for n := range 2 {
			got := f.append(d)
			f.equal("duplicate", got.Duplicate, n == 1)
			f.equal("announcement", got.Message, d.Message(5, got.Message.MembersVersion))
		}
		f.equal("messages", f.messages(storage.Range{Chat: c})[:4], before)
		f.equal("unread", f.unread(bob, c), unread)
		_, err = storage.AppendOne(f.ctx, f.store, f.draft(c, e.Alias, "no member still"))
		f.code(err, tidemark.NotMember)
	}},
	{"erasure_is_announced_in_a_closed_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.direct("c", alice, bob)
		f.send(c, alice, 1)
		_, err := f.store.CloseDirect(f.ctx, c, alice, at(5))
		f.ok(err)
		e := erasureOf(alice, 8)
		f.erasesMessages(c, e, 500)
		d := f.redactAll(c, e.Alias, 1)
		d.ByServer = true
		f.equal("sequence", f.append(d).Message.Sequence, tidemark.Sequence(2))
	}},
}
