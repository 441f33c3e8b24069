package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestAppend_of_more_senders_than_are_cached_keeps_unread_exact: in one commit, more users send
// than the writer remembers. Then one with a seat and one without a seat send again.
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
	last := users[maxSeats+1]
	for i, user := range append(append([]tidemark.UserID{"anna"}, users...), "anna", last) {
		d := draft(fmt.Sprint(i), "hello")
		d.SenderID = user
		drafts = append(drafts, d)
	}
	if _, err := s.Append(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	counts, err := s.Unread(t.Context(), []storage.StateKey{
		{User: "anna", Chat: "c"}, {User: last, Chat: "c"},
	})
	for i, got := range counts {
		if want := int64(len(drafts) - 2); got.Messages != want {
			t.Errorf("user %d: got %d, want the %d messages of the others", i, got.Messages, want)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestAppend_keeps_seats_exact: more users send than a chat has seats. Their numbers are exact
// after each commit, a change of the members and a rollback, and in a store that was opened anew.
func TestAppend_keeps_seats_exact(t *testing.T) {
	s, path := openNew(t)
	var keys []storage.StateKey
	sent := make(map[tidemark.UserID]int64)
	all := int64(0)
	exact := func(when string) {
		t.Helper()
		counts, err := s.Unread(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			if want := all - sent[key.User]; counts[i].Messages != want {
				t.Errorf("%s: %s: got %d, want %d", when, key.User, counts[i].Messages, want)
			}
		}
	}
	everyone := func(round int) {
		t.Helper()
		for i, key := range keys {
			d := draft(fmt.Sprintf("%d-%d", round, i), "hello")
			d.SenderID = key.User
			if _, err := storage.AppendOne(t.Context(), s, d); err != nil {
				t.Fatal(err)
			}
			sent[key.User]++
			all++
		}
	}
	for i := range maxSeats + 2 {
		user := tidemark.UserID(fmt.Sprintf("u%d", i))
		keys = append(keys, storage.StateKey{User: user, Chat: "c"})
		_, err := s.AddMembers(t.Context(), "c", []tidemark.UserID{user}, tidemark.Ordinary,
			time.UnixMilli(2))
		if err != nil {
			t.Fatal(err)
		}
	}
	everyone(1)
	exact("at first")
	everyone(2)
	exact("again")
	for _, user := range []tidemark.UserID{"u0", tidemark.UserID(fmt.Sprint("u", maxSeats))} {
		_, err := s.RemoveMember(t.Context(), "c", user, time.UnixMilli(3))
		if err == nil {
			_, err = s.AddMembers(t.Context(), "c", []tidemark.UserID{user}, tidemark.Ordinary,
				time.UnixMilli(4))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	everyone(3)
	exact("after a change of the members")
	undone(t, s, keys[0].User, keys[maxSeats].User)
	exact("after a rollback")
	everyone(4)
	exact("after a rollback and further messages")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path)
	exact("opened anew")
	everyone(5)
	exact("opened anew, after further messages")
}

// undone makes users send in a transaction that SQLite then refuses.
func undone(t *testing.T, s *Store, users ...tidemark.UserID) {
	t.Helper()
	err := s.change(t.Context(), func(w *writer) error {
		for _, user := range users {
			d := draft("undone-"+string(user), "hello")
			d.SenderID = user
			if _, err := w.append(&d, new(storage.HeldBack)); err != nil {
				return err
			}
		}
		return w.c.exec("INSERT INTO schema_compatible (version) VALUES (NULL)")
	})
	if err == nil {
		t.Fatal("the transaction was not refused")
	}
}

// TestUnreadOf_of_1000_chats_reads_no_message meters the total of all chats, in statements and in
// steps of SQLite's virtual machine. Then it deletes the messages, and the total is the same.
func TestUnreadOf_of_1000_chats_reads_no_message(t *testing.T) {
	const chats, unread, mostSteps = 1000, 500, 100_000
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "tidemark.db"), Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// bob writes 3, and has read 5 or all. The system writes 4 and 8. 7 may name all.
	group := sync.WaitGroup{}
	for i := range chats {
		group.Go(func() { fillTotal(t, s, i, i < unread) })
	}
	group.Wait()
	want := storage.UnreadTotal{Chats: unread}
	want.Messages, want.Mentions = 4*unread, unread/10
	total := func(what string) {
		t.Helper()
		if got, err := s.UnreadOf(t.Context(), "bob"); err != nil || got != want {
			t.Fatalf("%s: got %+v, %v, want %+v", what, got, err, want)
		}
	}
	steps := func() (n int, statements []string) {
		c := <-s.readers
		defer func() { s.readers <- c }()
		for text, q := range c.stmts {
			if one := q.Steps(); one > 0 && text != "BEGIN" && text != "ROLLBACK" {
				n, statements = n+one, append(statements, text)
			}
		}
		return n, statements
	}
	total("at first")
	steps()
	total("again")
	n, statements := steps()
	t.Logf("%d statements, %d steps", len(statements), n)
	if len(statements) != 3 || n > mostSteps {
		t.Errorf("%d steps of %q, want 3 statements and at most %d steps", n, statements, mostSteps)
	}
	err = s.change(t.Context(), func(w *writer) error { return w.c.exec("DELETE FROM messages") })
	if err != nil {
		t.Fatal(err)
	}
	total("without messages")
}

// fillTotal creates a chat of anna and bob with ten messages.
func fillTotal(t *testing.T, s *Store, i int, unread bool) {
	chat := tidemark.ChatID(fmt.Sprintf("total%d", i))
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: chat, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: time.UnixMilli(1),
		Creator: "anna", Members: []tidemark.UserID{"anna", "bob"},
	})
	var drafts []tidemark.Draft
	for n := range 10 {
		d := draft(fmt.Sprint(n), "hello")
		d.ChatID, d.MessageID = chat, tidemark.MessageID(fmt.Sprintf("%s-%d", chat, n))
		switch n + 1 {
		case 3:
			d.SenderID = "bob"
		case 4, 8:
			d.Kind = tidemark.KindSystem
		case 7:
			d.Mentions.All = i%10 == 0
		}
		drafts = append(drafts, d)
	}
	read := tidemark.Sequence(10)
	if unread {
		read = 5
	}
	if err == nil {
		_, err = s.Append(t.Context(), drafts)
	}
	if err == nil {
		_, err = s.Advance(t.Context(), []storage.Advance{
			{User: "bob", Chat: chat, Raise: tidemark.Raise{Read: read}, Now: time.UnixMilli(2)},
		})
	}
	if err != nil {
		t.Error(err)
	}
}

// TestAdvance_reads_messages_around_own_only: a read and a mark as unread look at messages only
// where the user has sent some after the new mark.
func TestAdvance_reads_messages_around_own_only(t *testing.T) {
	s, _ := openNew(t)
	ben := []tidemark.UserID{"ben"}
	_, err := s.AddMembers(t.Context(), "c", ben, tidemark.Ordinary, time.UnixMilli(1))
	if err != nil {
		t.Fatal(err)
	}
	var drafts []tidemark.Draft
	for n := range 10 {
		d := draft(fmt.Sprint(n), "hello")
		if n == 6 {
			d.SenderID = "ben"
		}
		drafts = append(drafts, d)
	}
	if _, err := s.Append(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	looksAtMessages(t, s)
	for _, test := range []struct {
		read, mark tidemark.Sequence
		want       bool
	}{{3, 0, true}, {5, 0, true}, {7, 0, false}, {9, 0, false}, {0, 8, false}, {0, 2, true}} {
		_, err := s.Advance(t.Context(), []storage.Advance{
			{
				User: "ben", Chat: "c", Raise: tidemark.Raise{Read: test.read},
				Now: time.UnixMilli(2),
			},
		})
		if err == nil && test.mark > 0 {
			_, err = s.MarkUnread(t.Context(), "ben", "c", test.mark)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := looksAtMessages(t, s); got != test.want {
			t.Errorf("read %d, mark %d: it looks at messages: %v, want %v",
				test.read, test.mark, got, test.want)
		}
	}
}

// TestAdvance_counts_own_messages_that_name_others: the user's messages around a new mark count,
// also one that names somebody. A line of the system in their name does not.
func TestAdvance_counts_own_messages_that_name_others(t *testing.T) {
	s, _ := openNew(t)
	var drafts []tidemark.Draft
	for n := range 6 {
		d := draft(fmt.Sprint(n), "hello")
		switch n {
		case 1:
			d.Mentions.Users = []tidemark.UserID{"ben"}
		case 2:
			d.Kind, d.Mentions.All = tidemark.KindSystem, true
		}
		drafts = append(drafts, d)
	}
	_, err := s.Append(t.Context(), drafts)
	if err == nil {
		_, err = s.Advance(t.Context(), []storage.Advance{
			{User: "anna", Chat: "c", Raise: tidemark.Raise{Read: 3}, Now: time.UnixMilli(2)},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	counts, err := s.Unread(t.Context(), []storage.StateKey{{User: "anna", Chat: "c"}})
	if err != nil || counts[0].Messages != 0 {
		t.Errorf("got %v, %v, want no unread message", counts, err)
	}
}

// looksAtMessages reports whether the writer has read messages since the last call.
func looksAtMessages(t *testing.T, s *Store) (looks bool) {
	err := s.change(t.Context(), func(w *writer) error {
		for text, q := range w.c.stmts {
			looks = q.Steps() > 0 && strings.Contains(text, "FROM messages") || looks
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return looks
}
