package webhook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// TestDeliver_name_that_changes_its_address: the address counts that a name has at the connect, not
// the one that it had before.
func TestDeliver_name_that_changes_its_address(t *testing.T) {
	r := listen(t, nil, func(_ context.Context, _ int64, c net.Conn) {
		if readRequest(bufio.NewReader(c)) {
			io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		}
	})
	_, port, err := net.SplitHostPort(r.address)
	if err != nil {
		t.Fatal(err)
	}
	names := newNames(t)
	names.set("127.0.0.1")
	o := r.outlet(t, func(c *Config) {
		c.URL, c.Resolver = "https://hook.test:"+port, names.resolver
		c.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	if n, refused := o.Deliver(t.Context(), events(1)); n != 1 {
		t.Fatalf("got %d, %+v", n, refused)
	}
	for _, address := range []string{
		"127.0.0.2", "10.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "192.0.0.8",
	} {
		names.set(address)
		n, refused := o.Deliver(t.Context(), events(1))
		if n != 0 || refused == nil || !strings.Contains(refused.Detail, "not public") {
			t.Errorf("%s: got %d, %+v", address, n, refused)
		}
	}
	if names.asked.Load() < 7 || r.opened.Load() != 1 {
		t.Errorf("%d questions about names, and %d connections", names.asked.Load(),
			r.opened.Load())
	}
	names.set("127.0.0.1")
	if n, refused := o.Deliver(t.Context(), events(1)); n != 1 {
		t.Errorf("got %d, %+v", n, refused)
	}
}

// names is a DNS server on which all names have one address.
type names struct {
	resolver *net.Resolver
	address  atomic.Pointer[[4]byte]
	asked    atomic.Int64
}

func (n *names) set(address string) {
	bytes := netip.MustParseAddr(address).As4()
	n.address.Store(&bytes)
}

func newNames(t *testing.T) *names {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", c.LocalAddr().String())
		},
	}}
	var running sync.WaitGroup
	running.Go(func() {
		packet := make([]byte, 512)
		for {
			size, from, err := c.ReadFrom(packet)
			if err != nil {
				return // It is closed.
			}
			answer, err := n.answer(packet[:size])
			if err != nil {
				t.Errorf("a question about a name cannot be read: %v", err)
				continue
			}
			c.WriteTo(answer, from)
		}
	})
	t.Cleanup(func() {
		c.Close()
		running.Wait()
	})
	return n
}

func (n *names) answer(packet []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("%d questions: %w", len(m.Questions), err)
	}
	m.Response, m.Additionals = true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		n.asked.Add(1)
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: *n.address.Load()},
		}}
	}
	return m.Pack()
}
