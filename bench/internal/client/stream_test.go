package client

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listen serves handler on the loopback interface, and returns a user of this server.
func listen(t *testing.T, handler http.HandlerFunc) Endpoint {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	url, err := ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Endpoint{
		URL:      url,
		User:     "bob",
		Token:    "dev:bob",
		Received: new(atomic.Int64),
		Buffer:   SmallBuffer,
	}
}

// takeAll reads events until the stream ends, and returns them as "id kind payload".
func takeAll(s Stream) (events []string, err error) {
	for {
		e, err := s.Next()
		if err != nil {
			return events, err
		}
		events = append(events, fmt.Sprintf("%d %s %s", e.ID, e.Kind, e.Payload))
	}
}

func TestSSE_reads_id_event_and_data(t *testing.T) {
	long := strings.Repeat("x", 3*SmallBuffer)
	user := listen(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer dev:bob" {
			t.Errorf("Authorization %q", got)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "retry: 1000\n\n: comment\n\n"+
			"id: s.1\nevent: session\ndata: {}\n\n"+
			"event: typing\ndata: {\"a\":1}\n\n"+
			"id: s.x.2\r\nevent: message\r\ndata: {\"b\":%q}\r\n\r\n", long)
	})
	s, err := user.Open(t.Context(), SSE, Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := takeAll(s)
	want := []string{"1 session {}", `0 typing {"a":1}`, `2 message {"b":"` + long + `"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err == nil {
		t.Error("the end of the stream is no error")
	}
}

func TestPoll_confirms_what_it_has(t *testing.T) {
	var asked []string
	user := listen(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("session_id")+" "+
			r.URL.Query().Get("after_event_id"))
		switch len(asked) {
		case 1:
			fmt.Fprint(w, `{"session_id":"S","events":[{"id":1,"type":"session","payload":{}},`+
				`{"id":2,"type":"message","payload":{"a":[]}}],"has_more":true}`)
		case 2:
			fmt.Fprint(w, `{"session_id":"S","events":[],"has_more":false}`)
		default:
			w.WriteHeader(http.StatusGone)
		}
	})
	s, err := user.Open(t.Context(), LongPoll, Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := takeAll(s)
	if diff := cmp.Diff([]string{"1 session {}", `2 message {"a":[]}`}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{" ", "S 2", "S 2"}, asked); diff != "" {
		t.Error(diff)
	}
	if err == nil {
		t.Error("410 is no error")
	}
}

func TestSync_asks_until_there_is_no_more(t *testing.T) {
	var asked []string
	user := listen(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, string(body))
		if len(asked) == 1 {
			fmt.Fprint(w, `{"chats":[{"chat_id":"c","messages":[{"chat_id":"c","sequence":1},`+
				`{"chat_id":"c","sequence":2}]}],"status_updates":[],"has_more":true}`)
			return
		}
		fmt.Fprint(w, `{"chats":[{"chat_id":"c","messages":[]}],"has_more":false}`)
	})
	s, err := user.Open(t.Context(), REST, Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, want := range []string{"message", "message", "caught_up"} {
		e, err := s.Next()
		if err != nil || string(e.Kind) != want {
			t.Fatalf("Next = %s, %v, want %s", e.Kind, err, want)
		}
	}
	want := []string{
		`{"limit":1000,"chats":[]}`,
		`{"limit":1000,"chats":[{"chat_id":"c","last_acked_sequence":2}]}`,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

// upgrade hijacks the connection and answers the upgrade.
func upgrade(t *testing.T, w http.ResponseWriter) (net.Conn, *bufio.ReadWriter) {
	t.Helper()
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	fmt.Fprint(rw,
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
	return nc, rw
}

func TestSocket_reads_frames_and_answers_pings(t *testing.T) {
	long := strings.Repeat("y", 70_000)
	pong := make(chan string, 1)
	user := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		nc, rw := upgrade(t, w)
		if nc == nil {
			return
		}
		defer nc.Close()
		short := `{"id":1,"type":"session","payload":{}}`
		fmt.Fprintf(rw, "\x81%c%s", len(short), short)
		rw.WriteString("\x89\x02hi") // a ping between
		rw.WriteString("\x01\x05{\"id\"\x80\x1a:2,\"type\":\"x\",\"payload\":1}")
		big := `{"id":3,"type":"y","payload":"` + long + `"}`
		rw.WriteString("\x81\x7f")
		rw.Write(binary.BigEndian.AppendUint64(nil, uint64(len(big))))
		rw.WriteString(big)
		rw.Flush()
		answer := make([]byte, 8)
		if _, err := io.ReadFull(rw, answer); err == nil {
			pong <- string(answer)
		}
		rw.WriteString("\x88\x06\x11\x39gone") // 4409
		rw.Flush()
		_, _ = io.ReadFull(rw, answer)
	})
	s, err := user.Open(t.Context(), WebSocket, Position{Session: "S", After: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := takeAll(s)
	want := []string{"1 session {}", "2 x 1", `3 y "` + long + `"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err == nil || !strings.Contains(err.Error(), "4409") {
		t.Errorf("the stream ended with %v, want code 4409", err)
	}
	if got := <-pong; got != "\x8a\x82\x00\x00\x00\x00hi" {
		t.Errorf("the ping was answered by %q", got)
	}
}

func TestSocket_says_why_it_was_refused(t *testing.T) {
	user := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you", http.StatusUnauthorized)
	})
	_, err := user.Open(t.Context(), WebSocket, Position{})
	if err == nil || !strings.Contains(err.Error(), "401") ||
		!strings.Contains(err.Error(), "who are you") {
		t.Errorf("Open = %v, want 401 and its reason", err)
	}
}

func TestConn_repeats_on_a_connection_that_the_server_closed(t *testing.T) {
	calls := 0
	user := listen(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls == 2 {
			nc, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			nc.Close()
			return
		}
		fmt.Fprintf(w, "%s %d", r.URL.Path, calls)
	})
	c := NewConn(user.URL, user.Token, user.Received, SmallBuffer)
	defer c.Close()
	for _, want := range []string{"/a 1", "/a 3"} {
		got, err := c.Do(t.Context(), "GET", "/a", nil, AnswerTimeout)
		if err != nil || string(got) != want {
			t.Errorf("Do = %q, %v, want %q", got, err, want)
		}
	}
}
