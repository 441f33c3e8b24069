package hook

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/webhook"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// start returns a hook that asks a receiver. The timeout is long, so that a slow machine changes
// nothing.
func start(t *testing.T, receiver http.HandlerFunc, change ...func(*Config)) *Hook {
	t.Helper()
	s := httptest.NewServer(receiver)
	t.Cleanup(s.Close)
	cfg := Config{
		URL: s.URL, Secrets: []string{secret}, Timeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func draft(content string) tidemark.Draft {
	return tidemark.Draft{
		ChatID: "c", SenderID: "ann", ClientMessageID: "k", Content: content,
		ContentType: "text/plain", Kind: tidemark.KindMessage, Metadata: json.RawMessage(`{"a":1}`),
	}
}

// answers answers each request with a status and a text.
func answers(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func TestReview_does_what_the_answer_says(t *testing.T) {
	for what, tt := range map[string]struct {
		result            string
		content, metadata string
		refused           tidemark.Code
		detail            string
	}{
		"allow":  {`{"action":"allow"}`, "hi", `{"a":1}`, "", ""},
		"refuse": {`{"action":"refuse","detail":"no"}`, "hi", `{"a":1}`, tidemark.Denied, "no"},
		"refuse at length": {
			`{"action":"refuse","detail":"` + strings.Repeat("ü", 501) + `"}`, "hi", `{"a":1}`,
			tidemark.Denied, strings.Repeat("ü", 500),
		},
		"replace": {
			`{"action":"replace","content":"**","metadata":{ "b": 2 }}`, "**", `{"b":2}`, "", "",
		},
		"replace the content": {
			`{"action":"replace","content":"**"}`, "**", `{"a":1}`, "", "",
		},
		"remove the metadata": {
			`{"action":"replace","content":"**","metadata":null}`, "**", "", "", "",
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := start(t, answers(200, `{"results":[`+tt.result+`]}`))
			got, refused := h.Review(t.Context(), []tidemark.Draft{draft("hi")})
			if got[0].Content != tt.content || string(got[0].Metadata) != tt.metadata {
				t.Errorf("got %q with %s, want %q with %s", got[0].Content, got[0].Metadata,
					tt.content, tt.metadata)
			}
			if tidemark.CodeOf(refused[0]) != tt.refused ||
				refused[0] != nil && tidemark.DetailOf(refused[0]) != tt.detail {
				t.Errorf("got the refusal %v, want %q %q", refused[0], tt.refused, tt.detail)
			}
		})
	}
}

func TestReview_asks_in_the_form_of_webhooks(t *testing.T) {
	var header http.Header
	var body []byte
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	edit := draft("ed\"it")
	edit.Kind, edit.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 7}
	_, refused := h.Review(t.Context(), []tidemark.Draft{draft("hi"), edit})
	if refused[0] != nil || refused[1] != nil {
		t.Fatalf("an answer without a body: %v, want nothing refused", refused)
	}
	var asked struct {
		ID   string
		Type string
		Data struct {
			Messages []struct {
				ChatID   string `json:"chat_id"`
				SenderID string `json:"sender_id"`
				Kind     string
				Content  string
				Relation *struct{ Sequence int }
			}
		}
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	m := asked.Data.Messages
	if asked.Type != "message.review" || len(m) != 2 || m[0].Content != "hi" ||
		m[1].Relation == nil || m[1].Relation.Sequence != 7 || m[1].Content != "ed\"it" {
		t.Errorf("asked %s", body)
	}
	signers, err := webhook.NewSigners([]string{secret})
	if err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{}
	signers.Sign(want, asked.ID, time.Unix(at, 0), body)
	for _, name := range []string{"webhook-id", "webhook-signature"} {
		if got := header.Get(name); got == "" || got != want.Get(name) {
			t.Errorf("%s is %q, want %q", name, got, want.Get(name))
		}
	}
}

// Whatever is no valid answer, the policy decides: open stores all messages of the request, and
// closed none.
func TestReview_asked_before_stored_without_an_answer(t *testing.T) {
	hangs := func(c *Config) { c.Timeout = time.Millisecond }
	for what, tt := range map[string]struct {
		receiver http.HandlerFunc
		change   func(*Config)
	}{
		"500":              {receiver: answers(500, `{"results":[{"action":"refuse"}]}`)},
		"a redirect":       {receiver: answers(307, "")},
		"no JSON":          {receiver: answers(200, "<html>")},
		"no body":          {receiver: answers(200, "")},
		"too few results":  {receiver: answers(200, `{"results":[]}`)},
		"too many results": {receiver: answers(200, `{"results":[{},{}]}`)},
		"another action":   {receiver: answers(200, `{"results":[{"action":"drop"}]}`)},
		"no action":        {receiver: answers(200, `{"results":[{}]}`)},
		"no content": {
			receiver: answers(200, `{"results":[{"action":"replace","content":""}]}`),
		},
		"metadata that are no object": {
			receiver: answers(200, `{"results":[{"action":"replace","metadata":[1]}]}`),
		},
		"too much content": {receiver: answers(200, `{"results":[{"action":"replace","content":"`+
			strings.Repeat("x", tidemark.MaxContent+1)+`"}]}`)},
		"a huge body": {receiver: answers(200, `{"results":[{"action":"allow"}],"x":"`+
			strings.Repeat("x", maxAnswer)+`"}`)},
		"a closed socket": {receiver: func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}},
		"no answer in time": {
			receiver: func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			},
			change: hangs,
		},
	} {
		for _, policy := range []struct {
			closed bool
			want   tidemark.Code
		}{{false, ""}, {true, tidemark.Unavailable}} {
			t.Run(what+", closed "+strconv.FormatBool(policy.closed), func(t *testing.T) {
				h := start(t, tt.receiver, func(c *Config) {
					c.Closed = policy.closed
					if tt.change != nil {
						tt.change(c)
					}
				})
				got, refused := h.Review(t.Context(), []tidemark.Draft{draft("hi")})
				if got[0].Content != "hi" || tidemark.CodeOf(refused[0]) != policy.want {
					t.Errorf("got %q and %v, want hi and %q", got[0].Content, refused[0],
						policy.want)
				}
				if n := h.Counters()["hook_messages_total{failed}"]; n != 1 {
					t.Errorf("%d failed messages are counted, want 1", n)
				}
			})
		}
	}
}

// A sender who has gone does not make the receiver look broken.
func TestReview_of_a_sender_who_has_gone(t *testing.T) {
	h := start(t, answers(200, `{"results":[{"action":"allow"}]}`))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	h.Review(gone, []tidemark.Draft{draft("hi")})
	if n := h.Counters()["hook_messages_total{allowed}"]; n != 1 {
		t.Errorf("%d allowed messages are counted, want 1", n)
	}
}

// Too many senders at a time do not make the receiver look broken.
func TestReview_while_too_many_wait(t *testing.T) {
	h := start(t, answers(200, `{"results":[{"action":"allow"}]}`))
	for range cap(h.waiting) {
		h.waiting <- struct{}{}
	}
	for range maxFailures {
		h.Review(t.Context(), []tidemark.Draft{draft("hi")})
	}
	<-h.waiting
	h.Review(t.Context(), []tidemark.Draft{draft("hi")})
	got := h.Counters()
	if got["hook_messages_total{failed}"] != maxFailures ||
		got["hook_messages_total{allowed}"] != 1 || got["hook_resting"] != 0 {
		t.Errorf("got %v, want %d failed messages, and then an allowed one", got, maxFailures)
	}
}

func TestReview_asks_about_a_hundred_at_a_time(t *testing.T) {
	var sizes []int
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Data struct{ Messages []json.RawMessage }
		}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		sizes = append(sizes, len(asked.Data.Messages))
		w.WriteHeader(http.StatusNoContent)
	})
	all := make([]tidemark.Draft, maxDrafts+1)
	got, refused := h.Review(t.Context(), all)
	if len(got) != len(all) || len(refused) != len(all) || len(sizes) != 2 || sizes[1] != 1 {
		t.Errorf("got %d drafts and %d errors by requests about %v", len(got), len(refused), sizes)
	}
}

func TestBreaker_rests_after_failures(t *testing.T) {
	var b breaker
	now := time.Now()
	for n := range maxFailures {
		if !b.admit(now) {
			t.Fatalf("refused after %d failures, want %d", n, maxFailures)
		}
		b.done(now, true)
	}
	for _, tt := range []struct {
		what  string
		after time.Duration
		admit bool
		fails bool
	}{
		{"at once", 0, false, false},
		{"after the rest, and it fails", restFor, true, true},
		{"at once after that", 0, false, false},
		{"after another rest, and it succeeds", restFor, true, false},
		{"afterwards", 0, true, false},
	} {
		now = now.Add(tt.after)
		if got := b.admit(now); got != tt.admit {
			t.Errorf("%s: admitted %v, want %v", tt.what, got, tt.admit)
		}
		if tt.admit {
			b.done(now, tt.fails)
		}
	}
}

func TestNew_refuses(t *testing.T) {
	for what, cfg := range map[string]Config{
		"no secret":      {URL: "https://hook.example.com/"},
		"a bad secret":   {URL: "https://hook.example.com/", Secrets: []string{"x"}},
		"no scheme":      {URL: "hook.example.com", Secrets: []string{secret}},
		"a user":         {URL: "https://a:b@hook.example.com/", Secrets: []string{secret}},
		"a fragment":     {URL: "https://hook.example.com/#x", Secrets: []string{secret}},
		"another scheme": {URL: "ftp://hook.example.com/", Secrets: []string{secret}},
	} {
		if _, err := New(cfg); tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("%s: %v, want Invalid", what, err)
		}
	}
}
