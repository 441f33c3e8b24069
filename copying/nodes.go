package copying

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark/storage"
)

// heartbeats are the kinds of documents that workers write every few seconds as long as they live
// (package reach).
var heartbeats = []string{"workers", "reliant"}

// beatsEvery is within which time a worker writes its document again, with a reserve.
const beatsEvery = 10 * time.Second

// Nodes returns the names of servers that work on a store. It watches for ten seconds whether one
// writes its heartbeat, which pause waits for. A node that is no worker, and shares its leases in
// Redis, is not noticed.
func Nodes(
	ctx context.Context, s Store, pause func(context.Context, time.Duration),
) ([]string, error) {
	nodes, err := s.Nodes(ctx)
	if err != nil || len(nodes) > 0 {
		return nodes, err
	}
	before, err := beats(ctx, s)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	pause(ctx, beatsEvery)
	after, err := beats(ctx, s)
	if err != nil {
		return nil, err
	}
	for name, version := range after {
		//rule:copy_equal.notice-a-server
		if before[name] != version {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return nodes, ctx.Err()
}

// beats returns the versions of all heartbeats.
func beats(ctx context.Context, s storage.Documents) (map[string]uint64, error) {
	const most = 1_000
	found := map[string]uint64{}
	for _, kind := range heartbeats {
		documents, _, err := s.Documents(ctx, kind, "", most)
		if err != nil {
			return nil, err
		}
		for _, d := range documents {
			found[kind+" "+d.Name] = d.Version
		}
	}
	return found, nil
}
