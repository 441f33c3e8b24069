package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// heard is what a client has received, as text.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *heard) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.WriteString(text)
}

// since returns what came after the first n bytes, and size how many bytes have come.
func (h *heard) since(n int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()[n:]
}

func (h *heard) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Len()
}

// has waits until each of some texts has come.
func (h *heard) has(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		eventually(t, text+" has come", func() bool { return strings.Contains(h.since(0), text) },
			func() string { return fmt.Sprint(h.size(), " bytes") })
	}
}

// rawStream is a stream of events whose bytes are kept. It acknowledges nothing.
type rawStream struct {
	heard
	user user
	// first is the id of the first event that can be resumed from.
	first  string
	ended  chan struct{}
	cancel context.CancelFunc
}

// newRawStream opens a stream. It ends with the test, or before.
func newRawStream(t *testing.T, u user) *rawStream {
	t.Helper()
	s := &rawStream{user: u}
	s.user.client = nil
	s.open(t, "")
	t.Cleanup(s.cut)
	return s
}

// open connects, and resumes behind an event unless it is "".
func (s *rawStream) open(t *testing.T, after string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.user.url+"/api/v1/events",
		nil)
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+s.user.bearer())
	if after != "" {
		request.Header.Set("Last-Event-ID", after)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the stream of %s: %s", s.user.name, response.Status)
	}
	s.cancel, s.ended = cancel, make(chan struct{})
	go func() {
		defer close(s.ended)
		defer response.Body.Close()
		in := bufio.NewScanner(response.Body)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			if id, found := strings.CutPrefix(in.Text(), "id:"); found && s.first == "" {
				s.first = strings.TrimSpace(id)
			}
			s.add(in.Text() + "\n")
		}
	}()
	s.has(t, "event: session")
}

// cut ends the connection.
func (s *rawStream) cut() {
	s.cancel()
	<-s.ended
}

// canaryHook is the receiver of a webhook. It keeps what comes, and accepts all of it.
type canaryHook struct {
	heard
	server *httptest.Server
}

func newCanaryHook(t *testing.T) *canaryHook {
	t.Helper()
	h := &canaryHook{}
	h.server = httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			h.add(string(body) + "\n")
			w.WriteHeader(http.StatusNoContent)
		}))
	t.Cleanup(h.server.Close)
	return h
}

func (h *canaryHook) create(t *testing.T, operator user) {
	t.Helper()
	operator.call(t, http.MethodPost, "/admin/outlets", map[string]any{
		"outlet_id": "crm", "type": "webhook", "url": h.server.URL,
	}, nil)
}

// none reports texts of gone fates, and other words, in what somebody got.
func (s *canarySite) none(where, text string, words ...string) {
	s.t.Helper()
	for _, fate := range gone {
		if n := strings.Count(text, s.words[fate]); n > 0 {
			s.t.Errorf("%s: %d texts that are %s", where, n, fate)
		}
	}
	for _, word := range words {
		if strings.Contains(text, word) {
			s.t.Errorf("%s has %s", where, word)
		}
	}
}

// marks sends a message to each of the chats that are left, and returns their texts.
func (s *canarySite) marks(what string) (texts []string) {
	s.t.Helper()
	for _, chat := range []string{"team", "old"} {
		text := what + " in " + chat
		s.as(0, "alice").send(s.t, chat, text)
		texts = append(texts, text)
	}
	return texts
}

// replay lets the webhook get all again. It waits until the outlet is active.
func (s *canarySite) replay() {
	s.t.Helper()
	var answer []byte
	eventually(s.t, "the webhook gets all again", func() bool {
		status, got, err := s.backend(0).try(s.t.Context(), http.MethodPost,
			"/admin/outlets/crm/replay", map[string]any{"all": true})
		must(s.t, err)
		answer = got
		return status < 300
	}, func() string { return string(answer) })
}

// searchEvents looks at what comes after the fates: on the stream that is open, to a session that
// is resumed at its first event, to a user who was away, and to a webhook that gets all again.
func (s *canarySite) searchEvents() {
	t := s.t
	t.Helper()
	bob, carol, zoe := s.streams[0], s.streams[1], s.streams[2]
	<-zoe.ended
	// What tells of the fates themselves may come late. It comes before these messages.
	late := s.marks("the fates are over")
	bob.has(t, late...)
	s.hook.has(t, late...)
	open, hook, before := bob.size(), s.hook.size(), carol.size()
	carol.open(t, carol.first)
	away := newRawStream(t, s.as(1, "late"))
	s.replay()
	marks := s.marks("the end")
	for _, one := range []*heard{&bob.heard, &carol.heard, &away.heard, &s.hook.heard} {
		one.has(t, marks...)
	}
	eventually(t, "a webhook and a resumed stream get again what is kept", func() bool {
		again := s.text(kept, 0)
		return strings.Contains(carol.since(before), again) &&
			strings.Contains(s.hook.since(hook), again)
	}, func() string { return fmt.Sprint(carol.size()-before, " ", s.hook.size()-hook, " bytes") })
	s.none("an open stream", bob.since(open), s.zoe)
	// A session has events for as long as it can be resumed. One says that the user has left.
	s.none("a resumed stream", carol.since(before))
	s.none("the stream of a user who was away", away.since(0), s.zoe)
	s.none("a webhook", s.hook.since(hook), s.zoe)
}
