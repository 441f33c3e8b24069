package feed

import (
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Known is a bounded memory of watermarks, raw. They only grow, so that what it remembers is always a lower bound of the stored
// values, which is what its users need. It is safe for concurrent use.
type Known struct {
	most int

	mu     sync.Mutex
	states map[storage.StateKey]tidemark.Boundary
}

// NewKnown returns an empty memory of at most most states.
func NewKnown(most int) *Known {
	return &Known{most: most, states: make(map[storage.StateKey]tidemark.Boundary)}
}

// Acked returns the acknowledged watermark, if it is remembered.
func (k *Known) Acked(key storage.StateKey) (tidemark.Sequence, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, ok := k.states[key]
	return b.Acked, ok
}

// Exposed returns what others see of the highest state that is known; 0 if none is.
func (k *Known) Exposed(user tidemark.UserID, chat tidemark.ChatID) tidemark.Boundary {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.states[storage.StateKey{User: user, Chat: chat}]
	return tidemark.DeliveryState{Acked: b.Acked, Read: b.Read}.Exposed()
}

// Learn takes in a state that was read, if one of the user and chat is remembered already: reading many does not push out what was written here.
func (k *Known) Learn(st tidemark.DeliveryState) {
	key := storage.StateKey{User: st.UserID, Chat: st.ChatID}
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, there := k.states[key]; there {
		k.states[key] = b.Merge(tidemark.Boundary{Acked: st.Acked, Read: st.Read})
	}
}

// Raise remembers a state that was read or written, and returns the highest that is known.
func (k *Known) Raise(st tidemark.DeliveryState) tidemark.DeliveryState {
	key := storage.StateKey{User: st.UserID, Chat: st.ChatID}
	k.mu.Lock()
	defer k.mu.Unlock()
	b, there := k.states[key]
	if !there && len(k.states) >= k.most {
		for other := range k.states { // an arbitrary one: the map's order is random
			delete(k.states, other)
			break
		}
	}
	b = b.Merge(tidemark.Boundary{Acked: st.Acked, Read: st.Read})
	k.states[key] = b
	st.Acked, st.Read = b.Acked, b.Read
	return st
}
