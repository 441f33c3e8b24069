package cluster

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Link is the way of one node to a service, with toxiproxy on it.
//
// A toxic is never taken from connections that stand: where one end is gone, toxiproxy waits five seconds for each of up to a thousand pieces that it holds, and nobody
// comes through meanwhile. So the delay is there from the beginning, and is changed; what cuts or resets goes with all connections.
type Link struct {
	service string
	held    sync.Mutex // by Hold

	mu    sync.Mutex // guards what follows
	proxy *toxiproxy.Proxy
	added int
}

// NewLink leads from a free port of the loopback interface to a service, until Close.
func NewLink(service string) (*Link, error) {
	l := &Link{service: service}
	if err := l.open("127.0.0.1:0"); err != nil {
		return nil, err
	}
	return l, nil
}

// open begins anew, with no delay and nothing added.
func (l *Link) open(listen string) error {
	l.proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil),
		zerolog.Nop()), "link", listen, l.service)
	l.added = 0
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"delay","type":"latency","stream":"downstream","attributes":{"latency":0}}`)); err != nil {
		return err
	}
	return l.proxy.Start()
}

// Address is where it begins, and Port the port of it.
func (l *Link) Address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proxy.Listen
}

// Port is the port of Address.
func (l *Link) Port() int {
	_, text, _ := net.SplitHostPort(l.Address())
	port, _ := strconv.Atoi(text)
	return port
}

// Hold waits until no other fault of the link is under way, which is the caller's then until release.
func (l *Link) Hold() (release func()) {
	l.held.Lock()
	return l.held.Unlock
}

// Delay delays what flows from the service, by a quarter more or less each time, until it is called again. Connections stand.
func (l *Link) Delay(by time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.proxy.Toxics.UpdateToxicJson("delay",
		strings.NewReader(fmt.Sprintf(`{"attributes":{"latency":%d,"jitter":%d}}`,
			by.Milliseconds(), by.Milliseconds()/4)))
	return err
}

// Reset resets all connections as soon as anything flows from the service, until Heal.
func (l *Link) Reset() error { return l.add("reset_peer", "downstream") }

// Cut lets nothing through, without a word, until Heal.
func (l *Link) Cut(d Direction) error {
	for _, chain := range d.chains() {
		if err := l.add("timeout", map[string]string{"up": "upstream", "down": "downstream"}[chain]); err != nil {
			return err
		}
	}
	return nil
}

func (l *Link) add(kind, stream string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.added++
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":"%s%d","type":%q,"stream":%q,"attributes":{"timeout":0}}`, kind, l.added, kind, stream)))
	return err
}

// Heal ends a cut or resets. All connections are closed.
func (l *Link) Heal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxy.Stop()
	return l.open(l.proxy.Listen)
}

// Close ends it and cuts its connections.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxy.Stop()
}
