package dynamodb

import (
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// If a draft's key names a lost message, the draft fails alone. A client that sends it again and
// again does not delay other clients.
func TestAppend_key_without_its_message_fails_alone(t *testing.T) {
	s := openTest(t, newTables(t))
	createGroup(t, s, "c", "anna")
	all := drafts("c", "anna", 3, "a")
	putAll(t, s, record.Keys, 1, func(int) call.Item {
		return call.Item{
			"id": call.Text("c|anna|" + all[1].ClientMessageID), "sequence": call.Number(77),
			"message_id": call.Text("lost"), "expires_at": call.Number(int64(1) << 40),
		}
	})
	appended, err := s.Append(t.Context(), all)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	wantRefused(t, "the draft",
		appended[1].Err, tidemark.Unavailable, "message 77 of chat c is missing")
	for n, i := range []int{0, 2} {
		if got := appended[i]; got.Err != nil || got.Message.Sequence != tidemark.Sequence(n+1) {
			t.Errorf("draft %d: sequence %d, error %v, want %d",
				i, got.Message.Sequence, got.Err, n+1)
		}
	}
}
