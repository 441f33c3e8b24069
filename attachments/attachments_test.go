package attachments_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// world has files, and a clock that the test moves.
type world struct {
	*testing.T
	*attachments.Attachments
	store *memory.Store
	dir   *dir.Dir
	bytes *gate
	now   time.Time
	// asked, if not nil, is called after the sweep has asked for a message.
	asked func()
}

// asking is a store of which a test sees when it is asked for a message.
type asking struct {
	*memory.Store
	w *world
}

func (s asking) Sent(
	ctx context.Context, key storage.SendKey,
) (storage.Appended, bool, error) {
	appended, found, err := s.Store.Sent(ctx, key)
	if s.w.asked != nil {
		s.w.asked()
	}
	return appended, found, err
}

// gate is a place of files. before, if not nil, runs before a call.
type gate struct {
	attachments.Bytes
	before func(call string) error
}

func (g *gate) Stored(ctx context.Context, f *attachments.File) (bool, error) {
	if err := g.call("Stored"); err != nil {
		return false, err
	}
	return g.Bytes.Stored(ctx, f)
}

func (g *gate) Remove(ctx context.Context, id string) error {
	if err := g.call("Remove"); err != nil {
		return err
	}
	return g.Bytes.Remove(ctx, id)
}

func (g *gate) call(name string) error {
	if g.before == nil {
		return nil
	}
	return g.before(name)
}

func start(t *testing.T) *world {
	t.Helper()
	files, err := dir.New(t.TempDir(), attachmentstest.Base)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		T: t, store: memory.New(), dir: files, bytes: &gate{Bytes: files}, now: time.Now(),
	}
	w.Attachments = attachments.New(attachments.Config{
		Store: asking{w.store, w}, Bytes: w.bytes, Now: func() time.Time { return w.now },
	})
	return w
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) code(err error, want tidemark.Code) {
	w.Helper()
	if got := tidemark.CodeOf(err); got != want {
		w.Errorf("got %v, want %s", err, want)
	}
}

// upload uploads a file of a user.
func (w *world) upload(user tidemark.UserID) string {
	w.Helper()
	return attachmentstest.Put(w, w.Attachments, w.dir, user)
}

// sendOf is a send of a user.
func sendOf(user tidemark.UserID) storage.SendKey {
	return storage.SendKey{Chat: "c", Sender: user, ClientMessageID: "first"}
}

// pin pins files for sendOf.
func (w *world) pin(user tidemark.UserID, files, seen []string) error {
	return w.Pin(w.Context(), sendOf(user), files, seen)
}

// send stores the message of sendOf.
func (w *world) send(user tidemark.UserID) {
	w.Helper()
	_, _, err := w.store.CreateChat(w.Context(), storage.NewChat{
		ID: "c", Type: tidemark.Group, Creator: user, Members: []tidemark.UserID{user},
		CreatedAt: w.now,
	})
	w.ok(err)
	_, err = storage.AppendOne(w.Context(), w.store, tidemark.Draft{
		ChatID: "c", SenderID: user, ClientMessageID: "first", Content: "a picture",
		ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage, MessageID: "m",
		CreatedAt: w.now,
	})
	w.ok(err)
}

// kept reports whether the bytes of a file are there.
func (w *world) kept(id string) bool {
	w.Helper()
	there, err := w.dir.Stored(w.Context(), &attachments.File{
		ID: id, Size: int64(len("a file of alice")),
	})
	w.ok(err)
	return there
}

// documents returns how many documents of a kind there are.
func (w *world) documents(kind string) int {
	w.Helper()
	found, _, err := w.store.Documents(w.Context(), kind, "", 1000)
	w.ok(err)
	return len(found)
}

func TestPin_no_file_outside_membership(t *testing.T) {
	w := start(t)
	mine, other := w.upload("alice"), w.upload("bob")
	w.code(w.pin("alice", []string{other}, nil), tidemark.Denied)
	w.code(w.pin("alice", []string{mine, other}, []string{mine}), tidemark.Denied)
	for _, unknown := range []string{
		"x", "../x", strings.Repeat("A", 26), strings.Repeat("A", 128), strings.ToLower(mine),
	} {
		w.code(w.pin("alice", []string{unknown}, []string{unknown}), tidemark.Denied)
	}
	if _, err := w.Open(t.Context(), "alice", mine); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("a file that no message names is opened: %v", err)
	}
	w.ok(w.pin("alice", []string{mine, other}, []string{"x", other}))
	w.ok(w.pin("bob", []string{other}, nil))
	got, err := w.Open(t.Context(), "alice", other)
	w.ok(err)
	if got.Name != "a.txt" || got.Expires.Sub(w.now) > attachments.DownloadWithin {
		t.Errorf("got %+v", got)
	}
	if n := w.Counters()["attachments_pinned_total"]; n != 2 {
		t.Errorf("%d files were pinned, want 2", n)
	}
}

func TestPin_R_PIN_needs_the_bytes(t *testing.T) {
	w := start(t)
	announced, err := w.Announce(t.Context(), "alice", attachments.File{
		Name: "a", Type: "a/b", Size: 1,
	})
	w.ok(err)
	w.code(w.pin("alice", []string{announced.ID}, nil), tidemark.Invalid)
	_, err = w.Open(t.Context(), "alice", announced.ID)
	w.code(err, tidemark.NotFound)
	w.bytes.before = func(string) error {
		return tidemark.Errorf(tidemark.Unavailable, "the disk is away")
	}
	w.code(w.pin("alice", []string{w.upload("alice")}, nil), tidemark.Unavailable)
}

func TestSweep_R_PIN_removes_orphans_only(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	orphan, named := w.upload("alice"), w.upload("alice")
	w.ok(w.pin("alice", []string{named}, nil))
	w.send("alice")
	w.now = w.now.Add(attachments.OrphanAfter)
	w.ok(w.Sweep(t.Context()))
	if !w.kept(orphan) {
		t.Error("a file was removed early")
	}
	w.now = w.now.Add(4 * time.Hour)
	w.ok(w.Sweep(t.Context()))
	if w.kept(orphan) || !w.kept(named) {
		t.Errorf("the orphan is there: %t, the named file: %t", w.kept(orphan), w.kept(named))
	}
	w.code(w.pin("alice", []string{orphan}, nil), tidemark.Denied)
	_, err := w.Open(t.Context(), "alice", named)
	w.ok(err)
	if n := w.documents("attachment:" + orphan); n != 0 {
		t.Errorf("%d documents of the orphan are left", n)
	}
	if n := w.documents("attachment:" + named); n != 1 {
		t.Errorf("%d documents of the named file", n)
	}
	// What users had announced is forgotten, too.
	w.now = w.now.Add(72 * time.Hour)
	w.ok(w.Sweep(t.Context()))
	day := w.now.Add(-76*time.Hour - attachments.OrphanAfter).UTC()
	for _, kind := range []string{
		"uploaded:" + day.Format("2006-01-02"), "uploads:" + day.Format("2006-01-02T15"),
	} {
		if n := w.documents(kind); n != 0 {
			t.Errorf("%d documents of the kind %s are left", n, kind)
		}
	}
}

// TestSweep_R_PIN_removes_files_of_sends_that_failed: the only send that named a file has stored no
// message. A file that was named twice stays, and one that was named lately waits for a day.
func TestSweep_R_PIN_removes_files_of_sends_that_failed(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	failed, twice, lately := w.upload("alice"), w.upload("alice"), w.upload("alice")
	again := sendOf("alice")
	again.ClientMessageID = "second"
	w.ok(w.pin("alice", []string{failed, twice, lately}, nil))
	w.ok(w.Pin(t.Context(), again, []string{twice}, nil))
	w.now = w.now.Add(attachments.OrphanAfter)
	w.ok(w.pin("alice", []string{lately}, nil))
	w.now = w.now.Add(4 * time.Hour)
	w.ok(w.Sweep(t.Context()))
	if w.kept(failed) || !w.kept(twice) || !w.kept(lately) {
		t.Errorf("failed %t, twice %t, lately %t", w.kept(failed), w.kept(twice), w.kept(lately))
	}
	w.code(w.Pin(t.Context(), again, []string{failed}, nil), tidemark.Denied)
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.ok(w.Sweep(t.Context()))
	if !w.kept(twice) || w.kept(lately) {
		t.Errorf("a day later: twice %t, lately %t", w.kept(twice), w.kept(lately))
	}
}

// TestSweep_R_PIN_against_a_repeated_send lets a send be repeated while the sweep asks for its
// message. The file stays, since the repetition is about to store the message.
func TestSweep_R_PIN_against_a_repeated_send(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	file := w.upload("alice")
	w.ok(w.pin("alice", []string{file}, nil))
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.asked = func() {
		w.asked = nil
		w.ok(w.pin("alice", []string{file}, nil))
	}
	w.ok(w.Sweep(t.Context()))
	if w.asked != nil || !w.kept(file) {
		t.Errorf("the file is there: %t", w.kept(file))
	}
	w.send("alice")
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.ok(w.Sweep(t.Context()))
	if !w.kept(file) {
		t.Error("the file of a stored message was removed")
	}
}

// TestSweep_R_PIN_goes_on_after_a_failure: a file whose removal fails cannot be pinned any more,
// and keeps no other file. A day later it is removed.
func TestSweep_R_PIN_goes_on_after_a_failure(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	orphans := []string{w.upload("alice"), w.upload("alice"), w.upload("alice")}
	w.now = w.now.Add(time.Hour)
	orphans = append(orphans, w.upload("alice"))
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	away := errors.New("away")
	left := 1
	w.bytes.before = func(call string) error {
		if call == "Remove" && left > 0 {
			left--
			return away
		}
		return nil
	}
	if err := w.Sweep(t.Context()); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
	kept := slices.DeleteFunc(slices.Clone(orphans), func(id string) bool { return !w.kept(id) })
	if len(kept) != 1 {
		t.Fatalf("%d files are left, want 1", len(kept))
	}
	w.code(w.pin("alice", kept, nil), tidemark.Invalid)
	w.ok(w.Sweep(t.Context()))
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.ok(w.Sweep(t.Context()))
	if w.kept(kept[0]) || w.documents("attachment:"+kept[0]) != 0 {
		t.Error("the orphan is left")
	}
}

// TestSweep_ends_while_nothing_can_be_removed: it does not ask a place that is away for all files.
func TestSweep_ends_while_nothing_can_be_removed(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	var orphans []string
	for range 60 {
		orphans = append(orphans, w.upload("alice"))
	}
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	asked := 0
	w.bytes.before = func(call string) error {
		if call == "Remove" {
			asked++
			return errors.New("away")
		}
		return nil
	}
	if err := w.Sweep(t.Context()); err == nil || asked > 21 {
		t.Errorf("got %v, after %d files", err, asked)
	}
	w.bytes.before = nil
	w.ok(w.Sweep(t.Context()))
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.ok(w.Sweep(t.Context()))
	if slices.ContainsFunc(orphans, w.kept) {
		t.Error("files are left")
	}
}

// TestPin_R_PIN_against_the_sweep lets sends and sweeps meet, many times. Of a file that was pinned
// the bytes stay.
func TestPin_R_PIN_against_the_sweep(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	var files []string
	for range 30 {
		files = append(files, w.upload("alice"))
	}
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	var sweeping sync.WaitGroup
	for range 2 {
		sweeping.Go(func() {
			if err := w.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	var pinned []string
	for _, id := range slices.Backward(files) {
		if w.pin("alice", []string{id}, nil) == nil {
			pinned = append(pinned, id)
		}
	}
	sweeping.Wait()
	for _, id := range files {
		if want := slices.Contains(pinned, id); w.kept(id) != want {
			t.Errorf("the file is there: %t, and was pinned: %t", !want, want)
		}
	}
	t.Logf("%d of %d were pinned", len(pinned), len(files))
}

// TestPin_R_PIN_not_while_it_is_removed stops a send between its look at the bytes and its pin.
func TestPin_R_PIN_not_while_it_is_removed(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	orphan := w.upload("alice")
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.bytes.before = func(call string) error {
		w.bytes.before = nil
		if call != "Stored" {
			return fmt.Errorf("%s came first", call)
		}
		// The sweep takes the file, and fails to remove its bytes: they are still there.
		w.bytes.before = func(string) error { return errors.New("away") }
		if err := w.Sweep(t.Context()); err == nil {
			return errors.New("the sweep did not fail")
		}
		w.bytes.before = nil
		return nil
	}
	w.code(w.pin("alice", []string{orphan}, nil), tidemark.Invalid)
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.ok(w.Sweep(t.Context()))
	if w.kept(orphan) {
		t.Error("the orphan is left")
	}
}

func TestAnnounce_bounded_use_of_a_day(t *testing.T) {
	w := start(t)
	file := attachments.File{Name: "a", Type: "a/b", Size: attachments.MaxSize}
	for range attachments.MaxUserDay / attachments.MaxSize {
		_, err := w.Announce(t.Context(), "alice", file)
		w.ok(err)
	}
	_, err := w.Announce(t.Context(), "alice", file)
	w.code(err, tidemark.Exhausted)
	_, err = w.Announce(t.Context(), "bob", file)
	w.ok(err)
	// Small files count as 64 KiB, and fill what is left.
	small, announced := attachments.File{Name: "a", Type: "a/b", Size: 1}, 0
	for ; err == nil && announced < 1000; announced++ {
		_, err = w.Announce(t.Context(), "alice", small)
	}
	if most := attachments.MaxUserDay % attachments.MaxSize / (64 << 10); announced != most+1 {
		t.Errorf("%d small files were announced, want %d: %v", announced-1, most, err)
	}
	w.now = w.now.Add(24 * time.Hour)
	_, err = w.Announce(t.Context(), "alice", file)
	w.ok(err)
}

func TestAnnounce_bounded_input(t *testing.T) {
	w := start(t)
	good := attachments.File{Name: "a", Type: "a/b", Size: 1}
	for name, change := range map[string]func(*attachments.File){
		"no name":          func(f *attachments.File) { f.Name = "" },
		"long name":        func(f *attachments.File) { f.Name = strings.Repeat("a", 256) },
		"path":             func(f *attachments.File) { f.Name = "../a" },
		"path of Windows":  func(f *attachments.File) { f.Name = `..\a` },
		"directory":        func(f *attachments.File) { f.Name = "." },
		"directory above":  func(f *attachments.File) { f.Name = ".." },
		"line":             func(f *attachments.File) { f.Name = "a\r\nb" },
		"other direction":  func(f *attachments.File) { f.Name = "a\u202egnp.exe" },
		"not UTF-8":        func(f *attachments.File) { f.Name = "a\xff" },
		"no type":          func(f *attachments.File) { f.Type = "" },
		"half a type":      func(f *attachments.File) { f.Type = "image" },
		"lines in a type":  func(f *attachments.File) { f.Type = "a/b\r\nX: y" },
		"no size":          func(f *attachments.File) { f.Size = 0 },
		"a negative size":  func(f *attachments.File) { f.Size = -1 },
		"more than 100MiB": func(f *attachments.File) { f.Size = attachments.MaxSize + 1 },
	} {
		f := good
		change(&f)
		want := tidemark.Invalid
		if f.Size > attachments.MaxSize {
			want = tidemark.TooLarge
		}
		if _, err := w.Announce(t.Context(), "alice", f); tidemark.CodeOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.Counters()["attachments_announced_total"]; n != 0 {
		t.Errorf("%d files were announced", n)
	}
	for _, name := range []string{"می\u200cخواهم.txt", "👩\u200d💻.png", "..a", "a"} {
		f := good
		f.Name = name
		if _, err := w.Announce(t.Context(), "alice", f); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
