package stream

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer/internal/importtest"
)

// TestRecords_of_an_export as the documentation describes it.
func TestRecords_of_an_export(t *testing.T) {
	paths := []string{"testdata/channels.json"}
	want := []string{
		`chat messaging:general group "General" [] 2024-01-02T03:00:00Z`,
		`alice joins as "owner"`,
		"m1 alice: first",
		`bob joins as "admin"`,
		`m2 bob: with a file mentions [alice] false has ` +
			`[{"url":"https://cdn.example.com/cat.png","name":"cat.png"},` +
			`{"url":"https://cdn.example.com/a.pdf","name":"a.pdf",` +
			`"content_type":"application/pdf","size":1234}]` +
			` with {"stream":{"parent_id":"m1"}}`,
		`m3 of "carol" is deleted`,
		"m4 alice: bob was made a moderator (system)",
		"carol leaves",
		"alice has read 2",
		"end",
		`chat messaging:!members-x1 direct "" [alice bob] 2024-01-03T00:00:00Z`,
		"d1 bob: hi",
		"alice has read 1", "bob has read 1",
		"end",
	}
	got := importtest.Lines(t, Records(t.Context(), paths))
	slices.Sort(got[len(got)-3 : len(got)-1]) // The order of read marks does not count.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	store, report := importtest.Import(t, "stream", Records(t.Context(), paths))
	if report.Chats != 2 || report.Messages != 5 || report.Senders != 1 {
		t.Errorf("the report is %+v", report)
	}
	chat, err := store.Chat(t.Context(), "messaging::21members-x1")
	if err != nil || chat.Type != tidemark.Direct || chat.MemberCount != 2 {
		t.Errorf("the direct chat is %+v, %v", chat, err)
	}
}

// TestRecords_refuse_what_is_no_export.
func TestRecords_refuse_what_is_no_export(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"version v2": {`{"type":"channel","data":{"id":"x"}}`, "export of version v2"},
		"no channel": {`{"duration":"1ms"}`, "no chat was found"},
		"no cid":     {`{"channel":{"id":"x"}}`, "no cid"},
		"members first": {
			`{"members":[],"messages":[{}],"channel":{"cid":"a:b"}}`, "must come first",
		},
		"no time": {
			`{"channel":{"cid":"a:b"},"messages":[{"id":"1","text":"x"}]}`, "no created_at",
		},
		"a wrong type": {
			`{"channel":{"cid":7}}`,
			"it is none of Stream: cid has a number where a string must be",
		},
		"a wrong time": {
			`{"channel":{"cid":"c","created_at":"yesterday"}}`,
			`created_at has the value "yesterday" where a time such as`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "export.json")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var last error
			for _, err := range Records(t.Context(), []string{path}) {
				last = err
			}
			if tidemark.CodeOf(last) != tidemark.Invalid ||
				!strings.Contains(tidemark.DetailOf(last), tc.want) {
				t.Errorf("got %v, want %q", last, tc.want)
			}
		})
	}
}
