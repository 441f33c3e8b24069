package test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // the driver of the process that locks
)

// Faults of the disk and of the files under the real server. docs/faults.md lists them.

// faultyServer is a server with a chat "c" of alice, bob, dora, erin and frank, and the outcome of
// alice's sends. Bob's stream is open.
type faultyServer struct {
	t      *testing.T
	server *process
	bob    *device
	// erin comes online during the first fault.
	erin *device

	confirmed map[string]int64 // by client_message_id
	refused   []string         // answered 503
	// acked is what frank, who has no device, has acknowledged or tried to.
	acked int
}

func newFaulty(t *testing.T, server *process) *faultyServer {
	t.Helper()
	f := &faultyServer{t: t, server: server, confirmed: map[string]int64{}}
	f.as("alice").call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "c",
			"member_ids": []string{"bob", "dora", "erin", "frank"}}, nil)
	f.bob = f.online("bob", overWebSocket)
	for n := range 5 {
		if status, detail := f.send(fmt.Sprint("before", n)); status != http.StatusCreated {
			t.Fatalf("a send before the fault: %d %s", status, detail)
		}
	}
	return f
}

func (f *faultyServer) as(name string) user { return as(f.server.address, name) }

// online runs a device of a user until the test ends.
func (f *faultyServer) online(name string, over transport) *device {
	d := newDevice(f.as(name), over)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	f.t.Cleanup(func() { cancel(); running.Wait() })
	return d
}

// contentOf returns 4 KB.
func contentOf(id string) string { return strings.Repeat(id+" ", 4000/(len(id)+1)) }

// problem is an error as it is on the wire.
type problem struct{ Code, Detail string }

// send sends a message of 4 KB as alice, and notes the outcome.
func (f *faultyServer) send(id string) (status int, detail string) {
	f.t.Helper()
	status, body, err := f.as("alice").try(f.t.Context(), http.MethodPost, "/chats/c/messages",
		map[string]any{"client_message_id": id, "content": contentOf(id)})
	if err != nil {
		f.t.Fatalf("sending %s: %v", id, err)
	}
	switch status {
	case http.StatusCreated, http.StatusOK:
		var m message
		if err := json.Unmarshal(body, &m); err != nil {
			f.t.Fatal(err)
		}
		if was, there := f.confirmed[id]; there && was != m.Sequence {
			f.t.Errorf("%s was confirmed as %d, and then as %d", id, was, m.Sequence)
		}
		f.confirmed[id] = m.Sequence
	case http.StatusServiceUnavailable:
		f.refused = append(f.refused, id)
	}
	return status, f.problem(status, body)
}

// problem returns the detail of an answer above 400, which has to be 503 UNAVAILABLE.
func (f *faultyServer) problem(status int, body []byte) string {
	f.t.Helper()
	if status < 400 {
		return ""
	}
	var p problem
	if err := json.Unmarshal(body, &p); err != nil ||
		status != http.StatusServiceUnavailable || p.Code != "UNAVAILABLE" {
		f.t.Errorf("got %d %s, want 503 UNAVAILABLE", status, body)
	}
	return p.Detail
}

// ready asks /readyz. If there is no answer, because the server begins anew, the status is 0.
func (f *faultyServer) ready() (status int, detail string) {
	f.t.Helper()
	response, err := http.Get("http://" + f.server.address + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, f.problem(response.StatusCode, body)
}

// refuses checks that nothing is stored, and that all callers get the reason. If reads is true,
// stored messages are still read.
func (f *faultyServer) refuses(reads bool, words ...string) {
	f.t.Helper()
	says := func(detail string) bool {
		for _, word := range words {
			if !strings.Contains(detail, word) {
				return false
			}
		}
		return true
	}
	var detail string
	n := 0
	// Small messages may still be stored.
	until(f.t, "sends are refused", func() bool {
		var status int
		n++
		status, detail = f.send(fmt.Sprint("during", n))
		return status == http.StatusServiceUnavailable
	}, func() string { return detail })
	if !says(detail) {
		f.t.Errorf("the refused send says %q, want it to name %q", detail, words)
	}
	var status int
	until(f.t, "/readyz is red and says why",
		func() bool { status, detail = f.ready(); return status != http.StatusOK && says(detail) },
		func() string { return detail })
	f.acked++
	status, body, err := f.as("frank").try(f.t.Context(), http.MethodPatch,
		"/chats/c/delivery-state", map[string]any{"last_acked_sequence": f.acked})
	// An acknowledgement may need less space than a send, and succeed.
	if detail := f.problem(status, body); err != nil || status >= 400 && !says(detail) {
		f.t.Errorf("an acknowledgement: %d %s, %v", status, body, err)
	}
	if reads {
		f.check("erin")
		if f.erin == nil {
			f.erin = f.online("erin", overSSE)
		}
		until(f.t, "a stream that was opened now has everything that was confirmed",
			func() bool { return f.erin.heads()["c"] >= int64(len(f.confirmed)) },
			func() string { return fmt.Sprint(f.erin.heads()) })
	}
	response, err := http.Get("http://" + f.server.address + "/healthz")
	if err != nil || response.StatusCode != http.StatusOK {
		f.t.Errorf("/healthz: %v, %v: a restart of the server would not help", response, err)
	} else {
		response.Body.Close()
	}
}

// recovers checks that the server goes on by itself. Refused messages, sent again, are stored once,
// and all devices get them.
func (f *faultyServer) recovers() {
	f.t.Helper()
	var detail string
	until(f.t, "/readyz is green again",
		func() bool { var status int; status, detail = f.ready(); return status == http.StatusOK },
		func() string { return detail })
	refused := f.refused
	if len(refused) == 0 {
		f.t.Error("nothing was refused: the fault did not fire")
	}
	for _, id := range append(refused, "after") {
		if status, detail := f.send(id); status >= 300 {
			f.t.Errorf("sending %s, when the cause is gone: %d %s", id, status, detail)
		}
	}
	head := f.check("alice")
	if int(head) != len(f.confirmed) {
		f.t.Errorf("the chat ends at %d, and %d messages were sent", head, len(f.confirmed))
	}
	for _, d := range []*device{f.bob, f.online("dora", overSSE)} {
		until(f.t, d.name+" has everything", func() bool { return d.heads()["c"] == head },
			func() string { return fmt.Sprint(d.heads(), " of ", head) })
		if _, faults := d.observed(); len(faults) > 0 {
			f.t.Error(faults)
		}
	}
	until(f.t, "the acknowledgements of the stream are stored", func() bool {
		var s state
		f.as("bob").call(f.t, http.MethodGet, "/chats/c/delivery-state", nil, &s)
		return s.Acked == head
	}, func() string { return "" })
}

// check reads the chat, and compares it with what was confirmed. It returns the head.
func (f *faultyServer) check(name string) (head int64) {
	f.t.Helper()
	stored := map[string]int64{}
	for more := true; more; {
		var page struct {
			Messages   []message
			Pagination struct {
				HasMore bool `json:"has_more"`
			}
		}
		f.as(name).call(f.t, http.MethodGet,
			fmt.Sprintf("/chats/c/messages?limit=100&after_sequence=%d", head), nil, &page)
		for _, m := range page.Messages {
			if head++; m.Sequence != head || stored[m.ClientMessageID] != 0 {
				f.t.Fatalf("message %d is %s of sequence %d, which was at %d before",
					head, m.ClientMessageID, m.Sequence, stored[m.ClientMessageID])
			}
			stored[m.ClientMessageID] = m.Sequence
		}
		more = page.Pagination.HasMore
	}
	for id, sequence := range f.confirmed {
		if stored[id] != sequence {
			f.t.Errorf("%s was confirmed as %d, and is stored as %d (0: not at all)",
				id, sequence, stored[id])
		}
	}
	return head
}

// inTmpfs gives the server a file system of its own for its store, of a size in mount's notation.
func inTmpfs(t *testing.T, p *process, size, then string) {
	t.Helper()
	p.store = filepath.Join(p.dir, "small")
	if err := os.Mkdir(p.store, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []string{"-rm", "-m"} {
		if exec.Command("unshare", flags, "mount", "-t", "tmpfs", "tmpfs", p.store).Run() == nil {
			mount := "mount -t tmpfs -o size=" + size + " tmpfs " + p.store
			script := mount + " && " + then + `exec "$@"`
			p.wrap = []string{"unshare", flags, "sh", "-c", script, "sh"}
			return
		}
	}
	t.Fatal("no file system can be mounted; run this as root, or allow it: sysctl -w " +
		"kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000")
}

// inside returns the path of a file as the server sees it.
func (p *process) inside(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", p.process.Pid), path)
}

func TestFault_full_disk(t *testing.T) {
	p := newProcess(t)
	inTmpfs(t, p, "3m", "")
	p.start()
	f := newFaulty(t, p)
	ballast := p.inside(filepath.Join(p.store, "ballast"))
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	written, err := io.Copy(file, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full after %d bytes: %v", written, err)
	}
	if err := file.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	f.refuses(true, "full", "free some space")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.recovers()
	// Now the server itself fills the disk: neither the log nor the file can grow. After a restart
	// on a full disk it says so, or serves what is stored.
	f.refused = nil
	f.refuses(true, "full", "free some space")
	t.Logf("%d messages of 4 KB in 3 MB", len(f.confirmed))
	if err := p.process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.wait()
}

// zeros is an endless reader of zeros.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// lockVariable names the database that this program locks, instead of running tests.
const lockVariable = "TEST_LOCK_DATABASE"

func TestMain(m *testing.M) {
	if path := os.Getenv(lockVariable); path != "" {
		if err := lockDatabase(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// lockDatabase holds the database for writing until its input ends.
func lockDatabase(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("PRAGMA busy_timeout = 5000"); err != nil {
		return err
	}
	if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
		return err
	}
	fmt.Println("locked")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	_, err = db.Exec("ROLLBACK")
	return errors.Join(err, db.Close())
}

func TestFault_database_locked_by_another_process(t *testing.T) {
	t.Parallel() // It waits more than it works.
	p := newProcess(t)
	p.start()
	f := newFaulty(t, p)
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), lockVariable+"="+p.database())
	hold, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	f.refuses(true, "locked by another program")
	if err := errors.Join(hold.Close(), other.Wait()); err != nil {
		t.Fatal(err)
	}
	f.recovers()
	p.stop()
}

func TestFault_moved_file(t *testing.T) {
	p := newProcess(t)
	p.start()
	f := newFaulty(t, p)
	if err := os.Rename(p.database(), p.database()+".away"); err != nil {
		t.Fatal(err)
	}
	f.refuses(true, p.database(), "moved, deleted or replaced")
	if err := os.Rename(p.database()+".away", p.database()); err != nil {
		t.Fatal(err)
	}
	f.recovers()
	p.stop()
}

// After a failed fsync, the content of the disk is unknown. The process ends, and its successor
// reads what is stored (delivery.md §2).
func TestFault_failed_fsync_ends_the_process(t *testing.T) {
	t.Parallel() // It waits more than it works.
	strace := lookPath(t, "strace", "strace")
	p := newProcess(t)
	p.start()
	f := newFaulty(t, p)
	log := filepath.Join(p.dir, "strace.log")
	injector := exec.Command(strace, "-f", "-p", fmt.Sprint(p.process.Pid), "-o", log, "-e",
		"trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO")
	said := &output{}
	injector.Stderr = said
	if err := injector.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "strace is attached",
		func() bool { return strings.Contains(said.String(), "attached") }, said.String)
	// The server ends while the send is tried again: it is answered 503, or not at all.
	status, body, err := f.as("alice").try(t.Context(), http.MethodPost, "/chats/c/messages",
		map[string]any{"client_message_id": "cut", "content": contentOf("cut")})
	if err == nil && !strings.Contains(f.problem(status, body), "disk of the database failed") {
		t.Errorf("the send was answered %d %s", status, body)
	}
	f.refused = append(f.refused, "cut")
	var exit *exec.ExitError
	if err := p.wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the server ended with %v, want exit code 1", err)
	}
	_ = injector.Wait() // it ends with the process that it traces
	trace, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(trace), "(INJECTED)") {
		t.Fatalf("no fault was injected: %s, %v", trace, err)
	}
	if !strings.Contains(p.log.String(), "the disk failed in a commit") {
		t.Error("the log does not say why the server ended")
	}
	p.start()
	f.recovers()
	p.stop()
}
