package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	registryredis "github.com/tidemark-im/tidemark/server/registry/redis"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

// Redis may lose all data, come back with old data, or hang. Then no earlier proof is trusted, a
// node without a lease learns so, and no call hangs.

const long = time.Hour

func node(id tidemark.NodeID) registry.Node { return registry.Node{ID: id, Boot: "1"} }

func lease(n registry.Node, user tidemark.UserID, session tidemark.SessionID) registry.Lease {
	return registry.Lease{User: user, Device: "phone", Node: n.ID, Boot: n.Boot, Session: session}
}

// nodePair is two nodes, each with a Registry of its own, on one Redis.
type nodePair struct {
	*testing.T
	a, b *registryredis.Registry
}

func newNodePair(t *testing.T, url string) *nodePair {
	t.Helper()
	w := &nodePair{t, open(t, url), open(t, url)}
	// A Join that is repeated may raise the epoch, which nobody has read yet.
	for id, r := range map[tidemark.NodeID]*registryredis.Registry{"a": w.a, "b": w.b} {
		w.eventually("Join", func() error { return r.Join(w.Context(), node(id), long) })
	}
	return w
}

func (w *nodePair) join(r *registryredis.Registry, id tidemark.NodeID) {
	w.Helper()
	if err := r.Join(w.Context(), node(id), long); err != nil {
		w.Fatalf("Join(%s): %v", id, err)
	}
}

func (w *nodePair) epoch(r *registryredis.Registry) registry.Epoch {
	w.Helper()
	e, err := r.Epoch(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return e
}

func (w *nodePair) open(r *registryredis.Registry, l registry.Lease) registry.Opened {
	w.Helper()
	opened, err := r.Open(w.Context(), registry.LeaseRequest{Lease: l, TTL: long})
	if err != nil {
		w.Fatalf("Open(%v): %v", l, err)
	}
	return opened
}

// visit opens and closes a session of bob on a, which leaves a proof. It returns the epoch that the
// proof names.
func (w *nodePair) visit() registry.Epoch {
	w.Helper()
	e, l := w.epoch(w.a), lease(node("a"), "bob", "s1")
	w.open(w.a, l)
	if err := w.a.Close(w.Context(), l, &e); err != nil {
		w.Fatal(err)
	}
	return e
}

// wantWorthless opens a session of bob on b, and fails the test if that finds a valid proof.
func (w *nodePair) wantWorthless(what string) {
	w.Helper()
	before := w.epoch(w.b)
	if opened := w.open(w.b, lease(node("b"), "bob", "s2")); opened.Proof != nil &&
		*opened.Proof == before {
		w.Errorf("%s: the proof %v is of the present epoch", what, *opened.Proof)
	}
}

// eventually repeats do until it succeeds.
func (w *nodePair) eventually(what string, do func() error) {
	w.Helper()
	deadline := time.Now().Add(wait.Hang)
	for {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: %v", what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// rejoin refreshes both nodes, and joins those that have no lease, as the core does.
func (w *nodePair) rejoin() {
	w.Helper()
	for id, r := range map[tidemark.NodeID]*registryredis.Registry{"a": w.a, "b": w.b} {
		w.eventually("Refresh", func() error {
			_, err := r.Refresh(w.Context(), node(id), long, nil, long)
			if tidemark.CodeOf(err) == tidemark.NotFound {
				return r.Join(w.Context(), node(id), long)
			}
			return err
		})
	}
}

func TestProof_goes_from_node_to_node(t *testing.T) {
	w := newNodePair(t, service.Database(t))
	e := w.visit()
	if opened := w.open(w.b, lease(node("b"), "bob", "s2")); opened.Proof == nil ||
		*opened.Proof != e || *opened.Proof != w.epoch(w.b) {
		t.Errorf("%+v, want the proof %v", opened, e)
	}
}

func TestProof_of_another_life_of_Redis_is_worth_nothing(t *testing.T) {
	for name, fault := range map[string]func(*testing.T, *service.Server){
		"restarted empty": func(t *testing.T, s *service.Server) { s.Kill(t); s.RunEmpty(t) },
		"restarted with all": func(t *testing.T, s *service.Server) {
			s.Do(t, "SAVE")
			s.Kill(t)
			s.Run(t)
		},
		"emptied": func(t *testing.T, s *service.Server) { s.Do(t, "FLUSHALL") },
		"keys of the nodes lost": func(t *testing.T, s *service.Server) {
			s.Do(t, "DEL", "epoch:{tidemark}:db", "nodes:{tidemark}:db")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := service.Start(t)
			w := newNodePair(t, server.URL())
			e := w.visit()
			fault(t, server)
			w.rejoin()
			if now := w.epoch(w.b); now.Incarnation == e.Incarnation {
				t.Errorf("the epoch was %v, and %v is of the same incarnation", e, now)
			}
			w.wantWorthless(name)
		})
	}
}

// A stale replica brings back a proof that was consumed. The session that consumed it may have been
// notified since of messages without a row.
func TestProof_that_was_consumed_does_not_come_back_with_a_stale_replica(t *testing.T) {
	t.Parallel()
	watched := service.StartSentinel(t)
	w := newNodePair(t, watched.URL())
	e := w.visit()
	watched.Pair.Detach(t)
	l := lease(node("a"), "bob", "s3")
	if opened := w.open(w.a, l); opened.Proof == nil || *opened.Proof != e {
		t.Fatalf("%+v, want the proof", opened)
	}
	watched.FailOver(t)
	w.rejoin()
	if found := w.replica(watched.Pair.Master); !strings.Contains(found, "proof") {
		t.Fatalf("the replica knew of it: %q", found)
	}
	w.wantWorthless("stale replica")
}

// replica returns the fields of bob's key on a replica.
func (w *nodePair) replica(s *service.Server) string {
	w.Helper()
	fields, _ := s.Do(w, "HKEYS", "ws:db:bob").([]any)
	var names []string
	for _, field := range fields {
		name, _ := field.(string)
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// On a cluster, servers fail over one by one. The server with the epoch may stay, and the next look
// at all servers is seconds away.
func TestProof_that_was_consumed_does_not_come_back_with_a_stale_shard(t *testing.T) {
	t.Parallel()
	cluster := service.StartCluster(t)
	w := newNodePair(t, cluster.URL())
	e := w.visit()
	shard := cluster.Shard(t, "ws:db:bob")
	if shard == cluster.Shard(t, "epoch:{tidemark}:db") {
		t.Fatal("bob is on the shard of the nodes, which the test is not about: use another name")
	}
	shard.Detach(t)
	if opened := w.open(w.a, lease(node("a"), "bob", "s3")); opened.Proof == nil ||
		*opened.Proof != e {
		t.Fatalf("%+v, want the proof", opened)
	}
	cluster.FailOver(t, shard)
	if found := w.replica(shard.Master); !strings.Contains(found, "proof") {
		t.Fatalf("the replica knew of it: %q", found)
	}
	// There was no refresh, so b still has the old list of servers.
	var opened registry.Opened
	before := w.epoch(w.b)
	w.eventually("Open on the new master", func() (err error) {
		opened, err = w.b.Open(t.Context(), registry.LeaseRequest{
			Lease: lease(node("b"), "bob", "s2"),
			TTL:   long,
		})
		return err
	})
	if opened.Proof != nil && *opened.Proof == before {
		t.Errorf("the proof %v came back", *opened.Proof)
	}
	if before != e {
		t.Errorf("the epoch was %v and is %v: somebody looked, and the test shows nothing",
			e, before)
	}
	w.rejoin()
	if now := w.epoch(w.b); now == e {
		t.Errorf("a shard was failed over, and after a refresh the epoch is still %v", now)
	}
}

func TestScripts_that_Redis_forgot_are_taught_again(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	w := newNodePair(t, server.URL())
	for range 2 {
		server.Do(t, "SCRIPT", "FLUSH")
		e := w.visit()
		if opened := w.open(w.b, lease(node("b"), "bob", "s2")); opened.Proof == nil ||
			*opened.Proof != e {
			t.Errorf("%+v, want the proof", opened)
		}
		if err := w.b.Close(t.Context(), lease(node("b"), "bob", "s2"), nil); err != nil {
			t.Error(err)
		}
	}
}

// A node whose lease was lost with all data learns so from its next refresh. When it joins again,
// the epoch rises, because it may have stored messages that it could not publish.
func TestRefresh_after_Redis_forgot_says_so(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	w := newNodePair(t, server.URL())
	l := lease(node("a"), "bob", "s1")
	w.open(w.a, l)
	server.Do(t, "FLUSHALL")
	if _, err := w.a.Refresh(
		t.Context(), node("a"), long, []registry.Lease{l}, long,
	); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("Refresh: %v, want %s", err, tidemark.NotFound)
	}
	before := w.epoch(w.b)
	w.join(w.a, "a")
	if now := w.epoch(w.b); now == before {
		t.Errorf("a joined again, and b sees the epoch %v as before", now)
	}
	got, err := w.a.Refresh(t.Context(), node("a"), long, []registry.Lease{l}, long)
	if err != nil || len(got.Lost) != 1 {
		t.Errorf("Refresh: %+v, %v, want the lease lost", got, err)
	}
}

// If someone overwrites a key of the nodes, the registry counts as emptied. It recovers by itself,
// and no earlier proof is valid.
func TestNodes_whose_keys_were_overwritten_come_back(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	for _, over := range [][]string{
		{"SET", "epoch:{tidemark}:db", "x"}, {"RPUSH", "nodes:{tidemark}:db", "x"},
	} {
		w := newNodePair(t, server.URL())
		w.visit()
		server.Do(t, "DEL", over[1])
		server.Do(t, over...)
		w.rejoin()
		w.wantWorthless(over[1])
	}
}

// Calls to a Redis that hangs end in bounded time, even many at once. They work again when Redis
// does.
func TestCalls_to_a_Redis_that_hangs_end(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	w := newNodePair(t, server.URL())
	l := lease(node("a"), "bob", "s1")
	w.open(w.a, l)
	server.Freeze(t)
	calls := map[string]func() error{
		"Epoch": func() error { _, err := w.a.Epoch(t.Context()); return err },
		"Open": func() error {
			_, err := w.a.Open(t.Context(), registry.LeaseRequest{
				Lease: lease(node("a"), "eve", "s2"),
				TTL:   long,
			})
			return err
		},
		"Close": func() error { return w.a.Close(t.Context(), l, nil) },
		"Lookup": func() error {
			_, err := w.a.Lookup(t.Context(), []tidemark.UserID{"bob"})
			return err
		},
		"Refresh": func() error {
			_, err := w.a.Refresh(t.Context(), node("a"), long, []registry.Lease{l}, long)
			return err
		},
		"Join":  func() error { return w.a.Join(t.Context(), node("a"), long) },
		"Leave": func() error { return w.a.Leave(t.Context(), node("a")) },
	}
	var all sync.WaitGroup
	for what, call := range calls {
		for range 20 {
			all.Go(func() {
				began := time.Now()
				if err := call(); tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Errorf("%s: %v, want %s", what, err, tidemark.Unavailable)
				}
				if took := time.Since(began); took > wait.Hang {
					t.Errorf("%s took %v", what, took)
				}
			})
		}
	}
	all.Wait()
	server.Thaw(t)
	w.rejoin()
	w.eventually("Lookup",
		func() error { _, err := w.a.Lookup(t.Context(), []tidemark.UserID{"bob"}); return err })
}

// While Redis is killed again and again, each call returns an answer or Unavailable. Afterwards the
// registry has what was answered.
func TestCalls_while_Redis_is_killed(t *testing.T) {
	t.Parallel()
	server := service.Start(t, "appendonly yes", "appendfsync always")
	w := newNodePair(t, server.URL())
	var all sync.WaitGroup
	stop := make(chan struct{})
	users := []tidemark.UserID{"u0", "u1", "u2", "u3"}
	opened := make([]registry.Lease, len(users)) // the last one that was answered; zero if unknown
	for i, user := range users {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				l := lease(node("a"), user, tidemark.SessionID(strings.Repeat("s", n%20+1)))
				_, err := w.a.Open(t.Context(), registry.LeaseRequest{Lease: l, TTL: long})
				switch tidemark.CodeOf(err) {
				case "":
					opened[i] = l
				case tidemark.Unavailable:
					opened[i] = registry.Lease{}
				case tidemark.NotFound:
					if err := w.a.Join(t.Context(), node("a"), long); err != nil &&
						tidemark.CodeOf(err) != tidemark.Unavailable {
						t.Error(err)
					}
				default:
					t.Errorf("Open: %v", err)
				}
			}
		})
	}
	for range 5 {
		<-time.After(50 * time.Millisecond)
		server.Kill(t)
		server.Run(t)
	}
	w.eventually("Open", func() error {
		_, err := w.a.Open(t.Context(), registry.LeaseRequest{
			Lease: lease(node("a"), "eve", "s"),
			TTL:   long,
		})
		return err
	})
	<-time.After(300 * time.Millisecond)
	close(stop)
	all.Wait()
	found, err := w.b.Lookup(t.Context(), users)
	if err != nil {
		t.Fatal(err)
	}
	for i := range users {
		if want := []registry.Lease{opened[i]}; opened[i].User == "" ||
			cmp.Diff(want, found[i]) != "" {
			t.Errorf("%s: %v, want %v", users[i], found[i], want)
		}
	}
}

// A cluster without one shard serves the users of the others.
func TestLookup_on_a_cluster_without_a_shard(t *testing.T) {
	t.Parallel()
	cluster := service.StartCluster(t)
	w := newNodePair(t, cluster.URL())
	down := cluster.Shard(t, "ws:db:bob")
	var other tidemark.UserID
	for _, user := range []tidemark.UserID{"alice", "carol", "dave", "eve", "frank", "grace"} {
		if cluster.Shard(t, "ws:db:"+string(user)) != down &&
			cluster.Shard(t, "epoch:{tidemark}:db") != down {
			other = user
		}
	}
	if other == "" {
		t.Fatal("all are on one shard: call them something else")
	}
	l := lease(node("a"), other, "s1")
	w.open(w.a, l)
	down.Master.Freeze(t)
	defer down.Master.Thaw(t)
	if _, err := w.a.Lookup(
		t.Context(), []tidemark.UserID{"bob"},
	); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("bob: %v, want %s", err, tidemark.Unavailable)
	}
	w.eventually("Lookup", func() error {
		found, err := w.a.Lookup(t.Context(), []tidemark.UserID{other})
		if err == nil && (len(found[0]) != 1 || found[0][0] != l) {
			t.Errorf("%s: %v, want %v", other, found, l)
		}
		return err
	})
}

// A node's lease does not expire while the node finds out which of its many leases cannot be
// prolonged.
func TestRefresh_on_a_cluster_with_a_shard_that_hangs(t *testing.T) {
	t.Parallel()
	cluster := service.StartCluster(t)
	w := newNodePair(t, cluster.URL())
	down := cluster.Shard(t, "ws:db:bob")
	if cluster.Shard(t, "epoch:{tidemark}:db") == down {
		t.Fatal("bob is on the shard of the nodes: use another name")
	}
	leases := make([]registry.Lease, 5_000)
	for i := range leases {
		leases[i] = lease(node("a"), tidemark.UserID(fmt.Sprint("u", i)), "s1")
	}
	down.Replica.Freeze(t)
	defer down.Replica.Thaw(t)
	down.Master.Freeze(t)
	defer down.Master.Thaw(t)
	const ttl = 6 * time.Second
	_, err := w.a.Refresh(t.Context(), node("a"), ttl, leases, long)
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("%v, want %s", err, tidemark.Unavailable)
	}
	other, err := w.b.Refresh(t.Context(), node("b"), long, nil, long)
	if err != nil || !slices.Contains(other.Nodes, node("a")) {
		t.Errorf("afterwards the nodes are %v, %v, without a", other.Nodes, err)
	}
}

// Redis decides by its own clock whether a node has its lease. A process that was suspended does
// not know that its lease has expired.
func TestOpen_is_refused_by_Redis_own_clock(t *testing.T) {
	server := service.Start(t)
	r := open(t, server.URL())
	if err := r.Join(t.Context(), node("a"), long); err != nil {
		t.Fatal(err)
	}
	l := lease(node("a"), "bob", "s1")
	if _, err := r.Open(t.Context(), registry.LeaseRequest{Lease: l, TTL: long}); err != nil {
		t.Fatal(err)
	}
	// Hours pass for Redis alone.
	registryredis.Age(r, node("a").ID)
	if _, err := r.Open(
		t.Context(), registry.LeaseRequest{Lease: lease(node("a"), "eve", "s2"), TTL: long},
	); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("Open: %v, want %s", err, tidemark.NotFound)
	}
	if err := r.Close(t.Context(), l, nil); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("Close: %v, want %s", err, tidemark.NotFound)
	}
	found, err := r.Lookup(t.Context(), []tidemark.UserID{"eve", "bob"})
	if err != nil || len(found[0]) != 0 || len(found[1]) != 1 {
		t.Errorf("leases %v, %v, want that of bob as it was", found, err)
	}
}

// A second Join raises the epoch even if Redis does not know the node. The node may have been on
// the other side of a partition.
func TestJoin_again_raises_whatever_Redis_remembers(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	w := newNodePair(t, server.URL())
	server.Do(t, "HDEL", "nodes:{tidemark}:db", "a")
	before := w.epoch(w.b)
	w.join(w.a, "a")
	if now := w.epoch(w.b); now == before {
		t.Errorf("the epoch is still %v", now)
	}
	if err := w.a.Leave(t.Context(), node("a")); err != nil {
		t.Fatal(err)
	}
	before = w.epoch(w.b)
	w.join(w.a, "a")
	if now := w.epoch(w.b); now != before {
		t.Errorf("after a clean leave the epoch went from %v to %v", before, now)
	}
}

// A session that moved is neither closed nor refreshed here. Its entry goes when its lease expires.
func TestHeld_forgets_what_ran_out(t *testing.T) {
	t.Parallel()
	w := newNodePair(t, service.Database(t))
	const short = 50 * time.Millisecond
	for range 10 {
		if _, err := w.a.Open(
			t.Context(), registry.LeaseRequest{Lease: lease(node("a"), "bob", "moved"), TTL: short},
		); err != nil {
			t.Fatal(err)
		}
		if _, err := w.a.Open(
			t.Context(), registry.LeaseRequest{Lease: lease(node("a"), "eve", "moved"), TTL: short},
		); err != nil {
			t.Fatal(err)
		}
	}
	// This one does not expire.
	w.open(w.a, lease(node("a"), "carol", "stays"))
	w.eventually("they are forgotten", func() error {
		if _, err := w.a.Refresh(t.Context(), node("a"), long, nil, short); err != nil {
			return err
		}
		if n := registryredis.Held(w.a); n != 1 {
			return fmt.Errorf("%d leases are held, want 1", n)
		}
		return nil
	})
}
