package client

import (
	"context"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
)

// syncInterval is the pause of a device without a stream after an answer with nothing more to come.
const syncInterval = 50 * time.Millisecond

// syncing receives without a stream. It polls by POST /sync, with the cursors of the chats that it
// knows. It returns the messages as events of type message. When the server has no more for the
// first time, it returns a caught_up.
type syncing struct {
	ctx     context.Context
	conn    *Conn
	cursors map[string]uint64
	// chats and messages are the unread rest of the last answer.
	chats    Array
	messages Array
	caughtUp bool
	hasMore  bool
	asked    bool
}

func newSyncing(ctx context.Context, e Endpoint) *syncing {
	s := &syncing{
		ctx:     ctx,
		conn:    NewConn(e.URL, e.Token, e.Received, e.Buffer),
		cursors: make(map[string]uint64),
	}
	for _, chat := range e.Chats {
		s.cursors[chat] = 0
	}
	return s
}

// Next implements Stream.
func (s *syncing) Next() (Event, error) {
	for {
		if raw, ok := s.messages.Next(); ok {
			m := ParseMessage(raw)
			s.cursors[string(m.Chat)] = max(s.cursors[string(m.Chat)], m.Sequence)
			return Event{Kind: []byte("message"), Payload: raw}, nil
		}
		if raw, ok := s.chats.Next(); ok {
			s.enterChat(raw)
			continue
		}
		if s.asked && !s.hasMore {
			if !s.caughtUp {
				s.caughtUp = true
				return Event{Kind: []byte("caught_up")}, nil
			}
			if err := s.pause(); err != nil {
				return Event{}, err
			}
		}
		if err := s.ask(); err != nil {
			return Event{}, err
		}
	}
}

func (s *syncing) enterChat(raw []byte) {
	o := NewObject(raw)
	for {
		key, value, ok := o.Next()
		if !ok {
			return
		}
		if string(key) == "messages" {
			s.messages = NewArray(value)
		}
	}
}

func (s *syncing) ask() error {
	body := []byte(`{"limit":1000,"chats":[`)
	first := true
	for chat, through := range s.cursors {
		if !first {
			body = append(body, ',')
		}
		first = false
		body = append(body, `{"chat_id":`...)
		body = AppendQuoted(body, chat)
		body = append(body, `,"last_acked_sequence":`...)
		body = strconv.AppendUint(body, through, 10)
		body = append(body, '}')
	}
	body = append(body, "]}"...)
	answer, err := s.conn.Do(s.ctx, "POST", "/api/v1/sync", body, AnswerTimeout)
	if err != nil {
		return err
	}
	s.asked, s.hasMore = true, false
	o := NewObject(answer)
	for {
		key, value, ok := o.Next()
		if !ok {
			return nil
		}
		switch string(key) {
		case "chats":
			s.chats = NewArray(value)
		case "has_more":
			s.hasMore = string(value) == "true"
		}
	}
}

func (s *syncing) pause() error {
	if !signal.Pause(s.ctx, syncInterval) {
		return s.ctx.Err()
	}
	return nil
}

// Close implements Stream.
func (s *syncing) Close() { s.conn.Close() }
