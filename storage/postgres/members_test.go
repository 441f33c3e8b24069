package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// RemoveMember waits for a Mark that is under way, and removes its row too. Otherwise the row would
// exist when the user comes back.
func TestRemoveMember_row_that_is_marked_meanwhile_goes(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("INSERT INTO pending_deliveries VALUES ('ben', 'c', 1)")
	result := make(chan error, 1)
	go func() {
		_, err := s.RemoveMember(t.Context(), "c", "ben", time.UnixMilli(3))
		result <- err
	}()
	r.commit()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if rows, _, err := s.PendingOf(t.Context(), "ben", "", 10); err != nil || len(rows) != 0 {
		t.Errorf("the user left, and has the rows %+v, %v", rows, err)
	}
}

// TestRosters_bounded_use_reads_a_chat_once: acknowledgements of a group may ask for its roster
// thousands of times in one call. Read each time, this would be 20 million rows.
func TestRosters_bounded_use_reads_a_chat_once(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("COMMIT")
	group := storage.NewChat{
		ID: "group", Type: tidemark.Group, History: tidemark.HistoryFull,
		CreatedAt: time.UnixMilli(1), Creator: "u0",
	}
	for n := range 2_000 {
		group.Members = append(group.Members, tidemark.UserID(fmt.Sprint("u", n)))
	}
	if _, _, err := s.CreateChat(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	ids := slices.Repeat([]tidemark.ChatID{"group"}, storage.MaxBatch)
	ids[1], ids[2] = "c", "unknown"
	rosters, err := s.Rosters(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]int{0: 2_000, 1: 2, 3: 2_000, len(ids) - 1: 2_000} {
		if rosters[i] == nil || len(rosters[i].Members) != want {
			t.Errorf("roster %d: got %v, want %d members", i, rosters[i], want)
		}
	}
	if rosters[2] != nil {
		t.Errorf("of an unknown chat, got %v", rosters[2])
	}
}

// TestRosters_bounded_use_damage_stays_alone: calls share a statement.
func TestRosters_bounded_use_damage_stays_alone(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("COMMIT")
	r.do("UPDATE members SET intervals = 'x' WHERE chat = (SELECT key FROM chats WHERE id = 'c')")
	var found []foundRoster
	err := s.read(t.Context(), func(ctx context.Context, c *conn) (err error) {
		found, err = readRosters(ctx, c, []tidemark.ChatID{"c", "d"})
		return err
	})
	if err != nil || len(found) != 2 {
		t.Fatalf("got %v, %v", found, err)
	}
	if found[0].err == nil || found[1].err != nil || len(found[1].roster.Members) != 2 {
		t.Errorf("got %+v, want an error of the first one alone", found)
	}
	if got, err := s.Rosters(t.Context(), []tidemark.ChatID{"d", "c"}); err == nil {
		t.Errorf("a call for both got %v, want an error", got)
	}
}
