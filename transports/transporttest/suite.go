package transporttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// The users of the suite: alice sends and bob receives.
const (
	alice tidemark.UserID = "alice"
	bob   tidemark.UserID = "bob"
)

// Run runs the delivery suite over one transport.
func Run(t *testing.T, d Dialer) {
	tests := []struct {
		name string
		test func(*testing.T, Dialer)
	}{
		{"messages_arrive_in_order", testInOrder},
		{"offline_messages_arrive_before_caught_up", testOffline},
		{"acknowledgement_reaches_the_sender", testAck},
		{"resume_lossless", testResume},
		{"resume_over_another_transport", testResumeElsewhere},
		{"resume_yields_what_was_sent_and_not_received", testUnreceived},
		{"newest_connection_owns_the_session", testReplaced},
		{"replaced_session_is_refused_also_between_connections", testReplacedBetween},
		{"unknown_session_resets", testUnknownSession},
		{"unknown_position_resets", testUnknownPosition},
		{"foreign_session_is_unknown", testForeignSession},
		{"slow_reader_loses_nothing", testSlowReader},
		{"content_arrives_as_it_was_sent", testContent},
		{"attachment_arrives_byte_for_byte", testAttachment},
		{"messages_of_a_new_chat_arrive", testNewChat},
		{"session_waits_for_the_resume_window", testResumeWindow},
		{"shutdown_ends_the_stream_and_loses_nothing", testShutdown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.test(t, d)
		})
	}
}

func testInOrder(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	b := dial(t, s, d, Position{User: bob})
	b.find(tidemark.EventCaughtUp)
	s.Send(alice, chat, 1, 300)
	for i, got := range b.receive(chat, 1, 300) {
		if want := fmt.Sprint(i + 1); got != want {
			t.Fatalf("message %d has the content %q, want %q", i+1, got, want)
		}
	}
}

func testOffline(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chats := []tidemark.ChatID{s.Group(alice, bob), s.Group(alice, bob)}
	for _, chat := range chats {
		s.Send(alice, chat, 1, 100)
	}
	b := dial(t, s, d, Position{User: bob})
	if ev := b.event(); ev.Type != tidemark.EventSession || field[bool](t, ev, "resumed") {
		t.Fatalf("the first event is %s %s, want open, not resumed", ev.Type, ev.Payload)
	}
	next := map[string]float64{string(chats[0]): 1, string(chats[1]): 1}
	for ev := b.event(); ev.Type != tidemark.EventCaughtUp; ev = b.event() {
		if ev.Type != tidemark.EventMessage {
			continue
		}
		chat := field[string](t, ev, "chat_id")
		if got := field[float64](t, ev, "sequence"); got != next[chat] {
			t.Fatalf("got message %g of %s, want %g", got, chat, next[chat])
		}
		next[chat]++
	}
	for chat, n := range next {
		if n != 101 {
			t.Errorf("before caught_up came %g messages of %s, want 100", n-1, chat)
		}
	}
}

func testAck(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	a, b := dial(t, s, d, Position{User: alice}), dial(t, s, d, Position{User: bob})
	a.find(tidemark.EventCaughtUp)
	b.find(tidemark.EventCaughtUp)
	s.Send(alice, chat, 1, 3)
	b.receive(chat, 1, 3)
	b.Ack(chat, 3)
	for {
		ev := a.find(tidemark.EventStatus)
		if field[string](t, ev, "user_id") == string(bob) &&
			field[float64](t, ev, "last_acked_sequence") == 3 {
			return
		}
	}
}

// testResume cuts the connection repeatedly while messages are sent.
func testResume(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	const rounds, each = 10, 20
	at := Position{User: bob}
	next := tidemark.Sequence(1)
	for round := range rounds {
		b := dial(t, s, d, at)
		if !d.Polls || round == 0 {
			if ev := b.event(); ev.Type != tidemark.EventSession ||
				field[bool](t, ev, "resumed") != (round > 0) {
				t.Fatalf("round %d begins with %s %s", round, ev.Type, ev.Payload)
			}
		}
		s.Send(alice, chat, round*each+1, each)
		through := next + tidemark.Sequence(each/2+round%3)
		b.receive(chat, next, min(through, each*(tidemark.Sequence(round)+1)))
		next = min(through, each*(tidemark.Sequence(round)+1)) + 1
		b.Cut()
		at = b.position()
	}
	b := dial(t, s, d, at)
	b.receive(chat, next, rounds*each)
}

func testResumeElsewhere(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	at := Position{User: bob}
	next := tidemark.Sequence(1)
	for round := range 3 {
		for _, other := range dialers() {
			for _, via := range []Dialer{d, other} {
				s.Send(alice, chat, int(next), 6)
				b := dial(t, s, via, at)
				b.receive(chat, next, next+5)
				next += 6
				b.Cut()
				if at.Session != "" && b.at.Session != at.Session {
					t.Fatalf("round %d over %s: session %s became %s",
						round, via.Name, at.Session, b.at.Session)
				}
				at = b.position()
			}
		}
	}
}

// testUnreceived resumes at an event before the last one that the server sent.
func testUnreceived(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	s.Send(alice, chat, 1, 50)
	b := dial(t, s, d, Position{User: bob})
	b.receive(chat, 1, 10)
	at := b.position()
	b.receive(chat, 11, 50)
	b.Cut()
	again := dial(t, s, d, at)
	again.receive(chat, 11, 50)
	again.find(tidemark.EventCaughtUp)
}

func testReplaced(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	first := dial(t, s, d, Position{User: bob})
	first.find(tidemark.EventCaughtUp)
	at := first.position()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := first.Next(ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	Eventually(t, "the first connection waits", func() bool {
		return s.WebSocket.Connections()+s.SSE.Connections()+s.LongPoll.Connections() == 1
	})
	second := dial(t, s, d, at)
	got := make(chan Event, 1)
	go func() {
		for {
			ev, err := second.Next(ctx)
			// If the first poll is slow to begin, it takes the session back once.
			if errors.Is(err, ErrReplaced) {
				continue
			}
			if err != nil || ev.Type == tidemark.EventMessage {
				got <- ev
				return
			}
		}
	}()
	if err := <-ended; !errors.Is(err, ErrReplaced) {
		t.Fatalf("the older connection ended with %v, want %v", err, ErrReplaced)
	}
	s.Send(alice, chat, 1, 1)
	if ev := <-got; ev.Type != tidemark.EventMessage {
		t.Fatalf("the newer connection did not get the message")
	}
}

// The client has no connection when its device opens a newer session, or when its user ends it. If
// it then got a new session, two clients of one device would replace each other for ever.
func testReplacedBetween(t *testing.T, d Dialer) {
	s := New(t, Options{})
	s.Group(alice, bob)
	open := server.OpenRequest{User: bob, Device: "phone"}
	var sessions [2]tidemark.SessionID
	for i := range sessions {
		c, err := s.Server.Open(t.Context(), open)
		if err != nil {
			t.Fatal(err)
		}
		c.Detach()
		sessions[i] = c.Session()
	}
	dial(t, s, d, Position{User: bob, Session: sessions[0]}).fails(ErrReplaced)
	dial(t, s, d, Position{User: bob, Session: sessions[1]}).find(tidemark.EventCaughtUp)
	if err := s.Server.EndSession(t.Context(), bob, sessions[1]); err != nil {
		t.Fatal(err)
	}
	dial(t, s, d, Position{User: bob, Session: sessions[1]}).fails(ErrReplaced)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/sync",
		strings.NewReader(`{"session_id":"`+string(sessions[1])+`","chats":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	bearer(request.Header, bob)
	res, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusConflict {
		t.Errorf("cursors for a replaced session: %s, want 409", res.Status)
	}
	// Other users do not learn that the session existed.
	checkUnknown(t, s, d, Position{User: alice, Session: sessions[1]})
}

func testUnknownSession(t *testing.T, d Dialer) {
	s := New(t, Options{})
	s.Group(alice, bob)
	checkUnknown(t, s, d, Position{User: bob, Session: "AAAAAAAAAAAAAAAAAAAAAA", After: 3})
}

func testForeignSession(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	a := dial(t, s, d, Position{User: alice})
	a.find(tidemark.EventCaughtUp)
	at := a.position()
	at.User = bob
	checkUnknown(t, s, d, at)
	s.Send(bob, chat, 1, 1)
	a.receive(chat, 1, 1)
}

func checkUnknown(t *testing.T, s *Stack, d Dialer, at Position) {
	t.Helper()
	b := dial(t, s, d, at)
	if d.Polls {
		b.fails(ErrGone)
		return
	}
	b.at.After = 0 // the ids are those of another session
	if ev := b.event(); ev.Type != tidemark.EventSession || field[bool](t, ev, "resumed") ||
		b.at.Session == at.Session {
		t.Fatalf("got %s %s, want the open of a new session", ev.Type, ev.Payload)
	}
	if ev := b.event(); ev.Type != tidemark.EventReset ||
		field[string](t, ev, "reason") != string(tidemark.ResetUnknownSession) {
		t.Fatalf("got %s %s, want reset for an unknown session", ev.Type, ev.Payload)
	}
}

func testUnknownPosition(t *testing.T, d Dialer) {
	s := New(t, Options{})
	s.Group(alice, bob)
	b := dial(t, s, d, Position{User: bob})
	b.find(tidemark.EventCaughtUp)
	b.Cut()
	at := b.position()
	at.After += 1000
	again := dial(t, s, d, at)
	again.at.After = 0
	ev := again.find(tidemark.EventReset)
	if field[string](t, ev, "reason") != string(tidemark.ResetUnknownPosition) {
		t.Fatalf("got %s, want an unknown position", ev.Payload)
	}
	if again.at.Session != at.Session {
		t.Errorf("the session became %s, want %s", again.at.Session, at.Session)
	}
}

// testSlowReader sends more than all buffers between the client and the core hold.
func testSlowReader(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	b := dial(t, s, d, Position{User: bob})
	b.find(tidemark.EventCaughtUp)
	const count = 400
	text := strings.Repeat("x", 32<<10) // 13 MB
	for n := range count {
		s.SendText(alice, chat, fmt.Sprint(n), text)
	}
	for i, got := range b.receive(chat, 1, count) {
		if got != text {
			t.Fatalf("message %d is damaged", i+1)
		}
	}
}

func testContent(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	contents := []string{
		"line\nbreak\r\nand\rreturn", "\n\n", "data: forged\n\nevent: open\ndata: {}\n\n",
		"quote \" backslash \\ tab \t",
		"\u2028\u2029", "𝄞 ü 漢", "\x01\x1f", strings.Repeat("\u0001", tidemark.MaxContent),
		strings.Repeat("€", tidemark.MaxContent/3),
	}
	b := dial(t, s, d, Position{User: bob})
	for i, content := range contents {
		s.SendText(alice, chat, fmt.Sprint(i), content)
	}
	for i, got := range b.receive(chat, 1, tidemark.Sequence(len(contents))) {
		if got != contents[i] {
			t.Errorf("message %d: got %.60q, want %.60q", i+1, got, contents[i])
		}
	}
}

func testNewChat(t *testing.T, d Dialer) {
	s := New(t, Options{})
	b := dial(t, s, d, Position{User: bob})
	b.find(tidemark.EventCaughtUp)
	chat := s.Group(alice, bob)
	s.Send(alice, chat, 1, 2)
	b.receive(chat, 1, 2)
}

// testResumeWindow checks that an adapter detaches from the session when its client has gone.
// Otherwise the session would never end.
func testResumeWindow(t *testing.T, d Dialer) {
	s := New(t, Options{Core: server.Config{ResumeWindow: 300 * time.Millisecond}})
	s.Group(alice, bob)
	b := dial(t, s, d, Position{User: bob})
	b.find(tidemark.EventCaughtUp)
	b.Cut()
	Eventually(t, "the session ends", func() bool { return s.Server.Counters()["sessions"] == 0 })
	again := dial(t, s, d, b.position())
	if d.Polls {
		again.fails(ErrGone)
		return
	}
	again.at.After = 0
	ev := again.find(tidemark.EventReset)
	if field[string](t, ev, "reason") != string(tidemark.ResetUnknownSession) {
		t.Errorf("got %s, want an unknown session", ev.Payload)
	}
}

// testShutdown stops the adapters and checks that the stream ends and that no connection is left.
func testShutdown(t *testing.T, d Dialer) {
	s := New(t, Options{})
	chat := s.Group(alice, bob)
	b := dial(t, s, d, Position{User: bob})
	b.find(tidemark.EventCaughtUp)
	s.Send(alice, chat, 1, 5)
	b.receive(chat, 1, 2)

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), waitTime)
		defer cancel()
		for _, stop := range []func(context.Context) error{
			s.WebSocket.Shutdown, s.SSE.Shutdown, s.LongPoll.Shutdown,
		} {
			if err := stop(ctx); err != nil {
				t.Errorf("stopping: %v", err)
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for {
		if _, err := b.Next(ctx); err != nil {
			if ctx.Err() != nil {
				t.Fatalf("the stream did not end: %v", err)
			}
			break
		}
	}
	<-stopped
	if n := s.WebSocket.Connections() + s.SSE.Connections() + s.LongPoll.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}
