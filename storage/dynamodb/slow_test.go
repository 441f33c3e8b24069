package dynamodb

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/appends"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// slow is a DynamoDB with one chat, "c", whose only member is "anna". Each write takes a fixed time
// on the bubble's clock, and succeeds. It answers no write from number stuck on.
type slow struct {
	takes  time.Duration
	stuck  int64
	writes atomic.Int64
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	answer := "{}"
	chat := record.Counter{Chat: tidemark.Chat{
		ID:             "c",
		Type:           tidemark.Group,
		History:        tidemark.HistoryFull,
		Head:           1,
		MembersVersion: 1,
		MemberCount:    1,
		CreatedAt:      time.UnixMilli(1),
	}}
	switch operation {
	case "GetItem":
		answer = `{"Item":` + encoded(chat.Item()) + `}`
	case "BatchGetItem":
		anna := record.Membership{
			Member: tidemark.Member{
				UserID:    "anna",
				Role:      tidemark.Owner,
				Intervals: tidemark.Intervals{{From: 1}},
				JoinedAt:  time.UnixMilli(1),
			},
			Version: 1,
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		switch {
		case strings.Contains(string(body), "chat_memberships"):
			answer = `{"Responses":{"chat_memberships":[` + encoded(anna.Item("c")) + `]}}`
		case strings.Contains(string(body), "chat_counters"):
			answer = `{"Responses":{"chat_counters":[` + encoded(chat.Item()) + `]}}`
		}
	default:
		n := s.writes.Add(1)
		takes := s.takes
		if s.stuck != 0 && n >= s.stuck {
			takes = time.Hour
		}
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	header := http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
	return &http.Response{
		Status:        "200 OK",
		StatusCode:    http.StatusOK,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Request:       r,
		Header:        header,
		ContentLength: int64(len(answer)),
		Body:          io.NopCloser(strings.NewReader(answer)),
	}, nil
}

// encoded returns an item in DynamoDB's protocol.
func encoded(it call.Item) string {
	fields := map[string]map[string]any{}
	for name, value := range it {
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			fields[name] = map[string]any{"S": v.Value}
		case *types.AttributeValueMemberN:
			fields[name] = map[string]any{"N": v.Value}
		case *types.AttributeValueMemberBOOL:
			fields[name] = map[string]any{"BOOL": v.Value}
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err) // It has strings and flags only.
	}
	return string(text)
}

// openSlow opens a store on a slow DynamoDB.
func openSlow(t *testing.T, on *slow) *Store {
	t.Helper()
	to, err := endpoint.Parse("dynamodb://us-east-1/?endpoint=http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	api, err := to.Client(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{
		known:     record.NewKnown(),
		patience:  callTime,
		committed: func(int, int, time.Duration) {},
		release:   func() {},
	}
	s.tables = call.NewTables(api, "", func(string, float64, float64) {}, func(string, error) {})
	s.appends = appends.New(s.caller("append").Access, s.committed)
	return s
}

// TestSlow_a_batch_goes_on_while_its_items_are_done: 10,000 items take as long as DynamoDB needs.
// The call ends callTime after the last completed item.
func TestSlow_a_batch_goes_on_while_its_items_are_done(t *testing.T) {
	for _, tc := range []struct {
		name string
		call func(ctx context.Context, s *Store) error
	}{
		{"Append", func(ctx context.Context, s *Store) error {
			_, err := s.Append(ctx, drafts("c", "anna", storage.MaxBatch, "hello"))
			return err
		}},
		{"Advance", func(ctx context.Context, s *Store) error {
			advances := make([]storage.Advance, storage.MaxBatch)
			for i, user := range usersFrom(len(advances), "u") {
				advances[i] = storage.Advance{
					User:  user,
					Chat:  "c",
					Raise: tidemark.Raise{Acked: 1},
					Now:   time.UnixMilli(2),
				}
			}
			_, err := s.Advance(ctx, advances)
			return err
		}},
		{"Mark", func(ctx context.Context, s *Store) error {
			rows := make([]tidemark.PendingDelivery, storage.MaxBatch)
			for i, user := range usersFrom(len(rows), "u") {
				rows[i] = tidemark.PendingDelivery{UserID: user, ChatID: "c", FirstUndelivered: 1}
			}
			_, err := s.Mark(ctx, rows)
			return err
		}},
		{"Mark of one row", func(ctx context.Context, s *Store) error {
			rows := make([]tidemark.PendingDelivery, 100)
			for i := range rows {
				rows[i] = tidemark.PendingDelivery{UserID: "anna", ChatID: "c", FirstUndelivered: 1}
			}
			_, err := s.Mark(ctx, rows)
			return err
		}},
		{"Rewind", func(ctx context.Context, s *Store) error {
			backlogs := make([]storage.Backlog, storage.MaxBatch)
			for i := range backlogs {
				outlet := storage.OutletID(fmt.Sprint("outlet", i))
				backlogs[i] = storage.Backlog{Outlet: outlet, Chat: "c"}
			}
			return s.Rewind(ctx, backlogs)
		}},
		{"Settle of one chat", func(ctx context.Context, s *Store) error {
			items := make([]storage.Settlement, 100)
			for i := range items {
				items[i].Outlet, items[i].Chat = storage.OutletID(fmt.Sprint("outlet", i)), "c"
			}
			_, err := s.Settle(ctx, items)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openSlow(t, &slow{takes: 1400 * time.Millisecond})
				began := time.Now()
				if err := tc.call(t.Context(), s); err != nil || time.Since(began) < 2*time.Minute {
					t.Errorf("slow writes: it ends after %v with %v, want minutes and nil",
						time.Since(began), err)
				}
				on := &slow{takes: time.Millisecond, stuck: 40}
				s = openSlow(t, on)
				began = time.Now()
				err := tc.call(t.Context(), s)
				if took := time.Since(began); tidemark.CodeOf(err) != tidemark.Unavailable ||
					took < callTime || took > callTime+time.Second {
					t.Errorf("no answer from write 40 on: it ends after %v with %v, want "+
						"Unavailable after %v", took, err, callTime)
				}
				s.appends.Wait()
			})
		})
	}
}

// TestSlow_appends_let_a_change_of_members_in: if transactions are slow, a change waits for a
// second of them and one more, and not for eight.
func TestSlow_appends_let_a_change_of_members_in(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openSlow(t, &slow{takes: 1400 * time.Millisecond})
		ended := make(chan error)
		go func() {
			_, err := s.Append(t.Context(), drafts("c", "anna", 1_000, "hello"))
			ended <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		leave, err := s.appends.Turn(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited > 2400*time.Millisecond {
			t.Errorf("a change of members waited %v for its turn", waited)
		}
		leave()
		if err := <-ended; err != nil {
			t.Errorf("Append: %v", err)
		}
	})
}
