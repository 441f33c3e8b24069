package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/chat"
)

// Limits of a page. Next returns when it has reached one of them.
const (
	pageEvents = 128
	pageBytes  = 128 << 10
)

// chatsPerStep is how many chats are read in one step. The others limit each of several chats.
const (
	chatsPerStep = 16
	chatEvents   = pageEvents / 2
	chatBytes    = pageBytes / 4
)

// statusesPerPage is how many status updates follow a page that is full of messages, so that ticks
// arrive even while many messages are unsent.
const statusesPerPage = 32

// statusBytes is about the size of an encoded status update.
const statusBytes = 224

// While reconcileBelow chats or more are ready, the next page of a reconciliation waits.
const reconcileBelow = 256

// readPause is the time from a failed read to the next attempt.
const readPause = 250 * time.Millisecond

// Reader reads a session for one connection. A newer connection of the session replaces it. Next,
// Wait and Follow must not be called at the same time; the other methods are safe for concurrent
// use.
type Reader struct {
	session    *Session
	generation uint32
	flag       signal.Flag
	left       sync.Once
	// retry wakes the reader after a failed read of a Next that does not wait. It is nil before the
	// first one.
	retry *time.Timer
}

// Session returns the session.
func (r *Reader) Session() *Session { return r.session }

// Next appends events to buf, about a page, and returns as soon as it has some. If there are none,
// it waits for one; with wait false, it returns buf unchanged. The caller must not change the
// payloads, which are shared. A failed read is repeated until ctx ends. With wait false, Next then
// returns no events, and the reader is woken when it is time to repeat the read.
//
// Errors: Replaced if a newer connection owns the session, the device has a newer session, or the
// session has moved. Gone if it was closed or expired. Unavailable if the node is stopping.
// ctx.Err() if ctx ends. With an error, buf is returned as it was given.
func (r *Reader) Next(
	ctx context.Context, buf []tidemark.Event, wait bool,
) ([]tidemark.Event, error) {
	s, given := r.session, len(buf)
	for {
		st, out, err := s.step(r, buf, given)
		if err != nil {
			return buf[:given], err
		}
		buf = out
		switch {
		case st.kind == stepReturn && len(buf) == given:
		case st.kind == stepReturn, st.kind == stepIdle && len(buf) > given:
			return r.deliver(buf, given), nil
		case st.kind == stepIdle && !wait:
			// A signal from before the last step must not end the next Wait.
			if !r.flag.Clear() {
				return buf, nil
			}
		case st.kind == stepIdle:
			if err := r.Wait(ctx); err != nil {
				return buf, err
			}
		default:
			if buf, err = s.serve(ctx, r, st, buf); err == nil {
				continue
			}
			if len(buf) > given {
				return r.deliver(buf, given), nil
			}
			if err := r.pause(ctx, err, wait); err != nil || !wait {
				return buf, err
			}
		}
	}
}

// deliver counts the events that were appended after the first given ones, and returns buf.
func (r *Reader) deliver(buf []tidemark.Event, given int) []tidemark.Event {
	r.session.host.Count.Deliveries.Add(int64(len(buf) - given))
	return buf
}

// Follow makes the session set flag, and no longer end Wait, when Next may have events or an error.
// What happened before Follow does not set flag. So the caller must call Next once after Follow.
func (r *Reader) Follow(flag Waker) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attachment.follow(r.generation, flag)
	r.flag = signal.Flag{} // free its memory
}

// Wait returns nil when Next may have events or an error, and ctx.Err() when ctx ends first. An
// idle connection waits here and not in Next, whose calls have grown a deep stack.
func (r *Reader) Wait(ctx context.Context) error {
	if !r.flag.Wait(ctx) {
		return ctx.Err()
	}
	return nil
}

// pause waits after a failed read, and the chats stay ready. It returns an error if ctx has ended
// or r may not read the session any more.
func (r *Reader) pause(ctx context.Context, cause error, wait bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	//rule:pending_or_delivered.keep-stream-after-failed-read
	if err := r.session.mayRead(r); err != nil {
		return err
	}
	r.session.host.Count.ReadErrors.Add(1)
	r.session.host.Log.Warn("a session could not read from storage; it tries again", "session",
		r.session.ID(), "error", cause)
	if !wait {
		// One timer, however often notifications make the read fail meanwhile.
		//rule:pending_or_delivered.wake-after-failed-read
		if r.retry == nil {
			r.retry = time.AfterFunc(readPause, r.wake)
		} else {
			r.retry.Reset(readPause)
		}
	} else if !signal.Pause(ctx, readPause) {
		return ctx.Err()
	}
	return nil
}

// wake wakes the newest reader of the session.
func (r *Reader) wake() {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attachment.flag.Set()
}

// Stored records that the client has stored a message from this stream. The client then has all
// events before it, and the session forgets them.
func (r *Reader) Stored(chat tidemark.ChatID, acked tidemark.Sequence) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:resume_lossless.stored-by-current-connection
	if s.attachment.owns(r.generation) == nil {
		s.log.forgetMessage(chat, acked)
	}
}

// Detach records that the connection has closed. The session then waits for another one during its
// resume window. Detach does nothing if the reader was replaced, or when it is called again.
func (r *Reader) Detach() {
	r.left.Do(func() {
		s := r.session
		s.host.Count.Connections.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.residence.final() && s.attachment.detach(r.generation) {
			//rule:pending_or_delivered.end-after-detach-time
			s.host.Expiry.push(Deadline{session: s, left: r.generation})
		}
	})
}

// Ending returns a request to end the session, unless another connection has attached since this
// one detached.
func (r *Reader) Ending() Ending {
	return Ending{Session: r.session, reason: Closed, left: r.generation}
}

// stepKind says what Next does next.
type stepKind uint8

const (
	stepIdle      stepKind = iota // nothing is due
	stepReturn                    // the page is full, or is sent before storage is read
	stepReconcile                 // a page of the reconciliation
	stepAcked                     // the watermarks of chats that are new to the session
	stepChats                     // a page of each of several chats
	stepRecent                    // the list of recently active chats
	stepBaselines                 // the boundaries that the client may already know
	stepStatuses                  // the statuses of chats
	stepOwn                       // the own states of chats
)

// step is one read without the session's lock, with the state in which it was ordered.
type step struct {
	kind      stepKind
	reconcile reconcile
	ids       []tidemark.ChatID
	keys      []statusKey
	left      uint32
	// again has the times after which the aggregates of ids have to be read, if this is not the
	// first look at them.
	again map[tidemark.ChatID]time.Time
	chats []chatStep
	// requests has one page to read for each element of chats.
	requests []chat.Request
}

// chatStep is a chat whose page is read, and its progress when the read was ordered.
type chatStep struct {
	progress  *progress
	rewinds   uint32
	openEnded bool
}

// step appends the events that need no I/O, and returns the next read.
func (s *Session) step(r *Reader, buf []tidemark.Event, given int) (step, []tidemark.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(r); err != nil {
		return step{}, buf, err
	}
	if s.log.opening != nil {
		buf = append(buf, s.log.sendOpening())
		return step{kind: stepReturn}, s.log.sendControls(buf), nil
	}
	buf = s.sendConfirmations(s.log.sendControls(buf))
	if len(buf)-given >= pageEvents || size(buf[given:]) >= pageBytes {
		return step{kind: stepReturn}, s.sendStatuses(buf, len(buf)+statusesPerPage), nil
	}
	if s.reconcile.due(s.chats.full) && len(s.chats.ready) < reconcileBelow {
		return step{kind: stepReconcile, reconcile: s.reconcile}, buf, nil
	}
	//rule:resume_lossless.messages-before-caught-up
	if len(s.chats.ready) > 0 {
		return s.chatsStep(), buf, nil
	}
	if s.catchUp.due(s.reconcile.complete()) {
		s.catchUp.state = caughtUp
		buf = append(buf,
			s.log.number(tidemark.EventCaughtUp, []byte("{}"), run{kind: runCaughtUp}))
	}
	if n := len(s.statuses.unread); n > 0 {
		keys := slices.Clone(s.statuses.unread[:min(n, recentChats)])
		return step{kind: stepBaselines, keys: keys, left: s.statuses.left}, buf, nil
	}
	if s.catchUp.state == caughtUp {
		if st := s.statuses.due(); st.kind != stepIdle {
			return st, buf, nil
		}
	}
	buf = s.sendStatuses(buf, given+pageEvents)
	buf = s.looks.send(buf)
	if len(buf)-given >= pageEvents {
		return step{kind: stepReturn}, buf, nil
	}
	return step{kind: stepIdle}, buf, nil
}

// chatsStep orders a page of each chat at the front of the ready list.
func (s *Session) chatsStep() step {
	n := min(len(s.chats.ready), chatsPerStep)
	st := step{kind: stepChats, chats: make([]chatStep, n), requests: make([]chat.Request, n)}
	limit, bytes := pageEvents, pageBytes
	if n > 1 {
		limit, bytes = chatEvents, chatBytes
	}
	for i, p := range s.chats.ready[:n] {
		if !p.ackedRead {
			st.ids = append(st.ids, p.chat)
		}
		st.chats[i] = chatStep{progress: p, rewinds: p.rewinds, openEnded: p.openEnded}
		st.requests[i] = chat.Request{
			User: s.User(), Chat: p.chat, From: p.next, To: p.last(), OpenEnded: p.openEnded,
			Limit: limit, Bytes: bytes,
		}
	}
	if len(st.ids) > 0 {
		st.kind = stepAcked
	}
	return st
}

// mayRead takes the session's lock, and returns nil if r may read the session.
func (s *Session) mayRead(r *Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownedBy(r)
}

// ownedBy returns nil if r may read the session.
func (s *Session) ownedBy(r *Reader) error {
	if err := s.residence.readable(); err != nil {
		return err
	}
	return s.attachment.owns(r.generation)
}

// sendStatuses appends the boundaries that are ready, until buf has until events.
func (s *Session) sendStatuses(buf []tidemark.Event, until int) []tidemark.Event {
	left := s.statuses.order[:0]
	for _, key := range s.statuses.order {
		p := s.statuses.pending[key]
		//rule:tick_monotone.wait-for-other-boundaries
		if len(buf) >= until || p.state != ready {
			left = append(left, key)
			continue
		}
		delete(s.statuses.pending, key)
		u := tidemark.StatusUpdate{ChatID: key.chat, UserID: key.user, Boundary: p.Boundary}
		buf = s.sendStatus(buf, u, false)
	}
	s.statuses.order = left
	return buf
}

// sendStatus appends one boundary. An aggregate that did not rise is sent only if the client asked,
// because the client may not have received it.
func (s *Session) sendStatus(
	buf []tidemark.Event, u tidemark.StatusUpdate, asked bool,
) []tidemark.Event {
	var news bool
	if u.Boundary, news = s.statuses.baselines.mask(u, s.User()); !news && !asked {
		return buf
	}
	if u.UserID == "" {
		sent, rose := s.statuses.aggregate(u.ChatID, u.Boundary)
		//rule:tick_monotone.repeat-on-request
		if !rose && !asked {
			return buf
		}
		u.Boundary = sent
		// An aggregate that was sent before the user hid their reads may have more.
		u.Boundary, _ = s.statuses.baselines.mask(u, s.User())
	}
	if u.Boundary == (tidemark.Boundary{}) {
		return buf
	}
	r := run{kind: runStatus, chat: u.ChatID}
	payload := u.AppendJSON(make([]byte, 0, statusBytes))
	return append(buf, s.log.number(tidemark.EventStatus, payload, r))
}

func size(events []tidemark.Event) int {
	n := 0
	for i := range events {
		n += len(events[i].Payload)
	}
	return n
}

// errShortRead is the failure of a read that did not find an existing message. The read is
// repeated.
var errShortRead = errors.New("a message that exists was not found yet")
