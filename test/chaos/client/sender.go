package client

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
)

// Sender is a client that only sends. It uses HTTP, or a socket of its own whose events it ignores.
type Sender struct {
	Ledger *checker.Ledger
	// Base is the URL of the balancer. First is the URL of the first attempt of each send, if it
	// differs.
	Base, First string
	// Name is a prefix that makes the ids of the sends unique.
	Name, User string
	// Socket reports that the sender uses a WebSocket.
	Socket bool
	Random *rand.Rand
	HTTP   *http.Client

	conn    *websocket.Conn
	sent    int
	refused atomic.Int64
}

// Refused counts the sends that the server refused because the user was no member then.
func (s *Sender) Refused() int64 { return s.refused.Load() }

// Send sends one message to a chat, and repeats it until it is confirmed. When ctx ends, Send
// abandons the message. tries bounds the attempts; 0 means no bound.
func (s *Sender) Send(ctx context.Context, chat string, tries int) {
	s.sent++
	id := fmt.Sprintf("%s-%d", s.Name, s.sent)
	s.Ledger.Begin(chat, s.User, id)
	for n := 0; ctx.Err() == nil && (tries == 0 || n < tries); n++ {
		base := s.Base
		if n == 0 && s.First != "" {
			base = s.First
		}
		if s.attempt(ctx, base, chat, id) {
			return
		}
		s.Ledger.Unanswered(chat, s.User, id)
		wait(ctx,
			time.Duration(s.Random.Int64N(int64(min(50*time.Millisecond<<min(n, 5), time.Second)))))
	}
	s.Ledger.Abandon(chat, s.User, id)
}

// confirmed is the answer to a send, in either form.
type confirmed struct {
	ClientMessageID string `json:"client_message_id"`
	Sequence        int64  `json:"sequence"`
	Duplicate       bool   `json:"duplicate"`
	Code            string `json:"code"`
}

// attempt sends once, and reports whether the outcome is known.
func (s *Sender) attempt(ctx context.Context, base, chat, id string) (known bool) {
	if s.Socket {
		return s.overSocket(ctx, chat, id)
	}
	status, answer := Call(ctx, s.HTTP, base, s.User, http.MethodPost, "/chats/"+chat+"/messages",
		map[string]any{"client_message_id": id, "content": id})
	var c confirmed
	switch {
	case status == 0:
		return false
	case json.Unmarshal(answer, &c) != nil:
		s.Ledger.Complain(checker.Refused, "a send of %s was answered %d with %q",
			s.User, status, answer)
		return false
	case status < 300:
		s.Ledger.Confirm(chat, s.User, id, c.Sequence, status == http.StatusOK)
		return true
	}
	return s.refusal(chat, id, c.Code, status, answer)
}

// refusal takes an answer that is no confirmation.
func (s *Sender) refusal(chat, id, code string, status int, answer []byte) (known bool) {
	switch code {
	case "UNAVAILABLE", "RATE_LIMITED":
		return false
	case "NOT_A_MEMBER":
		s.refused.Add(1)
		s.Ledger.Abandon(chat, s.User, id)
		return true
	}
	s.Ledger.Complain(checker.Refused, "a send of %s was answered %d %s", s.User, status, answer)
	return false
}

func (s *Sender) overSocket(ctx context.Context, chat, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	if s.conn == nil {
		//nolint:bodyclose // the library closes it
		conn, _, err := websocket.Dial(ctx,
			s.Base+"/api/v1/ws?status_updates=false", &websocket.DialOptions{
				HTTPClient:   s.HTTP,
				HTTPHeader:   http.Header{"Authorization": {"Bearer dev:" + s.User}},
				Subprotocols: []string{"tidemark.v1"},
			})
		if err != nil {
			return false
		}
		conn.SetReadLimit(1 << 20)
		s.conn = conn
	}
	if s.exchange(ctx, chat, id) {
		return true
	}
	s.Close()
	return false
}

// exchange sends a frame and waits for its answer.
func (s *Sender) exchange(ctx context.Context, chat, id string) bool {
	payload := map[string]any{"chat_id": chat, "client_message_id": id, "content": id}
	frame := map[string]any{"type": "send_message", "request_id": id, "payload": payload}
	if wsjson.Write(ctx, s.conn, frame) != nil {
		return false
	}
	for {
		var e struct {
			Type      string          `json:"type"`
			RequestID string          `json:"request_id"`
			Payload   json.RawMessage `json:"payload"`
		}
		if wsjson.Read(ctx, s.conn, &e) != nil {
			return false
		}
		var c confirmed
		if e.RequestID != id || json.Unmarshal(e.Payload, &c) != nil {
			continue
		}
		if e.Type == "send_message_ack" {
			s.Ledger.Confirm(chat, s.User, id, c.Sequence, c.Duplicate)
			return true
		}
		return s.refusal(chat, id, c.Code, 0, e.Payload)
	}
}

// Close closes the sender's connection, if there is one.
func (s *Sender) Close() {
	if s.conn != nil {
		_ = s.conn.CloseNow()
		s.conn = nil
	}
}
