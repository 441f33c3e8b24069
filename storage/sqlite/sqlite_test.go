package sqlite

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/schema"
)

// openTest opens a database, and closes it at the end of the test.
func openTest(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatalf("Open(%q): %v", path, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// openNew opens an empty database with a chat "c" of anna and ben.
func openNew(t testing.TB) (s *Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tidemark.db")
	s = openTest(t, path)
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID:        "c",
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: time.UnixMilli(1),
		Creator:   "anna",
		Members:   []tidemark.UserID{"anna", "ben"},
	})
	if err != nil {
		t.Fatalf("CreateChat: %v", err)
	}
	return s, path
}

// draft returns a message from anna with a key.
func draft(key, content string) tidemark.Draft {
	return tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          "c",
		SenderID:        "anna",
		ClientMessageID: key,
		Content:         content,
		ContentType:     tidemark.DefaultContentType,
		MessageID:       tidemark.MessageID("m-" + key),
		CreatedAt:       time.UnixMilli(2),
	}
}

// send appends a message and returns its sequence.
func send(t testing.TB, s *Store, key string) tidemark.Sequence {
	t.Helper()
	appended, err := storage.AppendOne(context.Background(), s, draft(key, "hello"))
	if err != nil {
		t.Fatalf("Append(%s): %v", key, err)
	}
	return appended.Message.Sequence
}

func wantCode(t *testing.T, err error, want tidemark.Code, words ...string) {
	t.Helper()
	if got := tidemark.CodeOf(err); got != want {
		t.Fatalf("got error %v with code %q, want code %q", err, got, want)
	}
	for _, word := range words {
		if !strings.Contains(tidemark.DetailOf(err), word) {
			t.Errorf("the error says %q, want it to name %q", tidemark.DetailOf(err), word)
		}
	}
}

// wantGapless checks that the messages of the chat "c" are exactly 1..head (sequence_gapless).
func wantGapless(t *testing.T, s *Store, head tidemark.Sequence) {
	t.Helper()
	pages, err := s.Ranges(context.Background(), []storage.Range{{Chat: "c", Limit: 100_000}})
	if err != nil {
		t.Fatalf("Ranges: %v", err)
	}
	messages := pages[0]
	if got := tidemark.Sequence(len(messages)); got != head {
		t.Fatalf("got %d messages, want %d", got, head)
	}
	for i, m := range messages {
		if want := tidemark.Sequence(i + 1); m.Sequence != want {
			t.Fatalf("message %d has sequence %d", want, m.Sequence)
		}
	}
}

// hold keeps the writer busy inside a commit until release is called.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	held, released, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.change(context.Background(), func(*writer) error {
			close(held)
			<-released
			return nil
		})
	}()
	<-held
	return func() {
		close(released)
		if err := <-ended; err != nil {
			t.Errorf("the held commit: %v", err)
		}
	}
}

// waitQueue waits until n writes are queued behind a held writer.
func waitQueue(t *testing.T, s *Store, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); s.writes.Queued() != n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d writes are queued, want %d", s.writes.Queued(), n)
		}
	}
}

func TestCommit_concurrent_writes_share_one(t *testing.T) {
	s, _ := openNew(t)
	before := s.writer.commits.Load()
	release := hold(t, s)
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() { send(t, s, fmt.Sprint(i)) })
	}
	waitQueue(t, s, 64)
	release()
	group.Wait()
	if got := s.writer.commits.Load() - before; got != 1 {
		t.Errorf("64 queued appends took %d commits, want 1", got)
	}
	wantGapless(t, s, 64)
}

func TestCommit_equal_keys_of_one_batch_store_one_message(t *testing.T) {
	s, _ := openNew(t)
	release := hold(t, s)
	results := make(chan storage.Appended, 10)
	for range 10 {
		go func() {
			appended, err := storage.AppendOne(context.Background(), s, draft("same", "hello"))
			if err != nil {
				t.Errorf("Append: %v", err)
			}
			results <- appended
		}()
	}
	waitQueue(t, s, 10)
	release()
	first := 0
	for range 10 {
		if !(<-results).Duplicate {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d of 10 equal sends were the first one, want 1", first)
	}
	wantGapless(t, s, 1)
}

func TestCommit_nothing_to_write_costs_none(t *testing.T) {
	s, _ := openNew(t)
	send(t, s, "1")
	advance := []storage.Advance{
		{User: "ben", Chat: "c", Raise: tidemark.Raise{Acked: 1}, Now: time.UnixMilli(3)},
	}
	mark := []tidemark.PendingDelivery{{UserID: "ben", ChatID: "c", FirstUndelivered: 1}}
	if _, err := s.Advance(t.Context(), advance); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mark(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	before := s.writer.commits.Load()
	advanced, err := s.Advance(t.Context(), advance)
	if err != nil || advanced[0].Moved || advanced[0].State.Acked != 1 {
		t.Errorf("stale Advance: got %+v, %v", advanced, err)
	}
	if written, err := s.Mark(t.Context(), mark); err != nil || written[0] {
		t.Errorf("standing Mark: got %v, %v", written, err)
	}
	unknown := []storage.Clear{{User: "nobody", Chat: "c", Through: 1}}
	if cleared, err := s.Clear(t.Context(), unknown); err != nil || cleared[0] {
		t.Errorf("Clear of nothing: got %v, %v", cleared, err)
	}
	if _, err := storage.AppendOne(t.Context(), s, draft("1", "hello")); err != nil {
		t.Errorf("duplicate Append: %v", err)
	}
	if got := s.writer.commits.Load() - before; got != 0 {
		t.Errorf("calls with nothing to write took %d commits, want 0", got)
	}
}

func TestCommit_bad_item_fails_alone(t *testing.T) {
	s, _ := openNew(t)
	release := hold(t, s)
	var group sync.WaitGroup
	group.Go(func() { send(t, s, "1") })
	waitQueue(t, s, 1)
	group.Go(func() {
		err := s.change(context.Background(),
			func(w *writer) error { return w.c.exec("UPDATE chats SET name = NULL") })
		wantCode(t, err, tidemark.Internal)
	})
	waitQueue(t, s, 2)
	group.Go(func() { send(t, s, "2") })
	waitQueue(t, s, 3)
	release()
	group.Wait()
	wantGapless(t, s, 2)
}

func TestCommit_caller_who_gives_up_gets_Unavailable(t *testing.T) {
	s, _ := openNew(t)
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := storage.AppendOne(ctx, s, draft("1", "hello"))
		result <- err
	}()
	waitQueue(t, s, 1)
	cancel()
	wantCode(t, <-result, tidemark.Unavailable)
	release()
	if got := send(t, s, "1"); got != 1 {
		t.Errorf("the repeated send has sequence %d, want 1", got)
	}
	wantGapless(t, s, 1)
}

func TestCommit_full_database_is_Unavailable_and_recovers(t *testing.T) {
	s, _ := openNew(t)
	send(t, s, "1")
	pragma := func(text string) {
		t.Helper()
		err := s.change(t.Context(), func(w *writer) error { return w.c.pragma(text) })
		if err != nil {
			t.Fatal(err)
		}
	}
	pragma("PRAGMA max_page_count = 1")
	_, err := storage.AppendOne(t.Context(), s,
		draft("big", strings.Repeat("x", tidemark.MaxContent)))
	wantCode(t, err, tidemark.Unavailable, "full")
	// Check fails, although a small write would succeed.
	wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "full")
	wantGapless(t, s, 1)
	pragma("PRAGMA max_page_count = 1000000")
	if got := send(t, s, "2"); got != 2 {
		t.Errorf("the first send after the disk was full has sequence %d, want 2", got)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	wantGapless(t, s, 2)
}

// If a commit fails, the writer forgets what the call had stored. The next commit of any kind must
// not write the head of the failed one.
func TestCommit_full_database_in_the_middle_of_a_call_leaves_no_gap(t *testing.T) {
	s, _ := openNew(t)
	send(t, s, "1")
	pages := func(n int) {
		t.Helper()
		if err := s.change(t.Context(), func(w *writer) error {
			return w.c.pragma(fmt.Sprint("PRAGMA max_page_count = ", n))
		}); err != nil {
			t.Fatal(err)
		}
	}
	pages(1)
	appended, err := s.Append(t.Context(), []tidemark.Draft{
		draft("small", "hello"), draft("big", strings.Repeat("x", tidemark.MaxContent)),
	})
	if err == nil {
		for _, a := range appended {
			wantCode(t, a.Err, tidemark.Unavailable, "full")
		}
	} else {
		wantCode(t, err, tidemark.Unavailable, "full")
	}
	pages(1_000_000)
	wantGapless(t, s, 1)
	if got := send(t, s, "small"); got != 2 {
		t.Errorf("the first send after the disk was full has sequence %d, want 2", got)
	}
	wantGapless(t, s, 2)
}

func TestCommit_locked_database_is_Unavailable_and_recovers(t *testing.T) {
	s, path := openNew(t)
	if err := s.change(t.Context(), func(w *writer) error {
		w.c.BusyTimeout(10)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	other, err := open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if err := other.exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	_, err = storage.AppendOne(t.Context(), s, draft("1", "hello"))
	wantCode(t, err, tidemark.Unavailable, "locked")
	wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "locked")
	if err := other.exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check after the lock has gone: %v", err)
	}
	send(t, s, "1")
	wantGapless(t, s, 1)
}

// A copy of the files of a running server is like the result of a power cut: a database, and a log
// with an incomplete end.
func TestOpen_recovers_what_was_confirmed_before_a_crash(t *testing.T) {
	s, path := openNew(t)
	for i := range 100 {
		send(t, s, fmt.Sprint("before", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			// The messages are few, so that no checkpoint runs: copying two files during one would
			// mix two states.
			for n := 0; n < 50 && ctx.Err() == nil; n++ {
				// The end of the test may cancel it.
				_, _ = storage.AppendOne(ctx, s, draft(fmt.Sprint("while", i, "-", n), "hello"))
			}
		})
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		copyFile(t, path+suffix, copied+suffix)
	}
	cancel()
	group.Wait()
	again := openTest(t, copied)
	heads, err := again.Heads(t.Context(), []tidemark.ChatID{"c"})
	if err != nil {
		t.Fatal(err)
	}
	if heads[0] < 100 {
		t.Errorf("the copy ends at %d, want at least the 100 that were confirmed", heads[0])
	}
	wantGapless(t, again, heads[0])
	if got := send(t, again, "after"); got != heads[0]+1 {
		t.Errorf("the next message has sequence %d, want %d", got, heads[0]+1)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
}

func TestCheckpoint_log_goes_into_the_file(t *testing.T) {
	s, path := openNew(t)
	content := strings.Repeat("x", tidemark.MaxContent)
	for i := range checkpointFrames * schema.PageSize / tidemark.MaxContent * 2 {
		if _, err := storage.AppendOne(t.Context(), s, draft(fmt.Sprint(i), content)); err != nil {
			t.Fatal(err)
		}
	}
	for suffix, least := range map[string]int64{"": checkpointFrames * schema.PageSize, "-wal": 1} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() < least || info.Size() > 2*checkpointFrames*schema.PageSize {
			t.Errorf("tidemark.db%s has %d bytes, want between %d and %d",
				suffix, info.Size(), least, 2*checkpointFrames*schema.PageSize)
		}
	}
}
