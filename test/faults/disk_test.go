package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// disk is a small file system.
type disk struct {
	t *testing.T
	// dir is its root, which every user may write to.
	dir string
}

// small mounts a file system of a size in mount's notation. It disappears with the test or its
// process. It is mounted in a namespace of its own, whose holder is a process of the server's user.
// It is reached through that process.
func small(t *testing.T, s *service.Server, size string) *disk {
	t.Helper()
	info, err := os.Stat(s.Data())
	must(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	mount := "mount -t tmpfs -o mode=0777,size=" + size + " tmpfs /mnt && echo mounted && exec "
	line := []string{"unshare", "-rm", "sh", "-c", mount + "cat"}
	if os.Getuid() == 0 {
		line = []string{"unshare", "-m", "sh", "-c", mount +
			fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups cat", owner.Uid, owner.Gid)}
	}
	holder := exec.Command(line[0], line[1:]...)
	holder.Dir = "/"
	hold, err := holder.StdinPipe()
	must(t, err)
	said, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	t.Cleanup(func() { _ = hold.Close(); _ = holder.Wait() })
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "mounted\n" {
		t.Fatalf("no file system can be mounted (%v); run this as root, or allow it: sysctl -w "+
			"kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000", err)
	}
	d := &disk{t: t, dir: fmt.Sprintf("/proc/%d/root/mnt", holder.Process.Pid)}
	for deadline := time.Now().Add(10 * time.Second); s.Shell("test -w "+d.dir).Run() != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the server cannot reach the small file system")
		}
	}
	return d
}

// fill takes all of the space. free releases it.
func (d *disk) fill() (free func()) {
	d.t.Helper()
	path := filepath.Join(d.dir, "ballast")
	file, err := os.Create(path)
	must(d.t, err)
	if _, err := io.Copy(file, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("the disk is not full: %v", err)
	}
	_ = file.Close()
	return func() { must(d.t, os.Remove(path)) }
}

// zeros is an endless reader of zeros.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestFault_disk_of_the_tables_full(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	d := small(t, s, "200m")
	at := database(t, s)
	must(t, s.Shell("mkdir "+d.dir+"/tables").Run())
	s.Exec(t, "postgres", "CREATE TABLESPACE small LOCATION '"+d.dir+"/tables'")
	s.Exec(t, "postgres", "ALTER DATABASE "+nameOf(t, at)+" SET TABLESPACE small")
	stores := nodes(t, at)
	h := newHistory(t, stores...)
	red := 0
	h.runAndReport(func() {
		free := d.fill()
		deadline := time.Now().Add(time.Minute)
		for h.refusals("disk of the database is full") == 0 && time.Now().Before(deadline) {
			<-time.After(5 * time.Millisecond)
		}
		<-time.After(time.Duration(number(t, "TIDEMARK_FAULT_SECONDS", 2)) * time.Second)
		// Small writes still succeed, but that does not make the node ready. A repeated message
		// that is already stored counts as a success. Check is then green until the next write.
		for range 20 {
			before := h.refusals("disk of the database is full")
			_, ok := wait.Poll(func() (int, bool) {
				err := stores[0].Check(t.Context())
				return h.refusals("disk of the database is full"), err != nil &&
					strings.Contains(err.Error(), "full") &&
					h.refusals("disk of the database is full") > before
			})
			if ok {
				red++
			}
		}
		free()
	})
	if red < 20 {
		t.Errorf("after %d of 20 refused writes, Check said that the disk is full, want all", red)
	}
}

func TestFault_disk_of_the_log_full(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "wal_recycle = off", "max_wal_size = 64MB", "min_wal_size = 32MB")
	d := small(t, s, "200m")
	s.Stop(t, "fast")
	move := fmt.Sprintf("cp -r %[1]s/pg_wal %[2]s/ && rm -r %[1]s/pg_wal && "+
		"ln -s %[2]s/pg_wal %[1]s/pg_wal", s.Data(), d.dir)
	if out, err := s.Shell(move).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Run(t)
	at := database(t, s)
	h := newHistory(t, nodes(t, at)...)
	conn := admin(t, s, at)
	ended := false
	h.runAndReport(func() {
		free := d.fill()
		// the next write needs a new segment
		_, _ = conn.Exec(t.Context(), "SELECT pg_switch_wal()")
		for deadline := time.Now().Add(time.Minute); !strings.Contains(s.Log(), "PANIC"); {
			if time.Now().After(deadline) {
				t.Error("the server did not panic")
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(time.Duration(number(t, "TIDEMARK_FAULT_SECONDS", 2)) * time.Second)
		free()
		// The server either restarts by itself, or it has given up and must be started.
		for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
			if s.Ended() {
				ended = true
				s.Run(t)
			}
			conn, err := pgx.Connect(t.Context(), at)
			if err == nil {
				_ = conn.Close(t.Context())
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("the server is not back: %v", err)
				break
			}
		}
	})
	t.Logf("%d panics; the server gave up: %v", strings.Count(s.Log(), "PANIC"), ended)
	if h.refused == 0 {
		t.Error("nothing was refused")
	}
}
