package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/ackbuffer"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/leases"
	"github.com/tidemark-im/tidemark/server/internal/least"
	"github.com/tidemark-im/tidemark/server/internal/presence"
	"github.com/tidemark-im/tidemark/server/internal/receipts"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/internal/sessions"
	"github.com/tidemark-im/tidemark/server/internal/survey"
	"github.com/tidemark-im/tidemark/server/internal/traced"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Server is the delivery core. Call New, then Start, and Stop at the end. All methods are safe for
// concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	node    registry.Node
	storage Storage

	// The layers, lowest first: caches, sessions, and what uses them.
	chats    *chat.Cache
	host     *session.Host
	table    *session.Table
	leases   *leases.Leases
	delivery *delivery.Delivery
	receipts *receipts.Receipts
	sessions *sessions.Sessions
	surveys  *survey.Surveys
	presence *presence.Presence
	// typists counts the typing notices that were sent, and bounds them.
	typists typists

	calls calls

	running running
}

// running has what Start starts and Stop ends.
type running struct {
	cancel      context.CancelFunc
	loops       sync.WaitGroup
	unsubscribe func()
}

// New returns a Server. Start starts it.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var boot [8]byte
	_, _ = rand.Read(boot[:]) // never fails
	s := &Server{
		cfg: cfg, log: cfg.Logger, storage: cfg.Storage,
		node:  registry.Node{ID: cfg.Node, Boot: hex.EncodeToString(boot[:])},
		table: session.NewTable(),
	}
	watermarks := watermark.New(cfg.KnownStates)
	aggregates := least.New(cfg.Storage, cfg.AggregateInterval, cfg.HotChats)
	again := retry.New()
	traces := traced.New(cfg.Tracer)
	acks := ackbuffer.New(watermarks)
	s.chats = chat.New(cfg.Storage, chat.Config{
		Chats: cfg.HotChats, Bytes: cfg.TailBytes, RosterBytes: cfg.RosterBytes,
		Messages: cfg.TailMessages,
	})
	s.host = &session.Host{
		Storage: cfg.Storage, Unreads: cfg.Storage,
		Chats: s.chats, Watermarks: watermarks, Least: aggregates,
		Latest: session.NewLatest(cfg.Registry, s.node),
		Log:    s.log, Heartbeat: cfg.Heartbeat, Resume: cfg.ResumeWindow,
		MaxChats: cfg.SessionChats, StatusFanout: cfg.StatusFanout,
		Now: s.now, Grace: session.NewDeadlines(cfg.Grace),
		Expiry:      session.NewDeadlines(cfg.ResumeWindow),
		Again:       session.NewDeadlines(cfg.AggregateInterval),
		Written:     session.NewDeadlines(cfg.WrittenInterval),
		Arrivals:    session.NewDeadlines(sessions.TransferWithin),
		Incarnation: cfg.Storage.Incarnation(), Traces: traces,
		Start: tidemark.SessionStart{Attachments: cfg.Attachments != nil},
	}
	s.leases = leases.New(leases.Config{
		Registry: cfg.Registry, Nodes: cfg.Nodes, Bus: cfg.Bus, Node: s.node, Sessions: s.table,
		Chats: s.chats, Log: s.log, NodeTTL: cfg.NodeTTL, LeaseTTL: cfg.LeaseTTL,
	})
	s.delivery = delivery.New(delivery.Config{
		Storage: cfg.Storage, Chats: s.chats, Sessions: s.table, Leases: s.leases, Bus: cfg.Bus,
		Acks: acks, Retry: again, Latest: s.host.Latest, Log: s.log, Now: s.now,
		Workers: cfg.Workers, Traces: traces,
	})
	s.receipts = receipts.New(receipts.Config{
		Storage: cfg.Storage, Acks: acks, Chats: s.chats, Watermarks: watermarks,
		Least: aggregates, Sessions: s.table, Delivery: s.delivery, Retry: again,
		Log: s.log, Now: s.now, AckInterval: cfg.AckInterval,
		AuthorRetry: cfg.AuthorRetry, StatusInterval: cfg.StatusInterval,
		AckBatch: cfg.AckBatch, StatusFanout: cfg.StatusFanout,
	})
	s.sessions = sessions.New(sessions.Config{
		Node: s.node, Host: s.host, Table: s.table, Leases: s.leases, Delivery: s.delivery,
		Receipts: s.receipts, Bus: cfg.Bus, Log: s.log, PerUser: cfg.SessionsPerUser,
		Spread: cfg.NodeTTL / 2, ComparesPerSecond: cfg.ComparesPerSecond,
	})
	s.presence = presence.New(presence.Config{
		Node: s.node, Leases: s.leases, Sessions: s.table, Chats: s.chats, Bus: cfg.Bus,
		Documents: cfg.Documents, LastSeen: cfg.LastSeen, Log: s.log, Now: s.now,
	})
	s.surveys = survey.New(survey.Config{Node: s.node, Leases: s.leases, Bus: cfg.Bus})
	return s, nil
}

// Start joins the registry, subscribes to the bus and starts the goroutines that the Server owns.
// Call it once.
func (s *Server) Start(ctx context.Context) error {
	var err error
	subscriber := bus.Subscriber{Receive: s.receive, Missed: s.leases.Missed}
	if s.running.unsubscribe, err = s.cfg.Bus.Subscribe(ctx, s.node, subscriber); err != nil {
		return err
	}
	if err := s.sessions.Start(ctx); err != nil {
		s.running.unsubscribe()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.running.cancel = cancel
	s.running.loops.Go(func() { s.receipts.AckLoop(ctx) })
	s.running.loops.Go(func() { s.receipts.StatusLoop(ctx) })
	s.running.loops.Go(func() { s.delivery.RetryLoop(ctx) })
	s.running.loops.Go(func() { s.sessions.Run(ctx) })
	s.running.loops.Go(func() { s.presence.Loop(ctx) })
	s.running.loops.Go(func() { s.ageLoop(ctx) })
	if traces := s.delivery.Traces; traces != nil {
		s.running.loops.Go(func() { traces.Run(ctx) })
	}
	return nil
}

// ageLoop drops messages from memory that may expire in storage.
func (s *Server) ageLoop(ctx context.Context) {
	for signal.Pause(ctx, time.Hour) {
		s.chats.Age()
	}
}

// Stop stops the server cleanly. Later sends, acknowledgements, opens, syncs and changes of chats
// return Unavailable; reads do not. Stop waits for calls under way, also beyond the end of ctx. A
// second Stop returns at once. It writes buffered acknowledgements, and closes every session, which
// marks what is not acknowledged and leaves a proof. When it returns, every goroutine has ended. If
// ctx ends first, the rest is left as after a crash: the next opens reconcile.
func (s *Server) Stop(ctx context.Context) error {
	if !s.calls.stop() {
		return nil
	}
	for _, sess := range s.table.All() {
		sess.Drain()
	}
	//rule:confirmed_is_durable.finish-calls-before-stop
	s.calls.wait()
	//rule:delivered_is_eventually_consistent.write-acknowledgements-at-stop
	s.receipts.Flush(ctx)
	_, err := s.sessions.Close(ctx, session.Endings(s.table.All(), session.Stopped)...)
	s.running.cancel()
	s.running.loops.Wait()
	s.presence.Close(ctx)
	s.running.unsubscribe()
	s.receipts.Flush(ctx)
	//rule:pending_or_delivered.mark-waiting-runs-at-stop
	s.receipts.Close()
	//rule:pending_or_delivered.leave-only-when-all-is-written
	if !s.delivery.TryAgain(ctx) {
		// Without a clean leave the node counts as crashed when its lease expires, and every
		// session reconciles.
		s.log.Warn("the node stops with work left in its retry queue: all nodes reconcile when " +
			"its lease expires")
		return err
	}
	return errors.Join(err, s.leases.Leave(ctx))
}

// receive dispatches an event that was published to this node. It does not block.
func (s *Server) receive(e bus.Event) {
	switch {
	case e.Notification != nil:
		s.delivery.Receive(e.To, e.Notification)
	case e.Status != nil:
		s.receipts.Receive(e.To, e.Status)
	case e.Own != nil:
		s.receipts.ReceiveOwn(e.To, e.Own)
	case e.Membership != nil:
		s.receiveMembership(e.To, e.Membership)
	case e.Update != nil:
		s.receiveUpdate(e.To, e.Update)
	case e.Typing != nil:
		s.receiveTyping(e.To, *e.Typing)
	case e.Presence != nil:
		s.presence.Receive(e.Presence)
	case e.Survey != nil, e.Report != nil:
		s.surveys.Receive(e)
	default:
		s.sessions.Receive(e)
	}
}

// calls counts the calls under way, so that Stop can wait for them.
type calls struct {
	// mu guards stopping, and running.Add against wait.
	mu       sync.RWMutex
	stopping bool
	running  sync.WaitGroup
}

// begin counts a call, unless the server is stopping. The caller calls end when the call has ended.
func (c *calls) begin() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.stopping {
		return tidemark.Errorf(tidemark.Unavailable, "the server is stopping; connect again")
	}
	c.running.Add(1)
	return nil
}

func (c *calls) end() { c.running.Done() }

// stop refuses further calls. It returns false if they were refused before.
func (c *calls) stop() (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = !c.stopping
	c.stopping = true
	return first
}

func (c *calls) wait() { c.running.Wait() }

// Ready returns nil if the server can store now, else Unavailable with the reason. See Degraded for
// the rest.
func (s *Server) Ready(ctx context.Context) error {
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	if c, ok := s.storage.(checker); ok {
		return c.Check(ctx)
	}
	return nil
}

// Degraded returns nil if this node and the others reach each other, else Unavailable with the
// reason. A degraded node stores, marks and confirms. Its sessions get the messages that other
// nodes store by reconciling, within some seconds.
func (s *Server) Degraded() error { return s.leases.Degraded() }

// now returns the time of day in the precision of the contract.
func (s *Server) now() time.Time { return s.cfg.Clock().UTC().Truncate(time.Millisecond) }

// Incarnation returns that of the data.
func (s *Server) Incarnation() tidemark.Incarnation { return s.host.Incarnation }

// Heartbeat returns the longest silence that adapters may leave on a stream.
func (s *Server) Heartbeat() time.Duration { return s.cfg.Heartbeat }

// ResumeWindow returns how long a session outlives its connection.
func (s *Server) ResumeWindow() time.Duration { return s.cfg.ResumeWindow }
