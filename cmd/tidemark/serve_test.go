package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/bench"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// listening matches the line of the log that has the server's URL, as text or JSON.
var listening = regexp.MustCompile(
	`"?msg"?[=:]"?listening"?,? ?"?url"?[=:]"?(http://127\.0\.0\.1:\d+)`)

// startServer runs serve in this process on a free port until the test ends, and returns its URL.
// The server must end with exit code 0.
func startServer(t *testing.T, args ...string) string {
	t.Helper()
	url, _ := startLogged(t, args...)
	return url
}

// startLogged is startServer that also returns the log.
func startLogged(t *testing.T, args ...string) (url string, log *logBuffer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out bytes.Buffer
	log = new(logBuffer)
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...),
			streams{out: &out, err: log})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case code := <-ended:
			if code != exitOK || out.Len() > 0 {
				t.Errorf("serve ended with %d, output %q, want 0 and none", code, out.String())
			}
		case <-time.After(2 * drainWithin):
			t.Error("serve did not end")
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", log.String())
		}
	})
	poll(t, func() error {
		select {
		case code := <-ended:
			ended <- code
			t.Fatalf("serve ended with %d:\n%s", code, log.String())
		default:
		}
		found := listening.FindStringSubmatch(log.String())
		if found == nil {
			return fmt.Errorf("no address in the log: %s", log.String())
		}
		url = found[1]
		return nil
	})
	poll(t, func() error {
		response, err := http.Get(url + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", response.Status)
		}
		return nil
	})
	return url, log
}

// poll calls f until it succeeds, for at most wait.Hang.
func poll(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.After(wait.Hang)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

// TestBench_every_mode_over_every_transport is also a test of serve.
// Everything sent must arrive once and in order, and the server must end cleanly.
func TestBench_every_mode_over_every_transport(t *testing.T) {
	cleanEnvironment(t)
	url := startServer(t, "--dev", "--store", "memory:")
	for _, mode := range []struct {
		name            string
		args            []string
		sent, delivered int64
		rest            bool
	}{
		{"p2p", []string{"--pairs", "5", "--messages", "300"}, 300, 300, true},
		{
			"group",
			[]string{"--members", "20", "--senders", "3", "--messages", "100"}, 100, 2000, true,
		},
		{"group", []string{"--members", "60", "--messages", "50"}, 50, 3000, false},
		{
			"group",
			[]string{"--members", "5", "--offline", "7", "--messages", "20"}, 20, 100, true,
		},
		{"idle", []string{"--connections", "50", "--duration", "50ms"}, 0, 0, false},
		{"catchup", []string{"--clients", "5", "--chats", "4", "--missed", "30"}, 0, 600, true},
	} {
		for _, transport := range []string{"websocket", "sse", "longpoll", "rest"} {
			if transport == "rest" && !mode.rest {
				continue
			}
			t.Run(mode.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				args := append([]string{
					"bench", mode.name, "--url", url, "--transport", transport, "--json",
				}, mode.args...)
				var out, stderr bytes.Buffer
				code := run(t.Context(), args, streams{out: &out, err: &stderr})
				if code != exitOK {
					t.Fatalf("exit %d: %s\n%s", code, stderr.String(), out.String())
				}
				var report bench.Report
				if err := json.Unmarshal(out.Bytes(), &report); err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				if report.Sent != mode.sent || report.Delivered != mode.delivered {
					t.Errorf("sent %d, delivered %d, want %d, %d",
						report.Sent, report.Delivered, mode.sent, mode.delivered)
				}
				if report.Problems == nil {
					t.Error("the problems are null, and not an empty list")
				}
				if y := report.Yardstick; y == nil || y.Start.Socket.Median <= 0 ||
					y.End.Socket.Median <= 0 || y.Start.Sync.Median <= 0 {
					t.Errorf("the yardstick is %+v, want it at the start and at the end", y)
				}
				if len(report.Counters) == 0 {
					t.Error("no counter of the server moved")
				}
			})
		}
	}
}

// TestBench_under_a_mixed_load runs the modes whose figures depend on time. Their devices leave and
// come back, and all must arrive once and in order.
func TestBench_under_a_mixed_load(t *testing.T) {
	cleanEnvironment(t)
	url := startServer(t, "--dev", "--store", "memory:")
	for _, args := range [][]string{
		{
			"mixed", "--pairs", "3", "--groups", "2", "--members", "6", "--rate", "200",
			"--each", "200ms", "--away", "50ms", "--sample", "50ms", "--messages", "300",
		},
		{
			"catchup", "--clients", "20", "--chats", "2", "--missed", "5", "--live-pairs", "3",
			"--rate", "100",
		},
	} {
		t.Run(args[0], func(t *testing.T) {
			var out, stderr bytes.Buffer
			code := run(t.Context(), slices.Concat([]string{"bench"}, args,
				[]string{"--url", url, "--json", "--pid", strconv.Itoa(os.Getpid())}),
				streams{out: &out, err: &stderr})
			var report bench.Report
			if err := json.Unmarshal(out.Bytes(), &report); err != nil || code != exitOK {
				t.Fatalf("exit %d, %v: %s\n%s", code, err, stderr.String(), out.String())
			}
			if args[0] != "mixed" {
				return
			}
			if report.Sent != 300 || report.Reconnects == 0 {
				t.Errorf("sent %d with %d reconnections, want 300 with some", report.Sent,
					report.Reconnects)
			}
			for _, f := range report.Figures {
				if strings.Contains(f.Name, "quarter") && f.Value <= 0 {
					t.Errorf("%s: %v", f.Name, f.Value)
				}
			}
		})
	}
}

func TestServe_with_a_secret_and_sqlite(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv(secretVariable, testSecret)
	url := startServer(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "a.db"))
	for token, want := range map[string]int{
		"dev:bob": http.StatusUnauthorized, signedFor(t, "bob"): http.StatusOK,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/v1/chats",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := transporttest.Checked(t, http.DefaultTransport).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("with the token %s: %d, want %d", token, response.StatusCode, want)
		}
	}
	var out, stderr bytes.Buffer
	args := []string{"bench", "p2p", "--url", url, "--pairs", "3", "--messages", "60"}
	if code := run(t.Context(), args, streams{out: &out, err: &stderr}); code != exitOK {
		t.Errorf("bench with signed tokens: exit %d: %s\n%s", code, stderr.String(), out.String())
	}
}

// TestServe_with_a_previous_secret: after a change of the secret, tokens of the old one and of the
// new one are valid.
func TestServe_with_a_previous_secret(t *testing.T) {
	const previous = "the secret of the year before, gone"
	cleanEnvironment(t)
	t.Setenv(secretVariable, testSecret)
	t.Setenv(previousVariable, previous)
	url := startServer(t, "--store", "memory:")
	for secret, want := range map[string]int{
		testSecret: http.StatusOK, previous: http.StatusOK,
		"a secret that this server never had": http.StatusUnauthorized,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/v1/chats",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+signedBy(t, secret, "bob"))
		response, err := transporttest.Checked(t, http.DefaultTransport).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a token of %q: %d, want %d", secret, response.StatusCode, want)
		}
	}
}

func signedFor(t *testing.T, user string) string {
	t.Helper()
	return signedBy(t, testSecret, user)
}

func signedBy(t *testing.T, secret, user string) string {
	t.Helper()
	signer := auth.Signer{Secret: []byte(secret)}
	token, err := signer.Sign(tidemark.UserID(user), "", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestServe_disk_failure_ends_the_process checks that a failed fsync ends the server.
// What is on the disk is unknown then (delivery.md §2).
func TestServe_disk_failure_ends_the_process(t *testing.T) {
	failed := make(chan struct{})
	var log logBuffer
	ended := make(chan error, 1)
	limits, err := limitFlags{}.withDefaults(true)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		open := func(context.Context) (openedStore, error) {
			return openedStore{Store: memory.New(), failed: failed}, nil
		}
		ended <- serve(context.Background(),
			options{listen: "127.0.0.1:0", open: open,
				credentials: auth.Config{Dev: true}, limits: limits},
			slog.New(slog.NewTextHandler(&log, nil)))
	}()
	poll(t, func() error {
		if !listening.MatchString(log.String()) {
			return fmt.Errorf("no address in the log: %s", log.String())
		}
		return nil
	})
	close(failed)
	select {
	case err := <-ended:
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Errorf("serve ended with %v, want an Unavailable error", err)
		}
	case <-time.After(drainWithin):
		t.Error("serve goes on after the disk failed")
	}
}

// TestServe_restore_is_noticed checks that the server begins anew, at the same address and with a
// new store, when its database has become another one.
func TestServe_restore_is_noticed(t *testing.T) {
	replaced := make(chan struct{})
	var opened atomic.Int32
	var log logBuffer
	ended := make(chan error, 1)
	limits, err := limitFlags{}.withDefaults(true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		open := func(context.Context) (openedStore, error) {
			if opened.Add(1) == 1 {
				return openedStore{Store: memory.New(), replaced: replaced}, nil
			}
			return openedStore{Store: memory.New()}, nil
		}
		ended <- serve(ctx,
			options{listen: "127.0.0.1:0", open: open,
				credentials: auth.Config{Dev: true}, limits: limits},
			slog.New(slog.NewTextHandler(&log, nil)))
	}()
	addresses := func(n int) []string {
		var found []string
		poll(t, func() error {
			if found = listening.FindAllString(log.String(), -1); len(found) < n {
				return fmt.Errorf("%d addresses in the log, want %d: %s", len(found), n,
					log.String())
			}
			return nil
		})
		return found
	}
	addresses(1)
	close(replaced)
	if found := addresses(2); found[0] != found[1] {
		t.Errorf("the server listened at %q, and then at %q", found[0], found[1])
	}
	if n := opened.Load(); n != 2 {
		t.Errorf("the store was opened %d times, want 2", n)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("serve ended with %v", err)
		}
	case <-time.After(drainWithin):
		t.Error("serve goes on after its context has ended")
	}
}

// TestServe_stop_while_the_server_begins checks that a stop is no error while the store is opened
// for the first time, while it is opened again, and while a server ends because its
// database was replaced.
func TestServe_stop_while_the_server_begins(t *testing.T) {
	limits, err := limitFlags{}.withDefaults(true)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no answer")
	for name, c := range map[string]struct {
		// stopsAt is the opening in which the stop is asked for; fails is what it answers.
		stopsAt int32
		fails   error
		want    error
	}{
		"in the first opening":     {stopsAt: 1, fails: context.Canceled},
		"in the next opening":      {stopsAt: 2, fails: context.Canceled},
		"as the database replaced": {stopsAt: 1},
		"the opening fails itself": {stopsAt: 1, fails: refused, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			replaced := make(chan struct{})
			close(replaced)
			var opened atomic.Int32
			open := func(context.Context) (openedStore, error) {
				if opened.Add(1) == c.stopsAt {
					defer stop()
					if c.fails != nil {
						return openedStore{}, fmt.Errorf("connect: %w", c.fails)
					}
				}
				return openedStore{Store: memory.New(), replaced: replaced}, nil
			}
			var log logBuffer
			if err := serve(ctx,
				options{listen: "127.0.0.1:0", open: open,
					credentials: auth.Config{Dev: true}, limits: limits},
				slog.New(slog.NewTextHandler(&log, nil))); !errors.Is(err, c.want) {
				t.Errorf("serve ended with %v, want %v:\n%s", err, c.want, log.String())
			}
			if n := opened.Load(); n != c.stopsAt {
				t.Errorf("the store was opened %d times, want %d", n, c.stopsAt)
			}
		})
	}
}

// TestBench_fails_when_a_message_is_lost runs bench through a proxy that drops one message of each
// event stream.
func TestBench_fails_when_a_message_is_lost(t *testing.T) {
	cleanEnvironment(t)
	behind, err := url.Parse(startServer(t, "--dev", "--store", "memory:"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(response *http.Response) error {
		if response.Header.Get("Content-Type") == "text/event-stream" {
			response.Body = swallow(response.Body, 7)
		}
		return nil
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	var out, stderr bytes.Buffer
	code := run(t.Context(),
		[]string{"bench", "p2p", "--url", front.URL, "--transport", "sse", "--pairs", "1",
			"--messages", "40", "--drain", "1s"},
		streams{out: &out, err: &stderr})
	if code != exitFailure {
		t.Errorf("exit %d, want %d", code, exitFailure)
	}
	for _, want := range []string{"1s after the last send", "before 7", "never got message 7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, out.String())
		}
	}
}

// swallow returns the stream without its n-th message.
func swallow(stream io.ReadCloser, n int) io.ReadCloser {
	r, w := io.Pipe()
	go func() { // ends when a side of the stream ends
		defer stream.Close()
		lines := bufio.NewScanner(stream)
		var block []byte
		for lines.Scan() {
			block = append(append(block, lines.Bytes()...), '\n')
			if len(lines.Bytes()) > 0 {
				continue
			}
			if bytes.Contains(block, []byte("event: message")) {
				n--
			}
			if n != 0 {
				if _, err := w.Write(block); err != nil {
					return
				}
			} else {
				n = -1
			}
			block = block[:0]
		}
		w.CloseWithError(io.EOF)
	}()
	return r
}

func TestServe_ends_with_its_streams_open(t *testing.T) {
	cleanEnvironment(t)
	var open []io.Closer
	t.Cleanup(func() { // registered first, so called when the server has ended
		for _, body := range open {
			body.Close()
		}
	})
	url := startServer(t, "--dev", "--store", "memory:")
	for _, path := range []string{"/events", "/poll?wait_seconds=50"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/v1"+path,
			nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer dev:bob")
		response, err := transporttest.Checked(t, http.DefaultTransport).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, response.Body)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, response.Status)
		}
	}
}
