package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

const clusterTestSecret = "0123456789abcdef0123456789abcdef"

// TestClusterFlags_say_what_is_missing checks each combination that cannot work.
func TestClusterFlags_say_what_is_missing(t *testing.T) {
	shared, file := storeURL{scheme: schemePostgres}, storeURL{scheme: schemeSQLite}
	here := ClusterFlags{Cluster: "postgres", ClusterListen: "10.0.0.1:7946"}
	for _, tc := range []struct {
		name   string
		flags  ClusterFlags
		store  storeURL
		redis  string
		secret string
		want   string
	}{
		{"nothing", ClusterFlags{}, file, "", "", ""},
		{"all", here, shared, "", clusterTestSecret, ""},
		{"another kind", ClusterFlags{Cluster: "x"}, shared, "", "", "must be postgres"},
		{"with Redis", here, shared, "redis://h", clusterTestSecret, "exclude each other"},
		{"another store", here, file, "", clusterTestSecret, "share a store of Postgres"},
		{"no address", ClusterFlags{Cluster: "postgres"}, shared, "", clusterTestSecret,
			"--cluster-listen HOST:PORT"},
		{"only an address", ClusterFlags{ClusterListen: "h:1"}, shared, "", "",
			"belong to --cluster postgres"},
		{"no port", ClusterFlags{Cluster: "postgres", ClusterListen: "h"}, shared, "",
			clusterTestSecret, "is not HOST:PORT"},
		{"every address", ClusterFlags{Cluster: "postgres", ClusterListen: ":7946"}, shared, "",
			clusterTestSecret, "give --cluster-advertise"},
		{"every address, and its own", ClusterFlags{
			Cluster: "postgres", ClusterListen: ":7946", ClusterAdvertise: "10.0.0.1:7946",
		}, shared, "", clusterTestSecret, ""},
		{"no secret", here, shared, "", "", "TIDEMARK_CLUSTER_SECRET has 0 bytes"},
		{"a short secret", here, shared, "", "geheim", "needs at least 32"},
	} {
		t.Setenv(clusterVariable, tc.secret)
		err := tc.flags.check(tc.store, tc.redis)
		switch {
		case tc.want == "" && err == nil:
		case tc.want == "" || err == nil || !strings.Contains(err.Error(), tc.want):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		case strings.Contains(err.Error(), "geheim"):
			t.Errorf("%s: the error shows the secret: %v", tc.name, err)
		}
	}
}

// TestServe_nodes_on_Postgres_alone checks what users see of two nodes without Redis.
func TestServe_nodes_on_Postgres_alone(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv(clusterVariable, clusterTestSecret)
	store := postgres.Shared(t).Database(t)
	var urls []string
	for i := range 2 {
		url, _ := startLogged(t, "--dev", "--migrate", "--store", store, "--cluster", "postgres",
			"--cluster-listen", "127.0.0.1:0", "--node", fmt.Sprint("n", i+1))
		urls = append(urls, url)
	}
	createTeam(t, urls[0])
	_, body := answerOf(t, "bob", "POST", urls[0]+"/api/v1/tickets", "")
	var made struct{ Ticket string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.Ticket == "" {
		t.Fatalf("a ticket: %s", body)
	}
	path := "/api/v1/events?device_id=d1&ticket=" + made.Ticket
	events, code := listen(t, urls[1]+path, "")
	if code != http.StatusOK {
		t.Fatalf("a ticket of the other node: %d", code)
	}
	last := await(t, events, "caught_up")
	answerOf(t, "ann", "POST", urls[0]+"/api/v1/chats/team/messages",
		`{"client_message_id":"m1","content":"hello"}`)
	if e := await(t, events, "message"); !strings.Contains(e.data, `"hello"`) {
		t.Errorf("the message is %s", e.data)
	}
	// The session moves to the first node, and continues there.
	moved, code := listen(t, urls[0]+path, last.id)
	if code != http.StatusOK {
		t.Fatalf("resuming on the other node: %d", code)
	}
	if e := await(t, moved, "session"); !strings.Contains(e.data, `"resumed":true`) {
		t.Errorf("resuming on the other node: %s", e.data)
	}
	if e := await(t, moved, "message"); !strings.Contains(e.data, `"hello"`) {
		t.Errorf("the message is %s", e.data)
	}
}
