// Package watermark remembers how far users have acknowledged and read, and what others were told of
// it.
package watermark

import (
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Cache is a bounded memory of watermarks. Watermarks only grow, so that what it remembers is a lower
// bound of what is stored. It is safe for concurrent use.
type Cache struct {
	most int

	mu     sync.Mutex
	states map[storage.StateKey]tidemark.Boundary
	// announced is what other nodes told the members: the stored watermarks of states may be lower.
	announced map[storage.StateKey]tidemark.Boundary
}

// New returns a Cache that remembers at most most states.
func New(most int) *Cache {
	return &Cache{
		most: most, states: make(map[storage.StateKey]tidemark.Boundary),
		announced: make(map[storage.StateKey]tidemark.Boundary),
	}
}

// Acked returns the acknowledged watermark, if it is remembered.
func (c *Cache) Acked(key storage.StateKey) (tidemark.Sequence, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.states[key]
	return b.Acked, ok
}

// Exposed returns what others may see of the highest state that is known; 0 if none is.
func (c *Cache) Exposed(user tidemark.UserID, chat tidemark.ChatID) tidemark.Boundary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exposedLocked(storage.StateKey{User: user, Chat: chat})
}

func (c *Cache) exposedLocked(key storage.StateKey) tidemark.Boundary {
	b := c.states[key]
	return tidemark.DeliveryState{Acked: b.Acked, Read: b.Read}.Exposed().Merge(c.announced[key])
}

// Announce remembers what the members are told, and returns the highest boundary that is known. Two
// nodes may announce in the other order, and what was read may be older than what was announced.
func (c *Cache) Announce(u tidemark.StatusUpdate) tidemark.Boundary {
	key := storage.StateKey{User: u.UserID, Chat: u.ChatID}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.exposedLocked(key).Merge(u.Boundary)
	keep(c.announced, c.most, key, b)
	return b
}

// keep enters a boundary, in place of another one if most are there.
func keep(
	memory map[storage.StateKey]tidemark.Boundary, most int, key storage.StateKey,
	b tidemark.Boundary,
) {
	//rule:bounded_use.limit-known-boundaries
	if _, there := memory[key]; !there && len(memory) >= most {
		for other := range memory { // an arbitrary one: the map's order is random
			delete(memory, other)
			break
		}
	}
	memory[key] = b
}

// Learn takes in a state that was read, if one of the user and chat is remembered already: reading
// many states does not push out those that were written here.
func (c *Cache) Learn(st tidemark.DeliveryState) {
	key := storage.StateKey{User: st.UserID, Chat: st.ChatID}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b, there := c.states[key]; there {
		c.states[key] = b.Merge(tidemark.Boundary{Acked: st.Acked, Read: st.Read})
	}
}

// Raise remembers a state that was read or written, and returns the highest that is known.
func (c *Cache) Raise(st tidemark.DeliveryState) tidemark.DeliveryState {
	key := storage.StateKey{User: st.UserID, Chat: st.ChatID}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.states[key]
	//rule:tick_monotone.merge-known-boundary
	b = b.Merge(tidemark.Boundary{Acked: st.Acked, Read: st.Read})
	keep(c.states, c.most, key, b)
	st.Acked, st.Read = b.Acked, b.Read
	return st
}
