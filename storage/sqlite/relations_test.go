package sqlite

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// relation returns a draft from anna that changes a message of the chat "c".
func relation(key string, kind tidemark.Kind, target tidemark.Sequence) tidemark.Draft {
	d := draft(key, "")
	d.Kind, d.Relation = kind, &tidemark.Relation{Sequence: target}
	return d
}

// TestAppend_redacted_stays_overwritten_in_the_file: what a message said is not in the file after a
// redaction, and after the log was copied into the file.
func TestAppend_redacted_stays_overwritten_in_the_file(t *testing.T) {
	for name, length := range map[string]int{"in a page": 1, "in pages of its own": 1_000} {
		t.Run(name, func(t *testing.T) {
			s, path := openNew(t)
			secret := strings.ToLower(rand.Text())
			said := draft("said", strings.Repeat(secret, length))
			said.Attachments = json.RawMessage(`[{"name":"` + secret + `"}]`)
			said.Metadata = json.RawMessage(`{"a":"` + secret + `"}`)
			edited := relation("edited", tidemark.KindEdit, 2)
			edited.Content = strings.Repeat(secret, length)
			for _, d := range []tidemark.Draft{draft("1", "before"), said, draft("3", "after")} {
				if _, err := storage.AppendOne(t.Context(), s, d); err != nil {
					t.Fatal(err)
				}
			}
			checkpointed(t, s)
			if !has(t, path, secret) {
				t.Fatal("the file does not have what was said")
			}
			for _, d := range []tidemark.Draft{
				edited, relation("redacted", tidemark.KindRedact, 2),
			} {
				if _, err := storage.AppendOne(t.Context(), s, d); err != nil {
					t.Fatal(err)
				}
			}
			wantGapless(t, s, 5)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if has(t, path, secret) {
				t.Error("the file still has what was redacted")
			}
		})
	}
}

// has reports whether a file has a text.
func has(t *testing.T, path, text string) bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(text))
}

func TestKindMentions(t *testing.T) {
	revision := &tidemark.Revision{
		Sequence: 7, Kind: tidemark.KindEdit, By: "a:b", At: time.UnixMilli(9).UTC(), Edits: 2,
	}
	const text = `{"sequence":7,"kind":"edit","by":"a:b","at":9,"edits":2}`
	both := tidemark.Mentions{Users: []tidemark.UserID{"alice", "b.o-b"}}
	for want, m := range map[string]tidemark.Message{
		"system":              {Kind: tidemark.KindSystem},
		"system " + text:      {Kind: tidemark.KindSystem, Revision: revision},
		"message alice b.o-b": {Kind: tidemark.KindMessage, Mentions: both},
		"message alice b.o-b " + text: {
			Kind: tidemark.KindMessage, Mentions: both, Revision: revision,
		},
		"message * " + text: {
			Kind: tidemark.KindMessage, Mentions: tidemark.Mentions{All: true}, Revision: revision,
		},
		"message " + text: {Kind: tidemark.KindMessage, Revision: revision},
		"edit 5": {
			Kind: tidemark.KindEdit, Relation: &tidemark.Relation{Sequence: 5},
		},
		"react 5": {Kind: tidemark.KindReact, Relation: &tidemark.Relation{Sequence: 5}},
		"pin 5 " + text: {
			Kind: tidemark.KindPin, Relation: &tidemark.Relation{Sequence: 5},
			Revision: revision,
		},
		"redact 9007199254740991": {
			Kind: tidemark.KindRedact, Relation: &tidemark.Relation{Sequence: tidemark.MaxSequence},
		},
	} {
		if got := kindMentions(&m); got != want {
			t.Errorf("got the column %q, want %q", got, want)
		}
		var got tidemark.Message
		if err := parseKindMentions(&got, want); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, %v, want %+v", want, got, err, m)
		}
	}
}

// A message whose kind cannot be read is not served as another one.
func TestRanges_damaged_kind_is_an_error(t *testing.T) {
	for _, damaged := range []string{
		"edit", "redact x", "react", "pin 5 {", "message {", "system alice {}x",
	} {
		s, _ := openNew(t)
		send(t, s, "1")
		send(t, s, "2")
		err := s.change(t.Context(), func(w *writer) error {
			return w.c.pragma("UPDATE messages SET kind_mentions = '" + damaged +
				"' WHERE sequence = 2")
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 10}})
		wantCode(t, err, tidemark.Internal, "damaged")
		again := draft("2", "hello")
		_, _, err = s.Sent(t.Context(), storage.SendKeyOf(&again))
		wantCode(t, err, tidemark.Internal, "damaged")
		_, err = storage.AppendOne(t.Context(), s, relation("3", tidemark.KindRedact, 2))
		wantCode(t, err, tidemark.Internal, "damaged")
		wantHead(t, s, 2)
	}
}

func wantHead(t *testing.T, s *Store, want tidemark.Sequence) {
	t.Helper()
	heads, err := s.Heads(t.Context(), []tidemark.ChatID{"c"})
	if err != nil || heads[0] != want {
		t.Errorf("the chat ends at %d, %v, want %d", heads, err, want)
	}
}

// TestAppend_relation_without_its_target_is_not_stored: a target that the file has lost is no
// target that never was.
func TestAppend_relation_without_its_target_is_not_stored(t *testing.T) {
	s, _ := openNew(t)
	send(t, s, "1")
	err := s.change(t.Context(), func(w *writer) error {
		return w.c.exec("DELETE FROM messages")
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = storage.AppendOne(t.Context(), s, relation("2", tidemark.KindRedact, 1))
	wantCode(t, err, tidemark.Unavailable, "corrupt")
	wantHead(t, s, 1)
}
