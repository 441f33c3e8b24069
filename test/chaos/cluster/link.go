package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Link is the way of one node to a service, with toxiproxy on it.
type Link struct {
	proxy *toxiproxy.Proxy

	mu    sync.Mutex // guards what follows
	names []string
	added int
}

// NewLink leads from a free port of the loopback interface to a service, until Close.
func NewLink(service string) (*Link, error) {
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "link", "127.0.0.1:0", service)
	if err := proxy.Start(); err != nil {
		return nil, err
	}
	return &Link{proxy: proxy}, nil
}

// Address is where it begins, and Port the port of it.
func (l *Link) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Port())) }

// Port is the port of Address.
func (l *Link) Port() int {
	_, text, _ := net.SplitHostPort(l.proxy.Listen)
	port, _ := strconv.Atoi(text)
	return port
}

// Add adds a toxic, for what flows to the service (upstream) or from it (downstream), until Heal.
func (l *Link) Add(kind, stream, attributes string) error {
	l.mu.Lock()
	l.added++
	name := fmt.Sprint(kind, l.added)
	l.names = append(l.names, name)
	l.mu.Unlock()
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{%s}}`, name, kind, stream, attributes)))
	return err
}

// Cut lets nothing through, without a word, until Heal.
func (l *Link) Cut(d Direction) error {
	for _, chain := range d.chains() {
		if err := l.Add("timeout", map[string]string{"up": "upstream", "down": "downstream"}[chain], `"timeout":0`); err != nil {
			return err
		}
	}
	return nil
}

// Heal takes every toxic away. A connection that a cut was on is closed.
func (l *Link) Heal(ctx context.Context) error {
	l.mu.Lock()
	names := l.names
	l.names = nil
	l.mu.Unlock()
	for _, name := range names {
		if err := l.proxy.Toxics.RemoveToxic(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Close ends it and cuts its connections.
func (l *Link) Close() { l.proxy.Stop() }
