package auth

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// MaxUserTickets bounds the tickets of one user.
const MaxUserTickets = 128

// Ticket is what a ticket stands for: a user in a browser. It never allows what needs a backend.
type Ticket struct {
	User tidemark.UserID
	// Expires is the end of the credentials with which the ticket was made. Zero means never.
	Expires time.Time
	// Key is the id of the API key that the ticket was made with, or "" if there is none.
	Key string
	// Issued is when these credentials were issued. It is kept in the name of the ticket.
	Issued time.Time
}

// Tickets stores tickets. A new ticket can be redeemed once, within TicketTTL, by the client that
// shows its name. From then on it is valid for the session that it opened: while a connection holds
// the session, and for the resume window afterwards. Implementations are safe for concurrent use.
//
// Errors: Unauthenticated if there is no such ticket or it is not valid for this use; Unavailable
// if that cannot be known now.
type Tickets interface {
	// Issue stores a new ticket and returns its name, one of NewName. Exhausted if the user or the
	// server has too many.
	Issue(ctx context.Context, t Ticket) (name string, expires time.Time, err error)
	// Redeem accepts a new ticket once, and a bound one for its session. session is "" if the
	// client names none.
	Redeem(ctx context.Context, name string, session tidemark.SessionID) (Ticket, error)
	// Look accepts a ticket that is new or bound, and does not use it up.
	Look(ctx context.Context, name string) (Ticket, error)
	// Bind records that a connection of this node holds the session, on a ticket that was redeemed.
	// From then on the ticket is valid for this session only.
	Bind(ctx context.Context, name string, t Ticket, session tidemark.SessionID)
	// Leave records that the connection has ended. It does not block.
	Leave(name string, session tidemark.SessionID)
}

// NewName returns a new name for the ticket, which says when the credentials were issued. A client
// cannot change that: a ticket is found by its whole name.
func (t Ticket) NewName() string {
	return rand.Text() + "." + strconv.FormatInt(t.Issued.UnixMilli(), 36) // 130 random bits
}

// issuedOf returns when the credentials were issued by which a ticket was made. A name of an
// earlier version does not say.
func issuedOf(name string) time.Time {
	_, text, _ := strings.Cut(name, ".")
	ms, err := strconv.ParseInt(text, 36, 64)
	if err != nil {
		return undated
	}
	return time.UnixMilli(ms)
}

// ErrTicket returns the error for a ticket that is not accepted.
func ErrTicket() error {
	return tidemark.Errorf(tidemark.Unauthenticated,
		"the ticket is unknown, used or expired; get a new one from POST /api/v1/tickets")
}

// ErrTickets returns the error for a user or a server with too many tickets. ttl is how long an
// unused ticket is valid.
func ErrTickets(ttl time.Duration) error {
	return tidemark.Errorf(tidemark.Exhausted,
		"too many tickets wait to be used; try again in %d seconds", int(ttl/time.Second))
}

// Ends returns when a ticket of now ends: after ttl, but not later than its credentials.
func (t Ticket) Ends(now time.Time, ttl time.Duration) time.Time {
	ends := now.Add(ttl)
	if !t.Expires.IsZero() && t.Expires.Before(ends) {
		//rule:credentials_end.expiry-in-answer
		ends = t.Expires
	}
	return ends
}

// over reports whether the credentials with which the ticket was made have ended.
func (t Ticket) over(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }
