package stream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe returns a writer and the client's end of its connection, which has no buffer.
func pipe(t *testing.T, timeout time.Duration) (*Writer, net.Conn) {
	t.Helper()
	server, client := net.Pipe()
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	w := new(Writer)
	w.Init(server, new(Pool), timeout)
	return w, client
}

func TestWriter_many_goroutines_lose_and_mix_nothing(t *testing.T) {
	w, client := pipe(t, time.Second)
	const goroutines, each = 8, 200
	var writing sync.WaitGroup
	for g := range goroutines {
		writing.Go(func() {
			for range each {
				_ = w.Append([]byte{'a' + byte(g)}, []byte("text"), []byte{'\n'})
				if err := w.Flush(); err != nil {
					t.Errorf("flushing: %v", err)
				}
			}
		})
	}
	go func() {
		writing.Wait()
		_ = w.Drain()
		w.Close()
	}()
	got, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, line := range strings.Fields(string(got)) {
		counts[line]++
	}
	if len(counts) != goroutines {
		t.Fatalf("got the lines %v", counts)
	}
	for line, n := range counts {
		if n != each {
			t.Errorf("%q came %d times, want %d", line, n, each)
		}
	}
}

// TestWriter_takes_along_what_others_append: during a write other goroutines do not block, and all
// that they append becomes one write.
func TestWriter_takes_along_what_others_append(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &recorder{release: make(chan struct{})}
		var w Writer
		w.Init(conn, new(Pool), time.Second)
		_, _ = w.Write([]byte("1"))
		done := make(chan error)
		go func() { done <- w.Flush() }()
		synctest.Wait()
		for _, p := range []string{"2", "3", "4"} {
			_, _ = w.Write([]byte(p))
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		close(conn.release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(conn.writes, " "); got != "1 234" {
			t.Errorf("the writes are %q, want 1 and 234", got)
		}
	})
}

func TestWriter_wait_bounds_what_waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &recorder{release: make(chan struct{})}
		var w Writer
		w.Init(conn, new(Pool), time.Hour)
		page := bytes.Repeat([]byte("x"), highWater)
		var produced int
		go func() {
			for w.Wait() == nil {
				_, _ = w.Write(page)
				produced++
				go func() { _ = w.Flush() }()
			}
		}()
		synctest.Wait()
		if produced > 2 {
			t.Errorf("%d pages were appended while the first is being written, want 2 at most",
				produced)
		}
		go w.Close()
		synctest.Wait() // Close waits for the write
		close(conn.release)
	})
}

// TestWriter_wait_writes_itself: nobody else may be there to make room.
func TestWriter_wait_writes_itself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &recorder{release: make(chan struct{})}
		close(conn.release)
		var w Writer
		w.Init(conn, new(Pool), time.Hour)
		_, _ = w.Write(bytes.Repeat([]byte("x"), highWater-1))
		_ = w.Wait()
		if len(conn.writes) > 0 {
			t.Errorf("Wait wrote %d bytes, which leave room", len(conn.writes[0]))
		}
		_, _ = w.Write([]byte("x"))
		if err := w.Wait(); err != nil || len(conn.writes) != 1 {
			t.Errorf("Wait without room returned %v after %d writes", err, len(conn.writes))
		}
		w.Close()
	})
}

func TestWriter_slow_client_is_not_cut_and_one_that_does_not_read_is(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		server, client := net.Pipe()
		var w Writer
		w.Init(server, new(Pool), timeout)
		text := bytes.Repeat([]byte("x"), 100)
		_, _ = w.Write(text)
		done := make(chan error, 1)
		go func() { done <- w.Flush() }()
		b := make([]byte, 1)
		for range len(text) / 2 { // a byte every 9 s, 450 s in all
			time.Sleep(timeout - time.Second)
			if _, err := client.Read(b); err != nil {
				t.Fatalf("the slow client was cut: %v", err)
			}
		}
		start := time.Now() // from here on the client reads nothing
		err := <-done
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("flushing to a client that does not read: %v", err)
		}
		if elapsed := time.Since(start); elapsed > 2*timeout {
			t.Errorf("the client that does not read was cut after %v", elapsed)
		}
		if _, err := client.Read(b); err != io.EOF {
			t.Errorf("the connection is not closed: %v", err)
		}
		if _, err := w.Write(text); err == nil {
			t.Error("a writer whose connection failed takes more")
		}
	})
}

func TestWriter_close_before_init_refuses(t *testing.T) {
	var w Writer
	w.Close()
	conn := &recorder{}
	w.Init(conn, new(Pool), time.Second)
	if _, err := w.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing: %v", err)
	}
	if err := w.Drain(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("draining: %v", err)
	}
}

func TestHead_values_add_no_lines(t *testing.T) {
	h := http.Header{"X-Echo": {"a\r\nSet-Cookie: evil=1\r\n\r\n"}}
	got := string(AppendHead(nil, http.StatusOK, h))
	if strings.Contains(got, "\nSet-Cookie") || strings.Count(got, "\r\n\r\n") != 1 {
		t.Errorf("the head is %q", got)
	}
	if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\nDate: ") ||
		!strings.Contains(got, "\r\nConnection: close\r\n") {
		t.Errorf("the head is %q", got)
	}
}

// recorder is a connection that keeps its writes. If release is not nil, a write waits for it.
type recorder struct {
	release chan struct{}
	writes  []string
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.release != nil {
		<-r.release
	}
	r.writes = append(r.writes, string(p))
	return len(p), nil
}

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func (r *recorder) Close() error { return nil }
