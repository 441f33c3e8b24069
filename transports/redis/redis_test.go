package redis_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	client "github.com/tidemark-im/tidemark/internal/redis"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/transports/internal/sharedtest"
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

// opened returns what opens the tickets of nodes on a Redis.
func opened(t *testing.T, url string) sharedtest.New {
	return openedBy(func() *client.Client { return open(t, url) })
}

// patiently is opened with patient clients.
func patiently(t *testing.T, url string) sharedtest.New {
	return openedBy(func() *client.Client { return patient(t, url) })
}

func openedBy(c func() *client.Client) sharedtest.New {
	return func(ttl, resume time.Duration) sharedtest.Tickets {
		return redis.NewTickets(redis.TicketsConfig{Client: c(), TTL: ttl, ResumeWindow: resume})
	}
}

// start starts a node.
func start(t *testing.T, url string, ttl, resume time.Duration) sharedtest.Node {
	t.Helper()
	return sharedtest.Start(t, opened(t, url)(ttl, resume))
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
				func(t *testing.T) { sharedtest.OneSession(t, patiently(t, url)) })
			t.Run("rates have one bucket of each user", func(t *testing.T) {
				sharedtest.OneBucket(t, redis.NewRates(patient(t, url)),
					redis.NewRates(patient(t, url)))
			})
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
