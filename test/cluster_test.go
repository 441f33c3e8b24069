package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCluster_works_as_written starts `make cluster` as in a terminal, and follows docs/cluster.md.
// In the end Ctrl-C leaves no process and no file.
func TestCluster_works_as_written(t *testing.T) {
	t.Parallel() // It waits more than it works.
	c := makeCluster(t)
	t.Run("a poll goes on over all nodes", c.polls)
	t.Run("the commands of docs/cluster.md", c.commands)
	t.Run("two browsers", c.browsers)
	c.interrupt()
}

// cluster is a run of `make cluster`.
type cluster struct {
	t       *testing.T
	command *exec.Cmd
	out     *output
	ended   chan error
	// export is the line that the commands of docs/cluster.md need. variables are the variables it
	// sets.
	export    string
	variables map[string]string
	dir       string
}

func makeCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, out: &output{}, ended: make(chan error, 1), variables: map[string]string{}}
	c.command = exec.Command("make", "--no-print-directory", "cluster")
	c.command.Dir = ".."
	// In a terminal there is no make around this one.
	c.command.Env = slices.DeleteFunc(environment(), func(variable string) bool {
		return strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "MFLAGS")
	})
	c.command.Stdout, c.command.Stderr = c.out, c.out
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal does
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.ended <- c.command.Wait() }()
	t.Cleanup(func() {
		if c.command.Process != nil {
			c.signal()
			c.wait()
		}
		if t.Failed() {
			t.Logf("make cluster:\n%s", c.out.String())
		}
	})
	line := regexp.MustCompile(`(?m)^export PROXY=.*$`)
	timeout := time.After(5 * time.Minute) // it may have to be compiled first
	for c.export == "" {
		select {
		case err := <-c.ended:
			c.command.Process = nil
			t.Fatalf("make cluster ended: %v\n%s", err, c.out.String())
		case <-timeout:
			t.Fatalf("make cluster printed no line to export:\n%s", c.out.String())
		case <-time.After(50 * time.Millisecond):
			c.export = line.FindString(c.out.String())
		}
	}
	for _, pair := range strings.Fields(c.export)[1:] {
		name, value, _ := strings.Cut(pair, "=")
		c.variables[name] = value
	}
	printed := regexp.MustCompile(`(?m)^  logs +(\S+)$`)
	if logs := printed.FindStringSubmatch(c.out.String()); logs != nil {
		c.dir = logs[1]
	}
	return c
}

// signal sends what Ctrl-C sends: SIGINT to every process of the terminal.
func (c *cluster) signal() { _ = syscall.Kill(-c.command.Process.Pid, syscall.SIGINT) }

func (c *cluster) wait() {
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		_ = syscall.Kill(-c.command.Process.Pid, syscall.SIGKILL)
		<-c.ended
		c.t.Error("make cluster did not end within a minute of Ctrl-C")
	}
	c.command.Process = nil
}

// interrupt sends Ctrl-C, and checks that no process and no file is left.
func (c *cluster) interrupt() {
	c.t.Helper()
	c.signal()
	c.wait()
	for name, value := range c.variables {
		if address, is := strings.CutPrefix(value, "http://"); is {
			if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				conn.Close()
				c.t.Errorf("%s is still there, at %s", name, address)
			}
			continue
		}
		pid, err := strconv.Atoi(value)
		if err != nil {
			c.t.Errorf("%s=%s is no process", name, value)
		} else if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			c.t.Errorf("%s, the process %d, still runs: %v", name, pid, err)
		}
	}
	if _, err := os.Stat(c.dir); c.dir == "" || err == nil {
		c.t.Errorf("the directory %q was left", c.dir)
	}
}

// commands runs the commands of the page. They chat through the proxy, kill a node and stop Redis.
func (c *cluster) commands(t *testing.T) {
	page, err := os.ReadFile("../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := append([]string{c.export + "\n"}, shellBlocks(string(page))...)
	output := runBlocks(t, blocks, readmeAddress)
	for _, step := range []struct {
		rule  string
		block string // a word of the block that prints it
		want  []string
	}{
		{"a chat is made through the proxy", "CHAT=", []string{`the chat is [A-Za-z0-9_.:-]+\n`}},
		{
			"what goes in at one node comes out at another",
			"Tea at five?", []string{`"sequence": ?1\b`, `(?m)^event: ?message$`, `Tea at five\?`},
		},
		{"ticks go the other way", "last_read_sequence", []string{
			`(?s)"user_id": ?"bob","last_acked_sequence": ?1,"last_read_sequence": ?0\b.*` +
				`"user_id": ?"bob","last_acked_sequence": ?1,"last_read_sequence": ?1\b`,
		}},
		{"one session is polled at three nodes", "for message in one two three", []string{
			`(?s)"session_id": ?"([^"]+)".*one.*"session_id": ?"([^"]+)".*two.*` +
				`"session_id": ?"([^"]+)".*three`,
		}},
		{
			"a message sent while bob's node is dead waits for bob",
			"kill -9", []string{`"sequence": ?5\b`, `(?s)event: ?message.*Are you still there`},
		},
		{
			"without Redis a send is confirmed, and received when it is back",
			"kill -STOP", []string{`"sequence": ?6\b`, `"degraded"`, `Without Redis`},
		},
	} {
		got, ok := outputOf(blocks, output, step.block)
		if !ok {
			t.Errorf("%s: no sh block of the page holds %q", step.rule, step.block)
			continue
		}
		for _, want := range step.want {
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%s: got\n%s\nwant a match of %s", step.rule, got, want)
			}
		}
	}
}

// polls reads fifty messages in one session, by polls that the proxy sends to all of the nodes.
func (c *cluster) polls(t *testing.T) {
	alice, bob := c.user("anna"), c.user("ben")
	chat := alice.direct(t, "ben")
	var want, got []string
	session, after, gone := "", int64(0), 0
	poll := func() {
		path := "/poll?wait_seconds=2"
		if session != "" {
			path += fmt.Sprintf("&session_id=%s&after_event_id=%d", session, after)
		}
		var answer struct {
			Session string `json:"session_id"`
			Events  []struct {
				ID      int64
				Type    string
				Payload message
			}
		}
		// On a busy machine a node may not give the session in time. Then a new session begins with
		// what is not acknowledged.
		status, body, err := bob.try(t.Context(), http.MethodGet, path, nil)
		switch {
		case err != nil || status == http.StatusServiceUnavailable:
			return
		case status == http.StatusGone:
			session, after, gone = "", 0, gone+1
			return
		case status != http.StatusOK:
			t.Fatalf("a poll: %d %s", status, body)
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			t.Fatal(err)
		}
		if session != "" && answer.Session != session {
			t.Fatalf("the session is %s, and was %s", answer.Session, session)
		}
		session = answer.Session
		for _, e := range answer.Events {
			after = max(after, e.ID)
			if e.Type == "message" && (gone == 0 || e.Payload.Sequence > int64(len(got))) {
				got = append(got, e.Payload.Content)
			}
		}
	}
	poll()
	for n := range 50 {
		want = append(want, fmt.Sprint("message ", n+1))
		alice.send(t, chat, want[n])
		for tries := 0; len(got) < len(want) && tries < 30; tries++ {
			poll()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages, in order and once (-want +got):\n%s", diff)
	}
	if gone > 10 {
		t.Errorf("the session was lost %d times", gone)
	}
	// The proxy has no preference.
	log, err := os.ReadFile(c.dir + "/tidemark.log")
	if err != nil {
		t.Fatal(err)
	}
	answered := map[string]int{}
	polled := regexp.MustCompile(`(?m)"GET /api/v1/poll .* (\S+)$`)
	for _, line := range polled.FindAllStringSubmatch(string(log), -1) {
		answered[line[1]]++
	}
	for _, node := range []string{"N1", "N2", "N3"} {
		if address := strings.TrimPrefix(c.variables[node], "http://"); answered[address] < 10 {
			t.Errorf("%s, at %s, has answered few of the polls: %v", node, address, answered)
		}
	}
}

// browsers opens the page on two nodes. Then it opens the page behind the proxy while each node is
// killed, which the script starts again.
func (c *cluster) browsers(t *testing.T) {
	nodes := []string{c.variables["N1"], c.variables["N2"], c.variables["N3"]}
	control := http.NewServeMux()
	killed := func(r *http.Request) (name string, pid int) {
		n, err := strconv.Atoi(r.FormValue("node"))
		if err != nil || n < 0 || n >= len(nodes) {
			t.Errorf("no node %q", r.FormValue("node"))
			return "n1", 0
		}
		name = fmt.Sprint("n", n+1)
		started := regexp.MustCompile(
			`(?m)(?:^  ` + name + ` .*|` + name + ` is ready again: )process (\d+)$`)
		pids := started.FindAllStringSubmatch(c.out.String(), -1)
		pid, _ = strconv.Atoi(pids[len(pids)-1][1])
		return name, pid
	}
	control.HandleFunc("POST /kill", func(_ http.ResponseWriter, r *http.Request) {
		name, pid := killed(r)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("killing %s: %v", name, err)
		}
	})
	control.HandleFunc("POST /await", func(w http.ResponseWriter, r *http.Request) {
		name, _ := killed(r)
		ctx, cancel := context.WithTimeout(r.Context(), deadline)
		defer cancel()
		n, _ := strconv.Atoi(r.FormValue("node"))
		for ctx.Err() == nil && !strings.Contains(lastOf(c.out.String(), name), "is ready again") {
			<-time.After(50 * time.Millisecond)
		}
		if err := waitReady(ctx, nodes[n]+"/readyz", nil); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	calls := httptest.NewServer(control)
	t.Cleanup(calls.Close)
	inChromium(t, "cluster.test.mjs", "TIDEMARK_TEST_URL="+c.variables["PROXY"],
		"TIDEMARK_TEST_NODES="+strings.Join(nodes, " "), "TIDEMARK_TEST_CONTROL="+calls.URL)
}

// lastOf returns the last line that the script printed about a node.
func lastOf(text, name string) (last string) {
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		if strings.HasPrefix(scanner.Text(), "cluster: "+name+" ") {
			last = scanner.Text()
		}
	}
	return last
}

func (c *cluster) user(name string) user { return user{name: name, url: c.variables["PROXY"]} }
