package auth_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
)

var secret = []byte("a shared secret of the tests, 32 b")

func token(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	s, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func bearer(credentials string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+credentials)
	return r
}

func query(ticket string) *http.Request {
	return httptest.NewRequest("GET", "/?ticket="+ticket, nil)
}

func wantUser(t *testing.T, what string, id auth.Identity, err error, user tidemark.UserID) {
	t.Helper()
	if err != nil || id.User != user || id.Backend {
		t.Errorf("%s: %+v, %v; want user %q", what, id.Caller, err, user)
	}
}

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if tidemark.CodeOf(err) != tidemark.Unauthenticated || tidemark.DetailOf(err) == "" {
		t.Errorf("%s: %v, want it refused", what, err)
	}
}

func TestHeader_tokens(t *testing.T) {
	a := auth.New(auth.Config{JWTSecret: secret})
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	good := jwt.MapClaims{"sub": "ann", "exp": in(time.Hour)}
	id, err := a.Header(bearer(token(t, jwt.SigningMethodHS256, secret, good)))
	wantUser(t, "a good token", id, err, "ann")
	if d := time.Until(id.Expires); d < 59*time.Minute || d > 61*time.Minute {
		t.Errorf("expires in %v", d)
	}

	for what, claim := range map[string]string{"an iat": "iat", "an nbf": "nbf"} {
		id, err := a.Header(bearer(token(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{
			"sub": "ann", "exp": in(time.Hour), claim: in(3 * time.Second),
		})))
		wantUser(t, what+" of a clock that is ahead by seconds", id, err, "ann")
	}

	none, _ := jwt.NewWithClaims(jwt.SigningMethodNone, good).
		SignedString(jwt.UnsafeAllowNoneSignatureType)
	parts := strings.Split(token(t, jwt.SigningMethodHS256, secret, good), ".")
	eve := fmt.Appendf(nil, `{"sub":"eve","exp":%d}`, in(time.Hour))
	forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString(eve) + "." + parts[2]
	for what, credentials := range map[string]string{
		"alg none":                    none,
		"alg HS512":                   token(t, jwt.SigningMethodHS512, secret, good),
		"another secret":              token(t, jwt.SigningMethodHS256, []byte("another"), good),
		"other claims, old signature": forged,
		"no exp": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": "ann"}),
		"expired": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": "ann", "exp": in(-time.Minute)}),
		"issued in the future": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": "ann", "exp": in(time.Hour), "iat": in(time.Minute)}),
		"expired two seconds ago": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": "ann", "exp": in(-2 * time.Second)}),
		"not yet valid": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": "ann", "exp": in(time.Hour), "nbf": in(time.Minute)}),
		"no sub": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"exp": in(time.Hour)}),
		"a sub that is no id": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": "a b", "exp": in(time.Hour)}),
		"nonsense":        "nonsense",
		"nothing":         "",
		"dev without Dev": "dev:ann",
		"an exp beyond all years": token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": "ann", "exp": 1e300}),
	} {
		_, err := a.Header(bearer(credentials))
		wantRefused(t, what, err)
	}
	_, err = a.Header(bearer(token(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "ann"})))
	if detail := tidemark.DetailOf(err); !strings.Contains(detail, "exp") ||
		strings.Contains(detail, "expired") {
		t.Errorf("a token that never ends: %q, want the detail to say that exp is missing", detail)
	}
	_, err = a.Header(httptest.NewRequest("GET", "/", nil))
	wantRefused(t, "no header", err)
	_, err = a.Header(query("dev:ann"))
	wantRefused(t, "a ticket where a header is needed", err)
	basic := httptest.NewRequest("GET", "/", nil)
	basic.SetBasicAuth("ann", "x")
	_, err = a.Header(basic)
	wantRefused(t, "Basic", err)
}

// A claim whose name differs only in case is another claim. Users may control what it holds.
func TestHeader_claims_are_named_exactly(t *testing.T) {
	a := auth.New(auth.Config{JWTSecret: secret, Issuer: "ours", Audience: "tidemark"})
	signed := func(claims string) string {
		part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		text := part(`{"alg":"HS256","typ":"JWT"}`) + "." + part(claims)
		signature, err := jwt.SigningMethodHS256.Sign(text, secret)
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + base64.RawURLEncoding.EncodeToString(signature)
	}
	past, future := time.Now().Add(-time.Minute).Unix(), time.Now().Add(time.Hour).Unix()

	good := fmt.Sprintf(`{"sub":"ann","exp":%d,"iss":"ours","aud":"tidemark","Sub":"eve",`+
		`"EXP":%d,"Iss":"theirs","AUD":"another","Nbf":%d}`, future, past, future)
	id, err := a.Header(bearer(signed(good)))
	wantUser(t, "claims beside others of the same letters", id, err, "ann")
	for what, claims := range map[string]string{
		"an exp that is over, and EXP": fmt.Sprintf(
			`{"sub":"ann","exp":%d,"EXP":%d,"iss":"ours","aud":"tidemark"}`, past, future),
		"Exp alone": fmt.Sprintf(
			`{"sub":"ann","Exp":%d,"iss":"ours","aud":"tidemark"}`, future),
		"Sub alone": fmt.Sprintf(
			`{"Sub":"ann","exp":%d,"iss":"ours","aud":"tidemark"}`, future),
		"another iss, and ISS": fmt.Sprintf(
			`{"sub":"ann","exp":%d,"iss":"theirs","ISS":"ours","aud":"tidemark"}`, future),
		"another aud, and AUD": fmt.Sprintf(
			`{"sub":"ann","exp":%d,"iss":"ours","aud":"another","AUD":"tidemark"}`, future),
		"an nbf to come, and NBF": fmt.Sprintf(
			`{"sub":"ann","exp":%d,"iss":"ours","aud":"tidemark","nbf":%d,"NBF":%d}`,
			future, future, past),
		"a sub that is no string": fmt.Sprintf(
			`{"sub":5,"exp":%d,"iss":"ours","aud":"tidemark"}`, future),
	} {
		_, err := a.Header(bearer(signed(claims)))
		wantRefused(t, what, err)
	}
}

func TestHeader_without_secret_no_token_is_good(t *testing.T) {
	a := auth.New(auth.Config{})
	_, err := a.Header(bearer(token(t, jwt.SigningMethodHS256, []byte(""), jwt.MapClaims{
		"sub": "ann", "exp": time.Now().Add(time.Hour).Unix(),
	})))
	wantRefused(t, "a token signed with an empty secret", err)
}

func TestHeader_verified_token_does_not_outlive_exp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := auth.New(auth.Config{JWTSecret: secret})
		r := bearer(token(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{
			"sub": "ann", "exp": time.Now().Add(time.Minute).Unix(),
		}))
		for range 2 {
			id, err := a.Header(r)
			wantUser(t, "before exp", id, err, "ann")
		}
		time.Sleep(time.Minute - time.Millisecond) // synctest's clock
		id, err := a.Header(r)
		wantUser(t, "just before exp", id, err, "ann")
		time.Sleep(time.Millisecond)
		if id.Ended() == nil {
			t.Error("a stream goes on after exp")
		}
		_, err = a.Header(r)
		wantRefused(t, "after exp", err)
	})
}

func TestDev_names_are_enough(t *testing.T) {
	a := auth.New(auth.Config{Dev: true})
	id, err := a.Header(bearer("dev:ann"))
	wantUser(t, "header", id, err, "ann")
	if !id.Expires.IsZero() {
		t.Errorf("expires %v", id.Expires)
	}
	for range 2 {
		id, err = a.Stream(query("dev:ann"), "")
		wantUser(t, "ticket", id, err, "ann")
	}
	id, err = a.Beacon(query("dev:ann"))
	wantUser(t, "beacon", id, err, "ann")
	_, err = a.Header(bearer("dev:a b"))
	wantRefused(t, "no id", err)
	_, err = auth.New(auth.Config{JWTSecret: secret}).Stream(query("dev:ann"), "")
	wantRefused(t, "without Dev", err)
}

func issue(t *testing.T, a *auth.Authenticator, id auth.Identity) *http.Request {
	t.Helper()
	ticket, expires, err := a.Issue(t.Context(), id)
	if err != nil || len(ticket) < 20 || !expires.After(time.Now()) {
		t.Fatalf("%q until %v, %v", ticket, expires, err)
	}
	return query(ticket)
}

func ann() auth.Identity { return auth.Identity{Caller: server.Caller{User: "ann"}} }

func TestTicket_opens_one_session_and_resumes_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := auth.New(auth.Config{})
		r := issue(t, a, ann())
		id, err := a.Stream(r, "")
		wantUser(t, "first use", id, err, "ann")
		_, err = a.Stream(r, "")
		wantRefused(t, "second use before a session is there", err)
		a.Bind(t.Context(), id, "s1")
		_, err = a.Stream(r, "")
		wantRefused(t, "second session", err)
		_, err = a.Stream(r, "s2")
		wantRefused(t, "another session", err)

		time.Sleep(time.Hour) // longer than any time limit: the connection is still there
		again, err := a.Stream(r, "s1")
		wantUser(t, "the same session", again, err, "ann")
		a.Bind(t.Context(), again, "s1")
		a.Leave(id, "s1") // the older connection
		time.Sleep(time.Hour)
		id, err = a.Stream(r, "s1")
		wantUser(t, "while the newer connection is there", id, err, "ann")

		a.Leave(again, "s1")
		time.Sleep(59 * time.Second)
		id, err = a.Stream(r, "s1")
		wantUser(t, "within the resume window", id, err, "ann")
		time.Sleep(2 * time.Second)
		_, err = a.Stream(r, "s1")
		wantRefused(t, "after the resume window", err)
	})
}

// If a session has ended, another one may replace it on the same ticket. From then on the ticket
// lives as long as that session.
func TestTicket_follows_the_session_that_replaced_its_first(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := auth.New(auth.Config{})
		r := issue(t, a, ann())
		id, err := a.Stream(r, "")
		wantUser(t, "first use", id, err, "ann")
		a.Bind(t.Context(), id, "s1")
		a.Bind(t.Context(), id, "s2")
		a.Leave(id, "s1")
		_, err = a.Stream(r, "s1")
		wantRefused(t, "the session that ended", err)
		time.Sleep(time.Hour)
		id, err = a.Stream(r, "s2")
		wantUser(t, "the newer one, which is there", id, err, "ann")
		a.Leave(id, "s2")
		time.Sleep(time.Minute)
		_, err = a.Stream(r, "s2")
		wantRefused(t, "a minute after the newer session's connection", err)
	})
}

func TestTicket_ends_after_30_seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := auth.New(auth.Config{})
		r := issue(t, a, ann())
		time.Sleep(29 * time.Second)
		id, err := a.Beacon(r)
		wantUser(t, "in time", id, err, "ann")
		time.Sleep(time.Second)
		_, err = a.Stream(r, "")
		wantRefused(t, "late", err)
	})
}

func TestTicket_ends_with_the_credentials_it_was_made_with(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := auth.New(auth.Config{})
		id := ann()
		id.Expires = time.Now().Add(10 * time.Second)
		if _, expires, err := a.Issue(t.Context(), id); err != nil || !expires.Equal(id.Expires) {
			t.Errorf("a ticket of a token that ends at %v ends at %v (%v)",
				id.Expires, expires, err)
		}
		id.Expires = time.Now().Add(time.Minute)
		r := issue(t, a, id)
		id, err := a.Stream(r, "")
		wantUser(t, "first use", id, err, "ann")
		a.Bind(t.Context(), id, "s1")
		time.Sleep(time.Minute)
		_, err = a.Stream(r, "s1")
		wantRefused(t, "after exp", err)
	})
}

func TestTicket_beacon_uses_nothing_up(t *testing.T) {
	a := auth.New(auth.Config{})
	r := issue(t, a, ann())
	for range 2 {
		id, err := a.Beacon(r)
		wantUser(t, "beacon", id, err, "ann")
	}
	id, err := a.Stream(r, "")
	wantUser(t, "stream", id, err, "ann")
	a.Bind(t.Context(), id, "s1")
	id, err = a.Beacon(r)
	wantUser(t, "beacon of a bound ticket", id, err, "ann")
	_, err = a.Beacon(query("unknown"))
	wantRefused(t, "unknown", err)
}

func TestTicket_number_is_bounded_for_each_user(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := auth.New(auth.Config{})
		for range 128 {
			issue(t, a, ann())
		}
		if _, _, err := a.Issue(t.Context(), ann()); tidemark.CodeOf(err) != tidemark.Exhausted {
			t.Errorf("the 129th: %v", err)
		}
		issue(t, a, auth.Identity{Caller: server.Caller{User: "bob"}})
		time.Sleep(31 * time.Second) // synctest's clock
		issue(t, a, ann())
	})
}
