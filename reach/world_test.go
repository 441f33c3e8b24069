package reach

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// world is a store with processes that serve receivers. It lives in the time of a synctest bubble.
type world struct {
	testing.TB
	ctx   context.Context
	store *memory.Store
	// times and sealer are those of the processes that are started.
	times   Times
	sealer  *Sealer
	forward func(hint string)
	// aside says that other processes deliver.
	aside bool
	// own says that the processes have a kind with an outlet of its own.
	own bool
	// off says that this kind is not served, and relied that nodes rely on it.
	off, relied bool
	// advance, if not nil, is called before and after watermarks are raised.
	advance func(p *process)
	// online, if not nil, returns the devices with a session.
	online func(ctx context.Context, users []tidemark.UserID) ([][]tidemark.DeviceID, error)
	// written is called before and after each document that a process writes (see [world.onWrite]).
	written atomic.Pointer[func(p *process, d storage.Document)]
	sent    int
	chats   []tidemark.ChatID

	mu sync.Mutex
	// inboxes are the receivers by URL.
	inboxes map[string]*inbox
	// gone has texts, as JSON, and when they were redacted.
	gone map[string]time.Time
}

func newWorld(t testing.TB) *world {
	return &world{
		TB: t, ctx: t.Context(), store: memory.New(), sealer: sealer(t),
		inboxes: map[string]*inbox{},
	}
}

// onWrite has f called before and after each document that a process writes. A process writes from
// several goroutines, so f may run more than once at a time.
func (w *world) onWrite(f func(p *process, d storage.Document)) { w.written.Store(&f) }

// answer says what a receiver does with events, and how many of them it accepts.
type answer func(ctx context.Context, events []outlet.Event) (int, *outlet.Refusal)

// inbox is a receiver. It notes what it gets, and what is wrong with it.
type inbox struct {
	world *world
	mu    sync.Mutex
	// answer is nil if it accepts everything.
	answer answer
	// first has the highest sequence of each chat up to which all messages were accepted, and wrong
	// what came before an earlier one.
	first  map[tidemark.ChatID]tidemark.Sequence
	begins map[tidemark.ChatID]tidemark.Sequence
	got    []outlet.Event
	// at has when each of them came.
	at []time.Time
	// signers is how many secrets signed the last delivery.
	signers int
	// bodies has the data of each id, and named the id of each message.
	bodies, named map[string]string
	wrong         []string
}

func (w *world) inbox(url string) *inbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inboxes[url] == nil {
		w.inboxes[url] = &inbox{
			world:  w,
			first:  map[tidemark.ChatID]tidemark.Sequence{},
			begins: map[tidemark.ChatID]tidemark.Sequence{}, bodies: map[string]string{},
			named: map[string]string{},
		}
	}
	return w.inboxes[url]
}

// events returns what the receiver has accepted.
func (i *inbox) events() []outlet.Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.got)
}

// ids returns how many ids these events have.
func (i *inbox) ids() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.bodies)
}

// begin returns the first message of a chat that came.
func (i *inbox) begin(chat tidemark.ChatID) tidemark.Sequence {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.begins[chat]
}

// upTo returns up to which message of a chat all came, from the first one on.
func (i *inbox) upTo(chat tidemark.ChatID) tidemark.Sequence {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.first[chat]
}

// does changes what the receiver does.
func (i *inbox) does(answer answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

func (i *inbox) accept(e outlet.Event) {
	i.got, i.at = append(i.got, e), append(i.at, time.Now())
	body := string(e.Data)
	if before, again := i.bodies[e.ID]; again && before != body &&
		!strings.Contains(before+body, `"kind":"redact"`) {
		i.wrong = append(i.wrong, "two events have the id "+e.ID)
	}
	i.bodies[e.ID] = body
	if e.Type != outlet.MessagePersisted {
		return
	}
	n := sequenceOf(e)
	message := fmt.Sprint(e.Chat, " ", n)
	if before, again := i.named[message]; again && before != e.ID {
		i.wrong = append(i.wrong, message+" comes again with another id")
	}
	i.named[message] = e.ID
	last, begun := i.first[e.Chat]
	switch {
	case !begun:
		i.begins[e.Chat] = n
	case n > last+1:
		i.wrong = append(i.wrong, fmt.Sprintf("%s: %d came after %d", e.Chat, n, last))
	}
	i.first[e.Chat] = max(last, n)
}

// check notes texts that come although they were redacted fresh ago, when a delivery begins.
func (i *inbox) check(events []outlet.Event) {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	for text, at := range i.world.gone {
		for _, e := range events {
			if age := time.Since(at); age > fresh && strings.Contains(string(e.Data), text) {
				i.wrong = append(i.wrong,
					fmt.Sprintf("redacted_stays: %s comes after %v", text, age))
			}
		}
	}
}

func sequenceOf(e outlet.Event) tidemark.Sequence {
	var m struct {
		Sequence tidemark.Sequence `json:"sequence"`
	}
	if err := json.Unmarshal(e.Data, &m); err != nil {
		panic(err)
	}
	return m.Sequence
}

// outlet is the connection of a process to a receiver.
type fakeOutlet struct {
	*inbox
	batch   bool
	signers int
	dead    *atomic.Bool
}

func (o *fakeOutlet) Deliver(ctx context.Context, events []outlet.Event) (int, *outlet.Refusal) {
	o.mu.Lock()
	o.inbox.signers = o.signers
	o.check(events)
	answer := o.answer
	o.mu.Unlock()
	n, refused := len(events), (*outlet.Refusal)(nil)
	if answer != nil {
		n, refused = answer(ctx, events)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead.Load() {
		return 0, &outlet.Refusal{Detail: "the process is dead"}
	}
	for _, e := range events[:n] {
		o.accept(e)
	}
	return n, refused
}

func (o *fakeOutlet) Limits() outlet.Limits {
	if o.batch {
		return outlet.Limits{Events: 100, Bytes: 256 << 10}
	}
	return outlet.Limits{Events: 1}
}

func (o *fakeOutlet) Close() error { return nil }

// process is an engine that can be killed.
type process struct {
	*Engine
	store *mortal
	dead  atomic.Bool
	// alone says that the process reaches no documents: neither the list nor the others.
	alone atomic.Bool
	// blind says that it finds no backlogs, and slow that a page of ten of them takes a second.
	blind, slow atomic.Bool
	// looks is how often it has read a chat, and lookups how often it has looked for the backlog
	// of news of a single outlet and chat.
	looks, lookups atomic.Int64
	// pages is how many pages of documents it has read.
	pages atomic.Int64
	// unreadable is how many further times no chat can be read.
	unreadable atomic.Int64

	cancel context.CancelFunc
	ended  chan struct{}
}

// mortal is the store of a process. After its death nothing reaches it.
type mortal struct {
	*memory.Store
	dead, alone, blind, slow *atomic.Bool
	looks, lookups, pages    *atomic.Int64
	unreadable               *atomic.Int64
	dice                     func() error
	written                  func(storage.Document)
	advance                  func()
}

func (s *mortal) alive() error {
	if s.dead.Load() {
		return tidemark.Errorf(tidemark.Unavailable, "the process is dead")
	}
	if s.dice != nil {
		return s.dice()
	}
	return nil
}

func (s *mortal) Chat(ctx context.Context, id tidemark.ChatID) (tidemark.Chat, error) {
	s.looks.Add(1)
	if s.unreadable.Load() > 0 {
		s.unreadable.Add(-1)
		return tidemark.Chat{}, tidemark.Errorf(tidemark.Unavailable, "the chat cannot be read")
	}
	return s.Store.Chat(ctx, id)
}

func (s *mortal) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	return s.Store.Ranges(ctx, ranges)
}

func (s *mortal) reaches() error {
	if s.alone.Load() {
		return tidemark.Errorf(tidemark.Unavailable, "the documents cannot be reached")
	}
	return s.alive()
}

func (s *mortal) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	if err := s.alive(); err != nil {
		return nil, false, err
	}
	if len(q.Chats) > 0 && tidemark.ValidID(string(q.Outlet)) {
		s.lookups.Add(1)
	}
	if s.blind.Load() {
		return nil, false, nil
	}
	if s.slow.Load() && len(q.Chats) == 0 {
		signal.Pause(ctx, time.Second)
		q.Limit = min(q.Limit, 10)
	}
	return s.Store.Backlogs(ctx, q)
}

func (s *mortal) Rewind(ctx context.Context, b []storage.Backlog) error {
	if err := s.alive(); err != nil {
		return err
	}
	return s.Store.Rewind(ctx, b)
}

func (s *mortal) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	return s.Store.Settle(ctx, items)
}

func (s *mortal) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	s.advance()
	if s.dead.Load() {
		return nil, tidemark.Errorf(tidemark.Unavailable, "the process is dead")
	}
	advanced, err := s.Store.Advance(ctx, advances)
	if s.advance(); s.dead.Load() {
		return nil, tidemark.Errorf(tidemark.Unavailable, "the process is dead")
	}
	return advanced, err
}

func (s *mortal) States(
	ctx context.Context, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	return s.Store.States(ctx, keys)
}

func (s *mortal) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	s.pages.Add(1)
	if err := s.reaches(); err != nil {
		return nil, false, err
	}
	return s.Store.Documents(ctx, kind, after, limit)
}

func (s *mortal) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	if err := s.reaches(); err != nil {
		return nil, err
	}
	return s.Store.DocumentsOf(ctx, keys)
}

func (s *mortal) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	if err := s.reaches(); err != nil {
		return 0, err
	}
	s.written(d)
	if err := s.alive(); err != nil {
		return 0, err
	}
	version, err := s.Store.PutDocument(ctx, d)
	s.written(d)
	return version, err
}

// start starts a process. dice, if not nil, may let a call of the store fail.
func (w *world) start(dice func() error) *process {
	p := &process{ended: make(chan struct{})}
	open := func(s *Spec, secrets []string) (outlet.Client, error) {
		if !w.relied && w.off && s.Kind == "own" {
			return nil, tidemark.Errorf(tidemark.Invalid, "the kind is not served")
		}
		return &fakeOutlet{w.inbox(s.URL), s.Batch, len(secrets), &p.dead}, nil
	}
	kinds := map[string]Kind{
		"webhook": {Open: open, NewSecret: func() string { return "secret" }},
	}
	if w.own {
		kinds["own"] = Kind{
			Open: open, Own: "push", Events: []outlet.Type{outlet.MessagePersisted}, Off: w.off,
			Fixed: w.relied, Urgent: w.relied,
		}
	}
	written := func(d storage.Document) {
		if f := w.written.Load(); f != nil {
			(*f)(p, d)
		}
	}
	advance := func() {
		if w.advance != nil {
			w.advance(p)
		}
	}
	p.store = &mortal{
		w.store, &p.dead, &p.alone, &p.blind, &p.slow, &p.looks, &p.lookups, &p.pages,
		&p.unreadable, dice, written, advance,
	}
	p.Engine = New(Config{
		Store:  p.store,
		Kinds:  kinds,
		Sealer: w.sealer, Forward: w.forward, Aside: w.aside,
		Times: w.times, Online: w.online,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.ended)
		p.Run(ctx)
	}()
	w.Cleanup(p.stop)
	return p
}

// seldom are times for tests of days.
var seldom = Times{Poll: 30 * time.Second, Trust: 2 * time.Minute, Dead: 5 * time.Minute}

func sealer(t testing.TB) *Sealer {
	s, err := NewSealer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stop stops a process in an orderly way.
func (p *process) stop() {
	p.cancel()
	<-p.ended
}

// kill ends a process at once.
func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// group creates a chat with one member.
func (w *world) group() tidemark.ChatID {
	w.Helper()
	id := tidemark.ChatID("c" + strconv.Itoa(len(w.chats)))
	_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
		ID: id, Type: tidemark.Group, Creator: "alice", Members: []tidemark.UserID{"alice"},
		CreatedAt: time.Now(),
	})
	w.ok(err)
	w.chats = append(w.chats, id)
	return id
}

// send sends a message, and hints it to processes.
func (w *world) send(chat tidemark.ChatID, to ...*process) {
	w.Helper()
	w.mu.Lock()
	w.sent++
	n := strconv.Itoa(w.sent)
	w.mu.Unlock()
	_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
		ChatID: chat, SenderID: "alice", ClientMessageID: n, Content: "message " + n,
		ContentType: "text/plain", Kind: tidemark.KindMessage,
		MessageID: tidemark.MessageID("m" + n),
		CreatedAt: time.Now(),
	})
	w.ok(err)
	for _, p := range to {
		p.Hint(chat)
	}
}

// outlet creates an outlet, and waits until it is active.
func (w *world) outlet(p *process, new NewOutlet) storage.OutletID {
	w.Helper()
	if new.Kind = "webhook"; new.URL == "" {
		new.URL = "https://example.com"
	}
	info, err := p.Create(w.ctx, new)
	w.ok(err)
	if info.Secret != "secret" || info.Existed {
		w.Errorf("got the secret %q of an outlet that existed: %t", info.Secret, info.Existed)
	}
	w.state(p, info.ID, Active)
	return info.ID
}

// backlogs returns how many backlogs there are for an outlet.
func (w *world) backlogs(id storage.OutletID) int {
	w.Helper()
	q := storage.BacklogQuery{Outlet: id, Limit: storage.MaxBatch}
	for shard := range storage.Shards {
		q.Shards = append(q.Shards, shard)
	}
	found, _, err := w.store.Backlogs(w.ctx, q)
	w.ok(err)
	return len(found)
}

// flaky returns a store's failures: one call in n.
func flaky(dice *rand.Rand, n int) func() error {
	var mu sync.Mutex
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if dice.IntN(n) == 0 {
			return tidemark.Errorf(tidemark.Unavailable, "the store is away")
		}
		return nil
	}
}
