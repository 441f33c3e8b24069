package session

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

// serve does the I/O of one step, and appends the events that result.
func (s *Session) serve(
	ctx context.Context, r *Reader, st step, buf []tidemark.Event,
) ([]tidemark.Event, error) {
	switch st.kind {
	case stepReconcile:
		return buf, s.readPage(ctx, r, st.reconcile)
	case stepAcked:
		return buf, s.readAcked(ctx, st.ids)
	case stepChats:
		return s.serveChats(ctx, r, st, buf)
	case stepBaselines:
		return buf, s.readBaselines(ctx, r, st)
	case stepRecent:
		return buf, s.listRecent(ctx, r)
	case stepOwn:
		return s.serveOwn(ctx, r, st, buf)
	default:
		return s.serveStatuses(ctx, r, st, buf)
	}
}

// readAcked reads the watermarks of chats that are new to the session.
func (s *Session) readAcked(ctx context.Context, ids []tidemark.ChatID) error {
	acked, err := s.host.acked(ctx, s.User(), ids)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if p := s.chats.get(id); p != nil {
			s.learnAcked(p, acked[id])
		}
	}
	return nil
}

// serveChats reads and sends a page of each of several chats. It discards pages that were read
// before a rewind, or for a reader that was replaced in the meantime.
func (s *Session) serveChats(
	ctx context.Context, r *Reader, st step, buf []tidemark.Event,
) ([]tidemark.Event, error) {
	var few [1]chat.Page
	pages, err := s.host.Chats.Pages(ctx, st.requests, few[:0])
	if err != nil {
		return buf, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:session_in_order.serve-current-connection-only
	if err := s.ownedBy(r); err != nil {
		return buf, err
	}
	pieces := 0
	for i := range pages {
		pieces += len(pages[i].Pieces)
	}
	buf = slices.Grow(buf, pieces)
	short := false
	for i := range pages {
		ordered, page := st.chats[i], &pages[i]
		p := ordered.progress
		//rule:session_in_order.drop-page-after-rewind
		if p.rewinds != ordered.rewinds {
			continue
		}
		if page.Gone {
			s.leave(p.chat)
			continue
		}
		for _, piece := range page.Pieces {
			kind, sent := tidemark.EventMessage, run{
				kind: runMessages, chat: p.chat, sequence: piece.From, to: piece.To,
			}
			if piece.Gap {
				kind, sent.kind = tidemark.EventGap, runGap
			}
			buf = append(buf, s.log.number(kind, piece.Payload, sent))
			//rule:trace_to_acknowledgement.gap-is-no-hand-over
			if !piece.Gap {
				s.host.Traces.HandedOver(s.ID(), p.chat, piece.From, piece.To)
			}
		}
		p.served(page.Through, ordered.openEnded, page.End)
		s.requeue(p)
		short = short || len(page.Pieces) == 0 && p.ready()
	}
	if short {
		return buf, errShortRead
	}
	return buf, nil
}

// listRecent finds the chats that were active last, so that their statuses or own states are sent.
// If they are not known, it reads them from storage.
func (s *Session) listRecent(ctx context.Context, r *Reader) error {
	s.mu.Lock()
	order := s.reconcile.order
	latest, known := s.latest()
	s.mu.Unlock()
	if known {
		rosters, err := s.host.Chats.Rosters(ctx, latest)
		if err != nil {
			return err
		}
		if affordable(rosters) {
			return s.refreshLatest(r, rosters)
		}
	}
	s.host.Latest.Begin(s.User())
	recent, _, err := s.host.Storage.ChatsOf(ctx, s.User(),
		storage.ChatsPage{Limit: recentChats, Brief: true})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(r); err != nil {
		return err
	}
	uses := s.statuses.recent.uses
	s.statuses.recent.uses = 0
	now := s.host.Now()
	listed := make([]tidemark.ChatID, len(recent))
	for i, c := range recent {
		listed[i] = c.Chat.ID
		if uses&forOwn != 0 {
			s.statuses.refreshOwn(c.Chat.ID)
		}
		if uses&forStatuses != 0 &&
			s.statuses.refreshIfAffordable(c.Chat.ID, c.Chat.MemberCount, now) {
			// This node may not know yet that a member was added.
			//rule:tick_monotone.outdate-roster-for-snapshot
			s.host.Chats.Chat(c.Chat.ID).Invalidate(c.Chat.MembersVersion)
		}
	}
	// Events may have been missed since the list was read.
	if s.lease == held && s.reconcile.order == order {
		s.host.Latest.Listed(s.User(), listed)
	}
	return nil
}

// affordable reports whether a snapshot may cover all chats of these rosters.
func affordable(rosters []*chat.Roster) bool {
	members := 0
	for _, roster := range rosters {
		if roster != nil {
			members += len(roster.Users)
		}
	}
	//rule:bounded_use.list-chats-of-many-members
	return members <= snapshotMembers
}

// refreshLatest makes the session send the statuses or own states of chats that are known to be the
// latest. Chats that the user has left are skipped when they are read.
func (s *Session) refreshLatest(r *Reader, rosters []*chat.Roster) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(r); err != nil {
		return err
	}
	uses := s.statuses.recent.uses
	s.statuses.recent.uses = 0
	now := s.host.Now()
	for _, roster := range rosters {
		if roster == nil {
			continue
		}
		if uses&forOwn != 0 {
			s.statuses.refreshOwn(roster.ChatID)
		}
		if uses&forStatuses != 0 {
			s.statuses.refreshIfAffordable(roster.ChatID, len(roster.Users), now)
		}
	}
	return nil
}

// serveStatuses reads and sends the statuses of chats. If the user left a chat in the meantime,
// they are read again.
func (s *Session) serveStatuses(
	ctx context.Context, r *Reader, st step, buf []tidemark.Event,
) ([]tidemark.Event, error) {
	look := look{session: s, step: st, now: time.Now()}
	updates, read, err := s.host.boundaries(ctx, s.User(), st.ids, nil,
		func(p *chat.Roster) (tidemark.Boundary, error) { return look.least(ctx, p) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.ownedBy(r)
	}
	//rule:nothing_outside_membership.drop-snapshot-after-removal
	if err != nil || s.statuses.left != st.left {
		for _, id := range st.ids {
			s.statuses.refreshChat(id)
		}
		return buf, err
	}
	s.statuses.learn(read)
	if len(look.later) > 0 {
		s.statuses.lookLater(look.later)
		s.host.Again.push(Deadline{session: s})
	}
	for _, u := range updates {
		if u, waits := s.newest(u); !waits {
			// The client knows what the first look found.
			_, again := st.again[u.ChatID]
			buf = s.sendStatus(buf, u, !again)
		}
	}
	return buf, nil
}

// look is a read of aggregates for a session.
type look struct {
	session *Session
	step    step
	now     time.Time
	// later has the chats at which the session has to look again.
	later []lookAgain
}

// least returns the aggregate of a chat. The first look takes one that was read within the
// interval, perhaps before the session took its lease. What rose since then may not have been
// published to the session, so it looks again when the interval is over.
func (l *look) least(ctx context.Context, p *chat.Roster) (tidemark.Boundary, error) {
	cache := l.session.host.Least
	after, again := l.step.again[p.ChatID]
	if !again {
		after = l.now.Add(-cache.Interval())
	}
	v, err := cache.Since(ctx, p.ChatID, p.Version, after)
	switch {
	case err != nil:
		return tidemark.Boundary{}, err
	case again && v.Begun.IsZero():
		l.later = append(l.later, lookAgain{p.ChatID, after})
	//rule:delivered_is_eventually_consistent.look-again
	case !again && !v.Own && !v.Begun.After(l.now):
		l.later = append(l.later, lookAgain{p.ChatID, l.now})
	}
	if v.Begun.IsZero() {
		l.session.mu.Lock()
		defer l.session.mu.Unlock()
		//rule:resume_lossless.send-known-aggregate-again
		return l.session.statuses.aggregates[p.ChatID], nil
	}
	return v.Boundary, nil
}

// serveOwn reads and sends the user's own states in chats of which they are a member. The counts
// are read after the marks, so they are not older. If the user left a chat in the meantime, all are
// read again.
func (s *Session) serveOwn(
	ctx context.Context, r *Reader, st step, buf []tidemark.Event,
) ([]tidemark.Event, error) {
	owns, err := s.host.owns(ctx, s.User(), st.ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.ownedBy(r)
	}
	//rule:nothing_outside_membership.drop-own-state-after-removal
	if err != nil || s.statuses.left != st.left {
		for _, id := range st.ids {
			s.statuses.refreshOwn(id)
		}
		return buf, err
	}
	for _, own := range owns {
		buf = append(buf, s.log.number(tidemark.EventOwnState, own.AppendJSON(nil),
			run{kind: runOwn, chat: own.ChatID}))
	}
	return buf, nil
}

// readBaselines reads the boundaries that the client may already know. These are of all members of
// the chats of st.keys, and of the users in st.keys, who may be former members. Of the chats of
// aggregates, it only has to know whether the user hides what they read there.
func (s *Session) readBaselines(ctx context.Context, r *Reader, st step) error {
	var ids []tidemark.ChatID
	var also []storage.StateKey
	for _, key := range st.keys {
		if key.user != "" { // An aggregate is of nobody.
			also = append(also, storage.StateKey{User: key.user, Chat: key.chat})
		}
		if !slices.Contains(ids, key.chat) {
			ids = append(ids, key.chat)
		}
	}
	//rule:tick_monotone.include-former-members
	updates, read, err := s.host.boundaries(ctx, s.User(), ids, also,
		func(*chat.Roster) (tidemark.Boundary, error) { return tidemark.Boundary{}, nil })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(r); err != nil || s.statuses.left != st.left {
		return err
	}
	s.statuses.learn(read)
	for _, u := range updates {
		s.newest(u)
	}
	s.statuses.settle(st.keys, read)
	return nil
}

// newest returns a boundary that was read, or a higher one that is known. waits reports whether an
// update of the same member is queued; it is then raised to this boundary.
func (s *Session) newest(u tidemark.StatusUpdate) (newest tidemark.StatusUpdate, waits bool) {
	switch u.UserID {
	case "":
	case s.User():
		// Others must not be sent the own marks, so these are not announced.
		u.Boundary = u.Boundary.Merge(s.host.Watermarks.Own(u.UserID, u.ChatID))
	default:
		// The client may have been sent a higher boundary since. A lower update may still arrive.
		//rule:tick_monotone.remember-snapshot
		u.Boundary = s.host.Watermarks.Announce(u)
	}
	return u, s.statuses.merge(statusKey{u.ChatID, u.UserID}, u.Boundary)
}
