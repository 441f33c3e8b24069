package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

// startNodes starts n nodes that share a Redis and a Postgres, and returns their URLs and logs.
func startNodes(
	t *testing.T, redisURL string, n int, args ...string,
) (urls []string, logs []*logBuffer) {
	t.Helper()
	cleanEnvironment(t)
	store := postgres.Shared(t).Database(t)
	for i := range n {
		url, log := startLogged(t,
			append([]string{"--dev", "--store", store, "--migrate", "--redis", redisURL, "--node",
				fmt.Sprint("n", i+1)}, args...)...)
		urls, logs = append(urls, url), append(logs, log)
	}
	return urls, logs
}

// answerOf makes a call as a user of a development server, and returns the status and the body.
func answerOf(t *testing.T, user, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer dev:"+user)
	response, err := http.DefaultTransport.RoundTrip(request)
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

// createTeam creates the chat team of ann and bob.
func createTeam(t *testing.T, url string) {
	t.Helper()
	must(t, http.StatusCreated, "dev:ann", "POST", url+"/api/v1/chats",
		`{"type":"group","chat_id":"team","member_ids":["bob"]}`)
}

// event is one event of a stream of Server-Sent Events.
type event struct{ id, kind, data string }

// listen opens a stream, and returns its events and the status of the answer.
// The channel is closed when the stream ends.
func listen(t *testing.T, url, lastID string) (events <-chan event, status int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		request.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan event, 1_000)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(read)
		var e event
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.kind = value
			case "data":
				e.data = value
			case "":
				if e.data != "" {
					read <- e
				}
				e = event{}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
		<-ended
	})
	return read, response.StatusCode
}

// await returns the next event of a kind.
func await(t *testing.T, events <-chan event, kind string) event {
	t.Helper()
	late := time.After(wait.Hang)
	for {
		select {
		case e, more := <-events:
			if !more {
				t.Fatalf("the stream ended before %s", kind)
			}
			if e.kind == kind {
				return e
			}
		case <-late:
			t.Fatalf("no %s came", kind)
		}
	}
}

// TestServe_nodes_share_messages_tickets_and_idempotency checks what users see of two nodes.
func TestServe_nodes_share_messages_tickets_and_idempotency(t *testing.T) {
	urls, _ := startNodes(t, redis.Database(t), 2)
	first, second := urls[0]+"/api/v1", urls[1]+"/api/v1"
	createTeam(t, urls[0])

	// A ticket of one node opens one session on the other. The ticket can also resume this session.
	_, body := answerOf(t, "bob", "POST", first+"/tickets", "")
	var made struct{ Ticket string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.Ticket == "" {
		t.Fatalf("a ticket: %s", body)
	}
	stream := second + "/events?device_id=d1&ticket=" + made.Ticket
	events, code := listen(t, stream, "")
	if code != http.StatusOK {
		t.Fatalf("a ticket of the other node: %d", code)
	}
	await(t, events, "session")
	last := await(t, events, "caught_up")
	for _, url := range []string{first, second} {
		_, code := listen(t, url+"/events?device_id=d2&ticket="+made.Ticket, "")
		if code != http.StatusUnauthorized {
			t.Errorf("a second session with the ticket on %s: %d", url, code)
		}
	}

	// A message that is sent on one node reaches a stream on the other.
	answerOf(t, "ann", "POST", first+"/chats/team/messages",
		`{"client_message_id":"m1","content":"hello"}`)
	if e := await(t, events, "message"); !strings.Contains(e.data, `"hello"`) {
		t.Errorf("the message is %s", e.data)
	}
	again, code := listen(t, stream, last.id)
	if code != http.StatusOK {
		t.Fatalf("resuming with the ticket: %d", code)
	}
	if e := await(t, again, "session"); !strings.Contains(e.data, `"resumed":true`) {
		t.Errorf("resuming with the ticket: %s", e.data)
	}

	raceOneSend(t, first, second)
}

// TestServe_a_user_has_one_rate_on_all_nodes checks that in the long run a user of two nodes gets
// no higher rate than a user of one.
func TestServe_a_user_has_one_rate_on_all_nodes(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv(secretVariable, testSecret)
	args := []string{
		"--migrate", "--store", postgres.Shared(t).Database(t), "--redis", redis.Database(t),
	}
	urls := []string{startServer(t, args...), startServer(t, args...)}
	code, token, problem := invokeToken(t)
	if code != exitOK {
		t.Fatal(problem)
	}
	// A call for an unknown chat counts like any other.
	call := func(url string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			url+"/api/v1/chats/nowhere/messages",
			strings.NewReader(`{"client_message_id":"x","content":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	// rate calls both nodes for at least d, and returns how many calls they accepted per second.
	// It goes on with a node until that refuses. A machine that cannot make as many calls as a user
	// may is refused nothing, so that is bounded too.
	rate := func(d time.Duration) float64 {
		n, began := 0, time.Now()
		for time.Since(began) < d {
			for _, url := range urls {
				for call(url).StatusCode == http.StatusNotFound &&
					time.Since(began) < wait.Hang {
					n++
				}
			}
		}
		return float64(n) / time.Since(began).Seconds()
	}
	const perSecond, most = 50, 85
	// If each node limited alone, two would accept twice as many calls on a fast machine.
	// First use up the bursts, and wait until the nodes know each other.
	for n := 0; rate(time.Second) > most; n++ {
		if n == 20 {
			t.Fatalf("two nodes accepted more than %d calls in each of %d s", most, n)
		}
	}
	if got := rate(5 * time.Second); got > most {
		t.Errorf("two nodes let %.0f calls a second through, want about %d at most", got, perSecond)
	}
}

// invokeToken runs the command token for the user ann.
func invokeToken(t *testing.T) (code int, token, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), []string{"token", "--user", "ann"}, streams{out: &out, err: &err})
	return code, strings.TrimSpace(out.String()), err.String()
}

// raceOneSend sends the same messages to two nodes at the same moment.
// Each message must be stored once, and all answers to it must be the same.
func raceOneSend(t *testing.T, urls ...string) {
	t.Helper()
	for i := range 30 {
		bodies := make([]string, 2*len(urls))
		codes := make([]int, len(bodies))
		var racing sync.WaitGroup
		for k := range bodies {
			racing.Go(func() {
				codes[k], bodies[k] = answerOf(t, "ann", "POST",
					urls[k%len(urls)]+"/chats/team/messages",
					fmt.Sprintf(`{"client_message_id":"race-%d","content":"x"}`, i))
			})
		}
		racing.Wait()
		created := 0
		for k := range bodies {
			if codes[k] == http.StatusCreated {
				created++
			} else if codes[k] != http.StatusOK {
				t.Errorf("send %d: %d %s", i, codes[k], bodies[k])
			}
			if bodies[k] != bodies[0] {
				t.Errorf("send %d: one node says %s, another %s", i, bodies[0], bodies[k])
			}
		}
		var message struct{ Sequence int }
		err := json.Unmarshal([]byte(bodies[0]), &message)
		if err != nil || created != 1 || message.Sequence != i+2 {
			t.Errorf("send %d: %d were answered 201, and its sequence is %d, want 1 and %d",
				i, created, message.Sequence, i+2)
		}
	}
}

func TestServe_refuses_a_Redis_that_is_none(t *testing.T) {
	const shared = "postgres://127.0.0.1:1/none"
	for _, tt := range []struct {
		name  string
		args  []string
		usage bool
		want  string
	}{
		{
			"in memory",
			[]string{"--store", "memory:", "--redis", "redis://u:SECRET@h"}, true,
			"Postgres or DynamoDB",
		},
		{
			"SQLite",
			[]string{"--store", "sqlite:", "--redis", "redis://u:SECRET@h"}, true,
			"Postgres or DynamoDB",
		},
		{
			"another scheme",
			[]string{"--store", shared, "--redis", "http://u:SECRET@h"}, true, "no scheme of Redis",
		},
		{"no host", []string{"--store", shared, "--redis", "redis://u:SECRET@"}, true, "host:port"},
		{
			"sentinels without a master",
			[]string{"--store", shared, "--redis", "redis+sentinel://u:SECRET@h:1"}, true,
			"the name of their master",
		},
		{"no value", []string{"--store", shared, "--redis"}, true, "--redis"},
		{"in the wrong place", []string{"--store", shared, "redis://u:SECRET@h"}, true, "redis:…"},
		{
			"a bad name",
			[]string{"--store", shared, "--redis", "redis://h", "--node", "a b"}, true, "--node",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, _, stderr := invoke(t, nil, append([]string{"serve", "--dev"}, tt.args...)...)
			want := map[bool]int{true: exitUsage, false: exitFailure}[tt.usage]
			if code != want || !strings.Contains(stderr, tt.want) {
				t.Errorf("%d, %s; want %d and %q", code, stderr, want, tt.want)
			}
			if strings.Contains(stderr, "SECRET") {
				t.Errorf("the password is shown: %s", stderr)
			}
		})
	}
}

// TestServe_refuses_a_Redis_that_refuses_it checks that the start fails if Redis refuses the node.
// Only a change of the configuration helps then. Tests in test/ check faults that pass.
func TestServe_refuses_a_Redis_that_refuses_it(t *testing.T) {
	cleanEnvironment(t)
	server := redis.Start(t, "requirepass SECRET")
	store := postgres.Shared(t).Database(t)
	bare := strings.TrimSuffix(server.URL(), "/0")
	for name, url := range map[string]string{
		"no password":    "redis://" + server.Address(),
		"another one":    "redis://:OTHERSECRET@" + server.Address(),
		"no cluster":     strings.Replace(server.URL(), "redis://", "redis+cluster://", 1),
		"no sentinel":    strings.Replace(bare, "redis://", "redis+sentinel://", 1) + "/master",
		"no such number": bare + "/99999",
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := invoke(t, nil, "serve", "--dev", "--migrate", "--listen",
				"127.0.0.1:0", "--store", store, "--redis", url)
			if code == exitOK || !strings.Contains(stderr, server.Address()) ||
				strings.Contains(stderr, "SECRET") {
				t.Errorf("%d, %s", code, stderr)
			}
		})
	}
}

// readiness returns the answer of /readyz.
func readiness(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url + "/readyz")
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

// TestServe_without_Redis_serves_what_it_can checks nodes that cannot reach Redis.
// Such a node logs an error, and stores and delivers what is sent to it.
// It joins the other nodes when Redis is there. A node that loses Redis does the same.
func TestServe_without_Redis_serves_what_it_can(t *testing.T) {
	server := redis.Start(t, "requirepass SECRET")
	server.Kill(t)
	urls, logs := startNodes(t, server.URL(), 2)
	says := func(url, want string) {
		t.Helper()
		poll(t, func() error {
			status, body := readiness(t, url)
			if status != http.StatusOK || !strings.Contains(body, want) {
				return fmt.Errorf("/readyz: %d %s, want %s", status, body, want)
			}
			return nil
		})
	}
	sends := func(name string) {
		t.Helper()
		for _, url := range urls {
			events, status := listen(t, url+"/api/v1/events?ticket=dev:bob&device_id="+name, "")
			if status != http.StatusOK {
				t.Fatalf("%s: a stream: %d", name, status)
			}
			await(t, events, "caught_up")
			message := fmt.Sprintf(`{"client_message_id":"%s-%s","content":"%s"}`,
				name, url[len(url)-5:], name)
			code, body := answerOf(t, "ann", "POST", url+"/api/v1/chats/team/messages", message)
			if code != http.StatusCreated {
				t.Errorf("%s: %d %s", name, code, body)
			}
			if e := await(t, events, "message"); !strings.Contains(e.data, name) {
				t.Errorf("%s: %s", name, e.data)
			}
		}
	}
	for i, url := range urls {
		says(url, `"status":"degraded"`)
		if !strings.Contains(logs[i].String(), "level=ERROR") ||
			!strings.Contains(logs[i].String(), "Redis cannot be reached") ||
			strings.Contains(logs[i].String(), "SECRET") {
			t.Errorf("the log says: %s", logs[i])
		}
	}
	createTeam(t, urls[0])
	sends("before")
	code, body := answerOf(t, "bob", "POST", urls[0]+"/api/v1/tickets", "")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "Redis cannot be reached") {
		t.Errorf("a ticket: %d %s", code, body)
	}

	server.Run(t)
	for _, url := range urls {
		says(url,
			`{"status":"ok","dependencies":{"store":{"status":"ok"},"redis":{"status":"ok"}}}`)
	}
	sends("with")
	server.Kill(t)
	for _, url := range urls {
		says(url, `"status":"degraded"`)
	}
	sends("after")
}

// TestMetrics_of_several_nodes_are_what_is_documented checks the metrics that only a node of a
// cluster has.
func TestMetrics_of_several_nodes_are_what_is_documented(t *testing.T) {
	urls, _ := startNodes(t, redis.Database(t), 2)
	want := make(map[string]bool)
	for _, name := range documentedForSeveral(t) {
		want[name] = true
	}
	if len(want) < 10 {
		t.Fatalf("docs/observability.md has %d metrics of several nodes", len(want))
	}
	delete(want, "tidemark_rates_unpublished_total") // in development there are no rates
	createTeam(t, urls[0])
	events, _ := listen(t, urls[1]+"/api/v1/events?ticket=dev:bob&device_id=d1", "")
	open := await(t, events, "session")
	last := await(t, events, "caught_up")
	answerOf(t, "ann", "POST", urls[0]+"/api/v1/chats/team/messages",
		`{"client_message_id":"m1","content":"hello"}`)
	await(t, events, "message")
	moved, _ := listen(t, urls[0]+"/api/v1/events?ticket=dev:bob&device_id=d1", last.id)
	if e := await(t, moved, "session"); !strings.Contains(e.data, `"resumed":true`) {
		t.Fatalf("the session %s did not move: %s", open.data, e.data)
	}
	least := map[string]float64{
		"tidemark_nodes": 2, "tidemark_redis_round_trips_total": 5,
		`tidemark_transfers_total{step="taken"}`: 1, "tidemark_transfer_seconds_total": 1e-6,
		"tidemark_bus_events_total": 2, "tidemark_bus_publications_total": 2,
		"tidemark_bus_published_bytes_total": 50, "tidemark_bus_received_total": 1,
		"tidemark_bus_lag_seconds": 1e-6,
	}
	poll(t, func() error {
		values, types, _ := series(t, urls[0]+"/metrics")
		for name, n := range least {
			if values[name] < n {
				return fmt.Errorf("%s is %v, want at least %v", name, values[name], n)
			}
		}
		for name := range want {
			if types[name] == "" {
				return fmt.Errorf("%s is not there", name)
			}
		}
		if values["tidemark_degraded"] != 0 || values["tidemark_transfer_seconds_total"] > 1 {
			return fmt.Errorf("degraded %v, transfers took %v s",
				values["tidemark_degraded"], values["tidemark_transfer_seconds_total"])
		}
		return nil
	})
}
