package stream

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/auth"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// CallTimeout is how long the core may take to open a session, or to read what a poll asks for.
const CallTimeout = 30 * time.Second

// Somebody with too many sessions is told to come back after a random part of a minute from these on: a session ends a minute after its connection.
const (
	fewerSessionsFrom = 10 * time.Second
	fewerSessionsTo   = 60 * time.Second
)

// Door is how a client gets a session, over each of the transports.
type Door struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit may be nil: no limit.
	Limit *limit.Limiter
	// Gate may be nil: everybody enters.
	Gate *limit.Gate
}

// Open opens or resumes a session for a request, and returns the place in the gate that the client holds until it has caught up. Auth.Leave must follow when
// the connection ends.
//
// It waits for the place until ctx ends, which is the connection's. That the client has closed its side ends nothing: one that has only said that it will
// send no more waits for its answer. It takes no session from another connection, though: mostly its client has given it up, and come back by that one.
func (d Door) Open(ctx context.Context, r *http.Request, id auth.Identity, req server.OpenRequest) (*server.Connection, *limit.Pass, error) {
	cost := limit.Call
	if req.Session == "" {
		cost = limit.LargeCall
	}
	if err := d.Limit.Call(id.User, cost); err != nil {
		return nil, nil, err
	}
	pass, err := d.Gate.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	opening, cancel := Detached(r)
	defer cancel()
	req.User = id.User
	//rule:resume_lossless.ask-whether-client-left
	req.Left = func() bool { return r.Context().Err() != nil }
	session, err := d.Server.Open(opening, req)
	if err != nil {
		pass.Leave()
		if tidemark.CodeOf(err) == tidemark.Exhausted {
			err = problem.RetryAfter(err, fewerSessionsFrom+rand.N(fewerSessionsTo-fewerSessionsFrom))
		}
		return nil, nil, err
	}
	d.Auth.Bind(opening, id, session.Session())
	return session, pass, nil
}

// Detached returns the context for what is done for a request whether or not its client closes its side meanwhile: it has the request's values, and ends after
// CallTimeout.
func Detached(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), CallTimeout)
}
