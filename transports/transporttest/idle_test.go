package transporttest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
)

// idleConnections is how many connections a benchmark holds. Each one needs two descriptors of this
// process.
const idleConnections = 8_000

// The benchmarks of idle connections measure the memory of a connection and its session. It is the
// growth of the process's resident memory after a collection, per connection. The clients are bare
// sockets, which need only kernel memory, so the growth is the server's.
//
// Run one at a time (-bench Idle_sse -benchtime 1x). The runtime reuses the descriptors of ended
// goroutines, about 1 KiB a connection, so a second benchmark in a process measures too little.

func BenchmarkIdle_websocket(b *testing.B) { measureIdle(b, "websocket") }

func BenchmarkIdle_sse(b *testing.B) { measureIdle(b, "sse") }

func BenchmarkIdle_longpoll(b *testing.B) { measureIdle(b, "longpoll") }

// idleRequests has the first lines of the requests that open a connection, by transport.
var idleRequests = map[string]string{
	"websocket": "GET %s/ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
	"sse":      "GET %s/events HTTP/1.1\r\n",
	"longpoll": "GET %s/poll?wait_seconds=50&session_id=%s&after_event_id=%d HTTP/1.1\r\n",
}

// idleOpener returns a function that opens the connection of a numbered user. It returns when the
// server has nothing more to do for it.
func idleOpener(tb testing.TB, s *Stack, name string) (open func(i int)) {
	tb.Helper()
	base, err := url.Parse(s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	port, err := strconv.Atoi(base.Port())
	if err != nil {
		tb.Fatal(err)
	}
	var sockets []int
	tb.Cleanup(func() {
		for _, fd := range sockets {
			_ = syscall.Close(fd)
		}
	})
	buffer := make([]byte, 4<<10)
	return func(i int) {
		user := tidemark.UserID(fmt.Sprintf("user-%d", i))
		head := fmt.Sprintf("Host: %s\r\nAuthorization: Bearer dev:%s\r\n\r\n", base.Host, user)
		arguments := []any{base.Path}
		if name == "longpoll" {
			at := firstPoll(tb, s, user)
			arguments = append(arguments, at.Session, at.After)
		}
		first := fmt.Sprintf(idleRequests[name], arguments...)
		fd := connect(tb, port, first+head)
		if name != "longpoll" {
			awaitOpen(tb, fd, buffer)
		}
		sockets = append(sockets, fd)
	}
}

// TestIdle_connection_has_one_goroutine: each goroutine is 2.5 KiB, a third of a connection.
func TestIdle_connection_has_one_goroutine(t *testing.T) {
	for _, name := range []string{"websocket", "sse"} {
		t.Run(name, func(t *testing.T) {
			s := New(t, Options{})
			open := idleOpener(t, s, name)
			for i := range 5 { // some goroutines begin here and stay
				open(i)
			}
			const more = 100
			before := runtime.NumGoroutine()
			for i := range more {
				open(5 + i)
			}
			// Up to signal's bound, those that wrote are kept for the next ones. One after the
			// other, they are one or two.
			wait.For(t, "one goroutine for each connection", func() (int, bool) {
				n := runtime.NumGoroutine() - before
				return n, n >= more && n < more+more/4
			})
		})
	}
}

func measureIdle(b *testing.B, name string) {
	b.Helper()
	s := New(b, Options{})
	open := idleOpener(b, s, name)
	for i := range 200 { // one-time allocations happen here
		open(i)
	}
	before := usage()
	start := time.Now()
	for i := 200; i < idleConnections; i++ {
		open(i)
	}
	Eventually(b, "all are connected", func() bool {
		n := s.WebSocket.Connections() + s.SSE.Connections() + s.LongPoll.Connections()
		return n == idleConnections
	})
	elapsed := time.Since(start)
	after := usage()
	per := func(a, b uint64) float64 { return float64(int64(a)-int64(b)) / (idleConnections - 200) }
	b.ReportMetric(per(after.rss, before.rss), "rss-B/conn")
	b.ReportMetric(per(after.heap, before.heap), "heap-B/conn")
	b.ReportMetric(per(after.stack, before.stack), "stack-B/conn")
	b.ReportMetric(per(after.objects, before.objects), "objects/conn")
	b.ReportMetric(float64(elapsed.Microseconds())/(idleConnections-200), "open-µs/conn")
	b.ReportMetric(0, "ns/op")
}

// firstPoll opens a session and returns its position.
func firstPoll(tb testing.TB, s *Stack, user tidemark.UserID) Position {
	tb.Helper()
	page, err := Poll(context.Background(), tb, s, user, url.Values{"wait_seconds": {"0"}})
	if err != nil {
		tb.Fatalf("polling: %v", err)
	}
	return Position{Session: page.Session, After: page.Events[len(page.Events)-1].ID}
}

type memoryUse struct{ rss, heap, stack, objects uint64 }

// usage returns the memory use of the process after two collections.
func usage() memoryUse {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return memoryUse{}
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		return memoryUse{}
	}
	return memoryUse{
		rss:     pages * uint64(os.Getpagesize()),
		heap:    m.HeapAlloc,
		stack:   m.StackInuse,
		objects: m.HeapObjects,
	}
}

// connect opens a bare socket and sends a request.
func connect(tb testing.TB, port int, request string) int {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatalf("a socket: %v", err)
	}
	to := &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	if err := syscall.Connect(fd, to); err != nil {
		tb.Fatalf("connecting: %v", err)
	}
	if _, err := syscall.Write(fd, []byte(request)); err != nil {
		tb.Fatalf("sending: %v", err)
	}
	return fd
}

// awaitOpen reads until caught_up. After that the server is idle.
func awaitOpen(tb testing.TB, fd int, buffer []byte) {
	tb.Helper()
	got := ""
	for !strings.Contains(got, "caught_up") {
		n, err := syscall.Read(fd, buffer)
		if err != nil || n == 0 {
			tb.Fatalf("reading: %d, %v, after %q", n, err, got)
		}
		got += string(buffer[:n])
	}
}
