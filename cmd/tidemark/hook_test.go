package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const hookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// TestServe_hook asks a receiver over a real socket, and does what it says.
func TestServe_hook(t *testing.T) {
	cleanEnvironment(t)
	receiver := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			answer := `{"action":"allow"}`
			switch {
			case r.Header.Get("webhook-signature") == "":
				answer = `{"action":"refuse","detail":"unsigned"}`
			case strings.Contains(string(body), `"content":"spam"`):
				answer = `{"action":"refuse","detail":"no spam here"}`
			case strings.Contains(string(body), `"content":"damn"`):
				answer = `{"action":"replace","content":"****"}`
			}
			_, _ = io.WriteString(w, `{"results":[`+answer+`]}`)
		}))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(hookSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := startServer(t, "--dev", "--store", "memory:", "--hook-url", receiver.URL,
		"--hook-secret-file", file, "--hook-timeout", "5s", "--hook-failure", "closed")
	post := func(path, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			url+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer dev:ann")
		response, err := transporttest.Checked(t, http.DefaultTransport).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	// On a slow machine, an answer of the receiver may be late.
	call := func(path, body string) (status int, text string) {
		t.Helper()
		for status, text = post(path, body); status == http.StatusServiceUnavailable; {
			status, text = post(path, body)
		}
		return status, text
	}
	if status, text := call("/chats",
		`{"type":"direct","chat_id":"c","member_ids":["bob"]}`); status != http.StatusCreated {
		t.Fatalf("a chat: %d %s", status, text)
	}
	for _, tt := range []struct {
		key, content string
		status       int
		want         string
	}{
		{"k1", "hello", http.StatusCreated, `"content":"hello"`},
		{"k2", "spam", http.StatusForbidden, "no spam here"},
		{"k3", "damn", http.StatusCreated, `"content":"****"`},
		{"k3", "damn", http.StatusOK, `"content":"****"`},
	} {
		status, text := call("/chats/c/messages",
			`{"client_message_id":"`+tt.key+`","content":"`+tt.content+`"}`)
		if status != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %d %s, want %d with %s", tt.content, status, text, tt.status, tt.want)
		}
	}
}

func TestHook_flags_are_checked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(hookSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	const url = "https://hook.example.com/"
	for what, tt := range map[string]struct {
		flags hookFlags
		ok    bool
	}{
		"none": {hookFlags{}, true},
		"all": {
			hookFlags{HookURL: url, HookSecretFile: file, HookFailure: "closed"}, true,
		},
		"no secret":       {hookFlags{HookURL: url}, false},
		"no file":         {hookFlags{HookURL: url, HookSecretFile: file + "x"}, false},
		"no URL":          {hookFlags{HookSecretFile: file}, false},
		"a bad URL":       {hookFlags{HookURL: "x", HookSecretFile: file}, false},
		"another policy":  {hookFlags{HookURL: url, HookSecretFile: file, HookFailure: "x"}, false},
		"a long timeout":  {hookFlags{HookURL: url, HookSecretFile: file, HookTimeout: 6e9}, false},
		"a policy for no": {hookFlags{HookFailure: "open"}, false},
	} {
		if _, err := tt.flags.settings(); (err == nil) != tt.ok {
			t.Errorf("%s: %v, want success %v", what, err, tt.ok)
		}
	}
}
