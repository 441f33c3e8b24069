package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/transports/internal/auth"
)

const (
	// maxTickets bounds the tickets that this node made and that can be used, auth.MaxUserTickets those of one user.
	maxTickets = 100_000
	// tripCalls bounds what callers put into one round trip.
	tripCalls = 1_000
	// holdAtOnce bounds the tickets that are held in one round trip.
	holdAtOnce = 500
	// tendEvery is how often a node looks which of its tickets are to be held, or let go.
	tendEvery = 2 * time.Second
)

// TicketsConfig configures Tickets. Client is required.
type TicketsConfig struct {
	Client *redis.Client
	// TTL is how long a ticket can be redeemed. Default 30 s.
	TTL time.Duration
	// ResumeWindow is how long a ticket is good for its session after the last connection left. Default 60 s.
	ResumeWindow time.Duration
	// Logger default: slog.Default(). It is never given the name of a ticket.
	Logger *slog.Logger
}

// Tickets is auth.Tickets on Redis: a ticket that one node made can be redeemed at each, once. Redis knows a ticket by a hash of its name, so that who can read
// Redis cannot use it. A ticket ends by Redis' own clock; while a connection holds its session, the connection's node prolongs it. The ticket of a node
// that was killed ends after twice the resume window at the latest.
//
// While Redis is away no ticket can be made, and none be redeemed, since nobody knows whether it was already; those whose session this node holds are still
// good for it. A Redis that was emptied gets those again, the others have to be made anew.
type Tickets struct {
	cfg TicketsConfig
	// trips are the round trips that callers share.
	trips *batch.Batcher[redis.Call, redis.Reply]
	// The scripts are the steps of a ticket, each atomic.
	issue, redeem, look, hold *redis.Script
	failures                  atomic.Int64

	mu sync.Mutex
	// held are the tickets whose session a connection of this node holds, or held a resume window ago, by name.
	held map[string]*held
	// issued are the tickets that this node made and that can be used, in the order in which they end.
	issued []issued
	byUser map[tidemark.UserID]int
}

// held is a ticket that a session of this node was opened with.
type held struct {
	auth.Ticket
	session     tidemark.SessionID
	connections int
	// left is when the last connection left, if there is none.
	left time.Time
	// due is when Redis has to be told next.
	due time.Time
}

type issued struct {
	user tidemark.UserID
	ends time.Time
}

// NewTickets returns the tickets of this node. It starts nothing: nobody is answered before Run.
func NewTickets(cfg TicketsConfig) *Tickets {
	if cfg.TTL == 0 {
		cfg.TTL = 30 * time.Second
	}
	if cfg.ResumeWindow == 0 {
		cfg.ResumeWindow = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Tickets{
		cfg: cfg, held: make(map[string]*held), byUser: make(map[tidemark.UserID]int),
		issue: redis.NewScript(issue), redeem: redis.NewScript(redeem), look: redis.NewScript(look),
		hold: redis.NewScript(hold),
	}
	s.trips = redis.NewTrips(tripCalls, s.trip)
	return s
}

// trip makes a round trip. Its error is that of all calls, if all failed.
func (s *Tickets) trip(ctx context.Context, calls []redis.Call) ([]redis.Reply, error) {
	replies := s.cfg.Client.Run(ctx, calls)
	return replies, redis.AllFailed(replies)
}

// key is where a ticket is kept.
func key(name string) string {
	sum := sha256.Sum256([]byte(name))
	//rule:ticket_once.hash-ticket-name
	return "ticket:" + hex.EncodeToString(sum[:16])
}

// millis writes a time for Redis; 0 is none.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Issue implements auth.Tickets. What bounds it is this node's own count.
func (s *Tickets) Issue(ctx context.Context, t auth.Ticket) (string, time.Time, error) {
	now := time.Now()
	ends := t.Ends(now, s.cfg.TTL)
	if !s.admit(t.User, now) {
		return "", time.Time{}, auth.ErrTickets(s.cfg.TTL)
	}
	name := rand.Text() // 130 bits
	_, err := s.call(ctx, redis.Call{
		Script: s.issue, Keys: []string{key(name)},
		Args: []any{string(t.User), millis(t.Expires), t.Key, max(1, ends.Sub(now).Milliseconds())},
	})
	if err != nil {
		return "", time.Time{}, err
	}
	return name, ends, nil
}

// admit counts a ticket of a user, unless there are too many.
func (s *Tickets) admit(user tidemark.UserID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := 0
	for over < len(s.issued) && !now.Before(s.issued[over].ends) {
		of := s.issued[over].user
		if s.byUser[of]--; s.byUser[of] <= 0 {
			delete(s.byUser, of)
		}
		over++
	}
	s.issued = s.issued[over:]
	if len(s.issued) >= maxTickets || s.byUser[user] >= auth.MaxUserTickets {
		return false
	}
	s.issued = append(s.issued, issued{user, now.Add(s.cfg.TTL)})
	s.byUser[user]++
	return true
}

// Redeem implements auth.Tickets.
func (s *Tickets) Redeem(
	ctx context.Context, name string, session tidemark.SessionID,
) (auth.Ticket, error) {
	t, err := s.ask(ctx, redis.Call{
		Script: s.redeem,
		Keys:   []string{key(name)},
		Args:   []any{string(session), rand.Text()},
	})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		return t, err
	}
	//rule:ticket_once.own-session-without-redis
	if own, ok := s.own(name); ok && session != "" && own.session == session {
		return own.Ticket, nil
	}
	return t, err
}

// Look implements auth.Tickets.
func (s *Tickets) Look(ctx context.Context, name string) (auth.Ticket, error) {
	t, err := s.ask(ctx, redis.Call{Script: s.look, Keys: []string{key(name)}})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		return t, err
	}
	if own, ok := s.own(name); ok {
		return own.Ticket, nil
	}
	return t, err
}

// ask makes a call that answers with a ticket.
func (s *Tickets) ask(ctx context.Context, call redis.Call) (auth.Ticket, error) {
	value, err := s.call(ctx, call)
	if err != nil {
		return auth.Ticket{}, err
	}
	fields, _ := value.([]any)
	if len(fields) != 3 {
		return auth.Ticket{}, auth.ErrTicket()
	}
	user, _ := fields[0].(string)
	until, _ := fields[1].(string)
	id, _ := fields[2].(string)
	t := auth.Ticket{User: tidemark.UserID(user), Key: id}
	if ms, err := strconv.ParseInt(until, 10, 64); err == nil && ms > 0 {
		t.Expires = time.UnixMilli(ms)
	}
	return t, nil
}

// call makes one call. Its error is Unavailable, and says what that means for a ticket.
func (s *Tickets) call(ctx context.Context, call redis.Call) (any, error) {
	reply, err := s.trips.DoOne(ctx, call)
	if err == nil {
		err = reply.Err
	}
	if err != nil {
		s.failures.Add(1)
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"tickets cannot be checked now, because Redis cannot be reached; try again, or send "+
				"the Authorization header")
	}
	return reply.Value, nil
}

// own returns a ticket that this node holds.
func (s *Tickets) own(name string) (held, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[name]
	if h == nil || h.over(time.Now(), s.cfg.ResumeWindow) {
		return held{}, false
	}
	return *h, true
}

// over reports whether nobody can come back with the ticket any more.
func (h *held) over(now time.Time, resume time.Duration) bool {
	return h.connections == 0 && !now.Before(h.left.Add(resume))
}

// Bind implements auth.Tickets. If Redis does not answer, Run tells it later.
func (s *Tickets) Bind(
	ctx context.Context, name string, t auth.Ticket, session tidemark.SessionID,
) {
	now := time.Now()
	s.mu.Lock()
	h := s.held[name]
	if h == nil || h.session != session {
		h = &held{Ticket: t, session: session}
		s.held[name] = h
	}
	h.connections++
	h.due = now.Add(s.cfg.ResumeWindow / 2)
	told := *h
	s.mu.Unlock()
	if _, err := s.call(ctx, s.holding(name, told, now, "bind")); err != nil {
		s.cfg.Logger.Warn("a ticket could not be bound to its session for all nodes; that is "+
			"tried again", "session", session, "error", err)
		s.mu.Lock()
		//rule:ticket_once.write-again-when-redis-returns
		h.due = now
		s.mu.Unlock()
	}
}

// Leave implements auth.Tickets. Run tells Redis.
func (s *Tickets) Leave(name string, session tidemark.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[name]
	if h == nil || h.session != session || h.connections == 0 {
		return
	}
	if h.connections--; h.connections == 0 {
		h.left = time.Now()
	}
}

// holding is the call that keeps a ticket alive: while there is a connection for longer than until the next call, which comes half a resume window later, or else
// until nobody can come back any more. So a node that a session left, and that tells of that once, ends no ticket of one that moved.
func (s *Tickets) holding(name string, h held, now time.Time, how string) redis.Call {
	life := 2 * s.cfg.ResumeWindow
	//rule:credentials_end.shorter-life-without-connection
	if h.connections == 0 {
		life = h.left.Add(s.cfg.ResumeWindow).Sub(now)
	}
	return redis.Call{Script: s.hold, Keys: []string{key(name)}, Args: []any{
		string(h.User), millis(h.Expires), h.Key, string(h.session), max(1, life.Milliseconds()),
		how,
	}}
}
