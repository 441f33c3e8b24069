// Package origin says which web pages may talk to the server (docs/authentication.md, "Web pages").
//
// Browsers enforce it for everything but WebSocket, by what the answers say (CORS, of the Fetch standard). They send no credentials by themselves, since there
// are no cookies; so a foreign page can do harm only where credentials can be guessed, which is in development mode.
package origin

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
)

// Config configures a Policy.
type Config struct {
	// Allow is the origins of the pages that may call, besides those of the server's own host: https://app.example.com, exactly as a browser
	// says it, or * for all pages.
	Allow []string
	// Loopback is the rule of development mode, where credentials can be guessed: pages of loopback hosts may call as well, those that may not
	// are refused rather than left to the browser, and the server answers to loopback names only. Otherwise any page could have its own name
	// lead to the server, and be of its host (DNS rebinding).
	Loopback bool
}

// Policy is which pages may call. The nil Policy is that of the zero Config: those of the server's own host. It is safe for concurrent use.
type Policy struct {
	allow    []string
	any      bool
	loopback bool
}

// What an answer tells the browser of an allowed page. Credentials of the browser's own are never allowed: there are none.
const (
	allowedMethods = "GET, POST, PATCH, DELETE"
	allowedHeaders = "Authorization, Content-Type, Last-Event-ID, X-Request-ID"
	exposedHeaders = "X-Request-ID, Retry-After"
	// maxAge is how long a browser may remember that, in seconds. Browsers allow two hours at most.
	maxAge = "7200"
)

// New returns a Policy. Invalid if something in Allow is no origin.
func New(cfg Config) (*Policy, error) {
	p := &Policy{loopback: cfg.Loopback}
	for _, origin := range cfg.Allow {
		if origin == "*" {
			p.any = true
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || origin != strings.ToLower(u.Scheme+"://"+u.Host) || u.User != nil || strings.ContainsFunc(origin, unsaid) ||
			u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443" {
			return nil, tidemark.Errorf(tidemark.Invalid,
				"%.100q is no origin as browsers say it: a scheme and a host in lower case, a port if it is not the usual one, and nothing more, as in https://app.example.com; one name at a time, and one of other letters as xn--…", origin)
		}
		p.allow = append(p.allow, origin)
	}
	return p, nil
}

// unsaid are the characters that a browser never says in an origin: a name of other letters comes as xn--…, and no name stands for several.
func unsaid(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == ',' }

// Check returns nil if the page that makes a request may do so, or no page does. Denied otherwise.
func (p *Policy) Check(r *http.Request) error {
	//rule:caller_may_only_what_he_may.loopback-host-in-development
	if p != nil && p.loopback && !loopbackName(r.Host) {
		return tidemark.Errorf(tidemark.Denied, "in development mode the server answers to names of this machine only, such as localhost; the Host of this request is another")
	}
	origin := r.Header.Get("Origin")
	//rule:caller_may_only_what_he_may.known-origin-only
	if origin == "" || p.allows(origin) || hostOf(origin) != "" && strings.EqualFold(hostOf(origin), r.Host) {
		return nil
	}
	return tidemark.Errorf(tidemark.Denied, "pages of this origin may not call; serve --allow-origin names those that may")
}

// allows reports whether pages of an origin may call, wherever the server is.
func (p *Policy) allows(origin string) bool {
	return p != nil && (p.any || slices.Contains(p.allow, origin) || p.loopback && loopbackName(hostOf(origin)))
}

// Middleware answers preflight requests, and says in every other answer whether the page may read it. It refuses a page only in development mode; WebSocket, for
// which browsers do not ask, has to call Check.
func (p *Policy) Middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, h := c.Request(), c.Response().Header()
		if p != nil && !p.any && (p.loopback || len(p.allow) > 0) {
			h.Add("Vary", "Origin")
		}
		origin := r.Header.Get("Origin")
		if origin != "" && p.allows(origin) {
			if p.any {
				origin = "*"
			}
			h.Set("Access-Control-Allow-Origin", origin)
			//rule:caller_may_only_what_he_may.no-browser-credentials
			h.Set("Access-Control-Expose-Headers", exposedHeaders)
		}
		preflight := r.Method == http.MethodOptions && origin != "" && r.Header.Get("Access-Control-Request-Method") != ""
		if preflight || p != nil && p.loopback {
			if err := p.Check(r); err != nil {
				return err
			}
		}
		if !preflight {
			return next(c)
		}
		h.Set("Access-Control-Allow-Methods", allowedMethods)
		h.Set("Access-Control-Allow-Headers", allowedHeaders)
		h.Set("Access-Control-Max-Age", maxAge)
		return c.NoContent(http.StatusNoContent)
	}
}

// hostOf returns the host of an origin, with its port; "" if it has none, as `null`, the origin of a page that has none.
func hostOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return u.Host
}

// loopbackName reports whether a host, with or without a port, can only be this machine, whatever a name server says.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
