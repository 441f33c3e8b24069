package transports_test

import (
	"bytes"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/rest"
)

func TestErrors_every_row(t *testing.T) {
	ann := start(t, dev()).as("ann")
	eve := ann.as("eve")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	direct := get[rest.Chat](ann, 201,
		"POST", "/chats", `{"type":"direct","member_ids":["bob"]}`).ChatId
	send(ann, "c1", "x")
	message := func(fields string) string { return `{"client_message_id":"m",` + fields + `}` }
	big := strings.Repeat("x", 65_537)
	long := strings.Repeat("i", 129)
	tests := []struct {
		who          as
		method, path string
		body         string
		status       int
		code         string
	}{
		{ann, "GET", "/nowhere", "", 404, "NOT_FOUND"},
		{ann, "GET", "//nowhere", "", 404, "NOT_FOUND"},
		{ann, "POST", "//nowhere", "", 404, "NOT_FOUND"},
		{ann, "HEAD", "//nowhere", "", 404, ""},
		{ann, "PUT", "/chats", "", 405, "METHOD_NOT_ALLOWED"},
		{ann, "DELETE", "/chats/team/messages", "", 405, "METHOD_NOT_ALLOWED"},
		{ann, "POST", "//healthz", "", 405, "METHOD_NOT_ALLOWED"},
		{ann, "POST", "//", "", 405, "METHOD_NOT_ALLOWED"},
		{ann, "GET", "/chats/", "", 404, "NOT_FOUND"},

		{ann, "GET", "/chats?limit=0", "", 400, "INVALID"},
		{ann, "GET", "/chats?limit=-1", "", 400, "INVALID"},
		{ann, "GET", "/chats?limit=1.5", "", 400, "INVALID"},
		{ann, "GET", "/chats?limit=", "", 400, "INVALID"},
		{ann, "GET", "/chats?cursor=nonsense", "", 400, "INVALID"},
		{ann, "GET", "/chats?limit=5;cursor=x", "", 400, "INVALID"},
		{ann, "GET", "/delivery-states?cursor=%zz", "", 400, "INVALID"},
		{ann, "GET", "/delivery-states?cursor=%00", "", 400, "INVALID"},
		{ann, "GET", "/chats/team/members?cursor=x", "", 400, "INVALID"},
		{ann, "GET", "/chats?limit=5&limit=6", "", 400, "INVALID"},
		{ann, "POST", "/chats", `{`, 400, "INVALID"},
		{ann, "POST", "/chats", ``, 400, "INVALID"},
		{ann, "POST", "/chats", `{"type":"direct","member_ids":[]}`, 400, "INVALID"},
		{ann, "POST", "/chats", `{"type":"direct","member_ids":["ann"]}`, 400, "INVALID"},
		{ann, "POST", "/chats", `{"type":"direct","member_ids":["bob","cid"]}`, 400, "INVALID"},
		{ann, "POST", "/chats", `{"type":"group","member_ids":["a b"]}`, 400, "INVALID"},
		{ann, "POST", "/chats", `{"type":"group","member_ids":[],"name":"\u0000","chat_id":"n"}`,
			400, "INVALID"},
		{ann, "POST", "/chats",
			`{"type":"group","chat_id":"n","member_ids":[],"name":"` +
				strings.Repeat("n", 257) + `"}`,
			413, "TOO_LARGE"},

		{ann, "GET", "/chats/nowhere", "", 404, "NOT_FOUND"},
		{ann, "GET", "/chats/a%20b", "", 400, "INVALID"},
		{ann, "GET", "/chats/a%2Fb", "", 400, "INVALID"},
		{ann, "GET", "/chats/%00", "", 400, "INVALID"},
		{ann, "GET", "/chats/%ff", "", 400, "INVALID"},
		{ann, "GET", "/chats/" + long, "", 400, "INVALID"},
		{ann, "GET", "/chats/team%2Cx/messages", "", 400, "INVALID"},
		{eve, "GET", "/chats/team", "", 403, "NOT_A_MEMBER"},
		{eve, "PATCH", "/chats/team", `{"name":"x"}`, 403, "NOT_A_MEMBER"},
		{ann.as("bob"), "PATCH", "/chats/team", `{"name":"x"}`, 403, "DENIED"},
		{ann, "PATCH", "/chats/team", `{}`, 400, "INVALID"},
		{ann, "PATCH", "/chats/nowhere", `{"name":"x"}`, 404, "NOT_FOUND"},

		{eve, "GET", "/chats/team/members", "", 403, "NOT_A_MEMBER"},
		{ann, "GET", "/chats/nowhere/members", "", 404, "NOT_FOUND"},
		{ann.as("bob"), "POST", "/chats/team/members", `{"user_ids":["x"]}`, 403, "DENIED"},
		{ann, "POST", "/chats/" + direct + "/members", `{"user_ids":["x"]}`, 403, "DENIED"},
		{ann, "POST", "/chats/team/members", `{"user_ids":[]}`, 400, "INVALID"},
		{ann, "DELETE", "/chats/" + direct + "/members/ann", "", 403, "DENIED"},
		{ann.as("bob"), "DELETE", "/chats/team/members/ann", "", 403, "DENIED"},
		{ann, "DELETE", "/chats/team/members/a%20b", "", 400, "INVALID"},
		{ann, "DELETE", "/chats/nowhere/members/bob", "", 404, "NOT_FOUND"},

		{ann, "POST", "/chats/nowhere/messages", message(`"content":"x"`), 404, "NOT_FOUND"},
		{eve, "POST", "/chats/team/messages", message(`"content":"x"`), 403, "NOT_A_MEMBER"},
		{ann, "POST", "/chats/team/messages", `{"content":"x"}`, 400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message(`"content":""`), 400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message(`"content":"\u0000"`), 400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message(`"content":"\ud800"`), 400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message("\"content\":\"\xff\""), 400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message(`"content":"x","content_type":""`),
			400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message(`"attachments":{}`), 400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message(`"attachments":[]`), 400, "INVALID"},
		{ann, "POST", "/chats/team/messages", message(`"content":"x","seen_sequence":-1`),
			422, "INVALID_SEQUENCE"},
		{ann, "POST", "/chats/team/messages", message(`"content":"` + big + `"`), 413, "TOO_LARGE"},
		{ann, "POST", "/chats/team/messages",
			message(`"attachments":[{"a":"` + big[:9_000] + `"}]`),
			413, "TOO_LARGE"},
		{ann, "POST", "/chats/team/messages",
			message(`"content":"x","metadata":{"a":"` + big[:5_000] + `"}`), 413, "TOO_LARGE"},
		{ann, "POST", "/chats/team/messages", message(`"content":"` + big + big + `"`),
			413, "TOO_LARGE"},
		{ann, "GET", "/chats/team/messages?after_sequence=1&before_sequence=2", "", 400, "INVALID"},
		{ann, "GET", "/chats/team/messages?after_sequence=-1", "", 400, "INVALID"},
		{ann, "GET", "/chats/team/messages?before_sequence=x", "", 400, "INVALID"},
		{ann, "GET", "/chats/team/messages?after_sequence=", "", 400, "INVALID"},
		{ann, "GET", "/chats/team/messages?after_sequence=9007199254740992", "", 400, "INVALID"},
		{eve, "GET", "/chats/team/messages", "", 403, "NOT_A_MEMBER"},
		{ann, "GET", "/chats/nowhere/messages", "", 404, "NOT_FOUND"},

		{ann, "PATCH", "/chats/team/delivery-state", `{}`, 400, "INVALID"},
		{ann, "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":"1"}`, 400, "INVALID"},
		{ann, "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":1e400}`,
			400, "INVALID"},
		{ann, "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":0}`,
			422, "INVALID_SEQUENCE"},
		{ann, "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":2}`,
			422, "INVALID_SEQUENCE"},
		{ann, "PATCH", "/chats/team/delivery-state", `{"last_read_sequence":9007199254740992}`,
			422, "INVALID_SEQUENCE"},
		{ann, "PATCH", "/chats/team/delivery-state",
			`{"last_acked_sequence":1,"last_read_sequence":2}`, 422, "INVALID_SEQUENCE"},
		{eve, "PATCH", "/chats/team/delivery-state", `{"last_acked_sequence":1}`,
			403, "NOT_A_MEMBER"},
		{ann, "PATCH", "/chats/nowhere/delivery-state", `{"last_acked_sequence":1}`,
			404, "NOT_FOUND"},
		{eve, "GET", "/chats/team/delivery-state", "", 403, "NOT_A_MEMBER"},
		{eve, "GET", "/chats/team/delivery-status", "", 403, "NOT_A_MEMBER"},
		{ann, "GET", "/chats/nowhere/delivery-status", "", 404, "NOT_FOUND"},
		{ann, "GET", "/chats/team/delivery-status?for_sequence=0", "", 422, "INVALID_SEQUENCE"},
		{ann, "GET", "/chats/team/delivery-status?for_sequence=2", "", 422, "INVALID_SEQUENCE"},
		{ann, "GET", "/chats/team/delivery-status?for_sequence=x", "", 400, "INVALID"},

		{ann, "POST", "/acks", `{"chats":[{"last_acked_sequence":1}]}`, 400, "INVALID"},
		{ann, "POST", "/acks", `[]`, 400, "INVALID"},
		{ann, "POST", "/sync", `{"chats":[{"chat_id":"team","last_acked_sequence":-1}]}`,
			422, "INVALID_SEQUENCE"},
		{ann, "POST", "/sync", `{"chats":[{"chat_id":"team","last_acked_sequence":0},` +
			`{"chat_id":"team","last_acked_sequence":0}]}`, 400, "INVALID"},
		{ann, "POST", "/sync", `{"session_id":"nobody"}`, 410, "SESSION_GONE"},
		{ann, "POST", "/sync", `{"limit":0}`, 400, "INVALID"},

		{ann.with("Content-Type", "text/plain"), "POST", "/chats", group,
			415, "UNSUPPORTED_MEDIA_TYPE"},
		{ann.with("Content-Type", "application/x-www-form-urlencoded"),
			"POST", "/acks", `{"chats":[]}`, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{ann.with("Content-Type", "application/json; charset=latin1"), "POST", "/chats", group,
			415, "UNSUPPORTED_MEDIA_TYPE"},
		{ann.with("Content-Type", ";"), "POST", "/chats", group, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{ann.with("Content-Encoding", "gzip"), "POST", "/chats", group,
			415, "UNSUPPORTED_MEDIA_TYPE"},
		{ann.with("Content-Type", "application/json; charset=UTF-8"),
			"POST", "/acks", `{"chats":[]}`, 200, ""},
		{ann.with("Content-Type", "text/plain;charset=UTF-8"),
			"POST", "/acks", `{"chats":[]}`, 200, ""},
		{ann.with("Content-Type", ""), "POST", "/acks", `{"chats":[]}`, 200, ""},
	}
	for _, tt := range tests {
		r := tt.who.do(tt.method, tt.path, tt.body)
		if r.StatusCode != tt.status || r.code() != tt.code {
			t.Errorf("%s %.80s %.80s: %d %.300s, want %d %s",
				tt.method, tt.path, tt.body, r.StatusCode, r.body, tt.status, tt.code)
		}
	}
	if got := get[rest.Chat](ann, 200, "GET", "/chats/team", ""); got.HeadSequence != 1 ||
		*got.LastAckedSequence > 1 || *got.LastReadSequence > 1 {
		t.Errorf("a refused call changed something: %+v", got)
	}
}

func TestErrors_unauthenticated_everywhere(t *testing.T) {
	a := start(t, options{auth: auth.Config{JWTSecret: []byte("secret")}})
	calls := 0
	for _, call := range a.contract.Calls() {
		path := strings.NewReplacer("{chat_id}", "team", "{user_id}", "ann", "{outlet_id}", "crm",
			"{device_id}", "phone", "{event_id}", "evt", "{attachment_id}", "file",
		).Replace(call.Path)
		if !strings.HasPrefix(path, transports.BasePath) || strings.HasSuffix(path, "/events") ||
			strings.HasSuffix(path, "/poll") || strings.HasSuffix(path, "/ws") ||
			call.OperationID == "acknowledgePush" { // whose token is its credential
			continue
		}
		calls++
		for _, credentials := range []string{"", "Bearer dev:ann", "Bearer nonsense"} {
			r := as{api: a, credentials: credentials}.do(call.Method, "/"+path, "")
			if r.StatusCode != 401 || r.code() != "UNAUTHENTICATED" ||
				r.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s with %q: %d %s",
					call.Method, path, credentials, r.StatusCode, r.body)
			}
		}
	}
	if calls < 16 {
		t.Errorf("only %d calls were tried", calls)
	}
}

func TestErrors_429_says_when_to_come_back(t *testing.T) {
	o := dev()
	o.limit = limit.New(limit.Config{
		User: limit.Rates{Sends: limit.Rate{PerSecond: 0.01, Burst: 2}},
	})
	ann := start(t, o).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	for i := range 2 {
		send(ann, fmt.Sprint("c", i), "x")
	}
	r := ann.do("POST", "/chats/team/messages", `{"client_message_id":"c9","content":"x"}`)
	// It is a whole number of seconds until there is a token again, less what the calls took.
	after, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if r.StatusCode != 429 || r.code() != "RATE_LIMITED" || err != nil || after < 50 ||
		after > 100 {
		t.Errorf("%d, Retry-After %q: %s", r.StatusCode, r.Header.Get("Retry-After"), r.body)
	}
	policy, left := r.Header.Get("RateLimit-Policy"), r.Header.Get("RateLimit")
	full := regexp.MustCompile(`^"sends";r=0;t=(1[5-9]\d|200)$`)
	if policy != `"sends";q=2;w=200` || !full.MatchString(left) {
		t.Errorf("RateLimit-Policy %q, RateLimit %q", policy, left)
	}
	send(ann.as("bob"), "c", "x")
}

// TestErrors_429_other_calls_have_a_rate_of_their_own: calls that read or write many rows count
// more.
func TestErrors_429_other_calls_have_a_rate_of_their_own(t *testing.T) {
	o := dev()
	o.limit = limit.New(limit.Config{
		User: limit.Rates{Calls: limit.Rate{PerSecond: 0.001, Burst: 12}},
	})
	ann := start(t, o).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group) // counts as 5
	ann.do("GET", "/chats", "")                       // 5
	for range 2 {
		get[rest.Chat](ann, 200, "GET", "/chats/team", "")
	}
	apart := []string{
		"sendMessage", "getDeliveryStatus", "listStatuses", "streamEvents", "poll",
		"acknowledgePush",
	}
	for _, call := range ann.contract.Calls() {
		path := strings.NewReplacer("{chat_id}", "team", "{user_id}", "ann").Replace(call.Path)
		if !strings.HasPrefix(path, transports.BasePath) || call.Responses.Status(101) != nil ||
			slices.Contains(apart, call.OperationID) {
			continue
		}
		r := ann.do(call.Method, "/"+path, "{}")
		if r.StatusCode != 429 || r.code() != "RATE_LIMITED" || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, Retry-After %q: %s",
				call.OperationID, r.StatusCode, r.Header.Get("Retry-After"), r.body)
		}
	}
	send(ann, "m", "sends go on")
}

// TestErrors_503_when_there_are_too_many_connections: calls of the API get 503. Operators get
// answers.
func TestErrors_503_when_there_are_too_many_connections(t *testing.T) {
	seeFull(t, apitest.Load(t))
}

// seeFull calls a server that has too many connections and makes no progress.
func seeFull(t *testing.T, contract *apitest.Contract) {
	t.Helper()
	o := dev()
	o.connections = 1
	o.metricsToken = "a token of the operator"
	o.alive = func() error { return tidemark.Errorf(tidemark.Unavailable, "it hangs") }
	a := start(t, o)
	a.contract = contract
	held, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, path := range []string{"/chats", "/tickets"} {
		r := a.as("ann").do("POST", path, "{}")
		after, _ := strconv.Atoi(r.Header.Get("Retry-After"))
		if r.StatusCode != 503 || r.code() != "UNAVAILABLE" || after < 5 || after > 15 || !r.Close {
			t.Errorf("%s: %d, Retry-After %d, close %v: %s",
				path, r.StatusCode, after, r.Close, r.body)
		}
	}
	if r := a.as("").do("GET", "//readyz", ""); r.StatusCode != 200 {
		t.Errorf("/readyz: %d %s", r.StatusCode, r.body)
	}
	if r := (as{api: a}).do("GET", "//metrics", ""); r.StatusCode != 401 {
		t.Errorf("/metrics without its token: %d %s", r.StatusCode, r.body)
	}
	if r := a.as("").do("GET", "//healthz", ""); r.StatusCode != 503 ||
		!bytes.Contains(r.body, []byte("it hangs")) {
		t.Errorf("/healthz of a process that hangs: %d %s", r.StatusCode, r.body)
	}
}

func TestErrors_503_when_the_core_has_stopped(t *testing.T) {
	ann := start(t, dev()).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	if err := ann.core.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/chats/team/messages": `{"client_message_id":"c","content":"x"}`, "/sync": `{}`,
		"/acks": `{"chats":[{"chat_id":"team","last_acked_sequence":1}]}`,
	} {
		if r := ann.do("POST", path, body); r.StatusCode != 503 || r.code() != "UNAVAILABLE" ||
			r.Header.Get("Retry-After") == "" {
			t.Errorf("POST %s: %d %s", path, r.StatusCode, r.body)
		}
	}
	if r := ann.do("GET", "//readyz", ""); r.StatusCode != 503 {
		t.Errorf("readyz: %d %s", r.StatusCode, r.body)
	}
	if r := ann.do("GET", "//healthz", ""); r.StatusCode != 200 {
		t.Errorf("healthz: %d %s", r.StatusCode, r.body)
	}
}

func TestRequestID_taken_over_or_made(t *testing.T) {
	ann := start(t, dev()).as("ann")
	requestID := func(sent string) string {
		return ann.with("X-Request-ID", sent).do("GET", "/nowhere", "").Header.Get("X-Request-ID")
	}
	if got := requestID("mine-1"); got != "mine-1" {
		t.Errorf("got %q, want the caller's mine-1", got)
	}
	for _, bad := range []string{"", "a b", strings.Repeat("x", 65), "<script>"} {
		if got := requestID(bad); got == bad || len(got) < 10 {
			t.Errorf("for %q: %q", bad, got)
		}
	}
}

func TestPage_files_and_headers(t *testing.T) {
	o := dev()
	o.files = "https://bucket.example"
	o.page = fstest.MapFS{
		"index.html": {Data: []byte("<title>")}, "lib/a.js": {Data: []byte("1")},
		"app.css": {Data: []byte("a{}")},
	}
	a := start(t, o)
	nobody := as{api: a}
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/lib/a.js": "text/javascript; charset=utf-8",
		"/app.css": "text/css; charset=utf-8",
	} {
		r := fetch(t, a, "GET", path, nil)
		h := r.Header
		if r.StatusCode != 200 || h.Get("Content-Type") != want ||
			h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Security-Policy") != "default-src 'none'; script-src 'self'; "+
				"style-src 'self'; manifest-src 'self'; worker-src 'self'; "+
				"connect-src 'self' https://bucket.example; "+
				"img-src 'self' https://bucket.example; "+
				"base-uri 'none'; form-action 'none'; frame-ancestors 'none'" {
			t.Errorf("%s: %d %v", path, r.StatusCode, h)
		}
		again := fetch(t, a, "GET", path, map[string]string{"If-None-Match": h.Get("ETag")})
		if again.StatusCode != 304 {
			t.Errorf("%s unchanged: %d", path, again.StatusCode)
		}
		odd := map[string]string{"Range": "bytes=99-", "If-Match": `"x"`}
		if res := fetch(t, a, "GET", path, odd); res.StatusCode != 200 {
			t.Errorf("%s with a range beyond its end: %d", path, res.StatusCode)
		}
		if head := fetch(t, a, "HEAD", path, nil); head.StatusCode != 200 {
			t.Errorf("HEAD %s: %d", path, head.StatusCode)
		}
	}
	for _, path := range []string{
		"//index.html", "//lib/", "//lib", "//..%2fsecret", "//app.css/x",
	} {
		if r := nobody.do("GET", path, ""); r.StatusCode != 404 {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
	}
}
