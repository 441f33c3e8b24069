package redis_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/bustest"
	busredis "github.com/tidemark-im/tidemark/server/bus/redis"
	"github.com/tidemark-im/tidemark/server/registry"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a bus on a Redis.
func open(t *testing.T, url string) *busredis.Bus {
	t.Helper()
	return openFor(t, url, redis.DefaultTimeout)
}

// patient is open for a Redis that always answers, however busy the machine is.
func patient(t *testing.T, url string) *busredis.Bus {
	t.Helper()
	return openFor(t, url, wait.Hang)
}

func openFor(t *testing.T, url string, timeout time.Duration) *busredis.Bus {
	t.Helper()
	client, err := redis.Open(redis.Config{URL: url, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	b := busredis.New(client)
	b.Start()
	t.Cleanup(func() {
		b.Stop()
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// apart is a bus with publishers in one process and nodes in another.
type apart struct{ publishes, subscribes *busredis.Bus }

func (a apart) Subscribe(
	ctx context.Context, node registry.Node, s bus.Subscriber,
) (func(), error) {
	return a.subscribes.Subscribe(ctx, node, s)
}

func (a apart) Publish(ctx context.Context, publications []bus.Publication) []error {
	return a.publishes.Publish(ctx, publications)
}

// suite runs the suite within one process, and between two.
func suite(t *testing.T, url string) {
	t.Run("one process", func(t *testing.T) {
		bustest.Run(t, func(t *testing.T) bus.Bus { return patient(t, url) })
	})
	t.Run("two processes", func(t *testing.T) {
		bustest.Run(t, func(t *testing.T) bus.Bus {
			return apart{patient(t, url), patient(t, url)}
		})
	})
}

func TestBus(t *testing.T) { suite(t, service.Database(t)) }

func TestBus_behind_sentinels(t *testing.T) {
	t.Parallel()
	suite(t, service.StartSentinel(t).URL())
}

func TestBus_on_a_cluster(t *testing.T) {
	t.Parallel()
	suite(t, service.StartCluster(t).URL())
}
