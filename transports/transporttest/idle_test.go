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

func BenchmarkIdle_websocket(b *testing.B) {
	measureIdle(b, "websocket",
		"GET %s/ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
}

func BenchmarkIdle_sse(b *testing.B) { measureIdle(b, "sse", "GET %s/events HTTP/1.1\r\n") }

func BenchmarkIdle_longpoll(b *testing.B) {
	measureIdle(b, "longpoll",
		"GET %s/poll?wait_seconds=50&session_id=%s&after_event_id=%d HTTP/1.1\r\n")
}

func measureIdle(b *testing.B, name, request string) {
	b.Helper()
	s := New(b, Options{})
	base, err := url.Parse(s.URL)
	if err != nil {
		b.Fatal(err)
	}
	port, err := strconv.Atoi(base.Port())
	if err != nil {
		b.Fatal(err)
	}
	sockets := make([]int, 0, idleConnections)
	defer func() {
		for _, fd := range sockets {
			_ = syscall.Close(fd)
		}
	}()
	buffer := make([]byte, 4<<10)
	open := func(i int) {
		user := tidemark.UserID(fmt.Sprintf("user-%d", i))
		head := fmt.Sprintf("Host: %s\r\nAuthorization: Bearer dev:%s\r\n\r\n", base.Host, user)
		arguments := []any{base.Path}
		if name == "longpoll" {
			at := firstPoll(b, s, user)
			arguments = append(arguments, at.Session, at.After)
		}
		first := fmt.Sprintf(request, arguments...)
		fd := connect(b, port, first+head)
		if name != "longpoll" {
			awaitOpen(b, fd, buffer)
		}
		sockets = append(sockets, fd)
	}
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
func firstPoll(b *testing.B, s *Stack, user tidemark.UserID) Position {
	b.Helper()
	page, err := Poll(context.Background(), b, s, user, url.Values{"wait_seconds": {"0"}})
	if err != nil {
		b.Fatalf("polling: %v", err)
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
func connect(b *testing.B, port int, request string) int {
	b.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatalf("a socket: %v", err)
	}
	to := &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	if err := syscall.Connect(fd, to); err != nil {
		b.Fatalf("connecting: %v", err)
	}
	if _, err := syscall.Write(fd, []byte(request)); err != nil {
		b.Fatalf("sending: %v", err)
	}
	return fd
}

// awaitOpen reads until caught_up. After that the server is idle.
func awaitOpen(b *testing.B, fd int, buffer []byte) {
	b.Helper()
	got := ""
	for !strings.Contains(got, "caught_up") {
		n, err := syscall.Read(fd, buffer)
		if err != nil || n == 0 {
			b.Fatalf("reading: %d, %v, after %q", n, err, got)
		}
		got += string(buffer[:n])
	}
}
