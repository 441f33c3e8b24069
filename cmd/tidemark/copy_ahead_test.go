package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestCopy_copy_equal_ahead_of_a_pause copies a store ahead while a server works on it under load.
// Then the server stops, and the last run is short. Every message that was confirmed is in the
// target, where the next server finds it.
func TestCopy_copy_equal_ahead_of_a_pause(t *testing.T) {
	lite := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	there := postgres.Shared(t).Database(t)
	t.Run("from SQLite to Postgres", func(t *testing.T) { movesUnderLoad(t, lite, there) })
	t.Run("from Postgres to SQLite", func(t *testing.T) {
		movesUnderLoad(t, there, "sqlite:"+filepath.Join(t.TempDir(), "b.db"))
	})
}

// movesUnderLoad moves a store, which may have been moved before.
func movesUnderLoad(t *testing.T, from, to string) {
	cleanEnvironment(t)
	_, key, line := invokeKey(t)
	args := []string{
		"--listen", "127.0.0.1:0", "--migrate", "--api-keys-file", write(t, "api-keys", line),
	}
	s := &site{t: t, key: key, args: append(args, "--store", from)}
	stop := s.start()
	l := newLoad(s)
	code, _, stderr := invoke(t, nil, "copy", "--from", from, "--to", to, "--ahead", "--verify")
	if code != exitUsage {
		t.Errorf("--ahead --verify: exit %d, %s, want a usage error", code, stderr)
	}
	if strings.HasPrefix(to, "postgres") {
		if code, _, stderr := invoke(t, nil, "migrate", "up", "--store", to); code != exitOK {
			t.Fatal(stderr)
		}
	}
	l.begin()
	for range 2 {
		l.more(200)
		code, out, stderr := invoke(t, nil, "copy", "--from", from, "--to", to, "--ahead")
		if code != exitOK || !strings.Contains(stderr, "run it again, or stop the servers") {
			t.Fatalf("exit %d, %s%s", code, out, stderr)
		}
		t.Logf("%s%s", out, stderr)
	}
	file := write(t, "export.jsonl", versionLine+chatLines("late", "hello"))
	code, _, stderr = invoke(t, nil, "import", "--from", "jsonl", "--store", to, file)
	if code == exitOK || !strings.Contains(stderr, "a copy that is not complete") {
		t.Errorf("an import into the target: exit %d, %s, want a refusal", code, stderr)
	}
	l.more(20)
	l.end()
	paused := time.Now()
	stop()
	code, out, stderr := invoke(t, nil, "copy", "--from", from, "--to", to)
	if code != exitOK {
		t.Fatalf("exit %d, %s%s", code, out, stderr)
	}
	s.args = append(args, "--store", to)
	// The servers may begin now. Before they do, the test compares everything.
	pause := time.Since(paused)
	t.Logf("the pause was %v\n%s", pause, out)
	code, out, stderr = invoke(t, nil, "copy", "--from", from, "--to", to, "--verify")
	if code != exitOK {
		t.Fatalf("exit %d, %s%s", code, out, stderr)
	}
	stop = s.start()
	l.found()
	stop()
}

// A load are clients that send, change, react, acknowledge and read over REST.
type load struct {
	*site
	ctx  context.Context
	stop context.CancelFunc
	// confirmed counts messages.
	confirmed atomic.Int64
	clients   sync.WaitGroup

	mu sync.Mutex
	// sent has the contents of confirmed messages, by their chat and sequence.
	sent  map[string]map[int]string
	began time.Time
}

const loadClients = 3

func newLoad(s *site) *load {
	l := &load{site: s, sent: map[string]map[int]string{}}
	l.ctx, l.stop = context.WithCancel(s.t.Context())
	return l
}

// begin starts the clients, each with a chat of its own.
func (l *load) begin() {
	l.began = time.Now()
	for n := range loadClients {
		chat := fmt.Sprintf("%s-%d", strings.ToLower(l.key[len(l.key)-6:]), n)
		l.want(http.StatusCreated, "anna", http.MethodPost, "/chats",
			fmt.Sprintf(`{"type":"group","chat_id":%q,"member_ids":["ben"]}`, chat))
		l.sent[chat] = map[int]string{}
		l.clients.Go(func() { l.run(chat) })
	}
}

// run makes calls about a chat until the load ends.
func (l *load) run(chat string) {
	for n := 0; l.ctx.Err() == nil; n++ {
		content := fmt.Sprintf("message %d of %s", n, chat)
		last := l.post(chat, n, content, fmt.Sprintf(`"content":%q`, content))
		path := "/chats/" + chat
		switch n % 5 {
		case 1:
			l.post(chat, n, "", fmt.Sprintf(`"kind":"edit","content":%q,
				"relation":{"sequence":%d}`, content+" edited", last))
			l.say(chat, last, content+" edited")
		case 2:
			l.post(chat, n, "", fmt.Sprintf(`"kind":"react",
				"relation":{"sequence":%d,"emoji":"👍"}`, last))
		case 3:
			l.post(chat, n, "", fmt.Sprintf(`"kind":"redact","relation":{"sequence":%d}`, last))
			l.say(chat, last, "")
		case 4:
			l.do("ben", http.MethodPatch, path+"/delivery-state",
				fmt.Sprintf(`{"last_acked_sequence":%d,"last_read_sequence":%[1]d}`, last))
			l.do("ben", http.MethodGet, path+"/messages", "")
		}
	}
}

// post sends a message of a client, and notes it if it was confirmed. It returns its sequence.
func (l *load) post(chat string, n int, content, fields string) int {
	kind := "m"
	if content == "" {
		kind = "r"
	}
	body := l.do("anna", http.MethodPost, "/chats/"+chat+"/messages",
		fmt.Sprintf(`{"client_message_id":"%s-%d",%s}`, kind, n, fields))
	var message struct {
		Sequence int `json:"sequence"`
	}
	if err := json.Unmarshal(body, &message); err != nil || message.Sequence == 0 {
		return 0
	}
	l.say(chat, message.Sequence, content)
	l.confirmed.Add(1)
	return message.Sequence
}

func (l *load) say(chat string, sequence int, content string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[chat][sequence] = content
}

// do makes a call, and returns the answer. A call that is refused is an error, also one that has no
// answer before the load ends.
func (l *load) do(user, method, path, body string) []byte {
	request, err := http.NewRequestWithContext(context.WithoutCancel(l.ctx), method,
		l.url+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		l.t.Error(err)
		return nil
	}
	request.Header.Set("Authorization", "Bearer "+l.key)
	request.Header.Set("X-User-ID", user)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		l.t.Error(err)
		return nil
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusMultipleChoices {
		l.t.Errorf("%s %s: %s %s, %v", method, path, response.Status, answer, err)
	}
	return answer
}

// more waits until n more messages are confirmed.
func (l *load) more(n int64) {
	l.t.Helper()
	until := l.confirmed.Load() + n
	poll(l.t, func() error {
		if got := l.confirmed.Load(); got < until {
			return fmt.Errorf("%d messages are confirmed, want %d", got, until)
		}
		return nil
	})
}

// end stops the clients.
func (l *load) end() {
	l.t.Helper()
	l.stop()
	l.clients.Wait()
	n := l.confirmed.Load()
	l.t.Logf("%d messages were confirmed, %.0f a second", n,
		float64(n)/time.Since(l.began).Seconds())
}

// found checks that the server has every message that was confirmed, as it was last.
func (l *load) found() {
	l.t.Helper()
	for chat, messages := range l.sent {
		found := map[int]string{}
		for after := 0; ; {
			var page struct {
				Messages []struct {
					Sequence int    `json:"sequence"`
					Content  string `json:"content"`
				} `json:"messages"`
			}
			text := l.want(http.StatusOK, "ben", http.MethodGet,
				fmt.Sprintf("/chats/%s/messages?after_sequence=%d&limit=100", chat, after), "")
			if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&page); err != nil {
				l.t.Fatal(err)
			}
			if len(page.Messages) == 0 {
				break
			}
			for _, m := range page.Messages {
				found[m.Sequence], after = m.Content, m.Sequence
			}
		}
		for sequence, want := range messages {
			got, there := found[sequence]
			if !there || want != "" && got != want {
				l.t.Errorf("message %d of %s is %q, %t, want %q", sequence, chat, got, there, want)
			}
		}
	}
}
