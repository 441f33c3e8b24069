// Package redis is what the leaves on Redis share: the client that a URL names, scripts, round trips
// that calls share, and subscriptions. Redis itself, a failover group behind sentinels, and a cluster
// look the same from outside, except that a script touches keys of one slot only (Client.Cluster).
//
// Nothing here keeps facts: whoever uses it lives with a Redis that is empty, old or away.
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

// DefaultTimeout bounds a round trip: dialling, writing and reading. A healthy Redis answers in less than a millisecond.
const DefaultTimeout = time.Second

// MinVersion is the oldest Redis that has all that is used here: sharded pub/sub came with it.
const MinVersion = 7

// Config is what Open needs.
type Config struct {
	// URL names the Redis; see ParseURL.
	URL string
	// Name is what the connections are called in CLIENT LIST, made of letters, digits and _.:-; empty: nothing.
	Name string
	// Timeout bounds each round trip; 0 is DefaultTimeout.
	Timeout time.Duration
}

// Client is the connections to one Redis. Its methods are safe for concurrent use. Every error that it returns is Unavailable, unless a method says otherwise, and none
// holds a secret.
type Client struct {
	target  Target
	timeout time.Duration
	// Exactly one of the two is set. The methods of go-redis that make commands are not used, so that the linker drops them.
	one     *goredis.Client
	cluster *goredis.ClusterClient

	trips, failures atomic.Int64
}

// Open returns the client of a URL. It does no I/O: a Redis that is away is found at the first call, or by Check. A URL that makes no sense is Invalid. Close
// the client when nobody uses it any more.
func Open(cfg Config) (*Client, error) {
	target, err := ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	goredis.SetLogger(silent{})
	c := &Client{target: target, timeout: cfg.Timeout}
	switch target.Kind {
	case Cluster:
		c.cluster = goredis.NewClusterClient(clusterOptions(target, cfg))
	case Sentinel:
		c.one = goredis.NewFailoverClient(sentinelOptions(target, cfg))
		//rule:R_NOBODY.fail-without-a-master
		c.one.AddHook(sentinels{})
	default:
		c.one = goredis.NewClient(options(target, cfg))
	}
	return c, nil
}

// sentinels makes an error of what the driver gets when the sentinels do not know the master, or not at present: it takes it for the answer to the call, which would be nothing.
type sentinels struct{}

func (sentinels) DialHook(dial goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		connection, err := dial(ctx, network, addr)
		if errors.Is(err, goredis.Nil) {
			return nil, errors.New("the sentinels do not know the master")
		}
		return connection, err
	}
}

func (sentinels) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (sentinels) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// silent takes what the driver would write to standard error: dial errors, which its callers get, too.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// The driver does not retry: a caller of ours has a bounded time, knows what a second attempt means for its script, and has another way if there is no answer.
// Version 2 of the protocol has no pushes, none of which are of use here.

func options(t Target, cfg Config) *goredis.Options {
	return &goredis.Options{
		Addr: t.Addrs[0], Username: t.User, Password: t.password, DB: t.DB, TLSConfig: t.tls(),
		ClientName: cfg.Name, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout,
		PoolTimeout: cfg.Timeout, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func sentinelOptions(t Target, cfg Config) *goredis.FailoverOptions {
	return &goredis.FailoverOptions{
		MasterName: t.Master, SentinelAddrs: t.Addrs, SentinelUsername: t.sentinelUser,
		SentinelPassword: t.sentinelPassword, Username: t.User, Password: t.password, DB: t.DB,
		TLSConfig: t.tls(), ClientName: cfg.Name, Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout,
		WriteTimeout: cfg.Timeout, PoolTimeout: cfg.Timeout, ContextTimeoutEnabled: true,
		PipelinePoolSize: -1,
	}
}

// Two redirects: one for a slot that has moved, one for a map of the slots that was old then, too. All within the same bounded time. A redirect after a broken
// connection is a second attempt; every script here may be done twice.
func clusterOptions(t Target, cfg Config) *goredis.ClusterOptions {
	return &goredis.ClusterOptions{
		Addrs: t.Addrs, MaxRedirects: 2, ClusterStateReloadInterval: 10 * time.Second,
		DisableRoutingPolicies: true, Username: t.User, Password: t.password, TLSConfig: t.tls(),
		ClientName: cfg.Name, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout,
		PoolTimeout: cfg.Timeout, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Close ends the connections. Calls under way fail.
func (c *Client) Close() error {
	if c.cluster != nil {
		return c.cluster.Close()
	}
	return c.one.Close()
}

// Cluster reports whether the keys are spread over several servers, so that each script may touch those of one slot only.
func (c *Client) Cluster() bool { return c.cluster != nil }

// Timeout is what bounds a round trip.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Target is where the client is connected to, for logs.
func (c *Client) Target() Target { return c.target }

// Counters are those of the client, by name: round trips made, of pipelines in which a script was not known one more, and those that failed as a whole.
func (c *Client) Counters() map[string]int64 {
	return map[string]int64{
		"redis_round_trips_total": c.trips.Load(), "redis_failures_total": c.failures.Load(),
	}
}

// Check asks whether Redis is there and of use. It returns Invalid if that needs somebody who changes the configuration: a password that is refused, a version that is too
// old, a server of another kind than the URL says; Unavailable if it may pass.
func (c *Client) Check(ctx context.Context) error {
	reply := c.Run(ctx, []Call{{Args: []any{"INFO"}}})[0]
	if reply.Err != nil {
		return c.refused(reply.Err)
	}
	info, _ := reply.Value.(string)
	if mode := field(info, "redis_mode"); (mode == "cluster") != c.Cluster() || mode == "sentinel" {
		return tidemark.Errorf(tidemark.Invalid,
			"%s: the server runs in %s mode, which the form of the URL does not say", c.target,
			mode)
	}
	version := field(info, "redis_version")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < MinVersion {
		return tidemark.Errorf(tidemark.Invalid, "%s: version %q is too old, at least %d is needed",
			c.target, version, MinVersion)
	}
	return nil
}

// refused tells errors that stay until somebody does something from those that pass.
func (c *Client) refused(err error) error {
	said := err.Error()
	for _, sign := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "AUTH <password> called without", "DB index is out of range", "cluster support disabled", "no such host", "x509"} {
		if strings.Contains(said, sign) {
			return tidemark.Wrap(tidemark.Invalid, err, c.target.String()+": refused")
		}
	}
	return err
}

// field returns a field of an answer to INFO, "" if it is not there.
func field(info, name string) string {
	_, rest, _ := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// Lives names the lives of all servers of a cluster that hold keys: equal if none of them was restarted, failed over, added or taken away. It asks each of them. Without a
// cluster it is empty, and asks nobody.
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

// unavailable says of an error of the driver what its caller needs to know.
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
