package cost

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestStatements_for_each_write counts, by pg_stat_statements, all statements of 64 concurrent
// senders. Each sender waits for its answer.
func TestStatements_for_each_write(t *testing.T) {
	const chats, each = 50, 100
	server := service.Shared(t)
	server.Exec(t, "postgres", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	url := server.Database(t)
	s := openStore(t, url)
	opened := openedChats(t, s, tidemark.Group, chats)
	meter, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer meter.Close(t.Context())
	for _, test := range []struct {
		name string
		most float64 // statements of each write
		do   func(i int) error
	}{
		{"message", 0.1, func(i int) error {
			_, err := storage.AppendOne(t.Context(), s, draftFor(opened[i%chats], "anna"))
			return err
		}},
		{"acknowledgement", 0.05, func(i int) error {
			_, err := s.Advance(t.Context(), []storage.Advance{
				{
					User:  "ben",
					Chat:  opened[i%chats],
					Raise: tidemark.Raise{Acked: tidemark.Sequence(1 + i/chats)},
					Now:   time.Now(),
				},
			})
			return err
		}},
	} {
		before := statementsOf(t, meter, url)
		var next atomic.Int64
		var group sync.WaitGroup
		for range senders {
			group.Go(func() {
				for range each {
					if err := test.do(int(next.Add(1)) - 1); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		calls := statementsOf(t, meter, url) - before
		got := float64(calls) / float64(next.Load())
		t.Logf("%.3f statements for each %s of %d senders (%d for %d)",
			got, test.name, senders, calls, next.Load())
		if calls == 0 || got > test.most {
			t.Errorf("%.3f statements for each %s, want at most %v", got, test.name, test.most)
		}
	}
}

// statementsOf returns how many statements the server has run in the store's database.
func statementsOf(t *testing.T, meter *pgx.Conn, url string) (calls int) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	err = meter.QueryRow(t.Context(),
		"SELECT coalesce(sum(calls), 0) FROM pg_stat_statements AS s "+
			"JOIN pg_database AS d ON d.oid = s.dbid WHERE d.datname = $1",
		config.Database).Scan(&calls)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}
