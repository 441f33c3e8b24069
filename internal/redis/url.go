package redis

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// Kind says what a URL names.
type Kind int

// Kinds of addresses.
const (
	// Single is one server, or a proxy that acts like one.
	Single Kind = iota
	// Sentinel is a master with replicas. Sentinels name the master.
	Sentinel
	// Cluster is a Redis Cluster.
	Cluster
)

// Address is the parsed form of a URL. String returns it without its secrets.
type Address struct {
	Kind Kind
	// Addrs has the host:port of the server, of the sentinels, or of some nodes of the cluster.
	Addrs []string
	// Master is the master's name at the sentinels.
	Master string
	User   string
	DB     int
	TLS    bool

	password                       string
	sentinelUser, sentinelPassword string
}

// schemes has the schemes of URLs, without and with TLS.
var schemes = [...]struct {
	plain, secret string
	kind          Kind
}{
	{"redis", "rediss", Single},
	{"redis+sentinel", "rediss+sentinel", Sentinel},
	{"redis+cluster", "rediss+cluster", Cluster},
}

// ParseURL parses a URL of one of these forms:
//
//	redis://[user:password@]host[:port][/db]
//	redis+sentinel://[user:password@]host[:port],…/MASTER[/db][?options]
//	redis+cluster://[user:password@]host[:port],…
//
// and of the same forms with rediss for TLS. The options of sentinels are sentinel_user and
// sentinel_password; user and password are always those of Redis. The default port is 6379, for
// sentinels 26379. The error is Invalid and contains no password.
func ParseURL(raw string) (Address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return Address{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of Redis has no scheme; it begins with redis://, redis+sentinel:// or "+
				"redis+cluster://, or with rediss for TLS")
	}
	t := Address{Kind: -1}
	for _, s := range schemes {
		if scheme == s.plain || scheme == s.secret {
			t.Kind, t.TLS = s.kind, scheme == s.secret
		}
	}
	if t.Kind < 0 {
		return Address{}, tidemark.Errorf(tidemark.Invalid,
			"%q is no scheme of Redis; use redis, redis+sentinel or redis+cluster, with rediss in "+
				"place of redis for TLS", scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if !t.options(query) || strings.Contains(raw, "#") {
		return Address{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of Redis takes no options but sentinel_user and sentinel_password, those of "+
				"sentinels; write ? and # in a password as %%3F and %%23")
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := t.login(rest[:at]); err != nil {
			return Address{}, err
		}
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	if err := t.hosts(hosts); err != nil {
		return Address{}, err
	}
	return t, t.path(path)
}

// options parses the query of a URL. It reports whether the query is valid.
func (a *Address) options(query string) bool {
	options, err := url.ParseQuery(query)
	if err != nil || a.Kind != Sentinel && query != "" {
		return false
	}
	for name, values := range options {
		switch {
		case len(values) > 1:
			return false
		case name == "sentinel_user":
			a.sentinelUser = values[0]
		case name == "sentinel_password":
			a.sentinelPassword = values[0]
		default:
			return false
		}
	}
	return true
}

func (a *Address) login(login string) error {
	user, password, ok := strings.Cut(login, ":")
	var err, broken error
	a.User, err = url.PathUnescape(user)
	a.password, broken = url.PathUnescape(password)
	if !ok || err != nil || broken != nil {
		return tidemark.Errorf(tidemark.Invalid,
			"the part before the @ in the URL of Redis is not user:password; write characters "+
				"other than letters and digits as %%XX")
	}
	return nil
}

func (a *Address) hosts(list string) error {
	port := "6379"
	if a.Kind == Sentinel {
		port = "26379"
	}
	for _, host := range strings.Split(list, ",") {
		addr := host
		if _, _, err := net.SplitHostPort(host); err != nil {
			addr = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		name, number, err := net.SplitHostPort(addr)
		n, bad := strconv.Atoi(number)
		if err != nil || bad != nil || name == "" || n < 1 || n > 65_535 {
			return tidemark.Errorf(tidemark.Invalid, "%q in the URL of Redis is not host:port",
				host)
		}
		a.Addrs = append(a.Addrs, addr)
	}
	if a.Kind == Single && len(a.Addrs) > 1 {
		return tidemark.Errorf(tidemark.Invalid,
			"several hosts need a URL of the form redis+sentinel://…/MASTER or "+
				"redis+cluster://…")
	}
	return nil
}

func (a *Address) path(path string) error {
	if a.Kind == Sentinel {
		a.Master, path, _ = strings.Cut(path, "/")
		if a.Master == "" {
			return tidemark.Errorf(tidemark.Invalid,
				"the URL of sentinels ends with the name of their master: "+
					"redis+sentinel://host:port/MASTER")
		}
	}
	if path == "" {
		return nil
	}
	db, err := strconv.Atoi(path)
	switch {
	case err != nil || db < 0:
		return tidemark.Errorf(tidemark.Invalid,
			"%q in the URL of Redis is no number of a database, such as 0", path)
	case a.Kind == Cluster && db != 0:
		return tidemark.Errorf(tidemark.Invalid,
			"a Redis Cluster has no numbered databases; leave the number out of the URL")
	}
	a.DB = db
	return nil
}

// tls returns the TLS configuration, or nil without TLS. For other kinds than Single, the driver
// fills in the server name.
func (a *Address) tls() *tls.Config {
	if !a.TLS {
		return nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.Kind == Single {
		cfg.ServerName, _, _ = net.SplitHostPort(a.Addrs[0])
	}
	return cfg
}

// String returns the URL without user and password.
func (a Address) String() string {
	var b strings.Builder
	for _, s := range schemes {
		switch {
		case s.kind == a.Kind && a.TLS:
			b.WriteString(s.secret)
		case s.kind == a.Kind:
			b.WriteString(s.plain)
		}
	}
	b.WriteString("://")
	b.WriteString(strings.Join(a.Addrs, ","))
	if a.Kind == Sentinel {
		b.WriteString("/" + a.Master)
	}
	if a.Kind != Cluster && a.DB != 0 {
		b.WriteString("/" + strconv.Itoa(a.DB))
	}
	return b.String()
}
