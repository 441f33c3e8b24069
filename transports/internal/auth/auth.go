// Package auth says who is calling: by a JSON Web Token or an API key in the Authorization header, by a ticket in the query of a stream, or, in
// development, by a name alone.
package auth

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// Config configures an Authenticator. With the zero Config nobody can authenticate.
type Config struct {
	// Dev accepts `Bearer dev:<user>` and `?ticket=dev:<user>`. For loopback only.
	Dev bool
	// JWTSecret is the shared secret of HS256 tokens. Empty: no such tokens.
	JWTSecret []byte
	// JWKS is the keys of RS256, ES256 and EdDSA tokens. nil: no such tokens.
	JWKS *JWKS
	// Issuer and Audience are what tokens must have as iss, and among their aud. Empty: whatever they have.
	Issuer, Audience string
	// APIKeys is the keys of backends. nil: none.
	APIKeys *APIKeys
	// TicketTTL is how long a ticket can be redeemed. Default 30 s.
	TicketTTL time.Duration
	// ResumeWindow is how long a ticket goes on to be accepted for its session after the last connection of the session left; the
	// server's own resume window. Default 60 s.
	ResumeWindow time.Duration
	// Tickets keeps the tickets. Default: in memory, as one node does; with several, those that all of them share, which were given the same TicketTTL and
	// ResumeWindow.
	Tickets Tickets
}

// UserHeader names the user for whom a backend acts.
const UserHeader = "X-User-ID"

// Identity is who is calling.
type Identity struct {
	server.Caller
	// Expires is when the credentials end, and a stream opened with them has to; zero: never.
	Expires time.Time

	// key is the API key by which he came, or his ticket was made; nil if by none.
	key *apiKey
	// ticket is the ticket by which he came, "" if by a header.
	ticket string
}

// Ended returns nil while the credentials are good, and afterwards an Unauthenticated error that says why a stream ends. An API key can be
// withdrawn at any time, so a stream asks with each heartbeat.
func (id Identity) Ended() error {
	switch {
	case !id.Expires.IsZero() && !time.Now().Before(id.Expires):
		return tidemark.Errorf(tidemark.Unauthenticated,
			"the token has expired; come back with a new one")
	case id.key != nil && id.key.withdrawn.Load():
		return tidemark.Errorf(tidemark.Unauthenticated, "the API key was withdrawn")
	}
	return nil
}

// Authenticator checks credentials. It is safe for concurrent use.
type Authenticator struct {
	dev     bool
	jwks    *JWKS
	tokens  *tokens
	keys    *APIKeys
	tickets Tickets
}

// New returns an Authenticator. It starts nothing: without Run no keys are fetched, and those of the file stay as they are.
func New(cfg Config) *Authenticator {
	if cfg.TicketTTL == 0 {
		cfg.TicketTTL = 30 * time.Second
	}
	if cfg.ResumeWindow == 0 {
		cfg.ResumeWindow = 60 * time.Second
	}
	if cfg.Tickets == nil {
		cfg.Tickets = newTickets(cfg.TicketTTL, cfg.ResumeWindow)
	}
	return &Authenticator{
		dev:     cfg.Dev,
		jwks:    cfg.JWKS,
		tokens:  newTokens(cfg),
		keys:    cfg.APIKeys,
		tickets: cfg.Tickets,
	}
}

// Run keeps the issuer's keys and the API keys fresh, and returns when ctx has ended.
func (a *Authenticator) Run(ctx context.Context) {
	var group sync.WaitGroup
	if a.jwks != nil {
		group.Go(func() { a.jwks.Run(ctx) })
	}
	if a.keys != nil {
		group.Go(func() { a.keys.Run(ctx) })
	}
	group.Wait()
	<-ctx.Done()
}

// HasIssuer reports whether there is an issuer whose keys have to be fetched.
func (a *Authenticator) HasIssuer() bool { return a.jwks != nil }

// Ready returns nil once the issuer's keys have been fetched, if there is an issuer; Unavailable before.
func (a *Authenticator) Ready() error {
	if a.jwks == nil {
		return nil
	}
	return a.jwks.ready()
}

// Counters returns what was counted, by name. Names that end in _total only grow. Tickets that were given by the Config count for themselves.
func (a *Authenticator) Counters() map[string]int64 {
	counters := map[string]int64{"jwks_fetches_total": 0, "jwks_failures_total": 0}
	if own, ok := a.tickets.(*tickets); ok {
		counters["tickets"] = int64(own.count())
	}
	if a.jwks != nil {
		a.jwks.counters(counters)
	}
	return counters
}

// devPrefix marks the credentials of development.
const devPrefix = "dev:"

// Header returns who calls according to the Authorization header: the way of all calls but streams.
//
// Errors: Unauthenticated (no valid credentials), Unavailable (they cannot be checked now), Invalid and Denied (X-User-ID).
func (a *Authenticator) Header(r *http.Request) (Identity, error) {
	headers := r.Header.Values("Authorization")
	switch {
	case len(headers) == 0 || len(headers) == 1 && headers[0] == "":
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"credentials are missing; send Authorization: Bearer <token>")
	//rule:caller_may_only_what_he_may.one-credential-header
	case len(headers) > 1: // whoever stands before us may have looked at another one
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"there is more than one Authorization header")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"the Authorization header must be Bearer <token>")
	}
	token = strings.TrimSpace(token)
	if strings.HasPrefix(token, apiKeyPrefix) {
		return a.backend(r, token)
	}
	var id Identity
	var err error
	if user, ok := strings.CutPrefix(token, devPrefix); ok {
		id, err = a.devUser(user)
	} else {
		id, err = a.tokens.verify(r.Context(), token)
	}
	if err != nil {
		return Identity{}, err
	}
	return id, speaksForHimself(r, id)
}

// backend returns the user for whom a backend acts. He need not be known: users are not registered.
func (a *Authenticator) backend(r *http.Request, secret string) (Identity, error) {
	key, err := a.keys.find(secret)
	if err != nil {
		return Identity{}, err
	}
	user, err := userHeader(r)
	if err != nil {
		return Identity{}, err
	}
	//rule:caller_may_only_what_he_may.backend-names-user
	if user == "" {
		return Identity{}, tidemark.Errorf(tidemark.Invalid,
			"%s is missing; with an API key it names the user for whom the call is made",
			UserHeader)
	}
	return Identity{Caller: server.Caller{User: user, Backend: true}, key: key}, nil
}

// speaksForHimself refuses a user who names another one: a backend that forgot its key must not act as somebody else unnoticed.
func speaksForHimself(r *http.Request, id Identity) error {
	user, err := userHeader(r)
	if err != nil {
		return err
	}
	//rule:caller_may_only_what_he_may.own-user-header-only
	if user != "" && user != id.User {
		return tidemark.Errorf(tidemark.Denied,
			"%s names another user than the credentials do; only an API key may act for others",
			UserHeader)
	}
	return nil
}

// userHeader returns the user of X-User-ID, "" if there is none.
func userHeader(r *http.Request) (tidemark.UserID, error) {
	values := r.Header.Values(UserHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !tidemark.ValidID(values[0]) {
		return "", tidemark.Errorf(tidemark.Invalid,
			"%s must be one user id: 1 to %d characters of A-Z a-z 0-9 _ . : -", UserHeader,
			tidemark.MaxIDLength)
	}
	return tidemark.UserID(values[0]), nil
}

// Stream returns who opens a stream: by the header, or by ?ticket=. A ticket opens one session; after Bind
// it is accepted again for that session only, named here as the one to be resumed ("" for none). Errors as Header.
func (a *Authenticator) Stream(r *http.Request, session tidemark.SessionID) (Identity, error) {
	return a.byTicket(r,
		func(name string) (Ticket, error) { return a.tickets.Redeem(r.Context(), name, session) })
}

// Beacon returns who sends a last acknowledgement, by the header or by a ticket that is either not yet redeemed, and stays so, or
// bound to a session: navigator.sendBeacon can set no header. Errors as Header.
func (a *Authenticator) Beacon(r *http.Request) (Identity, error) {
	return a.byTicket(r,
		func(name string) (Ticket, error) { return a.tickets.Look(r.Context(), name) })
}

func (a *Authenticator) byTicket(
	r *http.Request, accept func(name string) (Ticket, error),
) (Identity, error) {
	name := r.URL.Query().Get("ticket")
	if name == "" || r.Header.Get("Authorization") != "" {
		return a.Header(r)
	}
	var id Identity
	var err error
	if user, ok := strings.CutPrefix(name, devPrefix); ok {
		id, err = a.devUser(user)
	} else if t, refused := accept(name); refused != nil {
		err = refused
	} else {
		id, err = a.holder(name, t)
	}
	if err != nil {
		return Identity{}, err
	}
	return id, speaksForHimself(r, id)
}

// holder returns who holds a ticket that was accepted. Unauthenticated if his credentials have ended meanwhile.
func (a *Authenticator) holder(name string, t Ticket) (Identity, error) {
	//rule:caller_may_only_what_he_may.ticket-is-for-user
	id := Identity{Caller: server.Caller{User: t.User}, Expires: t.Expires, ticket: name}
	if t.Key != "" {
		if id.key = a.keys.named(t.Key); id.key == nil {
			return Identity{}, ErrTicket()
		}
	}
	if id.Ended() != nil {
		return Identity{}, ErrTicket()
	}
	return id, nil
}

// paper is what a ticket of the identity stands for. It is for a browser: it can do nothing for which its user needs a backend.
func (id Identity) paper() Ticket {
	t := Ticket{User: id.User, Expires: id.Expires}
	if id.key != nil {
		t.Key = id.key.id
	}
	return t
}

// Issue makes a ticket for someone who authenticated otherwise. Exhausted if he, or everybody, has too many; Unavailable if it cannot be kept now.
func (a *Authenticator) Issue(
	ctx context.Context, id Identity,
) (ticket string, expires time.Time, err error) {
	return a.tickets.Issue(ctx, id.paper())
}

// Bind says that a connection of the identity holds the session now. From then on its ticket, if it came by one, is good for
// resuming the session. Every Bind is followed by a Leave with the same arguments.
func (a *Authenticator) Bind(ctx context.Context, id Identity, session tidemark.SessionID) {
	if id.ticket != "" {
		a.tickets.Bind(ctx, id.ticket, id.paper(), session)
	}
}

// Leave says that the connection has ended. When none is left, the ticket ends after Config.ResumeWindow, as the session does.
func (a *Authenticator) Leave(id Identity, session tidemark.SessionID) {
	if id.ticket != "" {
		a.tickets.Leave(id.ticket, session)
	}
}

func (a *Authenticator) devUser(user string) (Identity, error) {
	//rule:caller_may_only_what_he_may.development-only
	if !a.dev {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"dev: credentials are accepted by serve --dev only")
	}
	if !tidemark.ValidID(user) {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"the user id behind dev: must be 1 to %d characters of A-Z a-z 0-9 _ . : -",
			tidemark.MaxIDLength)
	}
	return Identity{Caller: server.Caller{User: tidemark.UserID(user)}}, nil
}
