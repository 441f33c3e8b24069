package transporttest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// The clients in this file write raw bytes, as slow, broken and half-closed clients do.

// waitTime bounds every wait of these tests.
const waitTime = wait.Hang

// bare is a connection on which a test writes raw bytes.
type bare struct {
	*net.TCPConn
	t     *testing.T
	lines *bufio.Reader
	path  string
	host  string
}

func dialBare(t *testing.T, s *transporttest.Stack) *bare {
	t.Helper()
	return dialWith(t, s, &net.Dialer{})
}

// dialNotReading is dialBare for a client that will stop reading.
func dialNotReading(t *testing.T, s *transporttest.Stack) *bare {
	t.Helper()
	return dialWith(t, s, transporttest.SmallReceiveBuffers())
}

func dialWith(t *testing.T, s *transporttest.Stack, dialer *net.Dialer) *bare {
	t.Helper()
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", base.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitTime))
	return &bare{
		TCPConn: conn.(*net.TCPConn),
		t:       t,
		lines:   bufio.NewReader(conn),
		path:    base.Path,
		host:    base.Host,
	}
}

// request writes a whole request of bob.
func (b *bare) request(method, path, body string) {
	b.t.Helper()
	b.say("%s %s%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer dev:bob\r\n"+
		"Content-Length: %d\r\n\r\n%s", method, b.path, path, b.host, len(body), body)
}

func (b *bare) say(format string, args ...any) {
	b.t.Helper()
	if _, err := fmt.Fprintf(b, format, args...); err != nil {
		b.t.Fatalf("writing: %v", err)
	}
}

// readTo reads lines up to one that equals line.
func (b *bare) readTo(line string) {
	b.t.Helper()
	for {
		got, err := b.lines.ReadString('\n')
		if err != nil {
			b.t.Fatalf("%q before %q: %v", got, line, err)
		}
		if got == line {
			return
		}
	}
}

// answer reads an answer with its whole body.
func (b *bare) answer() (*http.Response, string) {
	b.t.Helper()
	r, err := http.ReadResponse(b.lines, nil)
	if err != nil {
		b.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		b.t.Fatalf("the answer breaks off after %s: %v", body, err)
	}
	return r, string(body)
}

// dribble writes a byte at intervals until the server closes the connection.
func (b *bare) dribble() {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := b.Write([]byte("x")); errors.Is(err, os.ErrDeadlineExceeded) {
			b.t.Fatal("the server keeps waiting for a client that sends a byte now and then")
		} else if err != nil {
			return
		}
	}
}

func TestSlow_requests_are_cut(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{HTTP: func(h *http.Server) {
		h.ReadHeaderTimeout, h.ReadTimeout = 3*time.Second, 4*time.Second
	}})
	s.Group("bob", "alice")
	head := "POST %s/chats/chat-1/messages HTTP/1.1\r\nHost: %s\r\n" +
		"Authorization: Bearer dev:bob\r\nContent-Length: 1000\r\n\r\n{"
	for name, begin := range map[string]func(b *bare){
		"a header that does not end": func(b *bare) {
			b.say("GET %s/chats HTTP/1.1\r\nX-Slow: ", b.path)
		},
		"a body that does not end": func(b *bare) { b.say(head, b.path, b.host) },
		"an upgrade that does not end": func(b *bare) {
			b.say("GET %s/ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nX-Slow: ",
				b.path, b.host)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := dialBare(t, s)
			begin(b)
			b.dribble()
		})
	}
	t.Run("a body that stops is refused with a reason", func(t *testing.T) {
		t.Parallel()
		b := dialBare(t, s)
		b.say(head, b.path, b.host)
		if r, body := b.answer(); r.StatusCode != http.StatusBadRequest ||
			!strings.Contains(body, "too slowly") {
			t.Errorf("got %d %s", r.StatusCode, body)
		}
	})
}

// TestWebSocket_partial_message_is_cut: the server cuts a client that is silent after the upgrade,
// that never ends a frame, or that sends it byte by byte.
func TestWebSocket_partial_message_is_cut(t *testing.T) {
	s := newShort(t)
	upgrade := func(b *bare) {
		b.say("GET %s/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
			"Authorization: Bearer dev:bob\r\n\r\n", b.path, b.host)
		if r, err := http.ReadResponse(b.lines, nil); err != nil ||
			r.StatusCode != http.StatusSwitchingProtocols {
			b.t.Fatalf("no upgrade: %v, %v", r, err)
		}
	}
	const partial = "\x81\xfe\x10\x00\x00\x00\x00\x00{"
	t.Run("clients", func(t *testing.T) {
		for name, next := range map[string]func(b *bare) bool{
			"silence":          func(*bare) bool { return false },
			"a partial frame":  func(b *bare) bool { b.say(partial); return false },
			"a byte at a time": func(b *bare) bool { b.say(partial); return true },
			// Control frames may come between the fragments of a message. Pongs do not save the
			// client.
			"fragments without an end": func(b *bare) bool {
				b.say("\x01\x81\x00\x00\x00\x00{")
				go func() {
					for {
						if _, err := b.Write([]byte("\x8a\x80\x00\x00\x00\x00")); err != nil {
							return
						}
						if _, err := b.Write([]byte("\x00\x81\x00\x00\x00\x00x")); err != nil {
							return
						}
						<-time.After(5 * time.Millisecond)
					}
				}()
				return false
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := dialBare(t, s)
				upgrade(b)
				if next(b) {
					b.dribble()
					return
				}
				everything, err := io.ReadAll(b.lines) // to the end
				if err != nil && !strings.Contains(err.Error(), "reset") {
					t.Fatalf("the connection is still open: %v", err)
				}
				if !strings.Contains(string(everything), "\x11\x38") { // 4408
					t.Errorf("it was not closed with 4408: %q", everything)
				}
			})
		}
	})
	transporttest.Eventually(t, "the server has dropped all of them",
		func() bool { return s.WebSocket.Connections() == 0 })
}

// TestHalfClosed_clients_get_their_answers: a client that has closed its write side may still read.
func TestHalfClosed_clients_get_their_answers(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("bob", "alice")
	s.Send("alice", chat, 1, 1)
	half := func(t *testing.T, method, path, body string) *bare {
		b := dialBare(t, s)
		b.request(method, path, body)
		if err := b.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Run("a send", func(t *testing.T) {
		for i := range 50 { // the close comes at every stage of the request
			b := half(t, "POST", "/chats/"+string(chat)+"/messages",
				fmt.Sprintf(`{"client_message_id":"h%d","content":"x"}`, i))
			if r, body := b.answer(); r.StatusCode != http.StatusCreated {
				t.Fatalf("%d %s", r.StatusCode, body)
			}
		}
	})
	t.Run("a poll with something to get", func(t *testing.T) {
		for range 50 {
			b := half(t, "GET", "/poll?wait_seconds=0&device_id=a", "")
			if r, body := b.answer(); r.StatusCode != http.StatusOK ||
				!strings.Contains(body, `"type":"session"`) {
				t.Fatalf("%d %s", r.StatusCode, body)
			}
		}
	})
	t.Run("a poll that would wait is answered at once", func(t *testing.T) {
		b := dialBare(t, s)
		b.request("GET", "/poll?wait_seconds=0&device_id=b", "")
		_, body := b.answer()
		session := strings.Split(body, `"`)[3]
		at := 0
		for { // until there is nothing more
			b.request("GET",
				fmt.Sprintf("/poll?wait_seconds=0&session_id=%s&after_event_id=%d",
					session, at), "")
			_, body := b.answer()
			n := strings.Count(body, `"id":`)
			if n == 0 {
				break
			}
			for _, part := range strings.Split(body, `"id":`)[1:] {
				_, _ = fmt.Sscanf(part, "%d", &at)
			}
		}
		start := time.Now()
		r, body := half(t, "GET",
			fmt.Sprintf("/poll?wait_seconds=50&session_id=%s&after_event_id=%d",
				session, at), "").answer()
		// That is less than the wait of the poll.
		if r.StatusCode != http.StatusOK || time.Since(start) > wait.Hang {
			t.Errorf("%d %s after %v", r.StatusCode, body, time.Since(start))
		}
	})
	t.Run("an event stream goes on", func(t *testing.T) {
		b := half(t, "GET", "/events", "")
		until := func(what string) {
			for {
				line, err := b.lines.ReadString('\n')
				if err != nil {
					t.Fatalf("the stream ended before %s: %v", what, err)
				}
				if strings.Contains(line, what) {
					return
				}
			}
		}
		until("event: caught_up")
		<-time.After(500 * time.Millisecond) // the server has probed the client meanwhile
		s.SendText("alice", chat, "late", "still there?")
		until("still there?")
	})
}

// TestPipelined_requests_are_answered_in_order: HTTP/1.1 allows pipelining, and some clients use
// it.
func TestPipelined_requests_are_answered_in_order(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("bob", "alice")
	b := dialBare(t, s)
	const n = 100
	for i := range n {
		b.request("POST", "/chats/"+string(chat)+"/messages",
			fmt.Sprintf(`{"client_message_id":"p%d","content":"x"}`, i))
	}
	for i := range n {
		r, body := b.answer()
		if r.StatusCode != http.StatusCreated ||
			!strings.Contains(body, fmt.Sprintf(`"sequence":%d,`, i+1)) {
			t.Fatalf("answer %d: %d %s", i, r.StatusCode, body)
		}
	}
}

// newShort returns a stack with a short heartbeat.
func newShort(t *testing.T) *transporttest.Stack {
	var o transporttest.Options
	o.Core.Heartbeat = 50 * time.Millisecond
	return transporttest.New(t, o)
}

// TestWebSocket_sender_that_never_reads_is_cut_and_loses_nothing: the client's answers fill the
// kernel's buffers. Then the server stops reading, and after the write timeout it cuts the
// connection. The session waits. When the client sends the same messages again, each is stored
// before or stored now, in order.
func TestWebSocket_sender_that_never_reads_is_cut_and_loses_nothing(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		WriteTimeout: 200 * time.Millisecond,
		HTTP:         transporttest.SmallSendBuffers,
	})
	chat := s.Group("bob", "alice")
	b := dialNotReading(t, s)
	b.say("GET %s/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
		"Authorization: Bearer dev:bob\r\n\r\n", b.path, b.host)
	if r, err := http.ReadResponse(b.lines, nil); err != nil ||
		r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("no upgrade: %v, %v", r, err)
	}
	frame := func(i int) string {
		return fmt.Sprintf(`{"type":"send_message","request_id":"%d","payload":{"chat_id":%q,`+
			`"client_message_id":"n%d","content":"x"}}`, i, chat, i)
	}
	sent := 0
	for ; ; sent++ {
		_ = b.SetDeadline(time.Now().Add(waitTime))
		text := frame(sent)
		head := []byte{0x81, 0xfe, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}
		if _, err := b.Write(append(head, text...)); errors.Is(err, os.ErrDeadlineExceeded) ||
			sent == 200_000 {
			t.Fatalf("the client is not cut after %d sends: %v", sent, err)
		} else if err != nil {
			break
		}
	}
	transporttest.Eventually(t, "the server has dropped the connection",
		func() bool { return s.WebSocket.Connections() == 0 })
	again := transporttest.DialWebSocket(t, s, nil, "bob")
	duplicates, stored := 0, 0
	for i := 0; stored < 20; i++ {
		again.Write(frame(i))
		ctx, cancel := context.WithTimeout(t.Context(), waitTime)
		for {
			ev, err := again.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ev.RequestID == "" {
				continue
			}
			var answer struct {
				Sequence  int
				Duplicate bool
			}
			if err := json.Unmarshal(ev.Payload, &answer); err != nil ||
				ev.RequestID != strconv.Itoa(i) || answer.Sequence != i+1 {
				t.Fatalf("send %d was answered by %s %s", i, ev.Type, ev.Payload)
			}
			if answer.Duplicate {
				duplicates++
			} else {
				stored++
			}
			break
		}
		cancel()
	}
	if duplicates == 0 {
		t.Error("no message of the first connection was stored: the test shows nothing")
	}
}
