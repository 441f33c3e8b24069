package storagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// objects returns JSON objects that change if a parser reads and writes them.
func objects() []json.RawMessage {
	var all []json.RawMessage
	for _, text := range []string{
		`{}`, ` {"a":1} `, "{\n\t\"url\": \"s3://bucket/key?x=1&y=%20\",\r\n \"size\": 1.50e3 }",
		`{"b":1,"a":2,"a":3}`, `{"n":12345678901234567890.10,"z":-0}`,
		`{"t":"\u0041\u00e9é😀\/\"\\"}`, `{"Ä":{"ł":[null,true,[]]},"":""}`, `{"s":"'';--%s%_\\$1"}`,
		`{"a":"` + strings.Repeat("é", (tidemark.MaxMetadata-8)/2) + `"}`,
	} {
		all = append(all, json.RawMessage(text))
	}
	return all
}

// array returns a JSON array of one element.
func array(element json.RawMessage) json.RawMessage {
	return slices.Concat([]byte{'['}, element, []byte{']'})
}

// attachmentRules are about attachments and metadata.
var attachmentRules = []rule{
	{"Attachments_and_metadata_byte_for_byte_in_every_answer_and_read", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		for i, raw := range objects() {
			// The message has content and metadata every second time. The one before it has
			// neither attachments nor metadata.
			f.send(c, bob, 1)
			d := f.draft(c, alice, []string{"", "with a text"}[i%2])
			d.Attachments = array(raw)
			if i%2 == 1 {
				d.Metadata = raw
			}
			f.ok(d.Check())
			n := tidemark.Sequence(2*i + 2)
			want := d.Message(n, 1)
			f.equal("append", f.append(d), storage.Appended{Message: want, Version: 1})
			d.MessageID = "another"
			f.equal("append again", f.append(d), storage.Appended{
				Message:   want,
				Duplicate: true,
				Version:   1,
			})
			batch, err := f.store.Append(f.ctx, []tidemark.Draft{
				d, f.draft(f.chat("none"), bob, "x"), d,
			})
			f.ok(err)
			for _, at := range []int{0, 2} {
				f.equal("append again, twice in a call", batch[at], storage.Appended{
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
				f.equal(fmt.Sprintf("%+v", r), f.messages(r), []tidemark.Message{want})
			}
			for _, user := range []tidemark.UserID{alice, bob} {
				f.eventually("the last of a list",
					func() any { return *f.chatsOf(user, 5)[0].Last }, want)
			}
		}
		up, down := f.messages(storage.Range{Chat: c}), f.messages(storage.Range{
			Chat:   c,
			Before: tidemark.MaxSequence,
		})
		f.equal("down and up", down, up)
		for i, raw := range objects() {
			f.equal("in a long page", string(up[2*i+1].Attachments), string(array(raw)))
			f.equal("none is nil", up[2*i].Attachments == nil && up[2*i].Metadata == nil, true)
		}
	}},
	{"Attachments_of_a_duplicate_from_a_former_member", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		d := f.draft(c, bob, "")
		d.Attachments = json.RawMessage(`[{ "kept" : 1 }]`)
		d.Metadata = json.RawMessage(`{ "kept" : 2 }`)
		want := f.append(d).Message
		f.remove(c, bob)
		f.equal("append again", f.append(d), storage.Appended{
			Message:   want,
			Duplicate: true,
			Version:   2,
		})
	}},
	{"Attachments_or_metadata_that_differ_in_a_byte_are_Conflict", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for i, stored := range append(objects(), nil) {
			d := f.draft(c, alice, "text")
			put := func(d *tidemark.Draft, raw json.RawMessage) { d.Metadata = raw }
			if i%2 == 1 {
				put = func(d *tidemark.Draft, raw json.RawMessage) {
					if d.Attachments = nil; raw != nil {
						d.Attachments = array(raw)
					}
				}
			}
			put(&d, stored)
			f.append(d)
			for j, other := range append(objects(), nil, json.RawMessage(`{"a":1 }`)) {
				if i == j {
					continue
				}
				again := d
				put(&again, other)
				_, err := storage.AppendOne(f.ctx, f.store, again)
				if tidemark.CodeOf(err) != tidemark.Conflict {
					f.Errorf("%.40s, sent again as %.40s: got error %v, want Conflict",
						stored, other, err)
				}
				both, err := f.store.Append(f.ctx, []tidemark.Draft{again, d})
				f.ok(err)
				f.code(both[0].Err, tidemark.Conflict)
				f.equal("the same, beside the other", both[1].Duplicate, true)
			}
		}
		f.gapless(c, len(objects())+1)
	}},
}
