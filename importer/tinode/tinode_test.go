package tinode

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
)

// testKey returns the uid_key of tests.
func testKey(t *testing.T) Key {
	t.Helper()
	k, err := ParseKey("AAECAwQFBgcICQoLDA0ODw==")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKey_is_that_of_XTEA, by the published examples of the cipher.
func TestKey_is_that_of_XTEA(t *testing.T) {
	for plain, want := range map[string]string{
		"4142434445464748": "497df3d072612cb5", "4141414141414141": "e78f2d13744341d8",
	} {
		var block [8]byte
		if _, err := hex.Decode(block[:], []byte(plain)); err != nil {
			t.Fatal(err)
		}
		encrypted := testKey(t).encrypt(block)
		if got := hex.EncodeToString(encrypted[:]); got != want {
			t.Errorf("%s becomes %s, want %s", plain, got, want)
		}
	}
	for _, text := range []string{"", "AAEC", "?", strings.Repeat("A", 44)} {
		if _, err := ParseKey(text); tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("ParseKey(%q): %v", text, err)
		}
	}
}

// pairName returns the name of the topic of two users.
func pairName(t *testing.T, k Key, a, b int64) string {
	t.Helper()
	var raw []byte
	for _, number := range []int64{a, b} {
		id, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(k.User(number), "usr"))
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, id...)
	}
	return "p2p" + base64.RawURLEncoding.EncodeToString(raw)
}

// TestUser_is_the_id_that_clients_know: the number in the database is encrypted.
func TestUser_is_the_id_that_clients_know(t *testing.T) {
	k := testKey(t)
	// The number is 4142434445464748 in little endian, the first example of the cipher.
	if got, want := k.User(0x4847464544434241), "usrSX3z0HJhLLU"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	pair, err := pairOf(pairName(t, k, 1, 2))
	if err != nil || pair[0] != k.User(1) || pair[1] != k.User(2) {
		t.Errorf("a pair is %v, %v; want %s and %s", pair, err, k.User(1), k.User(2))
	}
	for _, name := range []string{"grpabc", "p2p", "p2pAAAA", "p2p?"} {
		if _, err := pairOf(name); err == nil {
			t.Errorf("%s is taken for a topic of two users", name)
		}
	}
}

// day returns a time so many days after the beginning.
func day(n int) time.Time {
	return time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, n)
}

// rows yields messages.
func rows(messages ...Message) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for _, m := range messages {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// said returns a message with a plain text.
func said(seq, from int64, text string) Message {
	return Message{Seq: seq, From: from, Created: day(int(seq)), Content: text2json(text)}
}

func text2json(text string) json.RawMessage {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return raw
}

// lines returns records as texts. Users have the names a, b, … in place of their ids.
func lines(t *testing.T, k Key, topic *Topic, messages iter.Seq2[Message, error]) []string {
	t.Helper()
	names := map[string]string{}
	for n := range int64(6) {
		names[k.User(n)] = string(rune('a' + n - 1))
	}
	var all []string
	for r, err := range k.Records(topic, messages) {
		if err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case importer.Chat:
			text := fmt.Sprintf("chat %s %s %q", r.ID, r.Type, r.Name)
			for _, user := range r.Members {
				text += " " + names[user]
			}
			all = append(all, text)
		case importer.Member:
			change := "joins as " + string(r.Role)
			if r.Left {
				change = "leaves"
			}
			all = append(all, names[r.User]+" "+change)
		case importer.Message:
			text := r.ID + " " + names[r.Author] + ": " + r.Says.Content
			if r.Lack != "" {
				text = r.ID + " is lacking: " + string(r.Lack)
			}
			all = append(all, text)
		case importer.Read:
			all = append(all, fmt.Sprint(names[r.User], " has read ", r.Position))
		case importer.End:
			all = append(all, "end")
		}
	}
	return all
}

// TestRecords_of_a_group: members come by their times, deleted messages are stubs, edits are in
// their place, and the numbers stay.
func TestRecords_of_a_group(t *testing.T) {
	k := testKey(t)
	edit := said(7, 2, "two, well")
	edit.Head = json.RawMessage(`{"replace":":2"}`)
	again := said(8, 2, "two, better")
	again.Head = json.RawMessage(`{"replace":":7"}`)
	foreign := said(9, 3, "not by its author")
	foreign.Head = json.RawMessage(`{"replace":":1"}`)
	deleted := Message{Seq: 3, Created: day(3), Deleted: true}
	topic := &Topic{
		Name: "grpabc", Created: day(0), Public: json.RawMessage(`{"fn":"Team"}`),
		Subscriptions: []Subscription{
			{User: 1, Created: day(0), Updated: day(0), ReadSeq: 8, Want: "JRWPASDO",
				Given: "JRWPASDO"},
			{User: 2, Created: day(1), Updated: day(1), ReadSeq: 99, Want: "JRWPS", Given: "JRWPS"},
			{User: 3, Created: day(5), Updated: day(7), Deleted: day(7), Want: "JRWPA",
				Given: "JRWPA"},
			{User: 4, Created: day(7), Updated: day(8), Want: "JRWPS", Given: "N", ReadSeq: 1},
			{User: 5, Created: day(7), Updated: day(7), Want: "JRP", Given: "JRP", Channel: true},
		},
		Edits: []Message{edit, again, foreign},
	}
	got := lines(t, k, topic, rows(
		said(1, 1, "one"), said(2, 2, "two"), deleted, said(6, 3, "six"), edit, again, foreign,
	))
	want := []string{
		`chat grpabc group "Team"`,
		"a joins as owner", "b joins as member", "1 a: one", "2 b: two, better",
		"3 is lacking: deleted", "4 is lacking: deleted", "5 is lacking: deleted",
		"c joins as admin", "6 c: six",
		"c leaves", "d joins as reader", "e joins as reader", "7 is lacking: edit", "d leaves",
		"8 is lacking: edit", "9 c: not by its author", "c leaves",
		"a has read 8", "b has read 9", "c has read 0", "d has read 1", "e has read 0", "end",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestRecords_of_two_users: their topic names them, also those who have left it since.
func TestRecords_of_two_users(t *testing.T) {
	k := testKey(t)
	topic := &Topic{
		Name: pairName(t, k, 1, 2), Created: day(0), Public: json.RawMessage(`{"fn":"x"}`),
		Subscriptions: []Subscription{
			{User: 1, Created: day(0), Updated: day(0), ReadSeq: 1, Want: "JRWPA", Given: "JRWPA"},
		},
	}
	got := lines(t, k, topic, rows(said(1, 2, "hi")))
	want := []string{"chat " + topic.Name + ` direct "" a b`, "1 b: hi", "a has read 1", "end"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	topic.Subscriptions[0].User = 7
	for _, err := range k.Records(topic, rows()) {
		if tidemark.CodeOf(err) != tidemark.Denied || !strings.Contains(err.Error(), "uid_key") {
			t.Errorf("with a key of another server, got %v", err)
		}
	}
}

// TestRecords_end_with_an_error of the database.
func TestRecords_end_with_an_error(t *testing.T) {
	broken := errors.New("the test says so")
	failing := func(yield func(Message, error) bool) {
		if yield(said(1, 1, "one"), nil) {
			yield(Message{}, broken)
		}
	}
	var last error
	n := 0
	for _, err := range testKey(t).Records(&Topic{Name: "grpx", Created: day(0)}, failing) {
		n, last = n+1, err
	}
	if !errors.Is(last, broken) || n != 3 {
		t.Errorf("got %d records, and at the end %v", n, last)
	}
	atOnce := func(yield func(Message, error) bool) { yield(Message{}, broken) }
	for _, messages := range []iter.Seq2[Message, error]{failing, atOnce} {
		n = 0
		for range testKey(t).Records(&Topic{Name: "grpx", Created: day(0)}, messages) {
			if n++; n == 1 {
				break // A consumer may leave at any record.
			}
		}
		if n != 1 {
			t.Errorf("a consumer that has left gets %d records", n)
		}
	}
}

// TestSays_takes_the_text_of_Drafty, and its links and mentions. What is not a text is kept beside
// it, as far as it fits.
func TestSays_takes_the_text_of_Drafty(t *testing.T) {
	large := strings.Repeat("A", 9_000)
	for name, tc := range map[string]struct {
		head, content string
		text, kind    string
		attachments   string
		metadata      string
		mentioned     string
		lack          importer.Lack
	}{
		"a text": {content: `"hi"`, text: "hi"},
		"a head": {
			head: `{"reply":":3"}`, content: `"hi"`, text: "hi",
			metadata: `{"tinode":{"head":{"reply":":3"}}}`,
		},
		"Drafty": {
			head: `{"mime":"text/x-drafty","mentions":["usrA"]}`,
			content: `{"txt":"bold","fmt":[{"len":4,"tp":"ST"}],` +
				`"ent":[{"tp":"MN","data":{"val":"usrB"}}]}`,
			text: "bold", mentioned: "usrA usrB",
			metadata: `{"tinode":{"head":{"mime":"text/x-drafty","mentions":["usrA"]},` +
				`"content":{"txt":"bold","fmt":[{"len":4,"tp":"ST"}],` +
				`"ent":[{"tp":"MN","data":{"val":"usrB"}}]}}}`,
		},
		"a link": {
			content: `{"txt":" ","ent":[{"tp":"IM","data":{"mime":"image/png",` +
				`"ref":"/v0/file/s/x.png","name":"x","size":12,"val":"` + large + `"}}]}`,
			text: " ",
			attachments: `[{"url":"/v0/file/s/x.png","name":"x",` +
				`"content_type":"image/png","size":12}]`,
		},
		"a script": {
			content: `{"txt":"x","ent":[{"tp":"EX","data":{"ref":"javascript:alert(1)","val":"` +
				large + `"}}]}`,
			text: "x",
		},
		"a picture in it": {
			content: `{"txt":"","ent":[{"tp":"IM","data":{"val":"` + large + `"}}]}`,
			lack:    importer.Empty,
		},
		"a number": {content: `42`, text: "42", kind: "application/json"},
		"a list":   {content: `["a"]`, text: `["a"]`, kind: "application/json"},
		"nothing":  {lack: importer.Empty},
		"null":     {content: `null`, lack: importer.Empty},
	} {
		t.Run(name, func(t *testing.T) {
			var r importer.Message
			says(&r, json.RawMessage(tc.head), json.RawMessage(tc.content))
			got := fmt.Sprintf("%q %s %s %s %q %s", r.Says.Content, r.Says.ContentType,
				r.Says.Attachments, r.Says.Metadata, strings.Join(r.Mentioned, " "), r.Lack)
			want := fmt.Sprintf("%q %s %s %s %q %s", tc.text, tc.kind, tc.attachments, tc.metadata,
				tc.mentioned, tc.lack)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
