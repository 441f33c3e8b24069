package redis

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

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
	goleak.VerifyTestMain(m)
}

func TestShared_ends_with_the_process_however_that_ends(t *testing.T) { process.Ends(t, 1) }

func TestStart_leaves_nothing(t *testing.T) {
	var dir string
	var pids []int
	for name, start := range map[string]func(t *testing.T){
		"one": func(t *testing.T) { s := Start(t); dir, pids = s.home.Dir(), []int{s.PID()} },
		"Sentinel": func(t *testing.T) {
			w := StartSentinel(t)
			dir, pids = w.Master.home.Dir(), []int{
				w.Master.PID(), w.Replica.PID(), w.Sentinel.PID(),
			}
		},
	} {
		t.Run(name, start)
		if left := process.Left(dir, pids...); len(left) > 0 || len(pids) == 0 {
			t.Errorf("%s: of %v there is left: %q", name, pids, left)
		}
	}
}

func TestDatabase_is_empty_and_emptied_with_the_test(t *testing.T) {
	s := Shared(t)
	if Shared(t) != s {
		t.Error("there are two shared servers")
	}
	keys := func(n int) any {
		return s.Do(t, "EVAL", "redis.call('SELECT', ARGV[1]); return redis.call('DBSIZE')", "0",
			fmt.Sprint(n))
	}
	t.Run("a test", func(t *testing.T) {
		first, second := Database(t), Database(t)
		if want := "redis://" + s.Address(); first != want+"/0" || second != want+"/1" {
			t.Errorf("the databases are %s and %s", first, second)
		}
		s.Do(t, "EVAL", "redis.call('SELECT', '1'); return redis.call('SET', 'a', '1')", "0")
		if keys(0) != int64(0) || keys(1) != int64(1) {
			t.Errorf("there are %v and %v keys", keys(0), keys(1))
		}
	})
	if keys(1) != int64(0) {
		t.Errorf("there are %v keys after the test", keys(1))
	}
	if again := Database(t); !strings.HasSuffix(again, "/0") {
		t.Errorf("the next test's is %s", again)
	}
}

func TestDo_returns_what_Redis_says(t *testing.T) {
	s := Start(t, "requirepass s3cret")
	if want := fmt.Sprintf("redis://:s3cret@127.0.0.1:%d/0", s.Port()); s.URL() != want {
		t.Errorf("the URL is %s, want %s", s.URL(), want)
	}
	for _, tt := range []struct {
		want any
		args []string
	}{
		{"OK", []string{"SET", "a", "x\r\ny"}},
		{"x\r\ny", []string{"GET", "a"}},
		{nil, []string{"GET", "b"}},
		{int64(1), []string{"EXISTS", "a"}},
		{[]any{"x\r\ny", nil}, []string{"MGET", "a", "b"}},
	} {
		if diff := cmp.Diff(tt.want, s.Do(t, tt.args...)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
	reply, err := s.Ask("NONSENSE")
	if err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("nonsense: %v, %v", reply, err)
	}
}

// TestRun_has_what_was_saved: data disappears with the process. What was saved then stays, and so
// does everything confirmed if the server appends commands to a file.
func TestRun_has_what_was_saved(t *testing.T) {
	for _, tt := range []struct {
		name, setting, saved, then string
		run                        func(s *Server, t testing.TB)
		want                       any
	}{
		{"nothing", "appendonly no", "", "new", (*Server).Run, nil},
		{"old data", "appendonly no", "old", "new", (*Server).Run, "old"},
		{"empty all the same", "appendonly no", "old", "new", (*Server).RunEmpty, nil},
		{"all", "appendonly yes", "", "new", (*Server).Run, "new"},
		{"nothing of all", "appendonly yes", "", "new", (*Server).RunEmpty, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Start(t, tt.setting)
			url, pid := s.URL(), s.PID()
			if tt.saved != "" {
				s.Do(t, "SET", "a", tt.saved)
				s.Do(t, "SAVE")
			}
			s.Do(t, "SET", "a", tt.then)
			s.Kill(t)
			if s.PID() != 0 || process.Runs(pid) {
				t.Errorf("the server has the process id %d when it is gone, and was %d",
					s.PID(), pid)
			}
			if _, err := s.Ask("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a command to a server that is down: %v", err)
			}
			tt.run(s, t)
			if got := s.Do(t, "GET", "a"); got != tt.want || s.URL() != url || s.PID() == pid {
				t.Errorf("got %v at %s, want %v at %s", got, s.URL(), tt.want, url)
			}
		})
	}
}

func TestFreeze_answers_nobody_until_Thaw(t *testing.T) {
	s := Start(t)
	s.Freeze(t)
	answered := make(chan error, 1)
	go func() { _, err := s.Ask("PING"); answered <- err }()
	select {
	case err := <-answered:
		t.Errorf("a frozen server answers: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	s.Thaw(t)
	if err := <-answered; err != nil {
		t.Errorf("after Thaw: %v", err)
	}
}

func TestRun_names_a_taken_port(t *testing.T) {
	s := Start(t)
	s.Kill(t)
	listener, err := net.Listen("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.program.Start(t.Context()); !errors.Is(err, process.ErrPortTaken) {
		t.Errorf("got %v, want that the port is taken", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.Run(t)
}

// TestSentinel_promotes_a_replica_that_is_stale: the fail-over loses what the master got after
// Detach, and nothing that it got before.
func TestSentinel_promotes_a_replica_that_is_stale(t *testing.T) {
	t.Parallel() // it waits more than it works
	w := StartSentinel(t)
	for range 2 {
		stale(t, &w.Pair, func() { w.FailOver(t) })
	}
	if want := "redis+sentinel://" + w.Sentinel.Address() + "/tidemark"; w.URL() != want {
		t.Errorf("the URL is %s, want %s", w.URL(), want)
	}
}

// TestCluster_promotes_a_replica_that_is_stale: like Sentinel, for one shard. The keys of the
// others stay.
func TestCluster_promotes_a_replica_that_is_stale(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := StartCluster(t)
	shard, other := c.Shard(t, "a"), c.Shard(t, "b")
	if shard == other {
		t.Fatal("a and b are in one shard")
	}
	if c.Shard(t, "x{a}") != shard {
		t.Error("x{a} is in another shard than a")
	}
	other.Master.Do(t, "SET", "b", "there")
	_, err := other.Master.Ask("GET", "a")
	moved := fmt.Sprint("MOVED 15495 ", shard.Master.Address())
	if err == nil || !strings.HasPrefix(err.Error(), moved) {
		t.Errorf("asking another shard: %v", err)
	}
	before := c.URL()
	for range 2 {
		stale(t, shard, func() { c.FailOver(t, shard) })
	}
	got := other.Master.Do(t, "GET", "b")
	if got != "there" || c.URL() != before || strings.Count(c.URL(), ",") != 2 {
		t.Errorf("the other shard's key is %v; the URL is %s, and was %s", got, c.URL(), before)
	}
}

func stale(t *testing.T, pair *Pair, failOver func()) {
	t.Helper()
	master, replica := pair.Master, pair.Replica
	master.Do(t, "SET", "a", "old")
	pair.Detach(t)
	master.Do(t, "SET", "a", "new")
	failOver()
	got := pair.Master.Do(t, "GET", "a")
	if got != "old" || pair.Master != replica || pair.Replica != master {
		t.Errorf("the new master says %v, want old; it is on port %d, want %d",
			got, pair.Master.port, replica.port)
	}
	if role := pair.Replica.info("replication")["role"]; role != "slave" {
		t.Errorf("the former master is %q", role)
	}
}

func TestFind_says_what_to_run(t *testing.T) {
	t.Setenv("PATH", "")
	t.Chdir(os.TempDir())
	if _, err := find(); err == nil || !strings.Contains(err.Error(), "make redis-deps") {
		t.Errorf("got %v", err)
	}
}
