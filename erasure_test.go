package tidemark_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestMessage_Erase_erased_nowhere: what remains of a message when zoe is erased.
func TestMessage_Erase_erased_nowhere(t *testing.T) {
	at := time.UnixMilli(9)
	e := tidemark.Erasure{User: "zoe", Alias: tidemark.ErasedID("1"), At: at}
	const head = 9
	wiped := func(sequence tidemark.Sequence) *tidemark.Revision {
		return &tidemark.Revision{
			Sequence: sequence, Kind: tidemark.KindRedact, By: e.Alias, At: at,
		}
	}
	message := func(change func(*tidemark.Message)) tidemark.Message {
		m := tidemark.Message{
			Sequence: 3, SenderID: "bob", ClientMessageID: "k", MessageID: "m", Content: "x",
			ContentType: "text/x", Kind: tidemark.KindMessage,
			Attachments: []byte(`[{}]`), Metadata: []byte(`{"a":1}`),
		}
		change(&m)
		return m
	}
	own := func(m *tidemark.Message) { m.SenderID = "zoe" }
	gone := func(m *tidemark.Message) {
		m.SenderID, m.ClientMessageID, m.Revision = e.Alias, "m", wiped(head)
		m.Content, m.ContentType = "", tidemark.DefaultContentType
		m.Attachments, m.Metadata, m.Mentions = nil, nil, tidemark.Mentions{}
	}
	with := func(all ...func(*tidemark.Message)) tidemark.Message {
		return message(func(m *tidemark.Message) {
			for _, change := range all {
				change(m)
			}
		})
	}
	kind := func(kind tidemark.Kind) func(*tidemark.Message) {
		return func(m *tidemark.Message) { m.Kind = kind }
	}
	names := func(users ...tidemark.UserID) func(*tidemark.Message) {
		return func(m *tidemark.Message) { m.Mentions = tidemark.NewMentions(false, users) }
	}
	revised := func(r *tidemark.Revision) func(*tidemark.Message) {
		return func(m *tidemark.Message) { m.Revision = r }
	}
	says := func(content string) func(*tidemark.Message) {
		return func(m *tidemark.Message) { m.Content = content }
	}
	metadata := func(text string) func(*tidemark.Message) {
		return func(m *tidemark.Message) { m.Metadata = []byte(text) }
	}
	about := func(emoji string) func(*tidemark.Message) {
		return func(m *tidemark.Message) {
			m.Relation = &tidemark.Relation{Sequence: 2, Emoji: emoji}
		}
	}
	bob := func(m *tidemark.Message) { m.SenderID, m.ClientMessageID = "bob", "k" }
	renamed := func(m *tidemark.Message) { m.SenderID, m.ClientMessageID = e.Alias, "m" }
	for what, test := range map[string]struct {
		before, after tidemark.Message
		touched       tidemark.Touched
	}{
		"of another": {with(), with(), tidemark.Untouched},
		"own":        {with(own, names("bob")), with(gone), tidemark.Wiped},
		"control": {with(own, kind(tidemark.KindControl)), with(gone, kind(tidemark.KindControl)),
			tidemark.Wiped},
		"edited by the last message": {
			with(own, revised(&tidemark.Revision{
				Sequence: head, Kind: tidemark.KindEdit, Edits: 2,
			})),
			with(gone, revised(wiped(head+1)), func(m *tidemark.Message) { m.Revision.Edits = 2 }),
			tidemark.Wiped,
		},
		"redacted by another": {
			with(own, revised(&tidemark.Revision{
				Sequence: 5, Kind: tidemark.KindRedact, By: "bob",
			})),
			with(renamed, revised(&tidemark.Revision{
				Sequence: 5, Kind: tidemark.KindRedact, By: "bob",
			})),
			tidemark.Renamed,
		},
		"of another, redacted by zoe": {
			with(revised(&tidemark.Revision{Sequence: 5, Kind: tidemark.KindRedact, By: "zoe"})),
			with(revised(&tidemark.Revision{Sequence: 5, Kind: tidemark.KindRedact, By: e.Alias})),
			tidemark.Renamed,
		},
		"that names zoe": {
			with(names("bob", "zoe")), with(names("bob", e.Alias)), tidemark.Renamed,
		},
		"reaction": {
			with(own, kind(tidemark.KindReact), about("👍")),
			with(gone, kind(tidemark.KindReact), about(tidemark.ErasedEmoji)), tidemark.Wiped,
		},
		"pin": {
			with(own, kind(tidemark.KindPin), about("")),
			with(renamed, kind(tidemark.KindPin), about("")), tidemark.Renamed,
		},
		"edit": {
			with(own, kind(tidemark.KindEdit), about("")),
			with(renamed, kind(tidemark.KindEdit), about("")), tidemark.Renamed,
		},
		"line about zoe": {
			with(kind(tidemark.KindSystem), says("zoe has joined.")),
			with(gone, bob, kind(tidemark.KindSystem)), tidemark.Wiped,
		},
		"line about another": {
			with(kind(tidemark.KindSystem), says("zoey has joined Azoe")),
			with(kind(tidemark.KindSystem), says("zoey has joined Azoe")), tidemark.Untouched,
		},
		"line with a number that has the id": {
			with(kind(tidemark.KindSystem), says("zozoe"), metadata(`{"a":"xzoe"}`)),
			with(kind(tidemark.KindSystem), says("zozoe"), metadata(`{"a":"xzoe"}`)),
			tidemark.Untouched,
		},
		"line with metadata about zoe": {
			with(kind(tidemark.KindSystem), metadata(`{"user":"zoe"}`)),
			with(gone, bob, kind(tidemark.KindSystem)), tidemark.Wiped,
		},
		"of another, with the word": {with(says("hello zoe")), with(says("hello zoe")),
			tidemark.Untouched},
	} {
		got, touched := test.before.Erase(e, head)
		if !reflect.DeepEqual(got, test.after) || touched != test.touched {
			t.Errorf("a message %s became %+v, %d; want %+v, %d", what, got, touched, test.after,
				test.touched)
		}
		if again, touched := got.Erase(e, head); !reflect.DeepEqual(again, got) || touched != 0 {
			t.Errorf("a message %s became %+v, %d at the second time", what, again, touched)
		}
	}
}
