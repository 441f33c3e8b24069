// Package memory is the executable specification of the storage contract: the most obvious code that keeps every rule
// of package storage, and the store behind every test that is not about a database. Its data dies with the process, which is
// the one thing that it does not promise.
//
// Everything lies in maps under one mutex, so that a method is atomic because it holds the mutex from its first line
// to its last. Nothing here starts a goroutine or does I/O. Idempotency keys are kept as long as the store.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Store is a storage.Store in memory. It is safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	closed bool
	chats  map[tidemark.ChatID]*chat
	// direct holds the direct chat of a pair under its tidemark.DirectKey.
	direct map[string]*chat
	// memberOf holds the chats of which a user is a member now.
	memberOf map[tidemark.UserID]map[tidemark.ChatID]*chat
	// states holds the delivery states of which something ever moved.
	states map[storage.StateKey]tidemark.DeliveryState
	// pending holds the first undelivered sequence, one for a user and chat.
	pending map[tidemark.UserID]map[tidemark.ChatID]tidemark.Sequence
}

var _ storage.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{
		chats:    map[tidemark.ChatID]*chat{},
		direct:   map[string]*chat{},
		memberOf: map[tidemark.UserID]map[tidemark.ChatID]*chat{},
		states:   map[storage.StateKey]tidemark.DeliveryState{},
		pending:  map[tidemark.UserID]map[tidemark.ChatID]tidemark.Sequence{},
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

// Close implements storage.Store. The data stays as it was, but nobody can reach it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// enter begins a method: it locks the store, unless the call or the store has ended.
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

// enterBatch is enter for a method that takes n items.
func (s *Store) enterBatch(ctx context.Context, n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid, "%d items in one call, at most %d are allowed",
			n, storage.MaxBatch)
	}
	return s.enter(ctx)
}

// find returns a chat, or NotFound. The mutex is held.
func (s *Store) find(id tidemark.ChatID) (*chat, error) {
	c := s.chats[id]
	if c == nil {
		return nil, tidemark.Errorf(tidemark.NotFound, "there is no chat %s", id)
	}
	return c, nil
}

// head returns the head of a chat, 0 for one that does not exist. The mutex is held.
func (s *Store) head(id tidemark.ChatID) tidemark.Sequence {
	if c := s.chats[id]; c != nil {
		return c.Head
	}
	return 0
}

// stored returns a time as it is stored: in UTC with millisecond precision.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// page cuts a page off sorted ids: the first limit of them, and whether others follow.
func page[T any](ids []T, limit int) ([]T, bool) {
	if len(ids) > limit {
		return ids[:limit], true
	}
	return ids, false
}
