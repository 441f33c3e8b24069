package dynamodb

import (
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// importing creates a group that is being imported, with one message.
func importing(t *testing.T, s *Store, id tidemark.ChatID, member tidemark.UserID) {
	t.Helper()
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: id, State: tidemark.ChatImporting, Type: tidemark.Group,
		History: tidemark.HistoryFull, CreatedAt: time.UnixMilli(1),
		Members: []tidemark.UserID{member},
	})
	if err != nil {
		t.Fatal(err)
	}
	moved := draft(id, member, "moved")
	moved.Importing = true
	if _, err := storage.AppendOne(t.Context(), s, moved); err != nil {
		t.Fatal(err)
	}
}

// The importer ends, and a process that has seen the chat before takes the messages of its users.
func TestAppend_after_an_import_that_another_process_ended(t *testing.T) {
	url := newTables(t)
	s, other := openTest(t, url), openTest(t, url)
	importing(t, s, "c", "anna")
	if err := other.FinishImport(t.Context(), "c", time.UnixMilli(2)); err != nil {
		t.Fatal(err)
	}
	send(t, s, "c", "anna", "first", 2)
	moved := draft("c", "anna", "too late")
	moved.Importing = true
	_, err := storage.AppendOne(t.Context(), s, moved)
	if tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("a message of an importer: %v", err)
	}
}
