// Package auth says who is calling: by a JSON Web Token in the Authorization header, by a ticket in the query of a stream, or, in
// development, by a name alone. Further kinds of credentials (keys of an issuer, API keys of backends) join in Header.
package auth

import (
	"net/http"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// Config configures an Authenticator. With the zero Config nobody can authenticate.
type Config struct {
	// Dev accepts `Bearer dev:<user>` and `?ticket=dev:<user>`. For loopback only.
	Dev bool
	// JWTSecret is the shared secret of HS256 tokens. Empty: no tokens.
	JWTSecret []byte
	// TicketTTL is how long a ticket can be redeemed. Default 30 s.
	TicketTTL time.Duration
	// ResumeWindow is how long a ticket goes on to be accepted for its session after the last connection of the session left; the
	// server's own resume window. Default 60 s.
	ResumeWindow time.Duration
}

// Identity is who is calling.
type Identity struct {
	server.Caller
	// Expires is when the credentials end, and a stream opened with them has to; zero: never.
	Expires time.Time

	// ticket is the ticket by which he came, "" if by a header.
	ticket string
}

// Authenticator checks credentials. It is safe for concurrent use.
type Authenticator struct {
	dev     bool
	tokens  *tokens
	tickets *tickets
}

// New returns an Authenticator.
func New(cfg Config) *Authenticator {
	if cfg.TicketTTL == 0 {
		cfg.TicketTTL = 30 * time.Second
	}
	if cfg.ResumeWindow == 0 {
		cfg.ResumeWindow = 60 * time.Second
	}
	return &Authenticator{
		dev:     cfg.Dev,
		tokens:  newTokens(cfg.JWTSecret),
		tickets: newTickets(cfg.TicketTTL, cfg.ResumeWindow),
	}
}

// devPrefix marks the credentials of development.
const devPrefix = "dev:"

// Header returns who calls according to the Authorization header: the way of all calls but streams. Unauthenticated if there
// are no valid credentials.
func (a *Authenticator) Header(r *http.Request) (Identity, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "credentials are missing; send Authorization: Bearer <token>")
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "the Authorization header must be Bearer <token>")
	}
	token = strings.TrimSpace(token)
	if user, ok := strings.CutPrefix(token, devPrefix); ok {
		return a.devUser(user)
	}
	return a.tokens.verify(token)
}

// Stream returns who opens a stream: by the header, or by ?ticket=. A ticket opens one session; after Bind
// it is accepted again for that session only, named here as the one to be resumed ("" for none).
func (a *Authenticator) Stream(r *http.Request, session tidemark.SessionID) (Identity, error) {
	ticket := r.URL.Query().Get("ticket")
	if ticket == "" || r.Header.Get("Authorization") != "" {
		return a.Header(r)
	}
	if user, ok := strings.CutPrefix(ticket, devPrefix); ok {
		return a.devUser(user)
	}
	return a.tickets.redeem(ticket, session)
}

// Beacon returns who sends a last acknowledgement, by the header or by a ticket that is either not yet redeemed, and stays so, or
// bound to a session: navigator.sendBeacon can set no header.
func (a *Authenticator) Beacon(r *http.Request) (Identity, error) {
	ticket := r.URL.Query().Get("ticket")
	if ticket == "" || r.Header.Get("Authorization") != "" {
		return a.Header(r)
	}
	if user, ok := strings.CutPrefix(ticket, devPrefix); ok {
		return a.devUser(user)
	}
	return a.tickets.look(ticket)
}

// Issue makes a ticket for someone who authenticated otherwise. Exhausted if he, or everybody, has too many.
func (a *Authenticator) Issue(id Identity) (ticket string, expires time.Time, err error) {
	return a.tickets.issue(id)
}

// Bind says that a connection of the identity holds the session now. From then on its ticket, if it came by one, is good for
// resuming the session. Every Bind is followed by a Leave with the same arguments.
func (a *Authenticator) Bind(id Identity, session tidemark.SessionID) {
	if id.ticket != "" {
		a.tickets.bind(id.ticket, session)
	}
}

// Leave says that the connection has ended. When none is left, the ticket ends after Config.ResumeWindow, as the session does.
func (a *Authenticator) Leave(id Identity, session tidemark.SessionID) {
	if id.ticket != "" {
		a.tickets.leave(id.ticket, session)
	}
}

func (a *Authenticator) devUser(user string) (Identity, error) {
	if !a.dev {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "dev: credentials are accepted by serve --dev only")
	}
	if !tidemark.ValidID(user) {
		return Identity{}, tidemark.Errorf(tidemark.Unauthenticated, "the user id behind dev: must be 1 to %d characters of A-Z a-z 0-9 _ . : -", tidemark.MaxIDLength)
	}
	return Identity{Caller: server.Caller{User: tidemark.UserID(user)}}, nil
}
