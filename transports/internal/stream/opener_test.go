package stream

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registry "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// A request whose client has closed its side takes no session that a connection reads. It does get
// a session without a connection, like a client that closes only its write side.
func TestOpen_of_a_client_that_has_left(t *testing.T) {
	reg := registry.New()
	core, err := server.New(server.Config{
		Storage:  memory.New(),
		Registry: reg,
		Nodes:    reg,
		Bus:      local.New(),
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = core.Stop(context.Background()) }()
	newest, err := core.Open(t.Context(), server.OpenRequest{User: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	left, cancel := context.WithCancel(t.Context())
	cancel()
	open := func() error {
		r := httptest.NewRequestWithContext(left, "GET", "/events", nil)
		_, _, err := SessionOpener{Server: core}.Open(t.Context(), r,
			auth.Identity{Caller: server.Caller{User: "bob"}},
			wire.Stream{Session: newest.Session()}, Left(r))
		return err
	}
	if err := open(); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("beside the newest connection: %v, want Unavailable", err)
	}
	newest.Detach()
	if err := open(); err != nil {
		t.Errorf("of a session without a connection: %v", err)
	}
}
