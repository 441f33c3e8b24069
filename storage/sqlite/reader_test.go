package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestOpenReader_copy_equal_beside_a_server reads a database while a store has it open and writes.
// The store does not notice: its life goes on, also if it ends while the reader is open.
func TestOpenReader_copy_equal_beside_a_server(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	ctx := t.Context()
	if _, err := OpenReader(ctx, Config{Path: path}); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("without a database: got error %v, want NotFound", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the reader has made a file")
	}
	s := openAt(t, path)
	_, _, err := s.CreateChat(ctx, storage.NewChat{
		ID: "c", Type: tidemark.Group, History: tidemark.HistoryFull,
		Members: []tidemark.UserID{"anna"}, Creator: "anna",
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(ctx, Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	head := func() tidemark.Sequence {
		t.Helper()
		heads, err := r.Heads(ctx, []tidemark.ChatID{"c"})
		if err != nil {
			t.Fatal(err)
		}
		return heads[0]
	}
	for want := tidemark.Sequence(1); want <= 3; want++ {
		send(t, s, fmt.Sprint(want))
		if got := head(); got != want {
			t.Errorf("the reader sees the head %d, want %d", got, want)
		}
	}
	name := "another"
	if _, err := r.UpdateChat(ctx, "c", storage.ChatChange{Name: &name}); tidemark.CodeOf(err) !=
		tidemark.Conflict {
		t.Errorf("a write: got error %v, want Conflict", err)
	}
	if err := r.Check(ctx); err != nil {
		t.Error(err)
	}
	life := s.Incarnation()
	if r.Incarnation() != life {
		t.Errorf("the reader has the incarnation %s, want %s", r.Incarnation(), life)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := head(); got != 3 {
		t.Errorf("after the end of the store, the reader sees the head %d, want 3", got)
	}
	again := openAt(t, path)
	if got := again.Incarnation(); got != life {
		t.Errorf("the next store has the incarnation %s, want %s", got, life)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if last := openAt(t, path); last.Incarnation() != life {
		t.Errorf("the last store has the incarnation %s, want %s", last.Incarnation(), life)
	}
}
