package longpoll_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const waitTime = wait.Hang

// poll polls as bob, with pairs of query parameters.
func poll(t *testing.T, s *transporttest.Stack, query ...any) (transporttest.Page, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Set(query[i].(string), fmt.Sprint(query[i+1]))
	}
	return transporttest.Poll(ctx, t, s, "bob", q)
}

func mustPoll(t *testing.T, s *transporttest.Stack, query ...any) transporttest.Page {
	t.Helper()
	page, err := poll(t, s, query...)
	if err != nil {
		t.Fatalf("polling %v: %v", query, err)
	}
	return page
}

// last returns the id of the last event.
func last(t *testing.T, p transporttest.Page) uint64 {
	t.Helper()
	if len(p.Events) == 0 {
		t.Fatal("the answer has no events")
	}
	return p.Events[len(p.Events)-1].ID
}

// messages returns the sequences of the messages.
func messages(t *testing.T, p transporttest.Page) []int {
	t.Helper()
	var got []int
	for _, ev := range p.Events {
		if ev.Type != tidemark.EventMessage {
			continue
		}
		var m struct{ Sequence int }
		if err := json.Unmarshal(ev.Payload, &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Sequence)
	}
	return got
}

func TestFirst_answer_has_open_and_the_backlog(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	s.Send("alice", chat, 1, 20)
	page := mustPoll(t, s, "wait_seconds", 0)
	if page.Events[0].Type != tidemark.EventSession || page.More {
		t.Errorf("it begins with %s, more is %v", page.Events[0].Type, page.More)
	}
	if got := messages(t, page); len(got) != 20 || got[19] != 20 {
		t.Errorf("the first answer has the messages %v, want 1 to 20", got)
	}
	caughtUp := false
	for _, ev := range page.Events {
		caughtUp = caughtUp || ev.Type == tidemark.EventCaughtUp
	}
	if !caughtUp {
		t.Error("the first answer has no caught_up")
	}
}

func TestPages_are_bounded_and_say_more(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	s.Send("alice", chat, 1, 700)
	page := mustPoll(t, s, "wait_seconds", 0)
	got := messages(t, page)
	polls := 1
	for ; page.More; polls++ {
		if len(page.Events) < 256 || len(page.Events) > 512 {
			t.Fatalf("a page that says more has %d events", len(page.Events))
		}
		page = mustPoll(t, s, "session_id", page.Session,
			"after_event_id", last(t, page), "wait_seconds", 0)
		got = append(got, messages(t, page)...)
	}
	for i, sequence := range got {
		if sequence != i+1 {
			t.Fatalf("message %d at place %d", sequence, i+1)
		}
	}
	if len(got) != 700 || polls < 2 {
		t.Errorf("got %d messages in %d polls, want 700 in a few", len(got), polls)
	}
}

// TestLost_answer_comes_again: the same `after` gets the same events, after a wait or without.
func TestLost_answer_comes_again(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	first := mustPoll(t, s, "wait_seconds", 0)
	at := last(t, first)
	s.Send("alice", chat, 1, 3)
	want := []int{1, 2, 3}
	var after uint64
	for range 3 {
		page := mustPoll(t, s, "session_id", first.Session, "after_event_id", at)
		if diff := cmp.Diff(want, messages(t, page)); diff != "" {
			t.Fatalf("the answer to the same poll: %s", diff)
		}
		if last(t, page) <= after {
			t.Fatalf("the ids went back to %d", last(t, page))
		}
		after = last(t, page)
	}
	s.Send("alice", chat, 4, 1)
	page := mustPoll(t, s, "session_id", first.Session, "after_event_id", after)
	if diff := cmp.Diff([]int{4}, messages(t, page)); diff != "" {
		t.Errorf("after the confirmed events: %s", diff)
	}
}

func TestWait_ends_with_an_event_or_without_any(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	first := mustPoll(t, s, "wait_seconds", 0)
	at := last(t, mustSettle(t, s, &first))

	start := time.Now()
	page := mustPoll(t, s, "session_id", first.Session, "after_event_id", at, "wait_seconds", 1)
	if elapsed := time.Since(start); len(page.Events) != 0 || page.Session != first.Session ||
		elapsed < time.Second {
		t.Errorf("after %v: %d events of session %s", elapsed, len(page.Events), page.Session)
	}
	if page = mustPoll(t, s, "session_id", first.Session, "after_event_id",
		at, "wait_seconds", 0); len(page.Events) != 0 {
		t.Errorf("wait_seconds=0 got %d events", len(page.Events))
	}

	answer := make(chan transporttest.Page, 1)
	go func() {
		page, err := poll(t, s, "session_id", first.Session, "after_event_id", at)
		if err != nil {
			t.Errorf("waiting: %v", err)
		}
		answer <- page
	}()
	transporttest.Eventually(t, "it waits", func() bool { return s.LongPoll.Connections() == 1 })
	s.Send("alice", chat, 1, 1)
	page = <-answer
	if len(messages(t, page)) == 0 { // the author's status update may come before the message
		page = mustPoll(t, s, "session_id", first.Session, "after_event_id", last(t, page))
	}
	if got := messages(t, page); len(got) != 1 {
		t.Errorf("the waiting poll got the messages %v", got)
	}
}

// mustSettle polls until nothing comes at once, and returns the last page that had events.
func mustSettle(
	t *testing.T, s *transporttest.Stack, first *transporttest.Page,
) transporttest.Page {
	t.Helper()
	page := *first
	for {
		next := mustPoll(t, s, "session_id", first.Session,
			"after_event_id", last(t, page), "wait_seconds", 0)
		if len(next.Events) == 0 {
			return page
		}
		page = next
	}
}

func TestRefusal(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{Core: server.Config{SessionsPerUser: 1}})
	mustPoll(t, s, "wait_seconds", 0)
	for _, tt := range []struct {
		query  string
		user   string
		status int
		code   string
	}{
		{"wait_seconds=-1", "bob", 400, "INVALID"},
		{"wait_seconds=soon", "bob", 400, "INVALID"},
		{"wait_seconds=1.5", "bob", 400, "INVALID"},
		{"session_id=x&after_event_id=-1", "bob", 400, "INVALID"},
		{"session_id=x&after_event_id=1", "bob", 410, "SESSION_GONE"},
		{"", "", 401, "UNAUTHENTICATED"},
		{"", "bob", 429, "RATE_LIMITED"},
	} {
		r, err := http.NewRequest(http.MethodGet, s.URL+"/poll?"+tt.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer dev:"+tt.user)
		response, err := s.Transport(t).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		var problem struct{ Code string }
		_ = json.Unmarshal(body, &problem)
		if response.StatusCode != tt.status || problem.Code != tt.code {
			t.Errorf("%q as %q: %d %s, want %d %s",
				tt.query, tt.user, response.StatusCode, body, tt.status, tt.code)
		}
	}
}

func TestGone_client_leaves_the_session_to_the_next_poll(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	first := mustPoll(t, s, "wait_seconds", 0)
	at := last(t, mustSettle(t, s, &first))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := transporttest.Poll(ctx, t, s, "bob", url.Values{
			"session_id": {string(first.Session)}, "after_event_id": {fmt.Sprint(at)},
		})
		ended <- err
	}()
	transporttest.Eventually(t, "it waits", func() bool { return s.LongPoll.Connections() == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("the poll ended with %v", err)
	}
	transporttest.Eventually(t, "the server notices",
		func() bool { return s.LongPoll.Connections() == 0 })
	s.Send("alice", chat, 1, 1)
	if got := messages(t, mustPoll(t, s, "session_id", first.Session,
		"after_event_id", at)); len(got) != 1 {
		t.Errorf("the next poll got the messages %v", got)
	}
}

func TestHTTP2_waits_too(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{HTTP2: true})
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	chat := s.Group("alice", "bob")
	first := mustPoll(t, s, "wait_seconds", 0)
	at := last(t, mustSettle(t, s, &first))
	poll := func(after uint64) (page transporttest.Page, err error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			fmt.Sprintf("%s/poll?session_id=%s&after_event_id=%d", s.URL, first.Session, after),
			nil)
		if err != nil {
			return page, err
		}
		r.Header.Set("Authorization", "Bearer dev:bob")
		response, err := transport.RoundTrip(r)
		if err != nil {
			return page, err
		}
		defer func() { _ = response.Body.Close() }()
		return page, json.NewDecoder(response.Body).Decode(&page)
	}
	answer := make(chan []int, 1)
	go func() {
		defer close(answer)
		// Other events may come first.
		for got := []int(nil); ; {
			page, err := poll(at)
			if err != nil {
				t.Errorf("polling: %v", err)
			} else {
				got = messages(t, page)
			}
			if err != nil || len(got) > 0 || len(page.Events) == 0 {
				answer <- got
				return
			}
			at = last(t, page)
		}
	}()
	transporttest.Eventually(t, "it waits", func() bool { return s.LongPoll.Connections() == 1 })
	s.Send("alice", chat, 1, 1)
	if got := <-answer; len(got) != 1 {
		t.Errorf("got the messages %v", got)
	}
}
