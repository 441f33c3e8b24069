package stats_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/stats"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a node whose figures can be watched.
type watched struct {
	t    *testing.T
	http *httptest.Server
	key  string
	// file is the file of API keys, which is read every five seconds.
	file string
	// sends and reads count what the node has sent, and how often somebody asked.
	sends, reads atomic.Int64
}

func watch(t *testing.T, change ...func(*stats.Config)) *watched {
	t.Helper()
	reg := registrymemory.New()
	store := memory.New()
	core, err := server.New(server.Config{
		Storage: store, Registry: reg, Nodes: reg, Bus: local.New(),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = core.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, file: filepath.Join(t.TempDir(), "keys")}
	secret, line, err := auth.NewAPIKey("operator", auth.ScopeStats)
	if err == nil {
		err = os.WriteFile(w.file, []byte(line), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.key = secret
	keys, err := auth.LoadAPIKeys(w.file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	reading, stop := context.WithCancel(context.Background())
	read := make(chan struct{})
	go func() {
		defer close(read)
		keys.Run(reading)
	}()
	cfg := stats.Config{
		Server: core, Auth: auth.New(auth.Config{APIKeys: keys}), Every: 10 * time.Millisecond,
		Counters: []func() map[string]int64{func() map[string]int64 {
			w.reads.Add(1)
			return map[string]int64{"sends_total": w.sends.Load()}
		}},
	}
	for _, f := range change {
		f(&cfg)
	}
	adapter := stats.New(cfg)
	e := echo.New()
	e.GET("/stats", adapter.Handle)
	w.http = httptest.NewUnstartedServer(e)
	transporttest.SmallSendBuffers(w.http.Config)
	w.http.Start()
	t.Cleanup(func() {
		w.http.CloseClientConnections()
		w.http.Close()
		stop()
		<-read
		if err := core.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})
	return w
}

// get asks for figures.
func (w *watched) get(accept ...string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(wait.Context(w.t), http.MethodGet, w.http.URL+"/stats",
		nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + w.key}, "Accept": accept}
	res, err := w.http.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// unwatched waits until nobody has asked for figures for a time.
func (w *watched) unwatched(quiet time.Duration) {
	w.t.Helper()
	last, since := w.reads.Load(), time.Now()
	transporttest.Eventually(w.t, "nobody asks for figures", func() bool {
		if now := w.reads.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > quiet
	})
}

// event is an event of the stream, and the parts of its data that tests look at.
type event struct {
	name string
	Code string
	Sums struct {
		Sends int64 `json:"sends_total"`
	} `json:"totals"`
	Rates *struct {
		Sends float64 `json:"sends_per_second"`
	} `json:"rates_1s"`
}

// next returns the next event, or false if the stream has ended.
func next(t *testing.T, from *bufio.Reader) (e event, more bool) {
	t.Helper()
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return e, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			e.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				t.Fatal(err)
			}
		case "":
			return e, true
		}
	}
}

func TestAccept_says_whether_it_is_a_stream(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                     false,
		"*/*":                                  false,
		"application/json":                     false,
		"text/event-stream":                    true,
		"application/json, text/event-stream":  true,
		"Text/Event-Stream; q=0.5":             true,
		"text/event-stream;q=0.0, */*":         false,
		"text/event-stream;q=0":                false,
		"application/json;x=text/event-stream": false,
	} {
		r := &http.Request{Header: http.Header{"Accept": {accept}}}
		if got := stats.Streams(r); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

// The first event comes at once, and one each time after that. Rates need a past.
func TestStream_events_have_rates(t *testing.T) {
	w := watch(t)
	w.sends.Store(7)
	from := bufio.NewReader(w.get("text/event-stream").Body)
	first, _ := next(t, from)
	if first.name != "stats" || first.Sums.Sends != 7 || first.Rates != nil {
		t.Fatalf("the first event is %+v", first)
	}
	if quiet, _ := next(t, from); quiet.Rates == nil || quiet.Rates.Sends != 0 {
		t.Fatalf("the second event is %+v", quiet)
	}
	w.sends.Add(5)
	for {
		e, more := next(t, from)
		if !more {
			t.Fatal("the stream has ended")
		}
		if e.Sums.Sends == 12 {
			// It was 5 in about 10 ms, or in much less after a pause of the machine.
			if e.Rates.Sends <= 0 || math.IsInf(e.Rates.Sends, 0) {
				t.Errorf("%v sends a second", e.Rates.Sends)
			}
			break
		}
	}
}

// A stream ends with its client, and nobody counts for it any more.
func TestStream_ends_with_its_client(t *testing.T) {
	w := watch(t)
	res := w.get("text/event-stream")
	next(t, bufio.NewReader(res.Body))
	_ = res.Body.Close()
	w.unwatched(50 * time.Millisecond)
}

// A client that reads nothing is dropped, and nothing is queued for it meanwhile.
func TestStream_bounded_use_of_a_client_that_does_not_read(t *testing.T) {
	w := watch(t, func(c *stats.Config) {
		c.Every, c.WriteTimeout = time.Millisecond, 200*time.Millisecond
	})
	conn, err := transporttest.SmallReceiveBuffers().DialContext(t.Context(), "tcp",
		strings.TrimPrefix(w.http.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /stats HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
		w.key+"\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	transporttest.Eventually(t, "the stream has begun", func() bool { return w.reads.Load() > 0 })
	w.unwatched(300 * time.Millisecond)
	_ = conn.(*net.TCPConn).SetReadDeadline(time.Now().Add(wait.Hang))
	if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
		t.Error("the connection is still open")
	}
}

// A node serves a bounded number of streams. One that ends makes room.
func TestStream_bounded_use_of_streams(t *testing.T) {
	w := watch(t)
	var last *http.Response
	for range stats.MaxStreams {
		last = w.get("text/event-stream")
		next(t, bufio.NewReader(last.Body))
	}
	if more := w.get("text/event-stream"); more.StatusCode == http.StatusOK {
		t.Errorf("one more is answered %d", more.StatusCode)
	}
	_ = last.Body.Close()
	transporttest.Eventually(t, "there is room again", func() bool {
		res := w.get("text/event-stream")
		_, more := next(t, bufio.NewReader(res.Body))
		return res.StatusCode == http.StatusOK && more
	})
}

// The stream of a key that is withdrawn ends, and says so.
func TestStream_credentials_end(t *testing.T) {
	w := watch(t)
	from := bufio.NewReader(w.get("text/event-stream").Body)
	next(t, from)
	if err := os.WriteFile(w.file, []byte("# no key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var last event
	for e, more := next(t, from); more; e, more = next(t, from) {
		last = e
	}
	if last.name != "problem" || last.Code != "UNAUTHENTICATED" {
		t.Errorf("the stream ended with %+v", last)
	}
}
