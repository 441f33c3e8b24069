// Package publicnet connects to addresses that users name, and never to private ones. It checks the
// address that a name was resolved to, at each connect, so a name that changes its address later
// gains nothing.
package publicnet

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/tidemark-im/tidemark"
)

// maxURL is the greatest length of a URL in bytes.
const maxURL = 2_048

// ErrPrivate is the cause of a refused connection.
var ErrPrivate = errors.New("the address is not public, or the port is not 443")

// Guard says where connections may go. Its methods are safe for concurrent use.
type Guard struct {
	// Resolver resolves names, nil for that of the system. Set it before Client is called.
	Resolver *net.Resolver

	allowed []netip.Prefix
	hosts   []string
	public  *ssrf.Guardian
}

// New returns a Guard that allows public addresses at port 443, and every port of the allowed
// prefixes. If there are hosts, a URL must name one of them or a subdomain.
func New(allowed []netip.Prefix, hosts []string) *Guard {
	g := &Guard{allowed: allowed, public: ssrf.New(ssrf.WithPorts(443))}
	for _, host := range hosts {
		g.hosts = append(g.hosts, strings.ToLower(strings.Trim(host, ".")))
	}
	return g
}

// Check returns an Error unless a URL is one that a user may name: https, with a host, without user
// info and fragment. It does not resolve the host, since Control checks the address.
func (g *Guard) Check(text string) error {
	wrong := func(why string) error {
		return tidemark.Errorf(tidemark.Invalid, "the URL %s; use https://HOST/PATH", why)
	}
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return wrong("is longer than 2,048 bytes")
	case err != nil:
		return wrong("cannot be read")
	//rule:push_endpoints_are_public.https-only
	case u.Scheme != "https":
		return wrong("does not begin with https://")
	case u.Hostname() == "":
		return wrong("has no host")
	case u.User != nil, u.Fragment != "":
		return wrong("has a user or a fragment")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	//rule:push_endpoints_are_public.listed-hosts
	if len(g.hosts) > 0 && !slices.ContainsFunc(g.hosts, func(listed string) bool {
		return host == listed || strings.HasSuffix(host, "."+listed)
	}) {
		return tidemark.Errorf(tidemark.Invalid, "the host %s is not on the list of this server; "+
			"ask its operator to allow it", host)
	}
	return nil
}

// Control is for net.Dialer.Control.
func (g *Guard) Control(network, address string, raw syscall.RawConn) error {
	//rule:push_endpoints_are_public.address-at-each-connect
	if to, err := netip.ParseAddrPort(address); err == nil && slices.ContainsFunc(g.allowed,
		func(p netip.Prefix) bool { return p.Contains(to.Addr().Unmap()) }) {
		return nil
	}
	if err := g.public.Safe(network, address, raw); err != nil {
		return fmt.Errorf("%w: %w", ErrPrivate, err) // in one line
	}
	return nil
}

// Inside is for net.Dialer.Control. It allows the allowed prefixes only.
func (g *Guard) Inside(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	//rule:webhooks_leave_by_public_addresses.allowed-networks-only
	if err == nil && slices.ContainsFunc(g.allowed,
		func(p netip.Prefix) bool { return p.Contains(to.Addr().Unmap()) }) {
		return nil
	}
	return ErrPrivate
}

// Client returns a client that connects only where the guard allows, follows no redirect, and uses
// no proxy of the environment. The transport may have TLS settings and bounds.
func (g *Guard) Client(transport *http.Transport) *http.Client {
	return g.client(transport, g.Control)
}

// InsideClient is Client for the allowed prefixes only.
func (g *Guard) InsideClient(transport *http.Transport) *http.Client {
	return g.client(transport, g.Inside)
}

func (g *Guard) client(
	transport *http.Transport, control func(string, string, syscall.RawConn) error,
) *http.Client {
	transport = transport.Clone()
	transport.Proxy = nil
	dialer := &net.Dialer{Timeout: 5 * time.Second, Control: control, Resolver: g.Resolver}
	transport.DialContext = dialer.DialContext
	return &http.Client{
		Transport: transport,
		//rule:push_endpoints_are_public.no-redirect
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}
