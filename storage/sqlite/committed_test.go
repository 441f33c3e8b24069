package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestCommitted_says_what_each_commit_stored: Committed gets the messages and raises of each
// commit, without duplicates and stale raises. It is not called for transactions that wrote
// nothing.
func TestCommitted_says_what_each_commit_stored(t *testing.T) {
	type commit struct{ Sends, Acks int }
	var got []commit
	s, err := Open(t.Context(), Config{
		Path: filepath.Join(t.TempDir(), "a.db"),
		Committed: func(sends, acks int, took time.Duration) {
			if took <= 0 {
				t.Errorf("a commit took %v", took)
			}
			got = append(got, commit{sends, acks})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	advance := func(users ...tidemark.UserID) {
		advances := make([]storage.Advance, len(users))
		for i, user := range users {
			advances[i] = storage.Advance{
				User:  user,
				Chat:  "c",
				Raise: tidemark.Raise{Acked: 2},
				Now:   time.UnixMilli(5),
			}
		}
		if _, err := s.Advance(t.Context(), advances); err != nil {
			t.Error(err)
		}
	}
	_, _, err = s.CreateChat(t.Context(), storage.NewChat{
		ID:        "c",
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: time.UnixMilli(1),
		Creator:   "anna",
		Members:   []tidemark.UserID{"anna", "ben"},
	})
	if err != nil {
		t.Fatal(err)
	}
	drafts := []tidemark.Draft{draft("1", "a"), draft("2", "b"), draft("2", "b")}
	if _, err := s.Append(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	advance("anna", "ben")
	advance("ben")
	send(t, s, "3")
	if err := s.Close(); err != nil { // waits for the goroutine that writes, which appends to got
		t.Fatal(err)
	}
	want := []commit{{0, 0}, {2, 0}, {0, 2}, {1, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
