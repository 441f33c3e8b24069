// Package auth authenticates callers. A caller shows a JSON Web Token or an API key in the
// Authorization header, or a ticket in the query of a stream. In development a user name is enough.
package auth

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// Config configures an Authenticator. The zero Config accepts no credentials.
type Config struct {
	// Dev accepts `Bearer dev:<user>` and `?ticket=dev:<user>`. It is for loopback addresses only.
	Dev bool
	// JWTSecret is the shared secret of HS256 tokens. If it is empty, they are refused.
	JWTSecret []byte
	// PreviousSecret verifies tokens that were signed before JWTSecret was changed, unless it is
	// empty. It signs none.
	PreviousSecret []byte
	// JWKS holds the keys of RS256, ES256 and EdDSA tokens. If it is nil, they are refused.
	JWKS *JWKS
	// Issuer must be the iss of a token, and Audience must be among its aud. An empty one is not
	// checked.
	Issuer, Audience string
	// APIKeys holds the keys of backends. If it is nil, they are refused.
	APIKeys *APIKeys
	// TicketTTL is how long a ticket can be redeemed. Default 30 s.
	TicketTTL time.Duration
	// ResumeWindow is how long a ticket is valid for its session after the session's last
	// connection ended. It must be the server's resume window. Default 60 s.
	ResumeWindow time.Duration
	// Erasures knows who was erased: their credentials are refused. nil: nobody.
	Erasures server.Erasures
	// Tickets stores the tickets. It must have the same TicketTTL and ResumeWindow. Default: in
	// memory, which is enough for one node; several nodes need a shared store.
	Tickets Tickets
	// Access says which users may call. If it is nil, all may.
	Access Access
}

// Access says which users may call.
type Access interface {
	// Allowed returns nil if a user may call with credentials that were issued at a time. A zero
	// time stands for credentials that outlast a sign-out. Else the error is Denied,
	// Unauthenticated or Unavailable.
	Allowed(ctx context.Context, user tidemark.UserID, issued time.Time) error
	// SignedOut returns when a user has signed out last, or zero. Error: Unavailable.
	SignedOut(ctx context.Context, user tidemark.UserID) (time.Time, error)
}

// UserHeader names the user for whom a backend calls.
const UserHeader = "X-User-ID"

// Identity is an authenticated caller.
type Identity struct {
	server.Caller
	// Expires is when the credentials end, and with them a stream. Zero means never.
	Expires time.Time

	// Issued is when the credentials were issued. It is zero for API keys and in development, which
	// a sign-out does not concern, and undated if the credentials do not say when.
	Issued time.Time

	// key is the API key of the caller, or of the backend that made their token or ticket. It is
	// nil if there is none.
	key *apiKey
	// ticket is the name of the caller's ticket, or "" if they sent a header.
	ticket string
	// by has checked the credentials, or is nil.
	by *Authenticator
}

// Ended returns nil while the credentials are valid. Afterwards it returns Unauthenticated with the
// reason. An API key may be withdrawn at any time, so a stream calls Ended at each heartbeat.
func (id Identity) Ended() error {
	switch {
	case !id.Expires.IsZero() && !time.Now().Before(id.Expires):
		return tidemark.Errorf(tidemark.Unauthenticated,
			"the token has expired; connect again with a new one")
	case id.key != nil && id.key.withdrawn.Load() && !id.Backend:
		return errMaker()
	case id.key != nil && id.key.withdrawn.Load():
		return tidemark.Errorf(tidemark.Unauthenticated,
			"the API key was withdrawn; ask the operator for a new one")
	}
	return id.by.erased(id.User)
}

// erased returns Denied if a user was erased.
func (a *Authenticator) erased(user tidemark.UserID) error {
	if a == nil || a.erasures == nil || user == "" {
		return nil
	}
	//rule:erased_nowhere.credentials-are-refused
	return a.erasures.Erased(user)
}

// admit returns an identity whose credentials were checked, unless its user was erased.
func (a *Authenticator) admit(id Identity) (Identity, error) {
	if err := a.erased(id.User); err != nil {
		return Identity{}, err
	}
	if a.erasures != nil {
		id.by = a
	}
	return id, nil
}

// KeyName returns the name of the API key that calls, or "" if a user calls.
func (id Identity) KeyName() string {
	if !id.Backend || id.key == nil {
		return ""
	}
	return id.key.name
}

// Payer returns the caller against whose rates a call counts: the user, or the API key itself if it
// names no user.
func (id Identity) Payer() server.Caller {
	//rule:bounded_use.key-pays-without-user
	if id.User == "" {
		// No user has this id, because it is not valid.
		return server.Caller{User: tidemark.UserID("key/" + id.key.id), Backend: true}
	}
	return id.Caller
}

// Authenticator checks credentials. It is safe for concurrent use.
type Authenticator struct {
	dev     bool
	jwks    *JWKS
	tokens  *tokens
	keys    *APIKeys
	tickets Tickets
	access  Access
	// erasures may be nil.
	erasures server.Erasures
}

// undated is the time of issue of tokens that do not say when they were issued. A sign-out refuses
// all of them.
var undated = time.Unix(0, 0)

// allowed returns the identity of a caller if they may call. Errors: those of Access.
func (a *Authenticator) allowed(ctx context.Context, id Identity) (Identity, error) {
	if a.access == nil || id.User == "" {
		return a.admit(id)
	}
	//rule:suspended_does_nothing.ask-at-each-call
	if err := a.access.Allowed(ctx, id.User, id.Issued); err != nil {
		return Identity{}, err
	}
	return a.admit(id)
}

// New returns an Authenticator. It starts nothing: Run fetches the issuer's keys and rereads the
// file of API keys.
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
		access:  cfg.Access,

		erasures: cfg.Erasures,
	}
}

// Run keeps the issuer's keys and the API keys up to date until ctx ends.
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

// HasIssuer reports whether the Authenticator needs keys of an issuer.
func (a *Authenticator) HasIssuer() bool { return a.jwks != nil }

// Ready returns Unavailable until the issuer's keys have been fetched. Without an issuer it returns
// nil.
func (a *Authenticator) Ready() error {
	if a.jwks == nil {
		return nil
	}
	return a.jwks.ready()
}

// Counters returns the metrics by name (transports.CounterFunc). It leaves out tickets if the
// Config had a store of its own, which has its own counters.
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

// devPrefix marks the credentials of development mode.
const devPrefix = "dev:"

// Header returns the caller that the Authorization header names. The calls that need a user use it.
//
// Errors: Unauthenticated (no valid credentials, or the user has signed out), Unavailable (they
// cannot be checked now), Invalid and Denied (X-User-ID), Denied (the user is suspended, or was
// erased).
func (a *Authenticator) Header(r *http.Request) (Identity, error) {
	id, err := a.HeaderOrKey(r)
	if err != nil {
		return Identity{}, err
	}
	//rule:caller_does_only_what_they_may.backend-names-user
	if id.User == "" {
		return Identity{}, tidemark.BadParam(tidemark.Invalid, UserHeader,
			"is missing; with an API key this call must name the user for whom you call")
	}
	return id, nil
}

// HeaderOrKey returns the caller like Header, but an API key needs no user: without X-User-ID the
// User of the Identity is "", and the backend calls for itself. The errors are those of Header.
func (a *Authenticator) HeaderOrKey(r *http.Request) (Identity, error) {
	headers := r.Header.Values("Authorization")
	switch {
	case len(headers) == 0 || len(headers) == 1 && headers[0] == "":
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"credentials are missing; send Authorization: Bearer <token>")
	//rule:caller_does_only_what_they_may.one-credential-header
	case len(headers) > 1: // a proxy in front may have checked another one
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"there is more than one Authorization header; send one")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"the Authorization header must be Bearer <token>")
	}
	token = strings.TrimSpace(token)
	var id Identity
	var err error
	if strings.HasPrefix(token, apiKeyPrefix) {
		if id, err = a.backend(r, token); err != nil {
			return Identity{}, err
		}
		return a.allowed(r.Context(), id)
	}
	if user, ok := strings.CutPrefix(token, devPrefix); ok {
		id, err = a.devUser(user)
	} else {
		id, err = a.tokens.verify(r.Context(), token)
	}
	if err != nil {
		return Identity{}, err
	}
	if err := checkOwnUser(r, id); err != nil {
		return Identity{}, err
	}
	return a.allowed(r.Context(), id)
}

// backend returns a backend with the user whom it names, or without a user if it names none. Any
// id is accepted: users are not registered.
func (a *Authenticator) backend(r *http.Request, secret string) (Identity, error) {
	key, err := a.keys.find(secret)
	if err != nil {
		return Identity{}, err
	}
	user, err := userHeader(r)
	if err != nil {
		return Identity{}, err
	}
	caller := server.Caller{
		User: user, Backend: true, Moderates: slices.Contains(key.scopes, ScopeModerate),
	}
	return Identity{Caller: caller, key: key}, nil
}

// checkOwnUser returns Denied if a user's request names another user in X-User-ID. Otherwise a
// backend that forgot its API key would act as the wrong user unnoticed.
func checkOwnUser(r *http.Request, id Identity) error {
	user, err := userHeader(r)
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.own-user-header-only
	if user != "" && user != id.User {
		return tidemark.BadParam(tidemark.Denied, UserHeader,
			"names another user than the credentials do; only an API key may act for others")
	}
	return nil
}

// userHeader returns the user of X-User-ID, or "" if there is none.
func userHeader(r *http.Request) (tidemark.UserID, error) {
	values := r.Header.Values(UserHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", tidemark.BadParam(tidemark.Invalid, UserHeader,
			"must be one user id, and there are %d", len(values))
	}
	return tidemark.UserID(values[0]), tidemark.CheckID(UserHeader, values[0])
}

// Stream returns the caller who opens a stream, by the header or by ?ticket=. A ticket opens one
// session. After Bind it is accepted again only to resume that session. session is the one that the
// caller wants to resume, or "". The errors are those of Header, and Denied (the API key lacks
// ScopeAct).
func (a *Authenticator) Stream(r *http.Request, session tidemark.SessionID) (Identity, error) {
	id, err := a.byTicket(r,
		func(name string) (Ticket, error) { return a.tickets.Redeem(r.Context(), name, session) })
	if err != nil {
		return id, err
	}
	//rule:caller_does_only_what_they_may.streams-need-the-scope
	return id, id.Permits(ScopeAct)
}

// Beacon returns the caller who sends a last acknowledgement, by the header or by a ticket.
// navigator.sendBeacon cannot set a header. The ticket must be unused or bound to a session, and
// Beacon does not use it up. The errors are those of Header.
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
	if err := checkOwnUser(r, id); err != nil {
		return Identity{}, err
	}
	return a.allowed(r.Context(), id)
}

// holder returns the identity of an accepted ticket. It returns Unauthenticated if the credentials
// that the ticket was made with have ended.
func (a *Authenticator) holder(name string, t Ticket) (Identity, error) {
	//rule:caller_does_only_what_they_may.ticket-is-for-user
	id := Identity{
		Caller: server.Caller{User: t.User}, Expires: t.Expires, ticket: name,
		//rule:signed_out_stays_out.date-in-the-ticket
		Issued: issuedOf(name),
	}
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

// asTicket returns what a ticket of the identity stands for. A ticket is for a browser, so it never
// allows what needs a backend.
func (id Identity) asTicket() Ticket {
	t := Ticket{User: id.User, Expires: id.Expires}
	if id.key != nil {
		t.Key = id.key.id
	}
	return t
}

// Issue returns a new ticket for an authenticated caller. It returns Exhausted if the user or the
// server has too many, and Unavailable if the ticket cannot be stored now.
func (a *Authenticator) Issue(
	ctx context.Context, id Identity,
) (ticket string, expires time.Time, err error) {
	issued := id.Issued
	if issued.IsZero() {
		issued = time.Now()
		if a.access != nil {
			after, err := a.access.SignedOut(ctx, id.User)
			if err != nil {
				return "", time.Time{}, err
			}
			issued = later(issued, after.Add(time.Millisecond))
		}
	}
	t := id.asTicket()
	t.Issued = issued
	return a.tickets.Issue(ctx, t)
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Bind records that a connection of the identity holds the session. From then on the identity's
// ticket, if there is one, can resume this session only. The caller must call Leave with the same
// identity and session.
func (a *Authenticator) Bind(ctx context.Context, id Identity, session tidemark.SessionID) {
	if id.ticket != "" {
		a.tickets.Bind(ctx, id.ticket, id.asTicket(), session)
	}
}

// Leave records that the connection has ended. If it was the last one, the ticket ends after
// Config.ResumeWindow, like the session.
func (a *Authenticator) Leave(id Identity, session tidemark.SessionID) {
	if id.ticket != "" {
		a.tickets.Leave(id.ticket, session)
	}
}

func (a *Authenticator) devUser(user string) (Identity, error) {
	//rule:caller_does_only_what_they_may.development-only
	if !a.dev {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated,
			"credentials that begin with dev: are accepted by serve --dev only")
	}
	if err := tidemark.CheckID("the user id after dev:", user); err != nil {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "%s", tidemark.DetailOf(err))
	}
	return Identity{Caller: server.Caller{User: tidemark.UserID(user)}}, nil
}
