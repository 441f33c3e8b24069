package cluster

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/tidemark-im/tidemark/test/services/ports"
	"github.com/tidemark-im/tidemark/test/wait"
)

// Link is a node's connection to a service, through toxiproxy.
//
// A toxic is never removed from open connections. If one end is gone, toxiproxy waits five seconds
// for each of up to a thousand buffered pieces, and blocks all other connections meanwhile. So the
// delay exists from the beginning and only changes. Cuts and resets end with all connections.
type Link struct {
	service string
	held    sync.Mutex // by Hold

	mu    sync.Mutex // guards the fields below
	proxy *toxiproxy.Proxy
	added int
}

// NewLink forwards a free port of the loopback interface to a service, until Close.
func NewLink(service string) (*Link, error) {
	l := &Link{service: service}
	address, err := ports.FreeAddress()
	if err == nil {
		err = l.open(address)
	}
	return l, err
}

// open starts a proxy without delay and without other toxics.
func (l *Link) open(listen string) error {
	l.proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil),
		zerolog.Nop()), "link", listen, l.service)
	l.added = 0
	const delay = `{"name":"delay","type":"latency","stream":"downstream",` +
		`"attributes":{"latency":0}}`
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(delay)); err != nil {
		return err
	}
	return l.proxy.Start()
}

// Address returns where the link listens.
func (l *Link) Address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proxy.Listen
}

// Port returns the port of Address.
func (l *Link) Port() int {
	_, text, _ := net.SplitHostPort(l.Address())
	port, _ := strconv.Atoi(text)
	return port
}

// Hold waits until no other fault uses the link, and reserves it for the caller until release.
func (l *Link) Hold() (release func()) {
	l.held.Lock()
	return l.held.Unlock
}

// Delay delays what flows from the service, by a quarter more or less each time, until the next
// call. Connections stay open.
func (l *Link) Delay(by time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.proxy.Toxics.UpdateToxicJson("delay",
		strings.NewReader(fmt.Sprintf(`{"attributes":{"latency":%d,"jitter":%d}}`,
			by.Milliseconds(), by.Milliseconds()/4)))
	return err
}

// Reset resets all connections as soon as the service sends anything, until Heal.
func (l *Link) Reset() error { return l.add("reset_peer", "downstream") }

// Cut silently blocks all data, until Heal.
func (l *Link) Cut(d Direction) error {
	for _, chain := range d.chains() {
		stream := map[string]string{"up": "upstream", "down": "downstream"}[chain]
		if err := l.add("timeout", stream); err != nil {
			return err
		}
	}
	return nil
}

func (l *Link) add(kind, stream string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.added++
	toxic := fmt.Sprintf(`{"name":"%s%d","type":%q,"stream":%q,"attributes":{"timeout":0}}`,
		kind, l.added, kind, stream)
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	return err
}

// Heal ends a cut or resets. It closes all connections.
func (l *Link) Heal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxy.Stop()
	// Another program that looks for a free port may have it for a moment.
	var err error
	wait.Poll(func() (int, bool) {
		err = l.open(l.proxy.Listen)
		return 0, !errors.Is(err, syscall.EADDRINUSE)
	})
	return err
}

// Close ends the link and cuts its connections.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxy.Stop()
}
