package server

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/cursors"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/ticks"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// MemberPage is a page of members, in the order of their user ids.
type MemberPage struct {
	Members    []tidemark.Member
	NextCursor string
}

// Members returns a page of the current members. limit is at least 1. NotFound, NotMember.
func (s *Server) Members(ctx context.Context, c Caller, chat tidemark.ChatID, limit int, cursor string) (MemberPage, error) {
	after, err := cursors.DecodeID[tidemark.UserID](cursors.Members, cursor)
	if err != nil {
		return MemberPage{}, err
	}
	p, _, err := s.feed.Member(ctx, c.User, chat)
	if err != nil {
		return MemberPage{}, err
	}
	return pageOfMembers(p, after, limit), nil
}

func pageOfMembers(p *feed.People, after tidemark.UserID, limit int) MemberPage {
	page := MemberPage{Members: p.After(after)}
	if len(page.Members) > limit {
		page.Members = page.Members[:limit]
		page.NextCursor = cursors.Encode(cursors.Members, string(page.Members[limit-1].UserID))
	}
	return page
}

// AddMembers makes users members of a group and returns the first page of its members. For each of them it is a send: what he may see and
// has not acknowledged is marked and woken. Owners and backends may.
//
// Errors: Invalid, NotFound, NotMember, Denied (also above tidemark.MaxMembers and MaxIntervals), Unavailable: repeat it.
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
	ctx, cancel := after(ctx)
	defer cancel()
	added, err := s.add(ctx, chat, users)
	if err != nil {
		return MemberPage{}, err
	}
	s.feed.Chat(chat).Outdate(added.Version)
	changes := make([]tidemark.MembershipChange, len(added.New))
	for i, user := range added.New {
		changes[i] = tidemark.MembershipChange{ChatID: chat, UserID: user, Change: tidemark.Added}
	}
	// All of them, also who was a member already: the call may repeat one whose answer was lost.
	var rows []tidemark.PendingDelivery
	//rule:pending_or_delivered.rows-for-returning-members
	for _, st := range added.States {
		//rule:pending_or_delivered.row-when-behind-head
		if st.Acked < added.Head {
			rows = append(rows, tidemark.PendingDelivery{UserID: st.UserID, ChatID: chat, FirstUndelivered: tidemark.First(st.Acked)})
		}
	}
	//rule:pending_or_delivered.mark-added-members
	markErr := s.mark(ctx, rows)
	if markErr != nil {
		s.debts.Mark(rows)
	}
	p, err := s.feed.People(ctx, chat, added.Version)
	if err != nil {
		return MemberPage{}, err
	}
	s.announce(ctx, changes, added.Version, p.Users)
	return pageOfMembers(p, "", 1000), markErr
}

// add begins memberships. An outcome that is unknown is resolved by trying again; if it cannot be, the node knows no more who has to receive what, and all sessions
// compare.
func (s *Server) add(ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID) (storage.Added, error) {
	for attempt := 1; ; attempt++ {
		added, err := s.storage.AddMembers(ctx, chat, users, s.now())
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			if err == nil && attempt > 1 {
				added.New = users // an attempt whose answer was lost may have added them
			}
			return added, err
		}
		s.feed.Forget(chat)
		//rule:pending_or_delivered.retry-unknown-addition
		if attempt == appendAttempts || !flow.Pause(ctx, appendPause<<attempt) {
			//rule:pending_or_delivered.compare-after-unknown-addition
			s.debts.Lose()
			return added, err
		}
	}
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
		p, _, err := s.feed.Member(ctx, user, chat)
		if err != nil {
			return err
		}
		if p.Type == tidemark.Direct {
			return tidemark.Errorf(tidemark.Denied, "the members of a direct chat are fixed")
		}
	} else if _, err := s.mayManage(ctx, c, chat); err != nil {
		return err
	}
	ctx, cancel := after(ctx)
	defer cancel()
	removed, err := s.remove(ctx, chat, user)
	if err != nil {
		return err
	}
	s.feed.Chat(chat).Outdate(removed.Version)
	//rule:nothing_outside_membership.tell-removed-member
	told := []tidemark.UserID{user}
	p, err := s.feed.People(ctx, chat, removed.Version)
	if err != nil {
		s.log.Warn("the members were not told of a removal", "chat", chat, "error", err)
	} else {
		told = append(told, p.Users...)
	}
	s.announce(ctx, []tidemark.MembershipChange{{ChatID: chat, UserID: user, Change: tidemark.Removed}}, removed.Version, told)
	if p != nil && len(p.Users) > tidemark.StatusFanoutLimit {
		//rule:group_delivered_requires_all_members.recompute-after-removal
		s.ticks.Recompute(chat)
	}
	return nil
}

// remove ends a membership. An outcome that is unknown is resolved by trying again: if he is no member then, this call removed him, or might have.
func (s *Server) remove(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID) (storage.Removed, error) {
	for attempt := 1; ; attempt++ {
		removed, err := s.storage.RemoveMember(ctx, chat, user, s.now())
		code := tidemark.CodeOf(err)
		//rule:nothing_outside_membership.retried-removal-succeeds
		if code == tidemark.NotMember && attempt > 1 {
			p, err := s.feed.People(ctx, chat, 0)
			if err != nil {
				return removed, err
			}
			heads, err := s.storage.Heads(ctx, []tidemark.ChatID{chat})
			if err != nil {
				return removed, err
			}
			return storage.Removed{Version: p.Version, Head: heads[0]}, nil
		}
		if code != tidemark.Unavailable {
			return removed, err
		}
		s.feed.Forget(chat) // it may have happened
		if attempt == appendAttempts || !flow.Pause(ctx, appendPause<<attempt) {
			return removed, err
		}
	}
}

// announce tells the sessions of users that the membership changed, and every node, which may remember the members. It is a hint to the sessions: who misses it sees
// the members when he asks. A node that cannot be told believes what is wrong, so this one joins the registry anew, which makes all forget (internal/pulse).
func (s *Server) announce(ctx context.Context, changes []tidemark.MembershipChange, version uint64, users []tidemark.UserID) {
	if len(changes) == 0 {
		return
	}
	to := registry.ByNode(s.locate.Hint(ctx, users))
	nodes := s.pulse.Nodes()
	for _, n := range nodes {
		if !slices.ContainsFunc(to, func(a registry.Addressed) bool { return a.Node == n }) {
			//rule:nothing_outside_membership.tell-all-nodes-of-members
			to = append(to, registry.Addressed{Node: n})
		}
	}
	for i, err := range s.announceTo(ctx, changes, version, to) {
		if err != nil && slices.Contains(nodes, to[i].Node) && tidemark.CodeOf(err) != tidemark.NotFound {
			//rule:nothing_outside_membership.rejoin-when-nodes-are-unknown
			s.pulse.Rejoin()
		}
	}
}

// announceTo tells nodes, and the sessions that hold the leases.
func (s *Server) announceTo(ctx context.Context, changes []tidemark.MembershipChange, version uint64, to []registry.Addressed) []error {
	return s.publish(ctx, to, func(leases []registry.Lease) bus.Event {
		return bus.Event{Membership: &bus.Membership{Changes: changes, Version: version, Leases: leases}}
	})
}

// receiveMembership hands changes to the sessions and forgets an older roster.
func (s *Server) receiveMembership(e *bus.Membership) {
	//rule:nothing_outside_membership.outdate-roster-on-change
	s.feed.Chat(e.Changes[0].ChatID).Outdate(e.Version)
	for _, sess := range s.sessions.Held(nil, e.Leases) {
		if sess != nil {
			sess.MembersChanged(e.Changes)
		}
	}
}

// typing tells the other members' sessions that a user is typing. Errors are dropped, as the notice may be.
func (s *Server) typing(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID) {
	//rule:nothing_outside_membership.typing-by-members-only
	p, _, err := s.feed.Member(ctx, user, chat)
	if err != nil || len(p.Users) > tidemark.StatusFanoutLimit {
		return
	}
	s.count.typing.Add(1)
	others := slices.DeleteFunc(slices.Clone(p.Users), func(u tidemark.UserID) bool { return u == user })
	s.publish(ctx, registry.ByNode(s.locate.Hint(ctx, others)), func(to []registry.Lease) bus.Event {
		return bus.Event{Typing: &bus.Typing{Typing: tidemark.Typing{ChatID: chat, UserID: user}, Leases: to}}
	})
}

// receiveTyping hands the notice to the sessions.
func (s *Server) receiveTyping(e *bus.Typing) {
	for _, sess := range s.sessions.Held(nil, e.Leases) {
		if sess != nil {
			sess.Typing(e.Typing)
		}
	}
}

// publishStatuses hands updates to the sessions of the members, with one look-up and one publication for many chats. It reports false if it is not known who has sessions on
// other nodes: with again nobody is told then.
func (s *Server) publishStatuses(ctx context.Context, pushes []ticks.Push, again bool) bool {
	var users []tidemark.UserID
	for _, push := range pushes {
		users = append(users, push.To.Users...)
	}
	leases, known := s.locate.Users(ctx, users)
	if again && !known {
		return false
	}
	var publications []bus.Publication
	for _, push := range pushes {
		n := len(push.To.Users)
		for _, to := range registry.ByNode(leases[:n]) {
			event := bus.Status{Updates: push.Updates, Version: push.To.Version, Leases: to.Leases}
			publications = append(publications, bus.Publication{Node: to.Node, Event: bus.Event{Status: &event}})
		}
		leases = leases[n:]
	}
	s.publishAll(ctx, publications)
	return known
}

// receiveStatus hands updates to the sessions, except to those whose user is known to have left since.
func (s *Server) receiveStatus(e *bus.Status) {
	chat := s.feed.Chat(e.Updates[0].ChatID)
	for _, u := range e.Updates {
		if u.UserID != "" {
			//rule:tick_monotone.remember-status-from-nodes
			s.host.Known.Tell(u)
		}
	}
	for _, sess := range s.sessions.Held(nil, e.Leases) {
		if sess == nil {
			continue
		}
		switch member, sure := chat.May(sess.User(), e.Version); {
		case member && sure:
			sess.Raised(e.Updates, func() bool { m, s := chat.May(sess.User(), e.Version); return m && s })
		case member:
			sess.RefreshStatuses(chat.ID) // it is read for members only
		}
	}
}
