package transports_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
)

// credentialTable gives the outcome of a call with the row's credentials over each transport. REST
// is every call of the API. The outcome of a refused WebSocket is its close code. "yes" means
// success. "some" means that the calls that need no user succeed, and all others are 400.
const credentialTable = `
credentials              transports REST SSE long-poll WebSocket
none                     all        401  401 401       4401
nonsense                 all        401  401 401       4401
empty                    all        401  401 401       4401
basic                    all        401  401 401       4401
two-headers              all        401  401 401       4401
dev-name                 all        401  401 401       4401
expired                  all        401  401 401       4401
not-yet-valid            all        401  401 401       4401
another-secret           all        401  401 401       4401
another-issuers-key      all        401  401 401       4401
other-claims-old-signature all        401  401 401       4401
alg-none                 all        401  401 401       4401
alg-HS512                all        401  401 401       4401
alg-RS512                all        401  401 401       4401
HS256-with-public-key    all        401  401 401       4401
unknown-kid              all        401  401 401       4401
no-kid                   all        401  401 401       4401
kid-of-another-kind      all        401  401 401       4401
no-sub                   all        401  401 401       4401
no-exp                   all        401  401 401       4401
bad-sub                  all        401  401 401       4401
key-unknown              all        401  401 401       4401
key-without-user         all        some 400 400       1008
key-bad-user             all        400  400 400       1008
key-two-users            all        400  400 400       1008
token-naming-another     all        403D 403D 403D     4403
token-naming-nonsense    all        400  400 400       1008
HS256                    all        yes  yes yes       yes
RS256                    all        yes  yes yes       yes
ES256                    all        yes  yes yes       yes
EdDSA                    all        yes  yes yes       yes
token-naming-self        all        yes  yes yes       yes
key                      all        yes  yes yes       yes
`

// credentials returns the credentials of a row for a user.
func (w *matrix) credentials(kind string, user tidemark.UserID) http.Header {
	w.t.Helper()
	sub := jwt.MapClaims{"sub": string(user)}
	with := func(name string, value any) jwt.MapClaims {
		claims := maps.Clone(sub)
		claims[name] = value
		return claims
	}
	hs := func(claims jwt.MapClaims) http.Header {
		return w.sign(jwt.SigningMethodHS256, w.secret, "", claims)
	}
	naming := func(h http.Header, users ...string) http.Header {
		h["X-User-Id"] = users
		return h
	}
	switch kind {
	case "none":
		return http.Header{}
	case "nonsense":
		return bearer("nonsense")
	case "empty":
		return bearer("")
	case "basic":
		return http.Header{"Authorization": {"Basic b3duZXI6eA=="}}
	case "two-headers":
		return http.Header{
			"Authorization": {hs(sub).Get("Authorization"), hs(sub).Get("Authorization")},
		}
	case "dev-name":
		return bearer("dev:" + string(user))
	case "expired":
		return hs(with("exp", time.Now().Add(-time.Second).Unix()))
	case "not-yet-valid":
		return hs(with("nbf", time.Now().Add(time.Minute).Unix()))
	case "another-secret":
		return w.sign(jwt.SigningMethodHS256, []byte("another secret of 32 bytes or so"), "", sub)
	case "another-issuers-key":
		return w.sign(jwt.SigningMethodRS256, w.stranger, "r", sub)
	case "other-claims-old-signature":
		good := strings.Split(hs(sub).Get("Authorization"), ".")
		other := strings.Split(hs(with("sub", "somebody")).Get("Authorization"), ".")
		return http.Header{"Authorization": {other[0] + "." + good[1] + "." + other[2]}}
	case "alg-none":
		return w.sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", sub)
	case "alg-HS512":
		return w.sign(jwt.SigningMethodHS512, w.secret, "", sub)
	case "alg-RS512":
		return w.sign(jwt.SigningMethodRS512, w.rsa, "r", sub)
	case "HS256-with-public-key":
		return w.sign(jwt.SigningMethodHS256, w.publicBytes(), "r", sub)
	case "unknown-kid":
		return w.sign(jwt.SigningMethodRS256, w.rsa, "x", sub)
	case "no-kid":
		return w.sign(jwt.SigningMethodRS256, w.rsa, "", sub)
	case "kid-of-another-kind":
		return w.sign(jwt.SigningMethodRS256, w.rsa, "e", sub)
	case "no-sub":
		return hs(with("sub", nil))
	case "no-exp":
		return hs(with("exp", nil))
	case "bad-sub":
		return hs(with("sub", "a b"))
	case "key-unknown":
		key, _, err := auth.NewAPIKey("unknown")
		if err != nil {
			w.t.Fatal(err)
		}
		return naming(bearer(key), string(user))
	case "key-without-user":
		return bearer(w.apiKey)
	case "key-bad-user":
		return naming(bearer(w.apiKey), "a b")
	case "key-two-users":
		return naming(bearer(w.apiKey), string(user), string(user))
	case "token-naming-another":
		return naming(hs(sub), "somebody")
	case "token-naming-nonsense":
		return naming(hs(sub), "a b")
	case "token-naming-self":
		return naming(hs(sub), string(user))
	case "HS256":
		return hs(sub)
	case "RS256":
		return w.sign(jwt.SigningMethodRS256, w.rsa, "r", sub)
	case "ES256":
		return w.sign(jwt.SigningMethodES256, w.ec, "e", sub)
	case "EdDSA":
		return w.sign(jwt.SigningMethodEdDSA, w.ed, "d", sub)
	case "key":
		return w.key(user)
	}
	w.t.Fatalf("no such credentials: %s", kind)
	return nil
}

// apiCalls returns the calls of the API that are answered at once: those about chats, sessions, and
// tickets.
func apiCalls() map[string]call {
	calls := chatCalls()
	// Only backends may: see membershipTable.
	delete(calls, "updateChat/policy")
	delete(calls, "updateChat/reads")
	calls["createTicket"] = call{"POST", "/tickets", ""}
	calls["listSessions"] = call{"GET", "/sessions", ""}
	calls["getUnread"] = call{"GET", "/unread", ""}
	calls["endSessions"] = call{"DELETE", "/sessions", ""}
	calls["listBlocks"] = call{"GET", "/blocks", ""}
	calls["putBlock"] = call{"PUT", "/blocks/OTHER", ""}
	calls["removeBlock"] = call{"DELETE", "/blocks/OTHER", ""}
	calls["getPush"] = call{"GET", "/push", ""}
	calls["putPresenceSettings"] = call{"PUT", "/presence/settings", `{"visible":true}`}
	calls["getReceiptsSettings"] = call{"GET", "/receipts/settings", ""}
	calls["putReceiptsSettings"] = call{"PUT", "/receipts/settings", `{"read_receipts":"on"}`}
	calls["putPushSettings"] = call{"PUT", "/push/settings", `{}`}
	calls["registerDevice"] = call{
		"PUT", "/push/devices/phone", `{"platform":"fcm","address":"x"}`,
	}
	calls["dropDevice"] = call{"DELETE", "/push/devices/phone", ""}
	calls["createAttachment"] = call{"POST", "/attachments",
		`{"name":"a","type":"text/plain","size":1,"sha256":"` + strings.Repeat("0a", 32) + `"}`}
	calls["endSession"] = call{"DELETE", "/sessions/SESSION", ""}
	return calls
}

func TestMatrix_credentials(t *testing.T) {
	w := newMatrix(t, memory.New(), 0)
	userless := needNoUser(w.contract)
	for _, r := range rows(t, credentialTable) {
		for verb, call := range apiCalls() {
			c := &cell{people: w.people("group"), w: w, verb: verb}
			c.self = c.owner
			what := fmt.Sprintf("%s with credentials %s", verb, r.verb)
			want := r.want["REST"]
			if operation, _, _ := strings.Cut(verb, "/"); want == "some" && userless[operation] {
				want = "yes"
			} else if want == "some" {
				want = "400"
			}
			if want != "yes" {
				c.checkUnchanged(what)
			}
			res, raw := w.do(call.method, transports.BasePath+c.fill(call.path), c.fill(call.body),
				w.credentials(r.verb, c.self))
			got := outcome(res, raw)
			// A conflict means that the caller was authenticated.
			if res.StatusCode < 300 || verb == "createChat" && got == "409" {
				got = "yes"
			}
			w.cells++
			if got != want {
				t.Errorf("%s: %s, want %s: %s", what, got, want, raw)
			}
			if want == "401" && res.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", what)
			}
		}
		for _, transport := range []string{"SSE", "long-poll", "WebSocket"} {
			c := w.people("group")
			what := fmt.Sprintf("%s with credentials %s", transport, r.verb)
			got := w.open(transport, "", 0, "", w.credentials(r.verb, c.owner))
			want := r.want[transport]
			if want == "yes" {
				want = "new"
			} else {
				c.checkUnchanged(what)
			}
			w.cells++
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		// All callers may read these.
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml"} {
			w.cells++
			res, raw := w.do("GET", path, "", w.credentials(r.verb, "owner"))
			if res.StatusCode != 200 {
				t.Errorf("%s with credentials %s: %d %s", path, r.verb, res.StatusCode, raw)
			}
		}
	}
	w.end()
	t.Logf("%d cells", w.cells)
}

// sessionTable gives the outcome of resuming the row's session. The credentials are a user's, or a
// backend's for them, in the header. sync names the session in its body.
const sessionTable = `
session         of    SSE     long-poll WebSocket sync
own             user  resumed resumed   resumed   200
anothers        user  new     410       new       410
unknown         user  new     410       new       410
own             key   resumed resumed   resumed   200
anothers        key   new     410       new       410
`

// session opens a session of a user. It returns the session and the id of its last event.
func (w *matrix) session(user tidemark.UserID) (tidemark.SessionID, uint64) {
	w.t.Helper()
	c, err := w.core.Open(w.t.Context(), server.OpenRequest{User: user})
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := c.Next(w.t.Context(), nil, true)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.Session(), events[len(events)-1].ID
}

// named returns the session that a table names, and the id of an event in it.
func (w *matrix) named(
	name string, c *people, its tidemark.SessionID,
) (tidemark.SessionID, uint64) {
	switch name {
	case "none":
		return "", 0
	case "its":
		return its, 1
	case "own":
		return w.session(c.owner)
	case "anothers":
		return w.session(c.member)
	case "unknown":
		return "unknown", 1
	}
	w.t.Fatalf("no such session: %s", name)
	return "", 0
}

func TestMatrix_sessions(t *testing.T) {
	w := newMatrix(t, memory.New(), 0)
	for _, r := range rows(t, sessionTable) {
		for column, want := range r.want {
			c := w.people("group")
			creds := w.token(c.owner)
			if r.object == "key" {
				creds = w.key(c.owner)
			}
			session, after := w.named(r.verb, c, "")
			var got string
			if column == "sync" {
				got = outcome(w.do("POST", transports.BasePath+"/sync",
					fmt.Sprintf(`{"session_id":%q}`, session), creds))
			} else {
				got = w.open(column, session, after, "", creds)
			}
			w.cells++
			if got != want {
				t.Errorf("%s of the session that is %s, by %s: %s, want %s",
					column, r.verb, r.object, got, want)
			}
		}
	}
	w.end()
	t.Logf("%d cells", w.cells)
}

// open opens a stream, at a position if session is not "". It returns new or resumed, or the status
// or close code of a refusal.
func (w *matrix) open(
	transport string, session tidemark.SessionID, after uint64, ticket string, header http.Header,
) string {
	w.t.Helper()
	header = header.Clone()
	query := "?wait_seconds=0"
	if ticket != "" {
		query += "&ticket=" + ticket
	}
	if session != "" && transport != "SSE" {
		query += fmt.Sprintf("&session_id=%s&after_event_id=%d", session, after)
	}
	path := transports.BasePath
	resumed := false
	switch transport {
	case "SSE":
		if session != "" {
			query += fmt.Sprintf("&last_event_id=%s.%d", session, after)
		}
		res, raw := w.do("GET", path+"/events"+query, "", header)
		if res.StatusCode != 200 {
			return outcome(res, raw)
		}
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
		}
		resumed = strings.Contains(lines.Text(), `"resumed":true`)
	case "long-poll":
		res, raw := w.do("GET", path+"/poll"+query, "", header)
		if res.StatusCode != 200 {
			return outcome(res, raw)
		}
		resumed = session != "" &&
			strings.Contains(string(raw), fmt.Sprintf(`"session_id":%q`, session))
	case "WebSocket":
		_, open, code := w.socket(query, header)
		if open == nil {
			return fmt.Sprint(code)
		}
		resumed = open["resumed"] == true
	}
	if resumed {
		return "resumed"
	}
	return "new"
}

// reader opens a stream and returns a function that reads the next part of it.
func (w *matrix) reader(what, transport string, header http.Header) func() string {
	w.t.Helper()
	path := transports.BasePath
	fail := func(err error) {
		w.t.Helper()
		w.t.Fatalf("%s: %v", what, err)
	}
	switch transport {
	case "SSE":
		res, raw := w.do("GET", path+"/events", "", header)
		if res.StatusCode != 200 {
			fail(fmt.Errorf("%d %s", res.StatusCode, raw))
		}
		lines := bufio.NewScanner(res.Body)
		next := func() string {
			if !lines.Scan() {
				fail(fmt.Errorf("the stream ended: %w", lines.Err()))
			}
			return lines.Text()
		}
		for next() != "event: session" {
			// the answer begins before the session is open
		}
		return next
	case "long-poll":
		query := "?wait_seconds=0"
		next := func() string {
			res, raw := w.do("GET", path+"/poll"+query, "", header)
			var poll struct {
				Session string `json:"session_id"`
				Events  []struct{ ID int }
			}
			if err := json.Unmarshal(raw, &poll); err != nil || res.StatusCode != 200 {
				fail(fmt.Errorf("%d %s", res.StatusCode, raw))
			}
			if n := len(poll.Events); n > 0 {
				query = fmt.Sprintf("?wait_seconds=5&session_id=%s&after_event_id=%d",
					poll.Session, poll.Events[n-1].ID)
			}
			return string(raw)
		}
		next() // opens the session
		return next
	}
	conn, _, code := w.socket("", header)
	if conn == nil {
		fail(fmt.Errorf("closed with %d", code))
	}
	return func() string {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
		defer cancel()
		_, raw, err := conn.Read(ctx)
		if err != nil {
			fail(err)
		}
		return string(raw)
	}
}

// TestMatrix_before_the_first_keys: a token may be valid, so it is not refused but answered with
// 503. Callers with other credentials are served.
func TestMatrix_before_the_first_keys(t *testing.T) {
	o := options{auth: auth.Config{Dev: true}}
	var err error
	o.auth.JWKS, err = auth.NewJWKS(auth.JWKSConfig{URL: "http://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	a := start(t, o)
	w := &matrix{t: t}
	w.issuer()
	header := w.credentials("RS256", "ann")
	for path, want := range map[string]int{
		"//readyz": 503, "//healthz": 200, "/chats": 503, "/delivery-states": 503,
	} {
		r := as{api: a, credentials: header.Get("Authorization")}.do("GET", path, "")
		if r.StatusCode != want ||
			want == 503 && (r.Header.Get("Retry-After") == "" || r.code() != "UNAVAILABLE") {
			t.Errorf("%s: %d %s, want %d", path, r.StatusCode, r.body, want)
		}
	}
	if r := a.as("ann").do("GET", "/chats", ""); r.StatusCode != 200 {
		t.Errorf("other credentials: %d %s", r.StatusCode, r.body)
	}
}

// TestMatrix_is_whole: the tables and openapi.yaml have the same calls and frames.
func TestMatrix_is_whole(t *testing.T) {
	contract := apitest.Load(t)
	type operation struct{ method, path string }
	covered := map[operation]bool{}
	for _, c := range apiCalls() {
		path, _, _ := strings.Cut(c.path, "?")
		path = strings.NewReplacer("CHAT", "{chat_id}", "SELF", "{user_id}", "OTHER", "{user_id}",
			"SESSION", "{session_id}", "FILE", "{attachment_id}",
			"phone", "{device_id}", "/messages/2/", "/messages/{sequence}/").Replace(path)
		covered[operation{c.method, transports.BasePath + path}] = true
	}
	for _, call := range contract.Calls() {
		// TestScopes_…: they need a backend, or a notification's token. TestSignOut_… signs out.
		if call.Path == "/api/v1/tokens" || call.Path == "/api/v1/push/acks" ||
			strings.HasPrefix(call.Path, "/api/v1/admin/") ||
			call.Path == "/api/v1/audit" || strings.HasPrefix(call.Path, "/api/v1/users/") ||
			call.Path == "/api/v1/sign-out" {
			covered[operation{call.Method, call.Path}] = true
		}
	}
	for _, path := range []string{
		"/api/v1/events", "/api/v1/poll", "/api/v1/ws", "/healthz", "/readyz", "/metrics",
		"/openapi.yaml",
	} {
		covered[operation{"GET", path}] = true
	}
	for _, call := range contract.Calls() {
		o := operation{call.Method, call.Path}
		if !covered[o] {
			t.Errorf("%v is in openapi.yaml, but in no table", o)
		}
		delete(covered, o)
	}
	for o := range covered {
		t.Errorf("%v is in the tables, but not in openapi.yaml", o)
	}
	inTable := map[string]int{}
	for _, r := range rows(t, membershipTable) {
		inTable[r.verb]++
	}
	for _, frame := range contract.Frames() {
		if clientFrames()[frame] == "" || inTable[frame] == 0 {
			t.Errorf("the frame %s is in openapi.yaml, but in no table", frame)
		}
	}
	for verb := range chatCalls() {
		if inTable[verb] != 4 {
			t.Errorf("%s has %d rows, want one for each kind of chat", verb, inTable[verb])
		}
	}
	if got := slices.Sorted(maps.Keys(clientFrames())); len(got) != len(contract.Frames()) {
		t.Errorf("the tables have the frames %v, openapi.yaml %v", got, contract.Frames())
	}
}
