package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// A commit that waits for a standby is visible once its connection is ended. The next attempt finds
// it, and waits for the standby before it confirms.
func TestBatches_second_attempt_waits_for_the_standby(t *testing.T) {
	server := service.Start(t)
	url := newDatabase(t, server)
	s := openTest(t, url)
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: "c", Type: tidemark.Group, History: tidemark.HistoryFull,
		Creator: "anna", Members: []tidemark.UserID{"anna", "ben"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = storage.AppendOne(t.Context(), s, message("c", "ben", "before", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		if _, err := admin.Exec(context.Background(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() {
		do("ALTER SYSTEM RESET synchronous_standby_names")
		do("SELECT pg_reload_conf()")
		_ = admin.Close(context.Background())
	})
	do("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	do("SELECT pg_reload_conf()")
	waiting := func() (n int) {
		err := admin.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	results := make(chan error, 2)
	go func() {
		_, err := storage.AppendOne(context.Background(), s, message("c", "anna", "1", "hello"))
		results <- err
	}()
	go func() {
		_, err := s.Advance(context.Background(), []storage.Advance{
			{User: "anna", Chat: "c", Raise: tidemark.Raise{Acked: 1}},
		})
		results <- err
	}()
	wantSoon(t, func() bool { return waiting() == 2 })
	do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	for range 2 {
		if err := <-results; tidemark.CodeOf(err) != tidemark.Unavailable ||
			strings.Contains(err.Error(), "refused") {
			t.Errorf("without the standby: %v, want Unavailable", err)
		}
	}
}

// A message that was stored before may be on this server only. So a repeated send is confirmed when
// the standby has the message. A cancelled wait is no confirmation.
func TestBatches_what_was_stored_before_waits_for_the_standby(t *testing.T) {
	server := service.Start(t)
	s := openTest(t, newDatabase(t, server))
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: "c", Type: tidemark.Group, History: tidemark.HistoryFull,
		Creator: "ben", Members: []tidemark.UserID{"ben"},
	})
	if err != nil {
		t.Fatal(err)
	}
	resend := func(ctx context.Context) error {
		_, err := storage.AppendOne(ctx, s, message("c", "ben", "before", "hello"))
		return err
	}
	again := func(ctx context.Context) error {
		_, err := s.Advance(ctx, []storage.Advance{
			{User: "ben", Chat: "c", Raise: tidemark.Raise{Acked: 1}},
		})
		return err
	}
	for _, do := range []func(context.Context) error{resend, again} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	server.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	server.Exec(t, "postgres", "SELECT pg_reload_conf()")
	admin, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Exec(t, "postgres", "ALTER SYSTEM RESET synchronous_standby_names")
		server.Exec(t, "postgres", "SELECT pg_reload_conf()")
		_ = admin.Close(context.Background())
	})
	wantSoon(t, func() bool {
		var names string
		return admin.QueryRow(t.Context(), "SHOW synchronous_standby_names").Scan(&names) == nil &&
			names == "nobody"
	})
	for name, do := range map[string]func(context.Context) error{
		"a resend":      resend,
		"a stale raise": again,
		"a new message": func(ctx context.Context) error {
			_, err := storage.AppendOne(ctx, s, message("c", "ben", "new", "hello"))
			return err
		},
	} {
		result := make(chan error, 1)
		go func() { result <- do(context.Background()) }()
		// Each attempt waits until the test ends its wait.
		for waiting := true; waiting; {
			select {
			case err := <-result:
				waiting = false
				if tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Errorf("%s without the standby: %v, want Unavailable", name, err)
				}
			case <-time.After(20 * time.Millisecond):
				_, err := admin.Exec(t.Context(), `SELECT pg_cancel_backend(pid)
					FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
