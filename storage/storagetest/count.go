package storagetest

import (
	"context"
	"maps"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Counting is a store that counts the calls of another store, and the writes that these calls
// caused. With it, a test shows that a cost does not grow: 50 messages to an absent user write one
// pending row. It is safe for concurrent use.
type Counting struct {
	intercepted

	mu     sync.Mutex
	counts Counts
}

// Counts are the counts of a Counting store. A failed call counts as a call, and its items as
// items.
type Counts struct {
	// Calls and Items are counts by the name of the method. A call without a slice argument has one
	// item.
	Calls, Items map[string]int
	// Appended is the number of stored messages, without duplicates.
	Appended int
	// Marked is the number of pending rows that Mark created or lowered.
	Marked int
	// Cleared is the number of pending rows that Clear removed or raised.
	Cleared int
	// Moved is the number of items of Advance that raised a watermark.
	Moved int
}

// Count returns a store that counts the calls of s.
func Count(s storage.Store) *Counting {
	c := &Counting{counts: Counts{Calls: map[string]int{}, Items: map[string]int{}}}
	around := func(method string, items int, call func() error) error {
		c.add(func(n *Counts) {
			n.Calls[method]++
			n.Items[method] += items
		})
		return call()
	}
	c.intercepted = intercepted{Store: s, around: around}
	return c
}

// Snapshot returns a copy of the current counts.
func (c *Counting) Snapshot() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts
	n.Calls, n.Items = maps.Clone(n.Calls), maps.Clone(n.Items)
	return n
}

// Append implements storage.Messages.
func (c *Counting) Append(
	ctx context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
	appended, err := c.intercepted.Append(ctx, drafts)
	for _, a := range appended {
		if err == nil && a.Err == nil && !a.Duplicate {
			c.add(func(n *Counts) { n.Appended++ })
		}
	}
	return appended, err
}

// Mark implements storage.Pending.
func (c *Counting) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	written, err := c.intercepted.Mark(ctx, rows)
	c.add(func(n *Counts) { n.Marked += countTrue(written) })
	return written, err
}

// Clear implements storage.Pending.
func (c *Counting) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	cleared, err := c.intercepted.Clear(ctx, items)
	c.add(func(n *Counts) { n.Cleared += countTrue(cleared) })
	return cleared, err
}

// Advance implements storage.Deliveries.
func (c *Counting) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	advanced, err := c.intercepted.Advance(ctx, advances)
	moved := 0
	for _, a := range advanced {
		if a.Moved {
			moved++
		}
	}
	c.add(func(n *Counts) { n.Moved += moved })
	return advanced, err
}

func (c *Counting) add(change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.counts)
}

func countTrue(bits []bool) int {
	n := 0
	for _, bit := range bits {
		if bit {
			n++
		}
	}
	return n
}
