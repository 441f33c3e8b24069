package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/storage"
)

// MemberPage is a page of members, in the order of their user ids.
type MemberPage struct {
	Members    []tidemark.Member
	NextCursor string
}

// Members returns a page of the current members. limit is at least 1. NotFound, NotMember.
func (s *Server) Members(ctx context.Context, c Caller, chat tidemark.ChatID, limit int, cursor string) (MemberPage, error) {
	after, err := decodeIDCursor[tidemark.UserID](cursorMembers, cursor)
	if err != nil {
		return MemberPage{}, err
	}
	p, _, err := s.member(ctx, c.User, chat)
	if err != nil {
		return MemberPage{}, err
	}
	return pageOfMembers(p, after, limit), nil
}

func pageOfMembers(p *people, after tidemark.UserID, limit int) MemberPage {
	from, found := slices.BinarySearchFunc(p.Members, after, func(m tidemark.Member, u tidemark.UserID) int {
		return strings.Compare(string(m.UserID), string(u))
	})
	if found {
		from++
	}
	page := MemberPage{Members: p.Members[from:]}
	if len(page.Members) > limit {
		page.Members = page.Members[:limit]
		page.NextCursor = encodeCursor(cursorMembers, string(page.Members[limit-1].UserID))
	}
	return page
}

// AddMembers makes users members of a group and returns the first page of its members. For each of them it is a send: what he may see and
// has not acknowledged is marked and woken. Owners and backends may.
//
// Errors: Invalid, NotFound, NotMember, Denied, Exhausted (tidemark.MaxMembers, MaxIntervals), Unavailable: repeat it.
func (s *Server) AddMembers(ctx context.Context, c Caller, chat tidemark.ChatID, users []tidemark.UserID) (MemberPage, error) {
	users, err := distinct("user_ids", users)
	switch {
	case err != nil:
		return MemberPage{}, err
	case len(users) == 0:
		return MemberPage{}, tidemark.Errorf(tidemark.Invalid, "user_ids names nobody")
	case len(users) > tidemark.MaxMembersPerCall:
		return MemberPage{}, tidemark.Errorf(tidemark.Invalid, "user_ids names %d users, at most %d are allowed in one call", len(users), tidemark.MaxMembersPerCall)
	}
	if err := s.begin(); err != nil {
		return MemberPage{}, err
	}
	defer s.inflight.Done()
	if _, err := s.mayManage(ctx, c, chat); err != nil {
		return MemberPage{}, err
	}
	added, err := s.storage.AddMembers(ctx, chat, users, time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return MemberPage{}, err
	}
	ctx = context.WithoutCancel(ctx)
	hot := s.hot.get(chat)
	hot.outdate(added.Version)
	changes := make([]tidemark.MembershipChange, len(added.States))
	var rows []tidemark.PendingDelivery
	for i, st := range added.States {
		changes[i] = tidemark.MembershipChange{ChatID: chat, UserID: st.UserID, Change: tidemark.Added}
		if st.Acked < added.Head {
			rows = append(rows, tidemark.PendingDelivery{UserID: st.UserID, ChatID: chat, FirstUndelivered: tidemark.First(st.Acked)})
		}
	}
	markErr := s.mark(ctx, rows)
	if markErr != nil {
		s.owe(debt{rows: rows})
	}
	// The rows' wakes name where to begin; what the new members have to be sent goes up to the head.
	for _, row := range rows {
		for _, sess := range s.sessions.of(row.UserID) {
			sess.wake(chat, added.Head, true)
		}
	}
	p, err := s.people(ctx, hot, added.Version)
	if err != nil {
		return MemberPage{}, err
	}
	s.announce(ctx, changes, added.Version, p.users)
	return pageOfMembers(p, "", 1000), markErr
}

// RemoveMember ends the membership of a user. Owners and backends may; everyone may leave. His delivery state is kept; what he has not received
// he will not receive (ADR-008 §6.1).
//
// Errors: NotFound, NotMember (the caller, or the user), Denied.
func (s *Server) RemoveMember(ctx context.Context, c Caller, chat tidemark.ChatID, user tidemark.UserID) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.inflight.Done()
	if c.User == user && !c.Backend {
		p, _, err := s.member(ctx, user, chat)
		if err != nil {
			return err
		}
		if p.Type == tidemark.Direct {
			return tidemark.Errorf(tidemark.Denied, "the members of a direct chat are fixed")
		}
	} else if _, err := s.mayManage(ctx, c, chat); err != nil {
		return err
	}
	removed, err := s.storage.RemoveMember(ctx, chat, user, time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	hot := s.hot.get(chat)
	hot.outdate(removed.Version)
	if removed.Head > 0 {
		s.clear(ctx, []storage.Clear{{User: user, Chat: chat, Through: removed.Head}})
	}
	told := []tidemark.UserID{user}
	p, err := s.people(ctx, hot, removed.Version)
	if err != nil {
		s.log.Warn("the members were not told of a removal", "chat", chat, "error", err)
	} else {
		told = append(told, p.users...)
	}
	s.announce(ctx, []tidemark.MembershipChange{{ChatID: chat, UserID: user, Change: tidemark.Removed}}, removed.Version, told)
	if p != nil && len(p.users) > tidemark.StatusFanoutLimit {
		s.statuses.recompute(chat)
	}
	return nil
}

// announce tells the sessions of users that the membership changed. It is a hint: who misses it sees the members when he asks.
func (s *Server) announce(ctx context.Context, changes []tidemark.MembershipChange, version uint64, users []tidemark.UserID) {
	if len(changes) == 0 {
		return
	}
	for _, to := range byNode(s.lookup(ctx, users)) {
		event := bus.Membership{Changes: changes, Version: version, Leases: to.leases}
		if err := s.bus.Publish(ctx, to.node, bus.Event{Membership: &event}); err != nil {
			s.count.busErrors.Add(1)
		}
	}
}

// receiveMembership hands changes to the sessions and forgets an older roster.
func (s *Server) receiveMembership(e *bus.Membership) {
	s.hot.get(e.Changes[0].ChatID).outdate(e.Version)
	var few [8]*Session
	for _, sess := range s.sessions.held(few[:0], e.Leases) {
		if sess == nil {
			continue
		}
		for _, change := range e.Changes {
			sess.membership(change)
		}
	}
}

// Typing tells the other members' sessions that the session's user is typing. Errors are dropped, as the notice may be.
func (c *Connection) Typing(ctx context.Context, chat tidemark.ChatID) {
	s, user := c.session.server, c.session.user
	p, _, err := s.member(ctx, user, chat)
	if err != nil || len(p.users) > tidemark.StatusFanoutLimit {
		return
	}
	s.count.typing.Add(1)
	others := slices.DeleteFunc(slices.Clone(p.users), func(u tidemark.UserID) bool { return u == user })
	for _, to := range byNode(s.lookup(ctx, others)) {
		event := bus.Typing{Typing: tidemark.Typing{ChatID: chat, UserID: user}, Leases: to.leases}
		if err := s.bus.Publish(ctx, to.node, bus.Event{Typing: &event}); err != nil {
			s.count.busErrors.Add(1)
		}
	}
}

// receiveTyping hands the notice to the sessions; one that has enough of them waiting drops it.
func (s *Server) receiveTyping(e *bus.Typing) {
	var few [8]*Session
	for _, sess := range s.sessions.held(few[:0], e.Leases) {
		if sess == nil {
			continue
		}
		sess.mu.Lock()
		if sess.attached && !sess.closed && len(sess.typing) < maxTyping && !slices.Contains(sess.typing, e.Typing) {
			sess.typing = append(sess.typing, e.Typing)
			sess.notify()
		}
		sess.mu.Unlock()
	}
}
