package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBalanced_a_node_that_hangs_is_left_out stops one of three nodes with SIGSTOP. The proxy's
// timeout of a call is 10 s here instead of 35 s. A failed node is left out for an hour instead of
// ten seconds, so that a slow machine does not reach its return. The nodes share only the name of a
// chat: the test is about the proxy.
func TestBalanced_a_node_that_hangs_is_left_out(t *testing.T) {
	t.Parallel() // It waits more than it works.
	var nodes []*process
	var addresses []string
	binary := build(t)
	for range 3 {
		p := processOf(t, binary)
		address := p.serve()
		as(address, "alice").call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": "tea", "member_ids": []string{"bob"}}, nil)
		nodes, addresses = append(nodes, p), append(addresses, address)
	}
	sooner := []string{"_timeout 35s", "_timeout 10s", "fail_timeout=10s", "fail_timeout=1h"}
	sends, gives, polls := balanced(t, sooner, addresses...), balanced(t, sooner,
		addresses...), balanced(t, sooner, addresses...)
	hung := nodes[1]
	hang := func(signal syscall.Signal) {
		if err := hung.process.Signal(signal); err != nil {
			t.Error(err)
		}
	}
	hang(syscall.SIGSTOP)
	defer hang(syscall.SIGCONT)

	t.Run("a send waits once and is confirmed by another node", func(t *testing.T) {
		alice := user{name: "alice", url: sends.url}
		for n := range 12 {
			alice.send(t, "tea", fmt.Sprint("message ", n)) // fails unless it is 200 or 201
		}
		if asked := sends.asked(t, hung.address); asked != 1 {
			t.Errorf("%d sends went to the node that hangs, want 1", asked)
		}
	})
	t.Run("a client that waits for less does not hide it", func(t *testing.T) {
		bob := user{name: "bob", url: gives.url}
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			written := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
				WroteRequest: func(httptrace.WroteRequestInfo) {
					time.AfterFunc(100*time.Millisecond, cancel)
				},
			})
			_, _, _ = bob.try(written, http.MethodGet, "/chats", nil)
			cancel()
		}
		until(t, "the proxy has given up", func() bool { return gives.asked(t, hung.address) > 0 },
			func() string { return gives.lines(t) })
		before := gives.asked(t, hung.address)
		for range 12 {
			bob.call(t, http.MethodGet, "/chats", nil, nil)
		}
		if asked := gives.asked(t, hung.address); asked != before {
			t.Errorf("%d calls went to the node that hangs, want 0", asked-before)
		}
	})
	t.Run("a poll is not cut and goes where calls are answered", func(t *testing.T) {
		bob := user{name: "bob", url: polls.url}
		for range 3 {
			bob.call(t, http.MethodGet, "/chats", nil, nil)
		}
		// One node knows the session, the other answers 410 at once. It would also answer 410 to a
		// poll that was cut and sent on.
		owner := as(addresses[0], "bob")
		var answer struct {
			Session string `json:"session_id"`
			Events  []struct{ ID int64 }
		}
		owner.call(t, http.MethodGet, "/poll?wait_seconds=0", nil, &answer)
		path := fmt.Sprintf("/poll?wait_seconds=13&session_id=%s&after_event_id=%d",
			answer.Session, answer.Events[len(answer.Events)-1].ID)
		var answers []int
		for !slices.Contains(answers, http.StatusOK) && len(answers) < 4 {
			status, _, err := bob.try(t.Context(), http.MethodGet, path, nil)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, status)
		}
		if !slices.Contains(answers, http.StatusOK) {
			t.Errorf("polls of 13 s are answered %v, want a 200", answers)
		}
		if asked := polls.asked(t, hung.address); asked != 1 {
			t.Errorf("%d calls and polls went to the node that hangs, want 1", asked)
		}
	})
}

// lines returns the access log.
func (b balancer) lines(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(b.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asked returns how many requests went to a node, including failed attempts.
func (b balancer) asked(t *testing.T, address string) int {
	t.Helper()
	line := regexp.MustCompile(`(?m)^.*" \d+ .*` + regexp.QuoteMeta(address) + `.*$`)
	return len(line.FindAllString(b.lines(t), -1))
}

// balancer is nginx with deploy/nginx/cluster.conf in front of nodes, until the test ends.
type balancer struct{ url, log string } // log is the file of its access log

// balanced starts nginx in front of nodes. It replaces words of the configuration in pairs, so that
// a test need not wait for production timeouts. Each word must occur.
func balanced(t *testing.T, words []string, nodes ...string) balancer {
	t.Helper()
	text, err := os.ReadFile("../deploy/nginx/cluster.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), freeAddress(t)
	config := strings.ReplaceAll(strings.Replace(string(text), "listen 8080;",
		"listen "+address+";", 1), "/var/log/nginx/", dir+"/")
	for pair := range slices.Chunk(words, 2) {
		if !strings.Contains(config, pair[0]) {
			t.Fatalf("cluster.conf does not say %q", pair[0])
		}
		config = strings.ReplaceAll(config, pair[0], pair[1])
	}
	for i, node := range nodes {
		config = strings.ReplaceAll(config, fmt.Sprintf("node%d:8080", i+1), node)
	}
	if strings.Contains(config, ":8080") {
		t.Fatalf("there are %d nodes, and the configuration has more", len(nodes))
	}
	main := "daemon off; worker_processes 1; pid " + dir +
		"/nginx.pid; events { worker_connections 1024; }\nhttp {\n"
	if os.Getuid() == 0 {
		main = "user root root;\n" + main
	}
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		main += kind + "_temp_path " + dir + "/" + kind + ";\n"
	}
	file := dir + "/nginx.conf"
	if err := os.WriteFile(file, []byte(main+config+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &output{}
	cmd := exec.Command(unpacked(t, "nginx"), "-e", "stderr", "-p", dir, "-c", file)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	until(t, "nginx answers", func() bool {
		response, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode == http.StatusOK
	}, log.String)
	return balancer{url: "http://" + address, log: dir + "/tidemark.log"}
}
