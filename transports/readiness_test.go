package transports_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// checked is a store with a given health.
type checked struct {
	storage.Store
	err error
}

// Check returns nil if the store can serve.
func (c checked) Check(context.Context) error { return c.err }

// TestReady_says_how_each_dependency_is: /readyz is red without the store or the issuer's keys, and
// green without the other nodes.
func TestReady_says_how_each_dependency_is(t *testing.T) {
	type state struct{ Status, Detail string }
	type answer struct {
		Status       any
		Dependencies map[string]state
	}
	ok := func() error { return nil }
	away := tidemark.Errorf(tidemark.Unavailable, "it is away")
	gone := func() error { return away }
	// This issuer is never asked, because Run does not run.
	issuer, err := auth.NewJWKS(auth.JWKSConfig{URL: "https://127.0.0.1:1/keys"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		store    error
		degraded func() error
		jwks     *auth.JWKS
		status   int
		want     answer
	}{
		{"alone", nil, nil, nil, 200, answer{"ok", map[string]state{"store": {Status: "ok"}}}},
		{"with others", nil, ok, nil, 200,
			answer{"ok", map[string]state{"store": {Status: "ok"}, "redis": {Status: "ok"}}}},
		{"without Redis", nil, gone, nil, 200,
			answer{"degraded",
				map[string]state{"store": {Status: "ok"}, "redis": {"unavailable", "it is away"}}}},
		{"without the store", away, ok, nil, 503,
			answer{503.0,
				map[string]state{"store": {"unavailable", "it is away"}, "redis": {Status: "ok"}}}},
		{"without anything", away, gone, nil, 503,
			answer{503.0,
				map[string]state{"store": {"unavailable", "it is away"},
					"redis": {"unavailable", "it is away"}}}},
		{"without keys", nil, nil, issuer, 503, answer{503.0, map[string]state{
			"store": {Status: "ok"},
			"issuer": {"unavailable",
				"the keys of the token issuer could not be fetched yet; try again"},
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := dev()
			o.auth.JWKS, o.degraded = tt.jwks, tt.degraded
			o.storage = checked{stores.Open(t), tt.store}
			a := start(t, o)
			r := a.as("").do("GET", "//readyz", "")
			var got answer
			if err := json.Unmarshal(r.body, &got); err != nil || r.StatusCode != tt.status {
				t.Fatalf("%d %s: %v", r.StatusCode, r.body, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			a.handler.Leave()
			r = a.as("").do("GET", "//readyz", "")
			if r.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a server that leaves: %d %s", r.StatusCode, r.body)
			}
		})
	}
}
