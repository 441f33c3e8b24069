package server

import (
	"context"
	"time"

	"github.com/gofrs/uuid/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/debts"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// SendRequest is a message to be sent.
type SendRequest struct {
	// Draft is the message; its SenderID, MessageID and CreatedAt are set by Send, its ContentType if it is empty.
	Draft tidemark.Draft
	// Seen is the highest sequence that the sender had been shown (`seen_sequence`), 0 if he states none.
	Seen tidemark.Sequence
}

// Sent is what became of a send.
type Sent struct {
	Message tidemark.Message
	// Duplicate says that the message had been stored by an earlier send with the same key.
	Duplicate bool
}

// How an append whose outcome is unknown is resolved before the caller is told so.
const (
	appendAttempts = 4
	appendPause    = 50 * time.Millisecond
)

// SendResult is what became of one of several sends.
type SendResult struct {
	Sent
	Err error
}

// Send stores a message and hands it over: to the sessions of those who are online, as a pending row for those who are not. When it returns
// nil, the message is durable and has been handed over (delivery.md §4, Send). When it returns Unavailable the outcome may be unknown; the same
// send again resolves it and yields one message.
//
// Errors: those of Draft.Check, NotFound, NotMember, InvalidSequence (Seen is above the head), Conflict (other content under the same client message
// id), Unavailable.
func (s *Server) Send(ctx context.Context, user tidemark.UserID, r SendRequest) (Sent, error) {
	results := s.SendAll(ctx, user, []SendRequest{r})
	return results[0].Sent, results[0].Err
}

// SendAll is Send for several messages of one user: those to one chat are stored one behind the other, in their order, in one step. Each fails alone.
func (s *Server) SendAll(ctx context.Context, user tidemark.UserID, requests []SendRequest) []SendResult {
	results := make([]SendResult, len(requests))
	if err := s.begin(); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer s.inflight.Done()
	drafts := make([]tidemark.Draft, 0, len(requests))
	at := make([]int, 0, len(requests))
	for i, r := range requests {
		d, err := s.draft(ctx, user, r)
		if err != nil {
			results[i].Err = err
			continue
		}
		drafts, at = append(drafts, d), append(at, i)
	}
	// From here on it goes to its end, even if the caller goes away: a stored message that nobody is told of would be lost.
	ctx, cancel := after(ctx)
	defer cancel()
	appended, err := s.append(ctx, drafts)
	stored := make([]outgoing, 0, len(drafts))
	for j, i := range at {
		if err != nil {
			results[i].Err = err
			//rule:pending_or_delivered.retry-unknown-send
			s.debts.Send(debts.Send{Draft: drafts[j], Seen: requests[i].Seen})
			continue
		}
		if results[i].Err = appended[j].Err; appended[j].Err == nil {
			stored = append(stored, outgoing{drafts[j], requests[i].Seen, appended[j], i})
		}
	}
	for j, result := range s.finish(ctx, stored) {
		results[stored[j].at] = result
	}
	return results
}

// draft completes and checks what is to be sent.
func (s *Server) draft(ctx context.Context, user tidemark.UserID, r SendRequest) (tidemark.Draft, error) {
	d := r.Draft
	d.SenderID = user
	if d.ContentType == "" {
		d.ContentType = tidemark.DefaultContentType
	}
	if err := d.Check(); err != nil {
		return d, err
	}
	if err := s.checkSeen(ctx, user, r); err != nil {
		return d, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return d, tidemark.Wrap(tidemark.Internal, err, "no message id could be made")
	}
	d.MessageID = tidemark.MessageID(id.String())
	d.CreatedAt = s.now()
	return d, nil
}

// checkSeen returns InvalidSequence if the sender states that he was shown what does not exist.
func (s *Server) checkSeen(ctx context.Context, user tidemark.UserID, r SendRequest) error {
	if r.Seen == 0 {
		return nil
	}
	heads, err := s.storage.Heads(ctx, []tidemark.ChatID{r.Draft.ChatID})
	//rule:watermark_bounded_by_counter.check-seen
	if err != nil || r.Seen <= heads[0] {
		return err
	}
	if _, _, err := s.feed.Member(ctx, user, r.Draft.ChatID); err != nil {
		return err // only a member learns where the chat ends
	}
	return tidemark.Errorf(tidemark.InvalidSequence, "seen_sequence is %d, but the chat ends at %d", r.Seen, heads[0])
}

// afterTimeout bounds what is done for a write, from its beginning on, whatever its caller does.
const afterTimeout = 10 * time.Second

// after returns the context of a write and of everything that follows from it. A caller who goes away does not end it.
func after(ctx context.Context) (context.Context, context.CancelFunc) {
	//rule:request_id_reaches_storage.keep-request-behind-timeout
	return context.WithTimeout(context.WithoutCancel(ctx), afterTimeout)
}

// append stores drafts. An outcome that is unknown is resolved by the idempotency keys.
func (s *Server) append(ctx context.Context, drafts []tidemark.Draft) (appended []storage.Appended, err error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	for attempt := 1; ; attempt++ {
		appended, err = s.storage.Append(ctx, drafts)
		//rule:send_idempotent.retry-same-key
		if tidemark.CodeOf(err) != tidemark.Unavailable || attempt == appendAttempts {
			return appended, err
		}
		s.count.storageErrors.Add(1)
		if !flow.Pause(ctx, appendPause<<attempt) {
			return appended, err
		}
	}
}

// outgoing is a draft that is stored.
type outgoing struct {
	draft    tidemark.Draft
	seen     tidemark.Sequence
	appended storage.Appended
	at       int // in what was asked for
}

// finish hands stored messages over, in their order, and confirms them. Each fails alone.
func (s *Server) finish(ctx context.Context, stored []outgoing) []SendResult {
	all := make([]handOver, 0, len(stored))
	for _, o := range stored {
		all = append(all, s.begun(o))
	}
	for rest := all; len(rest) > 0; {
		rest = rest[s.handOver(ctx, rest):]
	}
	results := make([]SendResult, len(all))
	for i, h := range all {
		results[i].Sent = Sent{Message: *h.message, Duplicate: h.duplicate}
		if h.err != nil {
			//rule:pending_or_delivered.retry-hand-over
			s.debts.Send(debts.Send{Draft: stored[i].draft, Seen: stored[i].seen})
			results[i] = SendResult{Err: tidemark.Wrap(tidemark.Unavailable, h.err, "the message is stored but not handed over yet; send it again with the same client_message_id")}
		}
	}
	return results
}

// begun notes a stored message where this node looks for it.
func (s *Server) begun(o outgoing) handOver {
	d, appended := o.draft, o.appended
	//rule:send_idempotent.own-attempt-is-no-duplicate
	if appended.Message.MessageID == d.MessageID {
		appended.Duplicate = false // stored by an attempt of ours whose answer was lost
	}
	s.count.sends.Add(1)
	if appended.Duplicate {
		s.count.duplicates.Add(1)
	}
	h := handOver{
		chat: d.ChatID, message: &appended.Message, encoded: appended.Message.AppendJSON(nil),
		version: appended.Version, duplicate: appended.Duplicate,
	}
	if !appended.Duplicate {
		s.feed.Put(s.feed.Chat(d.ChatID), h.message, h.encoded)
		h.covered = s.ticks.Authored(d.SenderID, d.ChatID, h.message.Sequence, o.seen)
	}
	return h
}

// handOver is a stored message on its way to the members' sessions.
type handOver struct {
	chat    tidemark.ChatID
	message *tidemark.Message
	encoded []byte
	// version is the membership version of which the members are told.
	version   uint64
	duplicate bool
	// covered says that the author's own watermark will rise over the message by itself: no row is marked for him.
	covered bool

	// people are the members, users those of them whom it is for, leases theirs; at is where those are looked up.
	people *feed.People
	users  []tidemark.UserID
	leases [][]registry.Lease
	at     int
	err    error
}

// together is about how many users are looked up at once for messages that one user sent at once.
const together = 4096

// handOver gives the first few messages, in their order, to the sessions of those members who have one, and marks the others (R_NOBODY). Where they all are is
// looked up at once, and so are they published. It returns how many those were: one, if it is for many, and never none. Each fails alone.
func (s *Server) handOver(ctx context.Context, all []handOver) (done int) {
	var users []tidemark.UserID
	at := make(map[*feed.People]int, 1) // where in users those of a chat begin
	//rule:few_round_trips.look-up-together
	for done < len(all) && len(users) < together {
		h := &all[done]
		done++
		h.err = s.address(ctx, h)
		begin, asked := at[h.people]
		if !asked || h.duplicate {
			begin, users = len(users), append(users, h.users...)
		}
		if h.at = begin; !h.duplicate && h.err == nil {
			at[h.people] = begin
		}
	}
	leases, known := s.locate.Users(ctx, users)
	wakes := make([]wake, 0, done)
	for i := range all[:done] {
		h := &all[i]
		h.leases = leases[h.at:][:len(h.users)]
		wakes = append(wakes, wake{Wake: bus.Wake{Chat: h.chat, Sequence: h.message.Sequence, Message: h.message, Encoded: h.encoded}, to: h.leases})
	}
	s.wake(ctx, wakes)
	for i := range all[:done] {
		if h := &all[i]; h.err == nil {
			h.err = s.handedOver(ctx, h, known, &wakes[i])
		}
	}
	return done
}

// address finds whom a message is for.
func (s *Server) address(ctx context.Context, h *handOver) error {
	//rule:pending_or_delivered.hand-over-by-current-roster
	p, err := s.feed.People(ctx, h.chat, h.version)
	if err != nil {
		return err
	}
	h.people, h.users = p, p.Users
	//rule:send_idempotent.duplicate-goes-to-unacknowledged
	if h.duplicate {
		// Only who has not acknowledged it may still need it: the others would be sent all that followed again.
		//rule:send_idempotent.hand-over-duplicate
		h.users, err = s.unacknowledged(ctx, h, p.Users)
	}
	return err
}

// handedOver marks those whom a message did not reach.
func (s *Server) handedOver(ctx context.Context, h *handOver, known bool, w *wake) error {
	//rule:R_RELOOK.look-for-devices-elsewhere
	if !known { // everybody's devices on other nodes are still to be told, also of those who need no row
		s.debts.Wake(debts.RowsFor(h.users, h.chat, h.message.Sequence))
	}
	//rule:pending_once.no-rows-in-large-chats
	if h.people.Large { // no rows: every open compares; but a live session that was not reached is still to be told
		//rule:R_NOBODY.retry-missed-in-large-chats
		s.debts.Wake(w.doubt)
		return nil
	}
	var rows []tidemark.PendingDelivery
	for i, user := range h.users {
		//rule:R_NOBODY.mark-absent-members
		if len(h.leases[i]) > 0 || (h.covered && user == h.message.SenderID) {
			continue
		}
		rows = append(rows, tidemark.PendingDelivery{UserID: user, ChatID: h.chat, FirstUndelivered: h.message.Sequence})
	}
	//rule:R_NOBODY.mark-missed-members
	return s.mark(ctx, append(rows, w.missed...))
}

// unacknowledged returns those users whose watermark is below the message.
func (s *Server) unacknowledged(ctx context.Context, h *handOver, users []tidemark.UserID) ([]tidemark.UserID, error) {
	keys := make([]storage.StateKey, len(users))
	for i, user := range users {
		keys[i] = storage.StateKey{User: user, Chat: h.chat}
	}
	states, err := s.storage.States(ctx, keys)
	if err != nil {
		return nil, err
	}
	var behind []tidemark.UserID
	for i, st := range states {
		if st.Acked < h.message.Sequence {
			behind = append(behind, users[i])
		}
	}
	return behind, nil
}

// wake is a wake on its way.
type wake struct {
	bus.Wake
	// to are the leases of each of those whom it is for.
	to [][]registry.Lease
	// missed are the rows to be marked for those that a publication did not reach. Those of doubt may be reached by another attempt; where nobody
	// listens there is a node that has died or joins anew, so that its sessions compare.
	missed, doubt []tidemark.PendingDelivery
}

// wake publishes to the nodes of the leases, of each wake one publication for each node, all at once and in their order, and notes who was missed.
func (s *Server) wake(ctx context.Context, wakes []wake) {
	var publications []bus.Publication
	var of []*wake
	for i := range wakes {
		w := &wakes[i]
		for _, to := range registry.ByNode(w.to) {
			event := w.Wake
			event.Leases = to.Leases
			publications, of = append(publications, bus.Publication{Node: to.Node, Event: bus.Event{Wake: &event}}), append(of, w)
		}
	}
	for i, err := range s.publishAll(ctx, publications) {
		if err == nil {
			continue
		}
		for _, lease := range publications[i].Event.Wake.Leases {
			row := tidemark.PendingDelivery{UserID: lease.User, ChatID: of[i].Chat, FirstUndelivered: of[i].Sequence}
			of[i].missed = append(of[i].missed, row)
			//rule:bounded_use.drop-wakes-of-dead-nodes
			if tidemark.CodeOf(err) != tidemark.NotFound {
				of[i].doubt = append(of[i].doubt, row)
			}
		}
	}
}

// publish sends each node the event for its leases, and returns one error for each.
func (s *Server) publish(ctx context.Context, nodes []registry.Addressed, event func(leases []registry.Lease) bus.Event) []error {
	publications := make([]bus.Publication, len(nodes))
	for i, to := range nodes {
		publications[i] = bus.Publication{Node: to.Node, Event: event(to.Leases)}
	}
	return s.publishAll(ctx, publications)
}

// publishAll sends publications, and counts those that fail.
func (s *Server) publishAll(ctx context.Context, publications []bus.Publication) []error {
	if len(publications) == 0 {
		return nil
	}
	errs := s.bus.Publish(ctx, publications)
	for _, err := range errs {
		if err != nil {
			s.count.busErrors.Add(1)
		}
	}
	return errs
}

// mark writes pending rows, then looks up again and wakes whoever is there (R_RELOOK).
func (s *Server) mark(ctx context.Context, rows []tidemark.PendingDelivery) error {
	for len(rows) > 0 {
		n := min(len(rows), storage.MaxBatch)
		if err := s.markSome(ctx, rows[:n]); err != nil {
			return err
		}
		//rule:pending_or_delivered.mark-all-batches
		rows = rows[n:]
	}
	return nil
}

func (s *Server) markSome(ctx context.Context, rows []tidemark.PendingDelivery) error {
	written, err := s.storage.Mark(ctx, rows)
	if err != nil {
		s.count.storageErrors.Add(1)
		return err
	}
	s.count.marks.Add(int64(len(rows)))
	for _, wrote := range written {
		if wrote {
			s.count.marksWritten.Add(1)
		}
	}
	//rule:R_RELOOK.look-again-after-mark
	s.wakeMarked(ctx, rows)
	return nil
}

// wakeMarked wakes whoever is there of those for whom rows are marked. A publication that fails is owed: the row would save the next open, but the session is alive.
func (s *Server) wakeMarked(ctx context.Context, rows []tidemark.PendingDelivery) {
	if len(rows) == 0 {
		return
	}
	users := make([]tidemark.UserID, len(rows))
	for i, row := range rows {
		users[i] = row.UserID
	}
	leases, err := s.registry.Lookup(ctx, users)
	if err != nil {
		s.locate.Failed("the leases of those for whom rows are marked are unknown; they are looked up again", err)
		leases = s.sessions.Leases(users)
		//rule:R_RELOOK.retry-lookup
		s.debts.Wake(rows)
	}
	var wakes []wake
	for from := 0; from < len(rows); {
		// Rows of one message come together: one publication for each node.
		to := from + 1
		for to < len(rows) && rows[to].ChatID == rows[from].ChatID && rows[to].FirstUndelivered == rows[from].FirstUndelivered {
			to++
		}
		//rule:R_CLEAR.wake-says-row-stands
		wakes = append(wakes, wake{Wake: bus.Wake{Chat: rows[from].ChatID, Sequence: rows[from].FirstUndelivered, Marked: true}, to: leases[from:to]})
		from = to
	}
	s.wake(ctx, wakes)
	for _, w := range wakes {
		//rule:R_RELOOK.retry-failed-wake
		s.debts.Wake(w.doubt)
	}
}

// receive takes what other nodes, or this one, publish to this node. It does not block.
func (s *Server) receive(e bus.Event) {
	switch {
	case e.Wake != nil:
		s.receiveWake(e.Wake)
	case e.Status != nil:
		s.receiveStatus(e.Status)
	case e.Membership != nil:
		s.receiveMembership(e.Membership)
	case e.Typing != nil:
		s.receiveTyping(e.Typing)
	case e.Claim != nil:
		s.moves.Receive(e.Claim)
	case e.Claimed != nil:
		//rule:R_WAKESET.mark-late-answer
		if !s.moves.Answered(e.Claimed) { // too late
			s.undelivered(e.Claimed.State)
		}
	}
}

// receiveWake wakes the sessions that hold the leases. Whoever's lease is not held here is marked, even if his device has a newer session (R_ADDR). If he is marked
// already, there is nobody to be told, unless his session has just been given to another node (R_FOLLOW).
func (s *Server) receiveWake(w *bus.Wake) {
	s.count.wakes.Add(int64(len(w.Leases)))
	if w.Message != nil {
		s.feed.Put(s.feed.Chat(w.Chat), w.Message, w.Encoded)
	}
	var few [8]*session.Session
	var rows, gone []tidemark.PendingDelivery
	for i, sess := range s.sessions.Held(few[:0], w.Leases) {
		if sess != nil && sess.Notify(session.Notification{Chat: w.Chat, Sequence: w.Sequence, Marked: w.Marked}) {
			continue
		}
		row := tidemark.PendingDelivery{UserID: w.Leases[i].User, ChatID: w.Chat, FirstUndelivered: w.Sequence}
		switch {
		case !w.Marked:
			rows = append(rows, row)
		case s.moves.Who(w.Leases[i].Session) != nil:
			gone = append(gone, row)
		}
	}
	//rule:R_NOBODY.mark-for-missing-session
	s.debts.Mark(rows)
	//rule:R_FOLLOW.wake-moved-session
	s.debts.Wake(gone)
}
