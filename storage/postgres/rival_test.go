package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// A rival is another program that has begun a transaction in the database.
type rival struct {
	t    *testing.T
	conn *pgx.Conn
}

// patient lets the store wait for a rival as long as a call may take, however slow the machine is.
const patient = "&lock_timeout=0"

// withRival opens a store with the chats c and d of anna and ben. It connects a rival, which locks
// nothing yet.
func withRival(t *testing.T, parameters string) (*Store, *rival) {
	t.Helper()
	url := newDatabase(t, service.Shared(t))
	s := openTest(t, url+parameters)
	for _, id := range []tidemark.ChatID{"c", "d"} {
		_, _, err := s.CreateChat(t.Context(), storage.NewChat{
			ID:        id,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: time.UnixMilli(1),
			Creator:   "anna",
			Members:   []tidemark.UserID{"anna", "ben"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	r := &rival{t, conn}
	r.do("BEGIN")
	return s, r
}

func (r *rival) do(statement string, parameters ...any) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.t.Context(), statement, parameters...); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
}

// lockChat locks c as an append does.
func (r *rival) lockChat() { r.do("SELECT FROM chats WHERE id = 'c' FOR NO KEY UPDATE") }

// commit ends the transaction when another backend waits for its locks.
func (r *rival) commit() {
	r.t.Helper()
	r.waitedFor()
	r.do("COMMIT")
}

// waitedFor waits until another backend waits for the rival's locks.
func (r *rival) waitedFor() {
	r.t.Helper()
	for deadline, waits := time.Now().Add(10*time.Second), false; !waits; {
		err := r.conn.QueryRow(r.t.Context(),
			"SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY "+
				"(pg_blocking_pids(pid)))").Scan(&waits)
		if err != nil || time.Now().After(deadline) {
			r.t.Fatalf("no call waits for the rival: %v", err)
		}
	}
}

// queued waits until n appends wait for the one that is being written.
func queued(t *testing.T, s *Store, n int) {
	t.Helper()
	wantSoon(t, func() bool { return s.appends.Queued() == n })
}

// wantSoon waits until a condition holds.
func wantSoon(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait.Hang); !is(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the awaited state does not come")
		}
	}
}

// message returns a draft of a user under a key.
func message(chat tidemark.ChatID, sender tidemark.UserID, key, content string) tidemark.Draft {
	return tidemark.Draft{
		Kind:            tidemark.KindMessage,
		ChatID:          chat,
		SenderID:        sender,
		ClientMessageID: key,
		Content:         content,
		ContentType:     tidemark.DefaultContentType,
		MessageID:       tidemark.MessageID("m-" + key),
		CreatedAt:       time.UnixMilli(2),
	}
}

// sent starts an append, and returns the channel of its result.
func sent(s *Store, d tidemark.Draft) <-chan appendResult {
	result := make(chan appendResult, 1)
	go func() {
		appended, err := storage.AppendOne(context.Background(), s, d)
		result <- appendResult{appended, err}
	}()
	return result
}

type appendResult struct {
	storage.Appended
	err error
}

// wantMessages checks that the chat c has the messages with these keys, in this order.
func wantMessages(t *testing.T, s *Store, keys ...string) {
	t.Helper()
	pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 1_000}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range pages[0] {
		got = append(got, m.ClientMessageID)
	}
	if fmt.Sprint(got) != fmt.Sprint(keys) {
		t.Errorf("the chat has the messages %q, want %q", got, keys)
	}
}

func wantError(t *testing.T, err error, want tidemark.Code, words ...string) {
	t.Helper()
	if got := tidemark.CodeOf(err); got != want {
		t.Fatalf("got error %v with code %q, want code %q", err, got, want)
	}
	for _, word := range words {
		if !strings.Contains(tidemark.DetailOf(err), word) {
			t.Errorf("the error says %q, want it to say %q", tidemark.DetailOf(err), word)
		}
	}
}
