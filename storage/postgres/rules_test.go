package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func TestBatches_concurrent_writes_share_a_statement(t *testing.T) {
	s, r := withRival(t, patient)
	var statements, messages atomic.Int64
	s.committed = func(sends, _ int, _ time.Duration) {
		statements.Add(1)
		messages.Add(int64(sends))
	}
	r.lockChat()
	var group sync.WaitGroup
	first := sent(s, message("c", "anna", "first", "hello"))
	r.waitedFor()
	for i := range 64 {
		group.Go(func() {
			_, err := storage.AppendOne(t.Context(), s,
				message("c", "anna", fmt.Sprint(i), "hello"))
			if err != nil {
				t.Error(err)
			}
		})
	}
	queued(t, s, 64)
	r.commit()
	group.Wait()
	if result := <-first; result.err != nil {
		t.Error(result.err)
	}
	if statements.Load() != 2 || messages.Load() != 65 {
		t.Errorf("%d messages that came together took %d statements, want 65 in 2",
			messages.Load(), statements.Load())
	}
}

func TestAppend_equal_keys_of_one_batch_store_one_message(t *testing.T) {
	s, r := withRival(t, patient)
	r.lockChat()
	first := sent(s, message("c", "anna", "before", "hello"))
	r.waitedFor()
	var results []<-chan appendResult
	for range 10 {
		results = append(results, sent(s, message("c", "anna", "same", "hello")))
	}
	queued(t, s, 10)
	r.commit()
	<-first
	stored := 0
	for _, result := range results {
		got := <-result
		if got.err != nil || got.Message.Sequence != 2 {
			t.Errorf("got %+v, want the message 2", got)
		}
		if !got.Duplicate {
			stored++
		}
	}
	if stored != 1 {
		t.Errorf("%d of 10 equal sends were the first one, want 1", stored)
	}
	wantMessages(t, s, "before", "same")
}

func TestAppend_equal_keys_are_compared_with_what_is_stored(t *testing.T) {
	s, _ := withRival(t, patient)
	const conflict, duplicate, stored = "conflict", "duplicate", "stored"
	for _, tc := range []struct {
		name     string
		contents []string
		want     []string
	}{
		{
			"nothing is stored",
			[]string{"one", "other", "one"}, []string{stored, conflict, duplicate},
		},
		{
			"one is stored: first a conflicting one, then an equal one",
			[]string{"other", "one"}, []string{conflict, duplicate},
		},
		{
			"one is stored: first an equal one",
			[]string{"one", "other", "one"}, []string{duplicate, conflict, duplicate},
		},
	} {
		var drafts []tidemark.Draft
		for _, content := range tc.contents {
			drafts = append(drafts, message("c", "anna", "key", content))
		}
		appended, err := s.Append(t.Context(), drafts)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range appended {
			got := stored
			switch {
			case tidemark.CodeOf(a.Err) == tidemark.Conflict:
				got = conflict
			case a.Err != nil:
				got = a.Err.Error()
			case a.Duplicate:
				got = duplicate
			}
			if got != tc.want[i] ||
				a.Err == nil && (a.Message.Content != "one" || a.Message.Sequence != 1) {
				t.Errorf("%s: draft %d is %s (%+v), want %s", tc.name, i, got, a, tc.want[i])
			}
		}
	}
	wantMessages(t, s, "key")
}

func TestAppend_bad_item_fails_alone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before int // the number of good drafts before the bad one
	}{{"in the middle of a statement", 1}, {"alone in the second statement", maxItems}} {
		t.Run(tc.name, func(t *testing.T) {
			s, _ := withRival(t, patient)
			var drafts []tidemark.Draft
			var keys []string
			for i := range tc.before {
				keys = append(keys, fmt.Sprint(i))
				drafts = append(drafts, message("c", "anna", keys[i], "hello"))
			}
			drafts = append(drafts, message("c", "anna", "bad", "\x00"))
			if tc.before < maxItems-1 {
				keys = append(keys, "after")
				drafts = append(drafts, message("c", "anna", "after", "hello"))
			}
			appended, err := s.Append(t.Context(), drafts)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range appended {
				if i == tc.before {
					wantError(t, a.Err, tidemark.Internal, "refused")
				} else if a.Err != nil {
					t.Errorf("draft %d: %v", i, a.Err)
				}
			}
			wantMessages(t, s, keys...)
		})
	}
}

// A bad draft is in the batch when the members of a chat change. If it is of another chat, the
// drafts of each chat are written by themselves. If it is of the same chat, each draft is written
// by itself.
func TestAppend_none_overtakes_one_whose_chat_has_changed(t *testing.T) {
	for _, bad := range []tidemark.ChatID{"c", "d"} {
		t.Run("a bad draft for "+string(bad), func(t *testing.T) {
			s, r := withRival(t, patient)
			r.lockChat()
			r.do("UPDATE chats SET members_version = members_version + 1 WHERE id = 'c'")
			var appended []storage.Appended
			var err error
			var group sync.WaitGroup
			group.Go(func() {
				appended, err = s.Append(t.Context(), []tidemark.Draft{
					message(bad, "anna", "bad", "\x00"), message("c", "anna", "1", "hello"),
					message("c", "anna", "2", "hello"),
				})
			})
			r.commit()
			group.Wait()
			if err != nil || appended[1].Err != nil || appended[2].Err != nil {
				t.Fatalf("got %+v, %v", appended, err)
			}
			wantMessages(t, s, "1", "2")
		})
	}
}

func TestAppend_locked_chat_fails_alone(t *testing.T) {
	s, r := withRival(t, "&lock_timeout=200ms")
	r.lockChat()
	appended, err := s.Append(t.Context(), []tidemark.Draft{
		message("c", "anna", "1", "hello"), message("d", "anna", "2", "hello"),
		message("c", "ben", "3", "hello"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		wantError(t, appended[i].Err, tidemark.Unavailable, "lock")
	}
	if appended[1].Err != nil || appended[1].Message.Sequence != 1 {
		t.Errorf("in the other chat: %+v", appended[1])
	}
	r.do("COMMIT")
	if _, err := storage.AppendOne(t.Context(), s, message("c", "anna", "1", "hello")); err != nil {
		t.Errorf("after the lock has gone: %v", err)
	}
	wantMessages(t, s, "1")
}

func TestAppend_caller_who_gives_up_gets_Unavailable(t *testing.T) {
	s, r := withRival(t, patient)
	r.lockChat()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := storage.AppendOne(ctx, s, message("c", "anna", "1", "hello"))
		result <- err
	}()
	r.waitedFor() // A queued call would get another answer.
	cancel()
	wantError(t, <-result, tidemark.Unavailable, "may still do it")
	r.do("COMMIT")
	again, err := storage.AppendOne(t.Context(), s, message("c", "anna", "1", "hello"))
	if err != nil || !again.Duplicate || again.Message.Sequence != 1 {
		t.Errorf("the repeated send: %+v, %v; want a duplicate of message 1", again, err)
	}
	wantMessages(t, s, "1")
}

// Reads and acknowledgements still work, but no message can be stored.
func TestBatches_write_that_fails_makes_the_store_unfit(t *testing.T) {
	s, r := withRival(t, "")
	r.do("COMMIT")
	r.do("ALTER TABLE messages RENAME COLUMN content TO hidden")
	_, err := storage.AppendOne(t.Context(), s, message("c", "anna", "1", "hello"))
	wantError(t, err, tidemark.Unavailable)
	_, err = s.Mark(t.Context(),
		[]tidemark.PendingDelivery{{UserID: "ben", ChatID: "c", FirstUndelivered: 1}})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Check(t.Context()), tidemark.Unavailable, "the last write failed")
	r.do("ALTER TABLE messages RENAME COLUMN hidden TO content")
	if _, err := storage.AppendOne(t.Context(), s, message("c", "anna", "1", "hello")); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check after a successful write: %v", err)
	}
}

// A caller's own time limit says nothing about the database. The database stays fit for all others.
func TestCheck_caller_in_a_hurry_is_no_write_that_failed(t *testing.T) {
	s, r := withRival(t, patient)
	r.lockChat()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := storage.AppendOne(ctx, s, message("c", "anna", "1", "hello"))
	wantError(t, err, tidemark.Unavailable, "ran out of time")
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v, want a fit store", err)
	}
	r.do("COMMIT")
}

// The facts of the statement's snapshot have changed when it gets the lock of the chat.
func TestAppend_sees_the_members_of_its_own_step(t *testing.T) {
	s, r := withRival(t, patient)
	r.lockChat()
	r.do("UPDATE members SET current = false, intervals = '1-0' WHERE user_id = 'anna' AND " +
		"chat_id = 'c'")
	r.do("UPDATE chats SET member_count = 1, members_version = members_version + 1 WHERE id = 'c'")
	anna := sent(s, message("c", "anna", "1", "hello"))
	r.commit()
	wantError(t, (<-anna).err, tidemark.NotMember)

	r.do("BEGIN")
	r.lockChat()
	r.do("UPDATE chats SET member_count = 2, members_version = members_version + 1 WHERE id = 'c'")
	r.do("UPDATE members SET current = true WHERE user_id = 'anna' AND chat_id = 'c'")
	ben := sent(s, message("c", "ben", "2", "hello"))
	r.commit()
	if got := <-ben; got.err != nil || got.Version != 3 || got.Message.MembersVersion != 3 ||
		got.Message.Sequence != 1 {
		t.Errorf("after another one joined: %+v, want message 1 of version 3", got)
	}
	wantMessages(t, s, "2")
}

func TestAppend_key_that_came_meanwhile_is_a_duplicate(t *testing.T) {
	for _, others := range [][]string{nil, {"other"}} {
		t.Run(fmt.Sprintf("beside %d others", len(others)), func(t *testing.T) {
			s, r := withRival(t, patient)
			r.lockChat()
			r.do(`INSERT INTO messages
				SELECT key, 1, 1, 1, 'anna', 'key', 'first', 'text/plain', NULL, NULL, NULL, NULL,
					NULL, 'hello'
				FROM chats WHERE id = 'c'`)
			r.do("UPDATE chats SET head = 1 WHERE id = 'c'")
			drafts := []tidemark.Draft{message("c", "anna", "key", "hello")}
			for _, key := range others {
				drafts = append(drafts, message("c", "anna", key, "hello"))
			}
			var appended []storage.Appended
			var err error
			var group sync.WaitGroup
			group.Go(func() { appended, err = s.Append(t.Context(), drafts) })
			r.commit()
			group.Wait()
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range appended {
				if a.Err != nil || a.Duplicate != (i == 0) ||
					a.Message.Sequence != tidemark.Sequence(i+1) {
					t.Errorf("draft %d: got %+v", i, a)
				}
			}
			if appended[0].Message.MessageID != "first" {
				t.Errorf("the send with the stored key: %+v, want a duplicate of the first",
					appended[0])
			}
			wantMessages(t, s, append([]string{"key"}, others...)...)
		})
	}
}

func TestAppend_head_that_moved_meanwhile_is_counted_on(t *testing.T) {
	s, r := withRival(t, patient)
	r.lockChat()
	r.do(`INSERT INTO messages
		SELECT key, 1, 1, 1, 'anna', 'theirs', 'first', 'text/plain', NULL, NULL, NULL, NULL,
			NULL, 'hello'
		FROM chats WHERE id = 'c'`)
	r.do("UPDATE chats SET head = 1 WHERE id = 'c'")
	ours := sent(s, message("c", "anna", "ours", "hello"))
	r.commit()
	if got := <-ours; got.err != nil || got.Message.Sequence != 2 {
		t.Errorf("got %+v, want message 2", got)
	}
	wantMessages(t, s, "theirs", "ours")
}

func TestAdvance_row_that_moved_meanwhile_is_looked_at_again(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("UPDATE chats SET head = 9 WHERE id = 'c'")
	r.do(`INSERT INTO delivery_state SELECT key, 'anna', 1, 0, 1, 0 FROM chats WHERE id = 'c'`)
	r.do("COMMIT")
	for _, tc := range []struct {
		name, rival string
		user        tidemark.UserID
		raise       tidemark.Raise
		acked, read tidemark.Sequence
		moved       bool
	}{
		{
			"it went beyond",
			"UPDATE delivery_state SET last_acked_sequence = 5 WHERE user_id = 'anna'", "anna",
			tidemark.Raise{Acked: 3}, 5, 0, false,
		},
		{
			"it is still below",
			"UPDATE delivery_state SET last_acked_sequence = 6 WHERE user_id = 'anna'", "anna",
			tidemark.Raise{Acked: 8}, 8, 0, true,
		},
		{
			"the other watermark",
			"UPDATE delivery_state SET last_acked_sequence = 9 WHERE user_id = 'anna'", "anna",
			tidemark.Raise{Read: 4}, 9, 4, true,
		},
		{
			"it was created",
			"INSERT INTO delivery_state SELECT key, 'ben', 4, 0, 1, 0 FROM chats WHERE id = 'c'",
			"ben", tidemark.Raise{Acked: 2}, 4, 0, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.t = t
			r.do("BEGIN")
			r.do(tc.rival)
			var advanced []storage.Advanced
			var err error
			var group sync.WaitGroup
			group.Go(func() {
				advanced, err = s.Advance(t.Context(), []storage.Advance{
					{User: tc.user, Chat: "c", Raise: tc.raise, Now: time.UnixMilli(5)},
				})
			})
			r.commit()
			group.Wait()
			if err != nil || advanced[0].Err != nil {
				t.Fatalf("got %+v, %v", advanced, err)
			}
			if a := advanced[0]; a.State.Acked != tc.acked || a.State.Read != tc.read ||
				a.Moved != tc.moved {
				t.Errorf("got %+v, want acked %d, read %d, moved %v",
					a, tc.acked, tc.read, tc.moved)
			}
			states, err := s.States(t.Context(), []storage.StateKey{{User: tc.user, Chat: "c"}})
			if err != nil || states[0].Acked != tc.acked || states[0].Read != tc.read {
				t.Errorf("stored is %+v, %v", states, err)
			}
		})
	}
}

func TestClear_row_or_head_that_moved_meanwhile_is_looked_at_again(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("COMMIT")
	for _, tc := range []struct {
		name, rival string
		through     tidemark.Sequence
		cleared     bool
		left        tidemark.Sequence // 0 if the row was removed
	}{
		{
			"the row went beyond",
			"UPDATE pending_deliveries SET first_undelivered_seq = 3", 2, false, 3,
		},
		{
			"the row is still below",
			"UPDATE pending_deliveries SET first_undelivered_seq = 2", 2, true, 3,
		},
		{"the row is gone", "DELETE FROM pending_deliveries", 5, false, 0},
		{
			"the row stands for a large chat",
			"UPDATE pending_deliveries SET first_undelivered_seq = 0", 5, false, 0,
		},
		{"the head moved", "UPDATE chats SET head = 6 WHERE id = 'c'", 5, true, 6},
		{
			"the chat was locked, and nothing moved",
			"SELECT FROM chats WHERE id = 'c' FOR NO KEY UPDATE", 5, true, 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.t = t
			r.do("UPDATE chats SET head = 5 WHERE id = 'c'")
			r.do("DELETE FROM pending_deliveries")
			r.do("INSERT INTO pending_deliveries VALUES ('ben', 'c', 1)")
			r.do("BEGIN")
			r.do(tc.rival)
			var cleared []bool
			var err error
			var group sync.WaitGroup
			group.Go(func() {
				cleared, err = s.Clear(t.Context(), []storage.Clear{
					{User: "ben", Chat: "c", Through: tc.through},
				})
			})
			r.commit()
			group.Wait()
			if err != nil || cleared[0] != tc.cleared {
				t.Errorf("cleared is %v, %v; want %v", cleared, err, tc.cleared)
			}
			rows, _, err := s.PendingOf(t.Context(), "ben", "", 10)
			var left tidemark.Sequence
			if len(rows) > 0 {
				left = rows[0].FirstUndelivered
			}
			if err != nil || left != tc.left {
				t.Errorf("the row is %+v, %v; want %d", rows, err, tc.left)
			}
		})
	}
}

// The first round removes ben's row of d, and misses that of c, which has gone meanwhile. Before
// the second round ben's row of d is marked anew. That mark is later than the clear and must stay.
func TestClear_a_row_that_is_marked_again_after_it_was_cleared_stays(t *testing.T) {
	_, r := withRival(t, patient)
	s, w := watched(t, r.conn.Config().ConnString()+patient)
	r.do("INSERT INTO pending_deliveries VALUES ('ben', 'c', 1), ('ben', 'd', 1)")
	r.do("COMMIT")
	r.do("BEGIN")
	r.do("DELETE FROM pending_deliveries WHERE chat_id = 'c'")
	var markErr error
	rounds, committed := 0, make(chan struct{})
	w.before = func(text string) {
		if text != clearRows {
			return
		}
		if rounds++; rounds == 2 {
			<-committed
			_, markErr = r.conn.Exec(t.Context(),
				"INSERT INTO pending_deliveries VALUES ('ben', 'd', 2)")
		}
	}
	var cleared []bool
	var err error
	var group sync.WaitGroup
	group.Go(func() {
		cleared, err = s.Clear(t.Context(), []storage.Clear{
			{User: "ben", Chat: "c", Through: 5}, {User: "ben", Chat: "d", Through: 5},
		})
	})
	func() {
		defer close(committed)
		r.commit()
	}()
	group.Wait()
	err = errors.Join(err, markErr)
	if want := []bool{false, true}; err != nil || !slices.Equal(cleared, want) || rounds != 2 {
		t.Errorf("cleared is %v in %d rounds, %v; want %v in 2", cleared, rounds, err, want)
	}
	rows, _, err := s.PendingOf(t.Context(), "ben", "", 10)
	if err != nil || len(rows) != 1 || rows[0].ChatID != "d" || rows[0].FirstUndelivered != 2 {
		t.Errorf("the rows are %+v, %v; want one, of d from 2", rows, err)
	}
}

func TestAppend_heavy_drafts_share_statements_of_bounded_size(t *testing.T) {
	s, _ := withRival(t, patient)
	statements := 0
	s.committed = func(int, int, time.Duration) { statements++ }
	const n, size = 20, maxWeight / 8
	var drafts []tidemark.Draft
	for i := range n {
		drafts = append(drafts, message("c", "anna", fmt.Sprint(i), strings.Repeat("x", size)))
	}
	if _, err := s.Append(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	if want := 3; statements != want {
		t.Errorf("%d drafts of %d bytes took %d statements, want %d", n, size, statements, want)
	}
}
