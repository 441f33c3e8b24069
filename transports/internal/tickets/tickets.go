// Package tickets keeps the tickets that several nodes share: any node can redeem a ticket of any
// node, once. What the nodes share is behind Store, which Redis and Postgres implement.
package tickets

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/auth"
)

const (
	// maxTickets bounds the tickets of this node that are not used yet. auth.MaxUserTickets bounds
	// those of one user.
	maxTickets = 100_000
	// holdAtOnce bounds the tickets that one call prolongs.
	holdAtOnce = 500
	// prolongEvery is how often a node looks for tickets to prolong or to forget.
	prolongEvery = 2 * time.Second
)

// Store has the tickets of all nodes. Each method is one atomic step for each ticket. A ticket ends
// by the clock of the store.
type Store interface {
	// Start and Stop begin and end what the other methods need.
	Start()
	Stop()
	// Issue stores a new ticket.
	Issue(ctx context.Context, new Issued) error
	// Ask returns a ticket. ok is false if there is none, or if it may not be redeemed.
	Ask(ctx context.Context, q Question) (t auth.Ticket, ok bool, err error)
	// Hold binds or prolongs tickets, and says of each whether it has the session now.
	Hold(ctx context.Context, all []Holding) []Held
}

// Issued is a new ticket. Hash stands for its name, and Life is how long it lasts.
type Issued struct {
	auth.Ticket
	Hash string
	Life time.Duration
}

// Question asks for a ticket. If Redeem is set, the ticket is accepted once, for an attempt, and
// from then on for the session that it is bound to. The same attempt may come twice.
type Question struct {
	Hash    string
	Redeem  bool
	Session tidemark.SessionID
	Attempt string
}

// Holding binds a ticket to a session (Bind), or prolongs it unless another session has it. A
// ticket that the store does not have is stored.
type Holding struct {
	Issued
	Session tidemark.SessionID
	Bind    bool
}

// Held is the result for a Holding.
type Held struct {
	Kept bool
	Err  error
}

// Config configures Tickets. Store and Place are required.
type Config struct {
	Store Store
	// Place names what has the tickets, in errors, such as "Redis".
	Place string
	// TTL is how long a ticket can be redeemed. Default 30 s.
	TTL time.Duration
	// ResumeWindow is how long a ticket is valid for its session after the last connection ended.
	// Default 60 s.
	ResumeWindow time.Duration
	// Logger is slog.Default() by default. It never gets the name of a ticket.
	Logger *slog.Logger
}

// Tickets implements auth.Tickets on a Store, which gets only a hash of a ticket's name. So readers
// of the store cannot use the ticket. While a connection holds its session, the node of the
// connection prolongs it. If that node is killed, the ticket ends after at most twice the resume
// window.
//
// While the store cannot be reached, no ticket can be issued, and none redeemed, because it may be
// used already. A ticket whose session this node holds still resumes that session. If the store
// loses its data, the nodes store the tickets of their sessions again. Clients need to replace all
// others.
type Tickets struct {
	cfg      Config
	failures atomic.Int64

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
	// due is when the ticket is to be prolonged.
	due time.Time
}

type issued struct {
	user tidemark.UserID
	ends time.Time
}

// New returns the tickets of this node. It starts nothing: calls are answered once Run runs.
func New(cfg Config) *Tickets {
	if cfg.TTL == 0 {
		cfg.TTL = 30 * time.Second
	}
	if cfg.ResumeWindow == 0 {
		cfg.ResumeWindow = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Tickets{cfg: cfg, held: make(map[string]*held), byUser: make(map[tidemark.UserID]int)}
}

// hashOf returns what stands for a ticket's name.
func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	//rule:ticket_once.hash-ticket-name
	return hex.EncodeToString(sum[:16])
}

// Issue implements auth.Tickets. The bounds apply to the tickets that this node issued.
func (s *Tickets) Issue(ctx context.Context, t auth.Ticket) (string, time.Time, error) {
	now := time.Now()
	ends := t.Ends(now, s.cfg.TTL)
	if !s.admit(t.User, now) {
		return "", time.Time{}, auth.ErrTickets(s.cfg.TTL)
	}
	name := t.NewName()
	err := s.cfg.Store.Issue(ctx, Issued{
		Ticket: t, Hash: hashOf(name), Life: max(time.Millisecond, ends.Sub(now)),
	})
	if err != nil {
		return "", time.Time{}, s.unavailable(err)
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
	t, err := s.ask(ctx, Question{
		Hash: hashOf(name), Redeem: true, Session: session, Attempt: rand.Text(),
	})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		return t, err
	}
	//rule:ticket_once.own-session-without-store
	if own, ok := s.own(name); ok && session != "" && own.session == session {
		return own.Ticket, nil
	}
	return t, err
}

// Look implements auth.Tickets.
func (s *Tickets) Look(ctx context.Context, name string) (auth.Ticket, error) {
	t, err := s.ask(ctx, Question{Hash: hashOf(name)})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		return t, err
	}
	if own, ok := s.own(name); ok {
		return own.Ticket, nil
	}
	return t, err
}

// ask asks the store for a ticket.
func (s *Tickets) ask(ctx context.Context, q Question) (auth.Ticket, error) {
	t, ok, err := s.cfg.Store.Ask(ctx, q)
	switch {
	case err != nil:
		return auth.Ticket{}, s.unavailable(err)
	case !ok:
		return auth.Ticket{}, auth.ErrTicket()
	}
	return t, nil
}

// unavailable counts a failure, and returns the error that says what the caller can do.
func (s *Tickets) unavailable(err error) error {
	s.failures.Add(1)
	return tidemark.Wrap(tidemark.Unavailable, err,
		"tickets cannot be checked now, because "+s.cfg.Place+" cannot be reached; try again, or "+
			"send the Authorization header")
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

// Bind implements auth.Tickets. If the store does not answer, Run tries again.
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
	bind := s.holding(name, bound, now)
	bind.Bind = true
	if done := s.cfg.Store.Hold(ctx, []Holding{bind}); done[0].Err != nil {
		s.cfg.Logger.Warn("a ticket could not be bound to its session; the node tries again",
			"session", session, "error", s.unavailable(done[0].Err))
		s.mu.Lock()
		//rule:ticket_once.write-again-when-store-returns
		h.due = now
		s.mu.Unlock()
	}
}

// Leave implements auth.Tickets. Run informs the store.
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

// holding returns what prolongs a ticket. While there is a connection, the ticket lives for two
// resume windows, and is prolonged after half of one. Afterwards it lives until the resume window
// is over. So a node that has lost a session ends no ticket of a session that moved.
func (s *Tickets) holding(name string, h held, now time.Time) Holding {
	life := 2 * s.cfg.ResumeWindow
	//rule:credentials_end.shorter-life-without-connection
	if h.connections == 0 {
		life = h.left.Add(s.cfg.ResumeWindow).Sub(now)
	}
	return Holding{
		Issued: Issued{
			Ticket: h.Ticket, Hash: hashOf(name), Life: max(time.Millisecond, life),
		},
		Session: h.session,
	}
}
