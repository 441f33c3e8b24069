// Package feed is what a node remembers of chats, their members and last messages, and how a user's pages are read: from memory if it
// can, else from storage. Everything in it can be forgotten at any time.
package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is what a feed reads.
type Storage interface {
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
}

// Config bounds a Feed.
type Config struct {
	// Chats bounds the chats remembered.
	Chats int
	// Bytes bounds the encoded messages remembered, of all chats.
	Bytes int
	// Messages bounds the messages remembered of one chat.
	Messages int
	// Trusts reports whether members that were read at a time are still those, since news of them arrive here. nil: they always are.
	Trusts func(read time.Time) bool
}

// bytesPerChat bounds the encoded messages remembered of one chat.
const bytesPerChat = 1 << 20

// Feed is the bounded set of the chats that a node remembers. It is safe for concurrent use. No lock is held across I/O; Chat.mu is taken under Feed.mu.
type Feed struct {
	cfg     Config
	storage Storage
	bytes   atomic.Int64

	// Count is what the feed counts about itself.
	Count Counters

	mu    sync.RWMutex
	chats map[tidemark.ChatID]*Chat
}

// Counters only grow.
type Counters struct {
	TailReads, RangeReads, RangeMessages, ShortReads atomic.Int64
}

// Chat is one chat that is remembered.
type Chat struct {
	ID tidemark.ChatID
	// used is set by every use and cleared by the sweep that looks for chats to forget.
	used atomic.Bool
	// people is replaced as a whole; nil until it was read.
	people atomic.Pointer[People]
	// floor is the highest membership version that was heard of.
	floor atomic.Uint64

	mu   sync.Mutex
	tail tail
	// gone says that the chat was forgotten: what is put into its tail would be counted for ever.
	gone bool
}

// New returns an empty Feed over storage.
func New(storage Storage, cfg Config) *Feed {
	if cfg.Trusts == nil {
		cfg.Trusts = func(time.Time) bool { return true }
	}
	return &Feed{cfg: cfg, storage: storage, chats: make(map[tidemark.ChatID]*Chat)}
}

// Bytes returns the size of the messages remembered.
func (f *Feed) Bytes() int64 { return f.bytes.Load() }

// lookup returns what is remembered of a chat, nil if nothing is.
func (f *Feed) lookup(id tidemark.ChatID) *Chat {
	f.mu.RLock()
	c := f.chats[id]
	f.mu.RUnlock()
	if c != nil && !c.used.Load() {
		c.used.Store(true)
	}
	return c
}

// Chat returns what is remembered of a chat that exists: nothing yet, if need be.
func (f *Feed) Chat(id tidemark.ChatID) *Chat {
	if c := f.lookup(id); c != nil {
		return c
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.chats[id]
	if c == nil {
		//rule:bounded_use.limit-cached-chats
		if len(f.chats) >= f.cfg.Chats {
			f.sweepLocked()
		}
		c = &Chat{ID: id}
		f.chats[id] = c
	}
	c.used.Store(true)
	return c
}

// Put remembers a message, which is encoded already.
func (f *Feed) Put(c *Chat, m *tidemark.Message, encoded []byte) {
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return
	}
	grown := c.tail.put(entry{sequence: m.Sequence, version: m.MembersVersion, payload: encoded}, f.cfg.Messages, bytesPerChat)
	c.mu.Unlock()
	//rule:bounded_use.limit-cached-bytes
	if f.bytes.Add(int64(grown)) > int64(f.cfg.Bytes) {
		f.mu.Lock()
		if f.bytes.Load() > int64(f.cfg.Bytes) {
			f.sweepLocked()
		}
		f.mu.Unlock()
	}
}

// sweepLocked forgets chats, in the map's random order, that were not used since the sweep before met them, until an eighth of the
// number and of the bytes is free again; at most two rounds, so that it ends when all of them are in use.
func (f *Feed) sweepLocked() {
	most, mostBytes := f.cfg.Chats-f.cfg.Chats/8, int64(f.cfg.Bytes-f.cfg.Bytes/8)
	for range 2 {
		for id, c := range f.chats {
			if len(f.chats) <= most && f.bytes.Load() <= mostBytes {
				return
			}
			if c.used.Swap(false) {
				continue
			}
			delete(f.chats, id)
			c.mu.Lock()
			c.gone = true
			f.bytes.Add(int64(-c.tail.bytes))
			c.tail = tail{}
			c.mu.Unlock()
		}
	}
}
