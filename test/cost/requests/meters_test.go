// Package requests meters what requests of clients cost the store: the real server calls a real
// store. It compares docs/internals/request-costs.md with that.
package requests

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	"github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	emulator "github.com/tidemark-im/tidemark/test/services/dynamodb"
	database "github.com/tidemark-im/tidemark/test/services/postgres"
)

// A backend is a store with a meter.
type backend struct {
	storage.Store
	// take returns what the store has spent since the last take.
	take func() spent
	// again opens the same data without a meter. It is nil if that cannot be.
	again func() storage.Store
	// beside opens the same data with the same meter. It is nil if that cannot be.
	beside func() storage.Store
}

// spent is what calls cost a store: statements of SQL, or calls of DynamoDB and their units.
type spent struct {
	statements    int
	calls         map[string]int
	reads, writes float64
}

// minus returns what a costs beside b.
func (a spent) minus(b spent) spent {
	calls := maps.Clone(a.calls)
	for kind, n := range b.calls {
		if calls[kind] -= n; calls[kind] == 0 {
			delete(calls, kind)
		}
	}
	return spent{a.statements - b.statements, calls, a.reads - b.reads, a.writes - b.writes}
}

// kinds returns the calls by kind.
func (a spent) kinds() string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(a.calls)) {
		if n := a.calls[kind]; n != 1 {
			kind = fmt.Sprintf("%d %s", n, kind)
		}
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, ", ")
}

func closed(t *testing.T, s storage.Store) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// units counts the calls of DynamoDB that were answered, and their units.
type units struct {
	mu    sync.Mutex
	spent spent
	next  *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (u *units) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := u.next.RoundTrip(request)
	if err == nil {
		_, operation, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
		u.mu.Lock()
		defer u.mu.Unlock()
		u.spent.calls[operation]++
	}
	return answer, err
}

func (u *units) consumed(_ string, reads, writes float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.spent.reads += reads
	u.spent.writes += writes
}

func (u *units) take() spent {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.spent
	u.spent = spent{calls: map[string]int{}}
	return now
}

func openDynamoDB(t *testing.T) backend {
	t.Helper()
	url := emulator.Shared(t).Store(t)
	if err := dynamodb.Migrate(t.Context(), url, dynamodb.Up); err != nil {
		t.Fatal(err)
	}
	u := &units{next: &http.Transport{MaxIdleConnsPerHost: 64}}
	u.take()
	t.Cleanup(u.next.CloseIdleConnections)
	open := func(config dynamodb.Config) storage.Store {
		config.URL = url
		s, err := dynamodb.Open(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		closed(t, s)
		return s
	}
	metered := func() storage.Store {
		return open(dynamodb.Config{Transport: u, Consumed: u.consumed})
	}
	return backend{
		Store: metered(), take: u.take, beside: metered,
		again: func() storage.Store { return open(dynamodb.Config{}) },
	}
}

// openPostgres counts statements by pg_stat_statements, without those that frame a transaction.
func openPostgres(t *testing.T) backend {
	t.Helper()
	server := database.Shared(t)
	server.Exec(t, "postgres", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	url := server.Database(t)
	if err := postgres.Migrate(t.Context(), url, postgres.Up); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	before := 0
	return backend{Store: s, take: func() spent {
		c, err := pgx.Connect(t.Context(), server.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(t.Context()) }()
		var now int
		err = c.QueryRow(t.Context(), `SELECT coalesce(sum(calls), 0) FROM pg_stat_statements AS s
			JOIN pg_database AS d ON d.oid = s.dbid WHERE d.datname = $1
			AND query !~* '^(begin|commit|rollback|set|show|deallocate|--)'`,
			config.Database).Scan(&now)
		if err != nil {
			t.Fatal(err)
		}
		n := now - before
		before = now
		return spent{statements: n}
	}}
}

// openSQLite counts statements by SQLite's own trace, without those that frame a transaction. The
// trace is that of all connections of the process, which has no other store with SQLite.
func openSQLite(t *testing.T) backend {
	t.Helper()
	var statements atomic.Int64
	traced := &struct {
		f func(*libc.TLS, uint32, uintptr, uintptr, uintptr) int32
	}{func(_ *libc.TLS, _ uint32, _, _, text uintptr) int32 {
		switch verb, _, _ := strings.Cut(libc.GoString(text), " "); strings.ToUpper(verb) {
		case "BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "--":
		default:
			statements.Add(1)
		}
		return 0
	}}
	opened := &struct {
		f func(*libc.TLS, uintptr, uintptr, uintptr) int32
	}{func(tls *libc.TLS, db, _, _ uintptr) int32 {
		return lib.Xsqlite3_trace_v2(tls, db, lib.SQLITE_TRACE_STMT,
			*(*uintptr)(unsafe.Pointer(traced)), 0)
	}}
	entry := *(*uintptr)(unsafe.Pointer(opened))
	tls := libc.NewTLS()
	t.Cleanup(tls.Close)
	if rc := lib.Xsqlite3_auto_extension(tls, entry); rc != lib.SQLITE_OK {
		t.Fatalf("the trace: %d", rc)
	}
	t.Cleanup(func() {
		lib.Xsqlite3_cancel_auto_extension(tls, entry)
		runtime.KeepAlive(traced) // of which SQLite has the addresses only
		runtime.KeepAlive(opened)
	})
	s, err := sqlite.Open(t.Context(),
		sqlite.Config{Path: filepath.Join(t.TempDir(), "tidemark.db")})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	take := func() spent { return spent{statements: int(statements.Swap(0))} }
	return backend{Store: s, take: take}
}
