package redis_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	registryredis "github.com/tidemark-im/tidemark/server/registry/redis"
	"github.com/tidemark-im/tidemark/server/registry/registrytest"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
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
	return openFor(t, url, redis.DefaultTimeout)
}

// patient is open for a Redis that always answers, however busy the machine is.
func patient(t testing.TB, url string) *registryredis.Registry {
	t.Helper()
	r, _ := openFor(t, url, wait.Hang)
	return r
}

// openFor is openWith with a client that waits for an answer for a time.
func openFor(
	t testing.TB, url string, timeout time.Duration,
) (*registryredis.Registry, *redis.Client) {
	t.Helper()
	client, err := redis.Open(redis.Config{URL: url, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	r := registryredis.New(client, "db")
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
		func(t *testing.T) registrytest.Registry { return patient(t, service.Database(t)) })
}

func TestRegistry_behind_sentinels(t *testing.T) {
	t.Parallel()
	watched := service.StartSentinel(t)
	registrytest.Run(t, nil, func(t *testing.T) registrytest.Registry {
		watched.Master.Do(t, "FLUSHALL")
		return patient(t, watched.URL())
	})
}

func TestRegistry_on_a_cluster(t *testing.T) {
	t.Parallel()
	cluster := service.StartCluster(t)
	registrytest.Run(t, nil, func(t *testing.T) registrytest.Registry {
		for _, shard := range cluster.Shards {
			shard.Master.Do(t, "FLUSHALL")
		}
		return patient(t, cluster.URL())
	})
}

// A registry for another incarnation of the data knows no lease and no proof of this one.
func TestRegistry_restore_is_noticed(t *testing.T) {
	t.Parallel()
	url := service.Database(t)
	w := newNodePair(t, url)
	w.open(w.a, lease(node("a"), "bob", "s1"))
	client, err := redis.Open(redis.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	after := registryredis.New(client, "restored")
	after.Start()
	t.Cleanup(func() {
		after.Stop()
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	for name, want := range map[string]int{"before": 1, "after": 0} {
		r := map[string]*registryredis.Registry{"before": w.a, "after": after}[name]
		found, err := r.Lookup(t.Context(), []tidemark.UserID{"bob"})
		if err != nil {
			t.Fatal(err)
		}
		if len(found[0]) != want {
			t.Errorf("%s the restore there are the leases %+v, want %d", name, found[0], want)
		}
	}
}
