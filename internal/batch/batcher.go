// Package batch combines many calls into one piece of work: a commit, a statement, or a round trip.
//
// Calls that are queued during a batch form the next one. There is no timer: a lone call runs at
// once, and batches grow with the load. A Batcher has a fixed number of workers, and answers its
// callers. Keyed has a goroutine for each busy key, and answers nobody.
package batch

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
)

// queueLength is how many calls the queue holds. A further caller waits for a place until its ctx
// ends.
const queueLength = 4096

// Config configures a Batcher. Name and Most are required.
type Config struct {
	// Name names what runs the batches in errors, such as "the database".
	Name string
	// Workers is how many batches run concurrently, 1 by default.
	Workers int
	// Most is the number of items that fills a batch. Calls are not divided, so the last call may
	// take a batch beyond it.
	Most int
	// Pause is for batches that fail slowly, by a timeout. If it is not 0, calls that are queued
	// when a batch fails, or come within Pause, get its error at once.
	Pause time.Duration
	// Answered, if not nil, is called by the worker after each batch, when its callers have been
	// answered. The worker's next batch waits for it.
	Answered func()
}

// Batcher runs calls in batches. Call New and Start, and at the end Stop or Abort, once. Its other
// methods are safe for concurrent use.
type Batcher[Q, A any] struct {
	cfg   Config
	run   func(ctx context.Context, collect func() []Q) ([]A, error)
	queue chan *call[Q, A]
	// spare has answered calls, to be used again.
	spare   sync.Pool
	workers sync.WaitGroup
	// stopping is closed by Stop.
	stopping chan struct{}
	// ctx is the context of run. When it has ended, a call is answered only if its answer is there.
	ctx    context.Context
	cancel context.CancelFunc
	// failed is the error of the latest batch, or nil if that succeeded. It is set only if there is
	// a Pause.
	failed atomic.Pointer[failure]
}

// failure is an error that all calls get until a time.
type failure struct {
	err   error
	until time.Time
}

// call is one call of Do. The worker writes answers and err, and then sends on done, which is
// buffered.
type call[Q, A any] struct {
	items   []Q
	answers []A
	err     error
	done    chan struct{}
	// watcher is nil if nobody watches the call. The worker sets run if somebody does.
	watcher *Watcher
	run     *Run
}

// New returns a Batcher. Start starts it.
//
// run does the items of a batch in order, and returns an answer for each, or an error for all. It
// calls collect when it is ready: calls that were queued until then are part of the batch. A second
// collect returns the same items. run must not change them, and must end in bounded time. Only
// Abort ends its ctx. After that run returns an error, unless it has done all: callers may still
// get what it returns.
func New[Q, A any](
	cfg Config, run func(ctx context.Context, collect func() []Q) ([]A, error),
) *Batcher[Q, A] {
	cfg.Workers = max(cfg.Workers, 1)
	b := &Batcher[Q, A]{
		cfg: cfg, run: run,
		queue: make(chan *call[Q, A], queueLength), stopping: make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Start starts the workers.
func (b *Batcher[Q, A]) Start() {
	for range b.cfg.Workers {
		w := &worker[Q, A]{Batcher: b}
		b.workers.Go(w.loop)
	}
}

// Stop runs the queued calls and waits for the workers. Later callers get Unavailable.
func (b *Batcher[Q, A]) Stop() {
	close(b.stopping)
	b.workers.Wait()
	b.cancel()
}

// Abort cancels the batches under way and waits for the workers. Queued and later callers get
// Unavailable at once.
func (b *Batcher[Q, A]) Abort() {
	b.cancel()
	b.workers.Wait()
}

// Queued returns how many calls wait for a worker.
func (b *Batcher[Q, A]) Queued() int { return len(b.queue) }

// Do runs items in one batch, which it may share with other calls. It returns an answer for each
// item.
//
// Errors: the error of the batch; Unavailable if ctx ends first or the Batcher has stopped. The
// detail says whether the items may still be done. In that case the caller must not change them.
func (b *Batcher[Q, A]) Do(ctx context.Context, items []Q) ([]A, error) {
	watcher := watcherOf(ctx)
	if failed := b.failed.Load(); failed != nil && time.Now().Before(failed.until) {
		return nil, failed.err
	}
	c, _ := b.spare.Get().(*call[Q, A])
	if c == nil {
		c = &call[Q, A]{done: make(chan struct{}, 1)}
	}
	c.items = items
	c.watcher = watcher
	if ctx.Err() != nil || b.ctx.Err() != nil || !b.enqueue(ctx, c) {
		return nil, b.unanswered(ctx, " before "+b.cfg.Name+" took it")
	}
	select {
	case <-c.done:
		return b.answered(c)
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	select {
	case <-c.done:
		return b.answered(c)
	default:
		// The worker may still use the call, so it must not be used again.
		return nil, b.unanswered(ctx, "; "+b.cfg.Name+" may still do it")
	}
}

// DoOne runs one item, like Do.
func (b *Batcher[Q, A]) DoOne(ctx context.Context, item Q) (answer A, err error) {
	answers, err := b.Do(ctx, []Q{item})
	if err != nil {
		return answer, err
	}
	return answers[0], nil
}

// answered returns the answers of a call, and keeps the call to be used again.
func (b *Batcher[Q, A]) answered(c *call[Q, A]) ([]A, error) {
	answers, err := c.answers, c.err
	//rule:trace_to_acknowledgement.no-commit-of-a-failed-batch
	if c.watcher != nil && err == nil {
		c.watcher.Run = c.run
	}
	*c = call[Q, A]{done: c.done}
	b.spare.Put(c)
	return answers, err
}

// enqueue queues a call. It returns false if ctx ends or the Batcher stops before there is a place.
func (b *Batcher[Q, A]) enqueue(ctx context.Context, c *call[Q, A]) bool {
	select {
	// There almost always is a place, and this select is cheaper than the next one.
	case b.queue <- c:
		return true
	default:
	}
	select {
	case b.queue <- c:
		return true
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	return false
}

// unanswered returns the error of a call whose ctx has ended or that was aborted.
func (b *Batcher[Q, A]) unanswered(ctx context.Context, outcome string) error {
	if err := ctx.Err(); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the call ran out of time"+outcome)
	}
	return tidemark.Errorf(tidemark.Unavailable,
		"the server is stopping: the call was aborted%s", outcome)
}

// next returns a queued call, or nil.
func (b *Batcher[Q, A]) next() *call[Q, A] {
	select {
	case c := <-b.queue:
		return c
	default:
		return nil
	}
}

// worker runs batches one after the other.
type worker[Q, A any] struct {
	*Batcher[Q, A]
	// calls has the calls of the present batch, and items their items.
	calls     []*call[Q, A]
	items     []Q
	collected bool
	// seen is the present batch, if somebody watches one of its calls.
	seen *Run
}

func (w *worker[Q, A]) loop() {
	collect := w.collect
	for w.ctx.Err() == nil {
		select {
		case first := <-w.queue:
			w.serve(first, collect)
		case <-w.ctx.Done():
			return
		case <-w.stopping:
			for c := w.next(); c != nil; c = w.next() {
				w.serve(c, collect)
			}
			return
		}
	}
}

// serve runs a batch that begins with the call first.
func (w *worker[Q, A]) serve(first *call[Q, A], collect func() []Q) {
	w.calls, w.items, w.collected = append(w.calls, first), first.items, false
	answers, err := w.run(w.ctx, collect)
	// If run failed before it collected, the queued calls fail with it: the next run would fail
	// too.
	collect()
	if err == nil && len(answers) != len(w.items) {
		err = tidemark.Errorf(tidemark.Internal,
			"%s gave %d answers to %d questions", w.cfg.Name, len(answers), len(w.items))
	}
	w.judge(err)
	w.unwatch()
	for _, c := range w.calls {
		if n := len(c.items); err == nil {
			c.answers, answers = answers[:n:n], answers[n:]
		}
		c.err = err
		c.done <- struct{}{}
	}
	clear(w.calls)
	w.calls, w.items = w.calls[:0], nil
	if w.cfg.Answered != nil {
		w.cfg.Answered()
	}
}

// collect adds queued calls until the batch is full.
func (w *worker[Q, A]) collect() []Q {
	if w.collected {
		return w.items
	}
	w.collected = true
	// Callers that were answered just now may have a next call: let them queue it.
	runtime.Gosched()
	//rule:few_round_trips.fill-the-batch
	for len(w.items) < w.cfg.Most {
		c := w.next()
		if c == nil {
			break
		}
		if len(w.calls) == 1 {
			// The slice of the first caller must not be changed.
			w.items = append(make([]Q, 0, 4*(len(w.items)+len(c.items))), w.items...)
		}
		w.calls, w.items = append(w.calls, c), append(w.items, c.items...)
	}
	w.watch()
	return w.items
}

// judge records the outcome of a batch. With a Pause, all queued calls get the error of a failed
// batch.
func (w *worker[Q, A]) judge(err error) {
	if w.cfg.Pause == 0 {
		return
	}
	if err == nil {
		w.failed.Store(nil)
		return
	}
	w.failed.Store(&failure{err, time.Now().Add(w.cfg.Pause)})
	//rule:bounded_input.fail-all-that-waits
	for c := w.next(); c != nil; c = w.next() {
		w.calls = append(w.calls, c)
	}
}
