package storagetest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// react returns a draft that reacts to a message.
func (f *fixture) react(
	c tidemark.ChatID, sender tidemark.UserID, target tidemark.Sequence, emoji string,
) tidemark.Draft {
	d := f.redact(c, sender, target)
	d.Kind, d.Relation.Emoji = tidemark.KindReact, emoji
	return d
}

// pin returns a draft that pins a message.
func (f *fixture) pin(
	c tidemark.ChatID, sender tidemark.UserID, target tidemark.Sequence,
) tidemark.Draft {
	d := f.redact(c, sender, target)
	d.Kind = tidemark.KindPin
	return d
}

// wantAnnotation appends a reaction or pin, and checks that it is a message as any other, and that
// its target stays as it is.
func (f *fixture) wantAnnotation(d tidemark.Draft, n tidemark.Sequence) {
	f.Helper()
	target := f.one(d.ChatID, d.Relation.Sequence)
	got := f.append(d)
	want := d.Message(n, got.Message.MembersVersion)
	f.equal("appended annotation", got.Message, want)
	f.equal("no duplicate", got.Duplicate, false)
	f.equal("annotation", f.one(d.ChatID, n), want)
	f.equal("target", f.one(d.ChatID, d.Relation.Sequence), target)
	f.equal("head", f.info(d.ChatID).Head, n)
}

// conflict appends a draft, which must be refused as a Conflict whose detail names a sequence, if
// that is not 0.
func (f *fixture) conflict(what string, d tidemark.Draft, names tidemark.Sequence) {
	f.Helper()
	_, err := storage.AppendOne(f.ctx, f.store, d)
	if tidemark.CodeOf(err) != tidemark.Conflict ||
		names != 0 && !strings.HasSuffix(tidemark.DetailOf(err), fmt.Sprint("message ", names)) {
		f.Errorf("%s: got error %v, want Conflict that names message %d", what, err, names)
	}
}

// reactions returns what Reactions says of messages, as texts "message emoji count own".
func (f *fixture) reactions(
	c tidemark.ChatID, from, to tidemark.Sequence, user tidemark.UserID,
) (texts []string, through tidemark.Sequence) {
	f.Helper()
	found, through, err := f.store.Reactions(f.ctx,
		storage.ReactionsQuery{Chat: c, From: from, To: to, User: user})
	f.ok(err)
	for _, one := range found {
		texts = append(texts,
			fmt.Sprint(one.Sequence, " ", one.Emoji, " ", one.Count, " ", one.Own))
	}
	return texts, through
}

// wantReactions checks what Reactions says of all messages to a user, and up to which sequence.
func (f *fixture) wantReactions(
	c tidemark.ChatID, user tidemark.UserID, through tidemark.Sequence, want ...string,
) {
	f.Helper()
	got, head := f.reactions(c, 1, storage.MaxReactionsRange, user)
	f.equal("reactions", got, want)
	f.equal("through", head, through)
}

// wantPins checks the targets of the pins, and the pins.
func (f *fixture) wantPins(c tidemark.ChatID, want ...storage.Pin) {
	f.Helper()
	got, err := f.store.Pins(f.ctx, c)
	f.ok(err)
	f.equal("pins", got, want)
}

// pinOf returns the pin that a draft became.
func pinOf(d tidemark.Draft, n tidemark.Sequence) storage.Pin {
	return storage.Pin{Target: d.Relation.Sequence, Sequence: n, By: d.SenderID, At: d.CreatedAt}
}

// annotated returns what Annotations says of a chat without user.
func (f *fixture) annotated(c tidemark.ChatID) any {
	f.Helper()
	found, through := f.reactions(c, 1, storage.MaxReactionsRange, "")
	pins, err := f.store.Pins(f.ctx, c)
	f.ok(err)
	return []any{found, through, pins}
}

// sequenceOf appends a draft, beside others that do, and returns its sequence.
func (f *fixture) sequenceOf(d tidemark.Draft) (n tidemark.Sequence, err error) {
	err = retry(func() error {
		appended, err := storage.AppendOne(f.ctx, f.store, d)
		n = appended.Message.Sequence
		return err
	})
	return n, err
}

var annotationRules = []rule{
	{"Append_an_annotation_is_a_message_and_leaves_its_target", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, bob, 2)
		f.append(f.edit(c, bob, 1, "edited"))
		f.wantAnnotation(f.react(c, bob, 1, "👍"), 4)
		f.wantAnnotation(f.pin(c, alice, 1), 5)
		f.wantAnnotation(f.react(c, alice, 1, "👨‍👩‍👧‍👦"), 6)
		f.wantRelation(f.edit(c, bob, 1, "edited again"), 7)
		f.gapless(c, 7)
	}},
	{"annotations_counted_by_message_and_emoji", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c, other := f.group("c", alice, bob, carol), f.group("other", alice)
		f.send(c, alice, 3)
		f.wantReactions(c, alice, 3)
		f.append(f.react(c, bob, 2, "b"))
		f.append(f.react(c, carol, 2, "a"))
		f.append(f.react(c, carol, 2, "b"))
		f.append(f.react(c, alice, 1, "a"))
		f.append(f.react(c, bob, 3, "B"))
		f.send(other, alice, 1)
		f.append(f.react(other, alice, 1, "a"))
		f.wantReactions(c, bob, 8, "1 a 1 0", "2 b 2 4", "2 a 1 0", "3 B 1 8")
		f.wantReactions(c, carol, 8, "1 a 1 0", "2 b 2 6", "2 a 1 5", "3 B 1 0")
		some, through := f.reactions(c, 2, 2, alice)
		f.equal("of message 2", some, []string{"2 b 2 0", "2 a 1 0"})
		f.equal("through", through, tidemark.Sequence(8))
		none, through := f.reactions(c, 4, 100, alice)
		f.equal("of later messages", none, nil)
		f.equal("through", through, tidemark.Sequence(8))
		f.send(c, alice, 1)
		f.wantReactions(c, "", 9, "1 a 1 0", "2 b 2 0", "2 a 1 0", "3 B 1 0")
		unknown, through := f.reactions(f.chat("none"), 1, 1, alice)
		f.equal("of an unknown chat", unknown, nil)
		f.equal("its head", through, tidemark.Sequence(0))
	}},
	{"annotations_counted_until_they_are_redacted", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, bob, 1)
		f.append(f.react(c, alice, 1, "a"))
		f.append(f.react(c, bob, 1, "a"))
		f.append(f.react(c, bob, 1, "b"))
		f.wantRelation(f.redact(c, bob, 3), 5)
		f.equal("the redacted one", f.one(c, 3).Relation,
			&tidemark.Relation{Sequence: 1, Emoji: "a"})
		f.wantReactions(c, bob, 5, "1 a 1 0", "1 b 1 4")
		f.conflict("redacted again", f.redact(c, bob, 3), 5)
		f.conflict("edited", f.edit(c, bob, 4, "x"), 0)
		f.append(f.react(c, bob, 1, "a"))
		f.wantReactions(c, bob, 6, "1 a 2 6", "1 b 1 4")
		f.wantRelation(f.redact(c, alice, 4), 7)
		f.wantReactions(c, bob, 7, "1 a 2 6")
		f.append(f.redact(c, bob, 1)) // changes nothing for its reactions
		f.wantReactions(c, bob, 8, "1 a 2 6")
		f.append(f.redact(c, bob, 6))
		f.wantReactions(c, bob, 9, "1 a 1 0")
	}},
	{"annotations_counted_once_for_a_user_and_an_emoji", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		f.append(f.react(c, bob, 1, "a"))
		f.conflict("the same", f.react(c, bob, 1, "a"), 3)
		f.append(f.react(c, bob, 2, "a"))
		f.append(f.react(c, alice, 1, "a"))
		for n := range tidemark.MaxReactions - 1 {
			f.append(f.react(c, bob, 1, fmt.Sprint("e", n)))
		}
		f.conflict("one too many", f.react(c, bob, 1, "b"), 0)
		f.append(f.react(c, bob, 2, "b"))
		f.append(f.redact(c, bob, 3))
		f.append(f.react(c, bob, 1, "b"))
		f.conflict("one too many again", f.react(c, bob, 1, "a"), 0)
	}},
	{"Reactors_of_a_message_in_order", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		var want []storage.Reaction
		for n, d := range []tidemark.Draft{
			f.react(c, bob, 2, "z"), f.react(c, bob, 1, "z"), f.react(c, alice, 1, "a"),
			f.react(c, bob, 1, "a"), f.react(c, alice, 1, "z"),
		} {
			f.append(d)
			want = append(want, storage.Reaction{
				Target: d.Relation.Sequence, User: d.SenderID, Emoji: d.Relation.Emoji,
				Sequence: tidemark.Sequence(n + 3), At: d.CreatedAt,
			})
		}
		for _, test := range []struct {
			target, after tidemark.Sequence
			limit         int
			want          []storage.Reaction
			more          bool
		}{
			{1, 0, 10, want[1:], false},
			{1, 0, 4, want[1:], false},
			{1, 0, 3, want[1:4], true},
			{1, 4, 2, want[2:4], true},
			{1, 6, 2, want[4:], false},
			{1, 7, 2, nil, false},
			{2, 0, 2, want[:1], false},
			{3, 0, 2, nil, false},
		} {
			got, more, err := f.store.Reactors(f.ctx, c, test.target, test.after, test.limit)
			f.ok(err)
			f.equal("reactors", got, test.want)
			f.equal("more", more, test.more)
		}
		f.append(f.redact(c, bob, 4))
		got, _, err := f.store.Reactors(f.ctx, c, 1, 0, 10)
		f.ok(err)
		f.equal("after a redaction", got, want[2:])
		got, _, err = f.store.Reactors(f.ctx, f.chat("none"), 1, 0, 10)
		f.ok(err)
		f.equal("of an unknown chat", got, nil)
	}},
	{"Reactions_refuses_a_range_that_is_none_or_too_large", func(f *fixture) {
		c := f.group("c", f.user("alice"))
		for _, q := range []storage.ReactionsQuery{
			{Chat: c, From: 0, To: 1}, {Chat: c, From: 2, To: 1},
			{Chat: c, From: 1, To: 1 + storage.MaxReactionsRange},
		} {
			_, _, err := f.store.Reactions(f.ctx, q)
			f.code(err, tidemark.Invalid)
		}
	}},
	{"annotations_counted_pins_of_a_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.wantPins(c)
		f.wantPins(f.chat("none"))
		f.send(c, bob, 3)
		two, one := f.pin(c, alice, 2), f.pin(c, bob, 1)
		one.ByBackend = true
		f.append(two)
		f.append(one)
		f.wantPins(c, pinOf(one, 5), pinOf(two, 4))
		f.conflict("pinned twice", f.pin(c, alice, 2), 4)
		f.wantRelation(f.redact(c, alice, 4), 6)
		f.wantPins(c, pinOf(one, 5))
		f.conflict("unpinned twice", f.redact(c, alice, 4), 6)
		again := f.pin(c, alice, 2)
		f.append(again)
		f.append(f.redact(c, bob, 1)) // it stays pinned
		f.wantPins(c, pinOf(again, 7), pinOf(one, 5))
	}},
	{"annotations_counted_at_most_50_pins", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, tidemark.MaxPins+1)
		for n := range tidemark.MaxPins {
			f.append(f.pin(c, alice, tidemark.Sequence(n+1)))
		}
		last := tidemark.Sequence(tidemark.MaxPins + 1)
		f.conflict("one too many", f.pin(c, alice, last), 0)
		f.append(f.redact(c, alice, last+3)) // the pin of message 3
		f.append(f.pin(c, alice, last))
		f.conflict("one too many again", f.pin(c, alice, 3), 0)
		pins, err := f.store.Pins(f.ctx, c)
		f.ok(err)
		f.equal("number of pins", len(pins), tidemark.MaxPins)
		f.equal("the latest", pins[0].Target, last)
		f.equal("the oldest", pins[tidemark.MaxPins-1].Target, tidemark.Sequence(1))
	}},
	{"Append_annotation_same_key_is_Duplicate", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		react, pin := f.react(c, bob, 1, "a"), f.pin(c, alice, 1)
		f.append(react)
		f.append(pin)
		want := react.Message(3, f.roster(c).Version)
		f.equal("the same again", f.append(react),
			storage.Appended{Message: want, Duplicate: true, Version: want.MembersVersion})
		sent, found, err := f.store.Sent(f.ctx, storage.SendKeyOf(&react))
		f.ok(err)
		f.equal("found", found, true)
		f.equal("sent", sent.Message, want)
		for name, change := range map[string]func(*tidemark.Draft){
			"another emoji":  func(d *tidemark.Draft) { d.Relation.Emoji = "b" },
			"another target": func(d *tidemark.Draft) { d.Relation.Sequence = 2 },
			"a pin": func(d *tidemark.Draft) {
				d.Kind, d.Relation.Emoji = tidemark.KindPin, ""
			},
		} {
			other, relation := react, *react.Relation
			other.Relation = &relation
			change(&other)
			f.conflict(name, other, 0)
		}
		f.append(f.redact(c, bob, 3))
		f.append(f.redact(c, alice, 4))
		for n, d := range []tidemark.Draft{react, pin} {
			again := f.append(d)
			f.equal("duplicate", again.Duplicate, true)
			f.equal("sequence", again.Message.Sequence, tidemark.Sequence(n+3))
			f.equal("redacted", again.Message.Redacted(), true)
			f.equal("relation", again.Message.Relation, d.Relation)
		}
		f.remove(c, bob)
		f.equal("of a former member", f.append(react).Duplicate, true)
		f.equal("head", f.info(c).Head, tidemark.Sequence(6))
	}},
	{"Append_annotation_is_refused_to_those_who_may_not", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		out := f.user("out")
		c := f.group("c", alice, bob, carol, out)
		_, err := f.store.UpdateMember(f.ctx, c, carol, role(tidemark.Reader))
		f.ok(err)
		f.send(c, bob, 1)
		f.remove(c, out)
		f.append(f.react(c, alice, 1, "a"))
		f.append(f.pin(c, alice, 1))
		none := f.chat("none")
		of := func(target tidemark.Sequence, code tidemark.Code) map[*tidemark.Draft]tidemark.Code {
			react, pin := f.react(c, alice, target, "b"), f.pin(c, alice, target)
			return map[*tidemark.Draft]tidemark.Code{&react: code, &pin: code}
		}
		by := func(d tidemark.Draft, code tidemark.Code) map[*tidemark.Draft]tidemark.Code {
			return map[*tidemark.Draft]tidemark.Code{&d: code}
		}
		for name, tests := range map[string]map[*tidemark.Draft]tidemark.Code{
			"of nothing":                      of(9, tidemark.NotFound),
			"far above the head":              of(1<<53-1, tidemark.NotFound),
			"of a reaction":                   of(2, tidemark.Conflict),
			"of a pin":                        of(3, tidemark.Conflict),
			"pin by a member":                 by(f.pin(c, bob, 1), tidemark.Denied),
			"reaction by a reader":            by(f.react(c, carol, 1, "a"), tidemark.Denied),
			"reaction by a stranger":          by(f.react(c, out, 1, "a"), tidemark.NotMember),
			"redaction of another's reaction": by(f.redact(c, bob, 2), tidemark.Denied),
			"redaction of a pin by a member":  by(f.redact(c, bob, 3), tidemark.Denied),
			"reaction in no chat":             by(f.react(none, bob, 1, "a"), tidemark.NotFound),
			"edit of another's reaction":      by(f.edit(c, bob, 2, "x"), tidemark.Denied),
			"edit of their own pin":           by(f.edit(c, alice, 3, "x"), tidemark.Conflict),
		} {
			for d, want := range tests {
				_, err := storage.AppendOne(f.ctx, f.store, *d)
				if got := tidemark.CodeOf(err); got != want {
					f.Errorf("%s: got error %v, want code %s", name, err, want)
				}
			}
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(3))
		f.append(f.redact(c, bob, 1))
		f.conflict("reaction to what was redacted", f.react(c, bob, 1, "b"), 0)
		f.conflict("reaction to a redaction", f.react(c, bob, 4, "b"), 0)
		direct := f.direct("d", alice, bob)
		f.send(direct, bob, 1)
		f.append(f.pin(direct, bob, 1))
		// The role of alice, who created the chat, means nothing.
		_, err = storage.AppendOne(f.ctx, f.store, f.redact(direct, alice, 1))
		f.code(err, tidemark.Denied)
		f.append(f.redact(direct, alice, 2))
		f.wantPins(direct)
	}},
	{"Append_annotations_and_messages_of_one_call_keep_their_order", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		one, two := f.group("one", alice, bob), f.group("two", alice, bob)
		results, err := f.store.Append(f.ctx, []tidemark.Draft{
			f.draft(one, alice, "1 of one"),
			f.draft(two, bob, "1 of two"),
			f.react(one, bob, 1, "a"),
			f.react(two, bob, 2, "refused"),
			f.draft(one, bob, "3 of one"),
			f.redact(one, bob, 2),
			f.pin(two, alice, 1),
			f.react(one, bob, 1, "a"),
			f.react(one, bob, 1, "a"),
			f.draft(two, bob, "3 of two"),
		})
		f.ok(err)
		var got []string
		for _, r := range results {
			got = append(got, fmt.Sprint(r.Message.Sequence, tidemark.CodeOf(r.Err)))
		}
		f.equal("sequences", got, []string{
			"1", "1", "2", "0NOT_FOUND", "3", "4", "2", "5", "0CONFLICT", "3",
		})
		f.wantReactions(one, bob, 5, "1 a 1 5")
		f.wantReactions(two, bob, 3)
	}},
	{"Append_countable_fixed_annotations_change_no_count", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		f.append(f.react(c, alice, 1, "a"))
		f.append(f.pin(c, alice, 2))
		f.append(f.redact(c, alice, 3))
		f.eventually("unread", func() any { return f.unread(bob, c) }, storage.Unread{Messages: 2})
		f.equal("own", f.unread(alice, c), storage.Unread{})
		f.raise(bob, c, tidemark.Raise{Read: 2}, at(3))
		f.eventually("after reading", func() any { return f.unread(bob, c) }, storage.Unread{})
	}},
	{"Ranges_bounded_use_emoji_count_for_the_size_of_a_page", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.append(f.draft(c, alice, "0123456789"))
		for n := range 5 {
			f.append(f.react(c, alice, 1, fmt.Sprint("0123456789-", n)))
		}
		for size, want := range map[int]int{1: 1, 12: 1, 13: 2, 24: 2, 60: 5, 61: 5} {
			for _, r := range []storage.Range{
				{Chat: c, After: 1, MaxBytes: size}, {Chat: c, After: 1, Before: 7, MaxBytes: size},
			} {
				f.equal(fmt.Sprint("messages of ", size, " bytes"), len(f.messages(r)), want)
			}
		}
	}},
	{"Expire_annotations_counted_until_their_target_expires", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.said(c, alice, 1, 2, 3)
		young := func(d tidemark.Draft) tidemark.Draft {
			d.CreatedAt = at(900)
			return d
		}
		first, third := young(f.pin(c, alice, 1)), young(f.pin(c, alice, 3))
		for _, d := range []tidemark.Draft{
			young(f.react(c, bob, 1, "a")), young(f.react(c, bob, 2, "a")),
			young(f.react(c, bob, 3, "a")), young(f.react(c, alice, 3, "b")), first, third,
		} {
			f.append(d)
		}
		f.wantReactions(c, bob, 9, "1 a 1 4", "2 a 1 5", "3 a 1 6", "3 b 1 0")
		f.expires(c, at(3), 10, 3, 2)
		f.wantReactions(c, bob, 9, "3 a 1 6", "3 b 1 0")
		f.wantPins(c, pinOf(third, 9))
		for n := range tidemark.Sequence(2) {
			got, _, err := f.store.Reactors(f.ctx, c, n+1, 0, 10)
			f.ok(err)
			f.equal("reactors of what has expired", got, nil)
		}
		for _, d := range []tidemark.Draft{f.react(c, bob, 2, "b"), f.pin(c, alice, 2)} {
			_, err := storage.AppendOne(f.ctx, f.store, d)
			f.code(err, tidemark.NotFound)
		}
		// Those that stood are still there as messages, and may be redacted.
		f.equal("relation", f.one(c, 4).Relation, &tidemark.Relation{Sequence: 1, Emoji: "a"})
		f.append(young(f.redact(c, bob, 4)))
		f.append(young(f.redact(c, alice, 8)))
		f.append(young(f.redact(c, bob, 6)))
		f.wantReactions(c, bob, 12, "3 b 1 0")
		f.wantPins(c, pinOf(third, 9))
		f.expires(c, at(901), 100, 13, 10)
		f.wantReactions(c, bob, 12)
		f.wantPins(c)
	}},
	{"annotations_counted_beside_each_other", func(f *fixture) {
		users := f.many(6)
		c := f.group("c", users...)
		f.send(c, users[0], 2)
		var drafts []tidemark.Draft
		for n := range 2 * (tidemark.MaxReactions + 4) {
			drafts = append(drafts, f.react(c, users[1], 1, fmt.Sprint("e", n/2)))
		}
		for _, user := range users {
			pin := f.pin(c, user, 2)
			pin.ByBackend = true
			drafts = append(drafts, pin, f.react(c, user, 2, "a"), f.react(c, user, 2, "a"))
		}
		stored := make([]bool, len(drafts))
		f.ok(concurrently(len(drafts), func(i int) error {
			err := retry(func() error {
				_, err := storage.AppendOne(f.ctx, f.store, drafts[i])
				return err
			})
			stored[i] = err == nil
			if tidemark.CodeOf(err) == tidemark.Conflict {
				return nil
			}
			return err
		}))
		numbers := map[string]int{}
		for i, d := range drafts {
			if stored[i] {
				numbers[fmt.Sprint(d.Kind, " ", d.Relation.Sequence)]++
			}
		}
		f.equal("stored", numbers, map[string]int{
			"react 1": tidemark.MaxReactions, "react 2": len(users), "pin 2": 1,
		})
		got, _ := f.reactions(c, 1, 1, "")
		f.equal("emoji of one user", len(got), tidemark.MaxReactions)
		got, _ = f.reactions(c, 2, 2, "")
		f.equal("of all users", got, []string{fmt.Sprint("2 a ", len(users), " 0")})
	}},
	{"annotations_counted_exactly_through_the_sequence_that_is_named", func(f *fixture) {
		users := f.many(4)
		c := f.group("c", users...)
		f.send(c, users[0], 1)
		// changes has +1 for each reaction to message 1, and −1 for each redaction of one.
		changes := map[tidemark.Sequence]int64{}
		type count struct {
			through tidemark.Sequence
			n       int64
		}
		var counts []count
		var mu sync.Mutex
		var writers, readers sync.WaitGroup
		for _, user := range users[1:] {
			writers.Go(func() {
				for range 12 {
					n, err := f.sequenceOf(f.react(c, user, 1, "a"))
					if err != nil {
						f.Errorf("react: %v", err)
						return
					}
					undone, err := f.sequenceOf(f.redact(c, user, n))
					if err != nil {
						f.Errorf("redact: %v", err)
						return
					}
					mu.Lock()
					changes[n], changes[undone] = 1, -1
					mu.Unlock()
				}
			})
		}
		ended := make(chan struct{})
		for range 2 {
			readers.Go(func() {
				for reading := true; reading; {
					select {
					case <-ended:
						reading = false
					default:
					}
					var one count
					err := retry(func() error {
						found, through, err := f.store.Reactions(f.ctx,
							storage.ReactionsQuery{Chat: c, From: 1, To: 9})
						one = count{through: through}
						for _, emoji := range found {
							one.n += emoji.Count
						}
						return err
					})
					if err != nil {
						f.Errorf("Reactions: %v", err)
						return
					}
					mu.Lock()
					counts = append(counts, one)
					mu.Unlock()
				}
			})
		}
		writers.Wait()
		close(ended)
		readers.Wait()
		for _, one := range counts {
			want := int64(0)
			for n, change := range changes {
				if n <= one.through {
					want += change
				}
			}
			if one.n != want {
				f.Errorf("through %d: got %d reactions, want %d", one.through, one.n, want)
			}
		}
	}},
}
