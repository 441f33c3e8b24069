package storagetest

import (
	"encoding/json"
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var messageRules = []rule{
	{"Append_stores_the_message_at_the_next_sequence", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice)
		var want []tidemark.Message
		for i, sender := range []tidemark.UserID{alice, bob, bob, alice} {
			f.send(other, alice, 1)
			draft := f.draft(c, sender, fmt.Sprintf("number %d", i))
			draft.ContentType = "text/markdown"
			if i%2 == 1 {
				draft.Attachments = json.RawMessage(`[{ "url" : "s3://x",` + "\n" +
					`"size": 1.50, "a": "\u0041é😀" }]`)
				draft.Metadata = json.RawMessage(`{ "number" : 1.50 }`)
			}
			got := f.append(draft)
			message := draft.Message(tidemark.Sequence(i+1), 1)
			f.equal("appended", got, storage.Appended{Message: message, Version: 1})
			f.equal("message", f.messages(storage.Range{Chat: c, After: tidemark.Sequence(i)}),
				[]tidemark.Message{message})
			f.equal("head", f.info(c).Head, tidemark.Sequence(i+1))
			want = append(want, message)
		}
		f.equal("all", f.messages(storage.Range{Chat: c}), want)
	}},
	{"Append_keeps_attachments_byte_for_byte_and_nil_as_nil", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		raw := "[{ \"b\":1,\t\"a\":2.0e1,\n \"a\":\"\\u00e9\" }]"
		with := f.draft(c, alice, "")
		with.Attachments, with.Metadata = json.RawMessage(raw), json.RawMessage(raw[1:len(raw)-1])
		f.append(with)
		f.send(c, alice, 1)
		messages := f.messages(storage.Range{Chat: c})
		f.equal("attachments", string(messages[0].Attachments), raw)
		f.equal("metadata", string(messages[0].Metadata), raw[1:len(raw)-1])
		f.equal("content", messages[0].Content, "")
		f.equal("none is nil", messages[1].Attachments == nil && messages[1].Metadata == nil, true)
	}},
	{"Append_same_key_returns_the_first_message_as_Duplicate", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 1)
		draft := f.draft(c, alice, "once")
		first := f.append(draft)
		f.send(c, alice, 1)
		again := draft
		again.MessageID, again.CreatedAt = "another-id", at(500)
		for range 3 {
			f.equal("duplicate", f.append(again), storage.Appended{
				Message:   first.Message,
				Duplicate: true,
				Version:   1,
			})
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(3))
	}},
	{"Append_send_idempotent_whatever_the_clock_says", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		draft := f.draft(c, alice, "once")
		first := f.append(draft)
		again := draft
		for _, days := range []int{1, 8, 366, -1, -366, 36_500} {
			again.CreatedAt = draft.CreatedAt.AddDate(0, 0, days)
			f.equal("sent again with the clock elsewhere", f.append(again), storage.Appended{
				Message:   first.Message,
				Duplicate: true,
				Version:   1,
			})
			other := f.draft(c, alice, fmt.Sprint("other", days))
			other.CreatedAt = again.CreatedAt
			f.append(other)
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(7))
	}},
	{"Append_same_key_other_message_is_Conflict", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		draft := f.draft(c, alice, "once")
		draft.Attachments = json.RawMessage(`[{"a":1}]`)
		draft.Metadata = json.RawMessage(`{"b":1}`)
		f.append(draft)
		for name, change := range map[string]func(*tidemark.Draft){
			"content":      func(d *tidemark.Draft) { d.Content = "Once" },
			"content type": func(d *tidemark.Draft) { d.ContentType = "text/markdown" },
			"attachment": func(d *tidemark.Draft) {
				d.Attachments = json.RawMessage(`[{"a": 1}]`)
			},
			"no attachment": func(d *tidemark.Draft) { d.Attachments = nil },
			"metadata":      func(d *tidemark.Draft) { d.Metadata = json.RawMessage(`{"b": 1}`) },
			"no metadata":   func(d *tidemark.Draft) { d.Metadata = nil },
		} {
			other := draft
			change(&other)
			_, err := storage.AppendOne(f.ctx, f.store, other)
			if tidemark.CodeOf(err) != tidemark.Conflict {
				f.Errorf("another %s: got error %v, want Conflict", name, err)
			}
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(1))
		f.equal("the first is still known", f.append(draft).Duplicate, true)
	}},
	{"Append_the_key_is_looked_up_before_the_membership", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		draft := f.draft(c, bob, "before they left")
		first := f.append(draft)
		f.remove(c, bob)
		f.equal("duplicate", f.append(draft), storage.Appended{
			Message:   first.Message,
			Duplicate: true,
			Version:   2,
		})
		draft.Content = "after they left"
		_, err := storage.AppendOne(f.ctx, f.store, draft)
		f.code(err, tidemark.Conflict)
	}},
	{"Sent_returns_what_Append_would_and_stores_nothing", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice)
		f.send(c, alice, 1)
		draft := f.draft(c, bob, "once")
		draft.Attachments, draft.Metadata = json.RawMessage(`[{"a":1}]`), json.RawMessage(`{}`)
		f.wantSent(storage.SendKeyOf(&draft), storage.Appended{}, false)
		first := f.append(draft)
		f.remove(c, bob)
		f.wantSent(storage.SendKeyOf(&draft),
			storage.Appended{Message: first.Message, Duplicate: true, Version: 2}, true)
		for _, key := range []storage.SendKey{
			{Chat: other, Sender: bob, ClientMessageID: draft.ClientMessageID},
			{Chat: c, Sender: alice, ClientMessageID: draft.ClientMessageID},
			{Chat: c, Sender: bob, ClientMessageID: draft.ClientMessageID + "2"},
		} {
			f.wantSent(key, storage.Appended{}, false)
		}
		_, _, err := f.store.Sent(f.ctx, storage.SendKey{Chat: f.chat("none"), Sender: alice})
		f.code(err, tidemark.NotFound)
		f.equal("head", f.info(c).Head, tidemark.Sequence(2))
	}},
	{"Append_a_key_belongs_to_one_sender_and_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice)
		draft := f.draft(c, alice, "from alice")
		f.append(draft)
		for _, place := range []struct {
			chat   tidemark.ChatID
			sender tidemark.UserID
		}{{c, bob}, {other, alice}} {
			same := f.draft(place.chat, place.sender, "another one")
			same.ClientMessageID = draft.ClientMessageID
			f.equal("duplicate", f.append(same).Duplicate, false)
		}
	}},
	{"Append_refused_leaves_no_gap_and_no_key", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice, bob)
		f.remove(c, bob)
		refused := f.draft(c, bob, "hello")
		for _, test := range []struct {
			draft tidemark.Draft
			want  tidemark.Code
		}{
			{f.draft(f.chat("none"), alice, "hello"), tidemark.NotFound},
			{f.draft(c, carol, "hello"), tidemark.NotMember},
			{refused, tidemark.NotMember},
		} {
			_, err := storage.AppendOne(f.ctx, f.store, test.draft)
			f.code(err, test.want)
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(0))
		f.send(c, alice, 1)
		f.add(c, bob)
		got := f.append(refused)
		f.equal("sequence", got.Message.Sequence, tidemark.Sequence(2))
		f.equal("duplicate", got.Duplicate, false)
	}},
	{"Append_returns_the_membership_version_of_its_step", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice)
		draft := f.draft(c, alice, "at version 1")
		f.append(draft)
		f.add(c, bob)
		got := f.append(f.draft(c, alice, "at version 2"))
		f.equal("version", got.Version, uint64(2))
		f.equal("version of the message", got.Message.MembersVersion, uint64(2))
		again := f.append(draft)
		f.equal("version of a duplicate", again.Version, uint64(2))
		f.equal("version of the first message", again.Message.MembersVersion, uint64(1))
		f.equal("stored version", f.messages(storage.Range{Chat: c})[1].MembersVersion, uint64(2))
	}},
	{"Append_moves_no_watermark_and_marks_nothing", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		for _, user := range []tidemark.UserID{alice, bob} {
			f.equal("state", f.state(user, c), tidemark.DeliveryState{UserID: user, ChatID: c})
			f.equal("pending", f.pending(user), nil)
		}
	}},
	{"Append_several_in_order_and_a_bad_one_fails_alone", func(f *fixture) {
		alice, eve := f.user("alice"), f.user("eve")
		c, d := f.group("c", alice), f.group("d", alice)
		f.send(c, alice, 1)
		other := f.draft(c, alice, "one")
		other.ClientMessageID = "taken"
		first := f.append(other)
		conflict := other
		conflict.Content = "two"
		drafts := []tidemark.Draft{
			f.draft(c, alice, "a"), f.draft(c, eve, "refused"), f.draft(d, alice, "b"), conflict,
			f.draft(c, alice, "c"), other, f.draft(f.chat("none"), alice, "refused"),
			f.draft(d, alice, "d"),
		}
		got, err := f.store.Append(f.ctx, drafts)
		f.ok(err)
		f.equal("results", len(got), len(drafts))
		for i, code := range map[int]tidemark.Code{
			1: tidemark.NotMember, 3: tidemark.Conflict, 6: tidemark.NotFound,
		} {
			f.code(got[i].Err, code)
			f.equal("the rest of a refused one", got[i].Message.Sequence, tidemark.Sequence(0))
		}
		f.equal("duplicate", got[5].Duplicate, true)
		f.equal("duplicate", got[5].Message, first.Message)
		for i, sequence := range map[int]tidemark.Sequence{0: 3, 4: 4, 2: 1, 7: 2} {
			f.ok(got[i].Err)
			f.equal("sequence", got[i].Message.Sequence, sequence)
			f.equal("stored",
				f.messages(storage.Range{Chat: drafts[i].ChatID, After: sequence - 1})[0],
				got[i].Message)
		}
		none, err := f.store.Append(f.ctx, nil)
		f.ok(err)
		f.equal("of nothing", len(none), 0)
	}},
	{"Append_equal_keys_in_one_call_are_one_message", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		d := f.draft(c, alice, "hello")
		got, err := f.store.Append(f.ctx, []tidemark.Draft{d, d})
		f.ok(err)
		f.equal("first", got[0].Duplicate, false)
		f.equal("second", got[1].Duplicate, true)
		f.equal("the same", got[1].Message, got[0].Message)
		f.equal("head", f.info(c).Head, tidemark.Sequence(1))
	}},
}

var rangeRules = []rule{
	{"Ranges_after_is_exclusive_and_ascending", func(f *fixture) {
		f.ranges(10, map[storage.Range][]int{
			{After: 0, Limit: 3}:                     {1, 2, 3},
			{After: 0, Limit: 100}:                   {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
			{After: 7, Limit: 100}:                   {8, 9, 10},
			{After: 7, Limit: 3}:                     {8, 9, 10},
			{After: 9, Limit: 1}:                     {10},
			{After: 10, Limit: 1}:                    nil,
			{After: tidemark.MaxSequence, Limit: 10}: nil,
		})
	}},
	{"Ranges_before_gives_the_last_ones_below", func(f *fixture) {
		f.ranges(10, map[storage.Range][]int{
			{Before: 6, Limit: 3}:                         {3, 4, 5},
			{Before: 6, Limit: 100}:                       {1, 2, 3, 4, 5},
			{Before: 1, Limit: 3}:                         nil,
			{Before: 11, Limit: 2}:                        {9, 10},
			{Before: tidemark.MaxSequence, Limit: 2}:      {9, 10},
			{After: 3, Before: 6, Limit: 100}:             {4, 5},
			{After: 3, Before: 6, Limit: 1}:               {5},
			{After: 5, Before: 6, Limit: 1}:               nil,
			{After: 8, Before: 6, Limit: 1}:               nil,
			{After: 20, Before: 30, Limit: 5}:             nil,
			{After: 9, Before: 30, Limit: 5}:              {10},
			{After: 2, Before: 5, Limit: 2}:               {3, 4},
			{After: 2, Before: 1_000_000, Limit: 4}:       {7, 8, 9, 10},
			{After: 0, Before: 2, Limit: 10}:              {1},
			{After: 0, Before: 3, Limit: 1}:               {2},
			{After: 9, Before: 11, Limit: 1_000}:          {10},
			{After: 10, Before: 11, Limit: 1_000}:         nil,
			{After: 0, Before: 11, Limit: 9_000_000}:      {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
			{After: 0, Before: 11, Limit: 10}:             {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
			{After: 0, Before: 10, Limit: 8}:              {2, 3, 4, 5, 6, 7, 8, 9},
			{After: 1, Before: 10, Limit: 8}:              {2, 3, 4, 5, 6, 7, 8, 9},
			{After: 1, Before: 10, Limit: 9, MaxBytes: 0}: {2, 3, 4, 5, 6, 7, 8, 9},
		})
	}},
	{"Ranges_MaxBytes_ends_after_the_message_that_reaches_it", func(f *fixture) {
		// Message n has a content of n bytes, mostly in two-byte characters. Message 4 also has
		// attachments of 4 bytes and metadata of 6.
		f.ranges(6, map[storage.Range][]int{
			{Limit: 10, MaxBytes: 1}:               {1},
			{Limit: 10, MaxBytes: 2}:               {1, 2},
			{Limit: 10, MaxBytes: 3}:               {1, 2},
			{Limit: 10, MaxBytes: 6}:               {1, 2, 3},
			{Limit: 10, MaxBytes: 7}:               {1, 2, 3, 4},
			{Limit: 10, MaxBytes: 20}:              {1, 2, 3, 4},
			{Limit: 10, MaxBytes: 21}:              {1, 2, 3, 4, 5},
			{Limit: 2, MaxBytes: 21}:               {1, 2},
			{Limit: 10, MaxBytes: 1_000}:           {1, 2, 3, 4, 5, 6},
			{After: 4, Limit: 10, MaxBytes: 1}:     {5},
			{Before: 100, Limit: 10, MaxBytes: 1}:  {6},
			{Before: 100, Limit: 10, MaxBytes: 7}:  {5, 6},
			{Before: 100, Limit: 10, MaxBytes: 12}: {4, 5, 6},
			{Before: 100, Limit: 10, MaxBytes: 25}: {4, 5, 6},
			{Before: 100, Limit: 10, MaxBytes: 26}: {3, 4, 5, 6},
			{Before: 5, Limit: 10, MaxBytes: 14}:   {4},
			{Before: 5, Limit: 1, MaxBytes: 1_000}: {4},
			{After: 6, Limit: 10, MaxBytes: 1}:     nil,
		})
	}},
	{"Ranges_answers_each_range_in_its_place", func(f *fixture) {
		alice := f.user("alice")
		c, d := f.group("c", alice), f.group("d", alice)
		f.send(c, alice, 3)
		f.send(d, alice, 2)
		asked := []storage.Range{
			{Chat: d, After: 1, Limit: 5}, {Chat: f.chat("none"), Limit: 5}, {Chat: c, Limit: 2},
			{Chat: c, Before: 3, Limit: 1}, {Chat: d, After: 1, Limit: 5},
		}
		pages, err := f.store.Ranges(f.ctx, asked)
		f.ok(err)
		f.equal("pages", len(pages), len(asked))
		for i, r := range asked {
			f.equal("page", pages[i], f.messages(r))
		}
		f.equal("of the first", pages[0][0].Sequence, tidemark.Sequence(2))
		none, err := f.store.Ranges(f.ctx, nil)
		f.ok(err)
		f.equal("of no ranges", len(none), 0)
	}},
	{"Ranges_of_an_unknown_chat_is_empty", func(f *fixture) {
		f.equal("messages", f.messages(storage.Range{Chat: f.chat("none")}), nil)
		f.equal("messages", f.messages(storage.Range{Chat: f.chat("none"), Before: 5}), nil)
	}},
	{"Ranges_sees_every_append_that_returned", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for n := tidemark.Sequence(1); n <= 20; n++ {
			message := f.append(f.draft(c, alice, "hello")).Message
			f.equal("message",
				f.messages(storage.Range{Chat: c, After: n - 1}), []tidemark.Message{message})
		}
	}},
}

// ranges appends n messages, and compares the sequences in ranges of them.
func (f *fixture) ranges(n int, tests map[storage.Range][]int) {
	f.Helper()
	alice := f.user("alice")
	c := f.group("c", alice)
	for i := 1; i <= n; i++ {
		draft := f.draft(c, alice, sized(i))
		if i == 4 {
			draft.Attachments = json.RawMessage(`[{}]`)
			draft.Metadata = json.RawMessage(`{"":0}`)
		}
		f.append(draft)
	}
	for r, want := range tests {
		r.Chat = c
		var got []int
		for _, m := range f.messages(r) {
			got = append(got, int(m.Sequence))
		}
		if diff := difference(got, want); diff != "" {
			f.Errorf("%+v (-want +got):\n%s", r, diff)
		}
	}
}

// sized returns n bytes of text, mostly with two bytes per character.
func sized(n int) string {
	b := make([]byte, 0, n)
	for len(b)+2 <= n {
		b = append(b, "é"...)
	}
	for len(b) < n {
		b = append(b, 'e')
	}
	return string(b)
}

// wantSent compares the result of Sent.
func (f *fixture) wantSent(key storage.SendKey, want storage.Appended, wantFound bool) {
	f.Helper()
	got, found, err := f.store.Sent(f.ctx, key)
	f.ok(err)
	f.equal("found", found, wantFound)
	f.equal("sent", got, want)
}
