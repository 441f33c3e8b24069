package session

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Session is one device's position in the stream. It outlives its connections. It consists of nine
// values, each with named states in a file of its own. This file has the operations that the other
// packages of the core call.
//
// All methods are safe for concurrent use. They do no I/O; only Reader.Next does.
type Session struct {
	host *Host
	// Lease is the session's entry in the registry. It names the session, its user and its device.
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
	looks      looks
	// sought is the id of the last Seek.
	sought string
}

// New returns a live session without a reader. The lease names its id, user and device. The caller
// then asks the registry for the lease and reports the answer to LeaseAnswered. If snapshot is
// true, the client gets the statuses of its recent chats after `caught_up`.
func (h *Host) New(lease registry.Lease, snapshot bool) *Session {
	return &Session{
		host: h, Lease: lease,
		reconcile:  reconcile{queued: allChats, certain: h.Now()},
		attachment: attachment{flag: signal.Flag{}},
		statuses:   statuses{snapshot: snapshot},
	}
}

// ID returns the session's id.
func (s *Session) ID() tidemark.SessionID { return s.Lease.Session }

// User returns the session's user.
func (s *Session) User() tidemark.UserID { return s.Lease.User }

// Notification says that a chat has a message which the session may have to send.
type Notification struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
	// Message is the message, or nil.
	Message *tidemark.Message
	// Marked says that a pending row may exist. The row names only the first of several messages.
	Marked bool
}

// Notify records a notification. It returns false if the session cannot take it; the caller then
// marks the message (R_NOBODY). If the session has no room for another chat, it reconciles again,
// and leaves no proof until it has (R_COMPLETE).
func (s *Session) Notify(n Notification) (taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.residence.serves():
		s.notify(n)
		return true
	case s.residence.arrives():
		return s.residence.arrival.collect(n, s.host.MaxChats)
	}
	//rule:R_NOBODY.refuse-wake-when-closed
	return false
}

func (s *Session) notify(n Notification) {
	var p *progress
	held := false
	//rule:own_confirmation.wait-for-the-send
	if s.attachment.confirmations.awaits(s.User(), n.Message) {
		p = s.holdHead(n.Chat, n.Sequence)
		held = p != nil && !p.queued
	} else {
		p = s.raiseHead(n.Chat, n.Sequence)
	}
	if !held {
		s.attachment.flag.Set()
	}
	switch {
	case p == nil:
	case n.Marked:
		// A row names its first message only, so Sequence may be below the last message.
		//rule:pending_or_delivered.marked-wake-reaches-to-the-end
		p.mayBePending, p.openEnded = true, true
		p.waitsSince(s.host.Now())
		s.chats.queue(p)
	case p.grace == graceOff && p.behind():
		p.grace = graceOn
		//rule:pending_or_delivered.start-grace
		p.waitsSince(s.host.Grace.push(
			Deadline{session: s, progress: p, sequence: n.Sequence}))
	}
}

// MembersChanged queues the events of members who joined or left. If the user left a chat, it drops
// the events of that chat that are not sent yet. If the user joined one, it sends the chat's
// statuses: the user may have been a member before, and changes since then did not reach the
// session. Beyond snapshotMembers the statuses do not come.
func (s *Session) MembersChanged(m *bus.Membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.final() {
		return
	}
	for _, c := range m.Changes {
		c.Version = m.Version
		about, own := c.ChatID, c.UserID == s.User()
		if own && c.Change == tidemark.Removed {
			//rule:nothing_outside_membership.drop-removed-chat
			s.leave(c.ChatID)
			about = ""
		} else if own && c.Change == tidemark.Added &&
			(s.statuses.snapshot || s.chats.get(c.ChatID) != nil) {
			//rule:delivered_is_eventually_consistent.refresh-after-return
			s.statuses.refreshIfAffordable(c.ChatID, m.Members, s.host.Now())
		}
		s.control(control{kind: tidemark.EventMembership, payload: c.AppendJSON(nil), chat: about})
	}
}

// ChatUpdated queues the event of a chat that changed, in place of an older one of this chat.
func (s *Session) ChatUpdated(u tidemark.ChatUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.final() {
		return
	}
	//rule:bounded_use.one-update-of-a-chat
	s.log.controls = slices.DeleteFunc(s.log.controls, func(c control) bool {
		return c.kind == tidemark.EventChatUpdated && c.chat == u.ChatID
	})
	s.control(control{
		kind: tidemark.EventChatUpdated, payload: u.AppendJSON(nil), chat: u.ChatID,
	})
}

// Acknowledged records that the user's watermark is at least acked. It reports whether a pending
// row may exist.
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

// Cleared records that no pending row exists at or below the user's watermark.
func (s *Session) Cleared(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_CLEAR.keep-row-of-unacknowledged
	if p := s.chats.get(chat); p != nil && !p.unacknowledged() {
		p.mayBePending = false
		s.madeRoom()
	}
}

// Raised queues boundaries that rose. At most one boundary of each member is queued. Raised calls
// may under the session's lock, and returns its result. If that is false, nothing is queued: the
// user has left the chat, or the roster is outdated. The caller then calls RefreshStatuses. When a
// member is removed, may returns false before MembersChanged is called.
func (s *Session) Raised(updates []tidemark.StatusUpdate, may func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !may() {
		return false
	}
	if s.residence.final() {
		return true
	}
	for _, u := range updates {
		if u.UserID == s.User() {
			continue // see Written
		}
		if u.UserID != "" {
			// A snapshot with a newer boundary may have been sent since this update was published.
			//rule:tick_monotone.merge-known-into-snapshot
			u.Boundary = u.Boundary.Merge(s.host.Watermarks.Exposed(u.UserID, u.ChatID))
		}
		s.statuses.raise(statusKey{u.ChatID, u.UserID}, u.Boundary)
	}
	s.attachment.flag.Set()
	return true
}

// Written records that the user's watermarks in a chat were written. After the delay of
// Host.Written at most, the client gets the boundary, so that it need not repeat its
// acknowledgement. All chats of that time are sent together, each once. A client that asked for no
// statuses gets nothing.
func (s *Session) Written(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.final() || !s.statuses.snapshot {
		return
	}
	if s.statuses.addWritten(chat) {
		s.host.Written.push(Deadline{session: s})
	}
}

// RefreshStatuses makes the session read and send the statuses of a chat, if the user is a member
// at that time.
func (s *Session) RefreshStatuses(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.final() {
		s.statuses.refreshChat(chat)
		s.attachment.flag.Set()
	}
}

// RefreshOwn makes the session read and send the user's own state in a chat, if the user is a
// member at that time.
func (s *Session) RefreshOwn(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.final() {
		s.statuses.refreshOwn(chat)
		s.attachment.flag.Set()
	}
}

// ReceiptsChanged makes the session read again whether the user hides what they read, and with it
// the statuses of the recent chats.
func (s *Session) ReceiptsChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.final() {
		s.statuses.receiptsChanged()
		s.attachment.flag.Set()
	}
}

// LeaseLost records that the lease is being requested again, because it may be lost.
func (s *Session) LeaseLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease.ask()
}

// LeaseAnswered records the registry's answer, and begins the reconciliation that it requires. It
// returns true if the session has ended in the meantime; the caller then releases the lease.
func (s *Session) LeaseAnswered(a LeaseAnswer) (orphaned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_EPOCH.compare-after-lost-lease
	first := s.lease.answer(a.Granted)
	switch {
	case s.residence.final():
		return true
	case s.residence.arrives(): // Land begins it
	case !first:
		//rule:own_state_reaches_devices.list-after-lost-lease
		s.missed(atOnce)
		s.reconcile.begin(readMissed, a.Epoch, s.host.Now())
	//rule:R_PROOF.rows-with-lease-and-proof-only
	case a.Granted && a.Proven:
		s.reconcile.begin(readRows, a.Epoch, s.host.Now())
	default:
		s.reconcile.begin(readAll, a.Epoch, s.host.Now())
	}
	s.attachment.flag.Set()
	return false
}

// LeaseSettled reports whether the lease can be refreshed: the session is served here, and no
// request for the lease is under way.
func (s *Session) LeaseSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.residence.serves() && s.lease.settled()
}

// LeaseUnconfirmed reports whether the registry did not answer the last request for the lease. The
// registry may have granted it.
func (s *Session) LeaseUnconfirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_NOBODY.retake-unconfirmed-lease
	return s.lease == unconfirmed
}

// Proof returns what an ending session leaves in the registry. proof is the epoch if the lease is
// held and the session knows everything that it has to send (R_PROOF, R_COMPLETE), else nil.
// release reports whether the caller has to release the lease.
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

// Reconcile begins a reconciliation if the session knows another epoch of the registry (R_EPOCH).
// With force it begins one in the same epoch too, after any that is under way. It reports whether
// ListRecent has to be called later, because statuses may have been missed too.
func (s *Session) Reconcile(epoch registry.Epoch, force bool) (listLater bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_EPOCH.compare-on-new-epoch
	changed := s.reconcile.epoch != epoch
	switch {
	case s.residence.final():
		return false
	case s.residence.arrives(): // Land begins it
		s.reconcile.epoch = epoch
		return false
	case changed || force && s.reconcile.complete():
		if changed {
			//rule:own_state_reaches_devices.list-after-epoch
			s.missed(inTurn)
		}
		//rule:R_EPOCH.look-for-missed-messages
		s.reconcile.begin(readMissed, epoch, s.host.Now())
	case force:
		s.reconcile.queue(missedChats)
	default:
		return false
	}
	s.attachment.flag.Set()
	return changed && s.statuses.recent.uses != 0
}

// ListRecent makes the session list its recent chats, if it waits for its turn.
func (s *Session) ListRecent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses.recent.turn = atOnce
	s.attachment.flag.Set()
}

// Drain makes the session's reader return Unavailable, because the node is stopping. The session
// still accepts notifications.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.residence.drain()
	s.attachment.flag.Set()
}

// Ended reports whether the session is over on this node. It may go on at another one.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.residence.final()
}

// Refusal returns nil if the session may be read, else the error for its client.
func (s *Session) Refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.residence.readable()
}

// Ending is a request to end a session. End carries it out.
type Ending struct {
	*Session
	reason Reason
	// left is the generation of the connection that left, or 0. If it is set, the session ends only
	// if no connection has attached since.
	left uint32
	// barred is the error for the client if the reason is Barred.
	barred error
}

// Barring returns a request to end the session, because its user may not use the server any more.
// Its client gets err.
func (s *Session) Barring(err error) Ending {
	return Ending{Session: s, reason: Barred, barred: err}
}

// Vouch records when the credentials of the session's client were issued.
func (s *Session) Vouch(issued time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attachment.issued = issued
}

// Issued returns the time of the last Vouch, or zero if there was none.
func (s *Session) Issued() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attachment.issued
}

// Ending returns a request to end the session, even if a connection reads it.
func (s *Session) Ending(reason Reason) Ending { return Ending{Session: s, reason: reason} }

// Endings returns requests to end several sessions for the same reason.
func Endings(sessions []*Session, reason Reason) []Ending {
	endings := make([]Ending, len(sessions))
	for i, s := range sessions {
		endings[i] = s.Ending(reason)
	}
	return endings
}

// Left is the work that an ended session leaves to its caller.
type Left struct {
	// Rows are to be marked. They cover everything that is not acknowledged, sent or not
	// (R_WAKESET).
	Rows []tidemark.PendingDelivery
	// Marked are notifications of messages that have a row and reached an arriving session. The
	// session may be live on another node, which has to be notified (R_FOLLOW). Each names the
	// lowest sequence of its chat.
	Marked []Notification
	// Unlanded says that the session was still arriving.
	Unlanded bool
}

// End ends the session on this node: from then on it accepts nothing (R_ORDER). It returns false if
// the session had already ended, or if it continues because another connection attached.
func (e Ending) End() (left Left, ended bool) {
	s := e.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:resume_lossless.keep-attached-session
	if s.residence.final() || e.left != 0 && !s.attachment.abandoned(e.left) {
		return left, false
	}
	for _, p := range s.chats.byID {
		// A chat that was opened from a pending row, up to whatever its head is, has that row
		// still. So only messages that the session knows of need one.
		//rule:R_WAKESET.mark-unacknowledged
		if p.behind() {
			left.Rows = append(left.Rows, p.pending(s.User()))
		}
	}
	if left.Unlanded = s.residence.arrives(); left.Unlanded {
		s.host.Count.Unlanded.Add(1)
	}
	s.residence.barred = e.barred
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
	s.chats, s.statuses, s.looks = chats{}, statuses{}, looks{}
	s.attachment.confirmations = confirmations{}
	s.attachment.flag.Set()
	return left, true
}

// control queues an event.
func (s *Session) control(c control) {
	if !s.log.push(c) {
		s.host.Count.Resets.Add(1)
	}
	s.attachment.flag.Set()
}

// reset queues a reset: the client has to give its cursors.
func (s *Session) reset(r tidemark.Reset) {
	s.host.Count.Resets.Add(1)
	s.control(resetControl(r))
}

// leave removes a chat because the user is no longer a member. If messages were unsent, the session
// reconciles: the user may have rejoined, and some of the messages may be from after that.
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
	s.looks.leave(chat)
}

// chat returns the session's progress in a chat. A chat that the session does not know begins at
// start. It returns nil if there is no room; the session then reconciles when there is.
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

// raiseHead records that a chat has a message at sequence. It returns nil if there is no room.
func (s *Session) raiseHead(id tidemark.ChatID, sequence tidemark.Sequence) *progress {
	p := s.reach(id, sequence)
	if p != nil {
		p.raise(sequence)
		s.chats.queue(p)
	}
	return p
}

// holdHead is raiseHead, but holds the message until its confirmation.
func (s *Session) holdHead(id tidemark.ChatID, sequence tidemark.Sequence) *progress {
	p := s.reach(id, sequence)
	if p != nil {
		p.hold(sequence)
		s.chats.queue(p)
	}
	return p
}

// reach lowers the chat's start to sequence, if it is higher (R_MIN). It returns nil if there is no
// room.
func (s *Session) reach(id tidemark.ChatID, sequence tidemark.Sequence) *progress {
	p := s.chat(id, sequence)
	//rule:R_MIN.lower-start
	if p != nil && p.reach(sequence) {
		s.rewind(p, sequence)
	}
	return p
}

// learnAcked records that the user's watermark in a chat is at least acked.
func (s *Session) learnAcked(p *progress, acked tidemark.Sequence) {
	if p.learnAcked(acked) {
		s.rewind(p, p.start)
	}
}

// rewind moves the session's position in a chat back.
func (s *Session) rewind(p *progress, to tidemark.Sequence) {
	p.rewind(to)
	s.host.Count.Rewinds.Add(1)
	s.chats.queue(p)
}

// requeue updates the ready list and the backlog after a page of a chat was sent.
func (s *Session) requeue(p *progress) {
	s.chats.requeue(p)
	s.catchUp.served(p)
}

// expectReady makes `caught_up` wait for every chat that is ready now.
func (s *Session) expectReady() {
	for _, p := range s.chats.ready {
		s.catchUp.expect(p)
	}
}

// madeRoom makes a full session continue: it may be able to forget a chat now.
func (s *Session) madeRoom() {
	if s.chats.full {
		s.chats.full = false
		s.attachment.flag.Set()
	}
}

func compareChats(a, b tidemark.ChatID) int { return cmp.Compare(a, b) }
