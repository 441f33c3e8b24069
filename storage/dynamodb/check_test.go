package dynamodb

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

// readOnly is a DynamoDB that refuses writes while it is on, as for a role that may only read.
type readOnly struct {
	*http.Transport
	on atomic.Bool
}

func (r *readOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	target := request.Header.Get("X-Amz-Target")
	writes := strings.HasSuffix(target, ".UpdateItem") || strings.HasSuffix(target, ".PutItem") ||
		strings.HasSuffix(target, ".TransactWriteItems") || strings.HasSuffix(target,
		".BatchWriteItem")
	if !r.on.Load() || !writes {
		return r.Transport.RoundTrip(request)
	}
	body := `{"__type":"com.amazon.coral.service#AccessDeniedException",` +
		`"Message":"the role may only read"}`
	return &http.Response{
		Status:        "400 Bad Request",
		StatusCode:    http.StatusBadRequest,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Request:       request,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(strings.NewReader(body)),
	}, nil
}

// TestCheck_a_store_that_cannot_write_is_not_ready: reads work. The first failed write of each kind
// makes the store unfit, until one write of the kind succeeds.
func TestCheck_a_store_that_cannot_write_is_not_ready(t *testing.T) {
	now := time.Now()
	chat, user := tidemark.ChatID("c1"), tidemark.UserID("alice")
	draft := func(n int) tidemark.Draft {
		return tidemark.Draft{
			Kind:            tidemark.KindMessage,
			ChatID:          chat,
			SenderID:        user,
			ClientMessageID: fmt.Sprint("k", n),
			MessageID:       tidemark.MessageID(fmt.Sprint("m", n)),
			Content:         "hello",
			ContentType:     "text/plain",
			CreatedAt:       now,
		}
	}
	for _, tc := range []struct {
		kind  string
		write func(s *Store, n int) error // n differs between the calls
	}{
		{"append", func(s *Store, n int) error {
			_, err := storage.AppendOne(t.Context(), s, draft(n))
			return err
		}},
		{"advance", func(s *Store, n int) error {
			_, err := s.Advance(t.Context(), []storage.Advance{
				{
					User:  user,
					Chat:  chat,
					Raise: tidemark.Raise{Acked: tidemark.Sequence(n)},
					Now:   now,
				},
			})
			return err
		}},
		{"mark", func(s *Store, n int) error {
			_, err := s.Mark(t.Context(), []tidemark.PendingDelivery{
				{UserID: user, ChatID: chat, FirstUndelivered: tidemark.Sequence(10 - n)},
			})
			return err
		}},
		{"members", func(s *Store, n int) error {
			_, err := s.AddMembers(t.Context(), chat,
				[]tidemark.UserID{tidemark.UserID(fmt.Sprint("u", n))}, tidemark.Ordinary,
				now)
			return err
		}},
		{"many members", func(s *Store, n int) error {
			users := make([]tidemark.UserID, 60)
			for i := range users {
				users[i] = tidemark.UserID(fmt.Sprintf("u%d-%d", n, i))
			}
			_, err := s.AddMembers(t.Context(), chat, users, tidemark.Ordinary, now)
			return err
		}},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			network := &readOnly{Transport: &http.Transport{}}
			s, err := Open(t.Context(), Config{
				URL: newTables(t), Transport: network, Patience: wait.Hang,
			})
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if _, _, err := s.CreateChat(t.Context(), storage.NewChat{
				ID:        chat,
				Type:      tidemark.Group,
				History:   tidemark.HistoryFull,
				CreatedAt: now,
				Creator:   user,
				Members:   []tidemark.UserID{user},
			}); err != nil {
				t.Fatalf("CreateChat: %v", err)
			}
			for n := range 3 { // The messages to acknowledge.
				if _, err := storage.AppendOne(t.Context(), s, draft(100+n)); err != nil {
					t.Fatalf("Append: %v", err)
				}
			}
			network.on.Store(true)
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("Check before a write failed: %v, want nil", err)
			}
			if err := tc.write(s, 1); tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Errorf("the write says %v, want Unavailable", err)
			}
			if err := s.Check(t.Context()); tidemark.CodeOf(err) != tidemark.Unavailable ||
				!strings.Contains(tidemark.DetailOf(err), "docs/dynamodb.md has the policy") {
				t.Errorf("Check after a write failed: %v, want Unavailable with the reason", err)
			}
			network.on.Store(false)
			if err := tc.write(s, 2); err != nil {
				t.Errorf("the write says %v, want nil", err)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("Check after a write succeeded: %v, want nil", err)
			}
		})
	}
}
