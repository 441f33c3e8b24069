package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestAppend_of_more_senders_than_are_cached_keeps_unread_exact: in one commit, more users send
// than the writer remembers, and then the first of them again.
func TestAppend_of_more_senders_than_are_cached_keeps_unread_exact(t *testing.T) {
	s, _ := openNew(t)
	users := make([]tidemark.UserID, maxSenders)
	for i := range users {
		users[i] = tidemark.UserID(fmt.Sprintf("u%d", i))
	}
	if _, err := s.AddMembers(t.Context(), "c", users, tidemark.Ordinary,
		time.UnixMilli(2)); err != nil {
		t.Fatal(err)
	}
	var drafts []tidemark.Draft
	for i, user := range append(append([]tidemark.UserID{"anna"}, users...), "anna") {
		d := draft(fmt.Sprint(i), "hello")
		d.SenderID = user
		drafts = append(drafts, d)
	}
	if _, err := s.Append(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	counts, err := s.Unread(t.Context(), []storage.StateKey{{User: "anna", Chat: "c"}})
	if err != nil || counts[0].Messages != maxSenders {
		t.Errorf("got %v, %v, want the messages of the others", counts, err)
	}
}
