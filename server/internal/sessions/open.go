package sessions

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// OpenRequest describes a new session.
type OpenRequest struct {
	User tidemark.UserID
	// Device names the device. A new session of a device ends its older one, whose reader gets
	// Replaced. "" stands for a device with this session only.
	Device tidemark.DeviceID
	// Statuses asks for a snapshot of statuses after `caught_up`. Status updates are sent in any
	// case.
	Statuses bool
	// Reset, if set, tells the client why it did not get the session that it named.
	Reset tidemark.ResetReason
	// Issued is when the credentials of the client were issued. Zero stands for credentials that
	// outlast a sign-out.
	Issued time.Time
}

// ResumeRequest names a session that a client resumes.
type ResumeRequest struct {
	User    tidemark.UserID
	Session tidemark.SessionID
	// After is the number of the last event that the client has.
	After uint64
	// Announce sends `session` first. Long-poll does not need it.
	Announce bool
	// Issued is that of OpenRequest.
	Issued time.Time
	// Yield reports whether the client has closed its side. It may then be back on a newer
	// connection, which keeps the session. nil means that it has not.
	Yield func() bool
}

func (r ResumeRequest) yields() bool { return r.Yield != nil && r.Yield() }

// ErrUncertain says that another node may have the session, but the registry does not answer.
var ErrUncertain = tidemark.Errorf(tidemark.Unavailable,
	"this node cannot ask the others for the session; poll again")

// errOvertaken says that another connection or node has the session or has requested it last. That
// one may not be the client's newest, or may not get the session. The client therefore connects
// again, which replaces the other connection.
//
//rule:resume_lossless.overtaken-client-comes-back
var errOvertaken = tidemark.Errorf(tidemark.Unavailable,
	"another connection has just requested the session; connect again with the position")

var errGone = tidemark.Errorf(tidemark.Gone, "the session is unknown or has ended; open a new one")

// newSessionID returns an id of 128 random bits, 22 characters long.
func newSessionID() tidemark.SessionID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return tidemark.SessionID(base64.RawURLEncoding.EncodeToString(b[:]))
}

// Open opens a session. The first Next of its reader returns the `session` event.
//
// Errors: Exhausted if the user has PerUser sessions. An unreachable registry is no error: the
// session then reconciles and leaves no proof.
func (s *Sessions) Open(ctx context.Context, r OpenRequest) (*session.Reader, error) {
	id := newSessionID()
	//rule:R_ORDER.end-older-session-of-device
	if r.Device == "" {
		r.Device = tidemark.DeviceID(id)
	} else if older := s.Table.OfDevice(r.User, r.Device); older != nil {
		// The older session is marked and released first. The device's next session then needs no
		// reconciliation.
		if _, err := s.Close(ctx, older.Ending(session.Superseded)); err != nil {
			s.Log.Warn("an older session of a device was closed, but writing its pending rows "+
				"failed; the node tries again", "session", older.ID(), "error", err)
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
	taken, _ := s.Leases.Acquire(ctx, sess) // a heartbeat repeats a failure
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

// Resume attaches a client to its session and replaces an older connection. If the session is on
// another node, it moves here.
//
// Errors: Gone if the session is unknown, ended, or another user's. Replaced if it ended on this
// node because its device has a newer one, or because its user ended it. ErrUncertain if it may
// exist. Unavailable if another connection has it or has requested it.
func (s *Sessions) Resume(ctx context.Context, r ResumeRequest) (*session.Reader, error) {
	sess, err := s.find(ctx, r)
	if err != nil {
		return nil, s.answer(err, r.User, r.Session)
	}
	at := session.At{After: r.After, Announce: r.Announce, Yield: r.yields()}
	reader, err := sess.Resume(at)
	switch {
	case err == nil:
		return reader, nil
	case tidemark.CodeOf(err) == tidemark.Replaced:
		return nil, errOvertaken
	}
	return nil, s.Missing(r.User, r.Session)
}

// Missing returns the error for a client whose session is nowhere: Gone, or Replaced.
func (s *Sessions) Missing(user tidemark.UserID, id tidemark.SessionID) error {
	return s.answer(errGone, user, id)
}

// answer returns the error for a client whose session was not found: Replaced in place of Gone, if
// the session was replaced on this node.
func (s *Sessions) answer(err error, user tidemark.UserID, id tidemark.SessionID) error {
	if err == errGone { //nolint:errorlint // it is never wrapped
		//rule:resume_lossless.refuse-replaced-session
		return cmp.Or(s.replaced.of(user, id), err)
	}
	return err
}

// find returns the session that a client resumes, after a move if necessary. Its errors are those
// of Resume.
func (s *Sessions) find(ctx context.Context, r ResumeRequest) (*session.Session, error) {
	if sess := s.Table.Get(r.Session); sess != nil {
		return s.await(ctx, sess, r)
	}
	return s.arrive(ctx, r)
}

// reacquire acquires lost leases again. If the device has a newer session, it closes the older one
// instead, so that the newer one keeps its lease.
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
		_, _ = s.Leases.Acquire(ctx, sess) // a heartbeat repeats a failure
	})
}

// sideBySide handles up to inlineItems in sequence, and more by this many workers. Concurrent calls
// to the registry share round trips.
const (
	inlineItems = 8
	workers     = 64
)

// sideBySide calls f for each item, and returns when all calls have returned. It calls f for up to
// inlineItems in the caller's goroutine.
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
