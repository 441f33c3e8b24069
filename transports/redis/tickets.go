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
	"github.com/tidemark-im/tidemark/transports/auth"
)

const (
	// maxTickets bounds the tickets of this node that are not used yet. auth.MaxUserTickets bounds
	// those of one user.
	maxTickets = 100_000
	// tripCalls bounds the calls in one round trip.
	tripCalls = 1_000
	// holdAtOnce bounds the tickets that one round trip prolongs.
	holdAtOnce = 500
	// prolongEvery is how often a node looks for tickets to prolong or to forget.
	prolongEvery = 2 * time.Second
)

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

// Tickets implements auth.Tickets on Redis: any node can redeem a ticket of any node, once. Redis
// gets only a hash of a ticket's name, so a reader of Redis cannot use the ticket. A ticket ends by
// the clock of Redis. While a connection holds its session, the connection's node prolongs it. If
// that node is killed, the ticket ends after at most twice the resume window.
//
// While Redis cannot be reached, no ticket can be issued, and none redeemed, because it may be used
// already. A ticket whose session this node holds still resumes that session. If Redis loses its
// data, the nodes store the tickets of their sessions again. Clients need to replace all others.
type Tickets struct {
	cfg TicketsConfig
	// trips makes the round trips. Concurrent callers share one. If Redis does not answer, they get
	// an error and do not wait one after the other.
	trips *batch.Batcher[redis.Call, redis.Reply]
	// The scripts are the atomic steps of a ticket.
	issue, redeem, look, hold *redis.Script
	failures                  atomic.Int64

	mu sync.Mutex
	// held maps names to the tickets whose session a connection of this node holds, or held less
	// than a resume window ago.
	held map[string]*held
	// issued holds the tickets that this node issued and that have not ended, ordered by their end.
	issued []issued
	byUser map[tidemark.UserID]int
}

// held is a ticket whose session is or was on this node.
type held struct {
	auth.Ticket
	session     tidemark.SessionID
	connections int
	// left is when the last connection ended, if there is none now.
	left time.Time
	// due is when Redis needs the next call for the ticket.
	due time.Time
}

type issued struct {
	user tidemark.UserID
	ends time.Time
}

// NewTickets returns the tickets of this node. It starts nothing: calls are answered once Run runs.
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

// trip makes a round trip. It returns an error only if all calls failed.
func (s *Tickets) trip(ctx context.Context, calls []redis.Call) ([]redis.Reply, error) {
	replies := s.cfg.Client.Run(ctx, calls)
	return replies, redis.AllFailed(replies)
}

// key returns the key of a ticket in Redis.
func key(name string) string {
	sum := sha256.Sum256([]byte(name))
	//rule:ticket_once.hash-ticket-name
	return "ticket:" + hex.EncodeToString(sum[:16])
}

// millis returns a time for Redis in Unix ms, or 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Issue implements auth.Tickets. The bounds apply to the tickets that this node issued.
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

// admit counts a new ticket of a user. It returns false if there are too many.
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

// ask makes a call that returns a ticket.
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

// call makes one call. Its error is Unavailable and says what the caller can do.
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

// over reports whether the ticket has ended: there is no connection, and the resume window is over.
func (h *held) over(now time.Time, resume time.Duration) bool {
	return h.connections == 0 && !now.Before(h.left.Add(resume))
}

// Bind implements auth.Tickets. If Redis does not answer, Run tries again.
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
	bound := *h
	s.mu.Unlock()
	if _, err := s.call(ctx, s.holding(name, bound, now, "bind")); err != nil {
		s.cfg.Logger.Warn("a ticket could not be bound to its session in Redis; "+
			"the node tries again", "session", session, "error", err)
		s.mu.Lock()
		//rule:ticket_once.write-again-when-redis-returns
		h.due = now
		s.mu.Unlock()
	}
}

// Leave implements auth.Tickets. Run informs Redis.
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

// holding returns the call that prolongs a ticket. While there is a connection, the ticket lives
// for two resume windows, and the next call comes after half of one. Afterwards it lives until the
// resume window is over. So a node that has lost a session ends no ticket of a session that moved.
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
