package limit

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// spareConnections is how many connections are accepted beyond ListenerConfig.Connections. Their
// clients get an answer that says why they are refused.
const spareConnections = 64

// ListenerConfig bounds the connections of a Listener.
type ListenerConfig struct {
	// Connections is how many connections are served at a time. Up to spareConnections more are
	// accepted and answered with a refusal (Full). Further ones wait until one ends. 0: no
	// bound.
	Connections int
	// PerAddress is how many connections one IPv4 address, or one /64 of IPv6, may have.
	// Further ones are closed at once. 0: no bound, which a server behind a proxy needs.
	PerAddress int
}

// Listener accepts a bounded number of connections. It is safe for concurrent use.
type Listener struct {
	*net.TCPListener
	cfg ListenerConfig

	mu sync.Mutex
	// room is signalled when a connection ends, and when the listener closes.
	room      sync.Cond
	closed    bool
	open      int
	byAddress map[netip.Prefix]int
}

// NewListener returns a Listener that accepts from l. Close closes l.
func NewListener(l *net.TCPListener, cfg ListenerConfig) *Listener {
	bounded := &Listener{TCPListener: l, cfg: cfg, byAddress: make(map[netip.Prefix]int)}
	bounded.room.L = &bounded.mu
	return bounded
}

// Accept implements net.Listener. It waits while there are too many connections.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.awaitRoom()
		tcp, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if c := l.admit(tcp); c != nil {
			return c, nil
		}
		_ = tcp.Close()
	}
}

// awaitRoom waits until one more connection may be accepted, or the listener is closed.
func (l *Listener) awaitRoom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cfg.Connections > 0 && l.open >= l.cfg.Connections+spareConnections && !l.closed {
		l.room.Wait()
	}
}

// admit counts a connection and returns it. It returns nil if its address has too many.
func (l *Listener) admit(tcp *net.TCPConn) *conn {
	c := &conn{TCPConn: tcp, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.PerAddress > 0 {
		c.from = network(tcp.RemoteAddr())
		if l.byAddress[c.from] >= l.cfg.PerAddress {
			return nil
		}
		l.byAddress[c.from]++
	}
	l.open++
	c.full = l.cfg.Connections > 0 && l.open > l.cfg.Connections
	return c
}

// network returns the addresses that count as one client: an IPv4 address, or a /64 of IPv6.
func network(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // fails only for a length that the address cannot have
	return p
}

func (l *Listener) ended(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.cfg.PerAddress > 0 {
		if l.byAddress[c.from]--; l.byAddress[c.from] == 0 {
			delete(l.byAddress, c.from)
		}
	}
	l.room.Signal()
}

// Close implements net.Listener. An Accept that waits returns an error.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.TCPListener.Close()
}

// conn is a connection that its listener counts. It embeds the concrete type, so that a read
// through it adds no stack frame.
type conn struct {
	*net.TCPConn
	listener *Listener
	from     netip.Prefix
	full     bool
	closed   atomic.Bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		defer c.listener.ended(c)
	}
	return c.TCPConn.Close()
}

// fullKey is the key of a context value. The value marks a request of a connection beyond the
// bound.
type fullKey struct{}

// ConnContext marks the contexts of connections beyond the bound, so that Full reports them. It is
// for http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if counted, ok := c.(*conn); ok && counted.full {
		return context.WithValue(ctx, fullKey{}, true)
	}
	return ctx
}

// Full reports whether a request came on a connection beyond the bound.
func Full(ctx context.Context) bool { return ctx.Value(fullKey{}) != nil }
