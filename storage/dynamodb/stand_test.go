package dynamodb

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestStand_while_somebody_else_adds_a_new_member: a change writes the standing rows of a chat that
// becomes Large. Meanwhile another call adds one of its new members. One batch names no user twice,
// since DynamoDB refuses that. A user in the call who was a member before also gets a row.
func TestStand_while_somebody_else_adds_a_new_member(t *testing.T) {
	s, now := openTest(t, newTables(t)), time.Now()
	const chat = tidemark.ChatID("c")
	const old, early, late = tidemark.UserID("a"), tidemark.UserID("b"), tidemark.UserID("d")
	if _, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID:        chat,
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: now,
		Creator:   old,
		Members:   []tidemark.UserID{old},
	}); err != nil {
		t.Fatalf("CreateChat: %v", err)
	}
	a := &adding{
		caller: s.caller("add_members"),
		chat:   chat,
		users:  []tidemark.UserID{old, early, late},
		at:     now,
		token:  rand.Text(),
	}
	seen, err := a.Look(t.Context(), chat, a.users)
	if err != nil {
		t.Fatalf("Look: %v", err)
	}
	join, _, err := a.joiners(seen)
	if err != nil || len(join) != 2 {
		t.Fatalf("%d joiners, %v, want 2", len(join), err)
	}
	if _, err := s.AddMembers(t.Context(), chat, []tidemark.UserID{early}, tidemark.Ordinary,
		now); err != nil {
		t.Fatalf("AddMembers: %v", err)
	}
	// seen is older than that addition. RosterAt reads the counter again.
	if err := a.stand(t.Context(), seen, join); err != nil {
		t.Errorf("stand: %v", err)
	}
	for _, user := range a.users {
		rows, _, err := s.PendingOf(t.Context(), user, "", 10)
		if err != nil || len(rows) != 1 || rows[0].FirstUndelivered != 0 {
			t.Errorf("%s has the rows %v, %v, want one that stands", user, rows, err)
		}
	}
}
