package transports_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/stats"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// exchange is a request and the answer that it must have.
type exchange struct {
	who          string // "": no credentials; backend calls for ann, key without a user
	method, path string // below the base path, or absolute if it begins with two slashes
	body         string
	status       int
	code         string
	header       [2]string // the name and value of one more header
}

// full returns the path as the contract has it.
func (e exchange) full() string {
	if absolute, ok := strings.CutPrefix(e.path, "//"); ok {
		return "/" + absolute
	}
	return transports.BasePath + e.path
}

// try makes the exchange and checks its status and code.
func (e exchange) try(t *testing.T, s *transporttest.Stack) *http.Response {
	t.Helper()
	res := e.send(t, s)
	code := ""
	if res.StatusCode >= http.StatusBadRequest && e.method != http.MethodHead {
		code = problemOf(t, res).Code
	}
	if res.StatusCode != e.status || e.code != "" && code != e.code {
		t.Errorf("%s %s %.100s as %q: %d %s, want %d %s",
			e.method, e.path, e.body, e.who, res.StatusCode, code, e.status, e.code)
	}
	return res
}

// send makes the exchange and compares the answer with the contract.
func (e exchange) send(t *testing.T, s *transporttest.Stack) *http.Response {
	t.Helper()
	r := e.request(t, s)
	res, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", e.method, e.path, err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// problemOf returns the problem of an answer. The body can be read again.
func problemOf(t *testing.T, res *http.Response) (p struct{ Code, Detail, Param string }) {
	t.Helper()
	raw, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		t.Errorf("%d without a problem: %v in %.500s", res.StatusCode, err, raw)
	}
	res.Body = io.NopCloser(bytes.NewReader(raw))
	return p
}

// firstMessage is the body of the message in the chat of the good requests.
const firstMessage = `{"client_message_id":"c1","content":"x","attachments":[{"s3_ref":"` +
	attachmentstest.Picture + `"}]}`

// team creates the chat of the good requests and sends its message.
func team(s *transporttest.Stack, t *testing.T) {
	exchange{who: "ann", method: "POST", path: "/chats", status: 201,
		body: `{"type":"group","chat_id":"team","member_ids":["bob","cid"]}`}.try(t, s)
	exchange{who: "ann", method: "POST", path: "/chats", status: 201,
		body: `{"type":"group","chat_id":"team-2","member_ids":[]}`}.try(t, s)
	exchange{who: "ann", method: "POST", path: "/chats/team/messages", status: 201,
		body: firstMessage}.try(t, s)
	if _, err := s.Erasures.Begin(t.Context(), "yan"); err != nil {
		t.Fatal(err)
	}
}

// seeNoFiles announces a file to a server that keeps none.
func seeNoFiles(t *testing.T, contract *apitest.Contract) {
	t.Helper()
	a := start(t, dev())
	a.contract = contract
	e := good()["createAttachment"]
	if r := a.as("ann").do(e.method, e.path, e.body); r.StatusCode != 404 ||
		r.code() != "NOT_FOUND" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

// seeReplaced gives the cursors of a session whose user has ended it.
func seeReplaced(t *testing.T, s *transporttest.Stack) {
	t.Helper()
	c, err := s.Server.Open(t.Context(), server.OpenRequest{User: "ann"})
	if err == nil {
		err = s.Server.EndSession(t.Context(), "ann", c.Session())
	}
	if err != nil {
		t.Fatal(err)
	}
	exchange{who: "ann", method: "POST", path: "/sync", status: 409, code: "REPLACED",
		body: `{"session_id":"` + string(c.Session()) + `"}`}.try(t, s)
}

// seeTooManyDevices registers one device too many.
func seeTooManyDevices(t *testing.T, s *transporttest.Stack) {
	t.Helper()
	for n := range devices.MaxDevices + 1 {
		e := exchange{who: "dan", method: "PUT", status: 200,
			path: fmt.Sprint("/push/devices/d", n),
			body: fmt.Sprintf(`{"platform":"fcm","address":"%d"}`, n)}
		if n == devices.MaxDevices {
			e.status, e.code = 409, "CONFLICT"
		}
		e.try(t, s)
	}
}

// TestContract_everything_listed_is_seen makes every status of every operation happen, every event
// over every transport, and every frame. Each exchange, here and in all other tests, checks the
// converse: what happens is listed.
func TestContract_everything_listed_is_seen(t *testing.T) {
	contract := apitest.Load(t)
	s := transporttest.New(t, transporttest.Options{Contract: contract})
	team(s, t)
	requests := good()
	for _, operation := range inOrder(requests) {
		requests[operation].try(t, s)
	}
	for _, e := range particular() {
		e.try(t, s)
	}
	seeReplaced(t, s)
	seeTooManyDevices(t, s)
	seeNoFiles(t, contract)
	for _, call := range contract.Calls() {
		e, ok := requests[call.OperationID]
		if !ok && call.OperationID != "connectWebSocket" {
			t.Errorf("there is no good request of %s", call.OperationID)
		}
		for status := range call.Responses.Map() {
			if e, ok := generic(e, status); ok {
				e.try(t, s)
			}
		}
	}
	seeLimits(t, contract)
	seeFaults(t, contract, requests)
	seeSilence(t, contract, requests)
	seePanics(t, contract, requests)
	seeFull(t, contract)
	seeShutdown(t, contract, requests)
	seeManyWatchers(t, contract)
	seeEvents(t, contract)
	contract.Complete(t)
}

// inOrder returns the operations of good so that each request succeeds: members are updated before
// one is removed.
func inOrder(requests map[string]exchange) []string {
	operations := slices.Sorted(maps.Keys(requests))
	slices.Reverse(operations)
	return operations
}

// tokenOf returns a body with a token that gives a status, or "".
func tokenOf(status string) string {
	return map[string]string{
		"401": `{"ack_token":"forged"}`, "403": ackBody("eve", "team", 1),
		"404": ackBody("bob", "nowhere", 1),
	}[status]
}

// generic turns a good request into one with a status whose cause is the same for all operations.
func generic(e exchange, status string) (exchange, bool) {
	e.code = ""
	_, _ = fmt.Sscan(status, &e.status)
	path, _, _ := strings.Cut(e.path, "?")
	switch {
	case e.method == "", path == "//metrics": // whose refusal seeFull shows
		return e, false
	case path == "/push/acks" && tokenOf(status) != "":
		e.body = tokenOf(status)
	case status == "400":
		e.path = path + "?limit=%zz"
	case status == "401":
		e.who = ""
	case status == "403" && strings.HasPrefix(path, "/chats/"):
		e.who = "eve"
	case status == "403" && (e.who == "backend" || e.who == "key"):
		e.who = "ann"
	case status == "403":
		e.header = [2]string{"X-User-ID", "eve"}
	case status == "404" && path == "/attachments": // seeNoFiles
		return e, false
	case status == "404":
		e.path = strings.Replace(e.path, "team", "nowhere", 1)
		if strings.HasSuffix(e.path, "/look") || path == "/receipts/settings" {
			e.body = strings.Replace(e.body, "team", "nowhere", 1)
		}
		e.path = strings.Replace(e.path, "outlets/crm", "outlets/nowhere", 1)
		e.path = strings.Replace(e.path, "users/yan", "users/nobody", 1)
		e.path = strings.Replace(e.path, "outlets/old", "outlets/nowhere", 1)
	case status == "413":
		e.body = `{"x":"` + strings.Repeat("x", 400<<10) + `"}`
	case status == "415":
		e.header = [2]string{"Content-Type", "text/html"}
	default:
		return e, false
	}
	return e, true
}

// seeLimits makes every call of a user who has used up their limits.
func seeLimits(t *testing.T, contract *apitest.Contract) {
	t.Helper()
	once := limit.Rate{PerSecond: 0.01, Burst: 1}
	rates := limit.Rates{
		Sends: once, Calls: limit.Rate{PerSecond: 0.01, Burst: 5}, Statuses: once,
	}
	s := transporttest.New(t, transporttest.Options{
		Contract: contract, Limit: limit.New(limit.Config{User: rates, Backend: rates}),
	})
	exchange{who: "ann", method: "GET", path: "/chats", status: 200}.try(t, s)
	exchange{who: "backend", method: "GET", path: "/chats", status: 200}.try(t, s)
	exchange{who: "key", method: "GET", path: "/admin/stats", status: 200}.try(t, s)
	exchange{who: "ann", method: "GET", path: "/statuses?chat_id=team", status: 200}.try(t, s)
	exchange{who: "ann", method: "POST", path: "/chats/team/messages", status: 404,
		body: `{"client_message_id":"c1","content":"x"}`}.try(t, s)
	exchange{method: "POST", path: "/push/acks", status: 429, code: "RATE_LIMITED",
		body: ackBody("ann", "team", 1)}.try(t, s)
	for _, e := range good() {
		if e.who != "" {
			e.status, e.code = 429, "RATE_LIMITED"
			e.try(t, s)
		}
	}
}

// seeFaults makes storage fail, with an error of package tidemark and with another one.
func seeFaults(t *testing.T, contract *apitest.Contract, requests map[string]exchange) {
	t.Helper()
	var fault atomic.Pointer[error]
	store := storagetest.Fault(stores.Open(t))
	store.Before = func(string) error {
		if err := fault.Load(); err != nil {
			return *err
		}
		return nil
	}
	for status, err := range map[string]error{
		"500": errors.New("a secret of the database"),
		"503": tidemark.Errorf(tidemark.Unavailable, "the storage cannot be reached; try again"),
	} {
		s := transporttest.New(t, transporttest.Options{Contract: contract, Storage: store})
		fault.Store(&err)
		for _, call := range contract.Calls() {
			e, ok := requests[call.OperationID]
			if !ok || call.Responses.Value(status) == nil || call.OperationID == "poll" ||
				call.OperationID == "streamEvents" || call.OperationID == "createTicket" ||
				call.OperationID == "health" || call.OperationID == "getStats" ||
				strings.Contains(call.Path, "/sessions") && call.OperationID != "putLook" {
				continue // a stream waits for storage, and the others do not use it
			}
			_, _ = fmt.Sscan(status, &e.status)
			e.code = map[string]string{"500": "INTERNAL", "503": "UNAVAILABLE"}[status]
			if detail := problemOf(t, e.try(t, s)).Detail; strings.Contains(detail, "secret") {
				t.Errorf("%s %s shows %q", e.method, e.path, detail)
			}
		}
		fault.Store(nil)
	}
}

// silent is a registry that does not say who is where.
type silent struct{ registry.Registry }

// Lookup implements registry.Registry.
func (silent) Lookup(context.Context, []tidemark.UserID) ([][]registry.Lease, error) {
	return nil, tidemark.Errorf(tidemark.Unavailable, "it is silent")
}

// seeSilence asks for sessions while the registry does not answer.
func seeSilence(t *testing.T, contract *apitest.Contract, requests map[string]exchange) {
	t.Helper()
	s := transporttest.New(t, transporttest.Options{
		Contract: contract,
		Registry: func(r registry.Registry) registry.Registry { return silent{r} },
	})
	for _, operation := range []string{
		"listSessions", "endSession", "endSessions",
	} {
		e := requests[operation]
		e.status, e.code = 503, "UNAVAILABLE"
		e.try(t, s)
	}
}

// seePanics makes the stream adapters panic. No failure of storage ends a stream before it has
// begun.
func seePanics(t *testing.T, contract *apitest.Contract, requests map[string]exchange) {
	t.Helper()
	o := dev()
	o.events = func(echo.Context) error { panic("boom") }
	o.poll = o.events
	a := start(t, o)
	a.contract = contract
	for _, operation := range []string{"streamEvents", "poll"} {
		e := requests[operation]
		if r := a.as("ann").do(e.method, e.path, ""); r.StatusCode != 500 ||
			r.code() != "INTERNAL" {
			t.Errorf("%s: %d %s", operation, r.StatusCode, r.body)
		}
	}
}

func seeShutdown(t *testing.T, contract *apitest.Contract, requests map[string]exchange) {
	t.Helper()
	s := transporttest.New(t, transporttest.Options{Contract: contract})
	for _, adapter := range []interface {
		Shutdown(ctx context.Context) error
	}{s.WebSocket, s.SSE, s.LongPoll} {
		if err := adapter.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, e := range []exchange{
		requests["streamEvents"], requests["poll"], {who: "ann", method: "GET", path: "/ws"},
	} {
		e.status, e.code = 503, "UNAVAILABLE"
		e.try(t, s)
	}
}

// seeManyWatchers opens as many streams of figures as a node serves, and one more.
func seeManyWatchers(t *testing.T, contract *apitest.Contract) {
	t.Helper()
	s := transporttest.New(t, transporttest.Options{Contract: contract})
	watch := good()["getStats"]
	watch.header = [2]string{"Accept", "text/event-stream"}
	for range stats.MaxStreams {
		watch.try(t, s)
	}
	watch.status, watch.code = 503, "UNAVAILABLE"
	watch.try(t, s)
	watch.header, watch.status, watch.code = [2]string{}, 200, ""
	watch.try(t, s) // a snapshot is no stream
}

// seeEvents makes every event happen over every transport, and every frame over WebSocket.
func seeEvents(t *testing.T, contract *apitest.Contract) {
	t.Helper()
	for _, dialer := range []transporttest.Dialer{
		transporttest.WebSocket(), transporttest.SSE(), transporttest.LongPoll(),
	} {
		s := transporttest.New(t, transporttest.Options{Contract: contract})
		team(s, t)
		remove, add := good()["removeMember"], good()["addMembers"]
		remove.path, add.body = "/chats/team/members/bob", `{"user_ids":["bob"]}`
		remove.try(t, s)
		s.SendText("ann", "team", "unseen", "x")
		add.try(t, s)

		at := transporttest.Position{User: "bob"}
		bob := dialer.Dial(t, s, at)
		readUntil(t, bob, &at, tidemark.EventSession, tidemark.EventMessage, tidemark.EventGap,
			tidemark.EventCaughtUp)
		other := good()["updateDeliveryState"]
		other.who = "cid" // who has sent nothing, so that it changes a tick
		other.try(t, s)
		good()["addMembers"].try(t, s)
		good()["updateChat"].try(t, s)
		markUnread := good()["markUnread"]
		markUnread.who = "bob"
		markUnread.try(t, s)
		readUntil(t, bob, &at, tidemark.EventStatus, tidemark.EventMembership,
			tidemark.EventOwnState, tidemark.EventChatUpdated)
		err := s.Server.Look(t.Context(), "bob", at.Session, []tidemark.ChatID{"team"})
		if err != nil {
			t.Fatal(err)
		}
		readUntil(t, bob, &at, tidemark.EventPresence)
		typing := make(chan error, 1)
		go func() { typing <- read(t.Context(), bob, &at, tidemark.EventTyping) }()
		// An ephemeral event reaches only connected sessions, so repeat it until it arrives. It is
		// sent once in 3 s.
		for received := false; !received; {
			frames(t, s)
			select {
			case err := <-typing:
				received = true
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Second):
			}
		}
		bob.Cut()

		at.After += 1_000
		first := dialer.Dial(t, s, at)
		readUntil(t, first, &at, tidemark.EventReset)
		replace(t, s, dialer, first, at)
	}
}

// readUntil reads until there was an event of each type. It records the session and the position.
func readUntil(
	t *testing.T, c transporttest.Client, at *transporttest.Position, types ...tidemark.EventType,
) {
	t.Helper()
	if err := read(t.Context(), c, at, types...); err != nil {
		t.Fatal(err)
	}
}

func read(
	ctx context.Context, c transporttest.Client, at *transporttest.Position,
	types ...tidemark.EventType,
) error {
	ctx, cancel := context.WithTimeout(ctx, wait.Hang)
	defer cancel()
	missing := make(map[tidemark.EventType]bool)
	for _, kind := range types {
		missing[kind] = true
	}
	for len(missing) > 0 {
		ev, err := c.Next(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %v: %w", missing, err)
		}
		delete(missing, ev.Type)
		if ev.ID != 0 {
			at.After = ev.ID
		}
		if ev.Type == tidemark.EventSession {
			var open struct {
				Session tidemark.SessionID `json:"session_id"`
			}
			if err := json.Unmarshal(ev.Payload, &open); err != nil {
				return err
			}
			at.Session = open.Session
		}
	}
	return nil
}

// waits waits until one connection is open.
func waits(t *testing.T, s *transporttest.Stack) {
	t.Helper()
	transporttest.Eventually(t, "the connection waits", func() bool {
		return s.WebSocket.Connections()+s.SSE.Connections()+s.LongPoll.Connections() == 1
	})
}

// frames sends every frame of a client, as ann, and waits for the replies.
func frames(t *testing.T, s *transporttest.Stack) {
	t.Helper()
	ann := transporttest.DialWebSocket(t, s, nil, "ann")
	for _, frame := range []string{
		`{"type":"send_message","request_id":"1","payload":{"chat_id":"team",` +
			`"client_message_id":"f1","content":"x"}}`,
		`{"type":"ack","payload":{"chats":[{"chat_id":"team","last_acked_sequence":1}]}}`,
		`{"type":"read","payload":{"chat_id":"team","last_read_sequence":1}}`,
		`{"type":"typing","payload":{"chat_id":"team"}}`,
		`{"type":"look","payload":{"chat_ids":["team"]}}`,
		`{"type":"sync_request","request_id":"2","payload":{"chats":[{"chat_id":"team",` +
			`"last_acked_sequence":0}],"status_updates":true}}`,
		`{"type":"ping"}`,
		`{"type":"dance"}`,
	} {
		ann.Write(frame)
	}
	readUntil(t, ann, new(transporttest.Position), "send_message_ack",
		"sync_response", "pong", tidemark.EventProblem)
	ann.Cut()
}

// replace lets a second connection take over the session of the first.
func replace(
	t *testing.T, s *transporttest.Stack, dialer transporttest.Dialer, first transporttest.Client,
	at transporttest.Position,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Hang)
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
	waits(t, s)
	second := dialer.Dial(t, s, at)
	next := make(chan struct{})
	go func() {
		defer close(next)
		for ctx.Err() == nil { // a poll of the first may take the session back once
			_, _ = second.Next(ctx)
		}
	}()
	if err := <-ended; !errors.Is(err, transporttest.ErrReplaced) {
		t.Errorf("%s: the first connection ended with %v", dialer.Name, err)
	}
	cancel()
	<-next
	second.Cut()
}
