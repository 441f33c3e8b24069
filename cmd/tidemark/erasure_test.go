package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// site is a server that is started several times over one database and one ledger, with a clock of
// erasures that a test moves.
type site struct {
	t    *testing.T
	args []string
	key  string
	// ahead is how far the clock is ahead, in nanoseconds.
	ahead atomic.Int64
	url   string
}

// newSite returns a site whose database is a file. The log of its ledger is beside it.
func newSite(t *testing.T) (s *site, database, ledger string) {
	t.Helper()
	cleanEnvironment(t)
	_, key, line := invokeKey(t)
	dir := t.TempDir()
	database, ledger = filepath.Join(dir, "a.db"), filepath.Join(dir, "ledger")
	s = &site{t: t, key: key, args: []string{
		"--listen", "127.0.0.1:0", "--store", "sqlite:" + database,
		"--api-keys-file", write(t, "api-keys", line), "--ledger", ledger,
		"--ledger-key-file", write(t, "ledger-key", strings.Repeat("k", 32)),
	}}
	return s, database, ledger
}

// invokeKey makes an API key with all scopes.
func invokeKey(t *testing.T) (code int, key, line string) {
	t.Helper()
	code, key, line = invoke(t, nil, "api-key", "--name", "billing")
	return code, strings.TrimSpace(key), line
}

// start serves until stop is called. What stop waits for is in the database then.
func (s *site) start() (stop func()) {
	s.t.Helper()
	c, err := parseServe(s.t, s.args...)
	if err != nil {
		s.t.Fatal(err)
	}
	c.Core.Erasure.Clock = func() time.Time {
		return time.Now().Add(time.Duration(s.ahead.Load()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var log logBuffer
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, streams{out: io.Discard, err: &log}, nil) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				s.t.Errorf("serve ended with %v", err)
			}
		case <-time.After(2 * drainWithin):
			s.t.Error("serve did not end")
		}
		if s.t.Failed() {
			s.t.Logf("the server's log:\n%s", log.String())
		}
	}
	s.t.Cleanup(stop)
	// No poll of /readyz: the first answer must be right.
	poll(s.t, func() error {
		found := listening.FindStringSubmatch(log.String())
		if found == nil {
			return fmt.Errorf("no address in the log: %s", log.String())
		}
		s.url = found[1]
		return nil
	})
	return stop
}

// call makes a call with the API key, for a user unless it is "", and returns the answer.
func (s *site) call(user, method, path, body string) (status int, text string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+"/api/v1"+path,
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	if user != "" {
		request.Header.Set("X-User-ID", user)
	}
	response, err := transporttest.Checked(s.t, http.DefaultTransport).RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// want makes a call that must have a status, and returns the answer.
func (s *site) want(status int, user, method, path, body string) string {
	s.t.Helper()
	got, text := s.call(user, method, path, body)
	if got != status {
		s.t.Fatalf("%s %s of %q: %d %s, want %d", method, path, user, got, text, status)
	}
	return text
}

// fill makes a chat of zoe and bob, in which zoe says something.
func (s *site) fill() {
	s.t.Helper()
	s.want(http.StatusCreated, "bob", http.MethodPost, "/chats",
		`{"type":"group","chat_id":"team","member_ids":["zoe-canary"]}`)
	s.want(http.StatusCreated, "zoe-canary", http.MethodPost, "/chats/team/messages",
		`{"client_message_id":"k1","content":"a secret canary"}`)
	s.want(http.StatusCreated, "bob", http.MethodPost, "/chats/team/messages",
		`{"client_message_id":"k2","content":"hello","mentions":{"user_ids":["zoe-canary"]}}`)
}

// gone checks what others see of zoe, and that zoe is refused.
func (s *site) gone(when string) {
	s.t.Helper()
	for _, path := range []string{"/chats", "/chats/team", "/chats/team/messages",
		"/chats/team/members"} {
		if text := s.want(http.StatusOK, "bob", http.MethodGet, path, ""); strings.Contains(text,
			"canary") {
			s.t.Errorf("%s, %s has the canary: %s", when, path, text)
		}
	}
	text := s.want(http.StatusOK, "bob", http.MethodGet, "/chats/team/messages", "")
	if !strings.Contains(text, `"content":"hello"`) || !strings.Contains(text, `"erased:`) {
		s.t.Errorf("%s, bob sees %s, want their message, and an alias", when, text)
	}
	s.want(http.StatusForbidden, "zoe-canary", http.MethodGet, "/chats", "")
}

// erased waits until the erasure of zoe is done. Its rests end at once.
func (s *site) erased() {
	s.t.Helper()
	poll(s.t, func() error {
		s.ahead.Add(int64(time.Minute))
		// A repeated call changes nothing, but makes the job look.
		s.want(http.StatusAccepted, "", http.MethodPost, "/users/zoe-canary/erasure", "")
		text := s.want(http.StatusOK, "", http.MethodGet, "/users/zoe-canary/erasure", "")
		var got struct{ State, Step string }
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.State != "erased" {
			return fmt.Errorf("the erasure: %s, %v, want it erased", text, err)
		}
		return nil
	})
}

// TestErase_erased_nowhere_after_a_restore erases a user over HTTP, with the flags of the program.
// Then it restores the database of before. The server erases the user again before it serves.
func TestErase_erased_nowhere_after_a_restore(t *testing.T) {
	s, database, ledger := newSite(t)
	stop := s.start()
	s.fill()
	stop()
	backup, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(backup), "zoe-canary") {
		t.Fatal("the backup has no canary, so this test shows nothing")
	}

	stop = s.start()
	s.want(http.StatusAccepted, "", http.MethodPost, "/users/zoe-canary/erasure", "")
	s.want(http.StatusForbidden, "zoe-canary", http.MethodGet, "/chats", "")
	s.erased()
	s.gone("after the erasure")
	stop()
	noCanary(t, database)
	lines := noCanary(t, ledger)
	if n := len(strings.Fields(lines)); n != 2 {
		t.Errorf("the ledger has %d fields, want a time and a hash: %q", n, lines)
	}

	for _, tail := range []string{"-wal", "-shm"} {
		if err := os.RemoveAll(database + tail); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(database, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	stop = s.start()
	s.gone("after the restore")
	s.erased()
	s.gone("after the second erasure")
	stop()
	noCanary(t, database)
	if again := noCanary(t, ledger); again != lines {
		t.Errorf("the ledger was %q, and is %q", lines, again)
	}
}

// noCanary checks that a file has no canary, and returns its bytes.
func noCanary(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "canary") {
		t.Errorf("%s has the canary", filepath.Base(file))
	}
	return string(raw)
}
