package websocket_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const waitTime = wait.Hang

// next returns the next frame of one of the types.
func next(t *testing.T, c *transporttest.Socket, types ...string) transporttest.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for {
		ev, err := c.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for %v: %v", types, err)
		}
		for _, want := range types {
			if string(ev.Type) == want {
				return ev
			}
		}
	}
}

// connect connects a user and waits until they have caught up.
func connect(t *testing.T, s *transporttest.Stack, user tidemark.UserID) *transporttest.Socket {
	t.Helper()
	c := transporttest.DialWebSocket(t, s, nil, user)
	next(t, c, "caught_up")
	return c
}

type ackPayload struct {
	ChatID          string `json:"chat_id"`
	ClientMessageID string `json:"client_message_id"`
	MessageID       string `json:"message_id"`
	Sequence        uint64 `json:"sequence"`
	CreatedAt       string `json:"created_at"`
	Duplicate       bool   `json:"duplicate"`
}

func decode[T any](t *testing.T, ev transporttest.Event) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(ev.Payload, &v); err != nil {
		t.Fatalf("%s: %v", ev.Payload, err)
	}
	return v
}

func sendFrame(requestID string, chat tidemark.ChatID, key, content string) string {
	return fmt.Sprintf(`{"type":"send_message","request_id":%q,"payload":{"chat_id":%q,`+
		`"client_message_id":%q,"content":%q}}`,
		requestID, chat, key, content)
}

func TestSend_is_answered_with_its_request_id(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	c := connect(t, s, "alice")
	for i, duplicate := range []bool{false, true} {
		request := fmt.Sprint("r", i)
		c.Write(sendFrame(request, chat, "m1", "hello"))
		ev := next(t, c, "send_message_ack", "problem")
		got := decode[ackPayload](t, ev)
		want := ackPayload{string(chat), "m1", got.MessageID, 1, got.CreatedAt, duplicate}
		if diff := cmp.Diff(want, got); diff != "" || ev.RequestID != request || ev.ID != 0 ||
			got.MessageID == "" {
			t.Errorf("%s (request %q, id %d): %s", ev.Type, ev.RequestID, ev.ID, diff)
		}
	}
}

// With own=confirm the answer to a send has an id, and stands for the event of the message.
func TestSend_own_confirmation_stands_for_the_event(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	c := transporttest.DialWebSocket(t, s, url.Values{"own": {"confirm"}}, "alice")
	next(t, c, "caught_up")
	for i := range 3 {
		request := fmt.Sprint("r", i)
		c.Write(sendFrame(request, chat, fmt.Sprint("m", i), "hello"))
		ev := next(t, c, "send_message_ack", "problem")
		if ev.RequestID != request || (ev.ID == 0 && i > 0) {
			t.Errorf("answer %d: %s of request %q with id %d", i, ev.Type, ev.RequestID, ev.ID)
		}
		// The first message may begin the chat for the session. It comes as an event then.
		if ev.ID == 0 {
			next(t, c, "message")
		}
	}
	s.Send("bob", chat, 1, 1)
	if got := decode[ackPayload](t, next(t, c, "message")); got.Sequence != 4 {
		t.Errorf("the next message is %d, want 4", got.Sequence)
	}
}

func TestSend_refused_is_an_error_frame_and_leaves_the_socket_open(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		Limit: limit.New(limit.Config{
			User: limit.Rates{Sends: limit.Rate{PerSecond: 0.001, Burst: 5}},
		}),
	})
	chat := s.Group("alice", "bob")
	c := connect(t, s, "mallory")
	a := connect(t, s, "alice")
	tests := []struct {
		name  string
		c     *transporttest.Socket
		frame string
		code  tidemark.Code
		id    string
	}{
		{"not a member", c, sendFrame("1", chat, "m", "x"), tidemark.NotMember, "1"},
		{"no such chat", c, sendFrame("2", "nowhere", "m", "x"), tidemark.NotFound, "2"},
		{"empty content", a, sendFrame("3", chat, "m", ""), tidemark.Invalid, "3"},
		{"no key", a, sendFrame("4", chat, "", "x"), tidemark.Invalid, "4"},
		{"content too large", a,
			sendFrame("5", chat, "m", strings.Repeat("x", tidemark.MaxContent+1)),
			tidemark.TooLarge, "5"},
		{"the same key again", a, sendFrame("6", chat, "taken", "other"), tidemark.Conflict, "6"},
		{"a time that is over", a,
			`{"type":"send_message","request_id":"11","payload":{"chat_id":"` + string(chat) +
				`","client_message_id":"late","content":"x","send_by":"2020-01-31T18:00:00Z"}}`,
			tidemark.Expired, "11"},
		{"not JSON", a, `{"type":`, tidemark.Invalid, ""},
		{"not an object", a, `[]`, tidemark.Invalid, ""},
		{"unknown type", a, `{"type":"dance","request_id":"7"}`, tidemark.Invalid, "7"},
		{"a type of the server", a, `{"type":"message","request_id":"8","payload":{}}`,
			tidemark.Invalid, "8"},
		{"payload is no object", a, `{"type":"send_message","request_id":"9","payload":3}`,
			tidemark.Invalid, "9"},
		{"bad sync", a, `{"type":"sync_request","request_id":"10","payload":{"chats":7}}`,
			tidemark.Invalid, "10"},
	}
	s.SendText("alice", chat, "taken", "first")
	for _, tt := range tests {
		tt.c.Write(tt.frame)
		ev := next(t, tt.c, "problem", "send_message_ack", "sync_response")
		var got struct {
			Code   tidemark.Code
			Detail string
		}
		_ = json.Unmarshal(ev.Payload, &got)
		if got.Code != tt.code || ev.RequestID != tt.id || got.Detail == "" {
			t.Errorf("%s: got %s %s (request_id %q), want %s",
				tt.name, ev.Type, ev.Payload, ev.RequestID, tt.code)
		}
	}
	for i := range 10 { // the burst is 5
		c.Write(sendFrame(fmt.Sprint("limit", i), "nowhere", "m", "x"))
	}
	limited := 0
	for range 10 {
		if ev := next(t, c, "problem"); strings.Contains(string(ev.Payload), "RATE_LIMITED") {
			limited++
		}
	}
	if limited != 7 {
		t.Errorf("%d of 10 sends are over the limit, want 7", limited)
	}
	c.Write(`{"type":"ping","request_id":"still here"}`)
	if ev := next(t, c, "pong"); ev.RequestID != "still here" {
		t.Errorf("pong has request_id %q", ev.RequestID)
	}
}

// TestSend_pipelined_is_answered_and_stored_in_order: a client writes 3,000 sends of several chats
// before it reads the first answer, so sends do not wait for each other's answers. Those over the
// limit are refused. The others are stored in the order of their frames.
func TestSend_pipelined_is_answered_and_stored_in_order(t *testing.T) {
	for name, limit := range map[string]*limit.Limiter{
		"no limit": nil, "the usual limit": limit.New(limit.Config{}),
	} {
		t.Run(name, func(t *testing.T) { pipeline(t, limit) })
	}
}

func pipeline(t *testing.T, limit *limit.Limiter) {
	s := transporttest.New(t, transporttest.Options{Limit: limit})
	const count, chats = 3000, 3
	var ids []tidemark.ChatID
	for range chats {
		ids = append(ids, s.Group("alice", "bob"))
	}
	c := connect(t, s, "alice")
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for i := range count {
		frame := sendFrame(fmt.Sprint(i), ids[i%chats], fmt.Sprint("m", i), "x")
		if err := c.Conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatalf("writing frame %d: %v", i, err)
		}
	}
	seen := make(map[string]bool)
	var stored [chats]uint64 // the last sequence of each chat
	frames := make([]int, chats)
	refused := 0
	for range count {
		ev := next(t, c, "send_message_ack", "problem")
		got := decode[ackPayload](t, ev)
		var i int
		if _, err := fmt.Sscan(ev.RequestID, &i); err != nil || seen[ev.RequestID] {
			t.Fatalf("%s %s with request_id %q", ev.Type, ev.Payload, ev.RequestID)
		}
		seen[ev.RequestID] = true
		if ev.Type == "problem" {
			if limit == nil || !strings.Contains(string(ev.Payload), "RATE_LIMITED") {
				t.Fatalf("frame %d: %s", i, ev.Payload)
			}
			refused++
			continue
		}
		if stored[i%chats]++; got.Sequence != stored[i%chats] || i < frames[i%chats] {
			t.Fatalf("frame %d is message %d of its chat, want %d, after frame %d",
				i, got.Sequence, stored[i%chats], frames[i%chats])
		}
		frames[i%chats] = i
	}
	if refusals := limit != nil; (refused > 0) != refusals || refused > count-500 {
		t.Errorf("%d of %d were refused; the burst is 500", refused, count)
	}
	c.Write(`{"type":"ping","request_id":"still here"}`)
	next(t, c, "pong")
}

// TestAck_fire_and_forget tests ack_fire_and_forget of ADR-008 Appendix E.
func TestAck_fire_and_forget(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat, other := s.Group("alice", "bob"), s.Group("alice", "bob")
	s.Send("alice", chat, 1, 3)
	c := transporttest.DialWebSocket(t, s, url.Values{"status_updates": {"false"}}, "bob")
	next(t, c, "caught_up")
	bad := []string{
		`{"type":"ack","request_id":"x","payload":{"chat_id":"` + string(other) +
			`","last_acked_sequence":99}}`,
		`{"type":"ack","request_id":"x","payload":{"chat_id":"nowhere","last_acked_sequence":1}}`,
		`{"type":"ack","request_id":"x","payload":{"chat_id":"!","last_acked_sequence":1}}`,
		`{"type":"ack","request_id":"x","payload":{"chat_id":"c","last_acked_sequence":-1}}`,
		`{"type":"ack","request_id":"x","payload":{"chat_id":"c","last_acked_sequence":"1"}}`,
		`{"type":"ack","request_id":"x","payload":{"chats":{}}}`,
		`{"type":"ack","request_id":"x","payload":[]}`,
		`{"type":"ack","request_id":"x"}`,
		`{"type":"read","request_id":"x","payload":{"chat_id":"` + string(other) +
			`","last_read_sequence":99}}`,
		`{"type":"read","request_id":"x","payload":{}}`,
	}
	for i := range 1000 {
		c.Write(bad[i%len(bad)])
	}
	c.Write(fmt.Sprintf(`{"type":"ack","payload":{"chats":[{"chat_id":%q,`+
		`"last_acked_sequence":3}]}}`, chat))
	c.Write(fmt.Sprintf(`{"type":"read","payload":{"chat_id":%q,"last_read_sequence":2}}`, chat))
	c.Write(`{"type":"ping","request_id":"end"}`)
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for {
		ev, err := c.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "pong" {
			break
		}
		if ev.Type != tidemark.EventStatus {
			t.Fatalf("an acknowledgement was answered by %s %s", ev.Type, ev.Payload)
		}
	}
	transporttest.Eventually(t, "the good ones are stored", func() bool {
		state, err := s.Server.DeliveryState(ctx, "bob", chat)
		return err == nil && state.Acked == 3 && state.Read == 2
	})
}

func TestSync_is_answered(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	s.Send("alice", chat, 1, 5)
	c := connect(t, s, "bob")
	c.Write(fmt.Sprintf(`{"type":"sync_request","request_id":"s",`+
		`"payload":{"chats":[{"chat_id":%q,"last_acked_sequence":3}]}}`, chat))
	ev := next(t, c, "sync_response", "problem")
	got := decode[struct {
		Chats []struct {
			ChatID   string `json:"chat_id"`
			Messages []struct{ Sequence int }
		}
	}](t, ev)
	if len(got.Chats) != 1 || len(got.Chats[0].Messages) != 2 ||
		got.Chats[0].Messages[0].Sequence != 4 || ev.RequestID != "s" {
		t.Errorf("%s %s, want messages 4 and 5", ev.Type, ev.Payload)
	}
}

func TestTyping_reaches_the_others(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	a, b := connect(t, s, "alice"), connect(t, s, "bob")
	a.Write(fmt.Sprintf(`{"type":"typing","payload":{"chat_id":%q}}`, chat))
	if ev := next(t, b, "typing"); ev.ID != 0 || !strings.Contains(string(ev.Payload), "alice") {
		t.Errorf("typing is %s with the id %d, want alice without an id", ev.Payload, ev.ID)
	}
}

// TestGoodbye_ends_the_session: a close with 1000 ends the session. Any other end only detaches it.
func TestGoodbye_ends_the_session(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	for _, tt := range []struct {
		code    websocket.StatusCode
		resumed bool
	}{{websocket.StatusNormalClosure, false}, {websocket.StatusGoingAway, true}} {
		c := transporttest.DialWebSocket(t, s, nil, "bob")
		open := decode[struct {
			SessionID string `json:"session_id"`
		}](t, next(t, c, "session"))
		caughtUp := next(t, c, "caught_up")
		c.Write(sendFrame("1", chat, fmt.Sprint(tt.code), "the last words"))
		if err := c.Close(tt.code, ""); err != nil {
			t.Fatalf("closing: %v", err)
		}
		transporttest.Eventually(t, "the connection is gone",
			func() bool { return s.WebSocket.Connections() == 0 })
		again := transporttest.DialWebSocket(t, s,
			url.Values{"session_id": {open.SessionID}, "after_event_id": {fmt.Sprint(caughtUp.ID)}},
			"bob")
		got := decode[struct{ Resumed bool }](t, next(t, again, "session"))
		if got.Resumed != tt.resumed {
			t.Errorf("after close %d the session goes on: %v, want %v",
				tt.code, got.Resumed, tt.resumed)
		}
		_ = again.Close(websocket.StatusNormalClosure, "")
	}
	history, err := s.Server.History(context.Background(), "alice",
		server.HistoryRequest{Chat: chat, Limit: 10})
	if err != nil || len(history.Messages) != 2 {
		t.Errorf("%d messages are stored (%v), want both that were sent before the close",
			len(history.Messages), err)
	}
}
