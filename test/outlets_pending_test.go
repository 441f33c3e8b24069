package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// missedHook is a webhook that notes whom it is told of. While it refuses, it only notes the ids.
type missedHook struct {
	mu      sync.Mutex
	refuses bool
	refused map[string]bool
	// told has "user sequence" of each event, by id and in order.
	told  map[string]string
	order []string
}

// ServeHTTP implements http.Handler.
func (h *missedHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // The server was killed.
	}
	var event struct {
		ID, Type string
		Data     struct {
			User  string `json:"user_id"`
			First int64  `json:"first_undelivered_sequence"`
		}
	}
	err = json.Unmarshal(body, &event)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuses {
		h.refused[event.ID] = true
		http.Error(w, "not now", http.StatusInternalServerError)
		return
	}
	said := fmt.Sprint(event.Data.User, " ", event.Data.First)
	if err != nil || event.Type != "pending.created" {
		said = fmt.Sprintf("%v in %s", err, body)
	}
	if _, again := h.told[event.ID]; !again {
		h.order = append(h.order, said)
	}
	h.told[event.ID] = said
	w.WriteHeader(http.StatusNoContent)
}

// has waits until the receiver was told of these absences, and of no others.
func (h *missedHook) has(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	eventually(t, fmt.Sprint("it is told ", want), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		got = slices.Clone(h.order)
		return len(got) >= len(want)
	}, func() string { return fmt.Sprint(got) })
	if !slices.Equal(got, want) {
		t.Errorf("the receiver was told %q, want %q", got, want)
	}
}

// TestOutlets_pending_created tells a webhook who missed messages: once for each absence, also if
// the server is killed before the event is accepted.
func TestOutlets_pending_created(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	key, file := apiKey(t, p.binary, "--scope", "admin")
	p.flags = []string{"--dev", "--api-keys-file", file, "--worker-timeout", "3s"}
	p.start()
	h := &missedHook{refused: map[string]bool{}, told: map[string]string{}}
	receiver := httptest.NewServer(h)
	t.Cleanup(receiver.Close)
	operator := user{name: "operator", url: "http://" + p.address, token: key}
	alice, bob := as(p.address, "alice"), as(p.address, "bob")
	alice.call(t, http.MethodPost, "/chats",
		map[string]any{
			"type": "group", "chat_id": "c", "member_ids": []string{"bob"},
			"history": "since_join",
		}, nil)
	var made outletOf
	operator.call(t, http.MethodPost, "/admin/outlets", map[string]any{
		"type": "webhook", "outlet_id": "notifier", "url": receiver.URL,
		"events": []string{"pending.created"},
	}, &made)
	eventually(t, "the outlet is active", func() bool {
		operator.call(t, http.MethodGet, "/admin/outlets/notifier", nil, &made)
		return made.State == "active"
	}, func() string { return made.State })

	alice.send(t, "c", "one")
	h.has(t, "bob 1")
	alice.send(t, "c", "two")
	alice.send(t, "c", "three")
	alice.call(t, http.MethodPost, "/chats/c/members",
		map[string]any{"user_ids": []string{"carol"}}, nil)
	alice.send(t, "c", "four")
	h.has(t, "bob 1", "carol 4")

	bob.ack(t, "c", 4)
	h.mu.Lock()
	h.refuses = true
	h.mu.Unlock()
	alice.send(t, "c", "five")
	eventually(t, "an event is refused", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.refused) > 0
	}, func() string { return "none is" })
	if err := p.process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.wait()
	h.mu.Lock()
	h.refuses = false
	h.mu.Unlock()
	p.start()
	h.has(t, "bob 1", "carol 4", "bob 5")
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.refused {
		if h.told[id] != "bob 5" {
			t.Errorf("the refused event %s is not the one that came after the kill", id)
		}
	}
}
