// Package watermark caches how far users have acknowledged and read, and what other users have been
// sent of it.
package watermark

import (
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Cache caches watermarks, and is bounded. Watermarks only grow, so a cached one is a lower bound
// of the stored one. It is safe for concurrent use.
type Cache struct {
	most int

	mu     sync.Mutex
	states map[storage.StateKey]marks
	// announced has what other nodes sent to the members. states may be lower.
	announced map[storage.StateKey]tidemark.Boundary
}

// marks are the watermarks of a user: what they are, and what others see of them.
type marks struct{ own, shown tidemark.Boundary }

// merge returns the higher values of the marks and of a state.
func (m marks) merge(st tidemark.DeliveryState) marks {
	//rule:tick_monotone.merge-known-boundary
	m.own = m.own.Merge(st.Marks())
	//rule:shown_within_real.cache-what-is-shown
	m.shown = m.shown.Merge(st.Shown().Marks())
	return m
}

// New returns an empty Cache of at most most watermarks and as many announced boundaries.
func New(most int) *Cache {
	return &Cache{
		most: most, states: make(map[storage.StateKey]marks),
		announced: make(map[storage.StateKey]tidemark.Boundary),
	}
}

// Acked returns the acknowledged watermark, or false if it is not cached.
func (c *Cache) Acked(key storage.StateKey) (tidemark.Sequence, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.states[key]
	return m.own.Acked, ok
}

// Marks returns both watermarks, and those of them that others see, or 0 if they are not cached.
func (c *Cache) Marks(key storage.StateKey) (own, shown tidemark.Boundary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.states[key]
	return m.own, m.shown
}

// Own returns the highest known boundary of a user as they see it themselves, or 0. Others may only
// see Exposed.
func (c *Cache) Own(user tidemark.UserID, chat tidemark.ChatID) tidemark.Boundary {
	key := storage.StateKey{User: user, Chat: chat}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.states[key].own.Exposed().Merge(c.exposedLocked(key))
}

// Exposed returns the highest known boundary that other users may see, or 0.
func (c *Cache) Exposed(user tidemark.UserID, chat tidemark.ChatID) tidemark.Boundary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exposedLocked(storage.StateKey{User: user, Chat: chat})
}

func (c *Cache) exposedLocked(key storage.StateKey) tidemark.Boundary {
	return c.states[key].shown.Exposed().Merge(c.announced[key])
}

// Announce records what the members are sent, and returns the highest known boundary. Announcements
// of two nodes may arrive in the wrong order.
func (c *Cache) Announce(u tidemark.StatusUpdate) tidemark.Boundary {
	key := storage.StateKey{User: u.UserID, Chat: u.ChatID}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.exposedLocked(key).Merge(u.Boundary)
	keep(c.announced, c.most, key, b)
	return b
}

// keep enters a value. If there are most already, it replaces an arbitrary one.
func keep[V any](memory map[storage.StateKey]V, most int, key storage.StateKey, v V) {
	//rule:bounded_use.limit-known-boundaries
	if _, there := memory[key]; !there && len(memory) >= most {
		for other := range memory { // the order of a map is random
			delete(memory, other)
			break
		}
	}
	memory[key] = v
}

// Learn raises a cached state to one that was read. It does not enter new states, so that a long
// list does not displace those that this node wrote.
func (c *Cache) Learn(st tidemark.DeliveryState) {
	key := storage.StateKey{User: st.UserID, Chat: st.ChatID}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, there := c.states[key]; there {
		c.states[key] = m.merge(st)
	}
}

// Statuses learns states that were read, and returns what other users may see of them, without zero
// boundaries.
func (c *Cache) Statuses(states []tidemark.DeliveryState) (updates []tidemark.StatusUpdate) {
	for _, st := range states {
		c.Learn(st)
		//rule:read_implies_delivered.send-exposed-boundary
		b := st.Exposed()
		if b != (tidemark.Boundary{}) {
			updates = append(updates, tidemark.StatusUpdate{
				ChatID: st.ChatID, UserID: st.UserID, Boundary: b,
			})
		}
	}
	return updates
}

// Raise enters or raises a state that was read or written, and returns the highest known
// watermarks of the user, and the highest known boundary that others may see.
func (c *Cache) Raise(st tidemark.DeliveryState) (own, exposed tidemark.Boundary) {
	key := storage.StateKey{User: st.UserID, Chat: st.ChatID}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.states[key].merge(st)
	keep(c.states, c.most, key, m)
	return m.own, m.shown.Exposed()
}
