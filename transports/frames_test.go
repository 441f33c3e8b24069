package transports_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// refusal is the error that a client gets for a refused request.
type refusal struct{ Code, Detail string }

// ask sends a frame and returns the error that answers its request id. It returns the zero value if
// the frame was not refused.
func ask(t *testing.T, c *transporttest.Socket, id, frame string) (r refusal) {
	t.Helper()
	c.Write(frame)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Hang)
	defer cancel()
	for {
		ev, err := c.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for the answer to %.200s: %v", frame, err)
		}
		if ev.RequestID != id || id == "" && ev.Type != "problem" {
			continue
		}
		if ev.Type == "problem" {
			if err := json.Unmarshal(ev.Payload, &r); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
}

// TestBadInput_same_code_over_both_transports: a frame is refused with the same code and detail as
// the same request over REST.
func TestBadInput_same_code_over_both_transports(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	before := settled(t, s)
	ann := transporttest.DialWebSocket(t, s, nil, "ann")
	type request struct{ operation, chat, body string }
	var requests []request
	for _, f := range fields() {
		if f.operation != "sendMessage" && f.operation != "sync" {
			continue
		}
		for _, b := range f.bad {
			requests = append(requests, request{f.operation, "team", fmt.Sprintf(f.body, b.value)})
		}
	}
	const text = `{"client_message_id":"c1","content":"x"}`
	requests = append(requests, request{"sendMessage", "nowhere", text},
		request{"sendMessage", "foreign", text}, request{"sendMessage", "a b", text},
		request{"sendMessage", "team", `{"client_message_id":"c1","content":"another"}`},
		request{"sendMessage", "team", `{}`}, request{"sync", "", `{"session_id":"nobody"}`},
		request{"sync", "", `{"chats":[{"chat_id":"team","last_acked_sequence":0},` +
			`{"chat_id":"team","last_acked_sequence":0}]}`})
	exchange{who: "eve", method: "POST", path: "/chats", status: 201,
		body: `{"type":"group","chat_id":"foreign","member_ids":[]}`}.try(t, s)
	for i, q := range requests {
		e := good()[q.operation]
		e.path = strings.Replace(e.path, "team", strings.ReplaceAll(q.chat, " ", "%20"), 1)
		e.body, e.status = q.body, 0
		var rest refusal
		problem := problemOf(t, e.send(t, s))
		rest.Code, rest.Detail = problem.Code, problem.Detail

		id := fmt.Sprint("r", i)
		kind, payload := "sync_request", q.body
		if q.operation == "sendMessage" {
			kind = "send_message"
			payload = fmt.Sprintf(`{"chat_id":%q,`, q.chat) + strings.TrimPrefix(q.body, "{")
			payload = strings.ReplaceAll(payload, ",}", "}")
		}
		frame := ask(t, ann, id,
			fmt.Sprintf(`{"type":%q,"request_id":%q,"payload":%s}`, kind, id, payload))
		if rest.Code == "" || frame != rest {
			t.Errorf("%s %.120s: REST says %+v, WebSocket %+v", q.operation, q.body, rest, frame)
		}
	}
	unchanged(t, s, before)
}

// TestBadInput_every_frame: a frame of an unknown type or with a broken envelope gets an error that
// says what is wrong.
func TestBadInput_every_frame(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	before := settled(t, s)
	ann := transporttest.DialWebSocket(t, s, nil, "ann")
	for _, tt := range []struct{ frame, id, word string }{
		{``, "", "nothing"}, {` `, "", "malformed"}, {`{`, "", "malformed"},
		{`{}{}`, "", "malformed"}, {`[]`, "", "object"}, {`null`, "", "object"},
		{`"ping"`, "", "object"}, {`1`, "", "object"},
		{"\ufeff{}", "", "malformed"},
		{`{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, "",
			"depth"},
		{`{}`, "", "type is missing"}, {`{"type":null}`, "", "type is missing"},
		{`{"type":1}`, "", "type must be a string"}, {`{"type":"\ud800"}`, "", "type"},
		{`{"type":"","request_id":"e1"}`, "e1", "type"},
		{`{"type":"Ping","request_id":"e2"}`, "e2", "send_message, ack, read"},
		{`{"type":"session","request_id":"e3","payload":{}}`, "e3", `"session"`},
		{`{"type":"` + strings.Repeat("x", 5<<10) + `","request_id":"e4"}`, "e4", "unknown"},
		{`{"type":"ping","request_id":1}`, "", "request_id"},
		{`{"type":"ping","request_id":"` + strings.Repeat("r", 129) + `"}`, "", "request_id"},
		{`{"type":"ping","request_id":"\u0000"}`, "", "request_id"},
		{`{"type":"send_message","request_id":"e5"}`, "e5", "chat_id"},
		{`{"type":"send_message","request_id":"e6","payload":[]}`, "e6",
			"payload must be a JSON object"},
		{`{"type":"send_message","request_id":"e7","payload":{"chat_id":["team"],` +
			`"client_message_id":"c","content":"x"}}`, "e7", "chat_id must be a string"},
		{`{"type":"typing","request_id":"e8"}`, "e8", "chat_id"},
		{`{"type":"typing","request_id":"e9","payload":{"chat_id":"a b"}}`, "e9", "chat_id"},
		{`{"type":"typing","request_id":"f1","payload":1}`, "f1", "payload"},
		{`{"type":"sync_request","request_id":"f2","payload":"x"}`, "f2", "payload"},
	} {
		if got := ask(t, ann, tt.id, tt.frame); got.Code != invalid ||
			!strings.Contains(got.Detail, tt.word) {
			t.Errorf("%.100s: %+v, want a detail with %q", tt.frame, got, tt.word)
		}
	}
	// Acknowledgements are never answered, so no frame comes before the pong.
	for _, b := range append(badAcks(), bad{`null`, ""}, bad{someText, ""}) {
		for _, kind := range []string{"ack", "read"} {
			ann.Write(fmt.Sprintf(`{"type":%q,"request_id":"ack","payload":{"chat_id":"team",`+
				`"last_acked_sequence":%s}}`, kind, b.value))
			ann.Write(fmt.Sprintf(`{"type":%q,"request_id":"ack",`+
				`"payload":{"chats":[{"chat_id":"team","last_read_sequence":%s}]}}`, kind, b.value))
			ann.Write(fmt.Sprintf(`{"type":%q,"request_id":"ack","payload":%s}`, kind, b.value))
		}
	}
	ann.Write(`{"type":"ping","request_id":"end"}`)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Hang)
	defer cancel()
	for {
		ev, err := ann.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.RequestID == "end" {
			break
		}
		if ev.Type == "problem" {
			t.Fatalf("an acknowledgement was answered: %s", ev.Payload)
		}
	}
	unchanged(t, s, before)
}

const someText = `"\ud800"`
