package storage_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

var counter = storage.DocumentKey{Kind: "counters", Name: "a"}

// plusOne counts in a document. Ten is removed.
func plusOne(value []byte) ([]byte, error) {
	n := 0
	if value != nil {
		var err error
		if n, err = strconv.Atoi(string(value)); err != nil {
			return nil, err
		}
	}
	if n++; n == 10 {
		return nil, nil
	}
	return []byte(strconv.Itoa(n)), nil
}

// TestEditDocument_concurrent: each of many edits counts, up to the one that removes the document.
func TestEditDocument_concurrent(t *testing.T) {
	store := memory.New()
	for round, want := range []string{"3", "6", "9", "2"} {
		var edits sync.WaitGroup
		for range 3 {
			edits.Go(func() {
				_, wrote, err := storage.EditDocument(t.Context(), store, counter, plusOne)
				if err != nil || !wrote {
					t.Errorf("EditDocument: wrote %t, %v", wrote, err)
				}
			})
		}
		edits.Wait()
		got, wrote, err := storage.EditDocument(t.Context(), store, counter,
			func(value []byte) ([]byte, error) { return value, nil })
		if err != nil || wrote || string(got.Value) != want {
			t.Errorf("round %d: got %q, wrote %t, %v; want %q", round, got.Value, wrote, err, want)
		}
	}
}

// overtaken is a store in which somebody else is always faster.
type overtaken struct {
	*memory.Store
	puts int
}

func (o *overtaken) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	o.puts++
	return 0, storage.Outdated(d.Kind, d.Name)
}

// TestEditDocument_gives_up: neither a refused change nor one that is always overtaken is written.
func TestEditDocument_gives_up(t *testing.T) {
	store := &overtaken{Store: memory.New()}
	_, wrote, err := storage.EditDocument(t.Context(), store, counter, plusOne)
	if wrote || tidemark.CodeOf(err) != tidemark.Unavailable || store.puts < 2 {
		t.Errorf("overtaken %d times: wrote %t, %v; want Unavailable", store.puts, wrote, err)
	}
	refusal := errors.New("not this one")
	store.puts = 0
	_, wrote, err = storage.EditDocument(t.Context(), store, counter,
		func([]byte) ([]byte, error) { return []byte("1"), refusal })
	if wrote || !errors.Is(err, refusal) || store.puts > 0 {
		t.Errorf("refused: wrote %t, %v", wrote, err)
	}
}
