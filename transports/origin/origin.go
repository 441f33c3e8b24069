// Package origin decides which web pages may call the server (docs/authentication.md, "Web pages").
//
// Browsers enforce the decision by the headers of the answers (CORS, Fetch standard), except for
// WebSocket. There are no cookies, so a browser sends no credentials on its own. A foreign page can
// therefore do harm only where credentials can be guessed, as in development mode.
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
	// Allow lists the origins that may call besides the server's own host. An entry is exactly
	// what a browser sends, such as https://app.example.com. The entry * allows all pages.
	Allow []string
	// Loopback adds the rules of development mode, where credentials can be guessed. Pages of
	// loopback hosts may call. Other pages are refused here, and not only by the browser. The
	// server answers to loopback names only. Otherwise a page could point its own name at the
	// server and so share its host (DNS rebinding).
	Loopback bool
}

// Policy decides which pages may call. A nil Policy allows the pages of the server's own host only.
// It is safe for concurrent use.
type Policy struct {
	allow    []string
	any      bool
	loopback bool
}

// What an answer says to the browser of an allowed page. Browser credentials are never allowed,
// because there are none.
const (
	allowedMethods = "GET, POST, PUT, PATCH, DELETE"
	allowedHeaders = "Authorization, Content-Type, Last-Event-ID, Traceparent, X-Request-ID, " +
		"X-User-ID"
	exposedHeaders = "X-Request-ID, Retry-After, RateLimit, RateLimit-Policy, " +
		"Tidemark-Incarnation"
	// maxAge is how long a browser may cache the answer, in seconds. Browsers cap it at two
	// hours.
	maxAge = "7200"
)

// New returns a Policy. It returns Invalid if an entry of Allow is not an origin.
func New(cfg Config) (*Policy, error) {
	p := &Policy{loopback: cfg.Loopback}
	for _, origin := range cfg.Allow {
		if origin == "*" {
			p.any = true
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" ||
			origin != strings.ToLower(u.Scheme+"://"+u.Host) || u.User != nil ||
			strings.ContainsFunc(origin, neverInOrigin) ||
			u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443" {
			return nil, tidemark.Errorf(tidemark.Invalid,
				"%.100q is no origin as browsers send it: a scheme and a host in lower case, "+
					"a port if it is not the usual one, and nothing more, "+
					"as in https://app.example.com; give one name at a time, "+
					"and write other letters as xn--…", origin)
		}
		p.allow = append(p.allow, origin)
	}
	return p, nil
}

// neverInOrigin reports whether browsers never send the character in an origin. They send names of
// other letters as xn--…, and they know no wildcards or lists.
func neverInOrigin(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == ',' }

// Check returns nil if the request's page may call, or if no page makes the request. It returns
// Denied otherwise.
func (p *Policy) Check(r *http.Request) error {
	//rule:caller_does_only_what_they_may.loopback-host-in-development
	if p != nil && p.loopback && !loopbackName(r.Host) {
		return tidemark.Errorf(tidemark.Denied,
			"in development mode the server answers to names of this machine only, such as "+
				"localhost; the Host of this request is another")
	}
	origin := r.Header.Get("Origin")
	//rule:caller_does_only_what_they_may.no-foreign-request-without-origin
	if origin == "" && p != nil && p.loopback && !p.any && foreign(r) {
		return tidemark.Errorf(tidemark.Denied,
			"a page of another site made this request; in development mode it may not")
	}
	//rule:caller_does_only_what_they_may.known-origin-only
	if origin == "" || p.allows(origin) ||
		hostOf(origin) != "" && strings.EqualFold(hostOf(origin), r.Host) {
		return nil
	}
	return tidemark.Errorf(tidemark.Denied,
		"pages of this origin may not call; serve --allow-origin names those that may")
}

// foreign reports whether a browser says that a page of another site makes the request. It sends no
// Origin with an image or a link, for example. A link to the page at / is fine.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.URL.Path != "/"
}

// allows reports whether pages of an origin may call under the list, whatever the server's host.
func (p *Policy) allows(origin string) bool {
	return p != nil &&
		(p.any || slices.Contains(p.allow, origin) || p.loopback && loopbackName(hostOf(origin)))
}

// Middleware answers preflight requests. To every other answer it adds whether the page may read
// it. It refuses a page only in development mode. Browsers send no preflight for WebSocket, so that
// adapter must call Check.
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
			//rule:caller_does_only_what_they_may.no-browser-credentials
			h.Set("Access-Control-Expose-Headers", exposedHeaders)
		}
		preflight := r.Method == http.MethodOptions && origin != "" &&
			r.Header.Get("Access-Control-Request-Method") != ""
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

// hostOf returns the host of an origin, with its port. It returns "" if there is none, as for the
// origin `null`.
func hostOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return u.Host
}

// loopbackName reports whether a host, with or without a port, always means this machine, whatever
// a name server says.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
