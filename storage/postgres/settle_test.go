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
	admin := loseStandby(t, server)
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
	_, err = admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE wait_event = 'SyncRep'`)
	if err != nil {
		t.Fatal(err)
	}
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
	admin := loseStandby(t, server)
	for name, do := range map[string]func(context.Context) error{
		"a resend":      resend,
		"a stale raise": again,
		"a late resend": func(ctx context.Context) error {
			_, _, err := s.Sent(ctx, storage.SendKey{
				Chat: "c", Sender: "ben", ClientMessageID: "before",
			})
			return err
		},
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

// loseStandby configures a synchronous standby that does not exist, until the test ends. Postgres
// accepts the name before commits wait for it. So loseStandby returns only after it has seen a
// commit wait. The connection that it returns can look at such commits.
func loseStandby(t *testing.T, server *service.Server) *pgx.Conn {
	t.Helper()
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	admin, probe := connect(), connect()
	server.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	t.Cleanup(func() {
		server.Exec(t, "postgres", "ALTER SYSTEM RESET synchronous_standby_names")
		server.Exec(t, "postgres", "SELECT pg_reload_conf()")
	})
	server.Exec(t, "postgres", "SELECT pg_reload_conf()")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	wantSoon(t, func() bool {
		committed := make(chan error, 1)
		go func() {
			_, err := probe.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'probe', '')")
			committed <- err
		}()
		waited := false
		for {
			select {
			case err := <-committed:
				if err != nil {
					t.Fatal(err)
				}
				return waited
			case <-ctx.Done():
				t.Fatal("the commit of the probe neither waits nor ends")
			case <-time.After(5 * time.Millisecond):
			}
			canceled, err := admin.Exec(t.Context(), `SELECT pg_cancel_backend(pid)
				FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'`,
				probe.PgConn().PID())
			if err != nil {
				t.Fatal(err)
			}
			waited = waited || canceled.RowsAffected() == 1
		}
	})
	return admin
}
