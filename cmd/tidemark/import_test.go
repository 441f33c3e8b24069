package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

// imported is what import prints.
type imported struct {
	importer.Report
	Complete bool    `json:"complete"`
	Seconds  float64 `json:"seconds"`
}

// parseReport parses what import prints.
func parseReport(t *testing.T, out string) (r imported) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// chatLines are a chat in JSON Lines, with one message.
func chatLines(id, content string) string {
	return `{"type":"chat","chat_id":"` + id + `","chat_type":"group",` +
		`"created_at":"2024-01-02T03:04:05Z","member_ids":["alice"]}
{"type":"message","message_id":"1","sender_id":"alice","created_at":"2024-01-02T03:04:06Z",` +
		`"content":"` + content + `"}
{"type":"end"}
`
}

const versionLine = `{"type":"tidemark","version":1}` + "\n"

// TestImport_moves_chats_into_the_store that serve would use. A second run finds them there.
func TestImport_moves_chats_into_the_store(t *testing.T) {
	database := filepath.Join(t.TempDir(), "a.db")
	config := write(t, "c.yaml", "store: sqlite:"+database+"\n")
	file := write(t, "export.jsonl", versionLine+chatLines("a", "hello")+chatLines("b c", "hi"))
	args := []string{"import", "--from", "jsonl", "--config", config, file}
	code, out, stderr := invoke(t, nil, append(args, "--dry-run")...)
	dry := parseReport(t, out)
	if code != exitOK || !dry.DryRun || dry.Chats != 2 || !dry.Complete || stderr != "" {
		t.Errorf("a dry run: exit %d, %+v, %s", code, dry, stderr)
	}
	code, out, stderr = invoke(t, nil, args...)
	first := parseReport(t, out)
	if code != exitOK || first.Chats != 2 || first.Messages != 2 || !first.Complete ||
		stderr != "" {
		t.Fatalf("exit %d, %+v, %s", code, first, stderr)
	}
	code, out, _ = invoke(t, nil, args...)
	if again := parseReport(t, out); code != exitOK || again.Unchanged != 2 || again.Chats != 0 {
		t.Errorf("again: exit %d, %+v", code, again)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: database})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for chat, want := range map[tidemark.ChatID]string{"a": "hello", "b:20c": "hi"} {
		pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: chat, Limit: 10}})
		if err != nil || len(pages[0]) != 1 || pages[0][0].Content != want {
			t.Errorf("the chat %s has %+v, %v", chat, pages, err)
		}
	}
}

// TestImport_says_what_it_refuses: the exit code is 1, and the report has the reasons.
func TestImport_says_what_it_refuses(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", tidemark.MaxContent+1)
	file := write(t, "export.jsonl",
		versionLine+chatLines("a", "hello")+chatLines("b", long)+chatLines("c", "hi"))
	for name, tc := range map[string]struct {
		args           []string
		code           int
		chats, refused int64
		stubs          int64
		want           string
	}{
		"by default": {code: exitFailure, chats: 1, refused: 1, want: `the chat "b" is refused`},
		"and goes on": {
			args: []string{"--continue"}, code: exitFailure, chats: 2, refused: 1,
			want: "1 chats were refused",
		},
		"or stores a stub": {args: []string{"--oversize", "skip"}, chats: 3, stubs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := "sqlite:" + filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			args := append([]string{"import", "--from", "jsonl", "--store", store, file},
				tc.args...)
			code, out, stderr := invoke(t, nil, args...)
			r := parseReport(t, out)
			if code != tc.code || r.Chats != tc.chats || r.RefusedChats != tc.refused ||
				r.Stubs != tc.stubs || r.Complete != (tc.code == exitOK) ||
				!strings.Contains(stderr, tc.want) {
				t.Errorf("exit %d, %+v, %s", code, r, stderr)
			}
			want := storage.AuditDone
			if tc.code != exitOK {
				want = storage.AuditUnknown // It has imported a chat.
			}
			checkImportEntry(t, strings.TrimPrefix(store, "sqlite:"), want)
			if tc.refused > 0 && (r.Refused[0].Chat != "b" ||
				!strings.Contains(r.Refused[0].Reason, "message 1 of the chat b: content is")) {
				t.Errorf("refused are %+v", r.Refused)
			}
		})
	}
}

// TestImport_writes_no_entry_with_0_days, which a flag or the file of serve says.
func TestImport_writes_no_entry_with_0_days(t *testing.T) {
	file := write(t, "export.jsonl", versionLine+chatLines("a", "hello"))
	for name, args := range map[string][]string{
		"the flag": {"--audit-days", "0"},
		"the file": {"--config", write(t, "serve.yaml", "audit-days: 0\n")},
	} {
		database := filepath.Join(t.TempDir(), "a.db")
		code, _, stderr := invoke(t, nil, append([]string{
			"import", "--from", "jsonl", "--store", "sqlite:" + database, file,
		}, args...)...)
		if code != exitOK {
			t.Fatalf("%s: exit %d, %s", name, code, stderr)
		}
		if got := importEntries(t, database); len(got) > 0 {
			t.Errorf("%s: got entries %+v, want none", name, got)
		}
	}
}

// importEntries returns the entries in the audit log of a database.
func importEntries(t *testing.T, database string) []storage.AuditEntry {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: database})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	entries, _, err := s.ListAudit(t.Context(), storage.AuditPage{Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// checkImportEntry compares the state of the only entry in the audit log of a database.
func checkImportEntry(t *testing.T, database string, want storage.AuditState) {
	t.Helper()
	entries := importEntries(t, database)
	if len(entries) != 1 || entries[0].Operation != "import" || entries[0].State != want {
		t.Errorf("got the entries %+v, want one of an import in the state %s", entries, want)
	}
}

// TestImport_erased_nowhere: who was erased in the store does not come back by an import.
func TestImport_erased_nowhere(t *testing.T) {
	database := filepath.Join(t.TempDir(), "a.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: database})
	if err != nil {
		t.Fatal(err)
	}
	register, err := erasure.OpenRegister(t.Context(), s, nil, slog.New(slog.DiscardHandler),
		time.Now)
	if err == nil {
		_, err = register.Begin(t.Context(), "alice")
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	file := write(t, "export.jsonl", versionLine+chatLines("a", "hello"))
	code, out, stderr := invoke(t, nil, "import", "--from", "jsonl", "--store", "sqlite:"+database,
		file)
	r := parseReport(t, out)
	if code != exitFailure || r.RefusedChats != 1 || r.Messages != 0 ||
		!strings.Contains(stderr, "names alice, who was erased") {
		t.Errorf("exit %d, %+v, %s", code, r, stderr)
	}
}

// TestImport_refuses_wrong_use with a sentence, and touches no store.
func TestImport_refuses_wrong_use(t *testing.T) {
	file := write(t, "export.jsonl", versionLine+chatLines("a", "hello"))
	broken := write(t, "broken.jsonl", versionLine+"{}\n")
	typed := write(t, "typed.jsonl", versionLine+`{"type":"chat","chat_id":7}`+"\n")
	store := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no format":         {[]string{file}, exitUsage, "--from"},
		"an unknown format": {[]string{"--from", "csv", file}, exitUsage, "--from"},
		"no file":           {[]string{"--from", "jsonl"}, exitUsage, "path"},
		"memory": {
			[]string{"--from", "jsonl", "--store", "memory:", file}, exitUsage,
			"ends with this command",
		},
		"an unknown store": {
			[]string{"--from", "jsonl", "--store", "mongodb://h", file}, exitUsage,
			"no such store",
		},
		"standard input": {
			[]string{"--from", "stream", "-"}, exitUsage, "only jsonl can be read",
		},
		"tinode without a key": {
			[]string{"--from", "tinode", "postgres://u:pa55@h/d"}, exitUsage, "--tinode-uid-key",
		},
		"tinode with a wrong key": {
			[]string{"--from", "tinode", "--tinode-uid-key", "x", "postgres://u:pa55@h/d"},
			exitUsage, "16 bytes",
		},
		"two databases of tinode": {
			[]string{"--from", "tinode", "--tinode-uid-key", "x", "a", "b"}, exitUsage,
			"one database",
		},
		"a missing file": {
			[]string{"--from", "jsonl", "--store", store, "missing"}, exitFailure,
			"import: missing cannot be opened: no such file or directory",
		},
		"a directory": {
			[]string{"--from", "stream", "--store", store, filepath.Dir(file)}, exitFailure,
			"cannot be opened: it is a directory",
		},
		"a wrong type": {
			[]string{"--from", "jsonl", "--store", store, typed}, exitFailure,
			"line 2 of " + typed + ": chat_id has a number where a string must be",
		},
		"a broken file": {
			[]string{"--from", "jsonl", "--store", store, broken}, exitFailure, "line 2 of",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := invoke(t, nil, append([]string{"import"}, tc.args...)...)
			if code != tc.code || !strings.Contains(stderr, tc.want) ||
				strings.Contains(stderr, "pa55") {
				t.Errorf("exit %d, %q, want exit %d and %q", code, stderr, tc.code, tc.want)
			}
		})
	}
}
