package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// figures are what TestStats_of_all_nodes_of_a_cluster looks at.
type figures struct {
	Nodes []struct {
		ID     string `json:"node_id"`
		Status string
	}
	Totals struct {
		Sends   int64 `json:"sends_total"`
		Acks    int64 `json:"acks_total"`
		Commits struct {
			Count int64
			P99   *int64 `json:"p99_microseconds"`
		}
	}
}

// String returns the nodes and the sums.
func (f figures) String() string {
	var all []string
	for _, n := range f.Nodes {
		all = append(all, n.ID+" "+n.Status)
	}
	return fmt.Sprintf("%s: %d sends, %d acknowledgements", strings.Join(all, ", "),
		f.Totals.Sends, f.Totals.Acks)
}

// apiKey makes an API key as an operator does. file is the file of keys with its line.
func apiKey(t *testing.T, binary string, flags ...string) (key, file string) {
	t.Helper()
	var secret, line bytes.Buffer
	command := exec.Command(binary, append([]string{"api-key", "--name", "console"}, flags...)...)
	command.Stdout, command.Stderr = &secret, &line
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, line.String())
	}
	file = filepath.Join(t.TempDir(), "keys.txt")
	if err := os.WriteFile(file, line.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(secret.String()), file
}

// TestStats_of_all_nodes_of_a_cluster asks one of three processes for the figures of all, kills
// another one, and asks again. A killed node is named while it has a lease, and counts nothing.
func TestStats_of_all_nodes_of_a_cluster(t *testing.T) {
	t.Parallel() // It waits more than it works.
	binary := build(t)
	key, file := apiKey(t, binary, "--scope", "stats")
	store, shared := postgres.Shared(t).Database(t), redis.Database(t)
	var nodes []*process
	for n := range 3 {
		p := processOf(t, binary)
		p.url, p.flags = store, []string{
			"--dev", "--redis", shared, "--node", fmt.Sprint("n", n+1), "--api-keys-file", file,
		}
		p.start()
		nodes = append(nodes, p)
	}
	operator := user{name: "console", url: "http://" + nodes[0].address, token: key}
	var seen figures
	wants := func(what, want string) {
		t.Helper()
		until(t, what, func() bool {
			<-time.After(50 * time.Millisecond) // each call asks all nodes
			seen = figures{}
			operator.call(t, http.MethodGet, "/admin/stats", nil, &seen)
			return seen.String() == want
		}, func() string { return seen.String() })
	}
	wants("the nodes know each other", "n1 ok, n2 ok, n3 ok: 0 sends, 0 acknowledgements")
	as(nodes[0].address, "alice").call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "team", "member_ids": []string{"bob"}}, nil)
	for n := range 30 {
		as(nodes[n%3].address, "alice").send(t, "team", fmt.Sprint("message ", n))
	}
	for n := range 6 {
		as(nodes[n%2].address, "bob").ack(t, "team", int64(5*n+5))
	}
	wants("all that happened is in the sums", "n1 ok, n2 ok, n3 ok: 30 sends, 6 acknowledgements")
	if c := seen.Totals.Commits; c.Count < 3 || c.P99 == nil || *c.P99 <= 0 {
		t.Errorf("the commits are %+v", c)
	}
	// It is named for seconds only, so all answers are kept.
	var mu sync.Mutex
	said := map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() {
		for ctx.Err() == nil {
			var now figures
			status, body, err := operator.try(ctx, http.MethodGet, "/admin/stats", nil)
			if err == nil && status == http.StatusOK && json.Unmarshal(body, &now) == nil {
				mu.Lock()
				said[now.String()] = true
				mu.Unlock()
			}
			<-time.After(50 * time.Millisecond)
		}
	})
	if err := nodes[2].process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = nodes[2].wait()
	wants("its lease has ended", "n1 ok, n2 ok: 20 sends, 6 acknowledgements")
	mu.Lock()
	defer mu.Unlock()
	if !said["n1 ok, n2 ok, n3 unavailable: 20 sends, 6 acknowledgements"] {
		t.Errorf("the killed node was not named: %v", slices.Sorted(maps.Keys(said)))
	}
}
