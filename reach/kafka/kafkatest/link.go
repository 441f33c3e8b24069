package kafkatest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Mode is what a Link does.
type Mode int

// The modes of a link.
const (
	// Up passes everything.
	Up Mode = iota
	// Down refuses connects, and has cut the connections.
	Down
	// Silent swallows what the client sends.
	Silent
)

// Link connects a client to brokers, and can fail. It is safe for concurrent use.
type Link struct {
	mu   sync.Mutex
	mode Mode
	// lose is how many answers to produce requests are still lost: the broker has done what was
	// asked, and the connection ends.
	lose int
	// lost, cut and swallowed are how many answers, connections and requests were.
	lost, cut, swallowed int
	// produced is how many produce requests there were.
	produced int
	// delay passes before each produce request.
	delay time.Duration
	open  map[*conn]struct{}
	// Dialer connects, nil for the usual way.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// Set changes the mode.
func (l *Link) Set(m Mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	if m == Down {
		for c := range l.open {
			_ = c.Conn.Close() // It is cut.
			l.cut++
		}
	}
}

// Lose loses the answers to the next n produce requests.
func (l *Link) Lose(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = n
}

// Faults returns how many answers were lost, connections cut and requests swallowed.
func (l *Link) Faults() (lost, cut, swallowed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost, l.cut, l.swallowed
}

// Produced returns how many produce requests there were.
func (l *Link) Produced() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.produced
}

// Delay lets a time pass before each produce request.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Dial is for Cluster.Dial.
func (l *Link) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	mode := l.mode
	l.mu.Unlock()
	if mode == Down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errDown}
	}
	dial := l.Dialer
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	plain, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: plain, link: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*conn]struct{}{}
	}
	l.open[c] = struct{}{}
	return c, nil
}

// errDown is why a link that is down connects nothing.
var errDown = &net.AddrError{Err: "connection refused by the test"}

// conn is a connection over a link.
type conn struct {
	net.Conn
	link *Link
}

// Write sends a request. The client writes each one at once.
func (c *conn) Write(b []byte) (int, error) {
	produces := len(b) >= 6 && binary.BigEndian.Uint16(b[4:6]) == uint16(kmsg.Produce)
	c.link.mu.Lock()
	mode, delay, loses := c.link.mode, c.link.delay, produces && c.link.lose > 0
	if produces {
		c.link.produced++
	}
	if loses {
		c.link.lose--
		c.link.lost++
	}
	if mode == Silent {
		c.link.swallowed++
	}
	c.link.mu.Unlock()
	if mode == Silent {
		return len(b), nil
	}
	if produces && delay > 0 {
		<-time.After(delay)
	}
	n, err := c.Conn.Write(b)
	if err != nil || !loses {
		return n, err
	}
	// The first byte of the answer shows that the broker has done what was asked.
	if _, err := io.ReadFull(c.Conn, make([]byte, 1)); err != nil {
		return n, err
	}
	return n, c.Close()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.open, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
