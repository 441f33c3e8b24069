// Package session is one device's place in the stream: which chats have something for it, how far
// it got in each, and how its client goes on after a cut, over any transport. Nothing is queued in
// a session: what is new is read when its connection asks for more (delivery.md §3).
//
// A Session is eight values behind one lock. Each has named states, a table of its steps, and a
// table test:
//
//	residence    where the session lives        residence.go
//	lease        its claim in the registry      lease.go
//	reconcile    its search in storage          reconcile.go
//	chats        how far it got in each chat    progress.go
//	log          what it has sent               log.go
//	catch-up     what `caught_up` waits for     catchup.go
//	attachment   which connection reads         attachment.go
//	statuses     ticks that wait                statuses.go
//
// The values decide and do no I/O. Reader.Next asks them for a step, does its I/O without the lock,
// and hands the result back; what was read for an earlier state is discarded.
//
// Locks are taken in the order Session.mu, then those of Deadlines, chat.Cache and watermark.Cache. None
// is held across I/O.
package session

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is what sessions read beside messages and rosters.
type Storage interface {
	ChatsOf(ctx context.Context, user tidemark.UserID,
		page storage.ChatsPage) ([]storage.ChatListItem, bool, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence) (storage.Summary,
		error)
	PendingOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID,
		limit int) ([]storage.PendingRow, bool, error)
	Behind(ctx context.Context, user tidemark.UserID, q storage.BehindQuery) ([]storage.Lag,
		tidemark.ChatID, bool, error)
}

// Heads reads where chats end.
type Heads interface {
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
}

// Host is what the sessions of one node share. All fields are set before the first session is made.
type Host struct {
	Storage Storage
	Heads   Heads
	// Chats is what the node remembers of chats, Watermarks what it knows of watermarks.
	Chats      *chat.Cache
	Watermarks *watermark.Cache
	Log        *slog.Logger
	// MaxChats bounds the chats that a session knows.
	MaxChats int
	// Heartbeat and Resume are told to clients.
	Heartbeat, Resume time.Duration
	// Grace has an entry for each chat whose acknowledgement is waited for, Expiry one for each
	// connection that left, and Arrivals one for each session that another node was asked for.
	Grace, Expiry, Arrivals *Deadlines
	// Now is the time of day. It says how far back a session looks, with slack.
	Now   func() time.Time
	Count Counters
}

// Counters are what the sessions of a node count. They only grow, except Connections.
type Counters struct {
	Connections                                     atomic.Int64
	Deliveries, Listings, Compares, Resumes, Resets atomic.Int64
	Rewinds, Replaced, Overflows, ReadErrors        atomic.Int64
	TypingDropped                                   atomic.Int64
	// Landed and Unlanded count the sessions that arrived here, and those that did not.
	Landed, Unlanded atomic.Int64
}

// key names the user's state in a chat.
func (s *Session) key(chat tidemark.ChatID) storage.StateKey {
	return storage.StateKey{User: s.User(), Chat: chat}
}

// Boundaries returns what a member may know of the watermarks in chats: of each member, or of all of
// them together in chats above tidemark.StatusFanoutLimit members. Boundaries at 0, and chats of
// which the user is not a member, are left out. also names users who may have been members of these
// chats: theirs are read as well. read are the members whose boundaries were read one by one.
func (h *Host) Boundaries(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID, also ...storage.StateKey,
) (updates []tidemark.StatusUpdate, read []*chat.Roster, err error) {
	all, err := h.Chats.Rosters(ctx, ids)
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
			sum, err := h.Storage.Summary(ctx, p.ChatID, 0)
			if err != nil {
				return nil, nil, err
			}
			updates = append(updates, tidemark.StatusUpdate{ChatID: p.ChatID, Boundary: sum.Least})
			continue
		}
		read = append(read, p)
		for _, member := range p.Users {
			keys = append(keys, storage.StateKey{User: member, Chat: p.ChatID})
		}
		for _, key := range also {
			if _, there := p.Member(key.User); !there && key.Chat == p.ChatID {
				keys = append(keys, key)
			}
		}
	}
	states, err := h.Storage.States(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	for _, st := range states {
		h.Watermarks.Learn(st)
		//rule:read_implies_delivered.send-exposed-boundary
		updates = append(updates, tidemark.StatusUpdate{
			ChatID: st.ChatID, UserID: st.UserID, Boundary: st.Exposed(),
		})
	}
	updates = slices.DeleteFunc(updates, func(u tidemark.StatusUpdate) bool {
		return u.Boundary == tidemark.Boundary{}
	})
	return updates, read, nil
}

// acked returns lower bounds of a user's acknowledged watermarks, from memory or with one read.
func (h *Host) acked(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID,
) (map[tidemark.ChatID]tidemark.Sequence, error) {
	acked := make(map[tidemark.ChatID]tidemark.Sequence, len(ids))
	var missing []storage.StateKey
	for _, id := range ids {
		key := storage.StateKey{User: user, Chat: id}
		if known, ok := h.Watermarks.Acked(key); ok {
			acked[id] = known
		} else {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return acked, nil
	}
	states, err := h.Storage.States(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		acked[st.ChatID] = h.Watermarks.Raise(st).Acked
	}
	return acked, nil
}
