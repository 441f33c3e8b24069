package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// dev makes a call as the user bob.
func dev(ctx context.Context, method, url, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer dev:bob")
	return http.DefaultTransport.RoundTrip(request)
}

func status(t *testing.T, method, url, body string) int {
	t.Helper()
	response, err := dev(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// pollToTheEnd polls until an answer has no events, and returns this answer with its Retry-After.
func pollToTheEnd(ctx context.Context, api string) string {
	query := "wait_seconds=0"
	for {
		response, err := dev(ctx, "GET", api+"/poll?"+query, "")
		if err != nil {
			return err.Error()
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		var answer struct {
			Session string `json:"session_id"`
			Events  []struct{ ID int }
		}
		err = json.Unmarshal(body, &answer)
		if err != nil || response.StatusCode != http.StatusOK || len(answer.Events) == 0 {
			return fmt.Sprintf("%d Retry-After %q %s",
				response.StatusCode, response.Header.Get("Retry-After"), body)
		}
		query = fmt.Sprintf("wait_seconds=50&session_id=%s&after_event_id=%d",
			answer.Session, answer.Events[len(answer.Events)-1].ID)
	}
}

// TestDrain_is_told_to_balancers_first_and_then_to_clients checks the order of an orderly stop.
// First /readyz is red while everything still works. Then each client gets a time to come back.
// What was accepted is stored.
func TestDrain_is_told_to_balancers_first_and_then_to_clients(t *testing.T) {
	cleanEnvironment(t)
	ctx, stop := context.WithCancel(t.Context())
	var log logBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx,
			[]string{"serve", "--listen", "127.0.0.1:0", "--dev", "--store", "memory:",
				"--drain-delay", "10s"}, streams{out: &bytes.Buffer{}, err: &log})
	}()
	var url string
	poll(t, func() error {
		found := listening.FindStringSubmatch(log.String())
		if found == nil {
			return fmt.Errorf("no address in the log: %s", log.String())
		}
		url = found[1]
		return nil
	})
	api := url + "/api/v1"
	must(t, http.StatusCreated, "dev:bob", "POST", api+"/chats",
		`{"type":"group","chat_id":"c","member_ids":["ann"]}`)
	events, err := dev(t.Context(), "GET", api+"/events", "")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	polled := make(chan string, 1)
	go func() { polled <- pollToTheEnd(t.Context(), api) }()

	if got := status(t, "GET", url+"/healthz", ""); got != http.StatusOK {
		t.Errorf("/healthz: %d", got)
	}
	poll(t, func() error {
		values, _, _ := series(t, url+"/metrics")
		if got := values[`tidemark_connections{transport="longpoll"}`]; got != 1 {
			return fmt.Errorf("%v polls wait", got)
		}
		return nil
	})
	stop()
	poll(t, func() error {
		if got := status(t, "GET", url+"/readyz", ""); got != http.StatusServiceUnavailable {
			return fmt.Errorf("/readyz: %d", got)
		}
		return nil
	})
	got := status(t, "POST", api+"/chats/c/messages",
		`{"client_message_id":"late","content":"while it is red"}`)
	if got != http.StatusCreated {
		t.Errorf("a send while /readyz is red: %d", got)
	}
	if got := status(t, "GET", url+"/healthz", ""); got != http.StatusOK {
		t.Errorf("/healthz while /readyz is red: %d", got)
	}

	stream, err := io.ReadAll(events.Body)
	if err != nil {
		t.Errorf("the event stream broke off: %v", err)
	}
	if !strings.Contains(string(stream), "while it is red") {
		t.Errorf("the stream does not have the message: %s", stream)
	}
	var retry int
	lines := strings.Split(strings.TrimSpace(string(stream)), "\n")
	last := lines[len(lines)-1]
	if _, err := fmt.Sscanf(last, "retry: %d", &retry); err != nil || retry < 500 || retry > 4000 {
		t.Errorf("the stream ends with %q, want a time to come back", last)
	}
	answer := <-polled
	if !strings.HasPrefix(answer, "200 Retry-After ") ||
		strings.HasPrefix(answer, `200 Retry-After ""`) {
		t.Errorf("the poll was answered %s", answer)
	}
	select {
	case code := <-ended:
		if code != exitOK {
			t.Errorf("serve ended with %d:\n%s", code, log.String())
		}
	case <-time.After(2 * drainWithin):
		t.Fatal("serve did not end")
	}
}

func TestLimits_defaults(t *testing.T) {
	for files, want := range map[uint64]int{
		0: mostConnections, 1 << 40: mostConnections,
		20_000: 20_000 - reservedFiles, 300: 150, 1: 1,
	} {
		if got := connectionsFor(files); got != want {
			t.Errorf("with %d files %d connections, want %d", files, got, want)
		}
	}
	second, minute := time.Second, time.Minute
	for _, tt := range []struct {
		given limitFlags
		dev   bool
		delay time.Duration // negative: refused
	}{
		{limitFlags{}, false, drainDelay},
		{limitFlags{}, true, 0},
		{limitFlags{DrainDelay: &second}, true, second},
		{limitFlags{DrainDelay: &minute}, false, -1},
		{limitFlags{DrainDelay: &minute, DrainDeadline: 2 * minute}, false, minute},
		{limitFlags{DrainDeadline: time.Second}, false, 100 * time.Millisecond},
		{limitFlags{MaxConnections: -1}, false, -1},
		{limitFlags{MaxConnections: 1}, false, drainDelay},
		{limitFlags{MaxConnections: math.MaxInt}, false, -1}, // no system has so many files
	} {
		got, err := tt.given.withDefaults(tt.dev)
		refused := err != nil
		if refused != (tt.delay < 0) || !refused && *got.DrainDelay != tt.delay {
			t.Errorf("%+v, dev %v: %+v, %v", tt.given, tt.dev, got, err)
		}
	}
}

func TestHealthz_is_red_when_a_commit_never_ends(t *testing.T) {
	for d, alive := range map[time.Duration]bool{
		0: true, stuckAfter / 2: true, 2 * stuckAfter: false,
	} {
		if err := progress(func() time.Duration { return d })(); (err == nil) != alive {
			t.Errorf("a commit that has taken %v: %v", d, err)
		}
	}
	if progress(nil) != nil {
		t.Error("got a check for a store that does not report its commits")
	}
}

// hanging is a store with a disk that has stopped answering.
type hanging struct {
	storage.Store
	until chan struct{}
}

func (h hanging) Close() error {
	<-h.until
	return h.Store.Close()
}

// TestDrain_ends_though_the_disk_answers_nothing checks that the process ends 4/3 of its deadline
// after the signal, and not before.
func TestDrain_ends_though_the_disk_answers_nothing(t *testing.T) {
	limits, err := limitFlags{DrainDeadline: 300 * time.Millisecond}.withDefaults(true)
	if err != nil {
		t.Fatal(err)
	}
	store := hanging{Store: memory.New(), until: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	var log logBuffer
	ended, gaveUp := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- serve(ctx, options{
			listen:      "127.0.0.1:0",
			limits:      limits,
			credentials: auth.Config{Dev: true},
			giveUp:      func() { close(gaveUp) },
			open: func(context.Context) (openedStore, error) {
				return openedStore{Store: store}, nil
			},
		}, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	poll(t, func() error {
		if !listening.MatchString(log.String()) {
			return fmt.Errorf("no address in the log: %s", log.String())
		}
		return nil
	})
	began := time.Now()
	cancel()
	select {
	case <-gaveUp:
	case <-time.After(drainWithin):
		t.Error("it waits for the disk")
	}
	if waited := time.Since(began); waited < 400*time.Millisecond {
		t.Errorf("it gave up after %v, want at least 400 ms", waited)
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log has no error: %s", log.String())
	}
	close(store.until)
	if err := <-ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
}
