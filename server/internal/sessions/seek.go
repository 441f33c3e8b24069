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
	// seekWithin is how long Seek looks for the session.
	seekWithin = time.Second
	// seekPause is the time between two attempts.
	seekPause = 50 * time.Millisecond
)

// Seek sets a session's positions. The caller has checked that the session is the user's. Seek
// follows a session that moves. If the session moves in that moment, Seek may set the positions
// twice. The client then receives some messages again.
//
// Errors: Gone if there is no such session. ErrUncertain if it may exist, but the registry or its
// node has not answered within a second.
func (s *Sessions) Seek(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID, to session.Positions,
) error {
	text, _ := json.Marshal(to) // Positions always marshals
	ctx, cancel := context.WithTimeout(ctx, seekWithin)
	defer cancel()
	q := bus.Seek{ID: rand.Text(), Session: id, User: user, From: s.Node, Positions: text}
	done := s.seeks.ask(q.ID)
	defer s.seeks.forget(q.ID)
	for {
		missing := ErrUncertain
		if sess := s.Table.Get(id); sess != nil {
			if sess.Arrived(ctx) == session.Landed && sess.Seek(q.ID, to) {
				return nil
			}
		} else if lease, err := s.Leases.Lease(ctx, user, id); err == nil {
			switch {
			case lease.Session == "":
				return errGone
			case lease.Holder() == s.Node: // its session has ended, or is about to arrive
				missing = errGone
			default:
				_ = bus.PublishOne(ctx, s.Bus, lease.Holder(), bus.Event{Seek: &q})
			}
		}
		sought, ok := done.WaitUntil(ctx, time.Now().Add(seekPause))
		if sought {
			return nil
		}
		//rule:resume_lossless.follow-moving-session
		if !ok {
			return missing
		}
	}
}

// questions has the Seeks of this node that wait for an answer.
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
