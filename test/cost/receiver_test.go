package cost

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/webhook"
	"github.com/tidemark-im/tidemark/reach/webhook/webhooktest"
	"github.com/tidemark-im/tidemark/storage"
)

func TestMain(m *testing.M) {
	if !webhooktest.Serve() {
		os.Exit(m.Run())
	}
}

// nothing is an outlet that accepts everything at once. It shows what outlets cost without a
// receiver.
type nothing struct{}

func (nothing) Deliver(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
	return len(events), nil
}
func (nothing) Limits() outlet.Limits { return outlet.Limits{Events: 100, Bytes: 256 << 10} }
func (nothing) Close() error          { return nil }

// engine returns an engine for a store, with webhooks that lead to a receiver, and outlets that
// lead nowhere.
func engine(
	t *testing.T, r *webhooktest.Receiver, store storage.Store, times reach.Times,
) *reach.Engine {
	t.Helper()
	sealer, err := reach.NewSealer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return reach.New(reach.Config{
		Store: store, Sealer: sealer, Times: times, Log: slog.New(slog.DiscardHandler),
		Kinds: map[string]reach.Kind{
			"webhook": {
				NewSecret: webhook.NewSecret,
				Open: func(s *reach.Spec, secrets []string) (outlet.Client, error) {
					return webhook.New(webhook.Config{
						URL: s.URL, Secrets: secrets, Batch: s.Batch, Roots: r.Roots,
						Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
					})
				},
			},
			"nothing": {Open: func(*reach.Spec, []string) (outlet.Client, error) {
				return nothing{}, nil
			}},
		},
	})
}
