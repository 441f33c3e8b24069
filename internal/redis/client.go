// Package redis has what the packages on Redis share: the client for a URL, scripts, shared round
// trips, and subscriptions. One Redis, a failover group behind Sentinel and a cluster have the same
// API. Only, on a cluster, a script must touch the keys of one slot (Client.Cluster).
//
// Redis holds no facts: callers must work with a Redis that is empty, old or unreachable.
package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidemark-im/tidemark"
)

// DefaultTimeout bounds a round trip, including dialling. A healthy Redis answers in less than a
// millisecond.
const DefaultTimeout = time.Second

// MinVersion is the oldest version of Redis with sharded pub/sub.
const MinVersion = 7

// Config configures a Client.
type Config struct {
	// URL names the Redis, in a form of ParseURL.
	URL string
	// Name names the connections in CLIENT LIST. It may have letters, digits and _.:- or be empty.
	Name string
	// Timeout bounds each round trip. 0 means DefaultTimeout.
	Timeout time.Duration
}

// Client has the connections to one Redis. It is safe for concurrent use. Its errors are
// Unavailable, unless a method says otherwise, and contain no secret.
type Client struct {
	address Address
	timeout time.Duration
	// Exactly one of the two is set. Methods of go-redis that build commands are not used, so that
	// the linker drops them.
	one     *goredis.Client
	cluster *goredis.ClusterClient

	trips, failures atomic.Int64
}

// Open returns a client for a URL. It does no I/O: the first call, or Check, finds out whether
// Redis is reachable. The error is Invalid if the URL is. The caller must close the client.
func Open(cfg Config) (*Client, error) {
	address, err := ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	goredis.SetLogger(silent{})
	c := &Client{address: address, timeout: cfg.Timeout}
	switch address.Kind {
	case Cluster:
		c.cluster = goredis.NewClusterClient(clusterOptions(address, cfg))
	case Sentinel:
		c.one = goredis.NewFailoverClient(sentinelOptions(address, cfg))
		//rule:R_NOBODY.fail-without-a-master
		c.one.AddHook(sentinels{})
	default:
		c.one = goredis.NewClient(options(address, cfg))
	}
	return c, nil
}

// sentinels makes dialling fail if the sentinels do not know the master. Otherwise the driver would
// return its Nil as the answer to the call, which means an empty reply.
type sentinels struct{}

func (sentinels) DialHook(dial goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		connection, err := dial(ctx, network, addr)
		if errors.Is(err, goredis.Nil) {
			return nil, errors.New(
				"the sentinels do not know the master; check its name in the URL")
		}
		return connection, err
	}
}

func (sentinels) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (sentinels) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// silent drops the driver's log. It has only dial errors, which callers get too.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// The driver must not retry. Callers have limited time, know whether their scripts may run twice,
// and can do without an answer. Protocol version 2 has no push messages, which are not used here.

func options(t Address, cfg Config) *goredis.Options {
	return &goredis.Options{
		Addr: t.Addrs[0], Username: t.User, Password: t.password, DB: t.DB, TLSConfig: t.tls(),
		ClientName: cfg.Name, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout,
		PoolTimeout: cfg.Timeout, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func sentinelOptions(t Address, cfg Config) *goredis.FailoverOptions {
	return &goredis.FailoverOptions{
		MasterName: t.Master, SentinelAddrs: t.Addrs, SentinelUsername: t.sentinelUser,
		SentinelPassword: t.sentinelPassword, Username: t.User, Password: t.password, DB: t.DB,
		TLSConfig: t.tls(), ClientName: cfg.Name, Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout,
		WriteTimeout: cfg.Timeout, PoolTimeout: cfg.Timeout, ContextTimeoutEnabled: true,
		PipelinePoolSize: -1,
	}
}

// There may be two redirects: one for a slot that has moved, and one for a slot map that was old by
// then. The timeout includes them. A redirect after a broken connection repeats the call; every
// script here may run twice.
func clusterOptions(t Address, cfg Config) *goredis.ClusterOptions {
	return &goredis.ClusterOptions{
		Addrs: t.Addrs, MaxRedirects: 2, ClusterStateReloadInterval: 10 * time.Second,
		DisableRoutingPolicies: true, Username: t.User, Password: t.password, TLSConfig: t.tls(),
		ClientName: cfg.Name, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout,
		PoolTimeout: cfg.Timeout, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Close closes the connections. Calls under way fail.
func (c *Client) Close() error {
	if c.cluster != nil {
		return c.cluster.Close()
	}
	return c.one.Close()
}

// Cluster reports whether the client is connected to a cluster. A script must then touch the keys
// of one slot.
func (c *Client) Cluster() bool { return c.cluster != nil }

// Timeout returns the bound of a round trip.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Address returns the address of the Redis, for logs.
func (c *Client) Address() Address { return c.address }

// Counters returns the client's counters by name. A round trip with an unknown script counts twice.
// A failure is a round trip that failed as a whole.
func (c *Client) Counters() map[string]int64 {
	return map[string]int64{
		"redis_round_trips_total": c.trips.Load(), "redis_failures_total": c.failures.Load(),
	}
}

// Check reports whether Redis is usable. The error is Invalid if the configuration has to change.
// So it is for a wrong password, an old version, and a server of another kind than in the URL. It
// is Unavailable if the problem may be temporary.
func (c *Client) Check(ctx context.Context) error {
	reply := c.Run(ctx, []Call{{Args: []any{"INFO"}}})[0]
	if reply.Err != nil {
		return c.refused(reply.Err)
	}
	info, _ := reply.Value.(string)
	if mode := field(info, "redis_mode"); (mode == "cluster") != c.Cluster() || mode == "sentinel" {
		return tidemark.Errorf(tidemark.Invalid,
			"%s: the server runs in %s mode; give a URL of that mode (redis://, redis+sentinel:// "+
				"or redis+cluster://)", c.address, mode)
	}
	version := field(info, "redis_version")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < MinVersion {
		return tidemark.Errorf(tidemark.Invalid, "%s: version %q is too old, at least %d is needed",
			c.address, version, MinVersion)
	}
	return nil
}

// Eviction returns what Redis does when its memory is full (maxmemory-policy).
func (c *Client) Eviction(ctx context.Context) (policy string, err error) {
	reply := c.Run(ctx, []Call{{Args: []any{"INFO", "memory"}}})[0]
	if reply.Err != nil {
		return "", c.refused(reply.Err)
	}
	info, _ := reply.Value.(string)
	return field(info, "maxmemory_policy"), nil
}

// refused makes an error Invalid if only a change of the configuration ends it.
func (c *Client) refused(err error) error {
	said := err.Error()
	for _, sign := range []string{
		"WRONGPASS", "NOAUTH", "NOPERM", "AUTH <password> called without",
		"DB index is out of range", "cluster support disabled", "no such host", "x509",
	} {
		if strings.Contains(said, sign) {
			return tidemark.Wrap(tidemark.Invalid, err, c.address.String()+
				": refused; check the host, the login, the database and the certificate")
		}
	}
	return err
}

// field returns a field of a reply to INFO, or "".
func field(info, name string) string {
	_, rest, _ := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// Lives returns a name for the present lives of a cluster's servers with keys. It asks each server.
// The name changes if a server is restarted, failed over, added or removed. Without a cluster it is
// "".
func (c *Client) Lives(ctx context.Context) (string, error) {
	if c.cluster == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var mu sync.Mutex
	var lives []string
	err := c.cluster.ForEachMaster(ctx, func(ctx context.Context, master *goredis.Client) error {
		info := goredis.NewStringCmd(ctx, "INFO", "replication")
		if err := master.Process(ctx, info); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		lives = append(lives, field(info.Val(), "master_replid"))
		return nil
	})
	c.trips.Add(1)
	if err != nil {
		c.failures.Add(1)
		return "", c.unavailable(err)
	}
	slices.Sort(lives)
	sum := sha256.Sum256([]byte(strings.Join(lives, ",")))
	return hex.EncodeToString(sum[:8]), nil
}

// unavailable turns an error of the driver into one for callers.
func (c *Client) unavailable(err error) error {
	what := "Redis refused the call"
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		what = "Redis did not answer in time"
	case errors.As(err, &network):
		what = "Redis is not reachable"
	}
	return tidemark.Wrap(tidemark.Unavailable, err, what)
}
