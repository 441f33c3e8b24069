// Package ticks is how acknowledgements become ticks: raises of watermarks are coalesced and written, pending rows are cleared behind them, and what moved is
// pushed to the members as status updates (delivery.md §§3, 4 and 6).
package ticks

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is what ticks are kept in.
type Storage interface {
	Advance(ctx context.Context, advances []storage.Advance) ([]storage.Advanced, error)
	Clear(ctx context.Context, items []storage.Clear) ([]bool, error)
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence) (storage.Summary, error)
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
}

// Config is what Ticks work with. All fields are required.
type Config struct {
	Storage Storage
	Feed    *feed.Feed
	Known   *feed.Known
	Log     *slog.Logger
	// Sessions returns the sessions of a user on this node.
	Sessions func(user tidemark.UserID) []*session.Session
	// Publish hands status updates to the sessions of the members, on all nodes. It reports false if it is not known who they are: then those on this node are told, or, with again,
	// nobody.
	Publish func(ctx context.Context, pushes []Push, again bool) bool
	// Owe takes over rows that have to be marked. It does not block.
	Owe func(rows []tidemark.PendingDelivery)
	// Now is the time that is stored with what moved.
	Now func() time.Time
	// AckInterval is the least time between two writes of coalesced acknowledgements, AuthorRetry the time after which an author's run is tried
	// once more, StatusInterval the least time between two updates about one member of one chat.
	AckInterval, AuthorRetry, StatusInterval time.Duration
}

// Push is status updates about one chat, for its members.
type Push struct {
	To      *feed.People
	Updates []tidemark.StatusUpdate
}

// Counters only grow.
type Counters struct {
	Acks, Dropped, Advances, Moved, Clears, Cleared, Updates, UpdatesDropped, StorageErrors atomic.Int64
	// Malformed, Strangers and Beyond are acknowledgements refused: they name nothing, their user is no member, they are beyond the head.
	Malformed, Strangers, Beyond atomic.Int64
}

// Ticks is safe for concurrent use. Use New, and run AckLoop and StatusLoop.
type Ticks struct {
	cfg Config
	// Count is what Ticks count about themselves.
	Count    Counters
	acks     acks
	statuses statuses
}

// New returns Ticks without goroutines.
func New(cfg Config) *Ticks {
	return &Ticks{
		cfg:      cfg,
		acks:     acks{signal: make(chan struct{}, 1), writing: make(chan struct{}, 1), pending: make(map[storage.StateKey]*raises)},
		statuses: statuses{signal: make(chan struct{}, 1), entries: make(map[statusKey]*statusEntry)},
	}
}

// signal sends on a channel that has room for one signal, unless one waits there. It never blocks.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait returns when the signal came or, if timed, after a time at the latest. It reports whether ctx goes on.
func wait(ctx context.Context, signal <-chan struct{}, after time.Duration, timed bool) bool {
	var over <-chan time.Time
	if timed {
		timer := time.NewTimer(after)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-signal:
		return true
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}
