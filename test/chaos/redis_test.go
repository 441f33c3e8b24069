package chaos

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/chaos/cluster"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// redisService is the Redis of the nodes, and its faults.
type redisService interface {
	// route returns how one node reaches Redis: the ports, the value of --redis, and the link, nil
	// if the connection is direct.
	route() (link *cluster.Link, reach []int, flag string, err error)
	// server returns the server that answers.
	server() *redis.Server
	faults() []fault
}

// single is one server, reached through toxiproxy.
type single struct{ *redis.Server }

func (s single) server() *redis.Server { return s.Server }

func (s single) route() (*cluster.Link, []int, string, error) {
	u, err := url.Parse(s.URL())
	if err != nil {
		return nil, nil, "", err
	}
	link, err := cluster.NewLink(u.Host)
	if err != nil {
		return nil, nil, "", err
	}
	u.Host = link.Address()
	return link, []int{link.Port()}, u.String(), nil
}

func (s single) faults() []fault {
	return []fault{
		{"Redis killed, back empty", s.killed},
		{
			"Redis frozen",
			func(b *testbed, r *rand.Rand) (string, error) {
				return freezeRedis(b, s.Server, between(r, 2, 6))
			},
		},
		{
			"Redis emptied",
			func(b *testbed, _ *rand.Rand) (string, error) { return flush(b, s.Server) },
		},
		{"Redis slow", func(b *testbed, r *rand.Rand) (string, error) {
			by := b.delay(r)
			if by > nodeLease {
				// What the node stores meanwhile waits until Redis answers it (docs/cluster.md,
				// "One node cannot reach Redis").
				defer b.ledger.Outages.Begin(0)()
			}
			return slow(b, r, func(m *machine) *cluster.Link { return m.toRedis }, "PING\r\n", by)
		}},
		{
			"publications come late, and twice",
			func(b *testbed, r *rand.Rand) (string, error) { return replayLate(b, r, s.Server) },
		},
		{"connections to Redis reset", func(b *testbed, r *rand.Rand) (string, error) {
			return reset(b, r, func(m *machine) *cluster.Link { return m.toRedis }, "PING\r\n")
		}},
	}
}

// killed kills the server, and starts it again without its data.
func (s single) killed(b *testbed, r *rand.Rand) (string, error) {
	before, keys := field(s.Server, "server", "run_id"), fmt.Sprint(s.Do(b.t, "DBSIZE"))
	s.Kill(b.t)
	pause(b.ctx, between(r, 0, 4))
	s.RunEmpty(b.t)
	if after := field(s.Server, "server", "run_id"); before == after || keys == "0" {
		return "", nil
	}
	return "it had " + keys + " keys, and is another one", nil
}

// watched is a master with a replica and a Sentinel, reached directly.
type watched struct{ *redis.Watched }

func (s watched) server() *redis.Server { return s.Master }

// open makes the servers listen for other hosts too, as Sentinel does: the nodes are on hosts of
// their own.
func (s watched) open(t testing.TB) {
	t.Helper()
	for _, server := range []*redis.Server{s.Master, s.Replica} {
		server.Do(t, "CONFIG", "SET", "protected-mode", "no")
	}
}

func (s watched) route() (*cluster.Link, []int, string, error) {
	return nil, []int{s.Sentinel.Port(), s.Master.Port(), s.Replica.Port()}, s.URL(), nil
}

func (s watched) faults() []fault {
	return []fault{
		{
			"Redis failed over",
			func(b *testbed, r *rand.Rand) (string, error) { return s.failOver(b, r, false) },
		},
		{
			"Redis failed over to a stale replica",
			func(b *testbed, r *rand.Rand) (string, error) { return s.failOver(b, r, true) },
		},
		{
			"Redis frozen",
			func(b *testbed, r *rand.Rand) (string, error) {
				return freezeRedis(b, s.Master, between(r, 0.3, 0.8))
			},
		},
		{
			"Redis emptied",
			func(b *testbed, _ *rand.Rand) (string, error) { return flush(b, s.Master) },
		},
		{
			"publications come late, and twice",
			func(b *testbed, r *rand.Rand) (string, error) { return replayLate(b, r, s.Master) },
		},
	}
}

func (s watched) failOver(b *testbed, r *rand.Rand, stale bool) (string, error) {
	old := s.Master
	missed := ""
	if stale {
		s.Detach(b.t)
		pause(b.ctx, between(r, 1, 4))
		there, here := field(s.Replica, "replication",
			"slave_repl_offset"), field(s.Master, "replication", "master_repl_offset")
		if there == here {
			return "", nil
		}
		missed = fmt.Sprintf(", and has %s of %s bytes", there, here)
	}
	s.FailOver(b.t)
	s.open(b.t)
	if s.Master == old {
		return "", nil
	}
	return "another server is master" + missed, nil
}

// freezeRedis stops Redis with SIGSTOP for a while.
func freezeRedis(b *testbed, s *redis.Server, d time.Duration) (string, error) {
	s.Freeze(b.t)
	silent := ""
	if _, err := exchange(s.Address(), "PING\r\n", 200*time.Millisecond); err != nil {
		silent = "it did not answer for " + d.String()
	}
	pause(b.ctx, d)
	s.Thaw(b.t)
	return silent, nil
}

// flush deletes all data of Redis while it runs.
func flush(b *testbed, s *redis.Server) (string, error) {
	before := fmt.Sprint(s.Do(b.t, "DBSIZE"))
	// The key ends with the incarnation of the data, which the nodes share.
	key := strings.Trim(fmt.Sprint(s.Do(b.t, "KEYS", "epoch:{tidemark}:*")), "[]")
	epoch := s.Do(b.t, "HGETALL", key)
	s.Do(b.t, "FLUSHALL")
	deadline := time.Now().Add(20 * time.Second)
	for ; time.Now().Before(deadline); pause(b.ctx, 50*time.Millisecond) {
		reply, err := s.Ask("HGETALL", key)
		after := fmt.Sprint(reply)
		if err == nil && after != "[]" && after != fmt.Sprint(epoch) && before != "0" {
			return "it forgot " + before + " keys, and the nodes made another epoch", nil
		}
	}
	return "", nil
}

// field returns a field of INFO.
func field(s *redis.Server, section, name string) string {
	reply, _ := s.Ask("INFO", section)
	for line := range strings.Lines(fmt.Sprint(reply)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			return value
		}
	}
	return ""
}

// exchange sends a request to an address, and returns how long the first byte of the answer took.
func exchange(address, say string, atMost time.Duration) (time.Duration, error) {
	began := time.Now()
	conn, err := net.DialTimeout("tcp", address, atMost)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if err := errors.Join(conn.SetDeadline(began.Add(atMost)), write(conn, say)); err != nil {
		return 0, err
	}
	_, err = conn.Read(make([]byte, 1))
	return time.Since(began), err
}

func write(to io.Writer, text string) error {
	_, err := io.WriteString(to, text)
	return err
}

// between returns a random duration between two numbers of seconds.
func between(r *rand.Rand, least, most float64) time.Duration {
	return time.Duration((least +
		r.Float64()*(most-least)) * float64(time.Second)).Round(time.Millisecond)
}
