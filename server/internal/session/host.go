// Package session holds one device's position in the stream: which chats have something for it, and
// how far it is in each. Its client may resume over any transport. A session queues no messages.
// New ones are read when its connection asks for them (delivery.md §3).
//
// A Session is nine values behind one lock. Each has named states, a table of its transitions, and
// a table test:
//
//	residence    where the session lives        residence.go
//	lease        its entry in the registry      lease.go
//	reconcile    its search in storage          reconcile.go
//	chats        its position in each chat      progress.go
//	log          the events that it sent        log.go
//	catch-up     what `caught_up` waits for     catchup.go
//	attachment   the connection that reads      attachment.go
//	statuses     boundaries to send             statuses.go
//	looks        the chats that are shown       looks.go
//
// The values decide and do no I/O. Reader.Next gets a step from them, does its I/O without the
// lock, and passes the result back. A result that was read for an earlier state is discarded.
//
// Lock order: Session.mu, then the locks of Deadlines, Latest, chat.Cache and watermark.Cache. No
// lock is held across I/O.
package session

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/least"
	"github.com/tidemark-im/tidemark/server/internal/traced"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage reads what sessions need beside messages and rosters.
type Storage interface {
	ChatsOf(ctx context.Context, user tidemark.UserID,
		page storage.ChatsPage) ([]storage.ChatListItem, bool, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
		author tidemark.UserID) (storage.Summary, error)
	PendingOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID,
		limit int) ([]storage.PendingRow, bool, error)
	Behind(ctx context.Context, user tidemark.UserID, q storage.BehindQuery) ([]storage.Lag,
		tidemark.ChatID, bool, error)
}

// Unreads counts unread messages.
type Unreads interface {
	Unread(ctx context.Context, keys []storage.StateKey) ([]storage.Unread, error)
}

// Host is what the sessions of one node share. All fields are set before the first session is
// created, and do not change.
type Host struct {
	Storage Storage
	Unreads Unreads
	// Chats caches rosters and recent messages. Watermarks caches boundaries of members, and Least
	// those of large chats.
	Chats      *chat.Cache
	Watermarks *watermark.Cache
	Least      *least.Cache
	// Latest has the latest chats of users, if this node is alone.
	Latest *Latest
	Log    *slog.Logger
	// MaxChats is how many chats one session may know.
	MaxChats int
	// StatusFanout is the number of members above which a chat has one boundary for all of them.
	StatusFanout int
	// Heartbeat and Resume are durations that the `session` event tells the client.
	Heartbeat, Resume time.Duration
	// Incarnation is that of the data.
	Incarnation tidemark.Incarnation
	// Start has what is the same in all `session` events, apart from the fields above.
	Start tidemark.SessionStart
	// Grace has an entry for each chat that waits for an acknowledgement. Expiry has one for each
	// connection that left, and Arrivals one for each arriving session. Again has one for each
	// session that has to look at large chats once more; its delay is Least.Interval. Written has
	// one for each session that has to tell its client what was written.
	Grace, Expiry, Arrivals, Again, Written *Deadlines
	// Now returns the time of day. readMissed compares it with the times of messages (clockSlack).
	Now func() time.Time
	// Traces learns which messages sessions hand over. nil: no message is traced.
	Traces *traced.Messages
	Count  Counters
}

// Counters count events of the sessions of a node. All but the first two only grow.
type Counters struct {
	// Connections is how many sessions are read. Comparing is how many wait for storage to compare
	// heads with watermarks.
	Connections, Comparing                          atomic.Int64
	Deliveries, Listings, Compares, Resumes, Resets atomic.Int64
	Rewinds, Replaced, Overflows, ReadErrors        atomic.Int64
	TypingDropped                                   atomic.Int64
	// LatestKnown counts snapshots for which the latest chats were remembered, and not listed.
	LatestKnown atomic.Int64
	// Landed and Unlanded count arriving sessions that landed, and that did not.
	Landed, Unlanded atomic.Int64
}

// key returns the key of the user's delivery state in a chat.
func (s *Session) key(chat tidemark.ChatID) storage.StateKey {
	return storage.StateKey{User: s.User(), Chat: chat}
}

// Boundaries returns what a user may know of the members' watermarks in chats. In chats with more
// than StatusFanout members, it returns one aggregate, as it is stored now. It omits zero
// boundaries, and chats of which the user is no member. In chats in which the user hides what they
// read, it returns nothing of what others read.
func (h *Host) Boundaries(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID,
) ([]tidemark.StatusUpdate, error) {
	updates, read, err := h.boundaries(ctx, user, ids, nil,
		func(p *chat.Roster) (tidemark.Boundary, error) {
			sum, err := h.Storage.Summary(ctx, p.ChatID, 0, "")
			return sum.Least, err
		})
	shown := updates[:0]
	for _, u := range updates {
		//rule:shown_within_real.statuses-to-who-hides
		if u.Boundary, _ = read.mask(u, user); u.Boundary != (tidemark.Boundary{}) {
			shown = append(shown, u)
		}
	}
	return shown, err
}

// boundaries is Boundaries with the aggregate that least returns.
//
// also names users who may be former members of these chats; their boundaries are returned too.
// read has the rosters of the chats whose boundaries were read member by member, and of all chats
// whether the user hides what they read. Updates do not heed that. That of the user has their own
// marks.
func (h *Host) boundaries(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID, also []storage.StateKey,
	least func(*chat.Roster) (tidemark.Boundary, error),
) (updates []tidemark.StatusUpdate, read baselines, err error) {
	all, err := h.Chats.Rosters(ctx, ids)
	if err != nil {
		return nil, baselines{}, err
	}
	read = baselines{
		members: make(map[tidemark.ChatID]*chat.Roster), hides: make(map[tidemark.ChatID]sight),
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
		if len(p.Users) > h.StatusFanout {
			b, err := least(p)
			if err != nil {
				return nil, baselines{}, err
			}
			keys = append(keys, storage.StateKey{User: user, Chat: p.ChatID})
			if b != (tidemark.Boundary{}) {
				updates = append(updates, tidemark.StatusUpdate{ChatID: p.ChatID, Boundary: b})
			}
			continue
		}
		read.members[p.ChatID] = p
		for _, member := range p.Users {
			//rule:blocked_is_closed.no-boundary-of-the-other
			if p.State.Closed() && member != user {
				continue
			}
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
		return nil, baselines{}, err
	}
	for i, st := range states {
		if st.UserID != user {
			updates = append(updates, h.Watermarks.Statuses(states[i:i+1])...)
			continue
		}
		h.Watermarks.Learn(st)
		read.hides[st.ChatID] = sightOf(st)
		own := st.Marks().Exposed()
		if _, small := read.members[st.ChatID]; small && own != (tidemark.Boundary{}) {
			updates = append(updates,
				tidemark.StatusUpdate{ChatID: st.ChatID, UserID: user, Boundary: own})
		}
	}
	return updates, read, nil
}

// owns returns a user's own states in those of some chats of which they are a member.
func (h *Host) owns(
	ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID,
) ([]tidemark.OwnState, error) {
	keys := make([]storage.StateKey, len(ids))
	for i, id := range ids {
		keys[i] = storage.StateKey{User: user, Chat: id}
	}
	verdicts, err := h.Chats.Memberships(ctx, keys)
	if err != nil {
		return nil, err
	}
	var members []storage.StateKey
	for i, key := range keys {
		//rule:nothing_outside_membership.own-state-of-members-only
		if verdicts[i] == nil {
			members = append(members, key)
		}
	}
	states, err := h.Storage.States(ctx, members)
	if err != nil {
		return nil, err
	}
	counts, err := h.Unreads.Unread(ctx, members)
	if err != nil {
		return nil, err
	}
	owns := make([]tidemark.OwnState, len(members))
	for i, st := range states {
		owns[i] = tidemark.OwnState{
			DeliveryState: st, Unread: counts[i].Messages, Mentions: counts[i].Mentions,
		}
	}
	return owns, nil
}

// acked returns lower bounds of a user's acknowledged watermarks. What is not in memory takes one
// read.
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
		own, _ := h.Watermarks.Raise(st)
		acked[st.ChatID] = own.Acked
	}
	return acked, nil
}
