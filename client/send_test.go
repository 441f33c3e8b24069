package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// isSend reports whether a request is a send.
func isSend(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages")
}

// TestClient_sends_once: answers are lost, and a proxy answers in the server's place. The send is
// repeated with its ID, and stored once.
func TestClient_sends_once(t *testing.T) {
	s := transporttest.New(t, quick())
	chat := s.Group(bob, alice)
	var tries atomic.Int64
	url := proxied(t, s.URL, func(w http.ResponseWriter, r *http.Request) bool {
		if !isSend(r) {
			return false
		}
		switch tries.Add(1) {
		case 1: // stored, and the answer is lost
			forward(t, s, r)
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusNotFound) // a proxy's, without a code
			return true
		case 3:
			return portal2(w)
		}
		return false
	})
	b := newBot(t, url)
	m, err := b.Send(t.Context(), Draft{ID: "one", ChatID: chat, Content: "1"})
	if err != nil || m.Sequence != 1 || m.Content != "1" || m.ClientMessageID != "one" {
		t.Fatalf("got %+v, %v", m, err)
	}
	if got := tries.Load(); got != 4 {
		t.Errorf("%d tries, want 4", got)
	}
	if m, err = b.Send(t.Context(), Draft{ID: "one", ChatID: chat, Content: "1"}); err != nil ||
		m.Sequence != 1 {
		t.Errorf("the second send is %+v, %v", m, err)
	}
	if m, err = b.Send(t.Context(), Draft{ChatID: chat, Content: "2"}); err != nil ||
		m.Sequence != 2 || m.ClientMessageID == "" {
		t.Errorf("a send without an ID is %+v, %v", m, err)
	}
}

func portal2(w http.ResponseWriter) bool {
	portal(w, nil)
	return true
}

// forward makes a request of a proxy at the server, and forgets the answer.
func forward(t *testing.T, s *transporttest.Stack, r *http.Request) {
	up, err := http.NewRequestWithContext(context.Background(), r.Method,
		strings.TrimSuffix(s.URL, basePath)+r.URL.Path, r.Body)
	if err != nil {
		t.Error(err)
		return
	}
	up.Header = r.Header.Clone()
	response, err := http.DefaultTransport.RoundTrip(up)
	if err != nil {
		t.Error(err)
		return
	}
	_ = response.Body.Close()
}

func TestSend_errors(t *testing.T) {
	s := transporttest.New(t, quick())
	chat := s.Group(bob, alice)
	others := s.Group(alice)
	b := newBot(t, s.URL)
	if _, err := b.Send(t.Context(), Draft{ID: "a", ChatID: chat, Content: "1"}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		draft Draft
		want  tidemark.Code
	}{
		"other content": {Draft{ID: "a", ChatID: chat, Content: "2"}, tidemark.Conflict},
		"no member":     {Draft{ChatID: others, Content: "2"}, tidemark.NotMember},
		"no chat":       {Draft{ChatID: "nowhere", Content: "2"}, tidemark.NotFound},
		"an odd chat":   {Draft{ChatID: "a/b?c", Content: "2"}, tidemark.Invalid},
		"empty":         {Draft{ChatID: chat}, tidemark.Invalid},
		"too large": {
			Draft{ChatID: chat, Content: strings.Repeat("x", tidemark.MaxContent+1)},
			tidemark.TooLarge,
		},
		"too late": {
			Draft{ChatID: chat, Content: "x", SendBy: time.Now().Add(-time.Hour)},
			tidemark.Expired,
		},
	} {
		_, err := b.Send(t.Context(), tc.draft)
		var e *tidemark.Error
		if !errors.As(err, &e) || e.Code != tc.want || errors.Is(err, ErrUnknown) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

// TestClient_sends_once_or_says_that_it_does_not_know: a send without an answer may be stored, one
// that was refused for its rate is not.
func TestClient_sends_once_or_says_that_it_does_not_know(t *testing.T) {
	for code, want := range map[int]bool{http.StatusBadGateway: true, 429: false} {
		url := proxied(t, "http://127.0.0.1:1", func(w http.ResponseWriter, r *http.Request) bool {
			if code == 429 {
				w.Header().Set("Retry-After", "600") // so that there is one attempt
			}
			w.WriteHeader(code)
			if code == 429 {
				fmt.Fprint(w, `{"code":"RATE_LIMITED","detail":"slow"}`)
			}
			return true
		})
		var err error
		// If the answer to the first attempt is late, the outcome is unknown after any code.
		for within := 200 * time.Millisecond; ; within *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err = newBot(t, url).Send(ctx, Draft{ChatID: "c", Content: "x"})
			cancel()
			if errors.Is(err, ErrUnknown) == want || within > wait.Hang {
				break
			}
		}
		if errors.Is(err, ErrUnknown) != want || !errors.Is(err, context.DeadlineExceeded) ||
			tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Errorf("after %d: %v; unknown is %v, want %v", code, err, !want, want)
		}
	}
}

// TestSend_does_not_know_if_the_token_ends: after a send without an answer, a token that is refused
// says nothing about it.
func TestSend_does_not_know_if_the_token_ends(t *testing.T) {
	for _, first := range []int{http.StatusBadGateway, 401} {
		var tries atomic.Int64
		url := proxied(t, "http://127.0.0.1:1", func(w http.ResponseWriter, r *http.Request) bool {
			code := 401
			if tries.Add(1) == 1 {
				code = first
			}
			w.WriteHeader(code)
			if code == 401 {
				fmt.Fprint(w, `{"code":"UNAUTHENTICATED","detail":"the token has expired"}`)
			}
			return true
		})
		_, err := newBot(t, url).Send(t.Context(), Draft{ChatID: "c", Content: "x"})
		if errors.Is(err, ErrUnknown) != (first != 401) ||
			tidemark.CodeOf(err) != tidemark.Unauthenticated {
			t.Errorf("after %d: %v", first, err)
		}
	}
}

// TestSend_comes_back_when_the_server_says: exactly then, and not before.
func TestSend_comes_back_when_the_server_says(t *testing.T) {
	t.Parallel() // It waits more than it works.
	s := transporttest.New(t, quick())
	chat := s.Group(bob, alice)
	for _, code := range []int{429, 503} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int64
			url := proxied(t, s.URL, func(w http.ResponseWriter, r *http.Request) bool {
				if !isSend(r) || tries.Add(1) > 1 {
					return false
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(code)
				name := map[int]string{429: "RATE_LIMITED", 503: "UNAVAILABLE"}[code]
				fmt.Fprintf(w, `{"code":%q,"detail":"later"}`, name)
				return true
			})
			began := time.Now()
			_, err := newBot(t, url).Send(t.Context(), Draft{ChatID: chat, Content: "x"})
			if took := time.Since(began); err != nil || took < time.Second || tries.Load() != 2 {
				t.Errorf("after %v and %d tries: %v", took, tries.Load(), err)
			}
		})
	}
}

// TestRun_comes_back_when_the_server_says: a stream that is refused names the time, over each
// transport in its own way.
func TestRun_comes_back_when_the_server_says(t *testing.T) {
	s := transporttest.New(t, quick())
	for range 32 { // SessionsPerUser
		other := newBot(t, s.URL, only(SSE)).start()
		wait.Until(t, "it is open", func() bool { return len(other.streams()) == 1 })
	}
	overEvery(t, func(t *testing.T, over Transport) {
		c := newBot(t, s.URL, only(over)).Client
		r, link, at := newRun(c, nil), connection{transports: []Transport{over}}, position{}
		f := r.connect(t.Context(), over, &link, &at)
		if f.ending != busy || f.after < 5*time.Second || f.err.Code != tidemark.Exhausted {
			t.Errorf("the stream ended with %v, to come back after %v", f, f.after)
		}
		if got := link.ended(f, time.Now()); got.exactly != f.after {
			t.Errorf("what follows is %+v, want a pause of exactly %v", got, f.after)
		}
	})
}

// TestRun_renews_its_token: a token is replaced before it ends, and when the server refuses it. The
// session goes on.
func TestRun_renews_its_token(t *testing.T) {
	t.Parallel() // It waits more than it works.
	secret := []byte("the secret of a test, 32 bytes..")
	overEvery(t, func(t *testing.T, over Transport) {
		t.Parallel()
		s := transporttest.New(t, transporttest.Options{Auth: auth.Config{JWTSecret: secret}})
		chat := s.Group(alice, bob)
		var given atomic.Int64
		b := newBot(t, s.URL, only(over), func(c *Config) {
			c.Token = func(context.Context) (string, error) {
				if given.Add(1) == 1 {
					return sign(secret, time.Now().Add(-time.Hour)), nil // it has ended
				}
				return sign(secret, time.Now().Add(3*time.Second)), nil
			}
		}).start()
		began := time.Now()
		for i := range 4 {
			s.Send(alice, chat, i+1, 1)
			b.gets(chat, 1, i+1)
			wait.Until(t, "there is another token", func() bool {
				return given.Load() >= int64(i+2)
			})
		}
		if took := time.Since(began); took < 4*time.Second {
			t.Errorf("the token was renewed three times within %v, want one each 2.4 s", took)
		}
		sessions, err := s.Server.Sessions(t.Context(), bob)
		if err != nil || len(sessions) != 1 {
			t.Errorf("sessions %v, %v; want one", sessions, err)
		}
	})
}

// sign returns a token of bob.
func sign(secret []byte, expires time.Time) string {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "bob", "iat": time.Now().Unix(), "exp": expires.Unix(),
	}).SignedString(secret)
	if err != nil {
		panic(err) // the claims are our own
	}
	return token
}

// TestRun_ends_without_a_token: if there will be no token, Run says so at once. If Token has
// trouble, Run goes on.
func TestRun_ends_without_a_token(t *testing.T) {
	s := transporttest.New(t, quick())
	chat := s.Group(alice, bob)
	b := newBot(t, s.URL, func(c *Config) {
		c.Token = func(context.Context) (string, error) {
			return "", tidemark.Errorf(tidemark.Unauthenticated, "bob has signed out")
		}
	}).start()
	if err := b.end(); tidemark.CodeOf(err) != tidemark.Unauthenticated {
		t.Errorf("Run ended with %v", err)
	}
	var tries atomic.Int64
	b = newBot(t, s.URL, func(c *Config) {
		c.Token = func(context.Context) (string, error) {
			if tries.Add(1) < 3 {
				return "", errors.New("the issuer is away")
			}
			return "dev:bob", nil
		}
	}).start()
	s.Send(alice, chat, 1, 1)
	b.gets(chat, 1, 1)
}

func TestToken_renewal(t *testing.T) {
	now := time.Now()
	part := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
	}
	for token, want := range map[string]time.Duration{
		part(`{"iat":1000,"exp":2000}`): 800 * time.Second, // whatever the clock says
		part(`{"iat":2000,"exp":1000}`): 0,
		part(`{}`):                      -1,
		"tmk_secret":                    -1,
		"a.b.c":                         -1,
	} {
		got := renewal(token, now)
		if want < 0 && !got.IsZero() || want >= 0 && got.Sub(now) != want {
			t.Errorf("%s: renewal %v after now, want %v", token, got.Sub(now), want)
		}
	}
}
