package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/auth"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// CallTimeout is how long the core may take to open a session, or to read what a poll asks for.
const CallTimeout = 30 * time.Second

// A client with too many sessions is told to come back after a random part of a minute from these on:
// a session ends a minute after its connection.
const (
	fewerSessionsFrom = 10 * time.Second
	fewerSessionsTo   = 60 * time.Second
)

// SessionOpener gives clients their sessions, over each of the transports.
type SessionOpener struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit may be nil: no limit.
	Limit *limit.Limiter
	// Gate may be nil: everybody enters.
	Gate *limit.Gate
}

// Open resumes the session that a stream names, or opens a new one, and tells the client by a reset if
// it is not the one that it named. It returns the place in the gate that the client holds until it has
// caught up. Auth.Leave must follow when the connection ends.
//
// It waits for the place until ctx ends, which is the connection's. A client that has closed its side
// still gets its answer, but no session that another connection reads: its client has most likely
// given this one up, and come back by that one.
func (o SessionOpener) Open(ctx context.Context, r *http.Request, id auth.Identity, q wire.Stream) (*server.Connection, *limit.Pass, error) {
	return o.enter(ctx, r, id, q, func(ctx context.Context) (*server.Connection, error) {
		open := server.OpenRequest{User: id.User, Device: q.Device, Statuses: q.Statuses}
		if q.Session == "" {
			return o.Server.Open(ctx, open)
		}
		c, err := o.Server.Resume(ctx, resume(r, id, q, true))
		if tidemark.CodeOf(err) != tidemark.Gone && !errors.Is(err, server.ErrUncertain) {
			return c, err
		}
		open.Reset = tidemark.ResetUnknownSession
		return o.Server.Open(ctx, open)
	})
}

// Poll is Open for a long-poll: a session that cannot be resumed is an error, Gone or Unavailable,
// because a new session with each poll would be no better. A session that goes on needs no `open`.
func (o SessionOpener) Poll(ctx context.Context, r *http.Request, id auth.Identity, q wire.Stream) (*server.Connection, *limit.Pass, error) {
	return o.enter(ctx, r, id, q, func(ctx context.Context) (*server.Connection, error) {
		if q.Session == "" {
			return o.Server.Open(ctx, server.OpenRequest{User: id.User, Device: q.Device, Statuses: q.Statuses})
		}
		//rule:resume_lossless.poll-keeps-its-session
		return o.Server.Resume(ctx, resume(r, id, q, false))
	})
}

// resume asks for the session that a client names.
func resume(r *http.Request, id auth.Identity, q wire.Stream, announce bool) server.ResumeRequest {
	return server.ResumeRequest{
		User: id.User, Session: q.Session, After: q.After, Announce: announce,
		//rule:resume_lossless.ask-whether-client-left
		Yield: func() bool { return r.Context().Err() != nil },
	}
}

// enter checks the limits and enters the gate, before it connects the client.
func (o SessionOpener) enter(
	ctx context.Context, r *http.Request, id auth.Identity, q wire.Stream,
	connect func(context.Context) (*server.Connection, error),
) (*server.Connection, *limit.Pass, error) {
	cost := limit.Call
	if q.Session == "" {
		cost = limit.LargeCall
	}
	if err := o.Limit.Call(id.User, cost); err != nil {
		return nil, nil, err
	}
	pass, err := o.Gate.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	opening, cancel := Detached(r)
	defer cancel()
	session, err := connect(opening)
	if err != nil {
		pass.Leave()
		if tidemark.CodeOf(err) == tidemark.Exhausted {
			err = problem.RetryAfter(err, fewerSessionsFrom+rand.N(fewerSessionsTo-fewerSessionsFrom))
		}
		return nil, nil, err
	}
	o.Auth.Bind(opening, id, session.Session())
	return session, pass, nil
}

// Detached returns the context for what is done for a request whether or not its client closes its side meanwhile: it has the request's values, and ends after
// CallTimeout.
func Detached(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), CallTimeout)
}
