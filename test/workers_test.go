package test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/pushtest"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// TestRoles_workers_deliver_for_gateways: a node that only serves clients, and one that only
// delivers. What comes while no worker lives waits.
func TestRoles_workers_deliver_for_gateways(t *testing.T) {
	t.Parallel() // It waits more than it works.
	key, file := apiKey(t, build(t), "--scope", "admin")
	gateway, worker := nodesOfRoles(t, nil, "--api-keys-file", file)
	response, err := http.Get("http://" + worker.address + "/api/v1/chats") //nolint:noctx // short
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a call of a worker: %s", response.Status)
	}
	h := newHook(t)
	operator := user{name: "operator", url: "http://" + gateway.address, token: key}
	h.create(t, operator, map[string]any{"outlet_id": "crm"})
	var made outletOf
	eventually(t, "the outlet is active", func() bool {
		operator.call(t, http.MethodGet, "/admin/outlets/crm", nil, &made)
		return made.State == "active"
	}, func() string { return made.State })

	alice := as(gateway.address, "alice")
	chat := alice.direct(t, "bob")
	told := func(n int64) {
		t.Helper()
		eventually(t, "the message is told", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.upTo[chat] == n
		}, func() string { return "it is not" })
	}
	told(alice.send(t, chat, "one").Sequence)
	worker.stop()
	last := alice.send(t, chat, "two")
	worker.start()
	told(last.Sequence)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fault := range h.faults {
		t.Error(fault)
	}
}

// nodesOfRoles starts a node of each role.
func nodesOfRoles(t *testing.T, env []string, flags ...string) (gateway, worker *process) {
	t.Helper()
	binary := build(t)
	url, shared := postgres.Shared(t).Database(t), redis.Database(t)
	node := func(role string) *process {
		p := processOf(t, binary)
		p.url, p.env = url, env
		p.flags = append([]string{
			"--dev", "--redis", shared, "--node", role, "--roles", role,
		}, flags...)
		p.start()
		return p
	}
	return node("gateway"), node("worker")
}

// TestRoles_workers_clear_what_is_read_at_gateways: what is read by way of the gateway goes from
// the phone that the worker has notified. An attempt does nothing before the pusher is active. It
// also does nothing if the read comes before the gateway knows of the notification.
func TestRoles_workers_clear_what_is_read_at_gateways(t *testing.T) {
	t.Parallel() // It waits more than it works.
	fakes := startProviders(t)
	gateway, _ := nodesOfRoles(t, fakes.env, fakes.flags...)
	alice, bob := as(gateway.address, "alice"), as(gateway.address, "bob")
	chat := alice.direct(t, "bob")
	fakes.register(t, bob)
	var got []pushtest.Received
	attempt := 0
	// comes waits for the next push, for up to a time.
	comes := func(most time.Duration) {
		n := len(got)
		for end := time.Now().Add(most); len(got) == n && time.Now().Before(end); {
			<-time.After(200 * time.Millisecond)
			got = append(got, fakes.fcm.Received()...)
		}
	}
	eventually(t, "the worker clears what is read at the gateway", func() bool {
		attempt++ // the text is the id of the message, too
		n := alice.send(t, chat, fmt.Sprint("text ", attempt)).Sequence
		comes(15 * time.Second)
		bob.call(t, http.MethodPatch, "/chats/"+chat+"/delivery-state",
			map[string]any{"last_acked_sequence": n, "last_read_sequence": n}, nil)
		comes(10 * time.Second)
		return slices.ContainsFunc(got, func(r pushtest.Received) bool {
			return r.Kind == push.Clear
		})
	}, func() string { return fmt.Sprintf("%+v", got) })
}
