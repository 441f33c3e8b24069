package redis_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// mute is a proxy that can stop forwarding what the server sends, while the connections stay open.
type mute struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	pairs []*pair
}

type pair struct {
	client, server net.Conn
	mu             sync.Mutex
	silent         bool
}

func newMute(t *testing.T, to string) *mute {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mute{listener: listener}
	m.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			p := &pair{client: client, server: server}
			m.mu.Lock()
			m.pairs = append(m.pairs, p)
			m.mu.Unlock()
			m.running.Go(func() { _, _ = io.Copy(server, client); server.Close() })
			m.running.Go(func() { _, _ = io.Copy(p, server); client.Close() })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		m.mu.Lock()
		for _, p := range m.pairs {
			p.client.Close()
			p.server.Close()
		}
		m.mu.Unlock()
		m.running.Wait()
	})
	return m
}

func (m *mute) address() string { return m.listener.Addr().String() }

// mute stops the present connections.
func (m *mute) mute() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pairs {
		p.mu.Lock()
		p.silent = true
		p.mu.Unlock()
	}
}

// Write forwards what the server sends.
func (p *pair) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		return len(b), nil
	}
	return p.client.Write(b)
}
