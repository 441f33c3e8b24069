package transporttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/origin"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const page = "https://app.example.com"

// contractMethods finds the methods that openapi.yaml has.
var contractMethods = regexp.MustCompile(`(?m)^    (get|post|put|patch|delete):$`)

func origins(t *testing.T, cfg origin.Config) *origin.Policy {
	t.Helper()
	o, err := origin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// ask sends a request of bob from a page, and returns the answer when its head is there. edit may
// be nil.
func ask(t *testing.T, method, url, from string, edit func(r *http.Request)) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer dev:bob")
	r.Header.Set("Origin", from)
	if edit != nil {
		edit(r)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = res.Body.Close()
	})
	return res
}

// Some answers of streams do not go through net/http. They must have the same headers.
func TestCORS_every_answer_tells_the_browser(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		Origins: origins(t, origin.Config{Allow: []string{page}}),
	})
	root := strings.TrimSuffix(s.URL, transports.BasePath)
	for _, tt := range []struct {
		name, method, url string
		edit              func(*http.Request)
		status            int
	}{
		{"REST", "GET", s.URL + "/chats", nil, 200},
		{"REST, created", "POST", s.URL + "/tickets", nil, 201},
		{"REST, refused", "GET", s.URL + "/chats/nowhere", nil, 404},
		{
			"REST, unauthenticated",
			"GET", s.URL + "/chats",
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401,
		},
		{"no such path", "GET", s.URL + "/nowhere", nil, 404},
		{"no such method", "PUT", s.URL + "/chats", nil, 405},
		{"a bad query", "GET", s.URL + "/chats?limit=%zz", nil, 400},
		{"outside of the API", "GET", root + "/openapi.yaml", nil, 200},
		{"SSE", "GET", s.URL + "/events", nil, 200},
		{
			"SSE, refused",
			"GET", s.URL + "/events?ticket=x",
			func(r *http.Request) { r.Header.Del("Authorization") }, 401,
		},
		{"long-poll, at once", "GET", s.URL + "/poll", nil, 200},
		{"long-poll, refused", "GET", s.URL + "/poll?session_id=unknown", nil, 410},
	} {
		res := ask(t, tt.method, tt.url, page, tt.edit)
		if res.StatusCode != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, res.StatusCode, tt.status)
		}
		wantCORS(t, tt.name, res, page)
		wantCORS(t, tt.name+", from a foreign page",
			ask(t, tt.method, tt.url, "https://evil.example.com", tt.edit), "")
	}

	// A poll that waits is answered on a connection that was taken over.
	for from, want := range map[string]string{page: page, "https://evil.example.com": ""} {
		var res *http.Response
		last := struct {
			Session string `json:"session_id"`
			Events  []struct{ ID int }
		}{}
		for query := "?wait_seconds=0"; query != ""; {
			res = ask(t, "GET", s.URL+"/poll"+query, from, nil)
			last.Events = nil
			if err := json.NewDecoder(res.Body).Decode(&last); err != nil {
				t.Fatal(err)
			}
			if query = ""; len(last.Events) > 0 {
				query = fmt.Sprintf("?wait_seconds=1&session_id=%s&after_event_id=%d",
					last.Session, last.Events[len(last.Events)-1].ID)
			}
		}
		if res.StatusCode != 200 || !res.Close {
			t.Errorf("a poll that waited: %d, closes %v: it was not taken over",
				res.StatusCode, res.Close)
		}
		wantCORS(t, "long-poll, waiting, from "+from, res, want)
	}
}

func wantCORS(t *testing.T, what string, res *http.Response, origin string) {
	t.Helper()
	exposed := ""
	if origin != "" {
		exposed = "X-Request-ID, Retry-After, RateLimit, RateLimit-Policy, Tidemark-Incarnation"
	}
	h := res.Header
	if h.Get("Access-Control-Allow-Origin") != origin ||
		h.Get("Access-Control-Expose-Headers") != exposed || h.Get("Vary") != "Origin" ||
		h.Values("Access-Control-Allow-Credentials") != nil {
		t.Errorf("%s: %v, want it readable by %q", what, h, origin)
	}
}

func TestCORS_preflight(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		Origins: origins(t, origin.Config{Allow: []string{page}}),
	})
	preflight := func(r *http.Request) {
		r.Header.Del("Authorization") // a browser sends none
		r.Header.Set("Access-Control-Request-Method", "PATCH")
		r.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
	}
	for _, path := range []string{
		"/chats", "/chats/c/delivery-state", "/tickets", "/events", "/poll",
	} {
		res := ask(t, "OPTIONS", s.URL+path, page, preflight)
		h := res.Header
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 204 || len(body) > 0 ||
			h.Get("Access-Control-Allow-Methods") != "GET, POST, PUT, PATCH, DELETE" ||
			h.Get("Access-Control-Allow-Headers") !=
				"Authorization, Content-Type, Last-Event-ID, Traceparent, X-Request-ID, "+
					"X-User-ID" ||
			h.Get("Access-Control-Max-Age") != "7200" {
			t.Errorf("%s: %d %v %s", path, res.StatusCode, h, body)
		}
		wantCORS(t, path, res, page)
		for _, method := range contractMethods.FindAllStringSubmatch(string(tidemark.OpenAPI), -1) {
			if !strings.Contains(h.Get("Access-Control-Allow-Methods"),
				strings.ToUpper(method[1])) {
				t.Errorf("a page may not %s, which the contract has", method[1])
			}
		}
		refused := ask(t, "OPTIONS", s.URL+path, "https://evil.example.com", preflight)
		if refused.StatusCode != 403 || refused.Header.Get("Access-Control-Allow-Methods") != "" {
			t.Errorf("%s from a foreign page: %d %v", path, refused.StatusCode, refused.Header)
		}
		wantCORS(t, path+" from a foreign page", refused, "")
	}
}

// In development mode a page could guess the credentials. So the server checks the page and the
// name before the credentials, over every transport.
func TestDev_only_pages_and_names_of_this_machine(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		Origins: origins(t, origin.Config{Loopback: true}),
	})
	get := func(path string) string { return s.URL + path }
	foreign := func(r *http.Request) { r.Host = "rebound.example.com" }
	for _, tt := range []struct {
		name, method, path, origin string
		edit                       func(*http.Request)
		status                     int
	}{
		{"a page of this machine", "GET", "/chats", "http://localhost:5173", nil, 200},
		{"a page of this machine, SSE", "GET", "/events", "http://localhost:5173", nil, 200},
		{"a foreign page", "GET", "/chats", page, nil, 403},
		{"a foreign page, by a ticket", "GET", "/events?ticket=dev:bob", page, nil, 403},
		{"a foreign page, by a beacon", "POST", "/acks?ticket=dev:bob", page, nil, 403},
		{"a foreign page, long-poll", "GET", "/poll", page, nil, 403},
		{"a foreign name", "GET", "/chats", "http://rebound.example.com", foreign, 403},
		{"a foreign name, SSE", "GET", "/events", "http://rebound.example.com", foreign, 403},
	} {
		res := ask(t, tt.method, get(tt.path), tt.origin, tt.edit)
		if res.StatusCode != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, res.StatusCode, tt.status)
		}
	}
	root := strings.TrimSuffix(s.URL, transports.BasePath)
	for _, path := range []string{"/metrics", "/openapi.yaml", "/readyz"} {
		res := ask(t, "GET", root+path, "http://rebound.example.com", foreign)
		if res.StatusCode != 403 {
			t.Errorf("%s by a foreign name: %d, want 403", path, res.StatusCode)
		}
	}
}
