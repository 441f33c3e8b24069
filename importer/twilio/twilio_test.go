package twilio

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

// TestRecords_of_pages as the documentation of the REST API describes them.
func TestRecords_of_pages(t *testing.T) {
	paths := []string{"testdata/pages.json"}
	want := []string{
		`chat CH00000000000000000000000000000001 group "Support" [] 2024-01-02T03:00:00Z`,
		`alice joins as ""`, `+15551234567 joins as ""`,
		"IM1 +15551234567: help",
		"IM2 : alice joined (system)",
		`IM3 alice:  has [{"name":"a.png","content_type":"image/png","size":42,` +
			`"source_ref":"ME1"}] with {"twilio":{"attributes":"{\"k\":1}"}}`,
		"alice has read 2",
		"end",
	}
	got := importtest.Lines(t, Records(t.Context(), paths))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	store, report := importtest.Import(t, "twilio", Records(t.Context(), paths))
	if report.Chats != 1 || report.Messages != 3 || report.Senders != 0 {
		t.Errorf("the report is %+v", report)
	}
	rosters, err := store.Rosters(t.Context(),
		[]tidemark.ChatID{"CH00000000000000000000000000000001"})
	if err != nil {
		t.Fatal(err)
	}
	var members []string
	for _, m := range rosters[0].Members {
		members = append(members, string(m.UserID))
	}
	if want := []string{":2b15551234567", "alice"}; !slices.Equal(members, want) {
		t.Errorf("the members are %q, want %q", members, want)
	}
}

// TestRecords_refuse_what_are_no_pages.
func TestRecords_refuse_what_are_no_pages(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":  {`{"meta":{}}`, "no chat was found"},
		"no sid":   {`{"conversations":[{"friendly_name":"x"}]}`, "no sid"},
		"no index": {`{"messages":[{"sid":"IM1","conversation_sid":"CH1"}]}`, "no index"},
		"a wrong type": {
			`{"participants":[{"conversation_sid":7}]}`,
			"none of Twilio: conversation_sid has a number",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pages.json")
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
