package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/access"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

// MaxSuspensionReason is the greatest length of the reason of a suspension, in characters.
const MaxSuspensionReason = 500

const (
	// untoldEvery is how often a node looks whether it may have missed that a user was suspended.
	// While it may miss that, it reads the records of all users with a session every rereadEvery.
	untoldEvery = 5 * time.Second
	rereadEvery = 30 * time.Second
	// recordsAtOnce is how many records are read together.
	recordsAtOnce = 1_000
	// barPause is the pause after a failed read of records.
	barPause = time.Second
)

// Suspension keeps a user out of the server. Zero times stand for none.
type Suspension struct {
	// Suspended reports whether the user is suspended now.
	Suspended bool
	// Since is when the suspension began, and Until when it ends by itself.
	Since, Until time.Time
	// Reason is shown to the user.
	Reason string
}

// Allowed returns nil if a user may use the server with credentials that were issued at a time. A
// zero issued stands for credentials that outlast a sign-out. It reads from storage at most once a
// minute for each user, or every 5 seconds while changes may not reach this node.
//
// Errors: Denied (the user is suspended; the detail says for how long and why), Unauthenticated
// (the credentials are from before the user signed out), Unavailable.
func (s *Server) Allowed(ctx context.Context, user tidemark.UserID, issued time.Time) error {
	return s.access.Check(ctx, user, issued)
}

// SignedOut returns when a user has signed out last, or zero. Error: Unavailable.
func (s *Server) SignedOut(ctx context.Context, user tidemark.UserID) (time.Time, error) {
	record, err := s.access.Of(ctx, user)
	return timeOf(record.ValidAfter), err
}

// SuspensionOf returns the suspension of a user, as it is stored now. Error: Unavailable.
func (s *Server) SuspensionOf(ctx context.Context, user tidemark.UserID) (Suspension, error) {
	all, err := s.access.All(ctx, []tidemark.UserID{user})
	if err != nil {
		return Suspension{}, err
	}
	return s.suspension(all[0].Suspension), nil
}

// Suspended reports which users are suspended, in their order, as it is stored now. Error:
// Unavailable.
func (s *Server) Suspended(ctx context.Context, users []tidemark.UserID) ([]bool, error) {
	all, err := s.access.All(ctx, users)
	if err != nil {
		return nil, err
	}
	suspended, now := make([]bool, len(users)), s.now()
	for i, record := range all {
		suspended[i] = record.Suspension.Lasts(now)
	}
	return suspended, nil
}

// suspension returns what callers see of a suspension.
func (s *Server) suspension(of *access.Suspension) Suspension {
	if !of.Lasts(s.now()) {
		return Suspension{}
	}
	return Suspension{
		Suspended: true, Since: timeOf(of.Since), Until: timeOf(of.Until), Reason: of.Reason,
	}
}

func timeOf(at tidemark.Millis) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(at)).UTC()
}

// Suspend keeps a user out of the server until a time, or without an end if until is zero. Their
// sessions on all nodes end. They stay members of their chats, and messages for them wait. A second
// call replaces until and reason.
//
// Errors: Invalid (until is not in the future; reason is too long or not UTF-8), Denied (the user
// was erased), Unavailable (the user may be suspended; repeat the call).
func (s *Server) Suspend(
	ctx context.Context, user tidemark.UserID, until time.Time, reason string,
) (Suspension, error) {
	now := s.now()
	switch {
	case !until.IsZero() && !until.After(now):
		return Suspension{}, tidemark.BadParam(tidemark.Invalid, "ends_at",
			"must be in the future, or be absent for a suspension without an end")
	case !utf8.ValidString(reason), utf8.RuneCountInString(reason) > MaxSuspensionReason:
		return Suspension{}, tidemark.BadParam(tidemark.Invalid, "reason",
			"must be UTF-8 of at most %d characters", MaxSuspensionReason)
	}
	next := &access.Suspension{Since: tidemark.Millis(now.UnixMilli()), Reason: reason}
	if !until.IsZero() {
		next.Until = tidemark.Millis(until.UnixMilli())
	}
	record, err := s.bar(ctx, user, access.Change{Suspends: true, Suspension: next})
	if err != nil {
		return Suspension{}, err
	}
	return s.suspension(record.Suspension), nil
}

// EndSuspension lets a user use the server again. It does nothing if the user is not suspended.
//
// Errors: Denied (the user was erased), Unavailable (repeat the call).
func (s *Server) EndSuspension(ctx context.Context, user tidemark.UserID) error {
	_, err := s.bar(ctx, user, access.Change{Suspends: true})
	return err
}

// SignOut refuses all credentials of a user that were issued until now, and ends their sessions on
// all nodes. It returns the time after which credentials must be issued. A second call moves that
// time on.
//
// Errors: Denied (the user was erased), Unavailable (the user may have signed out; repeat the
// call).
func (s *Server) SignOut(ctx context.Context, user tidemark.UserID) (time.Time, error) {
	now := tidemark.Millis(s.now().UnixMilli())
	record, err := s.bar(ctx, user, access.Change{SignsOut: now})
	return timeOf(record.ValidAfter), err
}

// bar changes the record of a user and notifies all nodes. When it returns, it has ended those
// sessions of the user on this node that the record refuses.
//
// Errors: Denied (the user was erased), Unavailable (this node is cut off, and nothing changed; or
// the change may have happened).
func (s *Server) bar(
	ctx context.Context, user tidemark.UserID, change access.Change,
) (access.Record, error) {
	if err := s.calls.begin(); err != nil {
		return access.Record{}, err
	}
	defer s.calls.end()
	if err := s.erased(user); err != nil {
		return access.Record{}, err
	}
	//rule:suspended_does_nothing.change-nothing-while-cut-off
	if err := s.leases.Degraded(); err != nil {
		return access.Record{}, tidemark.Wrap(tidemark.Unavailable, err,
			"this node is cut off from the others, so it suspends nobody and signs nobody out; "+
				"repeat the request")
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	record, err := s.access.Edit(ctx, user, change)
	if err != nil && tidemark.CodeOf(err) != tidemark.Unavailable {
		return access.Record{}, err
	}
	// After Unavailable the change may have happened.
	s.access.Forget(user)
	//rule:suspended_does_nothing.tell-all-nodes
	s.delivery.TellAll(ctx, bus.Event{Access: &bus.Access{User: user}})
	if err != nil {
		s.barring.add(user)
		return access.Record{}, err
	}
	s.barSessions(ctx, user, record)
	return record, nil
}

// barSessions ends the sessions of a user on this node that may not go on.
func (s *Server) barSessions(ctx context.Context, user tidemark.UserID, r access.Record) {
	for _, sess := range s.table.Of(user) {
		//rule:suspended_does_nothing.end-the-sessions
		if err := r.Refusal(sess.Issued(), s.now()); err != nil {
			s.sessions.Bar(ctx, sess, err)
		}
	}
}

// vouch records when the credentials of a session's client were issued. If the user may not use the
// server with them, it ends the session and returns why.
func (s *Server) vouch(ctx context.Context, sess *session.Session, issued time.Time) error {
	// First, so that a sign-out which is told from now on finds the time.
	at := issued
	if at.IsZero() {
		at = s.now()
	}
	sess.Vouch(at)
	record, err := s.access.Of(ctx, sess.User())
	if err != nil { // it says nothing about the user, so the session stays
		return err
	}
	//rule:suspended_does_nothing.look-again-after-entering
	if err := record.Refusal(issued, s.now()); err != nil {
		s.sessions.Bar(ctx, sess, err)
		return err
	}
	// Clocks of nodes differ: a session that was opened after a sign-out is newer than it.
	if after := timeOf(record.ValidAfter); issued.IsZero() && !at.After(after) {
		sess.Vouch(after.Add(time.Millisecond))
	}
	return nil
}

// barring has users whose records have changed.
type barring struct {
	wake signal.Flag

	mu    sync.Mutex
	users map[tidemark.UserID]struct{}
}

func (b *barring) add(users ...tidemark.UserID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users == nil {
		b.users = make(map[tidemark.UserID]struct{})
	}
	for _, user := range users {
		b.users[user] = struct{}{}
	}
	b.wake.Set()
}

// take removes and returns the users, in order, so that a run of the simulation is repeatable.
func (b *barring) take() []tidemark.UserID {
	b.mu.Lock()
	defer b.mu.Unlock()
	users := slices.Sorted(maps.Keys(b.users))
	b.users = nil
	return users
}

// receiveAccess handles that the record of a user has changed. It does not block.
func (s *Server) receiveAccess(user tidemark.UserID) {
	s.access.Forget(user)
	if len(s.table.Of(user)) > 0 {
		s.barring.add(user)
	}
}

// barLoop ends the sessions of users who may not use the server any more, until ctx ends.
func (s *Server) barLoop(ctx context.Context) {
	for s.barring.wake.Wait(ctx) {
		users := s.barring.take()
		for some := range slices.Chunk(users, recordsAtOnce) {
			if s.barStored(ctx, some) != nil {
				s.barring.add(some...)
				signal.Pause(ctx, barPause)
			}
		}
	}
}

// barStored reads the records of users, and ends the sessions that may not go on. Error:
// Unavailable.
func (s *Server) barStored(ctx context.Context, users []tidemark.UserID) error {
	records, err := s.access.All(ctx, users)
	if err != nil {
		return err
	}
	for i, user := range users {
		s.barSessions(ctx, user, records[i])
	}
	return nil
}

// vouchLoop looks at the users of all sessions again after this node may have missed that one was
// suspended, until ctx ends.
func (s *Server) vouchLoop(ctx context.Context) {
	seen, read := s.chats.Term(), time.Now()
	for signal.Pause(ctx, untoldEvery) {
		term := s.chats.Term()
		changed := term != seen
		//rule:suspended_does_nothing.read-all-after-untold
		if !changed && (term != chat.NoTerm || time.Since(read) < rereadEvery) {
			continue
		}
		seen, read = term, time.Now()
		users := make(map[tidemark.UserID]struct{})
		for _, sess := range s.table.All() {
			users[sess.User()] = struct{}{}
		}
		s.barring.add(slices.Collect(maps.Keys(users))...)
	}
}
