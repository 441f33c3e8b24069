package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestAppend_many_chats_that_somebody_has_locked_cost_the_others_one_wait: otherwise the call would
// run out of time before it came to the free chats.
func TestAppend_many_chats_that_somebody_has_locked_cost_the_others_one_wait(t *testing.T) {
	// If the store waited so long for each lock, the call would run out of time.
	s, r := withRival(t, "&lock_timeout=1s")
	drafts := make([]tidemark.Draft, 0, 8)
	for _, id := range []tidemark.ChatID{"held1", "held2", "held3", "held4", "held5", "held6"} {
		_, _, err := s.CreateChat(t.Context(), storage.NewChat{
			ID:        id,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: time.UnixMilli(1),
			Creator:   "anna",
			Members:   []tidemark.UserID{"anna"},
		})
		if err != nil {
			t.Fatal(err)
		}
		drafts = append(drafts, message(id, "anna", "key", "hello"))
	}
	drafts = append(drafts, message("c", "anna", "c1", "hello"),
		message("c", "anna", "c2", "hello"))
	r.do("SELECT FROM chats WHERE id LIKE 'held%' FOR NO KEY UPDATE")
	appended, err := s.Append(t.Context(), drafts)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	for _, a := range appended[:6] {
		wantError(t, a.Err, tidemark.Unavailable, "holds a lock")
	}
	for i, a := range appended[6:] {
		if a.Err != nil || a.Message.Sequence != tidemark.Sequence(i+1) {
			t.Errorf("to the free chat: %+v", a)
		}
	}
	r.do("COMMIT")
	again, err := s.Append(t.Context(), drafts)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range again {
		if a.Err != nil || a.Duplicate != (i >= 6) {
			t.Errorf("draft %d afterwards: %+v", i, a)
		}
	}
}

// A lock on one chat does not split a call's messages to another chat. They are stored in one step,
// with no other message between them.
func TestAppend_beside_a_locked_chat_the_drafts_of_another_are_one_step(t *testing.T) {
	s, r := withRival(t, "&lock_timeout=200ms")
	var steps []int
	s.committed = func(sends, _ int, _ time.Duration) { steps = append(steps, sends) }
	r.do("SELECT FROM chats WHERE id = 'd' FOR NO KEY UPDATE")
	appended, err := s.Append(t.Context(), []tidemark.Draft{
		message("c", "anna", "1", "hello"), message("d", "anna", "2", "hello"),
		message("c", "ben", "3", "hello"), message("c", "anna", "4", "hello"),
	})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, appended[1].Err, tidemark.Unavailable, "holds a lock")
	if diff := cmp.Diff([]int{3}, steps); diff != "" {
		t.Errorf("messages stored in each step (-want +got):\n%s", diff)
	}
	wantMessages(t, s, "1", "3", "4")
	r.do("ROLLBACK")
}

// TestAppend_in_a_hurry_one_transaction_holds_lock_and_message: a BEGIN within a transaction is
// only a warning, and its COMMIT would end the outer transaction.
func TestAppend_in_a_hurry_one_transaction_holds_lock_and_message(t *testing.T) {
	url := newDatabase(t, service.Shared(t))
	s, w := watched(t, url)
	err := (&workload{t, s}).create("c", tidemark.Group, tidemark.HistoryFull,
		[]tidemark.UserID{"anna"})
	if err != nil {
		t.Fatal(err)
	}
	w.take()
	a := &appending{
		drafts:     []tidemark.Draft{message("c", "anna", "1", "hello")},
		results:    make([]storage.Appended, 1),
		stored:     make([]*tidemark.Message, 1),
		versions:   make([]uint64, 1),
		committed:  s.committed,
		senders:    &s.appends.senders,
		lockWaited: true,
	}
	err = once(t.Context(), s.writers, 0, func(ctx context.Context, c *conn) error {
		_, err := a.alone(ctx, c, []int{0})
		return err
	})
	if err != nil || a.results[0].Err != nil {
		t.Fatalf("got %v, %+v", err, a.results[0])
	}
	texts, _, notices := w.take()
	begins := 0
	for _, text := range texts {
		if strings.HasPrefix(text, "BEGIN") {
			begins++
		}
	}
	if begins != 1 || len(notices) != 0 {
		t.Errorf("%d transactions began, and Postgres says %q; want one transaction",
			begins, notices)
	}
	wantMessages(t, s, "1")
}

// TestAppend_beside_changes_without_end_gets_its_turn: each change of the members holds the chat
// while the append waits for it, and the next change waits behind the append. So each round of the
// append meets another version, until it locks the chat first.
//
// On a busy machine the next change may come late, and the append is stored without the lock. Then
// another append is tried.
func TestAppend_beside_changes_without_end_gets_its_turn(t *testing.T) {
	s, holder := withRival(t, patient)
	conn, err := pgx.ConnectConfig(t.Context(), holder.conn.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	holder.do("COMMIT")
	holders := [2]*rival{holder, {t, conn}}
	var keys []string
	for locked := false; !locked; {
		if len(keys) == 20 {
			t.Fatal("no append has locked the chat")
		}
		keys = append(keys, fmt.Sprint(len(keys)))
		locked = appendBesideChanges(t, s, holders, keys[len(keys)-1])
	}
	wantMessages(t, s, keys...)
}

// appendBesideChanges sends a message to the chat c, which one of the holders changes at any time.
// It reports whether the append waited for a lock of the chat.
//
// Once the append locks the chat first, it may still lose some turns: Postgres lets those who wait
// for a row go on in no certain order after the row has changed. Of 48 runs beside three others,
// the longest took eleven changes.
func appendBesideChanges(t *testing.T, s *Store, holders [2]*rival, key string) (waited bool) {
	t.Helper()
	const change = "UPDATE chats SET members_version = members_version + 1 WHERE id = 'c'"
	holder, next := holders[0], holders[1]
	locks := false // somebody waits to lock the chat first
	waiting := func(n int) bool {
		got := 0
		err := holder.conn.QueryRow(t.Context(), "SELECT count(DISTINCT pid), "+
			"coalesce(bool_or(query LIKE '%FOR NO KEY UPDATE%'), false) FROM pg_locks "+
			"JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = "+
			"current_database()").Scan(&got, &locks)
		return err == nil && got == n
	}
	holder.do("BEGIN")
	holder.do(change)
	result := sent(s, message("c", "anna", key, "hello"))
	const most = 200
	for n := 1; ; n++ {
		wantSoon(t, func() bool { return len(result) == 1 || waiting(1) })
		if len(result) == 1 {
			break
		}
		waited = waited || locks
		if n > most {
			t.Fatalf("the append has had no turn in %d changes", most)
		}
		next.do("BEGIN")
		changed := make(chan error, 1)
		go func() {
			_, err := next.conn.Exec(context.Background(), change)
			changed <- err
		}()
		wantSoon(t, func() bool { return waiting(2) })
		holder.do("COMMIT")
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
		holder, next = next, holder
	}
	if r := <-result; r.err != nil || r.Err != nil {
		t.Errorf("got %v, %v", r.err, r.Err)
	}
	holder.do("COMMIT")
	return waited
}
