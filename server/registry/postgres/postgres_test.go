package postgres_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	registrypostgres "github.com/tidemark-im/tidemark/server/registry/postgres"
	"github.com/tidemark-im/tidemark/server/registry/registrytest"
	"github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// migrated returns an empty database.
func migrated(t testing.TB) string {
	t.Helper()
	url := service.Shared(t).Database(t)
	if err := postgres.Migrate(t.Context(), url, postgres.Up); err != nil {
		t.Fatal(err)
	}
	return url
}

// node is a registry of a process of its own.
type node struct {
	*registrypostgres.Registry
	// complained has what Complained was called with.
	complained chan bool
}

// open returns a registry on a database.
func open(t testing.TB, url string, data tidemark.Incarnation) node {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := store.Peers(t.Context(), registrypostgres.Connections)
	if err != nil {
		t.Fatal(err)
	}
	if data == "" {
		data = store.Incarnation()
	}
	n := node{complained: make(chan bool, 100)}
	n.Registry = registrypostgres.New(registrypostgres.Config{
		Pool: pool, Data: data, Address: "here:1", CallTime: 20 * time.Second,
		Complained: func(_ registry.Node, complained bool) { n.complained <- complained },
	})
	n.Start()
	t.Cleanup(func() {
		n.Stop()
		pool.Close()
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return n
}

func TestRegistry(t *testing.T) {
	// The tests wait for leases to expire, so they run in parallel.
	together := func(t *testing.T, test func(*testing.T)) { t.Parallel(); test(t) }
	registrytest.Run(t, together,
		func(t *testing.T) registrytest.Registry { return open(t, migrated(t), "") })
}

// turns is a registry of two processes, which take turns with the calls.
type turns struct {
	nodes [2]node
	calls *atomic.Int64
}

func (w turns) next() node { return w.nodes[w.calls.Add(1)%2] }

func (w turns) Epoch(ctx context.Context) (registry.Epoch, error) { return w.next().Epoch(ctx) }

func (w turns) Open(ctx context.Context, r registry.LeaseRequest) (registry.Opened, error) {
	return w.next().Open(ctx, r)
}

func (w turns) Close(ctx context.Context, lease registry.Lease, proof *registry.Epoch) error {
	return w.next().Close(ctx, lease, proof)
}

func (w turns) Refresh(
	ctx context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	return w.next().Refresh(ctx, node, nodeTTL, leases, ttl)
}

func (w turns) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	return w.next().Lookup(ctx, users)
}

func (w turns) Join(ctx context.Context, node registry.Node, ttl time.Duration) error {
	return w.next().Join(ctx, node, ttl)
}

func (w turns) Leave(ctx context.Context, node registry.Node) error {
	return w.next().Leave(ctx, node)
}

func TestRegistry_of_two_processes(t *testing.T) {
	together := func(t *testing.T, test func(*testing.T)) { t.Parallel(); test(t) }
	registrytest.Run(t, together, func(t *testing.T) registrytest.Registry {
		url := migrated(t)
		return turns{[2]node{open(t, url, ""), open(t, url, "")}, new(atomic.Int64)}
	})
}

const long = time.Hour

func (n node) join(t *testing.T, id tidemark.NodeID, boot string) registry.Node {
	t.Helper()
	of := registry.Node{ID: id, Boot: boot}
	if err := n.Join(t.Context(), of, long); err != nil {
		t.Fatal(err)
	}
	return of
}

// refresh sends a heartbeat, and returns what it found and whether there were complaints.
func (n node) refresh(t *testing.T, of registry.Node) (registry.Refreshed, bool) {
	t.Helper()
	refreshed, err := n.Refresh(t.Context(), of, long, nil, long)
	if err != nil {
		t.Fatal(err)
	}
	return refreshed, <-n.complained
}

func bob(at registry.Node) registry.LeaseRequest {
	return registry.LeaseRequest{TTL: long, Lease: registry.Lease{
		User: "bob", Device: "phone", Session: "s", Node: at.ID, Boot: at.Boot,
	}}
}

// A registry of another life of the data knows no lease, no node and no proof of this one.
func TestRegistry_restore_is_noticed(t *testing.T) {
	url := migrated(t)
	before := open(t, url, "before")
	a := before.join(t, "a", "1")
	if _, err := before.Open(t.Context(), bob(a)); err != nil {
		t.Fatal(err)
	}
	old, err := before.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after := open(t, url, "after")
	err = after.Join(t.Context(), registry.Node{ID: "b", Boot: "0"}, long)
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("Join of a node whose data are not the newest: %v", err)
	}
	found, err := before.Lookup(t.Context(), []tidemark.UserID{"bob"})
	if err != nil || len(found[0]) != 1 {
		t.Errorf("data that are not the newest left the leases %v, %v", found, err)
	}
	exec(t, connect(t, url), "INSERT INTO lives (number, id, identity) VALUES (99, 'after', '')")
	if now, err := after.Epoch(t.Context()); err != nil || now == old {
		t.Errorf("the epoch was %v, and is %v, %v", old, now, err)
	}
	found, err = after.Lookup(t.Context(), []tidemark.UserID{"bob"})
	if err != nil || len(found[0]) != 0 {
		t.Errorf("after the restore there are the leases %v, %v", found, err)
	}
	b := after.join(t, "b", "1")
	err = before.Join(t.Context(), a, long)
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("Join of a node with the data from before the restore: %v", err)
	}
	if refreshed, _ := after.refresh(t, b); len(refreshed.Nodes) != 1 {
		t.Errorf("after the restore there are the nodes %v", refreshed.Nodes)
	}
}

// A database that crashed has lost all, and that is another incarnation.
func TestRegistry_of_a_database_that_crashed(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	url := server.Database(t)
	if err := postgres.Migrate(t.Context(), url, postgres.Up); err != nil {
		t.Fatal(err)
	}
	r := open(t, url, "")
	a := r.join(t, "a", "1")
	before, err := r.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := r.Open(t.Context(), bob(a))
	if err != nil || opened.Leases != 1 {
		t.Fatal(opened, err)
	}
	server.Kill(t)
	server.Run(t)
	wait.Until(t, "the database answers again", func() bool {
		_, err := r.Refresh(t.Context(), a, long, nil, long)
		return tidemark.CodeOf(err) == tidemark.NotFound
	})
	wait.Until(t, "the leases are lost", func() bool {
		found, err := r.Lookup(t.Context(), []tidemark.UserID{"bob"})
		return err == nil && len(found[0]) == 0
	})
	wait.Until(t, "the epoch is another one", func() bool {
		now, err := r.Epoch(t.Context())
		return err == nil && now.Incarnation != before.Incarnation
	})
	// This life joins again: another node may have seen the new incarnation already.
	now, err := r.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.join(t, "a", "1")
	if again, err := r.Epoch(t.Context()); err != nil || again == now {
		t.Errorf("the node joined again, and the epoch is %v, as before; %v", again, err)
	}
}

// TestComplain: the node that others did not reach finds it once, with its next heartbeat.
func TestComplain(t *testing.T) {
	url := migrated(t)
	one, two := open(t, url, ""), open(t, url, "")
	a, b := one.join(t, "a", "1"), two.join(t, "b", "1")
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nobody", func() { one.refresh(t, a) }, false},
		{"another life of it", func() {
			one.Complain(registry.Node{ID: "b", Boot: "0"})
			one.refresh(t, a)
		}, false},
		{"a node", func() { one.Complain(b); one.refresh(t, a) }, true},
		{"no more", func() {}, false},
		{"a node that leaves", func() {
			one.Complain(b)
			if err := one.Leave(t.Context(), a); err != nil {
				t.Error(err)
			}
		}, true},
	} {
		step.do()
		if _, got := two.refresh(t, b); got != step.want {
			t.Errorf("%s complains: %v, want %v", step.name, got, step.want)
		}
	}
}

// TestComplain_until_it_is_written: complaints wait for a heartbeat that succeeds.
func TestComplain_until_it_is_written(t *testing.T) {
	url := migrated(t)
	one, two := open(t, url, ""), open(t, url, "")
	a, b := one.join(t, "a", "1"), two.join(t, "b", "1")
	one.Complain(b)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := one.Refresh(cancelled, a, long, nil, long)
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("a heartbeat that failed: %v", err)
	}
	one.refresh(t, a)
	if _, got := two.refresh(t, b); !got {
		t.Error("the complaint was lost")
	}
}

func TestFind(t *testing.T) {
	url := migrated(t)
	one, two := open(t, url, ""), open(t, url, "")
	a := one.join(t, "a", "1")
	for what, find := range map[string]func(context.Context, registry.Node) (string, error){
		"Find": two.Find, "Address": two.Address,
	} {
		if address, err := find(t.Context(), a); err != nil || address != "here:1" {
			t.Errorf("%s: %q, %v", what, address, err)
		}
		for _, n := range []registry.Node{{ID: "a", Boot: "2"}, {ID: "b", Boot: "1"}} {
			if _, err := find(t.Context(), n); tidemark.CodeOf(err) != tidemark.NotFound {
				t.Errorf("%s of %v: %v", what, n, err)
			}
		}
	}
	if err := one.Leave(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Find(t.Context(), a); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("after it left: %v", err)
	}
}

// TestRefresh_removes_old_rows: rows without a lease and a proof do not stay.
func TestRefresh_removes_old_rows(t *testing.T) {
	url := migrated(t)
	r := open(t, url, "")
	a := r.join(t, "a", "1")
	e, err := r.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for user, proof := range map[tidemark.UserID]*registry.Epoch{
		"ann": nil, "bob": &e, "cid": nil, "dan": nil,
	} {
		q := bob(a)
		q.Lease.User = user
		if _, err := r.Open(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if user == "dan" {
			continue
		}
		if err := r.Close(t.Context(), q.Lease, proof); err != nil {
			t.Fatal(err)
		}
	}
	r.refresh(t, a)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	var left []string
	err = c.QueryRow(t.Context(), "SELECT array_agg(user_id ORDER BY user_id) FROM leases").
		Scan(&left)
	if err != nil || !slices.Equal(left, []string{"bob", "dan"}) {
		t.Errorf("the rows %v are left, %v; want those of a proof and a lease", left, err)
	}
}
