package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// hook is the receiver of a webhook. It verifies what it gets by the published library, refuses
// some deliveries, and loses some answers.
type hook struct {
	url string

	mu sync.Mutex
	// moods is how often it still refuses a delivery or loses an answer. It does so to one in 20.
	moods int
	// verify is nil until the secret is known.
	verify *standardwebhooks.Webhook
	// upTo is up to which message of each chat it has accepted all.
	upTo     map[string]int64
	accepted int
	// repeated is how many of the accepted were repetitions. seen has the id of each message, and
	// the bytes of its event.
	repeated int
	seen     map[string][2]string
	faults   []string
}

// newHook starts a receiver, which ends with the test.
func newHook(t *testing.T) *hook {
	h := &hook{upTo: map[string]int64{}, seen: map[string][2]string{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// ServeHTTP implements http.Handler.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // The server was killed.
	}
	mood := h.mood()
	switch {
	case mood && rand.IntN(2) == 0:
		http.Error(w, "not now", http.StatusInternalServerError)
	case !h.take(r.Header, body):
		http.Error(w, "the signature is wrong", http.StatusBadRequest)
	case mood:
		panic(http.ErrAbortHandler) // The answer is lost.
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// mood reports whether something goes wrong with a delivery.
func (h *hook) mood() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.moods == 0 || rand.IntN(20) != 0 {
		return false
	}
	h.moods--
	return true
}

// take accepts a delivery of one event, and notes what is wrong with it.
func (h *hook) take(header http.Header, body []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.verify == nil {
		return false
	}
	if err := h.verify.Verify(body, header); err != nil {
		h.faults = append(h.faults, err.Error())
		return false
	}
	var event struct {
		ID, Type string
		Data     struct {
			ChatID   string `json:"chat_id"`
			Sequence int64
		}
	}
	if err := json.Unmarshal(body, &event); err != nil || event.ID != header.Get("Webhook-Id") {
		h.faults = append(h.faults, fmt.Sprintf("%v in %s", err, body))
	}
	h.accepted++
	if event.Type != "message.persisted" {
		return true
	}
	name, this := fmt.Sprint(event.Data.ChatID, " ", event.Data.Sequence),
		[2]string{event.ID, string(body)}
	if before, again := h.seen[name]; again {
		h.repeated++
		if before != this {
			h.faults = append(h.faults, fmt.Sprintf("%s came as %s, and again as %s", name, before,
				this))
		}
	}
	h.seen[name] = this
	switch chat, next := event.Data.ChatID, h.upTo[event.Data.ChatID]+1; {
	case event.Data.Sequence == next:
		h.upTo[chat] = next
	case event.Data.Sequence > next:
		h.faults = append(h.faults, fmt.Sprintf("message %d of %s came before message %d",
			event.Data.Sequence, chat, next))
	}
	return true
}

// has reports whether all of these messages were accepted.
func (h *hook) has(confirmed map[string]int64) (missing string, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, sequence := range confirmed {
		chat, _, _ := strings.Cut(id, "-m")
		if h.upTo[chat] < sequence {
			return fmt.Sprintf("%s is %d, and %s is told up to %d", id, sequence, chat,
				h.upTo[chat]), false
		}
	}
	return "", true
}

// outletOf is an outlet as the API has it.
type outletOf struct {
	ID      string `json:"outlet_id"`
	State   string
	Secret  string
	Waiting int `json:"waiting_chats"`
}

// create creates an outlet of the receiver, and tells the receiver the secret.
func (h *hook) create(t *testing.T, operator user, body map[string]any) outletOf {
	t.Helper()
	body["type"], body["url"] = "webhook", h.url
	var made outletOf
	operator.call(t, http.MethodPost, "/admin/outlets", body, &made)
	verify, err := standardwebhooks.NewWebhook(made.Secret)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.verify = verify
	return made
}

// outletWithin is how long an outlet may take for what follows a death: the others wait for 15 s.
const outletWithin = 5 * time.Minute

// eventually is until with the time that outlets need.
func eventually(t *testing.T, what string, check func() bool, seen func() string) {
	t.Helper()
	for end := time.Now().Add(outletWithin); !check(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s; now: %s", outletWithin, what, seen())
		}
	}
}

// TestOutlets_told_or_owed_after_kills kills nodes with SIGKILL under load, one after the other,
// TIDEMARK_OUTLET_KILLS times. A webhook whose receiver refuses some deliveries gets each confirmed
// message all the same, for the first time after all earlier ones of its chat. A repetition has the
// same id and the same bytes.
func TestOutlets_told_or_owed_after_kills(t *testing.T) {
	t.Parallel()
	binary := build(t)
	for name, of := range map[string]struct{ nodes, kills int }{
		"sqlite": {1, 2}, "postgres": {2, 10}, "dynamodb": {2, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := of.nodes
			key, file := apiKey(t, binary, "--scope", "admin")
			// The other node takes over after a second, so that many kills fit into a run.
			flags := []string{"--dev", "--api-keys-file", file, "--worker-timeout", "3s"}
			url := map[string]func() string{
				"sqlite":   func() string { return "" },
				"postgres": func() string { return postgres.Shared(t).Database(t) },
				"dynamodb": func() string { return dynamodb.Shared(t).Store(t) },
			}[name]()
			if nodes > 1 {
				flags = append(flags, "--redis", redis.Database(t))
			}
			var all []*process
			for n := range nodes {
				p := processOf(t, binary)
				p.url, p.flags = url, flags
				if nodes > 1 {
					p.flags = append(p.flags[:len(flags):len(flags)], "--node", fmt.Sprint("n", n))
				}
				p.start()
				all = append(all, p)
			}
			h := newHook(t)
			h.moods = 12 // Each one costs its chat five seconds.
			operator := user{name: "operator", url: "http://" + all[0].address, token: key}
			w := writePersistently(t, all[0], 5)
			h.create(t, operator, map[string]any{"outlet_id": "crm", "begin": "start"})
			for kill := range fromEnvironment(t, "TIDEMARK_OUTLET_KILLS", of.kills) {
				before := w.size()
				told := func() int {
					h.mu.Lock()
					defer h.mu.Unlock()
					return h.accepted
				}
				seen := told()
				eventually(t, "messages are sent and told",
					func() bool { return w.size() >= before+50 && told() >= seen+20 },
					func() string { return fmt.Sprint(w.size(), " sent, ", told(), " told") })
				p := all[kill%nodes]
				if err := p.process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = p.wait()
				p.start()
			}
			w.check()
			confirmed, _ := w.confirmed.copy()
			missing := ""
			eventually(t, "each confirmed message is told", func() (all bool) {
				missing, all = h.has(confirmed)
				return all
			}, func() string { return missing })
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, fault := range h.faults {
				t.Error(fault)
			}
			t.Logf("%d messages confirmed, %d events accepted, %d of them again", len(confirmed),
				h.accepted, h.repeated)
		})
	}
}

// TestOutlets_of_the_guide runs the commands of docs/webhooks.md against the program.
func TestOutlets_of_the_guide(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	key, file := apiKey(t, p.binary, "--scope", "admin")
	topics := kfake.MustCluster(kfake.SeedTopics(24, "tidemark.messages", "tidemark.state"))
	t.Cleanup(topics.Close)
	p.flags = []string{
		"--dev", "--api-keys-file", file,
		"--kafka", "kafka://" + strings.Join(topics.ListenAddrs(), ","),
	}
	p.start()
	h := newHook(t)
	operator := user{name: "operator", url: "http://" + p.address, token: key}
	alice := as(p.address, "alice")
	alice.call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "c", "member_ids": []string{"bob"}}, nil)
	page := guide(t, "webhooks.md")
	run := func(block string) string {
		t.Helper()
		command := exec.Command("sh", "-ec", block)
		command.Env = append(environment(), "KEY="+key, "URL="+h.url,
			"API=http://"+p.address+"/api/v1")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	commands := shellBlocks(page)
	if len(commands) != 4 {
		t.Fatalf("the guide has %d commands, want 4", len(commands))
	}
	var made outletOf
	if err := json.Unmarshal([]byte(run(commands[0])), &made); err != nil || made.ID != "crm" {
		t.Fatalf("the outlet is %+v, %v", made, err)
	}
	verify, err := standardwebhooks.NewWebhook(made.Secret)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.verify = verify
	h.mu.Unlock()
	eventually(t, "the outlet is active", func() bool {
		operator.call(t, http.MethodGet, "/admin/outlets/crm", nil, &made)
		return made.State == "active"
	}, func() string { return made.State })
	if got := run(commands[1]); !strings.Contains(got, `"accepted":true`) {
		t.Errorf("a test event: %s", got)
	}
	told := func(n int64) func() bool {
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.upTo["c"] == n
		}
	}
	for n := range 3 {
		alice.send(t, "c", fmt.Sprint("m", n))
	}
	nothing := func() string { return "they are not" }
	eventually(t, "3 messages are told", told(3), nothing)
	h.mu.Lock()
	h.upTo["c"] = 0
	h.mu.Unlock()
	run(commands[2])
	eventually(t, "they are told again", told(3), nothing)
	h.mu.Lock()
	for _, fault := range h.faults {
		t.Error(fault)
	}
	h.mu.Unlock()
	made = outletOf{}
	if err := json.Unmarshal([]byte(run(commands[3])), &made); err != nil || made.Secret != "" {
		t.Fatalf("the outlet is %+v, %v", made, err)
	}
	eventually(t, "the outlet of Kafka is active", func() bool {
		operator.call(t, http.MethodGet, "/admin/outlets/log", nil, &made)
		return made.State == "active"
	}, func() string { return made.State })
	alice.send(t, "c", "to Kafka")
	got := recordOf(t, topics, "4")
	if string(got.Key) != "c" || !strings.Contains(string(got.Value), `"to Kafka"`) {
		t.Errorf("the record is %s: %s", got.Key, got.Value)
	}
}

// recordOf waits for the message with a sequence in Kafka.
func recordOf(t *testing.T, topics *kfake.Cluster, sequence string) *kgo.Record {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(topics.ListenAddrs()...),
		kgo.ConsumeTopics("tidemark.messages"), kgo.DisableClientMetrics(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), outletWithin)
	defer cancel()
	for ctx.Err() == nil {
		for _, r := range reader.PollFetches(ctx).Records() {
			for _, header := range r.Headers {
				if header.Key == "sequence" && string(header.Value) == sequence {
					return r
				}
			}
		}
	}
	t.Fatalf("message %s does not come", sequence)
	return nil
}
