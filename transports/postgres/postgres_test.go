package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	store "github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/internal/sharedtest"
	"github.com/tidemark-im/tidemark/transports/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// migrated returns an empty database.
func migrated(t *testing.T) string {
	t.Helper()
	url := service.Shared(t).Database(t)
	if err := store.Migrate(t.Context(), url, store.Up); err != nil {
		t.Fatal(err)
	}
	return url
}

// connect returns connections of a node to a database.
func connect(t *testing.T, url string) store.Pool {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, Patience: wait.Hang})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := s.Peers(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return pool
}

// opened returns what opens the tickets of nodes on a database.
func opened(t *testing.T, url string) sharedtest.New {
	return func(ttl, resume time.Duration) sharedtest.Tickets {
		return postgres.NewTickets(postgres.TicketsConfig{
			Pool: connect(t, url), TTL: ttl, ResumeWindow: resume, Patience: wait.Hang,
		})
	}
}

// rates returns the buckets of a node.
func rates(pool store.Pool) *postgres.Rates {
	r := postgres.NewRates(pool)
	r.Patience = wait.Hang
	return r
}

// start starts a node.
func start(t *testing.T, url string, ttl, resume time.Duration) sharedtest.Node {
	t.Helper()
	return sharedtest.Start(t, opened(t, url)(ttl, resume))
}

func TestTickets_open_one_session_on_any_node_once(t *testing.T) {
	sharedtest.OneSession(t, opened(t, migrated(t)))
}

func TestTickets_carry_what_they_stand_for(t *testing.T) {
	sharedtest.Carried(t, opened(t, migrated(t)))
}

func TestTickets_end_in_time_on_all_nodes(t *testing.T) {
	t.Parallel()
	sharedtest.EndInTime(t, opened(t, migrated(t)))
}

func TestTickets_of_a_session_that_was_replaced_elsewhere(t *testing.T) {
	t.Parallel()
	sharedtest.Replaced(t, opened(t, migrated(t)))
}

// Without the database a node cannot know whether a ticket was used. If it crashed, the tickets of
// sessions are stored again, and the others are gone.
func TestTickets_without_the_database(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	url := server.Database(t)
	if err := store.Migrate(t.Context(), url, store.Up); err != nil {
		t.Fatal(err)
	}
	a, b := start(t, url, time.Minute, time.Minute), start(t, url, time.Minute, 2*time.Second)
	fresh, bound := a.Issued(t), a.Redeemed(t, b)
	b.Bind(t.Context(), bound, sharedtest.Ann(), "s1")
	server.Kill(t)
	_, err := a.Redeem(t.Context(), fresh, "")
	if tidemark.CodeOf(err) != tidemark.Unavailable ||
		!strings.Contains(tidemark.DetailOf(err), "try again") {
		t.Errorf("without the database: %v", err)
	}
	if !b.Accepts(t, bound, "s1") {
		t.Error("the session that is here is not resumed")
	}
	server.Run(t)
	wait.Until(t, "the ticket of a session is good everywhere again", func() bool {
		_, err := a.Redeem(t.Context(), bound, "s1")
		return err == nil
	})
	if a.Accepts(t, fresh, "") {
		t.Error("one that the database forgot is accepted")
	}
}

func TestTickets_a_reader_of_the_database_cannot_use_them(t *testing.T) {
	url := migrated(t)
	n := start(t, url, time.Minute, time.Minute)
	name := n.Issued(t)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	var row string
	if err := c.QueryRow(t.Context(), "SELECT t::text FROM tickets AS t").Scan(&row); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(row, "ann") || strings.Contains(row, name) {
		t.Errorf("the database holds %s", row)
	}
}

func TestRates_have_one_bucket_of_each_user(t *testing.T) {
	url := migrated(t)
	sharedtest.OneBucket(t, rates(connect(t, url)), rates(connect(t, url)))
}

// TestRates_fill: a bucket fills by its rate, and is removed when it is full. So are tickets.
func TestRates_fill(t *testing.T) {
	t.Parallel()
	pool := connect(t, migrated(t))
	take := sharedtest.Fill(t, rates(pool))
	take(1_000)
	rows := func() (n int) {
		t.Helper()
		err := pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM rates) + "+
			"(SELECT count(*) FROM tickets)").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	postgres.SweepOnce(t.Context(), pool)
	if n := rows(); n != 1 {
		t.Errorf("%d buckets are left, want the one that is not full", n)
	}
	take(-1_000) // gives the 1,000 back
	n := start(t, pool.Config().ConnString(), time.Millisecond, time.Minute)
	if _, _, err := n.Issue(t.Context(), sharedtest.Ann()); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "both are removed", func() bool {
		postgres.SweepOnce(t.Context(), pool)
		return rows() == 0
	})
}
