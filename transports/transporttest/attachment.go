package transporttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// withAttachment is a message with the fields that this test checks.
type withAttachment struct {
	Sequence    tidemark.Sequence `json:"sequence"`
	Attachments json.RawMessage   `json:"attachments"`
	Metadata    json.RawMessage   `json:"metadata"`
}

// testAttachment sends attachments and metadata by REST and by WebSocket. It compares the bytes in
// every answer and in everything that is read: live, and later from storage.
func testAttachment(t *testing.T, d Dialer) {
	s := New(t, Options{Core: server.Config{TailMessages: 1, TailBytes: 1}})
	chat := s.Group(alice, bob)
	live := dial(t, s, d, Position{User: bob})
	live.find(tidemark.EventCaughtUp)
	socket := DialWebSocket(t, s, Position{}.query(), alice)
	path := "/chats/" + string(chat) + "/messages"
	sent := []string{
		`{}`, `{ "b":1,  "a":2.50e1, "a":"\u00e9é😀\/" }`, `{"n":12345678901234567890.10}`,
		`{"a":"` + strings.Repeat("é", (tidemark.MaxMetadata-8)/2) + `"}`,
		"{\n \"url\": \"s3://bucket/key?x=1&y=%20<>\",\r\n\t\"size\": 1}",
	}
	want := make([]string, len(sent))
	for i, raw := range sent {
		// Line breaks between tokens would end a line of Server-Sent Events, so the server drops
		// them.
		want[i] = strings.NewReplacer("\n", "", "\r", "").Replace(raw)
		body := fmt.Sprintf(`{"client_message_id":"k%d","attachments":[%s],"metadata":%s}`,
			i, raw, raw)
		status := http.StatusCreated
		if i%2 == 1 {
			socket.Write(fmt.Sprintf(`{"type":"send_message","payload":{"chat_id":%q,`+
				`"client_message_id":"k%d","attachments":[%s],"metadata":%s}}`, chat, i, raw, raw))
			live.attachments(chat, i, want[i:i+1])
			status = http.StatusOK
		}
		for _, status := range []int{status, http.StatusOK} {
			checkAttachment(t, "the answer",
				call[withAttachment](t, s, alice, http.MethodPost, path, body, status), i, want[i])
		}
		call[struct{}](t, s, alice, http.MethodPost, path,
			fmt.Sprintf(`{"client_message_id":"k%d","attachments":[{ }]}`, i), http.StatusConflict)
		if i%2 == 0 {
			live.attachments(chat, i, want[i:i+1])
		}
		chats := call[struct {
			Chats []struct {
				Last withAttachment `json:"last_message"`
			}
		}](t, s, bob, http.MethodGet, "/chats", "", http.StatusOK)
		checkAttachment(t, "the list of chats", chats.Chats[0].Last, i, want[i])
	}
	dial(t, s, d, Position{User: bob}).attachments(chat, 0, want)
	type page struct{ Messages []withAttachment }
	synced := call[struct{ Chats []page }](t, s, bob, http.MethodPost, "/sync",
		fmt.Sprintf(`{"chats":[{"chat_id":%q,"last_acked_sequence":0}]}`, chat), http.StatusOK)
	for what, p := range map[string]page{
		"sync": synced.Chats[0],
		"the history": call[page](t, s, bob, http.MethodGet, path+"?after_sequence=0", "",
			http.StatusOK),
		"the latest history": call[page](t, s, bob, http.MethodGet, path+"?before_sequence=99", "",
			http.StatusOK),
	} {
		if len(p.Messages) != len(want) {
			t.Fatalf("%s has %d messages, want %d", what, len(p.Messages), len(want))
		}
		for i, m := range p.Messages {
			checkAttachment(t, what, m, i, want[i])
		}
	}
}

// attachments reads messages from number i of the chat on, and compares their attachments.
func (d *device) attachments(chat tidemark.ChatID, i int, want []string) {
	d.t.Helper()
	for n := range want {
		ev := d.find(tidemark.EventMessage)
		var m withAttachment
		if err := json.Unmarshal(ev.Payload, &m); err != nil {
			d.t.Fatalf("%v in %s", err, ev.Payload)
		}
		checkAttachment(d.t, "the stream of "+string(chat), m, i+n, want[n])
	}
}

func checkAttachment(t testing.TB, what string, got withAttachment, i int, want string) {
	t.Helper()
	if got.Sequence != tidemark.Sequence(i+1) || string(got.Attachments) != "["+want+"]" ||
		string(got.Metadata) != want {
		t.Fatalf("%s: got message %d with %s and %s, want message %d with %s",
			what, got.Sequence, got.Attachments, got.Metadata, i+1, want)
	}
}

// call sends a request, checks the status, and returns the answer.
func call[T any](
	t testing.TB, s *Stack, user tidemark.UserID, method, path, body string, status int,
) T {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	bearer(r.Header, user)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if response.StatusCode != status {
		t.Fatalf("%s %s: got %d %s, want %d", method, path, response.StatusCode, raw, status)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, raw)
	}
	return v
}
