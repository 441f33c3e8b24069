package limit_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// serveBounded starts a server on a bounded listener and returns its address. The server answers
// true if the connection is beyond the bound, and false otherwise.
func serveBounded(t *testing.T, cfg limit.ListenerConfig) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		ConnContext: limit.ConnContext,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, limit.Full(r.Context()))
		}),
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(limit.NewListener(l, cfg)) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})
	return l.Addr().String()
}

// ask sends a request on a connection and returns the last line of the answer. It returns "" if no
// answer comes within the time.
func ask(t *testing.T, conn net.Conn, within time.Duration) string {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(within))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	b := make([]byte, 1000)
	n, err := conn.Read(b)
	if err != nil {
		return ""
	}
	end := n
	for end > 0 && b[end-1] != '\n' {
		end--
	}
	return string(b[end:n])
}

// askOnce sends a request on a connection of its own.
func askOnce(t *testing.T, address string) string {
	conn := connect(t, address)
	defer conn.Close()
	return ask(t, conn, time.Second)
}

func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestListener_connections_beyond_the_bound_are_refused_and_then_wait(t *testing.T) {
	const bound, spare = 3, 64
	address := serveBounded(t, limit.ListenerConfig{Connections: bound})
	var held []net.Conn
	for i := range bound + spare {
		conn := connect(t, address)
		held = append(held, conn)
		if got, want := ask(t, conn, wait.Hang), fmt.Sprint(i >= bound); got != want {
			t.Fatalf("connection %d is beyond the bound: %q, want %q", i+1, got, want)
		}
	}
	waits := connect(t, address)
	if got := ask(t, waits, 100*time.Millisecond); got != "" {
		t.Errorf("a connection beyond what is spared was answered: %q", got)
	}
	for _, conn := range held {
		_ = conn.Close()
	}
	if got := ask(t, waits, wait.Hang); got != "true" && got != "false" {
		t.Errorf("it is not served when there is room: %q", got)
	}
	deadline := time.Now().Add(wait.Hang)
	for askOnce(t, address) != "false" {
		if time.Now().After(deadline) {
			t.Fatal("connections that have ended are still counted")
		}
	}
}

func TestListener_connections_of_one_address_are_bounded(t *testing.T) {
	address := serveBounded(t, limit.ListenerConfig{PerAddress: 2})
	first, second := connect(t, address), connect(t, address)
	for _, conn := range []net.Conn{first, second} {
		if got := ask(t, conn, wait.Hang); got != "false" {
			t.Fatalf("within the bound: %q", got)
		}
	}
	if got := ask(t, connect(t, address), wait.Hang); got != "" {
		t.Errorf("the third of an address was answered: %q", got)
	}
	_ = first.Close()
	deadline := time.Now().Add(wait.Hang)
	for askOnce(t, address) != "false" {
		if time.Now().After(deadline) {
			t.Fatal("an address does not get its place back")
		}
	}
}
