package test

import (
	"net/http"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// TestRoles_workers_deliver_for_gateways: a node that only serves clients, and one that only
// delivers. What comes while no worker lives waits.
func TestRoles_workers_deliver_for_gateways(t *testing.T) {
	t.Parallel() // It waits more than it works.
	binary := build(t)
	key, file := apiKey(t, binary, "--scope", "admin")
	url, shared := postgres.Shared(t).Database(t), redis.Database(t)
	node := func(role string) *process {
		p := processOf(t, binary)
		p.url = url
		p.flags = []string{
			"--dev", "--api-keys-file", file, "--redis", shared, "--node", role, "--roles", role,
		}
		p.start()
		return p
	}
	gateway, worker := node("gateway"), node("worker")
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
