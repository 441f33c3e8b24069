package session

import (
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
)

// Bounds of what a session knows of statuses.
const (
	maxStatuses   = 4_096 // boundaries that wait, and chats whose baseline was read
	maxRefreshes  = 1_024 // chats whose statuses wait to be read
	maxAggregates = 1_024 // large chats whose aggregates are remembered
	// recentChats bounds a snapshot: so many of the chats that were active last, and so many chats
	// at a time.
	recentChats = 50
)

// statusKey names a member of a chat, or, with an empty user, all of them.
type statusKey struct {
	chat tidemark.ChatID
	user tidemark.UserID
}

// pendingStatus is the boundary of a member that waits to be sent.
//
//	state          raised         baseline read            sent
//	needBaseline   needBaseline   ready, or gone           -
//	ready          ready          ready                    gone
//
// The baseline is what other nodes may have told the client: nothing is sent before it was read, so
// that a boundary never falls (tick_monotone). An update without a member needs none.
type pendingStatus struct {
	tidemark.Boundary
	state statusState
}

type statusState uint8

const (
	needBaseline statusState = iota
	ready
)

// statuses is what a session has to tell its client of the members' boundaries.
type statuses struct {
	// pending holds the boundaries that wait, in the order of order. unread are those of them that
	// need their baseline.
	pending map[statusKey]pendingStatus
	order   []statusKey
	unread  []statusKey
	// baselines are the members whose boundaries were read since the session came to this node.
	baselines map[tidemark.ChatID]*chat.Roster
	// aggregates is what was sent of large chats.
	aggregates map[tidemark.ChatID]tidemark.Boundary
	// refresh are the chats whose statuses have to be read and sent.
	refresh []tidemark.ChatID
	// snapshot says that the client asked for the statuses of its recent chats when it opened the
	// session; listRecent, that those chats have still to be listed.
	snapshot, listRecent bool
	// left counts the chats that the user left: what was read before that is not sent after it.
	left uint32
}

// raise takes in that a boundary moved. It returns false if too many wait: then the chat's statuses
// are read later.
func (s *statuses) raise(key statusKey, b tidemark.Boundary) bool {
	p, there := s.pending[key]
	if !there {
		if len(s.pending) >= maxStatuses {
			s.refreshChat(key.chat)
			return false
		}
		if s.pending == nil {
			s.pending = make(map[statusKey]pendingStatus)
		}
		s.order = append(s.order, key)
		//rule:tick_monotone.hold-old-status
		if s.baselineKnown(key) {
			p.state = ready
		} else {
			s.unread = append(s.unread, key)
		}
	}
	p.Boundary = p.Merge(b)
	s.pending[key] = p
	return true
}

// baselineKnown reports whether this node knows the client's last boundary of a member.
func (s *statuses) baselineKnown(key statusKey) bool {
	if key.user == "" {
		return true
	}
	roster := s.baselines[key.chat]
	if roster == nil {
		return false
	}
	_, member := roster.Member(key.user)
	//rule:tick_monotone.former-member-is-not-counted
	return member
}

// learnBaselines notes the chats whose members' boundaries were read.
func (s *statuses) learnBaselines(read []*chat.Roster) {
	for _, roster := range read {
		if s.baselines == nil || len(s.baselines) >= maxStatuses {
			s.baselines = make(map[tidemark.ChatID]*chat.Roster)
		}
		s.baselines[roster.ChatID] = roster
	}
}

// settle decides about the first n keys that needed a baseline, now that those of some chats were
// read. Of the other chats the user is no member, or they have become large: nothing is sent.
func (s *statuses) settle(keys []statusKey, read []*chat.Roster) {
	s.unread = slices.Delete(s.unread, 0, len(keys))
	for _, key := range keys {
		p, waits := s.pending[key]
		known := slices.ContainsFunc(read, func(roster *chat.Roster) bool {
			return roster.ChatID == key.chat
		})
		if known && waits {
			p.state = ready
			s.pending[key] = p
			continue
		}
		delete(s.pending, key)
		s.order = slices.DeleteFunc(s.order, func(k statusKey) bool { return k == key })
	}
}

// merge raises a boundary that waits, since a higher one was read, and reports whether one waits.
func (s *statuses) merge(key statusKey, b tidemark.Boundary) bool {
	p, waits := s.pending[key]
	if waits {
		//rule:tick_monotone.merge-waiting-status
		s.pending[key] = pendingStatus{p.Merge(b), ready}
	}
	return waits
}

// refreshChat orders the statuses of a chat to be read and sent.
func (s *statuses) refreshChat(chat tidemark.ChatID) {
	if len(s.refresh) < maxRefreshes && !slices.Contains(s.refresh, chat) {
		s.refresh = append(s.refresh, chat)
	}
}

// takeRefresh removes the first n chats whose statuses have to be read.
func (s *statuses) takeRefresh(n int) []tidemark.ChatID {
	taken := slices.Clone(s.refresh[:n])
	s.refresh = append(s.refresh[:0], s.refresh[n:]...)
	return taken
}

// aggregate returns what is sent of a large chat, which never falls, not when a member joins
// either, and whether it rose.
func (s *statuses) aggregate(
	chat tidemark.ChatID, b tidemark.Boundary,
) (sent tidemark.Boundary, rose bool) {
	before, there := s.aggregates[chat]
	//rule:tick_monotone.merge-last-sent
	sent = b.Merge(before)
	if sent == before {
		return sent, false
	}
	if s.aggregates == nil {
		s.aggregates = make(map[tidemark.ChatID]tidemark.Boundary)
	}
	if there || len(s.aggregates) < maxAggregates {
		s.aggregates[chat] = sent
	}
	return sent, true
}

// leave drops everything about a chat that the user left.
func (s *statuses) leave(chat tidemark.ChatID) {
	//rule:nothing_outside_membership.void-snapshots-under-way
	s.left++
	//rule:nothing_outside_membership.drop-statuses
	about := func(k statusKey) bool { return k.chat == chat }
	for _, key := range s.order {
		if about(key) {
			delete(s.pending, key)
		}
	}
	s.order = slices.DeleteFunc(s.order, about)
	s.unread = slices.DeleteFunc(s.unread, about)
	s.refresh = slices.DeleteFunc(s.refresh, func(id tidemark.ChatID) bool { return id == chat })
	delete(s.aggregates, chat)
	delete(s.baselines, chat)
}
