package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/test/services/process"
)

func TestMain(m *testing.M) {
	process.EndIfAsked(func() (int, *process.Home, error) {
		s, err := shared()
		if err != nil {
			return 0, nil, err
		}
		return s.PID(), s.home, nil
	})
	os.Exit(m.Run())
}

func TestShared_ends_with_the_process_however_that_ends(t *testing.T) { process.Ends(t, 4) }

func TestStart_leaves_nothing(t *testing.T) {
	var dir string
	var pid int
	t.Run("a test", func(t *testing.T) {
		s := Start(t)
		dir, pid = s.home.Dir(), s.PID()
	})
	if left := process.Left(dir, pid); len(left) > 0 {
		t.Errorf("there is left: %q", left)
	}
}

func TestServer_is_durable_guarded_and_not_root(t *testing.T) {
	s := Start(t, "work_mem = '5MB'")
	conn := connect(t, s.Database(t))
	got := map[string]string{}
	want := map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		"shared_preload_libraries": "pg_stat_statements", "max_connections": "200",
		"listen_addresses": "127.0.0.1", "port": fmt.Sprint(s.Port()), "data_directory": s.Data(),
		"work_mem": "5MB",
	}
	for name := range want {
		var value string
		must(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value))
		got[name] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	var before bool
	must(t,
		conn.QueryRow(t.Context(),
			"SELECT 'b' < 'A' COLLATE \"C\" OR 'a' < 'B' COLLATE \"default\" AND "+
				"'b' > 'A' COLLATE "+
				"\"default\"").Scan(&before))
	if !before {
		t.Error("the default collation is that of bytes: a statement that forgets to name its " +
			"own is not found out")
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d", s.PID()))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid == 0 {
		t.Errorf("the server runs as root: %v", err)
	}
	_, err = pgx.Connect(t.Context(), strings.Replace(s.URL("postgres"), s.password, "guess", 1))
	if err == nil || !strings.Contains(err.Error(), "password authentication failed") {
		t.Errorf("connecting with another password: %v", err)
	}
}

func TestDatabase_is_empty_and_dropped_with_the_test(t *testing.T) {
	s := Shared(t)
	if Shared(t) != s {
		t.Error("there are two shared servers")
	}
	count := func() (n int) {
		must(t,
			connect(t, s.URL("postgres")).QueryRow(t.Context(),
				"SELECT count(*) FROM pg_database").Scan(&n))
		return n
	}
	before := count()
	t.Run("a test", func(t *testing.T) {
		url := s.Database(t)
		if url == s.Database(t) || count() != before+2 {
			t.Errorf("two databases are one, or the server has %d after %d", count(), before)
		}
		conn := connect(t, url) // stays open when the database is dropped
		_, err := conn.Exec(t.Context(), "CREATE TABLE t (n int)")
		must(t, err)
	})
	if after := count(); after != before {
		t.Errorf("the server has %d databases after the test, and had %d", after, before)
	}
}

func TestStop_Kill_and_Run_keep_what_is_committed(t *testing.T) {
	s := Start(t)
	url := s.Database(t)
	s.Exec(t, strings.Split(url[strings.LastIndex(url, "/")+1:], "?")[0], "CREATE TABLE t (n int)")
	for i, end := range []func(){
		func() { s.Kill(t) },
		func() { s.Stop(t, "immediate") },
		func() { s.Stop(t, "fast") },
	} {
		conn := connect(t, url)
		_, err := conn.Exec(t.Context(), "INSERT INTO t VALUES ($1)", i)
		must(t, err)
		family := process.Family(s.PID())
		end()
		if left := process.Left("", family...); len(left) > 0 {
			t.Errorf("there is left: %q", left)
		}
		if s.PID() != 0 {
			t.Errorf("the process id is %d when nothing runs", s.PID())
		}
		if _, err := pgx.Connect(t.Context(), url); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting to a server that is down: %v", err)
		}
		s.Run(t)
		var n int
		must(t, connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n))
		if n != i+1 {
			t.Errorf("%d rows, want %d", n, i+1)
		}
	}
}

func TestFreeze_answers_nobody_until_Thaw(t *testing.T) {
	s := Start(t)
	conn := connect(t, s.URL("postgres"))
	s.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, s.URL("postgres")); err == nil {
		t.Error("a frozen server answers")
	}
	answered := make(chan error, 1)
	go func() { _, err := conn.Exec(t.Context(), "SELECT 1"); answered <- err }()
	select {
	case err := <-answered:
		t.Errorf("a frozen backend answers: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	s.Thaw(t)
	if err := <-answered; err != nil {
		t.Errorf("after Thaw: %v", err)
	}
}

func TestRun_names_a_taken_port(t *testing.T) {
	s := Start(t)
	s.Stop(t, "fast")
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port()))
	must(t, err)
	if err := s.postmaster.Start(t.Context()); !errors.Is(err, process.ErrPortTaken) {
		t.Errorf("got %v, want that the port is taken", err)
	}
	must(t, listener.Close())
	s.Run(t)
}

// connect connects until the test ends.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStartCopy_follows: a standby replicates the server, and ends with its test as any other.
func TestStartCopy_follows(t *testing.T) {
	s := Shared(t)
	var dir string
	t.Run("standby", func(t *testing.T) {
		copied := StartCopy(t, s, func(copied *Server) error {
			script := `pg_basebackup --pgdata="$TO" --dbname="$FROM" ` +
				`--write-recovery-conf --checkpoint=fast`
			out, err := copied.Shell(script, "TO="+copied.Data(),
				"FROM="+s.URL("postgres")).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		dir = copied.home.Dir()
		var standby bool
		must(t,
			connect(t, copied.URL("postgres")).QueryRow(t.Context(),
				"SELECT pg_is_in_recovery()").Scan(&standby))
		if !standby {
			t.Error("the copy is no standby")
		}
	})
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
}

// A commit waits while the disk stalls. A read does not.
func TestDisk_no_commit_while_it_stalls(t *testing.T) {
	s, disk := StartOnDisk(t)
	conn, other := connect(t, s.URL("postgres")), connect(t, s.URL("postgres"))
	_, err := conn.Exec(t.Context(), "CREATE TABLE t (n int)")
	must(t, err)
	disk.Stall(t)
	committed := make(chan error, 1)
	go func() { _, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)"); committed <- err }()
	for waits := false; !waits; {
		err := other.QueryRow(t.Context(),
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = "+
				"'WALSync')").Scan(&waits)
		must(t, err)
	}
	var n int
	must(t, other.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n))
	if n != 0 {
		t.Error("what is not committed yet can be read")
	}
	select {
	case err := <-committed:
		t.Errorf("a commit is answered while the disk stalls: %v", err)
	default:
	}
	disk.Resume(t)
	must(t, <-committed)
}
