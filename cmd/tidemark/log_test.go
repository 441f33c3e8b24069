package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/metered"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// TestLog_a_flood_of_one_message_is_a_line_a_second checks that 5,000 clients that all meet a
// storage failure cause one line per second.
func TestLog_a_flood_of_one_message_is_a_line_a_second(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log, _, err := newLog(&b, "json", "info")
		if err != nil {
			t.Fatal(err)
		}
		flood := func() {
			for i := range 5_000 {
				log.With("client", i).Warn("the storage failed", "n", i)
			}
			log.Info("something else")
		}
		flood()
		time.Sleep(samplePause / 2)
		flood()
		time.Sleep(samplePause / 2)
		log.WithGroup("g").Warn("the storage failed")
		var got []string
		for line := range strings.Lines(b.String()) {
			var l struct {
				Msg        string
				Suppressed int
				G          struct{ Suppressed int }
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			got = append(got, fmt.Sprintf("%s %d", l.Msg, l.Suppressed+l.G.Suppressed))
		}
		want := "the storage failed 0, something else 0, the storage failed 9999"
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestLog_debug_is_whole_and_the_memory_of_messages_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log, _, err := newLog(&b, "text", "debug")
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			log.Debug("a request")
		}
		if n := strings.Count(b.String(), "a request"); n != 20 {
			t.Errorf("%d lines at debug, want 20", n)
		}
		handler := log.Handler().(*sampled)
		for i := range 5 * maxSampled {
			log.Info(fmt.Sprint("a message that is not constant ", i))
		}
		if n := len(handler.seen.messages); n > maxSampled {
			t.Errorf("%d messages are remembered, want at most %d", n, maxSampled)
		}
	})
}

// brittle is a server with a storage that fails or panics on demand.
type brittle struct {
	url      string
	log      *logBuffer
	failing  atomic.Bool
	panicked atomic.Bool
	key      string
}

// startBrittle starts a brittle server with all kinds of credentials, which logs everything.
func startBrittle(t *testing.T) *brittle {
	t.Helper()
	b := &brittle{log: new(logBuffer)}
	secret, line, err := auth.NewAPIKey("shop")
	if err != nil {
		t.Fatal(err)
	}
	b.key = secret
	log := slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	keys, err := auth.LoadAPIKeys(write(t, "keys", line+"\n"), log)
	if err != nil {
		t.Fatal(err)
	}
	store := storagetest.Fault(memory.New())
	store.Before = func(method string) error {
		switch {
		case b.panicked.Load() && method == "Summary": // all of its callers recover
			panic("a bug of the storage")
		case b.failing.Load():
			return tidemark.Errorf(tidemark.Unavailable,
				"the disk of the database is full; free some space")
		}
		return nil
	}
	meter := metered.New(log)
	limits, err := limitFlags{}.withDefaults(true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, options{
			listen:  "127.0.0.1:0",
			meter:   meter,
			metrics: metricsOptions{private: true},
			limits:  limits,
			open: func(context.Context) (openedStore, error) {
				return openedStore{Store: meter.Store(store)}, nil
			},
			credentials: auth.Config{JWTSecret: []byte(testSecret), APIKeys: keys},
		}, log)
	}()
	t.Cleanup(func() {
		b.failing.Store(false)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	poll(t, func() error {
		found := listening.FindStringSubmatch(b.log.String())
		if found == nil {
			return fmt.Errorf("no address in the log: %s", b.log.String())
		}
		b.url = found[1]
		return nil
	})
	return b
}

// failures returns the operations that the log says failed for a request.
func (b *brittle) failures(t *testing.T, requestID string) (operations []string) {
	t.Helper()
	for line := range strings.Lines(b.log.String()) {
		var l struct {
			Msg, Operation, Code string
			RequestID            string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if l.Msg == "the storage failed" && l.RequestID == requestID {
			operations = append(operations, l.Operation)
			if l.Code != "UNAVAILABLE" {
				t.Errorf("the code is %q: %s", l.Code, line)
			}
		}
	}
	return operations
}

// TestRequestID_reaches_the_errors_of_the_storage checks the request id over every transport.
// The line of the storage's error contains it, and so does the answer.
func TestRequestID_reaches_the_errors_of_the_storage(t *testing.T) {
	cleanEnvironment(t)
	b := startBrittle(t)
	ann := signedFor(t, "ann")
	api := b.url + "/api/v1"
	must(t, 201, ann, "POST", api+"/chats",
		`{"type":"group","chat_id":"team","member_ids":["bob"]}`)
	ws := dial(t, b.url, ann, "")
	session := sessionOf(t, read(t, ws, `"session"`))
	read(t, ws, `"caught_up"`)
	b.failing.Store(true)

	status, header, body := call(t, ann, "GET", api+"/chats/team", "", "X-Request-ID", "trace-1")
	if status != 503 || header.Get("X-Request-ID") != "trace-1" ||
		!strings.Contains(body, `"request_id":"trace-1"`) {
		t.Errorf("%d %v %s", status, header, body)
	}
	if got := b.failures(t, "trace-1"); len(got) != 1 {
		t.Errorf("the read failed in %q, want one line", got)
	}
	// The core retries a write, even if its caller is gone, and logs it with the request id.
	must(t, 503, ann, "POST", api+"/chats/team/messages",
		`{"client_message_id":"m1","content":"x"}`, "X-Request-ID", "trace-2")
	if got := strings.Join(b.failures(t, "trace-2"), " "); got != "append append append append" {
		t.Errorf("the send failed in %q, want each of its four attempts", got)
	}
	say(t, ws,
		`{"type":"send_message","request_id":"frame-7","payload":`+
			`{"chat_id":"team","client_message_id":"m2","content":"x"}}`,
		`{"type":"sync_request","payload":{"chats":[{"chat_id":"team","last_acked_sequence":0}]}}`)
	read(t, ws, "frame-7")
	if got := b.failures(t, "frame-7"); len(got) == 0 || got[0] != "append" {
		t.Errorf("the frame failed in %q, want append", got)
	}
	if got := b.failures(t, session+":1"); len(got) == 0 {
		t.Errorf("no failure of the frame without request_id is logged as %s:1", session)
	}
}

func sessionOf(t *testing.T, frame string) string {
	t.Helper()
	var open struct {
		Payload struct {
			SessionID string `json:"session_id"`
		}
	}
	if err := json.Unmarshal([]byte(frame), &open); err != nil {
		t.Fatal(err)
	}
	return open.Payload.SessionID
}

// TestLog_holds_no_secret_and_no_message checks that secrets and contents are not logged.
// It sends canaries over every transport, also while the storage fails and a handler panics.
// The log has the level debug.
func TestLog_holds_no_secret_and_no_message(t *testing.T) {
	cleanEnvironment(t)
	b := startBrittle(t)
	api := b.url + "/api/v1"
	ann, bob := signedFor(t, "ann"), signedFor(t, "bob")
	const content, attached, added = "canary-content", "canary-attachment", "canary-metadata"
	message := func(key string) string {
		return `{"client_message_id":"` + key + `","content":"` + content +
			`","attachments":[{"url":"` + attached + `"}],"metadata":{"x":"` + added + `"}}`
	}
	must(t, 201, ann, "POST", api+"/chats",
		`{"type":"group","chat_id":"team","member_ids":["bob"]}`)
	must(t, 201, ann, "POST", api+"/chats/team/messages", message("m0"))
	secrets := []string{content, attached, added, b.key, testSecret}
	for _, token := range []string{ann, bob} {
		secrets = append(secrets, token, token[strings.LastIndexByte(token, '.')+1:])
	}
	ticket := func() string {
		var answer struct{ Ticket string }
		body := must(t, 201, bob, "POST", api+"/tickets", "")
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, answer.Ticket)
		return answer.Ticket
	}
	ws := dial(t, b.url, "", "?device=canary-device&ticket="+ticket())
	read(t, ws, content)
	stream(t, "", api+"/events?ticket="+ticket(), content)
	leaveWaiting(t, bob, api+"/poll?wait_seconds=50&ticket="+ticket())
	for i, failing := range []bool{false, true} {
		b.failing.Store(failing)
		key := fmt.Sprint("k", i)
		call(t, ann, "POST", api+"/chats/team/messages", message(key))
		call(t, b.key, "POST", api+"/chats/team/messages", message(key+"b"), "X-User-ID", "ann")
		call(t, ann, "POST", api+"/chats/team/messages", message(key)+content)
		call(t, ann, "POST", api+"/chats/team/messages",
			`{"client_message_id":"`+content+` not an id","content":"x"}`)
		call(t, ann+"x", "GET", api+"/chats?ticket="+ann, "")
		call(t, "tmk_"+content, "GET", api+"/chats", "")
		call(t, "", "GET", api+"/poll?wait_seconds=0&ticket="+content, "")
		call(t, ann, "GET", api+"/chats/team?ticket="+b.key, "") // 200, or 503 if storage fails
		call(t, ann, "GET", api+"/chats/team/messages?limit="+content+"&ticket="+b.key, "")
		say(t, ws,
			`{"type":"send_message","request_id":"`+content+` in frame","payload":`+
				`{"chat_id":"team","client_message_id":"`+key+`w","content":"`+content+`"}}`,
			`{"type":"send_message","request_id":"done","payload":`+
				`{"chat_id":"team","client_message_id":"`+key+`v","content":"`+content+`"}}`,
			`{"type":"ack","payload":{"chat_id":"team","last_acked_sequence":1}}`, content)
		read(t, ws, `"done"`)
		raw(t, b.url,
			"GET /"+content+" HTTP/1.1\r\n"+content+"\r\nAuthorization: Bearer "+ann+"\r\n\r\n")
	}
	b.failing.Store(false)
	b.panicked.Store(true)
	must(t, 500, ann, "GET", api+"/chats/team/delivery-status?for_sequence=1", "", "X-Request-ID",
		"panic-1")
	b.panicked.Store(false)
	_ = ws.CloseNow()

	log := b.log.String()
	for _, line := range []string{
		"a request", "a request failed", "the storage failed", "a handler panicked",
	} {
		if !strings.Contains(log, `"msg":"`+line+`"`) {
			t.Errorf("no line %q was logged", line)
		}
	}
	for _, secret := range secrets {
		if at := strings.Index(log, secret); at >= 0 {
			begin := strings.LastIndexByte(log[:at], '\n') + 1
			line, _, _ := strings.Cut(log[begin:], "\n")
			t.Errorf("%.40s… is in the log: %s", secret, line)
		}
	}
	if strings.Contains(log, "ticket=") || strings.Contains(log, "Bearer") {
		t.Error("a query or a header is in the log")
	}
}

// raw sends bytes that may not be a valid request, and reads until the server closes.
func raw(t *testing.T, url, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait.Hang))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn)
}

// TestServe_logs_as_json checks that the flags configure the log.
func TestServe_logs_as_json(t *testing.T) {
	cleanEnvironment(t)
	url, log := startLogged(t, "--dev", "--store", "sqlite:"+filepath.Join(t.TempDir(), "a.db"),
		"--log-format", "json", "--log-level", "debug")
	must(t, http.StatusOK, "dev:ann", http.MethodGet, url+"/api/v1/chats?limit=7", "",
		"X-Request-ID", "r-1")
	stdlog.Print("a line of a library")
	poll(t, func() error {
		found := 0
		for line := range strings.Lines(log.String()) {
			var l struct {
				Msg, Error, Method, Route string
				Status                    int
				RequestID                 string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if l.Msg == "a request" && l.RequestID == "r-1" && l.Method == "GET" &&
				l.Route == "/api/v1/chats" && l.Status == 200 || l.Error == "a line of a library" {
				found++
			}
		}
		if found != 2 {
			return fmt.Errorf("no line of the request, or of the library, in %s", log.String())
		}
		return nil
	})
}
