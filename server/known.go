package server

import (
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// known is a bounded memory of acknowledged watermarks. Watermarks only grow, so what it remembers is always a lower
// bound of the stored value, which is what its users need. It is safe for concurrent use.
type known struct {
	most int

	mu    sync.Mutex
	acked map[storage.StateKey]tidemark.Sequence
}

func newKnown(most int) *known {
	return &known{most: most, acked: make(map[storage.StateKey]tidemark.Sequence)}
}

func (k *known) get(key storage.StateKey) (tidemark.Sequence, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	acked, ok := k.acked[key]
	return acked, ok
}

// raise remembers a value that was read or written.
func (k *known) raise(key storage.StateKey, acked tidemark.Sequence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, there := k.acked[key]
	if there && old >= acked {
		return
	}
	if !there && len(k.acked) >= k.most {
		for other := range k.acked { // an arbitrary one: the map's order is random
			delete(k.acked, other)
			break
		}
	}
	k.acked[key] = acked
}
