package transports_test

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// pollToEnd polls until a poll fails, or until one has waited in vain.
func pollToEnd(t *testing.T, s *transporttest.Stack, h http.Header) error {
	query := url.Values{"wait_seconds": {"60"}}
	for {
		page, err := s.Poll(wait.Context(t), t, h.Clone(), query)
		if err != nil {
			return err
		}
		if len(page.Events) == 0 {
			return errors.New("the poll has waited in vain")
		}
		query.Set("session_id", string(page.Session))
		for _, ev := range page.Events {
			if ev.ID > 0 {
				query.Set("after_event_id", strconv.FormatUint(ev.ID, 10))
			}
		}
	}
}

// barredLive has an open stream and a waiting poll of ann when a backend makes a call. Both must
// end with a code. Those of bob go on.
//
// Credentials of ann say when they were issued. So a poll that comes after the call, because an
// event ended the one before, is refused with the same code.
func barredLive(t *testing.T, call exchange, code string) {
	t.Helper()
	secret := []byte("the secret of this test, 32 bytes")
	s := transporttest.New(t, transporttest.Options{Auth: auth.Config{JWTSecret: secret}})
	chat := s.Group("ann", "bob")
	before := time.Now().Add(-time.Hour)
	as := map[string]http.Header{
		"ann": {"Authorization": {"Bearer " + dated(t, secret, &before)}},
		"bob": {"Authorization": {"Bearer dev:bob"}},
	}
	streams := map[string]*transporttest.EventStream{}
	for who, h := range as {
		streams[who] = transporttest.DialSSE(t, s, http.DefaultTransport, nil, h.Clone())
		if got := streams[who].Response.StatusCode; got != http.StatusOK {
			t.Fatalf("the stream of %s: %d, want 200", who, got)
		}
	}
	polled := make(chan error, 1)
	go func() { polled <- pollToEnd(t, s, as["ann"]) }()
	wait.Until(t, "the poll waits", func() bool { return s.LongPoll.Connections() == 1 })

	call.try(t, s)
	if err := <-polled; err == nil || !strings.Contains(err.Error(), code) {
		t.Errorf("the waiting poll ends with %v, want %s", err, code)
	}
	for {
		_, err := streams["ann"].Next(wait.Context(t))
		if err != nil {
			if !strings.Contains(err.Error(), "ended with "+code) {
				t.Errorf("the open stream ends with %v, want %s", err, code)
			}
			break
		}
	}
	s.Send("bob", chat, 1, 1)
	for {
		ev, err := streams["bob"].Next(wait.Context(t))
		if err != nil {
			t.Fatalf("the stream of bob ends: %v", err)
		}
		if strings.Contains(string(ev.Payload), `"sequence":1`) {
			return
		}
	}
}

func TestSuspension_suspended_does_nothing_on_what_is_open(t *testing.T) {
	barredLive(t, exchange{
		who: "key", method: "PUT", path: "/users/ann/suspension", status: 200,
		body: `{"reason":"you sent spam"}`,
	}, "DENIED")
}

func TestSignOut_signed_out_stays_out_on_what_is_open(t *testing.T) {
	barredLive(t, exchange{
		who: "key", method: "POST", path: "/users/ann/sign-out", status: 200,
	}, "UNAUTHENTICATED")
}
