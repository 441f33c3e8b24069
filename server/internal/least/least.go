// Package least caches the least boundary of the members of chats above 50 members, and bounds how
// often it is read.
package least

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage reads the least boundary of all members of a chat.
type Storage interface {
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
		author tidemark.UserID) (storage.Summary, error)
}

// Cache reads the least boundary of a chat at most once in an interval (rule least_is_shared). All
// sessions that open and members who acknowledge share that read. It is safe for concurrent use.
type Cache struct {
	storage  Storage
	interval time.Duration
	most     int

	mu    sync.Mutex
	chats map[tidemark.ChatID]*entry
}

// entry is what is known of one chat.
type entry struct {
	// begun is when the latest read began, and done is closed when it ends. done is nil if no read
	// is under way.
	begun time.Time
	done  chan struct{}
	// value is the result of the latest read that succeeded.
	value Value
	// version is the highest version of the members for which a read began.
	version uint64
}

// Value is a least boundary that was read.
type Value struct {
	tidemark.Boundary
	// Begun is when its read began. It is zero if there is no value.
	Begun time.Time
	// Own says that this call read it. Else another call did, perhaps before this one.
	Own bool
}

// New returns an empty Cache of at most most chats.
func New(storage Storage, interval time.Duration, most int) *Cache {
	return &Cache{
		storage: storage, interval: interval, most: most,
		chats: make(map[tidemark.ChatID]*entry),
	}
}

// Interval returns the least time between two reads of a chat.
func (c *Cache) Interval() time.Duration { return c.interval }

// Since returns the least boundary of a chat by a read that began after a time. The read is of the
// members of a version, or a later one. If there is none, Since reads storage, unless the latest
// read began within the interval. Then it returns no value: ask again an interval later.
func (c *Cache) Since(
	ctx context.Context, chat tidemark.ChatID, version uint64, after time.Time,
) (Value, error) {
	for {
		switch now, found, done := c.claim(chat, version, after); now {
		case isKnown:
			return found, nil
		case mayRead:
			return c.read(ctx, chat)
		case isRead:
			select {
			case <-done:
			case <-ctx.Done():
				return Value{}, ctx.Err()
			}
		default:
			return Value{}, nil
		}
	}
}

// answer is what claim says.
type answer uint8

const (
	isKnown answer = iota // the value will do
	isRead                // a read under way will do
	mayRead               // the caller has to read
	tooSoon               // no read may begin now
)

// claim returns a value that will do, or what to do for one.
func (c *Cache) claim(
	chat tidemark.ChatID, version uint64, after time.Time,
) (now answer, found Value, done chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.chats[chat]
	if e == nil {
		c.makeRoom()
		e = &entry{}
		c.chats[chat] = e
	}
	at := time.Now()
	switch {
	//rule:group_delivered_requires_all_members.least-of-present-members
	case e.version < version:
	case e.value.Begun.After(after):
		return isKnown, e.value, nil
	case e.done != nil && e.begun.After(after):
		return isRead, Value{}, e.done
	}
	//rule:least_is_shared.read-once-in-an-interval
	if e.done != nil || !e.begun.IsZero() && at.Sub(e.begun) < c.interval {
		return tooSoon, Value{}, nil
	}
	if e.version < version {
		e.version, e.value = version, Value{}
	}
	e.begun, e.done = at, make(chan struct{})
	return mayRead, Value{}, nil
}

// makeRoom drops a chat if there are too many.
func (c *Cache) makeRoom() {
	//rule:bounded_use.limit-least-boundaries
	if len(c.chats) < c.most {
		return
	}
	for chat, e := range c.chats { // the order of a map is random
		if e.done == nil {
			delete(c.chats, chat)
			return
		}
	}
}

// read reads the value that claim ordered.
func (c *Cache) read(ctx context.Context, chat tidemark.ChatID) (Value, error) {
	sum, err := c.storage.Summary(ctx, chat, 0, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.chats[chat]
	close(e.done)
	e.done = nil
	if err != nil {
		return Value{}, err
	}
	e.value = Value{Boundary: sum.Least, Begun: e.begun}
	own := e.value
	own.Own = true
	return own, nil
}
