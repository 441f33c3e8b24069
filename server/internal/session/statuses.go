package session

import (
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Limits of statuses.
const (
	maxStatuses   = 4_096 // queued boundaries, and chats whose baseline was read
	maxRefreshes  = 1_024 // chats whose statuses have to be read
	maxAggregates = 1_024 // large chats whose aggregates are remembered
	// recentChats is how many of the latest active chats a snapshot covers, and how many chats one
	// step reads.
	recentChats = 50
	// snapshotMembers is how many members the chats have together at most whose statuses are read
	// within snapshotPeriod for an open or because the user joined. Strangers can put a user into
	// many large groups, and each open, and each addition, would read the states of all members.
	snapshotMembers = 5_000
	snapshotPeriod  = time.Minute
)

// statusKey names a member of a chat. With an empty user it names the aggregate of all members.
type statusKey struct {
	chat tidemark.ChatID
	user tidemark.UserID
}

// pendingStatus is a member's boundary that is not sent yet.
//
//	state          raised         baseline read            sent
//	needBaseline   needBaseline   ready, or dropped        -
//	ready          ready          ready                    dropped
//
// The baseline is the boundary that another node may have sent to the client. Nothing is sent until
// it was read, so that a boundary never falls (tick_monotone). Of an aggregate only that is read
// whether the user hides what they read in the chat.
type pendingStatus struct {
	tidemark.Boundary
	state statusState
}

type statusState uint8

const (
	needBaseline statusState = iota
	ready
)

// recentUse says for what the recently active chats are listed. The uses can be added.
type recentUse uint8

const (
	forStatuses recentUse = 1 << iota // the statuses of their members
	forOwn                            // the own states
)

// recentList says for what the recently active chats have to be listed, and when. Without uses they
// are not listed.
type recentList struct {
	uses recentUse
	turn turn
}

// turn says when the recent chats are listed.
//
//	turn     a client asks, or the session moves   a new epoch   ListRecent
//	atOnce   -                                     inTurn        -
//	inTurn   atOnce                                -             atOnce
//
// With a new epoch all sessions of a node list their chats. That takes longer than to compare
// heads, so it waits until all have begun to compare (sessions.listLoop).
type turn uint8

const (
	atOnce turn = iota
	inTurn
)

// statuses holds what a session has to send about the members' boundaries.
type statuses struct {
	// pending has the queued boundaries, and order the sequence in which they are sent. unread has
	// the keys that need their baseline.
	pending   map[statusKey]pendingStatus
	order     []statusKey
	unread    []statusKey
	baselines baselines
	// aggregates has what was sent of large chats.
	aggregates map[tidemark.ChatID]tidemark.Boundary
	// refresh has the chats whose statuses have to be read and sent, and own those whose own state
	// has.
	refresh, own []tidemark.ChatID
	// written has the chats in which the user's own boundary was written and not sent yet.
	written []tidemark.ChatID
	// waiting has the large chats at which the session looks again when the interval is over, and
	// again those at which it looks now.
	waiting, again []lookAgain
	// snapshot says that the client asked for the statuses of its recent chats.
	snapshot bool
	// recent is the list of recent chats that has still to be read.
	recent recentList
	// left counts the chats that the user left, and the changes of who sees what they read.
	// Statuses that were read before that are not sent.
	left uint32
	// members counts the members of chats that were refreshed with a bound since the time from.
	members int
	from    time.Time
}

// lookAgain is a large chat whose aggregate has to be read after a time.
type lookAgain struct {
	chat  tidemark.ChatID
	after time.Time
}

// raise queues a boundary that rose. If maxStatuses are queued, it returns false, and the chat's
// statuses are read later.
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

// baselineKnown reports whether a member's baseline was read.
func (s *statuses) baselineKnown(key statusKey) bool {
	if key.user == "" {
		//rule:shown_within_real.know-before-an-aggregate
		_, known := s.baselines.hides[key.chat]
		return known
	}
	roster := s.baselines.members[key.chat]
	if roster == nil {
		return false
	}
	_, member := roster.Member(key.user)
	//rule:tick_monotone.former-member-is-not-counted
	return member
}

// settle removes keys from unread after the baselines of some chats were read. Keys of other chats
// are dropped: the user is no member there, or the chat has become large.
func (s *statuses) settle(keys []statusKey, read baselines) {
	s.unread = slices.Delete(s.unread, 0, len(keys))
	for _, key := range keys {
		p, waits := s.pending[key]
		_, known := read.members[key.chat]
		if key.user == "" {
			_, known = read.hides[key.chat]
		}
		if known && waits {
			p.state = ready
			s.pending[key] = p
			continue
		}
		delete(s.pending, key)
		s.order = slices.DeleteFunc(s.order, func(k statusKey) bool { return k == key })
	}
}

// merge raises a queued boundary to one that was read. It reports whether one was queued.
func (s *statuses) merge(key statusKey, b tidemark.Boundary) bool {
	p, waits := s.pending[key]
	if waits {
		//rule:tick_monotone.merge-waiting-status
		s.pending[key] = pendingStatus{p.Merge(b), ready}
	}
	return waits
}

// refreshChat makes the session read and send the statuses of a chat.
func (s *statuses) refreshChat(chat tidemark.ChatID) {
	if len(s.refresh) < maxRefreshes && !slices.Contains(s.refresh, chat) {
		s.refresh = append(s.refresh, chat)
	}
}

// refreshIfAffordable is refreshChat for a chat that others may have put the user into. It does
// nothing if the members of these chats would be more than snapshotMembers in snapshotPeriod.
// It reports whether the chat is refreshed.
func (s *statuses) refreshIfAffordable(chat tidemark.ChatID, members int, now time.Time) bool {
	//rule:bounded_use.refill-members-of-snapshot
	if now.Sub(s.from).Abs() >= snapshotPeriod {
		s.from, s.members = now, 0
	}
	//rule:bounded_use.bound-members-of-snapshot
	if s.members+members > snapshotMembers {
		return false
	}
	s.members += members
	s.refreshChat(chat)
	return true
}

// missed makes the session list the recent chats, because events may not have reached it. Clients
// that did not ask for statuses get none.
func (s *statuses) missed(t turn) {
	if s.snapshot {
		s.members = 0
		//rule:own_state_reaches_devices.after-missed-events
		s.list(forStatuses|forOwn, t)
	}
}

// list makes the session list the recent chats.
func (s *statuses) list(uses recentUse, t turn) {
	s.recent.uses |= uses
	s.recent.turn = t
}

// due returns what has to be read of chats after the client has caught up.
func (s *statuses) due() step {
	switch {
	case s.recent.uses != 0 && s.recent.turn == atOnce:
		return step{kind: stepRecent}
	case len(s.refresh) > 0:
		return step{kind: stepStatuses, ids: takeFirst(&s.refresh), left: s.left}
	case len(s.again) > 0:
		return s.againStep()
	case len(s.own) > 0:
		return step{kind: stepOwn, ids: takeFirst(&s.own), left: s.left}
	}
	return step{}
}

// lookLater makes the session look at chats again when the interval is over.
func (s *statuses) lookLater(chats []lookAgain) {
	s.waiting = append(s.waiting, chats...)
	//rule:bounded_use.bound-second-looks
	if n := len(s.waiting) - maxRefreshes; n > 0 {
		s.waiting = slices.Delete(s.waiting, 0, n)
	}
}

// intervalOver makes the session look at the chats that wait. Those that began to wait later may
// have to wait once more.
func (s *statuses) intervalOver() {
	s.again = append(s.again, s.waiting...)
	s.waiting = nil
}

// againStep orders the next looks.
func (s *statuses) againStep() step {
	st := step{kind: stepStatuses, left: s.left, again: map[tidemark.ChatID]time.Time{}}
	n := min(len(s.again), recentChats)
	for _, l := range s.again[:n] {
		if _, twice := st.again[l.chat]; !twice {
			st.ids = append(st.ids, l.chat)
		}
		st.again[l.chat] = l.after // the later one
	}
	s.again = slices.Delete(s.again, 0, n)
	return st
}

// unsent returns the chats whose statuses have still to be read or sent.
func (s *statuses) unsent() []tidemark.ChatID {
	all := slices.Clone(s.refresh)
	for _, key := range s.order {
		all = append(all, key.chat)
	}
	for _, l := range slices.Concat(s.again, s.waiting) {
		all = append(all, l.chat)
	}
	var once []tidemark.ChatID
	for _, id := range all {
		if !slices.Contains(once, id) {
			once = append(once, id)
		}
	}
	return once
}

// refreshOwn makes the session read and send the own state in a chat.
func (s *statuses) refreshOwn(chat tidemark.ChatID) {
	//rule:bounded_use.bound-own-states
	if len(s.own) < maxRefreshes && !slices.Contains(s.own, chat) {
		s.own = append(s.own, chat)
	}
}

// addWritten records that the session has to send the user's own boundary in a chat. It reports
// whether that is the first such chat. If there is no room, the client repeats its acknowledgement.
func (s *statuses) addWritten(chat tidemark.ChatID) (first bool) {
	//rule:bounded_use.bound-written-chats
	if len(s.written) < maxRefreshes && !slices.Contains(s.written, chat) {
		s.written = append(s.written, chat)
		return len(s.written) == 1
	}
	return false
}

// takeFirst removes and returns the first recentChats of some chats.
func takeFirst(chats *[]tidemark.ChatID) []tidemark.ChatID {
	n := min(len(*chats), recentChats)
	taken := slices.Clone((*chats)[:n])
	*chats = append((*chats)[:0], (*chats)[n:]...)
	return taken
}

// aggregate returns the boundary to send for a large chat, and whether it rose. It never falls,
// even when a new member lowers the minimum.
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
	is := func(id tidemark.ChatID) bool { return id == chat }
	s.refresh, s.own = slices.DeleteFunc(s.refresh, is), slices.DeleteFunc(s.own, is)
	s.written = slices.DeleteFunc(s.written, is)
	looks := func(l lookAgain) bool { return l.chat == chat }
	s.waiting, s.again = slices.DeleteFunc(s.waiting, looks), slices.DeleteFunc(s.again, looks)
	delete(s.aggregates, chat)
	s.baselines.leave(chat)
}
