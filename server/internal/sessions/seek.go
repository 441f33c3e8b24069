package sessions

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

const (
	// reachWithin is how long Seek and End look for the session.
	reachWithin = time.Second
	// reachPause is the pause after the first attempt. Each further one is twice as long, up to
	// maxReachPause.
	reachPause    = 50 * time.Millisecond
	maxReachPause = 200 * time.Millisecond
)

// Seek sets a session's positions. The caller has checked that the session is the user's. Seek
// follows a session that moves. If the session moves in that moment, Seek may set the positions
// twice. The client then receives some messages again.
//
// Errors: Gone if there is no such session. Replaced as Resume says. ErrUncertain if it may exist,
// but the registry or its node has not answered within a second.
func (s *Sessions) Seek(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID, to session.Positions,
) error {
	text, _ := json.Marshal(to) // Positions always marshals
	q := bus.Seek{ID: rand.Text(), Session: id, User: user, From: s.Node, Positions: text}
	err := s.reach(ctx, user, id, question{
		id:    q.ID,
		event: bus.Event{Seek: &q},
		here: func(ctx context.Context, sess *session.Session) bool {
			return sess.Arrived(ctx) == session.Landed && sess.Seek(q.ID, to)
		},
	})
	return s.answer(err, user, id)
}

// End ends a session of the user, on whatever node it is. Its reader gets Replaced. Errors: as
// those of Seek, without Replaced.
func (s *Sessions) End(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID,
) error {
	q := bus.End{ID: rand.Text(), Session: id, User: user, From: s.Node}
	return s.reach(ctx, user, id, question{
		id:    q.ID,
		event: bus.Event{End: &q},
		here: func(ctx context.Context, sess *session.Session) bool {
			return sess.Arrived(ctx) == session.Landed && s.revoke(ctx, sess)
		},
	})
}

// Look tells the node of a user's session which chats its client shows. here does it, if that is
// this node: what knows the looks is above this package. Errors: as those of Seek.
func (s *Sessions) Look(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID, chats []tidemark.ChatID,
	here func(*session.Session) bool,
) error {
	look := bus.Look{ID: rand.Text(), Session: id, User: user, Chats: chats}
	err := s.reach(ctx, user, id, question{
		id:    look.ID,
		event: bus.Event{Presence: &bus.Presence{From: s.Node, Look: &look}},
		here: func(ctx context.Context, sess *session.Session) bool {
			return sess.Arrived(ctx) == session.Landed && here(sess)
		},
	})
	return s.answer(err, user, id)
}

// revoke ends a session of this node. It returns false if the session has ended already.
func (s *Sessions) revoke(ctx context.Context, sess *session.Session) bool {
	closed, err := s.Close(ctx, sess.Ending(session.Revoked))
	if err != nil {
		s.Log.Warn("a session was ended by its user, and writing its pending rows failed; the "+
			"node tries again", "session", sess.ID(), "error", err)
	}
	return closed == 1
}

// question is something to be done where a session is: by here, if it is on this node, else by the
// node that gets the event.
type question struct {
	id    string
	event bus.Event
	// here does it. It returns false if the session has ended, or is moving away.
	here func(context.Context, *session.Session) bool
}

// reach does something to a session wherever it is. It follows a session that moves.
func (s *Sessions) reach(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID, q question,
) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	done := s.asked.ask(q.id)
	defer s.asked.forget(q.id)
	for pause := reachPause; ; pause = min(2*pause, maxReachPause) {
		missing := ErrUncertain
		if sess := s.Table.Get(id); sess != nil {
			//rule:nothing_outside_membership.reach-for-its-user-only
			if sess.User() != user {
				return errGone
			}
			if q.here(ctx, sess) {
				return nil
			}
		} else if lease, err := s.Leases.Lease(ctx, user, id); err == nil {
			switch {
			case lease.Session == "":
				return errGone
			case lease.Holder() == s.Node: // its session has ended, or is about to arrive
				missing = errGone
			default:
				_ = bus.PublishOne(ctx, s.Bus, lease.Holder(), q.event)
			}
		}
		answered, ok := done.WaitUntil(ctx, time.Now().Add(pause))
		if answered {
			return nil
		}
		//rule:resume_lossless.follow-moving-session
		if !ok {
			return missing
		}
	}
}

// questions has the Seeks, Ends and Looks of this node that wait for an answer.
type questions struct {
	mu   sync.Mutex
	open map[string]signal.Flag
}

// ask returns a flag that answer sets.
func (q *questions) ask(id string) signal.Flag {
	q.mu.Lock()
	defer q.mu.Unlock()
	flag := signal.New()
	q.open[id] = flag
	return flag
}

// answer sets the flag of a question. A question that was forgotten is ignored.
func (q *questions) answer(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open[id].Set()
}

func (q *questions) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, id)
}
