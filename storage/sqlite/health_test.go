package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/vfstest"
)

// openFaulty opens a database with a chat "c" and three messages. Its file system fails on demand.
func openFaulty(t *testing.T) (s *Store, path string, fs *vfstest.FS) {
	t.Helper()
	path = faultTemplate(t)
	fs = vfstest.Install(t, path)
	return openTest(t, path), path, fs
}

// failing returns a function that fails every call of one operation on the files with a suffix.
func failing(op vfstest.Op, file string, fault vfstest.Fault) func(vfstest.Call) vfstest.Fault {
	return func(c vfstest.Call) vfstest.Fault {
		if c.Op == op && c.File == file {
			return fault
		}
		return vfstest.None
	}
}

func TestCommit_full_disk_is_Unavailable_and_recovers(t *testing.T) {
	s, _, fs := openFaulty(t)
	fs.Arm(failing(vfstest.Write, "-wal", vfstest.Full))
	_, err := storage.AppendOne(t.Context(), s, draft("1", "hello"))
	wantCode(t, err, tidemark.Unavailable, "full", "free some space")
	_, err = s.Advance(t.Context(), []storage.Advance{
		{User: "ben", Chat: "c", Raise: tidemark.Raise{Acked: 1}},
	})
	wantCode(t, err, tidemark.Unavailable, "full")
	wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "full", "free some space")
	wantGapless(t, s, 3) // reads still work
	if fs.Disarm() == 0 {
		t.Fatal("no fault fired")
	}
	if s.hasFailed() {
		t.Fatal("a full disk has ended the store")
	}
	deadline := time.Now().Add(20 * time.Second)
	for ; s.Check(t.Context()) != nil; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("Check with space again: %v", s.Check(t.Context()))
		}
	}
	if got := send(t, s, "1"); got != 4 {
		t.Errorf("the first send after the disk was full has sequence %d, want 4", got)
	}
	wantGapless(t, s, 4)
}

// If the log cannot grow, its pages are moved into the database file, which has room for them. Then
// the log restarts in the space that it has.
func TestCommit_full_disk_makes_room_in_the_log(t *testing.T) {
	s, path, fs := openFaulty(t)
	rename := func(n int) error { // writes a page that is in the file already
		name := fmt.Sprint(n)
		_, err := s.UpdateChat(t.Context(), "c", storage.ChatChange{Name: &name})
		return err
	}
	for n := range 20 {
		if err := rename(n); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	fs.Arm(func(c vfstest.Call) vfstest.Fault {
		if c.Op == vfstest.Write && c.File == "-wal" && c.End > info.Size() {
			return vfstest.Full
		}
		return vfstest.None
	})
	failed := 0
	for n := range 100 {
		if err := rename(n); err != nil {
			wantCode(t, err, tidemark.Unavailable, "full")
			failed++
		}
	}
	if fired := fs.Disarm(); fired == 0 || failed != fired {
		t.Errorf("%d writes failed, and %d calls: want the same, above 0", fired, failed)
	}
	if failed > 10 {
		t.Errorf("%d of 100 writes failed, although each time the log had room for twenty others",
			failed)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// The log's index grows in a commit, after the log is on disk. If the disk is full at that point,
// the store must not end.
func TestCommit_full_disk_for_the_index_of_the_log(t *testing.T) {
	s, path, fs := openFaulty(t)
	drafts := make([]tidemark.Draft, 300)
	for n := range drafts {
		drafts[n] = draft(fmt.Sprint("big", n), strings.Repeat("x", tidemark.MaxContent))
	}
	fs.Arm(failing(vfstest.Map, "", vfstest.Full))
	_, err := s.Append(t.Context(), drafts)
	wantCode(t, err, tidemark.Unavailable, "full")
	if fs.Disarm() == 0 {
		t.Fatal("no fault fired")
	}
	if s.hasFailed() {
		t.Fatal("a full disk has ended the store")
	}
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	for _, suffix := range []string{"", "-wal"} {
		copyFile(t, path+suffix, crashed+suffix)
	}
	// The refused messages may be complete in the log. Then they survive a crash, and a repeated
	// send finds them.
	for _, s := range []*Store{s, openTest(t, crashed)} {
		if _, err := s.Append(t.Context(), drafts); err != nil {
			t.Fatal(err)
		}
		wantGapless(t, s, 303)
	}
}

func TestRead_that_fails_is_Unavailable_and_not_ready(t *testing.T) {
	path := faultTemplate(t)
	fs := vfstest.Install(t, path)
	s, err := Open(t.Context(), Config{Path: path, CacheBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fs.Arm(failing(vfstest.Read, "", vfstest.Broken))
	_, err = s.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 10}})
	wantCode(t, err, tidemark.Unavailable, "disk", "system's log")
	if fs.Disarm() == 0 {
		t.Fatal("no fault fired")
	}
	wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "system's log")
	wantGapless(t, s, 3)
}

// corruptTable overwrites the pages of a table in the closed database at path. It returns their
// number.
func corruptTable(t *testing.T, path, table string, with byte) (pages int) {
	t.Helper()
	c, err := open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.prepare("SELECT pageno FROM dbstat WHERE name = ?")
	if err != nil {
		t.Fatal(err)
	}
	q.string(1, table)
	var numbers []int64
	if err := q.each(func(row *stmt) bool {
		numbers = append(numbers, row.integerAt(0))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	q.Finalize()
	c.close()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := bytes.Repeat([]byte{with}, 4096)
	for _, n := range numbers {
		if _, err := f.WriteAt(page, (n-1)*4096); err != nil {
			t.Fatal(err)
		}
	}
	return len(numbers)
}

// A page with other data than SQLite wrote is never part of an answer.
func TestCorrupt_page_is_Unavailable_and_stops_the_writing(t *testing.T) {
	for _, table := range []string{
		"messages", "chats", "sqlite_autoindex_chats_1", "messages_by_key", "members",
		"delivery_state",
	} {
		for _, with := range []byte{0x00, 0xff, 0x0d} {
			t.Run(fmt.Sprintf("%s_%02x", table, with), func(t *testing.T) {
				path := faultTemplate(t)
				s := openTest(t, path)
				if _, err := s.Advance(t.Context(), []storage.Advance{
					{User: "ben", Chat: "c", Raise: tidemark.Raise{Acked: 1}},
				}); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if corruptTable(t, path, table, with) == 0 {
					t.Fatalf("%s has no page", table)
				}
				s, err := Open(t.Context(), Config{Path: path})
				if err != nil {
					wantCode(t, err, tidemark.Unavailable, path, "corrupt", "backup")
					return
				}
				defer s.Close()
				wantCode(t, touch(t, s), tidemark.Unavailable, "corrupt", "backup")
				wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "corrupt", "backup")
				// No write of any kind succeeds now.
				_, _, err = s.CreateChat(t.Context(), storage.NewChat{
					ID:      "other",
					Type:    tidemark.Group,
					Creator: "x",
					Members: []tidemark.UserID{"x"},
				})
				wantCode(t, err, tidemark.Unavailable, "corrupt", "backup")
			})
		}
	}
}

// touch reads all kinds of data, and writes. It returns the first error. A wrong answer before it
// fails the test.
func touch(t *testing.T, s *Store) error {
	t.Helper()
	pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 10}})
	if err != nil {
		return err
	}
	for i, m := range pages[0] {
		if m.Sequence != tidemark.Sequence(i+1) || m.Content != "hello" {
			t.Errorf("message %d is %+v", i+1, m)
		}
	}
	if len(pages[0]) != 3 {
		t.Errorf("the chat has %d messages, want 3", len(pages[0]))
	}
	states, err := s.States(t.Context(), []storage.StateKey{{User: "ben", Chat: "c"}})
	if err != nil {
		return err
	}
	if states[0].Acked != 1 {
		t.Errorf("ben's watermark is %d, want 1", states[0].Acked)
	}
	rosters, err := s.Rosters(t.Context(), []tidemark.ChatID{"c"})
	if err != nil {
		return err
	}
	if len(rosters[0].Members) != 2 {
		t.Errorf("%d members, want 2", len(rosters[0].Members))
	}
	appended, err := storage.AppendOne(t.Context(), s, draft("old1", "hello"))
	if err == nil && (appended.Message.Sequence != 2 || !appended.Duplicate) {
		t.Errorf("the second message, sent again, is %+v", appended)
	}
	return err
}

// A missing message is damage. Read from either side, it is never taken for a gap or for the end of
// the chat (delivery.md §2).
func TestRanges_hole_is_Unavailable(t *testing.T) {
	for _, sequence := range []int{1, 2, 3} {
		s, _ := openNew(t)
		for n := range 3 {
			send(t, s, fmt.Sprint(n))
		}
		if err := s.change(t.Context(), func(w *writer) error {
			return w.c.pragma(fmt.Sprint("DELETE FROM messages WHERE sequence = ", sequence))
		}); err != nil {
			t.Fatal(err)
		}
		for _, r := range []storage.Range{
			{Chat: "c", Limit: 10},
			{Chat: "c", Limit: 10, Before: 4},
			{Chat: "c", Limit: 10, Before: 100},
		} {
			got, err := s.Ranges(t.Context(), []storage.Range{r})
			if tidemark.CodeOf(err) != tidemark.Unavailable ||
				!strings.Contains(fmt.Sprint(err),
					fmt.Sprintf("message %d of chat c is missing", sequence)) {
				t.Errorf("without message %d, %+v: %v, %v", sequence, r, got, err)
			}
		}
		wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "corrupt")
	}
}

func TestOpen_damaged_files_say_what_to_do(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(path string) error
		words  []string
	}{
		{
			"truncated",
			func(path string) error { return os.Truncate(path, 3*4096) },
			[]string{"corrupt", "restore a backup"},
		},
		{
			"cut in the first page",
			func(path string) error { return os.Truncate(path, 1000) },
			[]string{"corrupt", "restore a backup"},
		},
		{
			"garbage",
			func(path string) error {
				return os.WriteFile(path, []byte(strings.Repeat("garbage ", 4096)), 0o600)
			},
			[]string{"corrupt", "restore a backup"},
		},
		{
			"a directory",
			func(path string) error { _ = os.Remove(path); return os.Mkdir(path, 0o700) },
			[]string{"opened"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := faultTemplate(t)
			if err := test.damage(path); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), Config{Path: path})
			if err == nil {
				s.Close()
			}
			wantCode(t, err, tidemark.Unavailable, append(test.words, path)...)
		})
	}
}

// If the files of a running server are moved away, writes fail, but confirmed data stays. When the
// files are moved back, the server works again.
func TestCommit_moved_file_is_Unavailable_and_recovers(t *testing.T) {
	for _, suffix := range []string{"", "-wal"} {
		s, path := openNew(t)
		send(t, s, "1")
		// The next commit checks the files.
		if err := s.change(t.Context(), func(w *writer) error {
			w.looked = time.Time{}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+suffix, path+".away"); err != nil {
			t.Fatal(err)
		}
		for _, replaced := range []bool{false, true} {
			if replaced {
				if err := os.WriteFile(path+suffix, []byte("something else"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := storage.AppendOne(t.Context(), s, draft("2", "hello"))
			wantCode(t, err, tidemark.Unavailable, path+suffix, "moved")
			wantCode(t, s.Check(t.Context()), tidemark.Unavailable, path+suffix, "moved")
		}
		wantGapless(t, s, 1)
		if err := os.Rename(path+".away", path+suffix); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check with the file back: %v", err)
		}
		send(t, s, "2")
		wantGapless(t, s, 2)
	}
}

// A message is not confirmed if the file that has it is no longer the database. If the file comes
// back, the message has one place in it.
func TestCommit_confirms_nothing_in_a_file_that_was_replaced(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("another database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first ones come before the next look at both files
		_, err := storage.AppendOne(t.Context(), s, draft("2", "hello"))
		wantCode(t, err, tidemark.Unavailable, path, "replaced")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if n := send(t, s, "2"); n != 2 {
		t.Errorf("the message got sequence %d, want 2", n)
	}
	wantGapless(t, s, 2)
}

func TestCheck_commit_that_does_not_end(t *testing.T) {
	s, _ := openNew(t)
	release := hold(t, s)
	defer release()
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check at once: %v", err)
	}
	wantCode(t, s.health.Trouble(time.Now().Add(health.StuckAfter)), tidemark.Unavailable,
		"not finished", "2 seconds")
}

// A caller whose time ends while other calls fail gets the reason.
func TestCommit_late_caller_is_told_the_reason(t *testing.T) {
	s, _, fs := openFaulty(t)
	fs.Arm(failing(vfstest.Write, "-wal", vfstest.Full))
	_, err := storage.AppendOne(t.Context(), s, draft("1", "hello"))
	wantCode(t, err, tidemark.Unavailable, "full")
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := storage.AppendOne(ctx, s, draft("2", "hello"))
		result <- err
	}()
	waitQueue(t, s, 1)
	cancel()
	wantCode(t, <-result, tidemark.Unavailable, "may still do it", "full")
	fs.Disarm()
	release()
}

// A checkpoint that does not end blocks all writes, as such a commit does.
func TestCheck_checkpoint_that_does_not_end(t *testing.T) {
	s, _, fs := openFaulty(t)
	send(t, s, "1")
	reached, released := make(chan struct{}), make(chan struct{})
	defer close(released)
	reach := sync.OnceFunc(func() { close(reached) })
	fs.Arm(func(c vfstest.Call) vfstest.Fault {
		if c.Op == vfstest.Sync && c.File == "" {
			reach()
			<-released
		}
		return vfstest.None
	})
	if err := s.change(t.Context(), func(w *writer) error {
		w.checkpointEvery, w.checkpointAt = 1, 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	<-reached
	if s.Committing() == 0 {
		t.Error("nothing is said to be under way")
	}
	wantCode(t, s.health.Trouble(time.Now().Add(health.StuckAfter)), tidemark.Unavailable,
		"not finished", "2 seconds")
}
