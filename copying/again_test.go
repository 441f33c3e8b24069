package copying_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/copying"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

// TestCopy_copy_equal_ahead_steps: which calls a target takes, and what a new life of the source
// means.
func TestCopy_copy_equal_ahead_steps(t *testing.T) {
	w := newWorld(t, memories(), 1)
	w.begin()
	other := newWorld(t, memories(), 1)
	other.begin()
	begun, copied := memories(), memories()
	w.ahead(begun, quiet)
	w.move(copied)
	half := memories()
	w.kill(half, 9, false)
	for _, tt := range []struct {
		name string
		from *world
		to   copying.Store
		want string
	}{
		{"into itself", w, w.store, "are the same store"},
		{"into other data", w, other.store, "is not empty"},
		{"again", w, begun, ""},
		{"of another source", other, begun, "a copy of another source"},
		{"into a copy without it", w, half, "the last run of the copy has begun"},
		{"into a complete copy", w, copied, "the copy is complete"},
		{"from a part", &world{store: begun}, memories(), "is itself a copy"},
	} {
		c := copying.New(copying.Config{From: tt.from.store, To: tt.to, Clock: time.Now})
		err := c.Ahead(w.ctx)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil ||
			tidemark.CodeOf(err) != tidemark.Conflict || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestCopy_copy_equal_of_a_chat_that_expires: messages of a chat expire more quickly than they are
// read. That does not keep Ahead from the other chats.
func TestCopy_copy_equal_of_a_chat_that_expires(t *testing.T) {
	w := newWorld(t, memories(), 1)
	w.begin()
	for range 200 {
		d := w.draft("group", "u0")
		d.CreatedAt = began
		_, err := storage.AppendOne(w.ctx, w.store, d)
		w.ok(err)
	}
	to := stores.Open(t).(copying.Store)
	w.ahead(to, func() {
		_, err := w.store.Expire(w.ctx, "group", began.Add(time.Hour), 1)
		w.ok(err)
	})
	w.move(to)
	w.same("after a chat that expired", to)
}

// TestCopy_copy_equal_behind_another_copy: a call of Ahead is stopped for a while, in which the
// copy is completed. When it goes on, the copy stays complete.
func TestCopy_copy_equal_behind_another_copy(t *testing.T) {
	w := newWorld(t, memories(), 1)
	w.begin()
	to := stores.Open(t).(copying.Store)
	w.ahead(to, quiet)
	calls := 0
	from := w.busyBefore(func() {
		if calls++; calls == 9 {
			w.move(to)
		}
	})
	c := copying.New(copying.Config{From: from, To: to, Clock: time.Now, Workers: 1})
	if err := c.Ahead(w.ctx); tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("got error %v, want a Conflict", err)
	}
	w.ok(copying.Complete(w.ctx, to))
	w.same("at the end", to)
}

// TestCopy_copy_equal_of_a_new_life: a server of SQLite was killed after its data were copied
// ahead, so a new life has begun. The next run reads all chats, and drops those that are not there:
// the data may have been restored.
func TestCopy_copy_equal_of_a_new_life(t *testing.T) {
	t.Run("the last run", func(t *testing.T) { ofANewLife(t, false) })
	t.Run("Ahead, and the last run", func(t *testing.T) { ofANewLife(t, true) })
}

func ofANewLife(t *testing.T, again bool) {
	path := filepath.Join(t.TempDir(), "from.db")
	open := func() *sqlite.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open()
	w := newWorld(t, first, 1)
	w.begin()
	w.sends(nil)
	w.ok(first.Close())
	saved, err := os.ReadFile(path)
	w.ok(err)
	w = w.on(open(), 1)
	w.create(storage.NewChat{ID: "later", Type: tidemark.Group, Members: w.users, Creator: "u0"})
	w.sends(nil)
	to := stores.Open(t).(copying.Store)
	w.ahead(to, quiet)
	w.ok(w.store.Close())
	w.ok(os.WriteFile(path, saved, 0o600))
	w = w.on(open(), 1)
	w.chats = w.chats[:len(w.chats)-1]
	w.sends(nil)
	c := w.copier(to)
	if again {
		if r := w.ahead(to, quiet).Report(); r.Unchanged != 0 {
			t.Errorf("Ahead did not read %d chats", r.Unchanged)
		}
	}
	w.ok(c.Run(w.ctx))
	if r := c.Report(); again != (r.Unchanged == r.Chats) {
		t.Errorf("%d of %d chats were not read after Ahead ran again: %t", r.Unchanged, r.Chats,
			again)
	}
	w.same("of a new life", to)
	w.ok(w.store.Close())
}
