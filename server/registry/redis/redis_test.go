package redis_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/internal/redis"
	registryredis "github.com/tidemark-im/tidemark/server/registry/redis"
	"github.com/tidemark-im/tidemark/server/registry/registrytest"
	service "github.com/tidemark-im/tidemark/test/services/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a registry on a Redis.
func open(t testing.TB, url string) *registryredis.Registry {
	t.Helper()
	r, _ := openWith(t, url)
	return r
}

// openWith also returns the registry's client.
func openWith(t testing.TB, url string) (*registryredis.Registry, *redis.Client) {
	t.Helper()
	client, err := redis.Open(redis.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	r := registryredis.New(client)
	r.Start()
	t.Cleanup(func() {
		r.Stop()
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r, client
}

func TestRegistry(t *testing.T) {
	// The tests wait for leases to expire, so they run in parallel.
	together := func(t *testing.T, test func(*testing.T)) { t.Parallel(); test(t) }
	registrytest.Run(t, together,
		func(t *testing.T) registrytest.Registry { return open(t, service.Database(t)) })
}

func TestRegistry_behind_sentinels(t *testing.T) {
	t.Parallel()
	watched := service.StartSentinel(t)
	registrytest.Run(t, nil, func(t *testing.T) registrytest.Registry {
		watched.Master.Do(t, "FLUSHALL")
		return open(t, watched.URL())
	})
}

func TestRegistry_on_a_cluster(t *testing.T) {
	t.Parallel()
	cluster := service.StartCluster(t)
	registrytest.Run(t, nil, func(t *testing.T) registrytest.Registry {
		for _, shard := range cluster.Shards {
			shard.Master.Do(t, "FLUSHALL")
		}
		return open(t, cluster.URL())
	})
}
