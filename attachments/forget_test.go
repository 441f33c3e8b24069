package attachments_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/storage"
)

// entriesOf is the kind of the entries of a user's files.
func entriesOf(user tidemark.UserID) string {
	sum := sha256.Sum256([]byte(user))
	return "attachments-of:" + hex.EncodeToString(sum[:])
}

// removeAll removes all files of a user, and returns how many calls that took.
func (w *world) removeAll(user tidemark.UserID) (calls int) {
	w.Helper()
	for done := false; !done; calls++ {
		var err error
		done, err = w.RemoveAll(w.Context(), user)
		w.ok(err)
	}
	return calls
}

// announce announces a file of a user.
func (w *world) announce(user tidemark.UserID) string {
	w.Helper()
	f, err := w.Announce(w.Context(), user, attachments.File{Name: "a", Type: "a/b", Size: 1})
	w.ok(err)
	return f.ID
}

// gone reports whether neither the record of a file nor its bytes are there.
func (w *world) gone(id string) bool {
	w.Helper()
	return w.documents("attachment:"+id) == 0 && !w.kept(id)
}

// TestRemove_erased_nowhere: the files of a user go with their bytes. Those of others stay, also if
// the user has named them.
func TestRemove_erased_nowhere(t *testing.T) {
	w := start(t)
	own, other := w.upload("alice"), w.upload("carol")
	text := json.RawMessage(fmt.Sprintf(`[{"s3_ref":%q},{"s3_ref":%q}]`, own, other))
	for range 2 { // A repetition changes nothing.
		w.ok(w.Remove(t.Context(), "alice", text))
		w.ok(w.Forget(t.Context(), "alice"))
	}
	if !w.gone(own) || !w.kept(other) {
		t.Errorf("own: %t, of another: %t; want only that of another", w.kept(own), w.kept(other))
	}
	if n := w.documents(entriesOf("alice")); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	w.ok(w.Remove(t.Context(), "alice", json.RawMessage(`[{"url":"x"}]`)))
}

// TestRemoveAll_erased_nowhere: the files of a user go in whatever state. Those of others stay.
func TestRemoveAll_erased_nowhere(t *testing.T) {
	away := func(call string) error {
		if call == "Remove" {
			return errors.New("away")
		}
		return nil
	}
	again := sendOf("bob")
	for _, c := range []struct {
		name string
		file func(w *world) string
	}{
		{"announced", func(w *world) string { return w.announce("alice") }},
		{"uploaded", func(w *world) string { return w.upload("alice") }},
		{"pinned by a send that failed", func(w *world) string {
			id := w.upload("alice")
			w.ok(w.pin("alice", []string{id}, nil))
			return id
		}},
		{"pinned by others, too", func(w *world) string {
			id := w.upload("alice")
			w.ok(w.pin("alice", []string{id}, nil))
			w.ok(w.Pin(t.Context(), again, []string{id}, []string{id}))
			return id
		}},
		{"of a message, after the sweep", func(w *world) string {
			w.ok(w.Sweep(t.Context()))
			id := w.upload("alice")
			w.ok(w.pin("alice", []string{id}, nil))
			w.send("alice")
			w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
			w.ok(w.Sweep(t.Context()))
			return id
		}},
		{"marked by a sweep that failed", func(w *world) string {
			w.ok(w.Sweep(t.Context()))
			id := w.upload("alice")
			w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
			w.bytes.before = away
			if w.Sweep(t.Context()) == nil {
				t.Error("the sweep did not fail")
			}
			w.bytes.before = nil
			return id
		}},
		{"marked by a removal that failed", func(w *world) string {
			id := w.upload("alice")
			w.bytes.before = away
			if _, err := w.RemoveAll(t.Context(), "alice"); err == nil {
				t.Error("the removal did not fail")
			}
			w.bytes.before = nil
			return id
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t)
			file := c.file(w)
			other := w.upload("carol")
			for range 2 { // A repetition changes nothing.
				w.removeAll("alice")
			}
			if !w.gone(file) || !w.kept(other) || w.documents(entriesOf("alice")) != 0 {
				t.Errorf("the file is gone: %t, that of another stays: %t, and %d entries are left",
					w.gone(file), w.kept(other), w.documents(entriesOf("alice")))
			}
			w.code(w.pin("alice", []string{file}, nil), tidemark.Denied)
		})
	}
}

// TestRemoveAll_removes_in_pages: a call is bounded, however many files a user has.
func TestRemoveAll_removes_in_pages(t *testing.T) {
	w := start(t)
	var files []string
	for range 201 {
		files = append(files, w.announce("alice"))
	}
	if calls := w.removeAll("alice"); calls != 3 {
		t.Errorf("it took %d calls, want 3 of 100 files", calls)
	}
	if slices.ContainsFunc(files, func(id string) bool { return !w.gone(id) }) {
		t.Error("files are left")
	}
}

var errKilled = errors.New("the test kills it")

// killed is a store and a place of files of a process that ends at its n-th write: nothing happens
// any more. If after is set, the n-th write happens, and its answer is lost.
type killed struct {
	asking
	attachments.Bytes
	left  int
	after bool
	// kinds are those of the documents that were written.
	kinds []string
}

func (k *killed) write(do func() error) error {
	if k.left--; k.left > 0 {
		return do()
	}
	if k.left == 0 && k.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errKilled
}

func (k *killed) PutDocument(
	ctx context.Context, d storage.Document,
) (version uint64, err error) {
	err = k.write(func() error {
		k.kinds = append(k.kinds, d.Kind)
		version, err = k.asking.PutDocument(ctx, d)
		return err
	})
	return version, err
}

func (k *killed) Remove(ctx context.Context, id string) error {
	return k.write(func() error { return k.Bytes.Remove(ctx, id) })
}

// TestRemoveAll_erased_nowhere_after_a_kill: a process ends before or after each write of an
// announcement, of a sweep and of a removal. The next removal leaves nothing of the user.
func TestRemoveAll_erased_nowhere_after_a_kill(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(w *world, a *attachments.Attachments) error
		kills int
	}{
		{"announcement", func(w *world, a *attachments.Attachments) error {
			_, err := a.Announce(w.Context(), "alice", attachments.File{
				Name: "a", Type: "a/b", Size: 1,
			})
			return err
		}, 4},
		{"sweep", func(w *world, a *attachments.Attachments) error {
			// The sweep comes to the hour before that of the file, and the killed one to the file.
			w.now = w.now.Add(attachments.OrphanAfter + time.Hour)
			w.ok(w.Sweep(w.Context()))
			w.now = w.now.Add(2 * time.Hour)
			return a.Sweep(w.Context())
		}, 5},
		{"removal", func(w *world, a *attachments.Attachments) error {
			_, err := a.RemoveAll(w.Context(), "alice")
			return err
		}, 4},
	} {
		kills := 0
		for n, whole := 1, false; !whole; n++ {
			for _, after := range []bool{false, true} {
				w := start(t)
				w.ok(w.Sweep(t.Context()))
				file := w.upload("alice")
				k := &killed{asking: asking{w.store, w}, Bytes: w.bytes, left: n, after: after}
				err := c.do(w, attachments.New(attachments.Config{
					Store: k, Bytes: k, Now: func() time.Time { return w.now },
				}))
				if whole = err == nil; !whole {
					kills++
				}
				w.removeAll("alice")
				what := fmt.Sprintf("%s, write %d, after %t", c.name, n, after)
				if !w.gone(file) {
					t.Errorf("%s: the file is left", what)
				}
				w.nothingOf("alice", what, k.kinds)
			}
		}
		if kills < 2*c.kills {
			t.Errorf("%s: %d kills, want at least %d", c.name, kills, 2*c.kills)
		}
	}
}

// nothingOf checks that the documents of some kinds have no file of a user, and no entry of one.
func (w *world) nothingOf(user tidemark.UserID, what string, kinds []string) {
	w.Helper()
	for _, kind := range append(kinds, entriesOf(user)) {
		entry := strings.HasPrefix(kind, "attachment:") || kind == entriesOf(user)
		if n := w.documents(kind); entry && n != 0 {
			w.Errorf("%s: %d documents %s are left", what, n, kind)
		}
	}
}

// TestSweep_erased_nowhere_after_a_late_upload: a URL outlives the file. The bytes that come by it
// are removed with the orphans.
func TestSweep_erased_nowhere_after_a_late_upload(t *testing.T) {
	w := start(t)
	w.ok(w.Sweep(t.Context()))
	content := []byte("a file of alice")
	signed, err := w.Announce(t.Context(), "alice", attachments.File{
		Name: "a.txt", Type: "text/plain", Size: int64(len(content)), Sum: sha256.Sum256(content),
	})
	w.ok(err)
	w.removeAll("alice")
	address, err := url.Parse(signed.URL)
	w.ok(err)
	w.ok(w.dir.Receive(dir.Put{
		ID: signed.ID, Grant: address.Query().Get("grant"), Type: signed.Type,
		Length: signed.Size, Body: bytes.NewReader(content),
	}))
	w.now = w.now.Add(attachments.OrphanAfter + 4*time.Hour)
	w.ok(w.Sweep(t.Context()))
	if !w.gone(signed.ID) {
		t.Error("the late bytes are left")
	}
}
