// Package memory is the executable specification of the storage contract. It keeps every rule of
// package storage with the simplest code. All tests that are not about a database use it. Its data
// ends with the process: durability is the only promise that it does not keep.
//
// All data is in maps under one mutex. A method is atomic because it holds the mutex from its first
// line to its last. This package starts no goroutines and does no I/O. It keeps idempotency keys as
// long as the store exists.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// Store implements storage.Store in memory. It is safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	closed bool
	chats  map[tidemark.ChatID]*chat
	// direct maps tidemark.DirectKey of a pair of users to their direct chat.
	direct map[string]*chat
	// memberOf holds the chats in which a user is a member now.
	memberOf map[tidemark.UserID]map[tidemark.ChatID]*chat
	// states holds the delivery states in which a watermark has moved.
	states map[storage.StateKey]tidemark.DeliveryState
	// hides holds the settings of storage.Receipts. Those for all chats have no Chat.
	hides map[storage.StateKey]bool
	// pending holds the first undelivered sequence of each pending row.
	pending map[tidemark.UserID]map[tidemark.ChatID]tidemark.Sequence
	// backlogs holds those of single outlets, and stamps is the last stamp that one got.
	backlogs map[backlogKey]storage.Backlog
	stamps   uint64
	// blocks holds when a user has blocked another one.
	blocks map[tidemark.UserID]map[tidemark.UserID]time.Time
	// documents holds the documents by kind and name.
	documents map[string]map[string]storage.Document
	// audit holds the entries by their ids.
	audit map[storage.AuditID]storage.AuditEntry
	// lives are the lives of the data, of which the last is the present one.
	lives []lives.Life
}

var _ storage.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	first, _ := lives.Next(nil, "")
	return &Store{
		lives:     []lives.Life{first},
		chats:     map[tidemark.ChatID]*chat{},
		direct:    map[string]*chat{},
		memberOf:  map[tidemark.UserID]map[tidemark.ChatID]*chat{},
		states:    map[storage.StateKey]tidemark.DeliveryState{},
		hides:     map[storage.StateKey]bool{},
		pending:   map[tidemark.UserID]map[tidemark.ChatID]tidemark.Sequence{},
		backlogs:  map[backlogKey]storage.Backlog{},
		blocks:    map[tidemark.UserID]map[tidemark.UserID]time.Time{},
		documents: map[string]map[string]storage.Document{},
		audit:     map[storage.AuditID]storage.AuditEntry{},
	}
}

// Check implements storage.Store.
func (s *Store) Check(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return nil
}

// Close implements storage.Store. It keeps the data, but all later calls fail.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// enter begins a method. It locks the store. Unavailable: ctx has ended, or the store is closed.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the request ran out of time; try again")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return tidemark.Errorf(tidemark.Unavailable, "the store is closed")
	}
	return nil
}

// enterBatch is enter for a method that takes n items. Invalid: n is above storage.MaxBatch.
func (s *Store) enterBatch(ctx context.Context, n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid, "%d items in one call, at most %d are allowed",
			n, storage.MaxBatch)
	}
	return s.enter(ctx)
}

// find returns a chat, also a deleted one. NotFound: no such chat. The mutex is held.
func (s *Store) find(id tidemark.ChatID) (*chat, error) {
	c := s.chats[id]
	if c == nil {
		return nil, tidemark.Errorf(tidemark.NotFound, "there is no chat %s", id)
	}
	return c, nil
}

// alive returns a chat that is not deleted. NotFound: no such chat, or it was deleted. The mutex is
// held.
func (s *Store) alive(id tidemark.ChatID) (*chat, error) {
	c, err := s.find(id)
	if err == nil && c.State == tidemark.ChatDeleted {
		//rule:deleted_is_gone.nothing-is-changed-in-memory
		return nil, storage.WasDeleted(id)
	}
	return c, err
}

// head returns the head of a chat, or 0 if there is no such chat. The mutex is held.
func (s *Store) head(id tidemark.ChatID) tidemark.Sequence {
	if c := s.chats[id]; c != nil {
		return c.Head
	}
	return 0
}

// stored converts a time to its stored form: UTC with millisecond precision.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// page returns the first limit items, and reports whether others follow.
func page[T any](ids []T, limit int) ([]T, bool) {
	if len(ids) > limit {
		return ids[:limit], true
	}
	return ids, false
}
