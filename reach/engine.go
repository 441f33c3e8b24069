package reach

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// Store is what the engine needs of a store.
type Store interface {
	storage.Outbox
	storage.Documents
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
		author tidemark.UserID) (storage.Summary, error)
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
}

// Kind makes the outlets of one kind.
type Kind struct {
	// Open checks a specification, and returns its outlet. It connects to nothing. secrets are the
	// valid ones, the newest first. Invalid: the specification, with the name of the field.
	Open func(spec *Spec, secrets []string) (outlet.Client, error)
	// NewSecret returns a new secret, or is nil if the kind has none.
	NewSecret func() string
	// Own, if it is not empty, is the id of the only outlet of the kind. The engine creates it, for
	// the events that are named. Operators create none.
	Own    OutletID
	Events []outlet.Type
	// Off says that this process does not need the kind. Then Own is only reserved: the process
	// creates no outlet. One that exists is opened, unless Open refuses: then it waits until
	// operators delete it, or serve the kind again.
	Off bool
	// Fixed says that operators cannot change the outlet of the kind, and can delete it only where
	// it is Off.
	Fixed bool
	// Urgent says that the next news of a chat must not wait long for other outlets.
	Urgent bool
}

// Times are the periods of the engine. The zero value of each is its default.
type Times struct {
	// Poll is how often the store is asked for news that no hint announced, 1 s by default. It is
	// also how often a process shows that it lives.
	Poll time.Duration
	// Trust is for how long a process may settle after it has shown that it lives and knows the
	// list of outlets, 5 s by default. Dead is after which silence it counts as dead, 15 s.
	Trust, Dead time.Duration
	// Linger is how long the others wait for a receiver, and how long a chat is quiet before its
	// backlog closes, 2 s by default. Save is how often the position of a chat that is never quiet
	// is saved, 10 s. The first time comes soon after Linger.
	Linger, Save time.Duration
	// Quiet is how long a mark stays after it was last renewed, 1 minute by default. A process may
	// raise watermarks of a chat for a third of Quiet after a mark. It uses a list of outlets for
	// half of Quiet. The rest is for calls of the store.
	Quiet time.Duration
	// Park is the age from which an event may be parked that is refused again and again, 24 h.
	Park time.Duration
	// GiveUp is how long everything is refused before the outlet is disabled, 5 days.
	GiveUp time.Duration
}

// parkAfter is the default of Times.Park.
const parkAfter = 24 * time.Hour

// withDefaults returns the periods with the defaults in place of zeros.
func (t Times) withDefaults() Times {
	for _, d := range []struct {
		period   *time.Duration
		fallback time.Duration
	}{
		{&t.Poll, time.Second}, {&t.Trust, 5 * time.Second}, {&t.Dead, 15 * time.Second},
		{&t.Linger, 2 * time.Second}, {&t.Save, 10 * time.Second}, {&t.Quiet, time.Minute},
		{&t.Park, parkAfter}, {&t.GiveUp, 5 * 24 * time.Hour},
	} {
		if *d.period == 0 {
			*d.period = d.fallback
		}
	}
	return t
}

// Config configures an Engine. Store, Kinds and Log are required.
type Config struct {
	Store Store
	Kinds map[string]Kind
	// Sealer seals the secrets of outlets. Without it, no outlet with a secret can be created.
	Sealer *Sealer
	// Forward, if not nil, passes a hint on to the other processes, whose HintOfAnother takes it.
	// It must not block. A hint is the id of a chat, and ends in a slash if a watermark rose there.
	Forward func(hint string)
	// Online returns the devices of each user that have a session, in the order of users. Without
	// it, each user may have a session.
	Online func(ctx context.Context, users []tidemark.UserID) ([][]tidemark.DeviceID, error)
	// Grace is how long a user with a session may take to acknowledge a message, 10 s by default.
	// After that they have missed it.
	Grace time.Duration
	// Aside says that other processes deliver. This one manages outlets, and forwards hints.
	Aside bool
	Times Times
	Log   *slog.Logger
}

// maxTasks is how many chats are worked on at once, besides those of single outlets' backlogs.
const maxTasks = 64

// Engine delivers the news of all chats to the outlets. Several processes share the work by shards.
// Call New, then Run once. The other methods are safe for concurrent use.
type Engine struct {
	cfg   Config
	times Times
	wake  signal.Flag
	// slots holds a value for each chat that is worked on. running are all goroutines.
	slots   chan struct{}
	running sync.WaitGroup

	// changed says that the list was changed here, so that Run looks at it at once.
	changed atomic.Bool
	// lives and after are used by the goroutine of Run only. after is the last backlog of the list
	// that is being worked on.
	lives
	after  storage.Backlog
	hints  hints
	ahead  ahead
	joined joined
	// total has the figures of all receivers, and failures what they refused, also of those that
	// were closed.
	total    *counts
	failures *failures

	mu sync.Mutex
	guarded
}

// lives are the documents by which processes show that they live, and on what they rely.
type lives struct {
	processes processes
	reliance  reliance
}

// guarded is what Engine.mu guards.
type guarded struct {
	list list
	// trusted is when the last successful beat began. own are the shards of this process, and
	// ownOutlets the outlets to which it delivers notices.
	trusted    time.Time
	own        []int
	ownOutlets map[storage.OutletID]bool
	// jobs are the outlets on which a job is under way.
	jobs map[storage.OutletID]bool
	// receivers are the outlets that get news, by id.
	receivers map[storage.OutletID]*receiver
	// unopened says why outlets that should get news cannot be opened here.
	unopened map[storage.OutletID]string
	// chats holds what was delivered of chats whose backlog for all outlets is open.
	chats map[tidemark.ChatID]*progress
}

// progress is what was delivered of a chat, or waits in single outlets' backlogs.
type progress struct {
	// from is where the backlog begins, and to is up to where it was delivered.
	from, to storage.Position
	split    split
	work     activity
	// moved is when to last rose, and save when it is saved even if the chat is not quiet.
	moved, save time.Time
}

// split says for which outlets backlogs of a chat may be open, besides the one for all outlets. In
// the store it is storage.Backlog.Split. Only splitNews makes a round look for the backlogs of
// every outlet.
type split int

// The values, each of which includes the ones before.
const (
	unsplit split = iota
	// splitPending is those of messages that are looked at (pending.go).
	splitPending
	// splitNews is those of outlets that did not accept news in time.
	splitNews
)

// splitOf returns what is known of a backlog that was read.
func splitOf(b *storage.Backlog) split {
	if b.Split {
		return splitNews
	}
	return unsplit
}

// New returns an engine. It does nothing until Run.
func New(cfg Config) *Engine {
	times := cfg.Times.withDefaults()
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	return &Engine{
		cfg: cfg, times: times, wake: signal.New(), slots: make(chan struct{}, maxTasks),
		lives: lives{
			processes: processes{
				store: cfg.Store, kind: processKind, own: rand.Text(), dead: times.Dead,
			},
			reliance: reliance{processes: processes{
				store: cfg.Store, kind: reliantKind, own: rand.Text(), dead: times.Dead,
			}},
		},
		hints:    hints{lines: map[line]struct{}{}},
		ahead:    ahead{markedFor: times.Quiet / 3, listedFor: times.Quiet / 2},
		joined:   newJoined(cfg.Store),
		total:    new(counts),
		failures: new(failures),
		guarded: guarded{
			jobs:      map[storage.OutletID]bool{},
			receivers: map[storage.OutletID]*receiver{},
			chats:     map[tidemark.ChatID]*progress{},
		},
	}
}

// idle is how many Times.Poll pass between two looks at the list while there is no outlet.
const idle = 10

// Run works until ctx ends. Then it waits for the deliveries under way, for Times.Linger at most,
// and saves how far they came.
func (e *Engine) Run(ctx context.Context) {
	if e.cfg.Aside {
		e.aside(ctx)
		return
	}
	e.joined.start()
	next := time.Now()
	for ctx.Err() == nil {
		polled := !time.Now().Before(next) || e.changed.Swap(false)
		if polled {
			next = time.Now().Add(e.times.Poll)
			if e.beat(ctx); e.processes.version == 0 {
				next = next.Add((idle - 1) * e.times.Poll)
			}
		}
		if err := e.turn(ctx, polled, next); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("the outlets cannot be served now; trying again", "error", err)
		}
		if _, ok := e.wake.WaitUntil(ctx, next); !ok {
			break
		}
	}
	e.stop(context.WithoutCancel(ctx))
}

// aside checks whether there are outlets, until ctx ends. Without outlets, hints are not sent.
func (e *Engine) aside(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		next := began.Add(e.times.Poll)
		l, err := readList(ctx, e.cfg.Store)
		switch {
		case err == nil:
			e.ahead.learn(&l, began)
			e.hints.serving.Store(l.kept())
			e.rely(ctx, &l, began)
			if len(l.Outlets) == 0 {
				next = next.Add((idle - 1) * e.times.Poll)
			}
		case ctx.Err() == nil:
			e.cfg.Log.Warn("the list of outlets cannot be read; trying again", "error", err)
		}
		e.wake.WaitUntil(ctx, next)
	}
	e.relyNoMore(context.WithoutCancel(ctx))
}

// stop ends Run.
func (e *Engine) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.times.Linger+e.times.Trust)
	defer cancel()
	e.relyNoMore(ctx)
	for range maxTasks {
		e.slots <- struct{}{} // Tasks end within Linger.
	}
	e.mu.Lock()
	receivers := e.receivers
	e.receivers = map[storage.OutletID]*receiver{}
	e.hints.serving.Store(false)
	e.mu.Unlock()
	if err := e.settle(ctx, true); err != nil {
		e.cfg.Log.Warn("what was delivered to outlets may be delivered again", "error", err)
	}
	for _, r := range receivers {
		r.end()
		r.close()
	}
	e.running.Wait()
	if err := e.saveFailures(ctx, true); err != nil {
		e.cfg.Log.Warn("refusals of the last seconds are not listed", "error", err)
	}
	e.joined.stop()
	e.processes.leave(ctx)
}

// beat shows the others that this process works, and by which list. Without outlets it only looks
// for a list.
func (e *Engine) beat(ctx context.Context) {
	began := time.Now()
	l, err := readList(ctx, e.cfg.Store)
	if err == nil {
		e.ahead.learn(&l, began)
		l, err = e.createOwn(ctx, l)
	}
	if err == nil && (len(l.Outlets) > 0 || e.processes.version > 0) {
		err = e.processes.beat(ctx, l.version)
	}
	if err != nil {
		if ctx.Err() == nil && tidemark.CodeOf(err) != tidemark.Conflict {
			e.cfg.Log.Warn("the list of outlets cannot be read; trying again", "error", err)
		}
		return
	}
	e.apply(ctx, l)
	own, ownOutlets := e.shards(), map[storage.OutletID]bool{}
	for i := range l.Outlets {
		id := l.Outlets[i].ID
		ownOutlets[id] = e.processes.owns(outletName(id))
	}
	e.mu.Lock()
	e.trusted, e.own, e.ownOutlets = began, own, ownOutlets
	e.mu.Unlock()
	e.rely(ctx, &l, began)
	e.hints.work(own)
	err = errors.Join(e.advance(ctx, l), e.saveFailures(ctx, false), e.giveUp(ctx))
	if err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("the outlets cannot be looked after; trying again", "error", err)
	}
}

// apply opens and closes outlets as the list says.
func (e *Engine) apply(ctx context.Context, l list) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.version == e.list.version && !e.outdated() {
		return
	}
	//rule:told_or_owed.drop-progress-of-older-list
	if l.gains(&e.list) {
		e.chats = map[tidemark.ChatID]*progress{}
	}
	e.list = l
	for id, r := range e.receivers {
		if s := l.find(id); s == nil || !s.State.gets() || !sameSpec(s, &r.spec) {
			delete(e.receivers, id)
			r.end()
			e.running.Go(r.close)
		}
	}
	e.unopened = map[storage.OutletID]string{}
	for i := range l.Outlets {
		s := &l.Outlets[i]
		if !s.State.gets() {
			continue
		}
		if r := e.receivers[s.ID]; r != nil {
			continue
		}
		open := *s
		open.Secrets = s.valid(time.Now())
		client, err := e.open(&open)
		if err != nil {
			// Its news waits in its own backlogs.
			e.cfg.Log.Error("an outlet cannot be opened; its news waits", "outlet", s.ID,
				"error", err)
			e.unopened[s.ID] = "it cannot be opened: " + tidemark.DetailOf(err)
			continue
		}
		r := newReceiver(open, client, e.failures, e.total, e.times.Quiet)
		e.receivers[s.ID] = r
		until := r.until(ctx)
		r.news.one, r.pending.one = e.drainOne, e.drainPending
		e.running.Go(func() { e.drain(until, r, &r.news) })
		e.running.Go(func() { e.notify(until, r) })
		e.running.Go(func() { e.receipts(until, r) })
		if s.wantsPending() {
			e.running.Go(func() { e.drain(until, r, &r.pending) })
		}
	}
	e.hints.serving.Store(len(e.receivers) > 0)
}

// outdated reports whether an open outlet signs with a secret that has expired since. The mutex is
// held.
func (e *Engine) outdated() bool {
	for _, r := range e.receivers {
		if len(r.spec.valid(time.Now())) < len(r.spec.Secrets) {
			return true
		}
	}
	return false
}

// sameSpec reports whether an open outlet fits a specification. States do not count, nor do secrets
// that have expired.
func sameSpec(s, open *Spec) bool {
	return s.same(open) && s.URL == open.URL && s.Content == open.Content &&
		s.Batch == open.Batch && slices.Equal(s.Events, open.Events) &&
		slices.Equal(s.valid(time.Now()), open.Secrets)
}

// open opens the outlet of a specification.
func (e *Engine) open(s *Spec) (outlet.Client, error) {
	kind, known := e.cfg.Kinds[s.Kind]
	if !known {
		return nil, tidemark.Errorf(tidemark.Invalid, "the kind %q of outlets is not served here",
			s.Kind)
	}
	var secrets []string
	for _, secret := range s.valid(time.Now()) {
		text, err := e.cfg.Sealer.Open(secret.Sealed)
		if err != nil && len(secrets) > 0 {
			// The key of old secrets was lost. The newest one is enough.
			e.cfg.Log.Warn("an old secret of an outlet cannot be used", "outlet", s.ID,
				"error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, text)
	}
	client, err := kind.Open(s, secrets)
	if err != nil {
		return nil, err
	}
	return newRenewing(client, e.cfg.Store), nil
}

// shards returns the shards that this process works on.
func (e *Engine) shards() []int {
	var own []int
	for shard := range storage.Shards {
		if e.processes.owns(shardName(shard)) {
			own = append(own, shard)
		}
	}
	return own
}

// trust reports whether this process may settle for all outlets (R_LIST).
func (e *Engine) trust() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	//rule:told_or_owed.settle-only-while-trusted
	return !e.trusted.IsZero() && time.Since(e.trusted) < e.times.Trust
}
