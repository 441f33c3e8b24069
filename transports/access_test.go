package transports_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// fetched makes a call and returns its status, and the detail of a problem. credentials may be "".
func fetched(
	t *testing.T, s *transporttest.Stack, method, path, credentials string,
) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(wait.Context(t), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if credentials != "" {
		r.Header.Set("Authorization", "Bearer "+credentials)
	}
	res, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK && path == "/events" {
		return res.StatusCode, "" // a stream has no end
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var problem struct{ Detail string }
	_ = json.Unmarshal(raw, &problem)
	return res.StatusCode, problem.Detail
}

// refusedBy opens a WebSocket and returns the code and the reason with which the server closes it.
func refusedBy(t *testing.T, s *transporttest.Stack, query, credentials string) (int, string) {
	t.Helper()
	header := http.Header{}
	if credentials != "" {
		header.Set("Authorization", "Bearer "+credentials)
	}
	url := strings.Replace(s.URL, "http", "ws", 1) + "/ws" + query
	c, _, err := websocket.Dial(wait.Context(t), url,
		&websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	return endOf(t, c)
}

// endOf reads a WebSocket to its end.
func endOf(t *testing.T, c *websocket.Conn) (int, string) {
	t.Helper()
	for {
		if _, _, err := c.Read(wait.Context(t)); err != nil {
			var end websocket.CloseError
			if !errors.As(err, &end) {
				t.Fatalf("the WebSocket ends with %v, want a close frame", err)
			}
			return int(end.Code), end.Reason
		}
	}
}

func TestSuspension_suspended_does_nothing_over_any_transport(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	s.Group("ann", "bob")
	live, _, err := websocket.Dial(wait.Context(t), strings.Replace(s.URL, "http", "ws", 1)+"/ws",
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer dev:ann"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer live.CloseNow()
	if _, _, err := live.Read(wait.Context(t)); err != nil {
		t.Fatal(err)
	}
	exchange{
		who: "key", method: "PUT", path: "/users/ann/suspension", status: 200,
		body: `{"reason":"you sent spam"}`,
	}.try(t, s)
	if code, reason := endOf(t, live); code != 4403 || !strings.Contains(reason, "you sent spam") {
		t.Errorf("the open WebSocket ends with %d %q, want 4403 and the reason", code, reason)
	}
	if code, reason := refusedBy(t, s, "", "dev:ann"); code != 4403 ||
		!strings.Contains(reason, "you sent spam") {
		t.Errorf("a new WebSocket ends with %d %q, want 4403 and the reason", code, reason)
	}
	for _, path := range []string{"/chats", "/events", "/poll?wait_seconds=0", "/push"} {
		status, detail := fetched(t, s, http.MethodGet, path, "dev:ann")
		if status != http.StatusForbidden || !strings.Contains(detail, "you sent spam") {
			t.Errorf("%s: %d %q, want 403 and the reason", path, status, detail)
		}
	}
	exchange{
		who: "backend", method: "GET", path: "/chats", status: 403, code: "DENIED",
	}.try(t, s)
	exchange{
		who: "bob", method: "DELETE", path: "/users/ann/suspension", status: 403, code: "DENIED",
	}.try(t, s)
	exchange{who: "key", method: "DELETE", path: "/users/ann/suspension", status: 204}.try(t, s)
	if status, _ := fetched(t, s, http.MethodGet, "/chats", "dev:ann"); status != http.StatusOK {
		t.Errorf("after the suspension: %d, want 200", status)
	}
}

// dated returns a token of ann with an iat, or without one if it is nil.
func dated(t *testing.T, secret []byte, iat *time.Time) string {
	t.Helper()
	claims := jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	if iat != nil {
		claims["iat"] = iat.Unix()
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestSignOut_signed_out_stays_out_over_any_transport(t *testing.T) {
	secret := []byte("the secret of this test, 32 bytes")
	s := transporttest.New(t, transporttest.Options{Auth: auth.Config{JWTSecret: secret}})
	before := time.Now().Add(-time.Hour)
	old, undated := dated(t, secret, &before), dated(t, secret, nil)
	ticket := func(token string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(wait.Context(t), http.MethodPost, s.URL+"/tickets",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := s.Transport(t).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var made struct{ Ticket string }
		if err := json.NewDecoder(res.Body).Decode(&made); err != nil || made.Ticket == "" {
			t.Fatalf("a ticket: %d, %v", res.StatusCode, err)
		}
		return url.QueryEscape(made.Ticket)
	}
	fresh, bound := ticket(old), ticket(undated)
	r, err := http.NewRequestWithContext(wait.Context(t), http.MethodGet,
		s.URL+"/poll?wait_seconds=0&ticket="+bound, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	var opened struct {
		Session string `json:"session_id"`
	}
	if err := json.NewDecoder(res.Body).Decode(&opened); err != nil || opened.Session == "" {
		t.Fatalf("a session: %d, %v", res.StatusCode, err)
	}
	res.Body.Close()
	if status, detail := fetched(t, s, http.MethodPost, "/sign-out", old); status != http.StatusOK {
		t.Fatalf("the sign-out: %d %s", status, detail)
	}
	var made struct{ Token string }
	answered := exchange{
		who: "key", method: "POST", path: "/tokens", body: `{"user_id":"ann"}`, status: 201,
	}.try(t, s)
	if err := json.NewDecoder(answered.Body).Decode(&made); err != nil {
		t.Fatal(err)
	}
	if status, _ := fetched(t, s, http.MethodGet, "/chats", made.Token); status != http.StatusOK {
		t.Errorf("a token that the server made: %d, want 200", status)
	}
	for what, path := range map[string]string{
		"a ticket from before": "/poll?wait_seconds=0&ticket=" + fresh,
		"a bound ticket that is resumed": "/poll?wait_seconds=0&session_id=" + opened.Session +
			"&after_event_id=0&ticket=" + bound,
		"a bound ticket that opens another": "/events?ticket=" + bound,
	} {
		if status, _ := fetched(t, s, http.MethodGet, path, ""); status != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401", what, status)
		}
	}
	for what, token := range map[string]string{"an older token": old, "an undated token": undated} {
		for _, path := range []string{
			"/chats", "/events", "/poll?wait_seconds=0",
			"/poll?wait_seconds=0&after_event_id=0&session_id=" + opened.Session,
		} {
			status, _ := fetched(t, s, http.MethodGet, path, token)
			if status != http.StatusUnauthorized {
				t.Errorf("%s at %s: %d, want 401", what, path, status)
			}
		}
		if code, _ := refusedBy(t, s, "", token); code != 4401 {
			t.Errorf("%s over a WebSocket: %d, want 4401", what, code)
		}
	}
	after := time.Now().Add(2 * time.Second) // within the leeway for the clock of an issuer
	newer := dated(t, secret, &after)
	if status, _ := fetched(t, s, http.MethodGet, "/chats", newer); status != http.StatusOK {
		t.Errorf("a newer token: %d, want 200", status)
	}
}

// TestSignOut_signed_out_stays_out_twice_in_a_second: a token that was made between two sign-outs
// does not outlast the second one.
func TestSignOut_signed_out_stays_out_twice_in_a_second(t *testing.T) {
	secret := []byte("the secret of this test, 32 bytes")
	s := transporttest.New(t, transporttest.Options{Auth: auth.Config{JWTSecret: secret}})
	signOut := exchange{who: "key", method: "POST", path: "/users/ann/sign-out", status: 200}
	signOut.try(t, s)
	for range 5 {
		var made struct{ Token string }
		answered := exchange{
			who: "key", method: "POST", path: "/tokens", body: `{"user_id":"ann"}`, status: 201,
		}.try(t, s)
		if err := json.NewDecoder(answered.Body).Decode(&made); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
			if got, _ := fetched(t, s, http.MethodGet, "/chats", made.Token); got != want {
				t.Errorf("the token: %d, want %d", got, want)
			}
			if want == http.StatusOK {
				signOut.try(t, s)
			}
		}
	}
}
