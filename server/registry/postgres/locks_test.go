package postgres_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/test/wait"
)

// connect returns a connection of its own to a database.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t *testing.T, c *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// lockEpoch is what each change of nodes waits for.
const lockEpoch = "SELECT FROM cluster_epoch FOR UPDATE"

// holding runs call while c has a lock. When call waits for it, or has returned, holding runs the
// statements and commits.
func holding(t *testing.T, c *pgx.Conn, lock string, call func(), statements ...string) {
	t.Helper()
	exec(t, c, "BEGIN", lock)
	returned := make(chan struct{})
	go func() { defer close(returned); call() }()
	wait.Until(t, "the call waits for the lock", func() bool {
		select {
		case <-returned:
			return true
		default:
		}
		var waits bool
		exec(t, c, "SELECT pg_stat_clear_snapshot()") // else it is that of the transaction
		err := c.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity "+
			"WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits)
		return err == nil && waits
	})
	exec(t, c, statements...)
	exec(t, c, "COMMIT")
	<-returned
}

// TestFind_during_a_heartbeat: a lease that is being prolonged is not over.
func TestFind_during_a_heartbeat(t *testing.T) {
	url := migrated(t)
	one, two := open(t, url, ""), open(t, url, "")
	a, c := one.join(t, "a", "1"), connect(t, url)
	exec(t, c, "UPDATE cluster_nodes SET expires = 1")
	var address string
	var err error
	holding(t, c, lockEpoch, func() { address, err = two.Find(t.Context(), a) },
		"UPDATE cluster_nodes SET expires = 1::bigint << 50")
	if err != nil || address != "here:1" {
		t.Errorf("Find of a node whose lease was prolonged meanwhile: %q, %v", address, err)
	}
	exec(t, c, "UPDATE cluster_nodes SET expires = 1")
	if _, err := two.Find(t.Context(), a); tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("Find of a node whose lease is over: %v", err)
	}
}

// TestJoin_after_a_wait: a lease begins when the lock is there, and not before the wait for it.
func TestJoin_after_a_wait(t *testing.T) {
	url := migrated(t)
	r, c := open(t, url, ""), connect(t, url)
	r.join(t, "a", "1")
	var err error
	holding(t, c, lockEpoch, func() {
		err = r.Join(t.Context(), registry.Node{ID: "b", Boot: "1"}, time.Minute)
	}, "SELECT pg_sleep(0.1)", "CREATE TABLE waited AS SELECT clock_timestamp() AS until")
	if err != nil {
		t.Fatal(err)
	}
	var lasts float64
	err = c.QueryRow(t.Context(), "SELECT expires - extract(epoch FROM until) * 1000 "+
		"FROM cluster_nodes, waited WHERE id = 'b'").Scan(&lasts)
	if want := time.Minute.Milliseconds(); err != nil || lasts < float64(want-1) {
		t.Errorf("after the wait the lease lasts %v ms, want %d; %v", lasts, want, err)
	}
}

// TestRefresh_that_takes_long: while it prolongs leases, the node's own lease does not end.
func TestRefresh_that_takes_long(t *testing.T) {
	url := migrated(t)
	r, c := open(t, url, ""), connect(t, url)
	a := r.join(t, "a", "1")
	if _, err := r.Open(t.Context(), bob(a)); err != nil {
		t.Fatal(err)
	}
	leases := slices.Repeat([]registry.Lease{bob(a).Lease}, 1000) // in two steps
	for _, tc := range []struct {
		ttl         time.Duration
		least, most int
	}{{long, 1, 1}, {1500 * time.Millisecond, 2, 10}} {
		var err error
		holding(t, c, "SELECT FROM leases FOR UPDATE", func() {
			_, err = r.Refresh(t.Context(), a, tc.ttl, leases, long)
		}, "SELECT pg_sleep(0.5)")
		beats := len(r.complained)
		if err != nil || beats < tc.least || beats > tc.most {
			t.Errorf("with a lease of %v there were %d heartbeats, want %d to %d; %v", tc.ttl,
				beats, tc.least, tc.most, err)
		}
		for range beats {
			<-r.complained
		}
	}
}
