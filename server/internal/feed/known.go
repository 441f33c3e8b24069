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
	// told is what others were told, as other nodes said it: the raw watermarks may be lower.
	told map[storage.StateKey]tidemark.Boundary
}

// NewKnown returns an empty memory of at most most states.
func NewKnown(most int) *Known {
	return &Known{most: most, states: make(map[storage.StateKey]tidemark.Boundary), told: make(map[storage.StateKey]tidemark.Boundary)}
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
	return k.exposedLocked(storage.StateKey{User: user, Chat: chat})
}

func (k *Known) exposedLocked(key storage.StateKey) tidemark.Boundary {
	b := k.states[key]
	return tidemark.DeliveryState{Acked: b.Acked, Read: b.Read}.Exposed().Merge(k.told[key])
}

// Tell remembers what others are told of a member, and returns the highest that is known. Two nodes may say it in the other order, and what was read be older than what was said.
func (k *Known) Tell(u tidemark.StatusUpdate) tidemark.Boundary {
	key := storage.StateKey{User: u.UserID, Chat: u.ChatID}
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.exposedLocked(key).Merge(u.Boundary)
	keep(k.told, k.most, key, b)
	return b
}

// keep puts a boundary into a memory of at most most.
func keep(memory map[storage.StateKey]tidemark.Boundary, most int, key storage.StateKey, b tidemark.Boundary) {
	//rule:bounded_use.limit-known-boundaries
	if _, there := memory[key]; !there && len(memory) >= most {
		for other := range memory { // an arbitrary one: the map's order is random
			delete(memory, other)
			break
		}
	}
	memory[key] = b
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
	b := k.states[key]
	//rule:tick_monotone.merge-known-boundary
	b = b.Merge(tidemark.Boundary{Acked: st.Acked, Read: st.Read})
	keep(k.states, k.most, key, b)
	st.Acked, st.Read = b.Acked, b.Read
	return st
}
