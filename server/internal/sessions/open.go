package sessions

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// OpenRequest asks for a new session.
type OpenRequest struct {
	User tidemark.UserID
	// Device names the device. A new session of a device ends the older one, whose connection is told
	// Replaced. "" means a device of its own.
	Device tidemark.DeviceID
	// Statuses asks for a snapshot of statuses after caught_up. Status updates come in any case.
	Statuses bool
	// Reset tells the client, if it is not "", why it did not get the session that it named.
	Reset tidemark.ResetReason
}

// ResumeRequest asks for a session that exists.
type ResumeRequest struct {
	User    tidemark.UserID
	Session tidemark.SessionID
	// After is the number of the last event that the client has.
	After uint64
	// Announce sends `open` first. Long-poll has no use for it.
	Announce bool
	// Yield reports whether the client has closed its side. It may then have come back by a newer
	// connection, which keeps the session. nil: it has not.
	Yield func() bool
}

func (r ResumeRequest) yields() bool { return r.Yield != nil && r.Yield() }

// ErrUncertain says that another node may have the session, and that the registry could not be
// asked.
var ErrUncertain = tidemark.Errorf(tidemark.Unavailable,
	"this node cannot ask the others for the session; poll again")

// errOvertaken says that a session has gone to another node, which asked for it last. That is not
// always the client's newest connection, and not always a connection that gets it. So the client is
// told to come back: the connection that has it then is replaced.
//
//rule:resume_lossless.overtaken-client-comes-back
var errOvertaken = tidemark.Errorf(tidemark.Unavailable,
	"the session has just been asked for by another connection; come back with the position")

var errGone = tidemark.Errorf(tidemark.Gone, "the session is unknown or has ended; open a new one")

// newSessionID returns an id of 128 random bits, 22 characters long.
func newSessionID() tidemark.SessionID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return tidemark.SessionID(base64.RawURLEncoding.EncodeToString(b[:]))
}

// Open opens a session. The first Next of its reader gives the `open` event.
//
// Errors: Exhausted (PerUser). A registry that cannot be reached does not prevent a session: it
// reconciles, and leaves no proof.
func (s *Sessions) Open(ctx context.Context, r OpenRequest) (*session.Reader, error) {
	id := newSessionID()
	//rule:R_ORDER.end-older-session-of-device
	if r.Device == "" {
		r.Device = tidemark.DeviceID(id)
	} else if older := s.Table.OfDevice(r.User, r.Device); older != nil {
		// Its rows are marked and its lease released before ours is taken, so that a clean handoff from
		// one session of a device to the next needs no reconciliation.
		if _, err := s.Close(ctx, older.Ending(session.Superseded)); err != nil {
			s.Log.Warn("an older session of a device was not closed cleanly", "session",
				older.ID(), "error", err)
		}
	}
	lease := registry.Lease{
		User:    r.User,
		Device:  r.Device,
		Node:    s.Node.ID,
		Boot:    s.Node.Boot,
		Session: id,
	}
	sess := s.Host.New(lease, r.Statuses)
	if !s.Table.Add(sess, s.PerUser) {
		return nil, s.errTooMany(r.User)
	}
	s.Count.Opens.Add(1)
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	taken, _ := s.Leases.Acquire(ctx, sess) // a heartbeat acquires it if this failed
	//rule:bounded_use.count-sessions-on-all-nodes
	if taken.Leases > s.PerUser {
		_, err := s.Close(ctx, sess.Ending(session.Closed))
		return nil, errors.Join(s.errTooMany(r.User), err)
	}
	return sess.Attach(r.Reset), nil
}

func (s *Sessions) errTooMany(user tidemark.UserID) error {
	return tidemark.Errorf(tidemark.Exhausted,
		"%s has %d sessions open, which is the limit; close one first", user, s.PerUser)
}

// Resume lets a client go on with its session, which may be on another node, and takes it over from
// an older connection.
//
// Errors: Gone (unknown, ended, or another user's), ErrUncertain (it may exist), Unavailable (another
// connection asks for it, or has it).
func (s *Sessions) Resume(ctx context.Context, r ResumeRequest) (*session.Reader, error) {
	sess, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	at := session.At{After: r.After, Announce: r.Announce, Yield: r.yields()}
	reader, err := sess.Resume(at)
	switch {
	case err == nil:
		return reader, nil
	case tidemark.CodeOf(err) == tidemark.Replaced:
		return nil, errOvertaken
	}
	return nil, errGone
}

// find returns the session to which a client comes back: one of this node, or one that another node
// gives to it. The errors are those of Resume.
func (s *Sessions) find(ctx context.Context, r ResumeRequest) (*session.Session, error) {
	if sess := s.Table.Get(r.Session); sess != nil {
		return s.await(ctx, sess, r)
	}
	return s.arrive(ctx, r)
}

// reacquire acquires the leases of sessions that were lost, to another node or to nobody. A session
// whose device has a newer one meanwhile does not take that one's lease.
func (s *Sessions) reacquire(ctx context.Context, lost []*session.Session) {
	sideBySide(lost, func(sess *session.Session) {
		if sess.Ended() { // or has moved
			return
		}
		leases, _ := s.Leases.Lookup(ctx, []tidemark.UserID{sess.User()})
		for _, lease := range leases[0] {
			//rule:R_ADDR.keep-lease-of-newer-session
			if lease.Device == sess.Lease.Device && lease.Session != sess.ID() {
				s.closeSuperseded(ctx, []*session.Session{sess})
				return
			}
		}
		sess.LeaseLost()
		ctx, cancel := delivery.Detach(ctx)
		defer cancel()
		_, _ = s.Leases.Acquire(ctx, sess) // a heartbeat acquires it if this failed
	})
}

// How many items sideBySide deals with one after the other, and how many at a time if there are more:
// their calls of the registry share its round trips.
const (
	inlineItems = 8
	workers     = 64
)

// sideBySide calls f for each item, and returns when all calls have. Up to inlineItems run on the
// caller's goroutine.
func sideBySide[T any](items []T, f func(T)) {
	//rule:R_EPOCH.take-leases-in-batches
	if len(items) <= inlineItems {
		for _, item := range items {
			f(item)
		}
		return
	}
	var group sync.WaitGroup
	for w := range min(workers, len(items)) {
		group.Go(func() {
			for i := w; i < len(items); i += workers {
				f(items[i])
			}
		})
	}
	group.Wait()
}
