package session_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage/memory"
)

func newNode() *session.Host {
	// The sessions are not served, so the store is not used.
	store := memory.New()
	return &session.Host{
		MaxChats:     16_384,
		StatusFanout: tidemark.StatusFanoutLimit,
		Storage:      store,
		Chats:        chat.New(store, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 10}),
		Watermarks:   watermark.New(10),
		Latest:       session.NewLatest(nil, registry.Node{}),
		Log:          slog.Default(),
		Grace:        session.NewDeadlines(time.Second),
		Expiry:       session.NewDeadlines(time.Second),
		Now:          time.Now,
		Arrivals:     session.NewDeadlines(time.Second),
	}
}

var lease = registry.Lease{User: "bob", Device: "phone", Node: "a", Boot: "1", Session: "s"}

// A delivery may have found the session just before it ended. If the session refuses the
// notification, the caller marks the message (R_NOBODY, R_ORDER).
func TestNotify_R_NOBODY_a_session_that_has_ended_takes_nothing(t *testing.T) {
	s := newNode().New(lease, false)
	if !s.Notify(session.Notification{Chat: "c", Sequence: 1}) {
		t.Error("a live session refuses a notification")
	}
	left, ended := s.Ending(session.Closed).End()
	rows := left.Rows
	want := tidemark.PendingDelivery{UserID: "bob", ChatID: "c", FirstUndelivered: 1}
	if !ended || len(rows) != 1 || rows[0] != want {
		t.Errorf("End: got %v, %v, want the row %v", rows, ended, want)
	}
	if s.Notify(session.Notification{Chat: "c", Sequence: 2}) {
		t.Error("an ended session takes a notification, which would not be marked")
	}
	if left, again := s.Ending(session.Closed).End(); again || len(left.Rows) > 0 {
		t.Errorf("End again: got %v, %v, want nothing", left, again)
	}
}

// A connection may have found the session just before it ended or moved. If a newer connection or
// session has replaced it, the client must not open another session.
func TestResume_of_a_session_that_has_ended(t *testing.T) {
	tests := map[string]struct {
		end  func(s *session.Session)
		want tidemark.Code
	}{
		"given to another node": {func(s *session.Session) { s.Freeze() }, tidemark.Replaced},
		"the device has a newer one": {
			func(s *session.Session) { s.Ending(session.Superseded).End() }, tidemark.Replaced,
		},
		"expired": {
			func(s *session.Session) { s.Ending(session.Closed).End() }, tidemark.Gone,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newNode().New(lease, false)
			test.end(s)
			if c, err := s.Resume(session.At{Announce: true}); c != nil ||
				tidemark.CodeOf(err) != test.want {
				t.Errorf("Resume: got %v, %v, want %v", c, err, test.want)
			}
		})
	}
}

// A connection whose client has closed its side does not replace the client's newer connection.
func TestResume_of_a_client_that_has_left(t *testing.T) {
	s := newNode().New(lease, false)
	newest := s.Attach("")
	if c, err := s.Resume(session.At{Announce: true, Yield: true}); c != nil ||
		tidemark.CodeOf(err) != tidemark.Replaced {
		t.Errorf("Resume beside a connection: got %v, %v, want Replaced", c, err)
	}
	newest.Detach()
	if c, err := s.Resume(session.At{Announce: true, Yield: true}); c == nil || err != nil {
		t.Errorf("Resume alone: got %v, %v, want a connection", c, err)
	}
}
