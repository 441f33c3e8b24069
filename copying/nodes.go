package copying

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// heartbeats are the kinds of documents that workers write every few seconds as long as they live
// (package reach).
var heartbeats = []string{"workers", "reliant"}

// workKey names the document of the target that a copy writes as a worker writes its own (Beat).
var workKey = storage.DocumentKey{Kind: stateKey.Kind, Name: "work"}

const (
	// beatsEvery is within which time a worker writes its document again, with a reserve.
	beatsEvery = 10 * time.Second
	// ownEvery is how often a copy writes its document.
	ownEvery = 2 * time.Second
)

// Nodes returns the names of servers that work on a store, or of another copy into it. It watches
// for ten seconds whether one writes its heartbeat, which pause waits for. A node that is no
// worker, and shares its leases in Redis, is not noticed.
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
	own, err := s.DocumentsOf(ctx, []storage.DocumentKey{workKey})
	if err != nil {
		return nil, err
	}
	if own[0].Version > 0 {
		found["another tidemark copy"] = own[0].Version
	}
	return found, nil
}

// Beat calls do, which copies into a store. Meanwhile it writes a heartbeat there, so that Nodes
// notices the copy: of two copies, the slower one would write what the other one has read earlier.
//
// Conflict: another copy has begun, because this one was stopped for a while. do has ended then.
// Else the error is that of do.
func Beat(ctx context.Context, to storage.Documents, do func(context.Context) error) error {
	b := beating{to: to}
	if err := b.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() {
		ticks := time.NewTicker(ownEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			// After another error, the next beat may be in time.
			//rule:copy_equal.one-copy-at-a-time
			if err := b.beat(ctx); tidemark.CodeOf(err) == tidemark.Conflict {
				cancel(err)
			}
		}
	})
	err := do(ctx)
	cancel(nil)
	beats.Wait()
	if cause := context.Cause(ctx); tidemark.CodeOf(cause) == tidemark.Conflict {
		return cause
	}
	b.end(ctx)
	return err
}

// beating writes the document of a copy.
type beating struct {
	to storage.Documents
	storage.Document
}

// begin takes the place of a copy that has ended.
func (b *beating) begin(ctx context.Context) error {
	found, err := b.to.DocumentsOf(ctx, []storage.DocumentKey{workKey})
	if err != nil {
		return err
	}
	b.Document = found[0]
	b.Kind, b.Name = workKey.Kind, workKey.Name
	if b.Value, err = json.Marshal(rand.Text()); err != nil {
		return err
	}
	return b.beat(ctx)
}

// beat writes the document once more. Conflict: it is that of another copy.
func (b *beating) beat(ctx context.Context) error {
	version, err := b.to.PutDocument(ctx, b.Document)
	if tidemark.CodeOf(err) == tidemark.Conflict {
		found, failed := b.to.DocumentsOf(ctx, []storage.DocumentKey{workKey})
		if failed != nil {
			return failed
		}
		if !bytes.Equal(found[0].Value, b.Value) {
			return notAlone()
		}
		version, err = found[0].Version, nil // The answer to the write was lost.
	}
	if err == nil {
		b.Version = version
	}
	return err
}

func notAlone() error {
	return tidemark.Errorf(tidemark.Conflict,
		"another tidemark copy writes into the target; let only one of them work")
}

// end removes the document. If it stays, the next copy waits until it knows that this one has
// ended.
func (b *beating) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownEvery)
	defer cancel()
	b.Value = nil
	_, _ = b.to.PutDocument(ctx, b.Document)
}
