package transporttest_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// hung is a store that does not answer the reads of an open until ended is closed.
type hung struct {
	storage.Store
	asked, ended chan struct{}
}

func (h *hung) wait(ctx context.Context) error {
	select {
	case h.asked <- struct{}{}:
	default:
	}
	select {
	case <-ctx.Done():
	case <-h.ended:
	}
	return tidemark.Errorf(tidemark.Unavailable, "the disk hangs")
}

// PendingOf implements storage.Pending.
func (h *hung) PendingOf(
	ctx context.Context, _ tidemark.UserID, _ tidemark.ChatID, _ int,
) ([]storage.PendingRow, bool, error) {
	return nil, false, h.wait(ctx)
}

// Behind implements storage.Pending.
func (h *hung) Behind(
	ctx context.Context, _ tidemark.UserID, _ storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	return nil, "", false, h.wait(ctx)
}

// TestShutdown_ends_in_time_while_the_storage_hangs: an open without an answer does not delay the
// shutdown.
func TestShutdown_ends_in_time_while_the_storage_hangs(t *testing.T) {
	for path, stop := range map[string]func(*transporttest.Stack) func(context.Context) error{
		"/events": func(s *transporttest.Stack) func(context.Context) error {
			return s.SSE.Shutdown
		},
		"/poll": func(s *transporttest.Stack) func(context.Context) error {
			return s.LongPoll.Shutdown
		},
		"/poll?wait_seconds=0": func(s *transporttest.Stack) func(context.Context) error {
			return s.LongPoll.Shutdown
		},
		"/ws": func(s *transporttest.Stack) func(context.Context) error {
			return s.WebSocket.Shutdown
		},
	} {
		store := &hung{
			Store: stores.Open(t), asked: make(chan struct{}, 1), ended: make(chan struct{}),
		}
		s := transporttest.New(t, transporttest.Options{Storage: store})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer dev:bob")
		if path == "/ws" {
			for name, value := range map[string]string{
				"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
				"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
			} {
				r.Header.Set(name, value)
			}
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if response, err := http.DefaultTransport.RoundTrip(r); err == nil {
				_, _ = io.Copy(io.Discard, response.Body) // the answer may begin before the open
				_ = response.Body.Close()
			}
		}()
		<-store.asked
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_ = stop(s)(ctx) // the error depends on the transport
		}()
		select {
		case <-stopped:
		case <-time.After(wait.Hang):
			t.Errorf("%s: the shutdown had 100 ms, but waits for the storage", path)
		}
		cancel()
		close(store.ended)
		<-stopped
		<-answered
		if t.Failed() {
			return // the others would take as long
		}
	}
}
