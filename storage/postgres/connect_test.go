package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// terminate ends the backends that wait for the rival.
func (r *rival) terminate() {
	r.t.Helper()
	r.waitedFor()
	r.do("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted AND pg_backend_pid() " +
		"= ANY (pg_blocking_pids(pid))")
}

// If the connection of a repeatable call breaks, the store tries again, and the caller does not
// notice.
func TestBatches_write_whose_connection_broke_is_tried_again(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("UPDATE chats SET head = 5 WHERE id = 'c'")
	r.do("INSERT INTO delivery_state SELECT key, 'anna', 1, 0, 1, 0 FROM chats WHERE id = 'c'")
	r.do("INSERT INTO pending_deliveries VALUES ('anna', 'c', 5), ('ben', 'c', 1)")
	r.do("COMMIT")
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		call func() error
	}{
		{"Append", func() error {
			_, err := storage.AppendOne(ctx, s, message("d", "anna", "1", "hello"))
			return err
		}},
		{"Advance", func() error {
			advanced, err := s.Advance(ctx, []storage.Advance{
				{User: "anna", Chat: "c", Raise: tidemark.Raise{Acked: 3}},
			})
			if err == nil {
				err = advanced[0].Err
			}
			return err
		}},
		{"Mark", func() error {
			_, err := s.Mark(ctx, []tidemark.PendingDelivery{
				{UserID: "anna", ChatID: "c", FirstUndelivered: 2},
			})
			return err
		}},
		{"Clear", func() error {
			_, err := s.Clear(ctx, []storage.Clear{{User: "ben", Chat: "c", Through: 5}})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.t = t
			r.do("BEGIN")
			r.do("SELECT FROM chats FOR UPDATE")
			r.do("SELECT FROM delivery_state FOR UPDATE")
			r.do("SELECT FROM pending_deliveries FOR UPDATE")
			result := make(chan error, 1)
			go func() { result <- tc.call() }()
			r.terminate()
			r.commit()
			if err := <-result; err != nil {
				t.Errorf("after the connection broke: %v", err)
			}
		})
	}
}

// If the caller leaves, the statement continues. Interrupting it would cost the connection.
func TestRead_caller_who_leaves_costs_no_connection(t *testing.T) {
	s, r := withRival(t, patient)
	if _, err := s.Chat(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	before := s.readers.Stat().NewConnsCount()
	r.do("LOCK TABLE chats IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = s.Chat(ctx, "c")
	}()
	r.waitedFor()
	cancel()
	r.commit()
	<-left
	if _, err := s.Chat(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if n := s.readers.Stat().NewConnsCount(); n != before {
		t.Errorf("%d connections were made, want the %d of before", n, before)
	}
}

// If the connection of a membership change breaks, the change may have been made. Repeating it
// would give another answer, so the store does not.
func TestChange_whose_connection_broke_is_not_repeated(t *testing.T) {
	s, r := withRival(t, patient)
	r.lockChat()
	result := make(chan error, 1)
	go func() {
		_, err := s.AddMembers(context.Background(), "c",
			[]tidemark.UserID{"cleo"}, tidemark.Ordinary,
			time.UnixMilli(3))
		result <- err
	}()
	r.terminate()
	r.do("COMMIT")
	wantError(t, <-result, tidemark.Unavailable)
}

// The pool's own codec encodes arrays of text, instead of pgx.
func TestPool_texts_arrive_as_they_are(t *testing.T) {
	s := openNew(t).(durable).Store
	for _, texts := range [][]string{nil, {}, {""},
		{"a", "", "ö\t\"{},\\NULL", strings.Repeat("long", 1<<16)}, make([]string, 1000)} {
		var got []string
		var isNull bool
		var dimensions *int
		err := s.read(t.Context(), func(ctx context.Context, c *conn) error {
			return c.QueryRow(ctx, "SELECT $1::text[], $1 IS NULL, array_ndims($1)",
				texts).Scan(&got, &isNull, &dimensions)
		})
		if err != nil || !slices.Equal(got, texts) || isNull != (texts == nil) ||
			(dimensions != nil) != (len(texts) > 0) {
			t.Errorf("%d texts arrived as %d, null: %v, %v", len(texts), len(got), isNull, err)
		}
	}
}

func TestPool_numbers_arrive_as_they_are(t *testing.T) {
	s := openNew(t).(durable).Store
	for _, numbers := range [][]int64{nil, {}, {0}, {1, -1, math.MaxInt64, math.MinInt64},
		make([]int64, 1000)} {
		var got []int64
		var isNull bool
		var dimensions *int
		err := s.read(t.Context(), func(ctx context.Context, c *conn) error {
			return c.QueryRow(ctx, "SELECT $1::bigint[], $1 IS NULL, array_ndims($1)",
				numbers).Scan(&got, &isNull, &dimensions)
		})
		if err != nil || !slices.Equal(got, numbers) || isNull != (numbers == nil) ||
			(dimensions != nil) != (len(numbers) > 0) {
			t.Errorf("%v arrived as %v, null: %v, %v", numbers, got, isNull, err)
		}
	}
}

// A batch stores each draft's type and attachment, whether or not they are equal.
func TestAppend_content_types_and_attachments_are_those_of_the_drafts(t *testing.T) {
	s := openNew(t).(durable).Store
	chat := storage.NewChat{
		ID:      "c",
		Type:    tidemark.Group,
		History: tidemark.HistoryFull,
		Creator: "anna",
		Members: []tidemark.UserID{"anna"},
	}
	if _, _, err := s.CreateChat(t.Context(), chat); err != nil {
		t.Fatal(err)
	}
	for _, types := range [][]string{{"text/plain", "text/plain"}, {"text/plain", "text/markdown"},
		{"text/markdown", "text/plain", "text/markdown"}} {
		drafts := make([]tidemark.Draft, len(types))
		for i, contentType := range types {
			drafts[i] = message("c", "anna", fmt.Sprint(types, i), "hello")
			drafts[i].ContentType = contentType
			if i == 1 {
				drafts[i].Attachments = []byte(`[{"n": 1}]`)
				drafts[(i+1)%len(drafts)].Metadata = []byte(`{"m": 1}`)
			}
		}
		appended, err := s.Append(t.Context(), drafts)
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.Ranges(t.Context(), []storage.Range{
			{Chat: "c", After: appended[0].Message.Sequence - 1, Limit: len(types)},
		})
		if err != nil || len(page[0]) != len(types) {
			t.Fatal(page, err)
		}
		for i, m := range page[0] {
			if m.ContentType != types[i] ||
				string(m.Attachments) != string(drafts[i].Attachments) ||
				string(m.Metadata) != string(drafts[i].Metadata) {
				t.Errorf("%v: message %d has %s and attachment %q",
					types, i, m.ContentType, m.Attachments)
			}
		}
	}
}
