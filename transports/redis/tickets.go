package redis

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/tickets"
)

// tripCalls bounds the calls in one round trip.
const tripCalls = 1_000

// TicketsConfig configures Tickets. Client is required.
type TicketsConfig struct {
	Client *redis.Client
	// TTL is how long a ticket can be redeemed. Default 30 s.
	TTL time.Duration
	// ResumeWindow is how long a ticket is valid for its session after the last connection ended.
	// Default 60 s.
	ResumeWindow time.Duration
	// Logger is slog.Default() by default. It never gets the name of a ticket.
	Logger *slog.Logger
}

// Tickets implements auth.Tickets on Redis.
type Tickets = tickets.Tickets

// NewTickets returns the tickets of this node. It starts nothing: calls are answered once Run runs.
func NewTickets(cfg TicketsConfig) *Tickets {
	s := &store{
		client: cfg.Client,
		issue:  redis.NewScript(issue), redeem: redis.NewScript(redeem),
		look: redis.NewScript(look), hold: redis.NewScript(hold),
	}
	s.trips = redis.NewTrips(tripCalls, s.trip)
	return tickets.New(tickets.Config{
		Store: s, Place: "Redis", TTL: cfg.TTL, ResumeWindow: cfg.ResumeWindow, Logger: cfg.Logger,
	})
}

// store implements tickets.Store.
type store struct {
	client *redis.Client
	// trips makes the round trips. Concurrent callers share one. If Redis does not answer, they get
	// an error and do not wait one after the other.
	trips *batch.Batcher[redis.Call, redis.Reply]
	// The scripts are the atomic steps of a ticket.
	issue, redeem, look, hold *redis.Script
}

// trip makes a round trip. It returns an error only if all calls failed.
func (s *store) trip(ctx context.Context, calls []redis.Call) ([]redis.Reply, error) {
	replies := s.client.Run(ctx, calls)
	return replies, redis.AllFailed(replies)
}

// Start implements tickets.Store.
func (s *store) Start() { s.trips.Start() }

// Stop implements tickets.Store.
func (s *store) Stop() { s.trips.Abort() }

// key returns the key of a ticket in Redis.
func key(hash string) []string { return []string{"ticket:" + hash} }

// millis returns a time for Redis in Unix ms, or 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// call makes one call in a shared round trip.
func (s *store) call(ctx context.Context, call redis.Call) (any, error) {
	reply, err := s.trips.DoOne(ctx, call)
	if err == nil {
		err = reply.Err
	}
	return reply.Value, err
}

// Issue implements tickets.Store.
func (s *store) Issue(ctx context.Context, new tickets.Issued) error {
	_, err := s.call(ctx, redis.Call{Script: s.issue, Keys: key(new.Hash), Args: []any{
		string(new.User), millis(new.Expires), new.Key, new.Life.Milliseconds(),
	}})
	return err
}

// Ask implements tickets.Store.
func (s *store) Ask(ctx context.Context, q tickets.Question) (auth.Ticket, bool, error) {
	call := redis.Call{Script: s.look, Keys: key(q.Hash)}
	if q.Redeem {
		call.Script, call.Args = s.redeem, []any{string(q.Session), q.Attempt}
	}
	value, err := s.call(ctx, call)
	if err != nil {
		return auth.Ticket{}, false, err
	}
	fields, _ := value.([]any)
	if len(fields) != 3 {
		return auth.Ticket{}, false, nil
	}
	user, _ := fields[0].(string)
	until, _ := fields[1].(string)
	id, _ := fields[2].(string)
	t := auth.Ticket{User: tidemark.UserID(user), Key: id}
	if ms, err := strconv.ParseInt(until, 10, 64); err == nil && ms > 0 {
		t.Expires = time.UnixMilli(ms)
	}
	return t, true, nil
}

// Hold implements tickets.Store.
func (s *store) Hold(ctx context.Context, all []tickets.Holding) []tickets.Held {
	calls := make([]redis.Call, len(all))
	for i, h := range all {
		how := "keep"
		if h.Bind {
			how = "bind"
		}
		calls[i] = redis.Call{Script: s.hold, Keys: key(h.Hash), Args: []any{
			string(h.User), millis(h.Expires), h.Key, string(h.Session), h.Life.Milliseconds(), how,
		}}
	}
	done := make([]tickets.Held, len(all))
	if len(all) == 1 {
		value, err := s.call(ctx, calls[0])
		done[0] = tickets.Held{Kept: value == int64(1), Err: err}
		return done
	}
	for i, reply := range s.client.Run(ctx, calls) {
		done[i] = tickets.Held{Kept: reply.Value == int64(1), Err: reply.Err}
	}
	return done
}
