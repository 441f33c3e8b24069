package session

import (
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Bounds of one session. What exceeds them is looked for in storage again, never queued.
const (
	maxControls   = 256   // membership and reset events that wait
	maxStatuses   = 4_096 // boundaries that wait
	maxSnapshots  = 1_024 // chats whose statuses wait to be read
	maxLeast      = 1_024 // large chats whose aggregates are remembered
	maxTyping     = 32    // typing notices that wait
	lookAhead     = 256   // length of the wake set above which the next page of a look waits
	snapshotChats = 50    // chats of a snapshot: the most recently active ones, and so many at a time
)

// Session outlives its connections. It knows which chats have something new (the wake set) and up to where.
//
// All fields below mu are guarded by it.
type Session struct {
	node *Node
	ID   tidemark.SessionID
	User tidemark.UserID
	// Lease is what the registry holds for the session.
	Lease registry.Lease

	mu sync.Mutex
	// generation counts connections; only the newest may read. signal is the newest connection's.
	generation uint32
	attached   bool
	closed     bool
	// gone says that the session is closed because it went on on another node; superseded, that it is because its device has a newer one.
	gone, superseded bool
	// arriving is what was handed over to a session that is on its way to this node; nil for one that is here.
	arriving map[tidemark.ChatID]arrival
	// landed is closed when it is here, or has ended; nil for one that was here from the beginning.
	landed chan struct{}
	signal chan struct{}

	// lastID is the number of the last event. It never goes back.
	lastID uint64
	log    runLog

	// chats holds a position for every chat that was ever woken, unless it was forgotten because there was nothing to remember.
	chats map[tidemark.ChatID]*position
	// wakes is the wake set in the order in which its chats are served.
	wakes []*position

	look look
	// certain is when the session last knew what there was for it: when it opened, or when its last look began that was finished.
	certain time.Time
	// full says that the map is full of positions that cannot be forgotten; acknowledgements make room.
	full bool
	// epoch is what the registry's epoch was before the lease was taken, or when the last look was ordered.
	epoch registry.Epoch
	// complete says that the look that the epoch belongs to has finished (R_COMPLETE).
	complete bool
	// leased says that the registry has given the lease. Without it, it may have, and not have been heard.
	leased bool
	// registered says that the registry was asked for the lease, and has answered or failed: until then nobody knows what a refresh would say of it.
	registered bool

	// opening is the `open` event that waits to be sent.
	opening  *tidemark.Open
	controls []control
	// caughtUp says that caught_up was sent. backlog counts the positions that have to be served before it is.
	caughtUp bool
	backlog  int
	// lost says that the client's position was unknown, and its cursors have not come yet: nobody knows what it has, and caught_up would not be true.
	lost bool

	// wantStatuses asks for a snapshot after caught_up; recent says that its chats have still to be listed.
	wantStatuses bool
	recent       bool
	statuses     map[statusKey]waiting
	statusOrder  []statusKey
	// heard are the members whose statuses were read since the session came here, by chat; unheard are waiting statuses of others, which are read before anything is sent.
	heard     map[tidemark.ChatID]*feed.People
	unheard   []statusKey
	least     map[tidemark.ChatID]tidemark.Boundary
	snapshots []tidemark.ChatID
	typing    []tidemark.Typing
	// drops counts the chats that the user left, so that what was read before is not sent after.
	drops uint32
}

// control is an event that is not derived from state. chat is set if it may be sent to members of the chat only.
type control struct {
	kind    tidemark.EventType
	payload []byte
	chat    tidemark.ChatID
}

// New returns a session without a connection. The lease names its id, user and device.
func (n *Node) New(lease registry.Lease, wantStatuses bool) *Session {
	return &Session{node: n, ID: lease.Session, User: lease.User, Lease: lease, wantStatuses: wantStatuses, certain: n.Now()}
}

// Wake takes a hand-over: the chat has something at sequence. marked says that a pending row may stand. It reports whether the session took it: if not, the
// caller marks. A session whose map is full takes it by looking again, and leaves no proof until it has.
func (s *Session) Wake(chat tidemark.ChatID, sequence tidemark.Sequence, marked bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_NOBODY.refuse-wake-when-closed
	if s.closed {
		return false
	}
	if s.arriving != nil {
		return s.arrive(chat, sequence, marked)
	}
	s.wake(chat, sequence, marked)
	notify(s.signal)
	return true
}

func (s *Session) wake(chat tidemark.ChatID, sequence tidemark.Sequence, marked bool) {
	if p := s.touch(chat, sequence); p != nil {
		if marked {
			// A row names its first message only, and stands for all that follow, of which the session may have missed the last.
			//rule:pending_or_delivered.marked-wake-reaches-to-the-end
			p.row, p.toEnd = true, true
			s.queue(p)
		}
		if !marked && !p.graced && p.woken > p.acked {
			p.graced, p.carried = true, false
			//rule:pending_or_delivered.start-grace
			s.node.Grace.push(Deadline{session: s, position: p, sequence: sequence})
		}
	}
}

// Membership takes in that members came or went. Whatever waits of a chat that the user left is dropped.
func (s *Session) Membership(changes []tidemark.MembershipChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, c := range changes {
		about := c.ChatID
		if c.Change == tidemark.Removed && c.UserID == s.User {
			//rule:nothing_outside_membership.drop-removed-chat
			s.drop(c.ChatID)
			about = ""
		}
		s.control(control{kind: tidemark.EventMembership, payload: c.AppendJSON(nil), chat: about})
	}
}

// Typing takes a notice, or drops it if enough of them wait.
func (s *Session) Typing(t tidemark.Typing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.attached || s.closed || slices.Contains(s.typing, t):
	case len(s.typing) >= maxTyping:
		s.node.Count.TypingDropped.Add(1)
	default:
		s.typing = append(s.typing, t)
		notify(s.signal)
	}
}

// Acknowledged takes in that the user's watermark is at least acked, and reports whether a pending row may stand.
func (s *Session) Acknowledged(chat tidemark.ChatID, acked tidemark.Sequence) (row bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.chats[chat]
	if p == nil {
		return false
	}
	p.acked = max(p.acked, acked)
	s.room()
	//rule:R_CLEAR.report-row-to-clear
	return p.row
}

// Cleared takes in that no row stands at or below the watermark any more.
func (s *Session) Cleared(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_CLEAR.keep-row-of-unacknowledged
	if p := s.chats[chat]; p != nil && !p.unacknowledged() {
		p.row = false
		s.room()
	}
}

// reset tells the client that a position is unknown.
func (s *Session) reset(r tidemark.Reset) {
	s.node.Count.Resets.Add(1)
	s.control(control{kind: tidemark.EventReset, payload: r.AppendJSON(nil)})
}

// control orders an event to be sent. Beyond maxControls the client is told to look at everything again.
func (s *Session) control(c control) {
	if len(s.controls) >= maxControls {
		s.node.Count.Resets.Add(1)
		s.controls = s.controls[:0]
		c = control{kind: tidemark.EventReset, payload: tidemark.Reset{Reason: tidemark.ResetOverflow}.AppendJSON(nil)}
	}
	s.controls = append(s.controls, c)
	notify(s.signal)
}

// Snapshot orders the statuses of a chat to be read and sent, if the user is a member then.
func (s *Session) Snapshot(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.snapshot(chat)
		notify(s.signal)
	}
}

// snapshot orders the statuses of a chat to be read and sent.
func (s *Session) snapshot(chat tidemark.ChatID) {
	if len(s.snapshots) < maxSnapshots && !slices.Contains(s.snapshots, chat) {
		s.snapshots = append(s.snapshots, chat)
	}
}

// drop takes a chat out of the session: its user is not a member any more. He may have come back since: what woke the session then is taken out too, so that it
// has to compare, and leaves no proof until it has.
func (s *Session) drop(chat tidemark.ChatID) {
	//rule:nothing_outside_membership.void-snapshots-under-way
	s.drops++
	s.room()
	if p := s.chats[chat]; p != nil {
		if p.woken > p.acked {
			//rule:pending_or_delivered.compare-after-drop
			s.look.again, s.complete = true, false
		}
		p.woken, p.toEnd, p.backlogTo = 0, false, 0
		// It stays in the map: if he comes back, another device may have acknowledged what this one has not got.
		p.next = max(min(p.next, tidemark.First(p.acked)), 1)
		p.start = min(p.start, p.next)
		p.rewinds++
		s.served(p)
	}
	s.statusOrder = slices.DeleteFunc(s.statusOrder, func(k statusKey) bool {
		if k.chat == chat {
			//rule:nothing_outside_membership.drop-statuses
			delete(s.statuses, k)
			return true
		}
		return false
	})
	//rule:nothing_outside_membership.drop-waiting-events
	s.controls = slices.DeleteFunc(s.controls, func(c control) bool { return c.chat == chat })
	//rule:nothing_outside_membership.drop-remembered-events
	s.log.forgetControls(chat)
	s.snapshots = slices.DeleteFunc(s.snapshots, func(id tidemark.ChatID) bool { return id == chat })
	//rule:nothing_outside_membership.drop-typing
	s.typing = slices.DeleteFunc(s.typing, func(t tidemark.Typing) bool { return t.ChatID == chat })
	delete(s.least, chat)
	s.unheard = slices.DeleteFunc(s.unheard, func(k statusKey) bool { return k.chat == chat })
	delete(s.heard, chat)
}

// Ending is a session that is to be ended, if no connection came since.
type Ending struct {
	*Session
	generation uint32
	// force ends it whoever is connected.
	force, superseded bool
}

// Ending says that the session is to be ended, whoever is connected.
func (s *Session) Ending() Ending { return Ending{Session: s, force: true} }

// Superseded says that the session is to be ended, because its device has a newer one.
func (s *Session) Superseded() Ending { return Ending{Session: s, force: true, superseded: true} }

// Endings says so of many: (*Session).Ending or (*Session).Superseded.
func Endings(sessions []*Session, why func(*Session) Ending) []Ending {
	endings := make([]Ending, len(sessions))
	for i, s := range sessions {
		endings[i] = why(s)
	}
	return endings
}

// End detaches the session for good (R_ORDER): nothing reaches it any more. It returns the rows that have to be marked, for what was sent or only woken and
// is not acknowledged (R_WAKESET), and false if it had ended before, or goes on because a connection came.
func (e Ending) End() (rows []tidemark.PendingDelivery, first bool) {
	s := e.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:resume_lossless.keep-attached-session
	if s.closed || !e.force && (s.attached || s.generation != e.generation) {
		return nil, false
	}
	s.closed, s.superseded = true, e.superseded
	for _, p := range s.chats {
		// A chat that is only to be read to its end has a row already, if there is more.
		//rule:R_WAKESET.mark-unacknowledged
		if p.woken > p.acked {
			rows = append(rows, p.pending(s.User))
		}
	}
	//rule:R_WAKESET.mark-early-wakes
	for chat, a := range s.arriving {
		rows = append(rows, tidemark.PendingDelivery{UserID: s.User, ChatID: chat, FirstUndelivered: a.low})
	}
	if s.arriving != nil {
		close(s.landed)
	}
	s.chats, s.wakes, s.statuses, s.statusOrder, s.snapshots, s.arriving = nil, nil, nil, nil, nil, nil
	s.heard, s.unheard = nil, nil
	notify(s.signal)
	return rows, true
}

// Ended reports whether the session has ended.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Nudge lets the connection look at the session again.
func (s *Session) Nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	notify(s.signal)
}
