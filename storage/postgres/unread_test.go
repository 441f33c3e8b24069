package postgres

import (
	"testing"

	"github.com/tidemark-im/tidemark"
)

// TestAppend_notes_in_the_step_of_the_message_so_that_unread_is_exact: a line of the system cannot
// be noted. Then it is not stored either.
func TestAppend_notes_in_the_step_of_the_message_so_that_unread_is_exact(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("INSERT INTO uncounted SELECT key, 1, 1 FROM chats WHERE id = 'c'")
	line := message("c", "anna", "key", "anna has joined")
	line.Kind = tidemark.KindSystem
	result := sent(s, line)
	r.commit()
	if got := <-result; got.err == nil && got.Err == nil {
		t.Errorf("got %+v, want an error", got)
	}
	heads, err := s.Heads(t.Context(), []tidemark.ChatID{"c"})
	if err != nil || heads[0] != 0 {
		t.Errorf("the chat ends at %v, %v, want no message", heads, err)
	}
}
