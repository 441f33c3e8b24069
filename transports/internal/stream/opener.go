package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// A client with too many sessions is asked to retry after a random time between these bounds. A
// session ends a minute after its connection.
const (
	fewerSessionsFrom = 10 * time.Second
	fewerSessionsTo   = 60 * time.Second
)

// SessionOpener opens sessions for the clients of all stream adapters.
type SessionOpener struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit bounds how often a user may open a session. If it is nil, there is no limit.
	Limit *limit.Limiter
	// Gate bounds how many clients catch up at a time. If it is nil, there is no bound.
	Gate *limit.Gate
}

// Admit returns Exhausted if the user may not open a stream now. It must precede Open.
func (o SessionOpener) Admit(id auth.Identity, q wire.Stream) error {
	cost := limit.Call
	if q.Session == "" {
		cost = limit.LargeCall
	}
	_, err := o.Limit.Call(id.Caller, cost)
	return err
}

// Open resumes the session that q names. If there is none, or it is gone, it opens a new one; a
// client that named another session gets a reset. Open also returns the client's place in the gate,
// which the client keeps until it has caught up. The caller must call Auth.Leave when the
// connection ends.
//
// It waits for the place until ctx ends, which is the connection's context. left reports whether
// the client has closed its side. Such a client still gets an answer, but no session that another
// connection reads: most likely the client has come back on that connection.
func (o SessionOpener) Open(
	ctx context.Context, r *http.Request, id auth.Identity, q wire.Stream, left func() bool,
) (*server.Connection, *limit.Pass, error) {
	return o.enter(ctx, r, id, func(ctx context.Context) (*server.Connection, error) {
		open := server.OpenRequest{
			User: id.User, Device: q.Device, Statuses: q.Statuses, Issued: id.Issued,
		}
		if q.Session == "" {
			return o.Server.Open(ctx, open)
		}
		c, err := o.Server.Resume(ctx, resume(id, q, true, left))
		if tidemark.CodeOf(err) != tidemark.Gone && !errors.Is(err, server.ErrUncertain) {
			return c, err
		}
		open.Reset = tidemark.ResetUnknownSession
		return o.Server.Open(ctx, open)
	})
}

// Poll is Admit and Open for a long-poll. If the session cannot be resumed, it returns Gone or
// Unavailable: a new session with each poll would not help. A resumed session gets no `session`
// event.
func (o SessionOpener) Poll(
	ctx context.Context, r *http.Request, id auth.Identity, q wire.Stream,
) (*server.Connection, *limit.Pass, error) {
	if err := o.Admit(id, q); err != nil {
		return nil, nil, err
	}
	return o.enter(ctx, r, id, func(ctx context.Context) (*server.Connection, error) {
		if q.Session == "" {
			return o.Server.Open(ctx, server.OpenRequest{
				User:     id.User,
				Device:   q.Device,
				Statuses: q.Statuses,
				Issued:   id.Issued,
			})
		}
		//rule:resume_lossless.poll-keeps-its-session
		return o.Server.Resume(ctx, resume(id, q, false, Left(r)))
	})
}

// Left returns a function that reports whether the client of a request has closed its side. It
// works only while net/http reads the connection.
func Left(r *http.Request) func() bool {
	return func() bool { return r.Context().Err() != nil }
}

// resume returns the request to resume the session that q names.
func resume(
	id auth.Identity, q wire.Stream, announce bool, left func() bool,
) server.ResumeRequest {
	return server.ResumeRequest{
		User: id.User, Session: q.Session, After: q.After, Announce: announce, Issued: id.Issued,
		//rule:resume_lossless.ask-whether-client-left
		Yield: left,
	}
}

// enter enters the gate, and then calls connect.
func (o SessionOpener) enter(
	ctx context.Context, r *http.Request, id auth.Identity,
	connect func(context.Context) (*server.Connection, error),
) (*server.Connection, *limit.Pass, error) {
	pass, err := o.Gate.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	opening, cancel := api.Detached(r)
	defer cancel()
	session, err := connect(opening)
	if err != nil {
		pass.Leave()
		if tidemark.CodeOf(err) == tidemark.Exhausted {
			err = problem.RetryAfter(err,
				fewerSessionsFrom+rand.N(fewerSessionsTo-fewerSessionsFrom))
		}
		return nil, nil, err
	}
	o.Auth.Bind(opening, id, session.Session())
	return session, pass, nil
}
