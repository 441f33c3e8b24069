package sendbird

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

// TestRecords_of_an_export as the documentation describes it: channels and messages are in files of
// their own.
func TestRecords_of_an_export(t *testing.T) {
	paths := []string{"testdata/messages.json", "testdata/channels.json"}
	want := []string{
		`chat sendbird_group_channel_1 group "Team" [] 2024-01-02T03:00:00Z`,
		`alice joins as "admin"`, `bob joins as "member"`,
		`101 alice: hello mentions [bob] false with ` +
			`{"sendbird":{"custom_type":"greeting","data":"{\"color\":\"red\"}"}}`,
		`102 bob:  has [{"url":"https://file.example.com/a.png","name":"a.png",` +
			`"content_type":"image/png","size":99}]`,
		`103 : Maintenance at noon (system)`,
		`104 erin: all mentions [] true with {"sendbird":{"parent_message_id":"101"}}`,
		`105 of "alice" is deleted`,
		"erin leaves",
		"alice has read 2", "bob has read 0",
		"end",
		`chat sendbird_group_channel_2 direct "" [alice bob] 2024-01-02T03:00:00Z`,
		"201 bob: hi",
		"alice has read 1", "bob has read 1",
		"end",
		`chat sendbird_group_channel_3 group "" [] 2024-01-02T03:01:00Z`,
		"301 alice: of a channel without its file",
		"alice has read 1",
		"end",
	}
	got := importtest.Lines(t, Records(t.Context(), paths))
	for i := range got { // The order of read marks does not count.
		if i > 0 && strings.Contains(got[i], " has read ") &&
			strings.Contains(got[i-1], " has read ") {
			slices.Sort(got[i-1 : i+1])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	store, report := importtest.Import(t, "sendbird", Records(t.Context(), paths))
	if report.Chats != 3 || report.Messages != 7 || report.Senders != 2 {
		t.Errorf("the report is %+v", report)
	}
	if chat, err := store.Chat(t.Context(), "sendbird_group_channel_1"); err != nil ||
		chat.MemberCount != 2 || chat.Head != 5 {
		t.Errorf("the group is %+v, %v", chat, err)
	}
}

// TestRecords_of_arrays: a file may also be an array.
func TestRecords_of_arrays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "export.json")
	text := `[{"message_id":1,"channel_url":"c","user":{"user_id":"a"},"message":"x",` +
		`"created_at":1704164460000}]`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`chat c group "" [] 2024-01-02T03:01:00Z`, "1 a: x", "a has read 1", "end",
	}
	got := importtest.Lines(t, Records(t.Context(), []string{path}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestRecords_refuse_what_is_no_export.
func TestRecords_refuse_what_is_no_export(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":       {`{"users":[{"user_id":"a"}]}`, "no chat was found"},
		"no channel":    {`[{"message_id":1}]`, "no channel_url"},
		"no time":       {`[{"message_id":1,"channel_url":"c"}]`, "no created_at"},
		"a wrong type":  {`[{"message_id":"1","channel_url":"c"}]`, "message_id has a string"},
		"no object":     {`[1]`, "none of Sendbird: it has a number"},
		"a wrong value": {`[{"channel_url":7}]`, "none of Sendbird: channel_url has a number"},
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
