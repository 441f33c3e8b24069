package apitest_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
)

// recorder is a testing.TB that records errors and does not fail.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, format)
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

const (
	state = `{"chat_id":"team","user_id":"bob","last_acked_sequence":1,"last_read_sequence":0,` +
		`"updated_at":null}`
	problem = `{"type":"about:blank","title":"Conflict","status":409,"code":"CONFLICT",` +
		`"detail":"taken","request_id":"r"}`
)

// TestTransport_sees_what_is_wrong shows that the checks can fail. Each exchange breaks one rule,
// except the good ones.
func TestTransport_sees_what_is_wrong(t *testing.T) {
	contract := apitest.Load(t)
	json := http.Header{
		"X-Request-Id": {"r"}, "Content-Type": {"application/json"}, "Cache-Control": {"no-store"},
		"Tidemark-Incarnation": {"i"},
	}
	with := func(name, value string) http.Header {
		h := json.Clone()
		h.Set(name, value)
		return h
	}
	const path = "/api/v1/chats/team/delivery-state"
	const stream = "/api/v1/events"
	events := with("Content-Type", "text/event-stream")
	events.Set("Cache-Control", "no-cache, no-transform")
	for _, tt := range []struct {
		name, method, path, sent string
		status                   int
		header                   http.Header
		body                     string
		wrong                    bool
	}{
		{"good", "GET", path, "", 200, json, state, false},
		{"a field that is not described", "GET", path, "", 200, json,
			strings.Replace(state, "{", `{"x":1,`, 1), true},
		{"a field that is missing", "GET", path, "", 200, json, `{}`, true},
		{"a time that is none", "GET", path, "", 200, json,
			strings.Replace(state, "null", `"now"`, 1), true},
		{"no JSON", "GET", path, "", 200, json, `x`, true},
		{"a status that is not listed", "GET", path, "", 409,
			with("Content-Type", "application/problem+json"), problem, true},
		{"no request id", "GET", path, "", 200, with("X-Request-ID", ""), state, true},
		{"no incarnation", "GET", path, "", 200, with("Tidemark-Incarnation", ""), state, true},
		{"may be kept", "GET", path, "", 200, with("Cache-Control", "max-age=1"), state, true},
		{"another type", "GET", path, "", 200, with("Content-Type", "text/plain"), state, true},
		{"a path that does not exist", "GET", "/api/v1/nothing", "", 200, json, state, true},
		{"503 without Retry-After", "GET", path, "", 503,
			with("Content-Type", "application/problem+json"),
			strings.ReplaceAll(problem, "409", "503"), true},
		{"a good body", "PATCH", path, `{"last_acked_sequence":1}`, 200, json, state, false},
		{"a field that is ignored", "PATCH", path,
			`{"last_acked_sequence":1,"x":null,"last_read_sequence":null}`, 200, json, state,
			false},
		{"a bad body that is accepted", "PATCH", path, `{"last_acked_sequence":0}`, 200, json,
			state, true},
		{"an unknown parameter that is accepted", "GET", path + "?x=1", "", 200, json, state, true},
		{"a bad id that is accepted", "GET", "/api/v1/chats/%20/delivery-state", "", 200, json,
			state, true},
		{"a bad limit that is accepted", "GET", "/api/v1/delivery-states?limit=0", "", 200, json,
			`{"states":[],"pagination":{"has_more":false,"next_cursor":null}}`, true},
		{"good events", "GET", stream, "", 200, events,
			":\n\n:\nretry: 5\nid: s.1\nevent: caught_up\ndata: {}\n\n:\n\n", false},
		{"a last retry without a block", "GET", stream, "", 200, events, ":\nretry: 5\n", false},
		{"a retry alone in its block", "GET", stream, "", 200, events, "retry: 5\n\n", true},
		{"a retry and a comment alone", "GET", stream, "", 200, events, ":\nretry: 5\n\n", true},
		{"a position alone in its block", "GET", stream, "", 200, events, "id: s.1\n\n", true},
		{"an unknown parameter of a stream", "GET", stream + "?x=1", "", 200, events, ":\n\n",
			false},
		{"an unknown event", "GET", stream, "", 200, events, "id: s.1\nevent: dance\ndata: {}\n\n",
			true},
		{"an event with more in it", "GET", stream, "", 200, events,
			"id: s.1\nevent: caught_up\ndata: {\"x\":1}\n\n", true},
		{"an event without a position", "GET", stream, "", 200, events,
			"event: caught_up\ndata: {}\n\n", true},
		{"two lines of data", "GET", stream, "", 200, events,
			"id: s.1\nevent: caught_up\ndata: {}\ndata: {}\n\n", true},
		{"no field", "GET", stream, "", 200, events, "id: s.1\nevent: caught_up\ndata: {}\nx\n\n",
			true},
	} {
		r := &recorder{TB: t}
		answer := roundTripper(func(*http.Request) *http.Response {
			return &http.Response{
				StatusCode: tt.status,
				Header:     tt.header,
				Body:       io.NopCloser(strings.NewReader(tt.body)),
			}
		})
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://x"+tt.path,
			strings.NewReader(tt.sent))
		if err != nil {
			t.Fatal(err)
		}
		res, err := contract.Transport(r, answer).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(res.Body); string(got) != tt.body || err != nil {
			t.Errorf("%s: the body became %q, %v", tt.name, got, err)
		}
		_ = res.Body.Close()
		if wrong := len(r.errors) > 0; wrong != tt.wrong {
			t.Errorf("%s: wrong is %t, want %t (%q)", tt.name, wrong, tt.wrong, r.errors)
		}
	}
}

type roundTripper func(*http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// socket is a connection that reads from a Reader and discards what is written.
type socket struct{ io.Reader }

// Write implements io.Writer.
func (socket) Write(p []byte) (int, error) { return len(p), nil }

// Close implements io.Closer.
func (socket) Close() error { return nil }

func TestTransport_sees_frames(t *testing.T) {
	contract := apitest.Load(t)
	frame := func(text string, mask ...byte) []byte {
		b := []byte{0x81, 126, byte(len(text) >> 8), byte(len(text))}
		if mask == nil {
			return append(b, text...)
		}
		b[1] |= 0x80
		b = append(b, mask...)
		for i := range text {
			b = append(b, text[i]^mask[i%4])
		}
		return b
	}
	for _, tt := range []struct {
		name           string
		received, sent string
		wrong          bool
	}{
		{"good", `{"id":1,"type":"caught_up","payload":{}}`, `{"type":"ping"}`, false},
		{"a refused frame", `{"type":"pong","payload":{}}`, `{"type":"dance"}`, false},
		{"a bad event", `{"id":0,"type":"caught_up","payload":{}}`, "", true},
		{"a bad reply", `{"type":"pong","payload":{"x":1}}`, "", true},
		{"no JSON", `x`, "", true},
	} {
		r := &recorder{TB: t}
		// The frame comes after a ping.
		conn := socket{bytes.NewReader(append([]byte{0x89, 0}, frame(tt.received)...))}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/api/v1/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := contract.Transport(r, roundTripper(func(*http.Request) *http.Response {
			return &http.Response{
				StatusCode: 101,
				Header:     http.Header{"X-Request-Id": {"r"}},
				Body:       conn,
			}
		})).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := res.Body.(io.Writer).Write(frame(tt.sent, 1, 2, 3, 4)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if wrong := len(r.errors) > 0; wrong != tt.wrong {
			t.Errorf("%s: wrong is %t, want %t (%q)", tt.name, wrong, tt.wrong, r.errors)
		}
	}
}

func TestAccepts_null_as_absent(t *testing.T) {
	contract := apitest.Load(t)
	for raw, want := range map[string]bool{
		`{"client_message_id":"c","content":null}`:     true,
		`{"client_message_id":null}`:                   false,
		`{"client_message_id":"c","attachments":[{}]}`: true,
		`{"client_message_id":"c","attachments":[1]}`:  false,
		`{"client_message_id":"c","attachments":{}}`:   false,
		`{"client_message_id":"c","seen_sequence":-1}`: false,
		`{"client_message_id":"a b","content":"text"}`: false,
	} {
		if err := contract.Accepts("SendMessage", []byte(raw)); (err == nil) != want {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestLoad_the_file_that_is_served(t *testing.T) {
	if !bytes.Contains(tidemark.OpenAPI, []byte("openapi: 3.0.3")) {
		t.Error("openapi.yaml is not 3.0.3")
	}
}
