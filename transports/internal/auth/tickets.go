package auth

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// MaxUserTickets bounds the tickets of one user.
const MaxUserTickets = 128

// Ticket is what a ticket stands for: a user in his browser, who can do nothing for which he needs a backend.
type Ticket struct {
	User tidemark.UserID
	// Expires is when the credentials end with which it was made; zero: never.
	Expires time.Time
	// Key names the API key with which it was made, by a part of its hash; "" if by none.
	Key string
}

// Tickets keeps the tickets that are alive. One that was issued can be redeemed once, for TicketTTL, by whoever shows its name; from then on it is good for the
// session that it opened, while a connection holds the session and for the resume window afterwards. Safe for concurrent use.
//
// Errors: Unauthenticated, if there is no such ticket, or not for this; Unavailable, if that cannot be known now.
type Tickets interface {
	// Issue makes a ticket. Exhausted if its user, or everybody, has too many.
	Issue(ctx context.Context, t Ticket) (name string, expires time.Time, err error)
	// Redeem accepts a ticket once, and then for the session that it opened ("" is none).
	Redeem(ctx context.Context, name string, session tidemark.SessionID) (Ticket, error)
	// Look accepts a ticket that is fresh or bound, and uses nothing up.
	Look(ctx context.Context, name string) (Ticket, error)
	// Bind says that a connection of this node holds the session now, on a ticket that was redeemed. From then on the ticket is good for this session only.
	Bind(ctx context.Context, name string, t Ticket, session tidemark.SessionID)
	// Leave says that the connection has ended. It does not block.
	Leave(name string, session tidemark.SessionID)
}

// ErrTicket is the error of a ticket that is not accepted.
func ErrTicket() error {
	return tidemark.Errorf(tidemark.Unauthenticated,
		"the ticket is unknown, used or has ended; get a new one from POST /api/v1/tickets")
}

// ErrTickets is the error of somebody who has too many tickets, or of everybody when there are too many. Each can be used for ttl.
func ErrTickets(ttl time.Duration) error {
	return tidemark.Errorf(tidemark.Exhausted,
		"too many tickets wait to be used; try again in %d seconds", int(ttl/time.Second))
}

// Ends is when a ticket ends that can be used for ttl from now on, but not after its credentials.
func (t Ticket) Ends(now time.Time, ttl time.Duration) time.Time {
	ends := now.Add(ttl)
	if !t.Expires.IsZero() && t.Expires.Before(ends) {
		//rule:credentials_end.expiry-in-answer
		ends = t.Expires
	}
	return ends
}

// over reports whether the credentials have ended with which the ticket was made.
func (t Ticket) over(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }
