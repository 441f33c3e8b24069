// Package reachtest has outlets for tests of the adapters.
package reachtest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/webhook"
	"github.com/tidemark-im/tidemark/storage"
)

// ParkedEvent is the id of the parked event of the outlet crm.
const ParkedEvent = "evt_parked"

// Engine returns an engine with the outlets crm and old, which are active, and a parked event of
// crm. Their receiver accepts everything. The outlet fanout is the server's own, and another node
// uses it. The engine does not run: nothing is delivered unless a call asks for it.
func Engine(t testing.TB, store storage.Store) *reach.Engine {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	sealer, err := reach.NewSealer([]byte("the key of a test's outlets, 32 b"))
	if err != nil {
		t.Fatal(err)
	}
	engine := reach.New(reach.Config{
		Store: store, Sealer: sealer, Log: slog.New(slog.DiscardHandler),
		Kinds: map[string]reach.Kind{
			"webhook": {
				NewSecret: webhook.NewSecret,
				Open: func(s *reach.Spec, secrets []string) (outlet.Client, error) {
					return webhook.New(webhook.Config{
						URL: s.URL, Secrets: secrets, Batch: s.Batch, Content: s.Content,
						Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
					})
				},
			},
			"fanout": {Own: "fanout", Fixed: true, Off: true},
		},
	})
	var specs []reach.Spec
	for _, id := range []storage.OutletID{"crm", "old"} {
		sealed, err := sealer.Seal(webhook.NewSecret())
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, reach.Spec{
			ID: id, Kind: "webhook", URL: receiver.URL, Content: "full", State: reach.Active,
			CreatedAt: time.Now(), Secrets: []reach.Secret{{Sealed: sealed}},
		})
	}
	specs = append(specs, reach.Spec{
		ID: "fanout", Kind: "fanout", Content: "full", State: reach.Active, CreatedAt: time.Now(),
	})
	put(t, store, "reliant", "another", map[string]any{})
	put(t, store, "outlets", "list", map[string]any{"outlets": specs})
	put(t, store, "parked:crm", ParkedEvent, reach.Parked{
		Event: outlet.Event{
			ID: ParkedEvent, Type: outlet.ChatUpdated, Chat: "team", Time: time.Now(),
			Data: []byte(`{"chat_id":"team","version":1}`),
		},
		At: time.Now(), Status: http.StatusInternalServerError, Detail: "refused",
	})
	return engine
}

// put stores a document, unless there is one: another engine may have used the store.
func put(t testing.TB, store storage.Store, kind, name string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		_, err = store.PutDocument(context.Background(),
			storage.Document{Kind: kind, Name: name, Value: text})
	}
	if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
		t.Fatal(err)
	}
}
