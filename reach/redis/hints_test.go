package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	client "github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/reach/redis"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is one of several that share a Redis.
type process struct {
	*redis.Hints
	mu  sync.Mutex
	got map[string]int
}

func start(t *testing.T, url string) *process {
	t.Helper()
	c, err := client.Open(client.Config{URL: url, Timeout: wait.Hang})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Hints: redis.New(c), got: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		p.Run(ctx, func(hint string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.got[hint]++
		})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = c.Close()
	})
	return p
}

func (p *process) has(hint string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[hint] > 0
}

// reaches sends a hint until the other process has one: the first ones may come before its
// subscription.
func (p *process) reaches(t *testing.T, other *process, hint string) {
	t.Helper()
	wait.Until(t, "the hint of "+hint+" arrives", func() bool {
		p.Send(hint)
		return other.has(hint)
	})
}

// TestHints_reach_other_processes: a process gets the hints of others, and all of many that are
// sent at once, also over a cluster.
func TestHints_reach_other_processes(t *testing.T) {
	for name, url := range map[string]func() string{
		"one":     func() string { return service.Database(t) },
		"cluster": func() string { return service.StartCluster(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			at := url()
			one, other := start(t, at), start(t, at)
			one.reaches(t, other, "a")
			one.reaches(t, other, "c/") // A hint of the other kind.
			other.reaches(t, one, "b")
			const many = 2_345
			for n := range many {
				one.Send(fmt.Sprint("chat", n))
			}
			wait.Until(t, "all of them arrive", func() bool {
				other.mu.Lock()
				defer other.mu.Unlock()
				return len(other.got) >= many+3
			})
			published := func() int64 { return one.Counters()["outlet_hints_published_total"] }
			// A publication may arrive before its reply, which counts it.
			wait.Until(t, "all publications are counted", func() bool {
				return published() >= many/500
			})
			if n := published(); n > many/10 {
				t.Errorf("%d publications for %d hints", n, many)
			}
		})
	}
}

// TestHints_go_on_after_Redis_was_away: what is sent meanwhile is lost, and nothing later.
func TestHints_go_on_after_Redis_was_away(t *testing.T) {
	server := service.Start(t)
	one, other := start(t, server.URL()), start(t, server.URL())
	one.reaches(t, other, "a")
	server.Kill(t)
	one.Send("lost")
	server.Run(t)
	one.reaches(t, other, "c")
	other.reaches(t, one, "d")
}
