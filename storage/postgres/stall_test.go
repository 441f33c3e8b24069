package postgres

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// atMost is how long a chat may stay locked after its call or its client has gone.
const atMost = 200 * time.Millisecond

// tries is the maximum number of runs of a scene. A busy machine may delay any run. A lock that
// waits for a timeout is late in all of them.
const tries = 8

// clientVariable names the environment variable that turns this program into a client that dies,
// instead of running tests.
const clientVariable = "TEST_DYING_CLIENT"

func TestMain(m *testing.M) {
	if what := os.Getenv(clientVariable); what != "" {
		if err := dyingClient(what, os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// dyingClient opens a store and makes one call.
func dyingClient(what, url string) error {
	ctx := context.Background()
	s, err := Open(ctx, Config{URL: url})
	if err != nil {
		return err
	}
	switch what {
	case "remove ben":
		_, err = s.RemoveMember(ctx, "c", "ben", time.UnixMilli(3))
	case "lock and say so":
		err = s.locked(ctx, "c", func(ctx context.Context, m *membership) error {
			fmt.Println("locked")
			_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
			_, err := m.named(ctx, nil)
			return err
		})
	default:
		err = fmt.Errorf("there is no call %q", what)
	}
	return err
}

// scene is a store on a database of its own, with a rival. The server's disk can stall.
type scene struct {
	*testing.T
	server *service.Server
	disk   *service.Disk
	url    string
	store  *Store
	rival  *rival
	watch  *pgx.Conn
	cancel func()
	client *exec.Cmd
	input  io.WriteCloser
	said   *bufio.Reader
	ended  chan error
}

// newScene makes a scene on a database of its own. disk is nil if the scene does not stall it.
func newScene(t *testing.T, server *service.Server, disk *service.Disk) *scene {
	t.Helper()
	url := newDatabase(t, server)
	sc := &scene{T: t, server: server, disk: disk, url: url, store: openTest(t, url)}
	for _, id := range []tidemark.ChatID{"c", "d"} {
		_, _, err := sc.store.CreateChat(t.Context(), storage.NewChat{
			ID:        id,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: time.UnixMilli(1),
			Creator:   "anna",
			Members:   []tidemark.UserID{"anna", "ben"},
		})
		sc.ok(err)
	}
	_, err := sc.store.Mark(t.Context(), []tidemark.PendingDelivery{
		{UserID: "ben", ChatID: "c", FirstUndelivered: 1},
	})
	sc.ok(err)
	sc.rival = &rival{t, sc.connect(url)}
	// The watch's own commits do not wait for the disk.
	sc.watch = sc.connect(url + "&synchronous_commit=off")
	// A scene that fails stops no other one. This comes before the other cleanups.
	t.Cleanup(func() {
		if disk != nil {
			disk.Resume(t)
		}
		_ = syscall.Kill(server.PID(), syscall.SIGCONT)
	})
	return sc
}

func (sc *scene) ok(err error) {
	sc.Helper()
	if err != nil {
		sc.Fatal(err)
	}
}

func (sc *scene) connect(url string) *pgx.Conn {
	sc.Helper()
	conn, err := pgx.Connect(sc.Context(), url)
	sc.ok(err)
	sc.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// locked reports whether any transaction holds a lock on a chat.
func (sc *scene) locked(chat tidemark.ChatID) bool {
	sc.Helper()
	_, err := sc.watch.Exec(sc.Context(),
		"SELECT FROM chats WHERE id = $1 FOR NO KEY UPDATE NOWAIT", string(chat))
	if err != nil && condition(err) != lockNotAvailable {
		sc.Fatal(err)
	}
	return err != nil
}

// commitWaits waits until the commit of another client waits for the stalled disk. If the
// background writer of the log flushes at that moment, the commit waits for its lock.
func (sc *scene) commitWaits() {
	sc.Helper()
	const waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE (wait_event = 'WALSync' OR " +
		"wait_event_type = 'LWLock' AND wait_event = 'WALWrite') AND state = 'active' AND " +
		"backend_type = 'client backend' AND pid <> pg_backend_pid())"
	wantSoon(sc.T, func() (is bool) {
		sc.ok(sc.watch.QueryRow(sc.Context(), waits).Scan(&is))
		return is
	})
}

// call starts removing ben from c, until ctx or the scene ends.
func (sc *scene) call(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	sc.cancel, sc.ended = cancel, make(chan error, 1)
	go func() {
		_, err := sc.store.RemoveMember(ctx, "c", "ben", time.UnixMilli(3))
		sc.ended <- err
	}()
}

// start starts a client in a process of its own.
func (sc *scene) start(what string) {
	sc.Helper()
	sc.client = exec.Command(os.Args[0], sc.url)
	sc.client.Env = append(os.Environ(), clientVariable+"="+what)
	var err error
	sc.input, err = sc.client.StdinPipe()
	sc.ok(err)
	out, err := sc.client.StdoutPipe()
	sc.ok(err)
	sc.said = bufio.NewReader(out)
	sc.ok(sc.client.Start())
	client := sc.client
	sc.Cleanup(func() { _ = client.Process.Kill() })
}

// kill kills the client.
func (sc *scene) kill() {
	sc.Helper()
	sc.ok(sc.client.Process.Kill())
	_ = sc.client.Wait()
}

// holdPending lets the rival lock ben's pending row. A call that removes ben locks c, and then
// waits for that row.
func (sc *scene) holdPending() {
	sc.rival.do("BEGIN")
	sc.rival.do("SELECT FROM pending_deliveries WHERE user_id = 'ben' FOR UPDATE")
}

// others checks that calls without a commit continue, and that the other chat is not locked.
func (sc *scene) others() {
	sc.Helper()
	if sc.locked("d") {
		sc.Error("another chat is locked")
	}
	ctx := sc.Context()
	for _, chat := range []tidemark.ChatID{"c", "d"} {
		_, err := sc.store.Chat(ctx, chat)
		sc.ok(err)
		_, err = sc.store.Ranges(ctx, []storage.Range{{Chat: chat, Limit: 10}})
		sc.ok(err)
		_, err = sc.store.Rosters(ctx, []tidemark.ChatID{chat})
		sc.ok(err)
		_, err = sc.store.States(ctx, []storage.StateKey{{User: "ben", Chat: chat}})
		sc.ok(err)
	}
	_, _, err := sc.store.PendingOf(ctx, "ben", "", 10)
	sc.ok(err)
	if !sc.locked("c") {
		sc.Error("the commit does not hold its chat: nothing is shown")
	}
}

// unavailable demands that the cancelled call returns Unavailable.
func (sc *scene) unavailable() {
	sc.Helper()
	if err := <-sc.ended; tidemark.CodeOf(err) != tidemark.Unavailable {
		sc.Errorf("the cancelled call returned %v, want Unavailable", err)
	}
}

// A chat is free again as soon as the call or client that locked it has gone, and Postgres has
// finished the wait.
func TestLocks_go_with_the_call_or_the_client(t *testing.T) {
	t.Parallel()
	server, disk := service.StartOnDisk(t)
	for _, tc := range []struct {
		name string
		// lock returns when c is locked. last is the last action before c must be free.
		lock, last func(sc *scene)
		// after restores the scene.
		after func(sc *scene)
	}{
		{
			"a cancelled call that waits for another lock",
			func(sc *scene) { sc.holdPending(); sc.call(sc.Context()); sc.rival.waitedFor() },
			func(sc *scene) { sc.cancel() },
			func(sc *scene) { sc.unavailable(); sc.rival.do("ROLLBACK") },
		},
		{
			"a call that runs out of time while it waits for another lock",
			func(sc *scene) {
				ctx, cancel := context.WithTimeout(sc.Context(), 300*time.Millisecond)
				sc.Cleanup(cancel)
				sc.holdPending()
				sc.call(ctx)
				<-ctx.Done()
			},
			func(*scene) {},
			func(sc *scene) { sc.unavailable(); sc.rival.do("ROLLBACK") },
		},
		{
			"a cancelled call when the server takes no connections",
			func(sc *scene) {
				sc.holdPending()
				sc.call(sc.Context())
				sc.rival.waitedFor()
				sc.ok(syscall.Kill(sc.server.PID(), syscall.SIGSTOP))
			},
			func(sc *scene) { sc.cancel() },
			func(sc *scene) {
				sc.ok(syscall.Kill(sc.server.PID(), syscall.SIGCONT))
				sc.unavailable()
				sc.rival.do("ROLLBACK")
			},
		},
		{
			"a cancelled call whose commit waits for the disk",
			func(sc *scene) {
				sc.disk.Stall(sc)
				sc.call(sc.Context())
				sc.commitWaits()
				sc.cancel()
				sc.unavailable()
				sc.others()
			},
			func(sc *scene) { sc.disk.Resume(sc) },
			func(sc *scene) { sc.comesBack() },
		},
		{
			"a client that dies between two statements",
			func(sc *scene) {
				sc.start("lock and say so")
				sc.hears("locked")
			},
			func(sc *scene) { sc.kill() },
			func(*scene) {},
		},
		{
			"a client that dies while it waits for another lock",
			func(sc *scene) { sc.holdPending(); sc.start("remove ben"); sc.rival.waitedFor() },
			func(sc *scene) { sc.kill() },
			func(sc *scene) { sc.rival.do("ROLLBACK") },
		},
		{
			"a client that dies while its commit waits for the disk",
			func(sc *scene) {
				// The client's start must not wait for the disk.
				sc.start("remove ben")
				sc.disk.Stall(sc)
				sc.commitWaits()
				sc.kill()
				sc.others()
			},
			func(sc *scene) { sc.disk.Resume(sc) },
			func(sc *scene) { sc.comesBack() },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sc := newScene(t, server, disk)
			var took []time.Duration
			for range tries {
				tc.lock(sc)
				tc.last(sc)
				began := time.Now()
				wantSoon(t, func() bool { return !sc.locked("c") })
				took = append(took, time.Since(began).Round(time.Millisecond))
				tc.after(sc)
				if took[len(took)-1] <= atMost {
					t.Logf("c was locked for another %v", took)
					return
				}
			}
			t.Errorf("c was locked for another %v, want at most %v", took, atMost)
		})
	}
}

// hears waits until the client prints a line.
func (sc *scene) hears(want string) {
	sc.Helper()
	if line, err := sc.said.ReadString('\n'); line != want+"\n" {
		sc.Fatalf("the client says %q, %v", line, err)
	}
}

// comesBack makes ben a member again, and marks ben's row.
func (sc *scene) comesBack() {
	sc.Helper()
	_, err := sc.store.AddMembers(sc.Context(), "c", []tidemark.UserID{"ben"}, tidemark.Ordinary,
		time.UnixMilli(4))
	sc.ok(err)
}

// A client whose machine has crashed or is paused is detected by its silence. That is earlier than
// the lock_timeout of those who wait. If the client continues, it makes its call again.
func TestLocks_go_with_a_client_that_stands_still(t *testing.T) {
	t.Parallel()
	sc := newScene(t, service.Shared(t), nil)
	sc.start("lock and say so")
	sc.hears("locked")
	sc.ok(sc.client.Process.Signal(syscall.SIGSTOP))
	appended, err := storage.AppendOne(t.Context(), sc.store, message("c", "anna", "1", "hello"))
	if err != nil || appended.Message.Sequence != 1 {
		t.Errorf("a send to the chat of a client that stands still: %+v, %v", appended, err)
	}
	sc.ok(sc.client.Process.Signal(syscall.SIGCONT))
	_, err = sc.input.Write([]byte("go on"))
	sc.ok(err)
	sc.hears("locked") // the second time
	sc.ok(sc.client.Wait())
}

// While the disk stalls, callers give up calls whose commits cannot be cancelled. Each such call
// keeps its connection. So the server has no more of them than the store's pool.
func TestLocks_calls_that_were_given_up_do_not_pile_up(t *testing.T) {
	t.Parallel()
	server, disk := service.StartOnDisk(t)
	sc := newScene(t, server, disk)
	var chats []tidemark.ChatID
	for n := range 2 * int(sc.store.writers.Config().MaxConns) {
		chats = append(chats, tidemark.ChatID(fmt.Sprint("c", n)))
		_, _, err := sc.store.CreateChat(t.Context(), storage.NewChat{
			ID:        chats[n],
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: time.UnixMilli(1),
			Creator:   "anna",
			Members:   []tidemark.UserID{"anna", "ben"},
		})
		sc.ok(err)
	}
	sc.disk.Stall(t)
	const committing = "SELECT count(*) FROM pg_stat_activity WHERE application_name = " +
		"'tidemark' AND state = 'active'"
	most := 0
	for _, chat := range chats {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := sc.store.RemoveMember(ctx, chat, "ben", time.UnixMilli(3))
		cancel()
		wantError(t, err, tidemark.Unavailable)
		var n int
		sc.ok(sc.watch.QueryRow(t.Context(), committing).Scan(&n))
		most = max(most, n)
	}
	if want := int(sc.store.writers.Config().MaxConns); most > want {
		t.Errorf("%d commits wait for the disk, want at most %d", most, want)
	}
	sc.disk.Resume(t)
	sc.comesBack() // The abandoned calls have ended.
}

// The histories hold while commits stall for longer than lock_timeout.
func TestStore_histories_while_the_disk_stalls(t *testing.T) {
	t.Parallel()
	server, disk := service.StartOnDisk(t)
	// The rest of the test waits for locks, so a short timeout makes it quick.
	const wait = 100 * time.Millisecond
	open := func(t *testing.T) storage.Store {
		return openTest(t,
			newDatabase(t, server)+fmt.Sprintf("&lock_timeout=%d", wait.Milliseconds()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			<-time.After(wait)
			disk.Stall(t)
			<-time.After(3 * wait)
			disk.Resume(t)
		}
	}()
	defer func() { cancel(); <-ended }()
	storagetest.RunHistories(t, open, 2)
}
