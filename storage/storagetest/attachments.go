package storagetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// attachments are JSON objects that a parser would give back in other bytes.
func attachments() []json.RawMessage {
	var all []json.RawMessage
	for _, text := range []string{
		`{}`, ` {"a":1} `, "{\n\t\"url\": \"s3://bucket/key?x=1&y=%20\",\r\n \"size\": 1.50e3 }",
		`{"b":1,"a":2,"a":3}`, `{"n":12345678901234567890.10,"z":-0}`,
		`{"t":"\u0041\u00e9é😀\/\"\\"}`, `{"Ä":{"ł":[null,true,[]]},"":""}`, `{"s":"'';--%s%_\\$1"}`,
		`{"a":"` + strings.Repeat("é", (tidemark.MaxAttachment-8)/2) + `"}`,
	} {
		all = append(all, json.RawMessage(text))
	}
	return all
}

var attachmentRules = []rule{
	{"Attachment_byte_for_byte_in_every_answer_and_read", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		for i, raw := range attachments() {
			// With content and without, between messages that have none.
			w.send(c, bob, 1)
			d := w.draft(c, alice, []string{"", "with a text"}[i%2])
			d.Attachment = raw
			w.ok(d.Check())
			n := tidemark.Sequence(2*i + 2)
			want := d.Message(n, 1)
			w.equal("append", w.append(d), storage.Appended{Message: want, Version: 1})
			d.MessageID = "another"
			w.equal("append again", w.append(d), storage.Appended{
				Message:   want,
				Duplicate: true,
				Version:   1,
			})
			batch, err := w.store.Append(w.ctx, []tidemark.Draft{
				d, w.draft(w.chat("none"), bob, "x"), d,
			})
			w.ok(err)
			for _, at := range []int{0, 2} {
				w.equal("append again, twice in a call", batch[at], storage.Appended{
					Message:   want,
					Duplicate: true,
					Version:   1,
				})
			}
			for _, r := range []storage.Range{
				{After: n - 1, Limit: 1}, {Before: n + 1, Limit: 1},
				{After: n - 1, Before: n + 1, Limit: 9}, {After: n - 1, Limit: 1, MaxBytes: 1},
				{Before: n + 1, Limit: 1, MaxBytes: 1},
			} {
				r.Chat = c
				w.equal(fmt.Sprintf("%+v", r), w.messages(r), []tidemark.Message{want})
			}
			for _, user := range []tidemark.UserID{alice, bob} {
				w.eventually("the last of a list",
					func() any { return *w.chatsOf(user, 5)[0].Last }, want)
			}
		}
		up, down := w.messages(storage.Range{Chat: c}), w.messages(storage.Range{
			Chat:   c,
			Before: tidemark.MaxSequence,
		})
		w.equal("down and up", down, up)
		for i, raw := range attachments() {
			w.equal("in a long page", string(up[2*i+1].Attachment), string(raw))
			w.equal("none is nil", up[2*i].Attachment == nil, true)
		}
	}},
	{"Attachment_of_a_message_sent_before_by_one_who_left", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		d := w.draft(c, bob, "")
		d.Attachment = json.RawMessage(`{ "kept" : 1 }`)
		want := w.append(d).Message
		w.remove(c, bob)
		w.equal("append again", w.append(d), storage.Appended{
			Message:   want,
			Duplicate: true,
			Version:   2,
		})
	}},
	{"Attachment_that_differs_in_a_byte_is_Conflict", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		for i, stored := range append(attachments(), nil) {
			d := w.draft(c, alice, "text")
			d.Attachment = stored
			w.append(d)
			for j, other := range append(attachments(), nil, json.RawMessage(`{"a":1 }`)) {
				if i == j {
					continue
				}
				again := d
				again.Attachment = other
				_, err := storage.AppendOne(w.ctx, w.store, again)
				if tidemark.CodeOf(err) != tidemark.Conflict {
					w.Errorf("%.40s, sent again as %.40s: got error %v, want Conflict",
						stored, other, err)
				}
				both, err := w.store.Append(w.ctx, []tidemark.Draft{again, d})
				w.ok(err)
				w.code(both[0].Err, tidemark.Conflict)
				w.equal("the same, beside the other", both[1].Duplicate, true)
			}
		}
		w.gapless(c, len(attachments())+1)
	}},
}
