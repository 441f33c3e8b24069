package server

import (
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Bounds of one session. What exceeds them is looked for in storage again, never queued.
const (
	maxPositions    = 16_384 // chats in the map
	maxControls     = 256    // membership and reset events that wait
	maxStatuses     = 4_096  // boundaries that wait
	maxSnapshots    = 1_024  // chats whose statuses wait to be read
	maxLeast        = 1_024  // large chats whose aggregates are remembered
	maxTyping       = 32     // typing notices that wait
	lookAhead       = 256    // length of the wake set above which the next page of a look waits
	snapshotChats   = 50     // most recently active chats of a snapshot
	statusesPerStep = 32     // status updates before messages get their turn again
)

// Session is one device's place in the stream. It outlives its connections. There is no queue of messages in it: it knows which chats
// have something new (the wake set) and up to where, and reads when its connection asks for more.
//
// All fields below mu are guarded by it; it is never held across I/O.
type Session struct {
	server *Server
	id     tidemark.SessionID
	user   tidemark.UserID
	lease  registry.Lease

	mu sync.Mutex
	// generation counts connections; only the newest may read. signal is the newest connection's.
	generation uint32
	attached   bool
	closed     bool
	signal     chan struct{}
	// detachedAt is when the last connection went away.
	detachedAt time.Time

	// lastID is the number of the last event. It never goes back.
	lastID uint64
	log    runLog

	// chats holds a position for every chat that was ever woken, unless it was forgotten because there was nothing to remember.
	chats map[tidemark.ChatID]*position
	// wakes is the wake set in the order in which its chats are served.
	wakes []*position

	look look
	// epoch is what the registry's epoch was before the lease was taken, or when the last look was ordered.
	epoch registry.Epoch
	// complete says that the look that the epoch belongs to has finished (R_COMPLETE).
	complete bool
	leased   bool

	// opening is the `open` event that waits to be sent.
	opening  *tidemark.Open
	controls []tidemark.Event
	// caughtUp says that caught_up was sent; caughtUpID is its number.
	caughtUp   bool
	caughtUpID uint64
	// backlog counts the positions that have to be served before caught_up.
	backlog int

	wantStatuses bool
	statuses     map[statusKey]tidemark.Boundary
	statusOrder  []statusKey
	least        map[tidemark.ChatID]tidemark.Boundary
	snapshots    []tidemark.ChatID
	// recent says that the chats of the snapshot have still to be listed.
	recent bool
	typing []tidemark.Typing
}

// position is a session's place in one chat.
type position struct {
	chat tidemark.ChatID
	// next is the first sequence that was not sent since the last rewind.
	next tidemark.Sequence
	// start is the lowest sequence that the session has to send; a wake below it rewinds to it (R_MIN).
	start tidemark.Sequence
	// woken is the highest sequence known to exist; toEnd says that there may be more, as storage will tell.
	woken tidemark.Sequence
	toEnd bool
	// acked is a lower bound of the user's watermark. Until sure, it was not read, and start may be too high.
	acked tidemark.Sequence
	sure  bool
	// row says that a pending row may stand.
	row bool
	// queued says that the position is in the wake set: exactly if next ≤ woken or toEnd.
	queued bool
	// graced says that the grace queue has an entry for the position.
	graced bool
	// backlog says that the position counts in Session.backlog, until next is above backlogTo and toEnd is false.
	backlog   bool
	backlogTo tidemark.Sequence
	// rewinds grows whenever next goes back, so that a page read before is not taken for one read after.
	rewinds uint32
}

type statusKey struct {
	chat tidemark.ChatID
	user tidemark.UserID
}

func (p *position) unserved() bool { return p.toEnd || p.next <= p.woken }

// unacknowledged reports whether the position has something sent, or only woken, that the user has not acknowledged (R_WAKESET).
func (p *position) unacknowledged() bool { return p.toEnd || p.woken > p.acked }

// notify wakes the connection, if it waits. The channel has room for one signal.
func (s *Session) notify() { signal(s.signal) }

// touch enters a wake into the session: the chat has something at sequence. It returns nil if the map is full.
func (s *Session) touch(chat tidemark.ChatID, sequence tidemark.Sequence) *position {
	p := s.chats[chat]
	if p == nil {
		if len(s.chats) >= maxPositions && !s.forget() {
			s.server.count.overflow.Add(1)
			s.look.again = true
			return nil
		}
		p = &position{chat: chat, next: sequence, start: sequence}
		if s.chats == nil {
			s.chats = make(map[tidemark.ChatID]*position)
		}
		s.chats[chat] = p
		if acked, ok := s.server.known.acked(stateKey(s.user, chat)); ok {
			s.ackedIs(p, acked)
		}
	}
	if sequence < p.start {
		p.start = sequence
		if sequence < p.next {
			s.rewind(p, sequence)
		}
	}
	p.woken = max(p.woken, sequence)
	s.queue(p)
	return p
}

// ackedIs takes in that the user's watermark is at least acked, read or given by whoever woke the chat.
func (s *Session) ackedIs(p *position, acked tidemark.Sequence) {
	p.acked = max(p.acked, acked)
	if p.sure {
		return
	}
	p.sure = true
	if first := tidemark.First(acked); first < p.start {
		p.start = first
		if first < p.next {
			s.rewind(p, first)
		}
	}
}

// rewind goes back to a sequence.
func (s *Session) rewind(p *position, to tidemark.Sequence) {
	p.woken = max(p.woken, p.next-1)
	p.next = to
	p.rewinds++
	s.server.count.rewinds.Add(1)
	s.queue(p)
}

// queue puts the position into the wake set if it has something to send.
func (s *Session) queue(p *position) {
	if !p.queued && p.unserved() {
		p.queued = true
		s.wakes = append(s.wakes, p)
	}
}

// served moves on after a page: the position leaves the wake set, or goes to its end so that the other chats get their turn.
func (s *Session) served(p *position) {
	if i := slices.Index(s.wakes, p); i >= 0 {
		s.wakes = slices.Delete(s.wakes, i, i+1)
	}
	p.queued = false
	s.queue(p)
	if p.backlog && !p.toEnd && p.next > p.backlogTo {
		p.backlog = false
		s.backlog--
	}
	if len(s.wakes) == 0 && cap(s.wakes) > 64 {
		s.wakes = nil
	}
}

// drop takes a chat out of the session: its user is not a member any more.
func (s *Session) drop(chat tidemark.ChatID) {
	if p := s.chats[chat]; p != nil {
		p.woken, p.toEnd = 0, false
		p.rewinds++
		p.next = max(p.next, 1)
		p.backlogTo = 0
		s.served(p)
		delete(s.chats, chat)
	}
	s.statusOrder = slices.DeleteFunc(s.statusOrder, func(k statusKey) bool {
		if k.chat == chat {
			delete(s.statuses, k)
			return true
		}
		return false
	})
	s.snapshots = slices.DeleteFunc(s.snapshots, func(id tidemark.ChatID) bool { return id == chat })
	s.typing = slices.DeleteFunc(s.typing, func(t tidemark.Typing) bool { return t.ChatID == chat })
	delete(s.least, chat)
}

// forget removes positions that hold nothing which could not be had again, and reports whether there is room now.
func (s *Session) forget() bool {
	for chat, p := range s.chats {
		if !p.queued && !p.row && !p.graced && !p.backlog && p.acked+1 >= p.next {
			delete(s.chats, chat)
		}
	}
	return len(s.chats) < maxPositions
}

// wake takes a hand-over. It reports whether the session took it: if not, the caller marks. A session whose map is full takes it by looking
// again, and leaves no proof until it has.
func (s *Session) wake(chat tidemark.ChatID, sequence tidemark.Sequence, marked bool) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	p := s.touch(chat, sequence)
	grace := false
	if p != nil {
		p.row = p.row || marked
		grace = s.wantsGrace(p)
		p.graced = p.graced || grace
	}
	s.notify()
	s.mu.Unlock()
	if grace {
		s.server.grace.add(s, p, sequence)
	}
	return true
}

// wantsGrace reports whether the position needs an entry in the grace queue: something is unacknowledged, and no row is known to stand for it.
func (s *Session) wantsGrace(p *position) bool {
	return !p.graced && !p.row && p.woken > p.acked
}

// status takes in boundaries that moved.
func (s *Session) status(updates []tidemark.StatusUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, u := range updates {
		key := statusKey{u.ChatID, u.UserID}
		b, waiting := s.statuses[key]
		if !waiting {
			if len(s.statuses) >= maxStatuses {
				s.snapshot(u.ChatID)
				continue
			}
			if s.statuses == nil {
				s.statuses = make(map[statusKey]tidemark.Boundary)
			}
			s.statusOrder = append(s.statusOrder, key)
		}
		s.statuses[key] = b.Merge(u.Boundary)
	}
	s.notify()
}

// snapshot orders the statuses of a chat to be read and sent.
func (s *Session) snapshot(chat tidemark.ChatID) {
	if len(s.snapshots) < maxSnapshots && !slices.Contains(s.snapshots, chat) {
		s.snapshots = append(s.snapshots, chat)
	}
}

// control orders an event that is not derived from state. Beyond maxControls the client is told to look at everything again.
func (s *Session) control(kind tidemark.EventType, payload []byte) {
	if len(s.controls) >= maxControls {
		s.controls = s.controls[:0]
		kind, payload = tidemark.EventReset, tidemark.Reset{Reason: tidemark.ResetOverflow}.AppendJSON(nil)
		s.server.count.resets.Add(1)
	}
	s.controls = append(s.controls, tidemark.Event{Type: kind, Payload: payload})
	s.notify()
}

// membership takes in that members came or went.
func (s *Session) membership(c tidemark.MembershipChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if c.Change == tidemark.Removed && c.UserID == s.user {
		s.drop(c.ChatID)
	}
	s.control(tidemark.EventMembership, c.AppendJSON(nil))
}

// acknowledged takes in that the user's watermark is at least acked.
func (s *Session) acknowledged(chat tidemark.ChatID, acked tidemark.Sequence) (row bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.chats[chat]
	if p == nil {
		return false
	}
	p.acked = max(p.acked, acked)
	return p.row
}

// cleared takes in that no row stands at or below the watermark any more.
func (s *Session) cleared(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.chats[chat]; p != nil && !p.unacknowledged() {
		p.row = false
	}
}
