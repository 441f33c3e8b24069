package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/feed"
)

// A page of events: when one Next has so much it returns.
const (
	pageEvents = 128
	pageBytes  = 128 << 10
)

// How many chats of the wake set are read at a time, and how much of each: a page if it is one chat, a half if there are more.
const (
	chatsPerStep = 16
	chatEvents   = pageEvents / 2
	chatBytes    = pageBytes / 4
)

// statusesPerPage is how many status updates go with a page that is full of messages, so that ticks get their turn however many messages wait.
const statusesPerPage = 32

// readPause is how long a connection waits after a failed read before it tries again.
const readPause = 250 * time.Millisecond

// Connection is one connection's hold on a session. A newer connection of the session fences it off.
// Next belongs to one goroutine; the other methods may be called concurrently with it and with each other.
type Connection struct {
	session    *Session
	generation uint32
	signal     chan struct{}
	detach     sync.Once
}

// Session returns the session.
func (c *Connection) Session() *Session { return c.session }

// Next appends the events that are due to buf, about a page of them, and returns as soon as it has some. If there
// is none it waits for one, or, with wait false, returns buf as it is. Payloads are shared and must not be changed.
//
// Errors: Replaced once a newer connection owns the session, Gone when the session has ended, Unavailable when the node is
// stopping, and ctx.Err(). With an error buf is returned as it was given. A read that fails is tried again until ctx ends.
func (c *Connection) Next(ctx context.Context, buf []tidemark.Event, wait bool) ([]tidemark.Event, error) {
	s, given := c.session, len(buf)
	for {
		st, out, err := s.step(c, buf, given)
		if err != nil {
			return buf[:given], err
		}
		buf = out
		switch {
		case st.kind == stepReturn && len(buf) == given:
		case st.kind == stepReturn, st.kind == stepIdle && len(buf) > given:
			s.node.Count.Deliveries.Add(int64(len(buf) - given))
			return buf, nil
		case st.kind == stepIdle && !wait:
			select {
			case <-c.signal: // it may be older than what was seen: look again, so that Wait does not return for nothing
			default:
				return buf, nil
			}
		case st.kind == stepIdle:
			if err := c.Wait(ctx); err != nil {
				return buf, err
			}
		default:
			if buf, err = s.serve(ctx, c, st, buf); err == nil {
				continue
			}
			if len(buf) > given {
				return buf, nil
			}
			if err := c.pause(ctx, err, wait); err != nil || !wait {
				return buf, err
			}
		}
	}
}

// Wait returns when there may be events for Next, or the connection has lost its session; ctx.Err() when ctx ends first. It is Next without the
// reading, whose deep stack an idle connection would keep. It belongs to the goroutine of Next.
func (c *Connection) Wait(ctx context.Context) error {
	select {
	case <-c.signal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause waits a little after a failed read; what is woken stays in the wake set meanwhile.
func (c *Connection) pause(ctx context.Context, cause error, wait bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	//rule:pending_or_delivered.keep-stream-after-failed-read
	if code := tidemark.CodeOf(cause); code == tidemark.Replaced || code == tidemark.Gone {
		return cause
	}
	c.session.node.Count.ReadErrors.Add(1)
	c.session.node.Log.Warn("a session cannot read", "session", c.session.ID, "error", cause)
	if !wait {
		return nil
	}
	timer := time.NewTimer(readPause)
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
	stepAcked                    // read the watermarks of chats that were woken for the first time
	stepChats                    // a page of each of some chats
	stepRecent                   // list the chats of the snapshot
	stepHear                     // read the statuses of chats of which something was said
	stepSnapshot                 // read the statuses of chats, and send them
)

// step is one thing to do outside the session's lock.
type step struct {
	kind  stepKind
	look  look
	ids   []tidemark.ChatID
	keys  []statusKey
	drops uint32
	chats []chatStep
	// requests are the pages to be read, one for each of chats.
	requests []feed.Request
}

// chatStep is a chat whose page is read, as its position was when that was ordered.
type chatStep struct {
	position *position
	rewinds  uint32
	toEnd    bool
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
	if len(buf)-given >= pageEvents || size(buf[given:]) >= pageBytes {
		return step{kind: stepReturn}, s.sendStatuses(buf, len(buf)+statusesPerPage), nil
	}
	if s.lookDue() && len(s.wakes) < lookAhead {
		return step{kind: stepLook, look: s.look}, buf, nil
	}
	//rule:resume_lossless.messages-before-caught-up
	if len(s.wakes) > 0 {
		return s.chatsStep(), buf, nil
	}
	//rule:resume_lossless.comparison-before-caught-up
	if !s.caughtUp && !s.lost && s.backlog == 0 && s.look.done() {
		s.caughtUp = true
		buf = append(buf, s.number(tidemark.EventCaughtUp, []byte("{}"), run{kind: runCaughtUp}))
	}
	if n := len(s.unheard); n > 0 {
		return step{kind: stepHear, keys: slices.Clone(s.unheard[:min(n, snapshotChats)]), drops: s.drops}, buf, nil
	}
	if s.caughtUp && s.recent {
		return step{kind: stepRecent}, buf, nil
	}
	if n := len(s.snapshots); n > 0 && s.caughtUp {
		ids := append([]tidemark.ChatID(nil), s.snapshots[:min(n, snapshotChats)]...)
		s.snapshots = append(s.snapshots[:0], s.snapshots[len(ids):]...)
		return step{kind: stepSnapshot, ids: ids, drops: s.drops}, buf, nil
	}
	buf = s.sendStatuses(buf, given+pageEvents)
	buf = s.sendTyping(buf)
	if len(buf)-given >= pageEvents {
		return step{kind: stepReturn}, buf, nil
	}
	return step{kind: stepIdle}, buf, nil
}

// chatsStep orders a page of each chat at the front of the wake set.
func (s *Session) chatsStep() step {
	n := min(len(s.wakes), chatsPerStep)
	st := step{kind: stepChats, chats: make([]chatStep, n), requests: make([]feed.Request, n)}
	limit, bytes := pageEvents, pageBytes
	if n > 1 {
		limit, bytes = chatEvents, chatBytes
	}
	for i, p := range s.wakes[:n] {
		if !p.sure {
			st.ids = append(st.ids, p.chat)
		}
		st.chats[i] = chatStep{position: p, rewinds: p.rewinds, toEnd: p.toEnd}
		st.requests[i] = feed.Request{
			User: s.User, Chat: p.chat, From: p.next, To: p.woken, ToEnd: p.toEnd, Limit: limit, Bytes: bytes,
		}
	}
	if len(st.ids) > 0 {
		st.kind = stepAcked
	}
	return st
}

// ownedBy returns nil if the connection may read.
func (s *Session) ownedBy(c *Connection) error {
	switch {
	case s.node.Stopping.Load():
		return tidemark.Errorf(tidemark.Unavailable, "the server is stopping; connect again")
	case s.closed:
		return s.endedBy()
	//rule:session_in_order.refuse-older-connection
	case c.generation != s.generation:
		return tidemark.Errorf(tidemark.Replaced, "a newer connection owns the session; do not reconnect by yourself")
	}
	return nil
}

// endedBy says why the session has ended here.
func (s *Session) endedBy() error {
	switch {
	case s.gone:
		return tidemark.Errorf(tidemark.Replaced, "the session went on on another server; do not reconnect by yourself")
	//rule:resume_lossless.report-replaced-session
	case s.superseded:
		return tidemark.Errorf(tidemark.Replaced, "the device has a newer session; do not reconnect by yourself")
	}
	return tidemark.Errorf(tidemark.Gone, "the session has ended; open a new one")
}

// errShortRead says that a message which must exist was not found. It is read again.
var errShortRead = errors.New("a message that exists was not found yet")
