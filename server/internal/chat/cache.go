// Package chat caches what a node knows of chats: their members and last messages. It reads a
// user's pages from memory if it can, else from storage. Any entry may be dropped at any time.
package chat

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is what a Cache reads.
type Storage interface {
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
}

// Config bounds a Cache.
type Config struct {
	// Chats bounds the cached chats, Bytes the encoded messages of all chats, RosterBytes their
	// rosters, and Messages the messages of one chat. A RosterBytes of 0 stands for Bytes.
	Chats, Bytes, RosterBytes, Messages int
}

// bytesPerChat bounds the cached encoded messages of one chat.
const bytesPerChat = 1 << 20

// Cache is the bounded set of a node's cached chats. It is safe for concurrent use. No lock is held
// across I/O. Entry.mu may be taken while Cache.mu is held.
type Cache struct {
	cfg                Config
	storage            Storage
	bytes, rosterBytes atomic.Int64
	// trust limits what may be used. If it is nil, all may be used. trusting guards its changes.
	trust    atomic.Pointer[trust]
	trusting sync.Mutex
	terms    Term // how many terms began after alone

	// Count holds the cache's counters.
	Count Counters

	mu    sync.RWMutex
	chats map[tidemark.ChatID]*Entry
	// floors has the latest relations of chats that may have been forgotten.
	floors floors
}

// Counters only grow. They may be read at any time.
type Counters struct {
	TailReads, RangeReads, RangeMessages, ShortReads atomic.Int64
}

// trust limits which rosters and messages may be used without reading them again.
type trust struct {
	// until is the time up to which changes of members are known to reach this node.
	until time.Time
	// age bounds the time since a roster was read. 0 means no bound.
	age time.Duration
	// term is the present term, and began is the time at which it began.
	term  Term
	began time.Time
}

// Term numbers a period in which every relation reaches this node. When a relation may have been
// missed, a new term begins, and what was cached before may be outdated. Terms ascend.
type Term uint64

const (
	// NoTerm stands for no term. Relations may be missed now, or it is not known in which term a
	// message was stored.
	NoTerm Term = 0
	// alone is the first term of a node that has met no other one. It misses nothing.
	alone Term = 1
)

// Entry is the cached part of one chat.
type Entry struct {
	ID tidemark.ChatID
	// used is set by every use and cleared by the sweep that looks for chats to forget.
	used atomic.Bool
	// roster is replaced as a whole, by replace and drop. It is nil until it has been read. Its
	// size is counted in rosterBytes.
	roster      atomic.Pointer[Roster]
	rosterBytes *atomic.Int64
	// floor is the highest membership version that is known to exist.
	floor atomic.Uint64
	// head is the highest sequence that is known to exist. It only grows.
	head atomic.Uint64
	// leftOut says that the status of an author was not published, because the chat was small.
	leftOut atomic.Bool

	mu   sync.Mutex
	tail tail
	// gone reports that the entry was dropped. A message or roster put into it would be counted
	// with no way to remove it.
	gone bool
}

// New returns an empty Cache over storage. Until TrustUntil is called it uses every roster.
func New(storage Storage, cfg Config) *Cache {
	if cfg.RosterBytes == 0 {
		cfg.RosterBytes = cfg.Bytes
	}
	return &Cache{cfg: cfg, storage: storage, chats: make(map[tidemark.ChatID]*Entry)}
}

// TrustUntil sets until when changes of members, and relations, are known to reach this node. age
// is how old a roster may be to be used without reading it again. An age of 0 means any age. With
// the zero time no roster and no message is used.
func (c *Cache) TrustUntil(until time.Time, age time.Duration) {
	c.trusting.Lock()
	defer c.trusting.Unlock()
	now, next := time.Now(), &trust{until: until, age: age}
	switch t := c.trust.Load(); {
	case t != nil && now.Before(t.until) && (t.age > 0 || age == 0):
		next.term, next.began = t.term, t.began
	case age > 0 || c.terms > 0:
		//rule:R_WIPE.new-term-after-distrust
		c.terms++
		next.term, next.began = alone+c.terms, now
	default:
		next.term, next.began = alone, now
	}
	c.trust.Store(next)
}

// distrust begins a new term.
func (c *Cache) distrust() {
	c.trusting.Lock()
	defer c.trusting.Unlock()
	if t := c.trust.Load(); t != nil {
		next := *t
		c.terms++
		next.term, next.began = alone+c.terms, time.Now()
		c.trust.Store(&next)
	}
}

// Term returns the present term. It is for Stored.
func (c *Cache) Term() Term {
	term, _ := c.present()
	return term
}

// present returns the present term. settled says that a message from before it arrives no more.
func (c *Cache) present() (term Term, settled bool) {
	t := c.trust.Load()
	if t == nil {
		return alone, true
	}
	//rule:R_WIPE.keep-and-serve-nothing-untrusted
	if !time.Now().Before(t.until) {
		return NoTerm, false
	}
	return t.term, t.term == alone || time.Since(t.began) >= lateFor
}

// trusts reports whether a roster read at the given time may be used. It reads the clock each time,
// because a process may be suspended.
func (c *Cache) trusts(read time.Time) bool {
	t := c.trust.Load()
	if t == nil {
		return true
	}
	now := time.Now()
	//rule:nothing_outside_membership.no-roster-from-before-the-term
	if read.Before(t.began) {
		return false
	}
	//rule:nothing_outside_membership.limit-cache-age
	return now.Before(t.until) && (t.age == 0 || now.Sub(read) < t.age)
}

// Bytes returns the size of the cached messages.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// RosterBytes returns the size of the cached rosters, without what the runtime adds to them.
func (c *Cache) RosterBytes() int64 { return c.rosterBytes.Load() }

// lookup returns the entry of a chat, or nil.
func (c *Cache) lookup(id tidemark.ChatID) *Entry {
	c.mu.RLock()
	e := c.chats[id]
	c.mu.RUnlock()
	if e != nil && !e.used.Load() {
		e.used.Store(true)
	}
	return e
}

// Chat returns the entry of a chat that exists. It creates the entry if there is none.
func (c *Cache) Chat(id tidemark.ChatID) *Entry {
	if e := c.lookup(id); e != nil {
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.chats[id]
	if e == nil {
		//rule:bounded_use.limit-cached-chats
		if len(c.chats) >= c.cfg.Chats {
			c.sweepLocked()
		}
		e = &Entry{ID: id, rosterBytes: &c.rosterBytes}
		//rule:R_WIPE.remember-the-relation-for-a-while
		e.tail.floor = c.floors.of(id)
		c.chats[id] = e
	}
	e.used.Store(true)
	return e
}

// Reaches reports whether a chat is known to have a message, and so all messages before it. Heads
// only grow in the data of one incarnation, whose cache this is. So true stays true. False says
// nothing: the caller has to read the head.
func (c *Cache) Reaches(id tidemark.ChatID, sequence tidemark.Sequence) bool {
	e := c.lookup(id)
	//rule:watermark_bounded_by_counter.known-head-allows
	return e != nil && e.head.Load() >= uint64(sequence)
}

// Reached records that the chat has a message.
func (e *Entry) Reached(sequence tidemark.Sequence) {
	for {
		old := e.head.Load()
		if old >= uint64(sequence) || e.head.CompareAndSwap(old, uint64(sequence)) {
			return
		}
	}
}

// LeaveOut records that the status of an author was not published, because the chat is small as far
// as this node knows.
func (e *Entry) LeaveOut() { e.leftOut.Store(true) }

// TakeLeftOut reports whether LeaveOut was called since the last TakeLeftOut.
func (e *Entry) TakeLeftOut() bool { return e.leftOut.Swap(false) }

// Put caches a message that a node has sent here, and its JSON, which must not be changed
// afterwards. It leaves out a message that may have changed without this node being told: in the
// first minute of a term one that may be from before it, and always one that looks old.
func (c *Cache) Put(e *Entry, m *tidemark.Message, payload []byte) {
	c.put(e, m, payload, NoTerm, true)
}

// Stored caches a message that this node stored in a step that began in the given term. Whatever
// follows the message in its chat was stored in that term, too.
func (c *Cache) Stored(e *Entry, m *tidemark.Message, payload []byte, term Term) {
	c.follows(e, m.Sequence, term)
	c.Put(e, m, payload)
}

// follows records that the messages of a chat from a sequence on were stored in a term, if that is
// the present one.
func (c *Cache) follows(e *Entry, from tidemark.Sequence, term Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return
	}
	if present, _ := c.present(); term == present && term != NoTerm {
		c.bytes.Add(int64(e.tail.enter(term)))
		e.tail.follows(from)
	}
}

// put caches a message. sent says that a node has sent it here. Otherwise read is the term in which
// it was read from storage.
func (c *Cache) put(e *Entry, m *tidemark.Message, payload []byte, read Term, sent bool) {
	e.Reached(m.Sequence)
	kept := encoded(m, payload)
	e.mu.Lock()
	if e.gone {
		e.mu.Unlock()
		return
	}
	grown := 0
	//rule:annotations_counted.drop-nothing-here
	if m.Kind.Revises() {
		grown = e.tail.relate(m.Sequence)
	}
	// The term is asked for while the tail is locked, so that Forget comes before or after.
	if term, settled := c.present(); term != NoTerm {
		grown += e.tail.enter(term)
		switch {
		//rule:floor_recorded.put-nothing-old
		case kept.created < time.Now().Add(-maxAge).Unix():
		//rule:R_WIPE.keep-nothing-from-before
		case sent && !settled && !e.tail.isFollowing(m.Sequence):
		//rule:R_WIPE.keep-nothing-that-looks-old
		case sent && term != alone && time.Since(m.CreatedAt) >= recent:
		//rule:R_WIPE.keep-nothing-read-before
		case !sent && read != term:
		default:
			grown += e.tail.put(kept, c.cfg.Messages, bytesPerChat)
		}
	}
	e.mu.Unlock()
	c.bytes.Add(int64(grown))
	c.makeRoom()
}

// Relate records that an edit or a redaction was stored. Cached messages before it may be outdated,
// so they are dropped, and none of them is cached any more.
func (c *Cache) Relate(id tidemark.ChatID, relation tidemark.Sequence) {
	// The floor comes before the look-up. So an entry that is made meanwhile has the floor, or is
	// found here.
	if !c.floors.raise(id, relation) {
		c.distrust()
	}
	e := c.lookup(id)
	if e == nil {
		return
	}
	e.Reached(relation)
	e.mu.Lock()
	defer e.mu.Unlock()
	c.bytes.Add(int64(e.tail.relate(relation)))
}

// refill caches a message that a session read from storage in a term. It is for messages that nodes
// send without content, and for those that Put leaves out early in a term. If the message is a
// relation that this node did not know, refill first drops the messages before it. A message that
// looks older than recent is cached only if it is the latest known relation. If the node has
// learned of a later relation meanwhile, put refuses the message.
func (c *Cache) refill(e *Entry, m *tidemark.Message, read Term) {
	late := time.Since(m.CreatedAt) < recent
	e.mu.Lock()
	t := &e.tail
	unknown := m.Kind.Revises() && m.Sequence > t.floor &&
		(late || len(t.slots) > 0 && t.first < m.Sequence)
	e.mu.Unlock()
	//rule:R_WIPE.learn-of-a-relation-from-storage
	if unknown {
		c.Relate(m.ChatID, m.Sequence)
	}
	e.mu.Lock()
	missing := t.takes(m.Sequence, read) && (late || m.Sequence == t.floor)
	e.mu.Unlock()
	if missing {
		c.put(e, m, m.AppendJSON(nil), read, false)
	}
}

// maxAge is the age at which messages are dropped from memory. It is less than storage.MinAge by
// more than the time between two calls of Age and what clocks may differ.
const maxAge = 7 * 24 * time.Hour

// Age drops the messages that are older than maxAge. What may expire must not stay in memory,
// because no node is told when it does. It is to be called every hour.
func (c *Cache) Age() {
	before := time.Now().Add(-maxAge).Unix()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, e := range c.chats {
		e.mu.Lock()
		//rule:floor_recorded.nothing-old-in-memory
		c.bytes.Add(int64(e.tail.age(before)))
		e.mu.Unlock()
	}
}

// makeRoom drops chats if the cached messages or rosters are too large.
func (c *Cache) makeRoom() {
	if !c.tooLarge() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tooLarge() { // another one may have made room
		c.sweepLocked()
	}
}

func (c *Cache) tooLarge() bool {
	//rule:bounded_use.limit-cached-bytes
	if c.bytes.Load() > int64(c.cfg.Bytes) {
		return true
	}
	//rule:bounded_use.limit-cached-rosters
	return c.rosterBytes.Load() > int64(c.cfg.RosterBytes)
}

// sweepLocked drops chats that were not used since the previous sweep visited them, in the map's
// random order. It stops when an eighth of the chats and of the bytes is free. It makes at most two
// rounds, so that it ends even if all chats are in use.
func (c *Cache) sweepLocked() {
	most, mostBytes := c.cfg.Chats-c.cfg.Chats/8, int64(c.cfg.Bytes-c.cfg.Bytes/8)
	mostRosterBytes := int64(c.cfg.RosterBytes - c.cfg.RosterBytes/8)
	for range 2 {
		for id, e := range c.chats {
			if len(c.chats) <= most && c.bytes.Load() <= mostBytes &&
				c.rosterBytes.Load() <= mostRosterBytes {
				return
			}
			if e.used.Swap(false) {
				continue
			}
			delete(c.chats, id)
			e.mu.Lock()
			e.gone = true
			c.bytes.Add(int64(-e.tail.bytes))
			e.tail = tail{}
			e.mu.Unlock()
			e.drop()
		}
	}
}
