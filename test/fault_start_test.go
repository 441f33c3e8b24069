package test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-im/tidemark/storage/sqlite/waltest"
)

// TestFault_at_the_start: the server does not start on a database that it cannot serve, and says
// what to do.
func TestFault_at_the_start(t *testing.T) {
	p := newProcess(t)
	for _, test := range []struct {
		name string
		// damage changes the files of a database with some messages.
		damage func(t *testing.T, p *process)
		nobody bool
		words  []string
	}{
		{
			"garbage",
			func(t *testing.T, p *process) {
				put(t, p.database(), strings.Repeat("garbage ", 1000))
			},
			false, []string{"corrupt", "restore a backup"},
		},
		{
			"truncated",
			func(t *testing.T, p *process) { must(t, os.Truncate(p.database(), 2*4096)) }, false,
			[]string{"corrupt", "restore a backup"},
		},
		{
			"page of the schema",
			func(t *testing.T, p *process) { overwrite(t, p.database(), 100, 3000) }, false,
			[]string{"corrupt", "restore a backup"},
		},
		{
			"newer schema",
			func(t *testing.T, p *process) {
				execute(t, p.database(), "UPDATE schema_migrations SET version = 999")
				execute(t, p.database(), "UPDATE schema_compatible SET version = 999")
			},
			false, []string{"999", "newer program"},
		},
		{
			"migration that failed",
			func(t *testing.T, p *process) {
				execute(t, p.database(), "UPDATE schema_migrations SET dirty = 1")
			},
			false, []string{"half-way", "restore a backup"},
		},
		{
			"no directory",
			func(_ *testing.T, p *process) { p.store = filepath.Join(p.store, "nowhere") }, false,
			[]string{"create it"},
		},
		{"in use", func(t *testing.T, p *process) {
			other := *p
			other.address = freeAddress(t)
			other.start()
			t.Cleanup(other.stop)
		}, false, []string{"in use by another server"}},
		{
			"directory without permission",
			func(t *testing.T, p *process) { must(t, os.Chmod(p.store, 0o555)) }, true,
			[]string{"permissions of its file and directory"},
		},
		{
			"file without permission",
			func(t *testing.T, p *process) { must(t, os.Chmod(p.database(), 0o444)) }, true,
			[]string{"tidemark.db", "permissions"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := *p
			q.t, q.process = t, nil
			dir, err := os.MkdirTemp("", "tidemark-fault-")
			must(t, err)
			t.Cleanup(func() {
				must(t, os.Chmod(dir, 0o700)) // damage may have removed the permission
				must(t, os.RemoveAll(dir))
			})
			q.store, q.dir = dir, dir
			filled(t, &q)
			if test.nobody { // as another user, for whom permissions count
				if os.Getuid() == 0 {
					q.credential = &syscall.Credential{Uid: 65534, Gid: 65534}
				}
				q.binary = filepath.Join(dir, "tidemark")
				copied, err := os.ReadFile(p.binary)
				must(t, err)
				must(t, os.WriteFile(q.binary, copied, 0o755))
				must(t, os.Chmod(dir, 0o777))
				for _, file := range []string{q.database(), q.database() + "-lock"} {
					must(t, os.Chmod(file, 0o666))
				}
			}
			test.damage(t, &q)
			q.launch()
			var exit *exec.ExitError
			if err := q.wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("the server ended with %v, want exit code 1; its log:\n%s",
					err, q.log.String())
			}
			lines := strings.Split(strings.TrimSpace(q.log.String()), "\n")
			for _, word := range append(test.words, q.store) {
				if last := lines[len(lines)-1]; !strings.Contains(last, word) {
					t.Errorf("the server says %q, want it to name %q", last, word)
				}
			}
		})
	}
}

// TestFault_read_only_file_system: the server finds a read-only file system at its start.
func TestFault_read_only_file_system(t *testing.T) {
	p := newProcess(t)
	filled(t, p)
	source := p.dir
	inTmpfs(t, p, "3m",
		"cp "+source+"/tidemark.db "+filepath.Join(p.dir,
			"small")+"/ && mount -o remount,bind,ro "+filepath.Join(p.dir, "small")+" && ")
	p.launch()
	var exit *exec.ExitError
	if err := p.wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(p.log.String(), "writable") {
		t.Errorf("the server ended with %v: %s", err, p.log.String())
	}
}

// TestFault_corrupt_page_while_running: a read of a corrupt page is 503 and nothing else, and
// nothing is written afterwards.
func TestFault_corrupt_page_while_running(t *testing.T) {
	p := newProcess(t)
	filled(t, p)
	pages := strings.Fields(query(t, p.database(),
		"SELECT pageno FROM dbstat WHERE name = 'messages'"))
	if len(pages) == 0 {
		t.Fatal("the messages have no page")
	}
	for _, page := range pages {
		var n int64
		_, err := fmt.Sscan(page, &n)
		must(t, err)
		overwrite(t, p.database(), (n-1)*4096, 4096)
	}
	p.start()
	alice := as(p.address, "alice")
	f := &faultyServer{t: t, server: p}
	alice.call(t, http.MethodGet, "/chats/c/delivery-state", nil, nil) // other pages are whole
	for _, request := range []struct{ method, path, body string }{
		{http.MethodGet, "/chats/c/messages", ""},
		{http.MethodPost, "/chats/c/messages", "new"},
	} {
		status, body, err := alice.try(t.Context(), request.method, request.path, map[string]any{
			"client_message_id": request.body, "content": request.body,
		})
		const want = "corrupt; stop the server and restore a backup"
		if detail := f.problem(status, body); err != nil || !strings.Contains(detail, want) {
			t.Errorf("%s %s: %d %s, %v", request.method, request.path, status, body, err)
		}
	}
	if status, detail := f.ready(); status != http.StatusServiceUnavailable ||
		!strings.Contains(detail, "corrupt") {
		t.Errorf("/readyz: %d %s", status, detail)
	}
	chat := map[string]any{"type": "group", "chat_id": "new", "member_ids": []string{"bob"}}
	if status, body, err := alice.try(t.Context(), http.MethodPost, "/chats", chat); err != nil ||
		status != http.StatusServiceUnavailable {
		t.Errorf("a new chat is written into a corrupt database: %d %s, %v", status, body, err)
	}
}

// TestFault_disk_that_lied cuts confirmed commits off the log of a killed server, as a disk does
// that ignored its fsyncs. The rest of the data is whole, devices that have more lose it, and later
// sends are stored once.
func TestFault_disk_that_lied(t *testing.T) {
	p := newProcess(t)
	p.start()
	f := newFaulty(t, p)
	until(t, "bob has everything", func() bool { return f.bob.heads()["c"] == 5 },
		func() string { return fmt.Sprint(f.bob.heads()) })
	must(t, p.process.Kill())
	_ = p.wait()
	commits, err := waltest.Commits(p.database() + "-wal")
	if err != nil || len(commits) < 5 {
		t.Fatalf("the log has the commits %v, %v", commits, err)
	}
	must(t, os.Truncate(p.database()+"-wal", commits[len(commits)/2]))
	p.start()
	left := map[string]int64{}
	var page struct{ Messages []message }
	f.as("alice").call(t, http.MethodGet, "/chats/c/messages", nil, &page)
	for i, m := range page.Messages {
		if m.Sequence != int64(i+1) {
			t.Fatalf("message %d has sequence %d", i+1, m.Sequence)
		}
		left[m.ClientMessageID] = m.Sequence
	}
	if len(left) == 5 {
		t.Fatal("nothing was lost: the fault did not fire")
	}
	until(t, "bob's device has dropped what was lost",
		func() bool { return f.bob.losses() > 0 && f.bob.heads()["c"] == int64(len(left)) },
		func() string { return fmt.Sprint(f.bob.heads()) })
	var answer struct {
		Chats []struct {
			Head  int64 `json:"head_sequence"`
			Reset struct{ Reason string }
		}
	}
	f.as("bob").call(t, http.MethodPost, "/sync",
		map[string]any{"chats": []cursor{{"c", 5, ""}}}, &answer)
	if len(answer.Chats) != 1 || answer.Chats[0].Reset.Reason != "ahead" ||
		answer.Chats[0].Head != int64(len(left)) {
		t.Errorf("sync with a cursor beyond the end: %+v, want reset ahead and the head %d",
			answer, len(left))
	}
	// A sender who still has a message sends it again. Messages that are still stored keep their
	// sequence, others get new ones.
	f.confirmed = left
	for n := range 5 {
		if status, detail := f.send(fmt.Sprint("before", n)); status >= 300 {
			t.Errorf("sending again: %d %s", status, detail)
		}
	}
	if head := f.check("bob"); head != 5 {
		t.Errorf("the chat ends at %d, want 5", head)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// overwrite puts garbage into a file.
func overwrite(t *testing.T, path string, at int64, n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("\xa5", n)), at)
	must(t, errors.Join(err, f.Close()))
}

// execute runs a statement on a database that no server has open.
func execute(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.Exec(statement)
	must(t, errors.Join(err, db.Close()))
}

// query returns the first column of the answer, with spaces between.
func query(t *testing.T, path, statement string) (answer string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer db.Close()
	rows, err := db.Query(statement)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var value string
		must(t, rows.Scan(&value))
		answer += value + " "
	}
	must(t, rows.Err())
	return answer
}

// filled leaves a database with a chat "c" and some messages, all of them in the file itself.
func filled(t *testing.T, p *process) {
	t.Helper()
	p.start()
	alice := as(p.address, "alice")
	alice.call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "c", "member_ids": []string{"bob"}}, nil)
	for n := range 5 {
		alice.send(t, "c", fmt.Sprint("message ", n))
	}
	p.stop()
}

// TestFault_full_disk_at_the_start: without room for the log the server cannot serve, and says so.
func TestFault_full_disk_at_the_start(t *testing.T) {
	p := newProcess(t)
	filled(t, p)
	source := p.dir
	small := filepath.Join(p.dir, "small")
	inTmpfs(t, p, "3m",
		"cp "+source+"/tidemark.db "+small+"/ && (cat /dev/zero > "+small+"/ballast || true) && ")
	p.launch()
	var exit *exec.ExitError
	if err := p.wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(p.log.String(), "free some space") {
		t.Errorf("the server ended with %v: %s", err, p.log.String())
	}
}
