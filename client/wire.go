package client

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
)

// event is an event of the stream, whatever transport brought it. An event without an id is not
// part of the position.
type event struct {
	ID      uint64             `json:"id"`
	Type    tidemark.EventType `json:"type"`
	Payload json.RawMessage    `json:"payload"`
}

// eventHello is the first frame of a WebSocket. It says that the server has taken the connection.
const eventHello tidemark.EventType = "hello"

// sessionStart is the payload of tidemark.EventSession.
type sessionStart struct {
	Session     tidemark.SessionID   `json:"session_id"`
	Resumed     bool                 `json:"resumed"`
	EventID     uint64               `json:"event_id"`
	Heartbeat   int64                `json:"heartbeat_seconds"`
	Incarnation tidemark.Incarnation `json:"incarnation"`
}

// gap is the payload of tidemark.EventGap, and a gap of a page.
type gap struct {
	ChatID tidemark.ChatID   `json:"chat_id"`
	From   tidemark.Sequence `json:"from_sequence"`
	To     tidemark.Sequence `json:"to_sequence"`
}

// reset is the payload of tidemark.EventReset, and a part of the answer of /sync.
type reset struct {
	Reason  tidemark.ResetReason `json:"reason"`
	ChatID  tidemark.ChatID      `json:"chat_id"`
	Through tidemark.Sequence    `json:"through"`
}

// membership is the part of the payload of tidemark.EventMembership that the client needs.
type membership struct {
	UserID tidemark.UserID `json:"user_id"`
	Change tidemark.Change `json:"change"`
}

// problem is the body of every answer from 400 up, and the payload of tidemark.EventProblem.
type problem struct {
	Code   tidemark.Code `json:"code"`
	Detail string        `json:"detail"`
	Param  string        `json:"param"`
}

// cause returns the problem as an error.
func (p problem) cause() *tidemark.Error {
	return &tidemark.Error{Code: p.Code, Detail: p.Detail, Param: p.Param}
}

// acked is an entry of POST /acks and of the frames ack and read. 0 is left out.
type acked struct {
	ChatID tidemark.ChatID   `json:"chat_id"`
	Acked  tidemark.Sequence `json:"last_acked_sequence,omitempty"`
	Read   tidemark.Sequence `json:"last_read_sequence,omitempty"`
}

// cursor is an entry of POST /sync.
type cursor struct {
	ChatID      tidemark.ChatID      `json:"chat_id"`
	Acked       tidemark.Sequence    `json:"last_acked_sequence"`
	Incarnation tidemark.Incarnation `json:"incarnation,omitempty"`
}

// page is a part of a chat's history.
type page struct {
	Messages   []tidemark.Message
	Gaps       []gap
	Pagination struct {
		HasMore bool `json:"has_more"`
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *page) UnmarshalJSON(raw []byte) error {
	var w struct {
		Messages   []json.RawMessage `json:"messages"`
		Gaps       []gap             `json:"gaps"`
		Pagination struct {
			HasMore bool `json:"has_more"`
		} `json:"pagination"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	p.Gaps, p.Pagination.HasMore = w.Gaps, w.Pagination.HasMore
	p.Messages = make([]tidemark.Message, len(w.Messages))
	for i, m := range w.Messages {
		var err error
		if p.Messages[i], err = tidemark.ParseMessage(m); err != nil {
			return err
		}
	}
	return nil
}

// given returns raw, or nil if it is absent, null or an empty list.
func given(raw json.RawMessage) json.RawMessage {
	if s := string(raw); s == "" || s == "null" || s == "[]" {
		return nil
	}
	return raw
}

// retryAfter returns the time that an answer names, or 0. The header has whole seconds, so a random
// part of a second is added.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return bounded(time.Duration(seconds)*time.Second + rand.N(time.Second))
}

// mostHint bounds the times that the server, or a proxy, asks the client to wait.
const mostHint = 5 * time.Minute

func bounded(hint time.Duration) time.Duration { return max(0, min(hint, mostHint)) }
