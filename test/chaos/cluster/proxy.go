package cluster

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Proxy is a simple balancer: each connection goes to the next node in turn, for every client. It
// notices only by a refused connection that a node is gone, and then tries the next one.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	backends []string
	next     int
	// where is the backend of each client's address.
	where map[string]string
	open  map[net.Conn]bool
	// taken counts the connections of each backend so far.
	taken map[string]int
}

// NewProxy listens on a free port of the loopback interface, until Close.
func NewProxy(backends ...string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener: listener,
		backends: slices.Clone(backends),
		where:    map[string]string{},
		open:     map[net.Conn]bool{},
		taken:    map[string]int{},
	}
	p.running.Go(p.accept)
	return p, nil
}

// Address returns where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Where returns the backend of a connection, by the client's address.
func (p *Proxy) Where(client string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.where[client]
}

// Taken returns how many connections each backend has had.
func (p *Proxy) Taken() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := map[string]int{}
	for backend, n := range p.taken {
		taken[backend] = n
	}
	return taken
}

// Close cuts all connections and waits.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.running.Go(func() { p.serve(conn) })
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.keep(client, "")
	defer p.forget(client)
	for range len(p.backends) {
		backend := p.turn()
		conn, err := net.DialTimeout("tcp", backend, 300*time.Millisecond)
		if err != nil {
			continue
		}
		p.keep(client, backend)
		p.keep(conn, "")
		defer p.forget(conn)
		var there sync.WaitGroup
		there.Go(func() { flow(conn, client) })
		flow(client, conn)
		there.Wait()
		return
	}
}

// flow copies one direction and passes on its end: a connection may be closed on one side only.
func flow(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if tcp, ok := to.(*net.TCPConn); ok && err == nil && tcp.CloseWrite() == nil {
		return
	}
	_, _ = to.Close(), from.Close()
}

func (p *Proxy) turn() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	return p.backends[p.next%len(p.backends)]
}

// keep notes a connection and its backend.
func (p *Proxy) keep(conn net.Conn, backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	if backend != "" {
		p.where[conn.RemoteAddr().String()] = backend
		p.taken[backend]++
	}
}

func (p *Proxy) forget(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	delete(p.where, conn.RemoteAddr().String())
}
