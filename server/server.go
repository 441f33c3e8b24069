package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/debts"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/server/internal/locate"
	"github.com/tidemark-im/tidemark/server/internal/moves"
	"github.com/tidemark-im/tidemark/server/internal/pulse"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/internal/ticks"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Server is the delivery core. Use New, then Start; Stop when it is not needed any more. All methods are safe for concurrent use.
type Server struct {
	cfg      Config
	log      *slog.Logger
	node     registry.Node
	storage  Storage
	registry registry.Registry
	nodes    registry.Nodes
	bus      bus.Bus

	sessions *session.Table
	feed     *feed.Feed
	host     *session.Host
	ticks    *ticks.Ticks
	debts    *debts.Debts
	count    counters

	pulse  *pulse.Pulse
	moves  *moves.Moves
	locate *locate.Locator

	// lifecycle guards running and inflight.Add against Stop.
	lifecycle sync.RWMutex
	stopping  atomic.Bool
	inflight  sync.WaitGroup

	cancel      context.CancelFunc
	loops       sync.WaitGroup
	unsubscribe func()
}

// New returns a Server that does nothing yet.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var boot [8]byte
	_, _ = rand.Read(boot[:]) // never fails, says its documentation
	s := &Server{
		cfg: cfg, log: cfg.Logger, node: registry.Node{ID: cfg.Node, Boot: hex.EncodeToString(boot[:])},
		storage: cfg.Storage, registry: cfg.Registry, nodes: cfg.Nodes, bus: cfg.Bus,
		sessions: session.NewTable(), debts: debts.New(),
	}
	s.moves = moves.New(cfg.Bus, s.node)
	s.pulse = pulse.New(pulse.Config{
		Registry: cfg.Registry, Nodes: cfg.Nodes, Node: s.node, Log: s.log, NodeTTL: cfg.NodeTTL, LeaseTTL: cfg.LeaseTTL, Hears: s.hears,
		Sessions: s.sessions.All, Lost: s.takeLeases,
		Replaced: s.closeReplaced, Forget: func() { s.feed.ForgetPeople() },
	})
	s.locate = &locate.Locator{Registry: cfg.Registry, Sessions: s.sessions, Self: s.node, Nodes: s.pulse.Nodes, Log: s.log}
	known := feed.NewKnown(cfg.KnownStates)
	s.feed = feed.New(cfg.Storage, feed.Config{Chats: cfg.HotChats, Bytes: cfg.TailBytes, Messages: cfg.TailMessages, Trusts: s.pulse.Trusts})
	s.host = &session.Host{
		Storage: cfg.Storage, Heads: cfg.Storage, Feed: s.feed, Known: known, Log: s.log, Heartbeat: cfg.Heartbeat, Resume: cfg.ResumeWindow, Chats: cfg.SessionChats,
		Grace: session.NewDeadlines(cfg.Grace), Expiry: session.NewDeadlines(cfg.ResumeWindow), Now: s.now,
	}
	s.ticks = ticks.New(ticks.Config{
		Storage: cfg.Storage, Feed: s.feed, Known: known, Log: s.log,
		Sessions: s.sessions.Of, Publish: s.publishStatuses, Now: s.now, Owe: s.debts.Mark,
		AckInterval: cfg.AckInterval, AuthorRetry: cfg.AuthorRetry, StatusInterval: cfg.StatusInterval,
	})
	return s, nil
}

// Start joins the registry, subscribes to the bus and starts the goroutines that the Server owns. Call it once.
func (s *Server) Start(ctx context.Context) error {
	var err error
	if s.unsubscribe, err = s.bus.Subscribe(ctx, s.node, bus.Subscriber{Receive: s.receive, Missed: s.pulse.Missed}); err != nil {
		return err
	}
	if err := s.pulse.Join(ctx); err != nil {
		s.unsubscribe()
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.loops.Go(func() { s.ticks.AckLoop(running) })
	s.loops.Go(func() { s.ticks.StatusLoop(running) })
	s.loops.Go(func() { s.payLoop(running) })
	s.loops.Go(func() { s.graceLoop(running) })
	s.loops.Go(func() { s.expiryLoop(running) })
	s.loops.Go(func() { s.pulse.BeatLoop(running) })
	s.loops.Go(func() { s.pulse.CompareLoop(running) })
	s.loops.Go(func() { s.pulse.RepairLoop(running) })
	s.loops.Go(func() { s.moves.Loop(running, s.answer, s.undelivered) })
	return nil
}

// Stop ends cleanly: calls from now on are Unavailable, calls under way are waited for, acknowledgements that wait are written, every session is
// closed (what is unacknowledged is marked, and a proof is left), and every goroutine has ended when it returns. If ctx ends first, what could not
// be done is left as after a crash: the next opens compare.
func (s *Server) Stop(ctx context.Context) error {
	s.lifecycle.Lock()
	already := s.stopping.Swap(true)
	s.lifecycle.Unlock()
	if already {
		return nil
	}
	for _, sess := range s.sessions.All() {
		sess.Drain()
	}
	//rule:confirmed_is_durable.finish-calls-before-stop
	s.inflight.Wait()
	//rule:delivered_is_eventually_consistent.write-acknowledgements-at-stop
	s.ticks.Flush(ctx)
	_, err := s.closeSessions(ctx, session.Endings(s.sessions.All(), session.Stopped))
	s.cancel()
	s.loops.Wait()
	s.unsubscribe()
	s.ticks.Flush(ctx)
	//rule:pending_or_delivered.mark-waiting-runs-at-stop
	s.ticks.Abandon()
	//rule:pending_or_delivered.leave-only-when-all-is-written
	if !s.pay(ctx) {
		// Without a clean leave the node counts as crashed when its lease ends, and every session compares.
		s.log.Warn("the node stops and owes something: it does not leave the registry cleanly")
		return err
	}
	return errors.Join(err, s.nodes.Leave(ctx, s.node))
}

// begin counts a call that Stop waits for: the caller calls inflight.Done when it has ended.
func (s *Server) begin() error {
	s.lifecycle.RLock()
	defer s.lifecycle.RUnlock()
	if s.stopping.Load() {
		return errStopping()
	}
	s.inflight.Add(1)
	return nil
}

func errStopping() error {
	return tidemark.Errorf(tidemark.Unavailable, "the server is stopping; connect again")
}

// Ready returns nil if the server can store now, else Unavailable with the reason. See Degraded for the rest.
func (s *Server) Ready(ctx context.Context) error {
	if s.stopping.Load() {
		return errStopping()
	}
	if c, ok := s.storage.(checker); ok {
		if err := c.Check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Degraded returns nil if the node reaches the others and is reached by them, else Unavailable with the reason. A degraded node stores, marks and confirms; its
// sessions learn of what other nodes store by comparing, within some seconds.
func (s *Server) Degraded() error { return s.pulse.Degraded() }

// hears returns nil if publications to the node reach it.
func (s *Server) hears() error {
	if c, ok := s.bus.(checker); ok {
		return c.Check(context.Background())
	}
	return nil
}

// now returns the time of day in the precision of the contract.
func (s *Server) now() time.Time { return s.cfg.Clock().UTC().Truncate(time.Millisecond) }

// Heartbeat returns the longest silence that adapters may leave on a stream.
func (s *Server) Heartbeat() time.Duration { return s.cfg.Heartbeat }

// ResumeWindow returns how long a session outlives its connection.
func (s *Server) ResumeWindow() time.Duration { return s.cfg.ResumeWindow }
