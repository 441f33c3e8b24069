package session

import (
	"cmp"
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Session is one device's place in the stream. It outlives its connections. It is eight values,
// each with named states in a file of its own; this file is what the rest of the core tells it.
//
// All methods are safe for concurrent use. None does I/O; Reader.Next does.
type Session struct {
	host *Host
	// Lease is what the registry holds for the session. It names the session, its user and device.
	Lease registry.Lease

	// mu guards everything below. It is not held across I/O.
	mu         sync.Mutex
	residence  residence
	lease      lease
	reconcile  reconcile
	chats      chats
	log        eventLog
	catchUp    catchUp
	attachment attachment
	statuses   statuses
}

// New returns a session without a reader. The lease names its id, user and device; the registry has
// still to be asked for it (LeaseAnswered). With snapshot the client is sent the statuses of its
// recent chats after `caught_up`.
func (h *Host) New(lease registry.Lease, snapshot bool) *Session {
	return &Session{
		host: h, Lease: lease,
		reconcile: reconcile{queued: allChats, certain: h.Now()},
		statuses:  statuses{snapshot: snapshot},
	}
}

// ID returns the session's id.
func (s *Session) ID() tidemark.SessionID { return s.Lease.Session }

// User returns the session's user.
func (s *Session) User() tidemark.UserID { return s.Lease.User }

// Notification says that a chat has a message for a session.
type Notification struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
	// Marked says that a pending row may stand, which names the first of several messages.
	Marked bool
}

// Notify takes a notification. It reports whether the session took it: if not, the caller marks
// (R_NOBODY). A session that knows too many chats takes it by reconciling again, and leaves no proof
// until it has.
func (s *Session) Notify(n Notification) (taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.residence.serves():
		s.notify(n)
		s.attachment.flag.Set()
		return true
	case s.residence.arrives():
		return s.residence.arrival.collect(n, s.host.MaxChats)
	}
	//rule:R_NOBODY.refuse-wake-when-closed
	return false
}

func (s *Session) notify(n Notification) {
	p := s.raiseHead(n.Chat, n.Sequence)
	switch {
	case p == nil:
	case n.Marked:
		// A row names its first message only. The session may have missed the last one.
		//rule:pending_or_delivered.marked-wake-reaches-to-the-end
		p.mayBePending, p.openEnded = true, true
		s.chats.queue(p)
	case p.grace == graceOff && p.behind():
		p.grace = graceOn
		//rule:pending_or_delivered.start-grace
		s.host.Grace.push(Deadline{session: s, progress: p, sequence: n.Sequence})
	}
}

// MembersChanged takes in that members came or went. What waits of a chat that the user left is
// dropped.
func (s *Session) MembersChanged(changes []tidemark.MembershipChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.final() {
		return
	}
	for _, c := range changes {
		about := c.ChatID
		if c.Change == tidemark.Removed && c.UserID == s.User() {
			//rule:nothing_outside_membership.drop-removed-chat
			s.leave(c.ChatID)
			about = ""
		}
		s.control(control{kind: tidemark.EventMembership, payload: c.AppendJSON(nil), chat: about})
	}
}

// Typing takes a notice. It is dropped if no connection reads, or if enough of them wait.
func (s *Session) Typing(t tidemark.Typing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.attachment.state != attached || s.residence.final():
	case slices.Contains(s.log.typing, t):
	case len(s.log.typing) >= maxTyping:
		s.host.Count.TypingDropped.Add(1)
	default:
		s.log.typing = append(s.log.typing, t)
		s.attachment.flag.Set()
	}
}

// Acknowledged takes in that the user's watermark is at least acked. It reports whether a pending
// row may stand.
func (s *Session) Acknowledged(chat tidemark.ChatID, acked tidemark.Sequence) (mayBePending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.chats.get(chat)
	if p == nil {
		return false
	}
	p.acked = max(p.acked, acked)
	s.madeRoom()
	//rule:R_CLEAR.report-row-to-clear
	return p.mayBePending
}

// Cleared takes in that no pending row stands at or below the user's watermark.
func (s *Session) Cleared(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_CLEAR.keep-row-of-unacknowledged
	if p := s.chats.get(chat); p != nil && !p.unacknowledged() {
		p.mayBePending = false
		s.madeRoom()
	}
}

// Raised takes in boundaries that moved. At most one boundary of a member waits. may is asked under
// the session's lock whether the user may still know: who removes a member says so before the
// session is told.
func (s *Session) Raised(updates []tidemark.StatusUpdate, may func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.final() || !may() {
		return
	}
	for _, u := range updates {
		if u.UserID != "" {
			// The update may be older than a snapshot that was read and sent meanwhile.
			//rule:tick_monotone.merge-known-into-snapshot
			u.Boundary = u.Boundary.Merge(s.host.Watermarks.Exposed(u.UserID, u.ChatID))
		}
		s.statuses.raise(statusKey{u.ChatID, u.UserID}, u.Boundary)
	}
	s.attachment.flag.Set()
}

// RefreshStatuses orders the statuses of a chat to be read and sent, if the user is a member then.
func (s *Session) RefreshStatuses(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.final() {
		s.statuses.refreshChat(chat)
		s.attachment.flag.Set()
	}
}

// LeaseLost says that the registry has no lease of the session any more, and is asked again.
func (s *Session) LeaseLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease.ask()
}

// LeaseAnswered takes the registry's answer, and orders the reconciliation that it asks for. It
// reports whether the session has ended meanwhile: then the caller releases the lease.
func (s *Session) LeaseAnswered(a LeaseAnswer) (orphaned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_EPOCH.compare-after-lost-lease
	first := s.lease.answer(a.Granted)
	switch {
	case s.residence.final():
		return true
	case s.residence.arrives(): // Land orders it
	case !first:
		s.reconcile.begin(readKnown, a.Epoch, s.host.Now())
	//rule:R_PROOF.rows-with-lease-and-proof-only
	case a.Granted && a.Proven:
		s.reconcile.begin(readRows, a.Epoch, s.host.Now())
	default:
		s.reconcile.begin(readAll, a.Epoch, s.host.Now())
	}
	s.attachment.flag.Set()
	return false
}

// LeaseSettled reports whether the lease can be refreshed: an answer is known, and the session is
// served here.
func (s *Session) LeaseSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.residence.serves() && s.lease.settled()
}

// LeaseUnconfirmed reports whether the registry did not answer the last request for the lease.
func (s *Session) LeaseUnconfirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_NOBODY.retake-unconfirmed-lease
	return s.lease == unconfirmed
}

// Proof returns what the session leaves when it ends: the epoch, if its lease is held and it knows
// everything that waits for it (R_PROOF, R_COMPLETE), else nil. release says that the lease has to
// be released by whoever ends the session.
func (s *Session) Proof() (proof *registry.Epoch, release bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_COMPLETE.proof-after-complete-look
	if s.lease == held && s.reconcile.complete() {
		epoch := s.reconcile.epoch
		proof = &epoch
	}
	//rule:R_ADDR.release-possible-lease
	return proof, s.lease != acquiring
}

// Reconcile orders a reconciliation if the registry's epoch is not the one that the session knows
// (R_EPOCH). With force it orders one in any case; one that is under way goes to its end first.
func (s *Session) Reconcile(epoch registry.Epoch, force bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_EPOCH.compare-on-new-epoch
	changed := s.reconcile.epoch != epoch
	switch {
	case s.residence.final():
		return
	case s.residence.arrives(): // Land begins it
		s.reconcile.epoch = epoch
		return
	case changed || force && s.reconcile.complete():
		if changed && s.statuses.snapshot { // boundaries may have been missed as well
			s.statuses.listRecent = true
		}
		//rule:R_EPOCH.look-for-missed-messages
		s.reconcile.begin(readKnown, epoch, s.host.Now())
	case force:
		s.reconcile.queue(knownChats)
	default:
		return
	}
	s.attachment.flag.Set()
}

// Drain lets the session's reader go, because the node is stopping.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.residence.drain()
	s.attachment.flag.Set()
}

// Ended reports whether the session is over on this node.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.residence.final()
}

// Ending is a request to end a session.
type Ending struct {
	*Session
	reason Reason
	// left, if it is not 0, is the generation of the connection that left: the session goes on if
	// another one came since.
	left uint32
}

// Ending asks for the end of the session, whoever reads it.
func (s *Session) Ending(reason Reason) Ending { return Ending{Session: s, reason: reason} }

// Endings asks for the end of several sessions.
func Endings(sessions []*Session, reason Reason) []Ending {
	endings := make([]Ending, len(sessions))
	for i, s := range sessions {
		endings[i] = s.Ending(reason)
	}
	return endings
}

// Left is what a session leaves to be done that has ended.
type Left struct {
	// Rows are to be marked: everything that is not acknowledged, sent or not (R_WAKESET).
	Rows []tidemark.PendingDelivery
	// Marked are the lowest notifications of rows that an arriving session took. The session may be
	// live on another node, and has to be told (R_FOLLOW).
	Marked []Notification
	// Unlanded says that the session was arriving.
	Unlanded bool
}

// End detaches the session for good: nothing reaches it any more (R_ORDER). It reports false if the
// session had ended before, or goes on because another connection came.
func (e Ending) End() (left Left, ended bool) {
	s := e.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:resume_lossless.keep-attached-session
	if s.residence.final() || e.left != 0 && !s.attachment.abandoned(e.left) {
		return left, false
	}
	for _, p := range s.chats.byID {
		// An open-ended chat that is acknowledged has a row already, if there is more.
		//rule:R_WAKESET.mark-unacknowledged
		if p.behind() {
			left.Rows = append(left.Rows, p.pending(s.User()))
		}
	}
	if left.Unlanded = s.residence.arrives(); left.Unlanded {
		s.host.Count.Unlanded.Add(1)
	}
	for chat, k := range s.residence.end(e.reason) {
		//rule:R_WAKESET.mark-early-wakes
		if k.unmarkedFrom != 0 {
			left.Rows = append(left.Rows, tidemark.PendingDelivery{
				UserID: s.User(), ChatID: chat, FirstUndelivered: k.unmarkedFrom,
			})
		}
		//rule:R_FOLLOW.follow-what-an-arrival-took
		if k.marked {
			left.Marked = append(left.Marked, Notification{
				Chat:     chat,
				Sequence: k.low,
				Marked:   true,
			})
		}
	}
	s.chats, s.statuses = chats{}, statuses{}
	s.attachment.flag.Set()
	return left, true
}

// control lets an event wait to be sent.
func (s *Session) control(c control) {
	if !s.log.push(c) {
		s.host.Count.Resets.Add(1)
	}
	s.attachment.flag.Set()
}

// reset tells the client that a position is unknown.
func (s *Session) reset(r tidemark.Reset) {
	s.host.Count.Resets.Add(1)
	s.control(resetControl(r))
}

// leave takes a chat out of the session: its user is not a member any more. They may have come back
// since. What was published for them then is dropped too, so that the session reconciles.
func (s *Session) leave(chat tidemark.ChatID) {
	s.madeRoom()
	if p := s.chats.get(chat); p != nil {
		if p.behind() {
			//rule:pending_or_delivered.compare-after-drop
			s.reconcile.queue(allChats)
		}
		p.leave()
		s.requeue(p)
	}
	s.statuses.leave(chat)
	s.log.leave(chat)
}

// chat returns the session's progress in a chat. One that it does not know begins at start. It
// returns nil if there is no room: the session reconciles when there is.
func (s *Session) chat(id tidemark.ChatID, start tidemark.Sequence) *progress {
	if p := s.chats.get(id); p != nil {
		return p
	}
	p := s.chats.add(id, start, uint32(s.host.Now().Unix()), s.host.MaxChats)
	if p == nil {
		s.host.Count.Overflows.Add(1)
		//rule:R_COMPLETE.incomplete-when-full
		s.reconcile.queue(allChats)
		return nil
	}
	if acked, known := s.host.Watermarks.Acked(s.key(id)); known {
		s.learnAcked(p, acked)
	}
	return p
}

// raiseHead takes in that a chat has a message at sequence. It returns nil if there is no room.
func (s *Session) raiseHead(id tidemark.ChatID, sequence tidemark.Sequence) *progress {
	p := s.reach(id, sequence)
	if p != nil {
		p.head = max(p.head, sequence)
		s.chats.queue(p)
	}
	return p
}

// reach lets the session begin a chat no higher than at sequence (R_MIN). It returns nil if there is
// no room.
func (s *Session) reach(id tidemark.ChatID, sequence tidemark.Sequence) *progress {
	p := s.chat(id, sequence)
	//rule:R_MIN.lower-start
	if p != nil && p.reach(sequence) {
		s.rewind(p, sequence)
	}
	return p
}

// learnAcked takes in that the user's watermark in a chat is at least acked.
func (s *Session) learnAcked(p *progress, acked tidemark.Sequence) {
	if p.learnAcked(acked) {
		s.rewind(p, p.start)
	}
}

// rewind goes back to a sequence of a chat.
func (s *Session) rewind(p *progress, to tidemark.Sequence) {
	p.rewind(to)
	s.host.Count.Rewinds.Add(1)
	s.chats.queue(p)
}

// requeue moves on after a page of a chat.
func (s *Session) requeue(p *progress) {
	s.chats.requeue(p)
	s.catchUp.served(p)
}

// expectReady makes `caught_up` wait for everything that is ready now.
func (s *Session) expectReady() {
	for _, p := range s.chats.ready {
		s.catchUp.expect(p)
	}
}

// madeRoom lets a full session try again: it may forget a chat now.
func (s *Session) madeRoom() {
	if s.chats.full {
		s.chats.full = false
		s.attachment.flag.Set()
	}
}

func compareChats(a, b tidemark.ChatID) int { return cmp.Compare(a, b) }
