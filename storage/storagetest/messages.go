package storagetest

import (
	"encoding/json"
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var messageRules = []rule{
	{"Append_stores_the_message_at_the_next_sequence", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c, other := w.group("c", alice, bob), w.group("other", alice)
		var want []tidemark.Message
		for i, sender := range []tidemark.UserID{alice, bob, bob, alice} {
			w.send(other, alice, 1)
			draft := w.draft(c, sender, fmt.Sprintf("number %d", i))
			draft.ContentType = "text/markdown"
			if i%2 == 1 {
				draft.Attachment = json.RawMessage(`{ "url" : "s3://x",` + "\n" +
					`"size": 1.50, "a": "\u0041é😀" }`)
			}
			got := w.append(draft)
			message := draft.Message(tidemark.Sequence(i+1), 1)
			w.equal("appended", got, storage.Appended{Message: message, Version: 1})
			w.equal("message", w.messages(storage.Range{Chat: c, After: tidemark.Sequence(i)}),
				[]tidemark.Message{message})
			w.equal("head", w.info(c).Head, tidemark.Sequence(i+1))
			want = append(want, message)
		}
		w.equal("all", w.messages(storage.Range{Chat: c}), want)
	}},
	{"Append_keeps_an_attachment_byte_for_byte_and_nil_as_nil", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		raw := "{ \"b\":1,\t\"a\":2.0e1,\n \"a\":\"\\u00e9\" }"
		with := w.draft(c, alice, "")
		with.Attachment = json.RawMessage(raw)
		w.append(with)
		w.send(c, alice, 1)
		messages := w.messages(storage.Range{Chat: c})
		w.equal("attachment", string(messages[0].Attachment), raw)
		w.equal("content", messages[0].Content, "")
		w.equal("no attachment is nil", messages[1].Attachment == nil, true)
	}},
	{"Append_same_key_returns_the_first_message_as_Duplicate", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 1)
		draft := w.draft(c, alice, "once")
		first := w.append(draft)
		w.send(c, alice, 1)
		again := draft
		again.MessageID, again.CreatedAt = "another-id", at(500)
		for range 3 {
			w.equal("duplicate", w.append(again), storage.Appended{
				Message:   first.Message,
				Duplicate: true,
				Version:   1,
			})
		}
		w.equal("head", w.info(c).Head, tidemark.Sequence(3))
	}},
	{"Append_send_idempotent_whatever_the_clock_says", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		draft := w.draft(c, alice, "once")
		first := w.append(draft)
		again := draft
		for _, days := range []int{1, 8, 366, -1, -366, 36_500} {
			again.CreatedAt = draft.CreatedAt.AddDate(0, 0, days)
			w.equal("sent again with the clock elsewhere", w.append(again), storage.Appended{
				Message:   first.Message,
				Duplicate: true,
				Version:   1,
			})
			other := w.draft(c, alice, fmt.Sprint("other", days))
			other.CreatedAt = again.CreatedAt
			w.append(other)
		}
		w.equal("head", w.info(c).Head, tidemark.Sequence(7))
	}},
	{"Append_same_key_other_message_is_Conflict", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		draft := w.draft(c, alice, "once")
		draft.Attachment = json.RawMessage(`{"a":1}`)
		w.append(draft)
		for name, change := range map[string]func(*tidemark.Draft){
			"content":       func(d *tidemark.Draft) { d.Content = "Once" },
			"content type":  func(d *tidemark.Draft) { d.ContentType = "text/markdown" },
			"attachment":    func(d *tidemark.Draft) { d.Attachment = json.RawMessage(`{"a": 1}`) },
			"no attachment": func(d *tidemark.Draft) { d.Attachment = nil },
		} {
			other := draft
			change(&other)
			_, err := storage.AppendOne(w.ctx, w.store, other)
			if tidemark.CodeOf(err) != tidemark.Conflict {
				w.Errorf("another %s: got error %v, want Conflict", name, err)
			}
		}
		w.equal("head", w.info(c).Head, tidemark.Sequence(1))
		w.equal("the first is still known", w.append(draft).Duplicate, true)
	}},
	{"Append_the_key_is_looked_up_before_the_membership", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		draft := w.draft(c, bob, "before he left")
		first := w.append(draft)
		w.remove(c, bob)
		w.equal("duplicate", w.append(draft), storage.Appended{
			Message:   first.Message,
			Duplicate: true,
			Version:   2,
		})
		draft.Content = "after he left"
		_, err := storage.AppendOne(w.ctx, w.store, draft)
		w.code(err, tidemark.Conflict)
	}},
	{"Append_a_key_belongs_to_one_sender_and_chat", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c, other := w.group("c", alice, bob), w.group("other", alice)
		draft := w.draft(c, alice, "from alice")
		w.append(draft)
		for _, place := range []struct {
			chat   tidemark.ChatID
			sender tidemark.UserID
		}{{c, bob}, {other, alice}} {
			same := w.draft(place.chat, place.sender, "another one")
			same.ClientMessageID = draft.ClientMessageID
			w.equal("duplicate", w.append(same).Duplicate, false)
		}
	}},
	{"Append_refused_leaves_no_gap_and_no_key", func(w *world) {
		alice, bob, carol := w.user("alice"), w.user("bob"), w.user("carol")
		c := w.group("c", alice, bob)
		w.remove(c, bob)
		refused := w.draft(c, bob, "hello")
		for _, test := range []struct {
			draft tidemark.Draft
			want  tidemark.Code
		}{
			{w.draft(w.chat("none"), alice, "hello"), tidemark.NotFound},
			{w.draft(c, carol, "hello"), tidemark.NotMember},
			{refused, tidemark.NotMember},
		} {
			_, err := storage.AppendOne(w.ctx, w.store, test.draft)
			w.code(err, test.want)
		}
		w.equal("head", w.info(c).Head, tidemark.Sequence(0))
		w.send(c, alice, 1)
		w.add(c, bob)
		got := w.append(refused)
		w.equal("sequence", got.Message.Sequence, tidemark.Sequence(2))
		w.equal("duplicate", got.Duplicate, false)
	}},
	{"Append_tells_the_membership_version_of_its_step", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice)
		draft := w.draft(c, alice, "at version 1")
		w.append(draft)
		w.add(c, bob)
		got := w.append(w.draft(c, alice, "at version 2"))
		w.equal("version", got.Version, uint64(2))
		w.equal("version of the message", got.Message.MembersVersion, uint64(2))
		again := w.append(draft)
		w.equal("version of a duplicate", again.Version, uint64(2))
		w.equal("version of the first message", again.Message.MembersVersion, uint64(1))
		w.equal("stored version", w.messages(storage.Range{Chat: c})[1].MembersVersion, uint64(2))
	}},
	{"Append_moves_no_watermark_and_marks_nothing", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 2)
		for _, user := range []tidemark.UserID{alice, bob} {
			w.equal("state", w.state(user, c), tidemark.DeliveryState{UserID: user, ChatID: c})
			w.equal("pending", w.pending(user), nil)
		}
	}},
	{"Append_several_in_order_and_a_bad_one_fails_alone", func(w *world) {
		alice, eve := w.user("alice"), w.user("eve")
		c, d := w.group("c", alice), w.group("d", alice)
		w.send(c, alice, 1)
		other := w.draft(c, alice, "one")
		other.ClientMessageID = "taken"
		first := w.append(other)
		conflict := other
		conflict.Content = "two"
		drafts := []tidemark.Draft{
			w.draft(c, alice, "a"), w.draft(c, eve, "refused"), w.draft(d, alice, "b"), conflict,
			w.draft(c, alice, "c"), other, w.draft(w.chat("none"), alice, "refused"),
			w.draft(d, alice, "d"),
		}
		got, err := w.store.Append(w.ctx, drafts)
		w.ok(err)
		w.equal("results", len(got), len(drafts))
		for i, code := range map[int]tidemark.Code{1: tidemark.NotMember, 3: tidemark.Conflict, 6: tidemark.NotFound} {
			w.code(got[i].Err, code)
			w.equal("the rest of a refused one", got[i].Message.Sequence, tidemark.Sequence(0))
		}
		w.equal("duplicate", got[5].Duplicate, true)
		w.equal("duplicate", got[5].Message, first.Message)
		for i, sequence := range map[int]tidemark.Sequence{0: 3, 4: 4, 2: 1, 7: 2} {
			w.ok(got[i].Err)
			w.equal("sequence", got[i].Message.Sequence, sequence)
			w.equal("stored",
				w.messages(storage.Range{Chat: drafts[i].ChatID, After: sequence - 1})[0],
				got[i].Message)
		}
		none, err := w.store.Append(w.ctx, nil)
		w.ok(err)
		w.equal("of nothing", len(none), 0)
	}},
	{"Append_equal_keys_in_one_call_are_one_message", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		d := w.draft(c, alice, "hello")
		got, err := w.store.Append(w.ctx, []tidemark.Draft{d, d})
		w.ok(err)
		w.equal("first", got[0].Duplicate, false)
		w.equal("second", got[1].Duplicate, true)
		w.equal("the same", got[1].Message, got[0].Message)
		w.equal("head", w.info(c).Head, tidemark.Sequence(1))
	}},
}

var rangeRules = []rule{
	{"Ranges_after_is_exclusive_and_ascending", func(w *world) {
		w.ranges(10, map[storage.Range][]int{
			{After: 0, Limit: 3}:                     {1, 2, 3},
			{After: 0, Limit: 100}:                   {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
			{After: 7, Limit: 100}:                   {8, 9, 10},
			{After: 7, Limit: 3}:                     {8, 9, 10},
			{After: 9, Limit: 1}:                     {10},
			{After: 10, Limit: 1}:                    nil,
			{After: tidemark.MaxSequence, Limit: 10}: nil,
		})
	}},
	{"Ranges_before_gives_the_last_ones_below", func(w *world) {
		w.ranges(10, map[storage.Range][]int{
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
	{"Ranges_MaxBytes_ends_after_the_message_that_reaches_it", func(w *world) {
		// Message n has a content of n bytes, in two-byte characters as far as they go; message 4 has 10 bytes of attachment besides.
		w.ranges(6, map[storage.Range][]int{
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
	{"Ranges_answers_each_range_in_its_place", func(w *world) {
		alice := w.user("alice")
		c, d := w.group("c", alice), w.group("d", alice)
		w.send(c, alice, 3)
		w.send(d, alice, 2)
		asked := []storage.Range{
			{Chat: d, After: 1, Limit: 5}, {Chat: w.chat("none"), Limit: 5}, {Chat: c, Limit: 2},
			{Chat: c, Before: 3, Limit: 1}, {Chat: d, After: 1, Limit: 5},
		}
		pages, err := w.store.Ranges(w.ctx, asked)
		w.ok(err)
		w.equal("pages", len(pages), len(asked))
		for i, r := range asked {
			w.equal("page", pages[i], w.messages(r))
		}
		w.equal("of the first", pages[0][0].Sequence, tidemark.Sequence(2))
		none, err := w.store.Ranges(w.ctx, nil)
		w.ok(err)
		w.equal("of no ranges", len(none), 0)
	}},
	{"Ranges_of_an_unknown_chat_is_empty", func(w *world) {
		w.equal("messages", w.messages(storage.Range{Chat: w.chat("none")}), nil)
		w.equal("messages", w.messages(storage.Range{Chat: w.chat("none"), Before: 5}), nil)
	}},
	{"Ranges_sees_every_append_that_returned", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		for n := tidemark.Sequence(1); n <= 20; n++ {
			message := w.append(w.draft(c, alice, "hello")).Message
			w.equal("message",
				w.messages(storage.Range{Chat: c, After: n - 1}), []tidemark.Message{message})
		}
	}},
}

// ranges appends n messages and compares the sequences that ranges of them give.
func (w *world) ranges(n int, tests map[storage.Range][]int) {
	w.Helper()
	alice := w.user("alice")
	c := w.group("c", alice)
	for i := 1; i <= n; i++ {
		draft := w.draft(c, alice, sized(i))
		if i == 4 {
			draft.Attachment = json.RawMessage(`{"a":"bc"}`)
		}
		w.append(draft)
	}
	for r, want := range tests {
		r.Chat = c
		var got []int
		for _, m := range w.messages(r) {
			got = append(got, int(m.Sequence))
		}
		if diff := difference(got, want); diff != "" {
			w.Errorf("%+v (-want +got):\n%s", r, diff)
		}
	}
}

// sized returns n bytes of text, mostly of two bytes a character.
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
