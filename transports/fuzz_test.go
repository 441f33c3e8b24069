package transports_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/reachtest"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/attachments"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/longpoll"
	"github.com/tidemark-im/tidemark/transports/outlets"
	"github.com/tidemark-im/tidemark/transports/push"
	"github.com/tidemark-im/tidemark/transports/sse"
	"github.com/tidemark-im/tidemark/transports/transporttest"
	"github.com/tidemark-im/tidemark/transports/websocket"
)

// inProcess serves requests without a socket. Its store has the chat team of ann, bob and cid, with
// one message.
type inProcess struct {
	// key is an API key with all scopes.
	key      string
	handler  http.Handler
	contract *apitest.Contract
	// served is the number of requests so far. What they store would fill the memory in time.
	served int
	stop   func(t testing.TB)
}

// mostServed is how many requests a server gets before a new one replaces it. The new one ends with
// the test that started it, so the seeds must be fewer.
const mostServed = 4_000

func startInProcess(t testing.TB, contract *apitest.Contract) *inProcess {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	reg := registrymemory.New()
	store := stores.Open(t)
	kept, dir := attachmentstest.Kept(t, store)
	core, err := server.New(server.Config{
		Storage:         store,
		Registry:        reg,
		Nodes:           reg,
		Bus:             local.New(),
		Attachments:     kept,
		Documents:       store,
		Logger:          logger,
		SessionsPerUser: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	key, keys := transporttest.APIKey(t)
	auth := auth.New(auth.Config{Dev: true, APIKeys: keys})
	admin := outlets.New(outlets.Config{Engine: reachtest.Engine(t, store), Auth: auth})
	notices := push.New(push.Config{
		Server: core, Auth: auth, Devices: devices.New(store),
		Platforms: reachtest.Platforms(), VAPIDKey: reachtest.VAPIDKey,
		Acknowledged: reachtest.Acknowledged,
	})
	files := attachments.New(attachments.Config{
		Server: core, Auth: auth, Attachments: kept, Dir: dir,
	})
	erases := erasuresOf(t, store, core, auth, nil)
	ws := websocket.New(websocket.Config{Server: core, Auth: auth, Logger: logger})
	events := sse.New(sse.Config{Server: core, Auth: auth, Logger: logger})
	poll := longpoll.New(longpoll.Config{Server: core, Auth: auth})
	h, err := transports.New(transports.Config{
		Server:    core,
		Auth:      auth,
		Logger:    logger,
		Events:    events.Handle,
		Poll:      poll.Handle,
		WebSocket: ws.Handle,
		Mounts:    []transports.Mount{admin.Mount, notices.Mount, files.Mount, erases},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &inProcess{handler: h, contract: contract, key: key}
	p.stop = func(t testing.TB) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
		defer cancel()
		for _, part := range []interface {
			Shutdown(ctx context.Context) error
		}{ws, events, poll} {
			if err := part.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := core.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	for _, e := range []exchange{
		{method: "POST", path: "/chats",
			body: `{"type":"group","chat_id":"team","member_ids":["bob","cid"]}`},
		{method: "POST", path: "/chats/team/messages", body: firstMessage},
	} {
		p.serve(t, p.request(t, e.method, e.full(), "", []byte(e.body)))
	}
	return p
}

// request parses a request as net/http does from a socket. It returns nil if net/http would refuse
// it. head holds further header lines.
func (p *inProcess) request(t testing.TB, method, target, head string, body []byte) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target +
		" HTTP/1.1\r\nHost: x\r\n" + head + "\r\n\r\n")))
	if err != nil || r.URL == nil || r.Host != "x" {
		return nil
	}
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer dev:ann")
		if strings.HasPrefix(r.URL.Path, transports.BasePath+"/admin/") ||
			strings.HasPrefix(r.URL.Path, transports.BasePath+"/users/") ||
			r.URL.Path == transports.BasePath+"/audit" {
			r.Header.Set("Authorization", "Bearer "+p.key)
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.TransferEncoding = nil
	return r
}

// firstBytes is a recorder that ends the request with its first bytes, because a stream has no end.
type firstBytes struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

// Write implements http.ResponseWriter.
func (f firstBytes) Write(b []byte) (int, error) {
	defer f.end()
	return f.ResponseRecorder.Write(b)
}

// serve answers a request. It checks that the contract has the answer, that the answer is not a
// failure, and that a refusal has a detail.
func (p *inProcess) serve(t testing.TB, r *http.Request) (status int, detail string) {
	t.Helper()
	p.served++
	// Nothing happens that a poll could wait for.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(firstBytes{w, cancel}, r.WithContext(ctx))
	res := w.Result()
	body := w.Body.Bytes()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		body = nil
	}
	p.contract.Answer(t, r.Method, r.URL.EscapedPath(), res, body)
	// On a slow machine the time is over before the answer. The client of a stream has then left,
	// and a session that it resumes is not fetched for it.
	left := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if res.StatusCode >= 500 && !(left && res.StatusCode == http.StatusServiceUnavailable) {
		t.Errorf("%s %s: %d %s", r.Method, r.URL, res.StatusCode, body)
	}
	if res.StatusCode >= 400 && r.Method != http.MethodHead {
		var problem struct{ Code, Detail string }
		if err := json.Unmarshal(body, &problem); err != nil || problem.Code == "" ||
			len(problem.Detail) < 10 || len(problem.Detail) > 1_000 {
			t.Errorf("%s %s: %d %q", r.Method, r.URL, res.StatusCode, body)
		}
		detail = problem.Detail
	}
	return res.StatusCode, detail
}

// fuzzed returns a function that returns the server to use. It replaces the server from time to
// time.
func fuzzed(f *testing.F) func(t testing.TB) *inProcess {
	contract := apitest.Load(f)
	p := startInProcess(f, contract)
	f.Cleanup(func() { p.stop(f) })
	return func(t testing.TB) *inProcess {
		if p.served > mostServed {
			p.stop(t)
			p = startInProcess(t, contract)
		}
		return p
	}
}

// FuzzHandler sends requests of any kind to the whole server. No answer is a failure, and each one
// is in the contract.
func FuzzHandler(f *testing.F) {
	for _, e := range append(slices.Collect(maps.Values(good())), particular()...) {
		f.Add(e.method, e.full(), "Content-Type: application/json", []byte(e.body))
	}
	for _, target := range []string{
		"/", "//", "/api/v1", "/api/v1/", "/api/v1/chats/", "/api/v1//chats",
		"/api/v1/chats//messages", "/api/v1/chats/%2F", "/api/v1/chats/a%00b",
		"/api/v1/chats/../chats",
		"/api/v1/chats/team/members/", "/api/v1/chats?limit=%zz", "/api/v1/poll?wait_seconds=-1",
		"/api/v1/events?last_event_id=x.1", "/api/v1/ws?after_event_id=x",
		"/healthz?%zz", "/metrics/", "*",
		"http://x/api/v1/chats", "/api/v1/chats?cursor=Y3wxfHRlYW0",
		"/api/v1/chats/team/messages?after_sequence=9007199254740991&limit=99999999999999999999",
		"/api/v1/chats?cursor=Y3w5MjIzMzcyMDM2ODU0Nzc1ODA3fHRlYW0",
	} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "DELETE", "QUERY"} {
			f.Add(method, target, "", []byte("{}"))
		}
	}
	for _, head := range []string{
		"Last-Event-ID: a.b.1", "Authorization: Bearer", "Authorization: Basic eDp5",
		"Authorization: Bearer dev:", "Content-Encoding: gzip", "Content-Type: ;",
		"Range: bytes=0-1",
		"If-None-Match: *", "X-Request-ID: \x01", "Expect: 100-continue",
		"Upgrade: websocket\r\nConnection: upgrade", "Origin: https://elsewhere.example",
		"Content-Type: text/plain",
	} {
		f.Add("POST", "/api/v1/acks", head, []byte(`{"chats":[]}`))
		f.Add("GET", "/api/v1/events", head, []byte(nil))
	}
	server := fuzzed(f)
	f.Fuzz(func(t *testing.T, method, target, head string, body []byte) {
		p := server(t)
		if r := p.request(t, method, target, head, body); r != nil {
			p.serve(t, r)
		}
	})
}

// FuzzParameters gives every parameter of every operation any value. The server accepts exactly
// what the contract accepts, and a refusal names the parameter.
func FuzzParameters(f *testing.F) {
	contract := apitest.Load(f)
	calls := contract.Calls()
	slices.SortFunc(calls,
		func(a, b apitest.Call) int { return strings.Compare(a.OperationID, b.OperationID) })
	type parameter struct {
		exchange
		*openapi3.Parameter
	}
	var all []parameter
	for _, call := range calls {
		for _, p := range call.All() {
			if call.OperationID != "connectWebSocket" { // whose answer is a close code
				all = append(all, parameter{good()[call.OperationID], p})
			}
		}
	}
	for i := range all {
		for _, value := range []string{
			"", "0", "1", "-1", "1.5", "1e3", "9007199254740991", "9007199254740992",
			"9223372036854775808", "18446744073709551616", "x", "a b", "a%b", "ü", "\x00",
			strings.Repeat("i", 128), strings.Repeat("i", 129),
			"team", "true", "..", "+1", "007", "0x1", "2170000000A",
		} {
			f.Add(uint8(i), value)
		}
	}
	server := fuzzed(f)
	f.Fuzz(func(t *testing.T, which uint8, value string) {
		one := all[int(which)%len(all)]
		p := server(t)
		target, head, ok := one.with(one.Parameter, value)
		if !ok {
			return
		}
		r := p.request(t, one.method, target, "Content-Type: application/json\r\n"+head,
			[]byte(one.body))
		if r == nil {
			return
		}
		status, detail := p.serve(t, r)
		accepted := apitest.AcceptsParameter(one.Parameter, value) == nil
		refused := status == 400 || status == 422
		if refused && !strings.Contains(detail, one.Name) {
			t.Errorf("%s %s: the detail does not name %s: %s", one.method, target, one.Name, detail)
		}
		// The contract does not know the head of a chat, so a sequence above it counts as accepted.
		if loose(one.Parameter, value) || one.Name == "for_sequence" && status == 422 && accepted {
			return
		}
		if refused == accepted {
			t.Errorf("%s %s: the contract accepts %s = %q: %t, the server answers %d %s",
				one.method, target, one.Name, value, accepted, status, detail)
		}
	})
}

// with puts a value of a parameter into the target or the head of a request. ok is false if the
// target would be another route.
func (e exchange) with(p *openapi3.Parameter, value string) (target, head string, ok bool) {
	path, others, _ := strings.Cut(e.full(), "?")
	switch p.In {
	case openapi3.ParameterInPath:
		old := map[string]string{
			"chat_id": "/team", "session_id": "/gone", "device_id": "/gone",
			"user_id":       userIn(path),
			"sequence":      "/1",
			"outlet_id":     "/crm",
			"event_id":      "/" + reachtest.ParkedEvent,
			"attachment_id": "/" + attachmentstest.Picture,
		}[p.Name]
		if p.Name == "outlet_id" && !strings.Contains(path, old) {
			old = "/old"
		}
		if p.Name == "chat_id" && e.method == http.MethodDelete {
			if value == "team" {
				return "", "", false // Further requests need this chat.
			}
			if strings.HasSuffix(path, "/team-2") {
				old = "/team-2"
			}
		}
		target = strings.Replace(path, old, "/"+url.PathEscape(value), 1)
		if others != "" {
			target += "?" + others
		}
		return target, "", value != "" && value != "." && value != ".."
	case openapi3.ParameterInHeader:
		return e.full(), fmt.Sprintf("%s: %s", p.Name, value), !strings.ContainsAny(value, "\r\n")
	default:
		query, err := url.ParseQuery(others)
		query.Set(p.Name, value)
		return path + "?" + query.Encode(), "", err == nil
	}
}

// userIn returns the last part of a path that names a user, or "".
func userIn(path string) string {
	for _, user := range []string{"/zoe", "/yan", "/zed", "/cid", "/ann"} {
		if strings.Contains(path, user) {
			return user
		}
	}
	return ""
}

// loose reports whether contract and server may differ about a value.
func loose(p *openapi3.Parameter, value string) bool {
	if strings.HasPrefix(value, "-") && strings.Trim(value, "-0") == "" { // minus zero
		return true
	}
	switch p.Name {
	case "cursor", "session_id": // opaque: only the server knows which are valid
		return true
	case "wait_seconds", "after_event_id", "device_id", "status_updates": // empty counts as absent
		return value == ""
	}
	return false
}
