package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// A page of events: what one Next returns at most, give or take one event.
const (
	pageEvents = 128
	pageBytes  = 128 << 10
)

// storageRetry is how long a connection waits after a failed read before it tries again.
const storageRetry = 250 * time.Millisecond

// Connection is one connection's hold on a session. A newer connection of the session fences it off.
// Next belongs to one goroutine; the other methods may be called concurrently with it and with each other.
type Connection struct {
	session    *Session
	generation uint32
	signal     chan struct{}
	detach     sync.Once
}

// Session returns the id of the session.
func (c *Connection) Session() tidemark.SessionID { return c.session.id }

// Next appends the events that are due to buf, about a page of them (128 events or 128 KiB), and returns as soon as it has some. If there
// is none it waits for one, or, with wait false, returns buf as it is. Payloads are shared and must not be changed.
//
// Errors: Replaced once a newer connection owns the session, Gone when the session has ended, Unavailable when the server is
// stopping, and ctx.Err(). With an error buf is returned as it was given. A read that fails is tried again until ctx ends.
func (c *Connection) Next(ctx context.Context, buf []tidemark.Event, wait bool) ([]tidemark.Event, error) {
	s, given := c.session, len(buf)
	for {
		step, out, err := s.step(c, buf, given)
		if err != nil {
			return buf[:given], err
		}
		buf = out
		switch {
		case step.kind == stepReturn && len(buf) == given:
		case step.kind == stepReturn, step.kind == stepIdle && len(buf) > given:
			s.server.count.deliveries.Add(int64(len(buf) - given))
			return buf, nil
		case step.kind == stepIdle:
			if !wait {
				return buf, nil
			}
			if err := c.await(ctx); err != nil {
				return buf[:given], err
			}
		default:
			if buf, err = s.serve(ctx, c, step, buf, given); err != nil {
				if len(buf) > given {
					return buf, nil
				}
				if err := c.retry(ctx, err, wait); err != nil {
					return buf, err
				}
				if !wait {
					return buf, nil
				}
			}
		}
	}
}

func (c *Connection) await(ctx context.Context) error {
	select {
	case <-c.signal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retry waits a little after a failed read; what is woken stays in the wake set meanwhile.
func (c *Connection) retry(ctx context.Context, cause error, wait bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if code := tidemark.CodeOf(cause); code == tidemark.Replaced || code == tidemark.Gone {
		return cause
	}
	c.session.server.count.storageErrors.Add(1)
	c.session.server.log.Warn("a session cannot read", "session", c.session.id, "error", cause)
	if !wait {
		return nil
	}
	timer := time.NewTimer(storageRetry)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stepKind says what Next has to do.
type stepKind uint8

const (
	stepIdle     stepKind = iota // nothing is due
	stepReturn                   // the page is full, or should go out before storage is asked
	stepLook                     // a page of the look for what is pending
	stepChat                     // a page of one chat
	stepRecent                   // list the chats of the snapshot
	stepSnapshot                 // read the statuses of chats
)

// step is one thing to do outside the session's lock.
type step struct {
	kind stepKind
	look look
	chat chatStep
	ids  []tidemark.ChatID
}

// chatStep is a page of one chat to be read, as the position was when it was ordered.
type chatStep struct {
	position  *position
	rewinds   uint32
	from, to  tidemark.Sequence
	toEnd     bool
	readAcked bool
}

// step emits what needs no I/O and says what comes next.
func (s *Session) step(c *Connection, buf []tidemark.Event, given int) (step, []tidemark.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil {
		return step{}, buf, err
	}
	if s.opening != nil {
		buf = append(buf, s.openEvent())
		return step{kind: stepReturn}, s.sendControls(buf), nil
	}
	buf = s.sendControls(buf)
	if len(buf)-given >= pageEvents || pageSize(buf[given:]) >= pageBytes {
		// Ticks get their turn however many messages wait.
		return step{kind: stepReturn}, s.sendStatuses(buf, len(buf)+statusesPerStep), nil
	}
	if s.look.due() && len(s.wakes) < lookAhead {
		return step{kind: stepLook, look: s.look}, buf, nil
	}
	if len(s.wakes) > 0 {
		p := s.wakes[0]
		return step{kind: stepChat, chat: chatStep{
			position: p, rewinds: p.rewinds, from: p.next, to: p.woken, toEnd: p.toEnd, readAcked: !p.sure,
		}}, buf, nil
	}
	if !s.caughtUp && s.backlog == 0 && s.look.done() {
		buf = append(buf, s.caughtUpEvent())
	}
	if !s.caughtUp {
		return s.rest(buf, given)
	}
	if s.recent {
		return step{kind: stepRecent}, buf, nil
	}
	if n := len(s.snapshots); n > 0 {
		ids := append([]tidemark.ChatID(nil), s.snapshots[:min(n, snapshotChats)]...)
		s.snapshots = append(s.snapshots[:0], s.snapshots[len(ids):]...)
		return step{kind: stepSnapshot, ids: ids}, buf, nil
	}
	return s.rest(buf, given)
}

// rest emits what is sent when no message waits.
func (s *Session) rest(buf []tidemark.Event, given int) (step, []tidemark.Event, error) {
	buf = s.sendStatuses(buf, given+pageEvents)
	buf = s.sendTyping(buf)
	if len(s.statuses) > 0 {
		return step{kind: stepReturn}, buf, nil
	}
	return step{kind: stepIdle}, buf, nil
}

func pageSize(events []tidemark.Event) int {
	size := 0
	for i := range events {
		size += len(events[i].Payload)
	}
	return size
}

// ownedBy returns nil if the connection may read.
func (s *Session) ownedBy(c *Connection) error {
	switch {
	case s.closed && s.server.stopping.Load():
		return errStopping()
	case s.closed:
		return tidemark.Errorf(tidemark.Gone, "the session has ended; open a new one")
	case c.generation != s.generation:
		return tidemark.Errorf(tidemark.Replaced, "a newer connection owns the session; do not reconnect by yourself")
	case s.server.stopping.Load():
		return errStopping()
	}
	return nil
}

func errStopping() error {
	return tidemark.Errorf(tidemark.Unavailable, "the server is stopping; connect again")
}

// number gives an event its number and remembers it.
func (s *Session) number(kind tidemark.EventType, payload []byte, r run) tidemark.Event {
	s.lastID++
	r.event = s.lastID
	r.count = 1
	s.log.add(r)
	return tidemark.Event{ID: s.lastID, Type: kind, Payload: payload}
}

func (s *Session) openEvent() tidemark.Event {
	o := s.opening
	s.opening = nil
	s.lastID++
	o.Position = s.lastID
	return tidemark.Event{ID: s.lastID, Type: tidemark.EventOpen, Payload: o.AppendJSON(nil)}
}

func (s *Session) caughtUpEvent() tidemark.Event {
	s.caughtUp = true
	e := s.number(tidemark.EventCaughtUp, []byte("{}"), run{kind: runCaughtUp})
	s.caughtUpID = e.ID
	return e
}

func (s *Session) sendControls(buf []tidemark.Event) []tidemark.Event {
	for _, c := range s.controls {
		kept := c
		buf = append(buf, s.number(c.Type, c.Payload, run{kind: runControl, control: &kept}))
	}
	s.controls = s.controls[:0]
	return buf
}

func (s *Session) sendStatuses(buf []tidemark.Event, until int) []tidemark.Event {
	sent := 0
	for _, key := range s.statusOrder {
		if len(buf) >= until {
			break
		}
		sent++
		b := s.statuses[key]
		delete(s.statuses, key)
		buf = s.sendStatus(buf, tidemark.StatusUpdate{ChatID: key.chat, UserID: key.user, Boundary: b})
	}
	s.statusOrder = append(s.statusOrder[:0], s.statusOrder[sent:]...)
	return buf
}

// sendStatus sends one boundary. An aggregate never falls: not when a member joins, either.
func (s *Session) sendStatus(buf []tidemark.Event, u tidemark.StatusUpdate) []tidemark.Event {
	if u.UserID == "" {
		before := s.least[u.ChatID]
		u.Boundary = u.Boundary.Merge(before)
		if u.Boundary == before {
			return buf
		}
		if s.least == nil {
			s.least = make(map[tidemark.ChatID]tidemark.Boundary)
		}
		if len(s.least) < maxLeast {
			s.least[u.ChatID] = u.Boundary
		}
	}
	return append(buf, s.number(tidemark.EventStatus, u.AppendJSON(nil), run{kind: runStatus, chat: u.ChatID}))
}

func (s *Session) sendTyping(buf []tidemark.Event) []tidemark.Event {
	for _, t := range s.typing {
		buf = append(buf, tidemark.Event{Type: tidemark.EventTyping, Payload: t.AppendJSON(nil)})
	}
	s.typing = s.typing[:0]
	return buf
}

// serve does one step that needs storage, or at least the tail, and appends what it gives.
func (s *Session) serve(ctx context.Context, c *Connection, st step, buf []tidemark.Event, given int) ([]tidemark.Event, error) {
	switch st.kind {
	case stepLook:
		return buf, s.lookFor(ctx, c, st.look)
	case stepChat:
		return s.serveChat(ctx, c, st.chat, buf, given)
	case stepRecent:
		return buf, s.listRecent(ctx, c)
	default:
		return s.serveSnapshot(ctx, c, st.ids, buf)
	}
}

// serveChat reads a page of a chat and sends it. What was read before a rewind, or for a connection that was replaced meanwhile, is thrown away.
func (s *Session) serveChat(ctx context.Context, c *Connection, st chatStep, buf []tidemark.Event, given int) ([]tidemark.Event, error) {
	p := st.position
	if st.readAcked {
		acked, err := s.server.acked(ctx, stateKey(s.user, p.chat))
		if err != nil {
			return buf, err
		}
		s.mu.Lock()
		s.ackedIs(p, acked)
		s.mu.Unlock()
		return buf, nil
	}
	pg, err := s.server.page(ctx, pageRequest{
		user: s.user, chat: p.chat, from: st.from, to: st.to, toEnd: st.toEnd,
		limit: pageEvents - (len(buf) - given), bytes: pageBytes - pageSize(buf[given:]),
	})
	member := true
	if code := tidemark.CodeOf(err); code == tidemark.NotMember || code == tidemark.NotFound {
		member, err = false, nil
	}
	if err != nil {
		return buf, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil {
		return buf, err
	}
	if p.rewinds != st.rewinds {
		return buf, nil
	}
	if !member {
		s.drop(p.chat)
		return buf, nil
	}
	for _, piece := range pg.pieces {
		r := run{kind: runMessages, chat: p.chat, sequence: piece.from, to: piece.to}
		kind := tidemark.EventMessage
		if piece.gap {
			kind, r.kind = tidemark.EventGap, runGap
		}
		buf = append(buf, s.number(kind, piece.payload, r))
	}
	s.moved(p, st, pg)
	if len(pg.pieces) == 0 && p.unserved() {
		return buf, errShortRead
	}
	return buf, nil
}

// errShortRead says that a message which must exist was not found. It is read again.
var errShortRead = errors.New("a message that exists was not found yet")

// moved takes in how far a page went.
func (s *Session) moved(p *position, st chatStep, pg page) {
	p.next = max(p.next, pg.through+1)
	if p.toEnd && pg.end {
		p.toEnd = false
	}
	if st.toEnd {
		p.woken = max(p.woken, p.next-1)
	}
	s.served(p)
}

// Ack takes acknowledgements and reads. It never blocks on storage: they are coalesced and written within Config.AckInterval. One that turns
// out to be wrong is counted and dropped (ADR-008 §3.1, fire-and-forget).
func (c *Connection) Ack(acks ...Ack) {
	for _, a := range acks {
		c.session.server.acks.add(c.session.user, a)
	}
}

// Send is Server.Send for the session's user.
func (c *Connection) Send(ctx context.Context, r SendRequest) (Sent, error) {
	return c.session.server.Send(ctx, c.session.user, r)
}

// Sync is Server.Sync for the session's user.
func (c *Connection) Sync(ctx context.Context, r SyncRequest) (SyncResponse, error) {
	return c.session.server.Sync(ctx, c.session.user, r)
}

// Confirm says that the client has everything up to an event: the session forgets how to send it again.
func (c *Connection) Confirm(after uint64) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.generation == s.generation && after <= s.lastID {
		s.log.confirm(after)
	}
}

// Detach says that the connection is gone. The session waits for Config.ResumeWindow for another one. It does nothing if the
// connection was replaced, and nothing when called again.
func (c *Connection) Detach() {
	c.detach.Do(func() {
		s := c.session
		s.server.count.connections.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.generation != s.generation || s.closed {
			return
		}
		s.attached = false
		s.detachedAt = time.Now()
		s.server.expiry.add(s, s.generation)
	})
}

// Close ends the session at once, because its client said goodbye: what is unacknowledged is marked, and the lease is released. It only
// detaches if the connection was replaced.
func (c *Connection) Close(ctx context.Context) error {
	c.Detach()
	s := c.session
	s.mu.Lock()
	owned := c.generation == s.generation && !s.closed && !s.attached
	s.mu.Unlock()
	if !owned {
		return nil
	}
	return s.server.closeSessions(ctx, []*Session{s})
}
