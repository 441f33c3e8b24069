// Package session is one device's place in the stream: which chats have something new for it, how far it got in each, and how its client continues
// after a cut, over any transport. Nothing is queued in a session: what is new is read when its connection asks for more (delivery.md §3).
//
// Locks are taken in the order Session.mu, then those of Deadlines, feed.Feed and feed.Known. None is held across I/O.
package session

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is what sessions read beside messages and rosters.
type Storage interface {
	ChatsOf(ctx context.Context, user tidemark.UserID, page storage.ChatsPage) ([]storage.Conversation, bool, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence) (storage.Summary, error)
	PendingOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int) ([]storage.PendingRow, bool, error)
	Behind(ctx context.Context, user tidemark.UserID, q storage.BehindQuery) ([]storage.Lag, tidemark.ChatID, bool, error)
}

// Heads reads where chats end.
type Heads interface {
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
}

// Node is what the sessions of one node share. All fields are set before the first session is made.
type Node struct {
	Storage Storage
	Heads   Heads
	Feed    *feed.Feed
	Known   *feed.Known
	Log     *slog.Logger
	// Chats is how many the map of a session holds.
	Chats int
	// Heartbeat and Resume are told to clients.
	Heartbeat, Resume time.Duration
	// Grace has an entry for each position that waits for an acknowledgement; Expiry one for each detachment.
	Grace, Expiry *Deadlines
	// Now is the time of day. It says how far back a session looks, with slack.
	Now func() time.Time
	// Stopping says that the node is ending: connections get Unavailable.
	Stopping *atomic.Bool
	Count    Counters
}

// Counters are what the sessions of a node count. They only grow, except Connections.
type Counters struct {
	Connections                                     atomic.Int64
	Deliveries, Listings, Compares, Resumes, Resets atomic.Int64
	Rewinds, Replaced, Overflows, ReadErrors        atomic.Int64
	TypingDropped                                   atomic.Int64
}

// Boundaries returns what a member may know of the watermarks in chats: of each member, or of all of them in chats above
// tidemark.StatusFanoutLimit members. Boundaries at 0, and chats of which the user is not a member, are left out. also are others whose boundaries are
// read, who may have been members of these chats. people are those whose boundaries were read one by one.
func (n *Node) Boundaries(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID, also ...storage.StateKey,
) (updates []tidemark.StatusUpdate, people []*feed.People, err error) {
	all, err := n.Feed.PeopleOf(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	var keys []storage.StateKey
	for _, p := range all {
		if p == nil {
			continue
		}
		//rule:nothing_outside_membership.boundaries-for-members-only
		if _, ok := p.Member(user); !ok {
			continue
		}
		if len(p.Users) > tidemark.StatusFanoutLimit {
			sum, err := n.Storage.Summary(ctx, p.ChatID, 0)
			if err != nil {
				return nil, nil, err
			}
			updates = append(updates, tidemark.StatusUpdate{ChatID: p.ChatID, Boundary: sum.Least})
			continue
		}
		people = append(people, p)
		for _, member := range p.Users {
			keys = append(keys, storage.StateKey{User: member, Chat: p.ChatID})
		}
		for _, key := range also {
			if _, there := p.Member(key.User); !there && key.Chat == p.ChatID {
				keys = append(keys, key)
			}
		}
	}
	states, err := n.Storage.States(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	for _, st := range states {
		n.Known.Learn(st)
		//rule:read_implies_delivered.send-exposed-boundary
		updates = append(updates, tidemark.StatusUpdate{ChatID: st.ChatID, UserID: st.UserID, Boundary: st.Exposed()})
	}
	moved := updates[:0]
	for _, u := range updates {
		if u.Boundary != (tidemark.Boundary{}) {
			moved = append(moved, u)
		}
	}
	return moved, people, nil
}

// acked returns lower bounds of a user's acknowledged watermarks, from memory or with one read.
func (n *Node) acked(ctx context.Context, user tidemark.UserID, chats []tidemark.ChatID) (map[tidemark.ChatID]tidemark.Sequence, error) {
	acked := make(map[tidemark.ChatID]tidemark.Sequence, len(chats))
	var missing []storage.StateKey
	for _, chat := range chats {
		key := storage.StateKey{User: user, Chat: chat}
		if known, ok := n.Known.Acked(key); ok {
			acked[chat] = known
		} else {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return acked, nil
	}
	states, err := n.Storage.States(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		acked[st.ChatID] = n.Known.Raise(st).Acked
	}
	return acked, nil
}
