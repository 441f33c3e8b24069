package test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// deadline bounds every wait for a client: far above what any of them takes on an idle machine, and
// above what a disk may stall.
const deadline = 4 * wait.Hang

// user calls the REST API of a server; url has no slash at the end.
type user struct {
	name string
	url  string
	// token is "" for a server that runs with --dev.
	token string
	// client is nil for the default one, whose timeout is deadline.
	client *http.Client
}

// bearer returns the user's token.
func (u user) bearer() string {
	if u.token == "" {
		return "dev:" + u.name
	}
	return u.token
}

// as returns a user of the server at an address, such as serveDev returns.
func as(address, name string) user { return user{name: name, url: "http://" + address} }

// message is a message as it is on the wire.
type message struct {
	ChatID          string `json:"chat_id"`
	Sequence        int64  `json:"sequence"`
	SenderID        string `json:"sender_id"`
	ClientMessageID string `json:"client_message_id"`
	Content         string `json:"content"`
}

// state is a delivery state, or a status update, as it is on the wire.
type state struct {
	ChatID string `json:"chat_id"`
	UserID string `json:"user_id"`
	Acked  int64  `json:"last_acked_sequence"`
	Read   int64  `json:"last_read_sequence"`
}

// checked returns the user's client, whose exchanges are compared with openapi.yaml.
func (u user) checked(t *testing.T) *http.Client {
	client := http.Client{Timeout: deadline}
	if u.client != nil {
		client = *u.client
	}
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Transport = transporttest.Checked(t, client.Transport)
	return &client
}

// call performs one request and decodes the answer into `into`; the test fails on an answer >= 300.
// While the answer is 503, it repeats the request, as clients do: the disk may stall for longer
// than the server waits.
func (u user) call(t *testing.T, method, path string, body, into any) {
	t.Helper()
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	response, got := u.ask(t, method, path, sent)
	for began := time.Now(); response.StatusCode == http.StatusServiceUnavailable &&
		time.Since(began) < deadline; response, got = u.ask(t, method, path, sent) {
		<-time.After(100 * time.Millisecond)
	}
	if response.StatusCode >= 300 {
		t.Fatalf("%s %s as %s: %s: %s", method, path, u.name, response.Status, got)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(got, into); err != nil {
		t.Fatalf("%s %s as %s: %v in %s", method, path, u.name, err, got)
	}
}

// ask performs one request, and returns the answer with its body.
func (u user) ask(t *testing.T, method, path string, body []byte) (*http.Response, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, u.url+"/api/v1"+path,
		bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+u.bearer())
	request.Header.Set("Content-Type", "application/json")
	response, err := u.checked(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, got
}

// direct returns the direct chat with another user.
func (u user) direct(t *testing.T, other string) (chatID string) {
	t.Helper()
	var chat struct {
		ChatID string `json:"chat_id"`
	}
	u.call(t, http.MethodPost, "/chats",
		map[string]any{"type": "direct", "member_ids": []string{other}}, &chat)
	return chat.ChatID
}

// send sends a message of at most 64 bytes, whose idempotency key follows from its content.
func (u user) send(t *testing.T, chatID, content string) message {
	t.Helper()
	var sent message
	key := hex.EncodeToString([]byte(content))
	u.call(t, http.MethodPost, "/chats/"+chatID+"/messages",
		map[string]any{"client_message_id": key, "content": content}, &sent)
	return sent
}

// ack acknowledges everything up to a sequence.
func (u user) ack(t *testing.T, chatID string, sequence int64) {
	t.Helper()
	u.call(t, http.MethodPatch, "/chats/"+chatID+"/delivery-state",
		map[string]any{"last_acked_sequence": sequence}, nil)
}

// until polls until check holds; the test fails if it does not in time. seen describes the present
// state. The time begins anew when that changes, up to five times as long.
func until(t *testing.T, what string, check func() bool, seen func() string) {
	t.Helper()
	began, last, since := time.Now(), "", time.Now()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for n := 0; !check(); n++ {
		<-poll.C
		if n%100 != 0 {
			continue
		}
		if now := seen(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > deadline || time.Since(began) > 5*deadline {
			t.Fatalf("not within %v: %s; now: %s", time.Since(began), what, last)
		}
	}
}
