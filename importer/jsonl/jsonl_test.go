package jsonl_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/jsonl"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

const first = `{"type":"tidemark","version":1}` + "\n"

// read returns the records of a text on the standard input.
func read(text string) (records []importer.Record, err error) {
	for r, err := range jsonl.Records(context.Background(), []string{"-"},
		strings.NewReader(text)) {
		if err != nil {
			return records, err
		}
		records = append(records, r)
	}
	return records, nil
}

// TestRecords_are_what_the_lines_say.
func TestRecords_are_what_the_lines_say(t *testing.T) {
	got, err := read(first +
		`{"type":"chat","chat_id":"c","chat_type":"group","name":"C","history":"since_join",` +
		`"created_at":"2024-01-02T03:04:05Z","metadata":{"a":1},"member_ids":["a","b"]}
{"type":"member","user_id":"d","change":"joined","role":"admin","at":"2024-01-02T03:05:00Z"}
{"type":"member","user_id":"b","change":"left","at":"2024-01-02T03:05:00Z"}

{"type":"read","user_id":"d","message_id":"m"}
{"type":"message","message_id":"m","sender_id":"a","created_at":"2024-01-02T03:06:00.5+01:00",` +
		`"kind":"control","content":"x","content_type":"text/html","attachments":[{"url":"u"}],` +
		`"metadata":{"k":true},"mentions":{"all":true,"user_ids":["d"]}}
{"type":"message","message_id":"n","created_at":"2024-01-02T03:07:00Z","deleted":true}
{"type":"read","user_id":"a","position":0}
{"type":"end"}
`)
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	want := []importer.Record{
		importer.Chat{
			ID: "c", Type: tidemark.Group, Name: "C", History: tidemark.HistorySinceJoin,
			CreatedAt: at("2024-01-02T03:04:05Z"), Metadata: []byte(`{"a":1}`),
			Members: []string{"a", "b"},
		},
		importer.Member{User: "d", Role: tidemark.Admin, At: at("2024-01-02T03:05:00Z")},
		importer.Member{User: "b", Left: true, At: at("2024-01-02T03:05:00Z")},
		importer.Read{User: "d", Message: "m"},
		importer.Message{
			ID: "m", Author: "a", At: at("2024-01-02T02:06:00.5Z"), Mentioned: []string{"d"},
			Says: tidemark.Draft{
				Kind: tidemark.KindControl, Content: "x", ContentType: "text/html",
				Attachments: []byte(`[{"url":"u"}]`), Metadata: []byte(`{"k":true}`),
				Mentions: tidemark.Mentions{All: true},
			},
		},
		importer.Message{ID: "n", At: at("2024-01-02T03:07:00Z"), Lack: importer.Deleted},
		importer.Read{User: "a"},
		importer.End{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestRecords_refuse_what_is_wrong, with the line.
func TestRecords_refuse_what_is_wrong(t *testing.T) {
	const chat = `{"type":"chat","chat_id":"c","chat_type":"group",` +
		`"created_at":"2024-01-02T03:04:05Z"}` + "\n"
	const end = `{"type":"end"}` + "\n"
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":            {"", "- is empty"},
		"no version":         {chat, "line 1 of -: the first line must be"},
		"another version":    {`{"type":"tidemark","version":2}`, "version is 2"},
		"no JSON":            {first + "x", "line 2 of -: it is no JSON: invalid character"},
		"no type":            {first + "{}", "line 2 of -: type must be"},
		"an unknown type":    {first + `{"type":"user"}`, "line 2 of -: type must be"},
		"no object":          {first + "[]", "line 2 of -: it has an array where an object must"},
		"a type of a number": {first + `{"type":7}`, "type has a number where a string must"},
		"an unknown field": {
			first + strings.Replace(chat, "}", `,"colour":1}`, 1),
			`line 2 of -: the field "colour" is unknown`,
		},
		"a wrong type": {
			first + `{"type":"chat","chat_id":7}`,
			"line 2 of -: chat_id has a number where a string must be",
		},
		"a wrong time": {
			first + strings.Replace(chat, "2024", "24", 1),
			`line 2 of -: created_at has the value "24-01-02T03:04:05Z" where a time such as`,
		},
		"a wrong mention": {
			first + chat + `{"type":"message","message_id":"m","mentions":{"user_ids":[1]}}`,
			"line 3 of -: mentions.user_ids has a number where a string must be",
		},
		"two objects":          {first + `{"type":"chat"}{}`, "line 2 of -"},
		"a message before it":  {first + `{"type":"message"}`, "possible in a chat only"},
		"a chat in a chat":     {first + chat + chat, "line 3 of -: the type chat is not possible"},
		"a version in a chat":  {first + chat + first, "line 3 of -"},
		"no end":               {first + chat, "ends within a chat"},
		"an end after the end": {first + chat + end + end, "line 4 of -"},
		"no id": {
			first + chat + `{"type":"message","sender_id":"a"}`, "message_id is missing",
		},
		"a change": {
			first + chat + `{"type":"member","user_id":"a","change":"came"}`, "change must be",
		},
		"two marks": {
			first + chat + `{"type":"read","user_id":"a","message_id":"m","position":1}`,
			"either a message_id or a position",
		},
		"no mark": {
			first + chat + `{"type":"read","user_id":"a"}`, "either a message_id or a position",
		},
		"a negative mark": {
			first + chat + `{"type":"read","user_id":"a","position":-1}`,
			"line 3 of -: position has the number -1 where a whole number from 0 on must be",
		},
		"a long line": {
			first + chat + `{"type":"` + strings.Repeat("x", 17<<20) + `"}`,
			"line 3 of -: it is longer than",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(tc.text)
			if tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(
				tidemark.DetailOf(err), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if records, err := read(first + first + chat + end + first + chat + end); err != nil ||
		len(records) != 4 {
		t.Errorf("of files one after the other, got %d records, %v", len(records), err)
	}
}

// TestRecords_of_several_files: one of them is compressed. One that is cut off is refused.
func TestRecords_of_several_files(t *testing.T) {
	dir := t.TempDir()
	text := first + `{"type":"chat","chat_id":"c","chat_type":"group"}` + "\n" + `{"type":"end"}`
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	paths := map[string][]byte{
		"plain.jsonl": []byte(text), "packed.jsonl.gz": packed.Bytes(),
		"cut.jsonl.gz": packed.Bytes()[:packed.Len()/2], "none.gz": []byte(text),
	}
	for name, content := range paths {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for names, want := range map[string]int{
		"plain.jsonl packed.jsonl.gz": 4, "cut.jsonl.gz": -1, "none.gz": -1, "missing": -1,
	} {
		var all []string
		for name := range strings.FieldsSeq(names) {
			all = append(all, filepath.Join(dir, name))
		}
		records, failed := 0, false
		for _, err := range jsonl.Records(t.Context(), all, nil) {
			if failed = failed || err != nil; err == nil {
				records++
			}
		}
		if want < 0 != failed || want >= 0 && records != want {
			t.Errorf("%s: %d records, failed: %t", names, records, failed)
		}
	}
}

// TestRecords_may_be_left: a consumer that has had enough ends the reading.
func TestRecords_may_be_left(t *testing.T) {
	text := first + `{"type":"chat","chat_id":"c","chat_type":"group"}` + "\n" + `{"type":"end"}`
	n := 0
	for range jsonl.Records(t.Context(), []string{"-", "missing"}, strings.NewReader(text)) {
		if n++; n == 1 {
			break
		}
	}
	if n != 1 {
		t.Errorf("%d records came", n)
	}
}

// TestRecords_of_the_page: the example of docs/import.md can be imported, and has every field.
func TestRecords_of_the_page(t *testing.T) {
	page, err := os.ReadFile("../../docs/import.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```jsonl\n")
	example, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/import.md has no block of jsonl")
	}
	for _, field := range []string{
		"version", "chat_id", "chat_type", "name", "history", "member_ids", "metadata",
		"created_at", "user_id", "change", "role", "at", "message_id", "sender_id", "kind",
		"content", "content_type", "attachments", "mentions", "deleted", "position",
	} {
		if !strings.Contains(example, `"`+field+`":`) {
			t.Errorf("the example has no %s", field)
		}
		if !strings.Contains(string(page), "| `"+field+"` |") {
			t.Errorf("no table describes %s", field)
		}
	}
	store := memory.New()
	i := importer.New(importer.Config{Store: store, Format: "jsonl", Clock: time.Now})
	err = i.Run(t.Context(), jsonl.Records(t.Context(), []string{"-"},
		strings.NewReader(example)))
	if err != nil {
		t.Fatalf("the example is refused: %v", err)
	}
	report := i.Report()
	if report.Chats != 2 || report.Messages < 5 {
		t.Errorf("of the example, %+v was imported", report)
	}
	pages, err := store.Ranges(t.Context(), []storage.Range{{Chat: "general", Limit: 100}})
	if err != nil || len(pages[0]) == 0 {
		t.Errorf("the chat general has %d messages, %v", len(pages[0]), err)
	}
}
