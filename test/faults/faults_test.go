package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/postgres"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// role is the database user of the nodes. It is no superuser, for whom Postgres makes exceptions.
const role = "node"

// database makes a database with the schema, which belongs to the role, and returns its URL for the
// role.
func database(t *testing.T, s *service.Server) string {
	t.Helper()
	at := s.Database(t)
	s.Exec(t, "postgres",
		"CREATE ROLE "+role+" LOGIN PASSWORD 'secret'; ALTER DATABASE "+nameOf(t,
			at)+" OWNER TO "+role)
	u, err := url.Parse(at)
	must(t, err)
	u.User = url.UserPassword(role, "secret")
	insist(t, func() error { return postgres.Migrate(t.Context(), u.String(), postgres.Up) })
	return u.String()
}

// nameOf returns the name of the database in a URL.
func nameOf(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	must(t, err)
	return strings.TrimPrefix(u.Path, "/")
}

// with returns a URL with another parameter.
func with(t *testing.T, at, name, value string) string {
	t.Helper()
	u, err := url.Parse(at)
	must(t, err)
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // a blank, as libpq reads it
	return u.String()
}

// nodes opens two stores.
func nodes(t *testing.T, at string) []storage.Store {
	t.Helper()
	stores := []storage.Store{}
	for range 2 {
		var store *postgres.Store
		insist(t, func() (err error) {
			store, err = postgres.Open(t.Context(), postgres.Config{URL: at})
			return err
		})
		t.Cleanup(func() { must(t, store.Close()) })
		stores = append(stores, store)
	}
	return stores
}

// beginAnew opens a node's store at an address again when its database has become another one, as
// the program does.
func (h *history) beginAnew(node int, at string) {
	ctx := h.t.Context()
	first := h.store(node).(*postgres.Store)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-first.Replaced():
		}
		for ctx.Err() == nil {
			next, err := postgres.Open(ctx, postgres.Config{URL: at})
			if err == nil {
				h.t.Cleanup(func() { must(h.t, next.Close()) })
				h.mu.Lock()
				h.stores[node] = next
				h.mu.Unlock()
				return
			}
			<-time.After(50 * time.Millisecond)
		}
	})
	h.t.Cleanup(watching.Wait)
}

// admin returns a connection of the superuser.
func admin(t *testing.T, s *service.Server, at string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL(nameOf(t, at)))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// seconds returns TIDEMARK_FAULT_SECONDS, or the default of a case if it is not set.
func (h *history) seconds(otherwise int) time.Duration {
	h.t.Helper()
	return time.Duration(number(h.t, "TIDEMARK_FAULT_SECONDS", otherwise)) * time.Second
}

// hang bounds how long a test waits for what happens on any machine, however busy.
const hang = 3 * time.Minute

// repeat calls do repeatedly for TIDEMARK_FAULT_SECONDS (2 if it is not set), with pauses, and at
// least once. It returns how often.
func (h *history) repeat(do func(random *rand.Rand), least, most time.Duration) (n int) {
	h.t.Helper()
	return h.repeatUntil(func() bool { return true }, do, least, most)
}

// repeatUntil is like repeat, and goes on until enough returns true. A slow machine needs longer
// for that.
func (h *history) repeatUntil(
	enough func() bool, do func(random *rand.Rand), least, most time.Duration,
) (n int) {
	h.t.Helper()
	random := rand.New(rand.NewPCG(h.seed, 0))
	began := time.Now()
	for ; n == 0 || time.Since(began) < h.seconds(2) || !enough(); n++ {
		if time.Since(began) > hang {
			h.t.Errorf("what is waited for has not happened in %v, in %d times", hang, n)
			break
		}
		do(random)
		<-time.After(least + time.Duration(random.Int64N(int64(most-least))))
	}
	return n
}

// eventually waits until a condition holds.
func (h *history) eventually(what string, is func() bool) {
	h.t.Helper()
	for began := time.Now(); !is(); <-time.After(10 * time.Millisecond) {
		if time.Since(began) > hang {
			h.t.Errorf("%s: not within %v", what, hang)
			return
		}
	}
}

// confirms waits until n more messages are confirmed.
func (h *history) confirms(n int) {
	h.t.Helper()
	confirmed := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.confirmed
	}
	until := confirmed() + n
	h.eventually("the store confirms messages again", func() bool { return confirmed() >= until })
}

// says reports whether a node is not ready, and its reason contains these words.
func (h *history) says(words string) bool {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Second)
	defer cancel()
	err := h.store(0).Check(ctx)
	return tidemark.CodeOf(err) == tidemark.Unavailable &&
		strings.Contains(tidemark.DetailOf(err), words)
}

// red checks that a node is not ready, as /readyz does.
func (h *history) red() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Second)
	defer cancel()
	err := h.store(0).Check(ctx)
	if tidemark.CodeOf(err) != tidemark.Unavailable || tidemark.DetailOf(err) == "" {
		h.t.Errorf("Check says %v during the fault, want Unavailable with a reason", err)
	}
}

func TestFault_backends_terminated_in_mid_statement(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	at := database(t, s)
	h := newHistory(t, nodes(t, at)...)
	conn := admin(t, s, at)
	all, busy := 0, 0
	h.runAndReport(func() {
		h.repeatUntil(func() bool { return busy >= 5 }, func(*rand.Rand) {
			var ended, active int
			must(t,
				conn.QueryRow(t.Context(),
					"SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)), count(*) FILTER "+
						"(WHERE state = 'active') FROM pg_stat_activity WHERE usename = $1",
					role).Scan(&ended, &active))
			all += ended
			busy += active
		}, 20*time.Millisecond, 200*time.Millisecond)
	})
	t.Logf("%d backends terminated, %d of them in mid-statement", all, busy)
}

func TestFault_server_that_ends_at_once(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*service.Server, *testing.T){
		"pg_ctl restart -m immediate": func(s *service.Server, t *testing.T) {
			s.Stop(t, "immediate")
		},
		"SIGKILL of all processes": func(s *service.Server, t *testing.T) { s.Kill(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service.Start(t)
			h := newHistory(t, nodes(t, database(t, s))...)
			var ends int
			h.runAndReport(func() {
				ends = h.repeat(func(random *rand.Rand) {
					end(s, t)
					h.red()
					// Callers wait for a server that is back soon, and are refused by one that is
					// not.
					<-time.After(time.Duration(random.IntN(1000)) * time.Millisecond)
					s.Run(t)
				}, 200*time.Millisecond, 700*time.Millisecond)
			})
			recoveries := strings.Count(s.Log(), "automatic recovery in progress")
			t.Logf("ended %d times; %d recoveries", ends, recoveries)
			if recoveries < ends {
				t.Error("the server was not recovered each time")
			}
		})
	}
}

func TestFault_server_that_hangs(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	h := newHistory(t, nodes(t, database(t, s))...)
	h.runAndReport(func() {
		h.repeat(func(*rand.Rand) {
			refused := h.refusals("")
			s.Freeze(t)
			<-time.After(time.Second)
			h.red()
			h.eventually("callers are refused", func() bool { return h.refusals("") > refused })
			s.Thaw(t)
		}, 200*time.Millisecond, 700*time.Millisecond)
	})
	if h.refused == 0 || h.slowest < 900*time.Millisecond {
		t.Errorf("%d calls were refused, the slowest took %v: nothing hung", h.refused, h.slowest)
	}
}

func TestFault_no_connection_left(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "max_connections = 30")
	at := database(t, s)
	h := newHistory(t, nodes(t, at)...)
	conn := admin(t, s, at)
	s.Exec(t, "postgres", "CREATE ROLE hog LOGIN PASSWORD 'secret'")
	hogs := strings.Replace(at, role+":", "hog:", 1)
	h.runAndReport(func() {
		h.repeat(func(*rand.Rand) {
			ctx, cancel := context.WithCancel(t.Context())
			var others sync.WaitGroup
			for range 4 {
				others.Go(func() { hog(ctx, hogs) })
			}
			refused := h.refusals("max_connections")
			h.eventually("callers are told that there is no connection left", func() bool {
				// Other clients take the connections that the nodes do not hold.
				_, err := conn.Exec(t.Context(),
					"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1",
					role)
				must(t, err)
				<-time.After(100 * time.Millisecond)
				return h.refusals("max_connections") > refused
			})
			cancel()
			others.Wait()
		}, 50*time.Millisecond, 100*time.Millisecond)
	})
}

// hog takes every connection that it can get, until ctx ends.
func hog(ctx context.Context, at string) {
	for ctx.Err() == nil {
		if conn, err := pgx.Connect(ctx, at); err == nil {
			defer conn.Close(context.Background())
			continue
		}
		<-time.After(2 * time.Millisecond)
	}
}

func TestFault_every_connection_of_the_pools_held(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	at := database(t, s)
	h := newHistory(t, nodes(t, at)...)
	conn := admin(t, s, at)
	waiting := 0
	h.runAndReport(func() {
		h.repeat(func(*rand.Rand) {
			tx, err := conn.Begin(t.Context())
			must(t, err)
			_, err = tx.Exec(t.Context(), "LOCK TABLE chats IN ACCESS EXCLUSIVE MODE")
			must(t, err)
			h.eventually("every connection waits for the lock, and callers are told", func() bool {
				var n int
				must(t,
					tx.QueryRow(t.Context(),
						"SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n))
				waiting = max(waiting, n)
				return waiting >= 6 && h.refusals("holds a lock") > 0 && h.says("")
			})
			must(t, tx.Rollback(t.Context()))
		}, 100*time.Millisecond, 200*time.Millisecond)
	})
	t.Logf("%d statements waited at a time", waiting)
}

func TestFault_deadlocks(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "deadlock_timeout = 100ms", "log_line_prefix = '%u '")
	at := database(t, s)
	h := newHistory(t, nodes(t, at)...)
	conn := admin(t, s, at)
	ours := func() int { return strings.Count(s.Log(), role+" ERROR:  deadlock detected") }
	h.runAndReport(func() {
		h.repeatUntil(func() bool { return ours() > 0 }, func(*rand.Rand) {
			// The session that looks for the deadlock first loses. The nodes look after 0.1 s, when
			// this session already waits for them.
			_, _ = conn.Exec(t.Context(),
				"BEGIN; SET LOCAL deadlock_timeout = '1s'; SELECT FROM chats WHERE id = 'c' FOR "+
					"UPDATE; SELECT pg_sleep(0.03); SELECT FROM chats WHERE id IN ('a', 'B') "+
					"ORDER "+
					"BY id COLLATE \"C\" DESC FOR UPDATE; COMMIT")
			_, err := conn.Exec(t.Context(), "ROLLBACK")
			must(t, err)
		}, 5*time.Millisecond, 20*time.Millisecond)
	})
	t.Logf("%d statements of the nodes lost a deadlock", ours())
}

func TestFault_serialization_errors(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			s := service.Start(t, "log_line_prefix = '%u '")
			h := newHistory(t,
				nodes(t, with(t, database(t, s), "default_transaction_isolation", level))...)
			failed := func() int {
				return strings.Count(s.Log(), role+" ERROR:  could not serialize access")
			}
			h.runAndReport(func() {
				h.repeatUntil(func() bool { return failed() > 0 }, func(*rand.Rand) {},
					time.Millisecond, 10*time.Millisecond)
			})
			t.Logf("%d statements could not be serialized", failed())
		})
	}
}

func TestFault_database_set_read_only(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	at := database(t, s)
	stores := nodes(t, at)
	h := newHistory(t, stores...)
	conn := admin(t, s, at)
	h.runAndReport(func() {
		h.repeat(func(*rand.Rand) {
			refused := h.refusals("read-only")
			set := func(value string) {
				_, err := conn.Exec(t.Context(), fmt.Sprintf(
					"ALTER ROLE %s SET default_transaction_read_only = %s; "+
						"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
						"WHERE usename = '%s'", role, value, role))
				must(t, err)
			}
			set("on")
			h.eventually("callers are told that the database is read-only", func() bool {
				return h.refusals("read-only") > refused && h.says("read-only")
			})
			set("off")
		}, 100*time.Millisecond, 500*time.Millisecond)
	})
}
