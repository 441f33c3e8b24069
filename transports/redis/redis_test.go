package redis_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	client "github.com/tidemark-im/tidemark/internal/redis"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/redis"
)

// open returns a node's client of Redis, which is closed when the test ends.
func open(t *testing.T, url string) *client.Client {
	return openWith(t, client.Config{URL: url})
}

// patient is open for a test that can't repeat a call, which may have had its effect.
func patient(t *testing.T, url string) *client.Client {
	return openWith(t, client.Config{URL: url, Timeout: time.Minute})
}

func openWith(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// node holds the tickets of a node, which runs until the test ends or kill.
type node struct {
	*redis.Tickets
	kill func()
}

func start(t *testing.T, url string, ttl, resume time.Duration) node {
	t.Helper()
	return startOn(t, open(t, url), ttl, resume)
}

func startOn(t *testing.T, c *client.Client, ttl, resume time.Duration) node {
	t.Helper()
	n := node{
		Tickets: redis.NewTickets(redis.TicketsConfig{Client: c, TTL: ttl, ResumeWindow: resume}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	n.kill = func() { cancel(); running.Wait() }
	t.Cleanup(n.kill)
	return n
}

// until calls f until it reports true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	wait.Until(t, what, f)
}

// stays calls f repeatedly for d, and fails the test if it returns false.
func stays(t *testing.T, what string, d time.Duration, f func() bool) {
	t.Helper()
	deadline := time.After(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for f() {
		select {
		case <-deadline:
			return
		case <-tick.C:
		}
	}
	t.Fatalf("%s: no more", what)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestShared_everywhere runs the tests of tickets and rates on one Redis and on a cluster.
func TestShared_everywhere(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func() string{
		"one":     func() string { return service.Database(t) },
		"cluster": func() string { return service.StartCluster(t).URL() },
	} {
		url := start()
		t.Run(name, func(t *testing.T) {
			t.Run("tickets open one session on any node once",
				func(t *testing.T) { oneSession(t, url) })
			t.Run("rates have one bucket of each user", func(t *testing.T) { oneBucket(t, url) })
		})
	}
}

// contents returns all that a Redis holds, as a text.
func contents(t *testing.T, s *service.Server) string {
	t.Helper()
	var all strings.Builder
	keys, _ := s.Do(t, "KEYS", "*").([]any)
	for _, key := range keys {
		name, _ := key.(string)
		all.WriteString(name + " ")
		fields, _ := s.Do(t, "HGETALL", name).([]any)
		for _, field := range fields {
			text, _ := field.(string)
			all.WriteString(text + " ")
		}
	}
	return all.String()
}
