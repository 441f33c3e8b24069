package postgres

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/tickets"
)

// TicketsConfig configures Tickets. Pool is required.
type TicketsConfig struct {
	Pool *pgxpool.Pool
	// TTL is how long a ticket can be redeemed. Default 30 s.
	TTL time.Duration
	// ResumeWindow is how long a ticket is valid for its session after the last connection ended.
	// Default 60 s.
	ResumeWindow time.Duration
	// Patience bounds a statement. Default 1 s.
	Patience time.Duration
	// Logger is slog.Default() by default. It never gets the name of a ticket.
	Logger *slog.Logger
}

// Tickets implements auth.Tickets on Postgres.
type Tickets = tickets.Tickets

// NewTickets returns the tickets of this node. It starts nothing.
func NewTickets(cfg TicketsConfig) *Tickets {
	return tickets.New(tickets.Config{
		Store: &store{cfg.Pool, cmp.Or(cfg.Patience, patience)}, Place: "the database",
		TTL: cfg.TTL, ResumeWindow: cfg.ResumeWindow, Logger: cfg.Logger,
	})
}

// store implements tickets.Store.
type store struct {
	pool     *pgxpool.Pool
	patience time.Duration
}

// Start implements tickets.Store.
func (*store) Start() {}

// Stop implements tickets.Store.
func (*store) Stop() {}

// millis returns a time in Unix ms, or 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// The statements of a ticket. Each is one atomic step.
const (
	issue = `INSERT INTO tickets (hash, user_id, expires, key, until)
VALUES ($1, $2, $3, $4, ` + now + ` + $5) ON CONFLICT DO NOTHING`
	look = `SELECT user_id, expires, key FROM tickets WHERE hash = $1 AND until > ` + now
)

// redeem accepts a ticket once, for an attempt, and from then on for its session.
//
//rule:ticket_once.redeem-statement
const redeem = `UPDATE tickets SET redeemed = coalesce(redeemed, $3)
WHERE hash = $1 AND until > ` + now + `
	AND (redeemed IS NULL OR redeemed = $3 OR $2 <> '' AND session = $2)
RETURNING user_id, expires, key`

// hold binds tickets to sessions, or prolongs those that no other session has. Tickets are in
// order, so two statements never wait for each other.
//
//rule:ticket_once.hold-statement
const hold = `INSERT INTO tickets AS t (hash, user_id, expires, key, redeemed, session, until)
SELECT n.hash, n.user_id, n.expires, n.key, '-', n.session, ` + now + ` + n.life
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])
	AS n (hash, user_id, expires, key, session, life) ORDER BY n.hash
ON CONFLICT (hash) DO UPDATE SET redeemed = coalesce(t.redeemed, '-'),
	session = excluded.session, until = excluded.until
WHERE $7 OR t.session IS NULL OR t.session = excluded.session OR t.until <= ` + now + `
RETURNING hash`

// Issue implements tickets.Store.
func (s *store) Issue(ctx context.Context, new tickets.Issued) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	_, err := s.pool.Exec(ctx, issue, new.Hash, string(new.User), millis(new.Expires), new.Key,
		new.Life.Milliseconds())
	return err
}

// Ask implements tickets.Store.
func (s *store) Ask(ctx context.Context, q tickets.Question) (auth.Ticket, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	var user, id string
	var expires int64
	text, parameters := look, []any{q.Hash}
	if q.Redeem {
		text, parameters = redeem, append(parameters, string(q.Session), q.Attempt)
	}
	err := s.pool.QueryRow(ctx, text, parameters...).Scan(&user, &expires, &id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return auth.Ticket{}, false, nil
	case err != nil:
		return auth.Ticket{}, false, err
	}
	t := auth.Ticket{User: tidemark.UserID(user), Key: id}
	if expires > 0 {
		t.Expires = time.UnixMilli(expires)
	}
	return t, true, nil
}

// Hold implements tickets.Store. All are bound, or all prolonged.
func (s *store) Hold(ctx context.Context, all []tickets.Holding) []tickets.Held {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	var hashes, users, keys, sessions []string
	var expires, lives []int64
	places, bind := make(map[string]int, len(all)), false
	for i, h := range all {
		hashes, users = append(hashes, h.Hash), append(users, string(h.User))
		keys, sessions = append(keys, h.Key), append(sessions, string(h.Session))
		expires, lives = append(expires, millis(h.Expires)), append(lives, h.Life.Milliseconds())
		places[h.Hash], bind = i, h.Bind
	}
	done := make([]tickets.Held, len(all))
	rows, err := s.pool.Query(ctx, hold, hashes, users, expires, keys, sessions, lives, bind)
	var kept []string
	if err == nil {
		kept, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	for _, hash := range kept {
		done[places[hash]].Kept = true
	}
	for i := range done {
		done[i].Err = err
	}
	return done
}

// sweepRows is how many rows of a kind one statement removes.
const sweepRows = 1_000

// The statements that remove what is over. They wait for no lock.
const (
	sweepTickets = `DELETE FROM tickets WHERE hash = ANY(ARRAY(SELECT hash FROM tickets
	WHERE until < ` + now + ` LIMIT $1 FOR UPDATE SKIP LOCKED))`
	sweepRates = `DELETE FROM rates WHERE (bucket, user_id) IN (SELECT bucket, user_id FROM rates
	WHERE until < ` + now + ` LIMIT $1 FOR UPDATE SKIP LOCKED)`
)

// sweepEvery is how often a node removes tickets and buckets that are over. Each time reads both
// tables, which have what was used in the last minutes.
const sweepEvery = 30 * time.Second

// Sweep removes tickets and buckets that are over, until ctx ends.
func Sweep(ctx context.Context, pool *pgxpool.Pool) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			sweep(ctx, pool)
		case <-ctx.Done():
			return
		}
	}
}

// sweep removes them once. A failure changes nothing.
func sweep(ctx context.Context, pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, text := range []string{sweepTickets, sweepRates} {
		for {
			gone, err := pool.Exec(ctx, text, sweepRows)
			if err != nil || gone.RowsAffected() < sweepRows {
				break
			}
		}
	}
}
