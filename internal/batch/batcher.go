// Package batch makes one piece of work of many calls: a commit, a statement, a round trip.
//
// What queues while a batch is under way is the next one. There is no timer: a lone call runs at
// once, and batches grow with the load. A Batcher has a fixed number of workers and answers its
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

// queueLength is how many calls wait in the queue. A further caller waits for a place until its ctx
// ends.
const queueLength = 4096

// Config says how a Batcher works. Name and Most are required.
type Config struct {
	// Name is what runs the batches, as errors call it, such as "the database".
	Name string
	// Workers is how many batches run side by side, 1 by default.
	Workers int
	// Most is how many items fill a batch. The call that reaches it is the last one of the batch,
	// so a batch may have more: calls are not divided.
	Most int
	// Pause, if not 0, is for batches that fail slowly, by a timeout. Calls that queued behind a
	// batch that failed, and those that come within Pause, get the same error at once.
	Pause time.Duration
	// Answered, if not nil, is called by the worker after each batch, when its callers are
	// answered. The next batch of that worker waits for it.
	Answered func()
}

// Batcher runs calls in batches. Use New, Start, and at the end either Stop or Abort, once. Its
// other methods may be called concurrently.
type Batcher[Q, A any] struct {
	cfg   Config
	run   func(ctx context.Context, collect func() []Q) ([]A, error)
	queue chan *call[Q, A]
	// spare are calls that were answered, for further ones.
	spare   sync.Pool
	workers sync.WaitGroup
	// stopping is closed by Stop.
	stopping chan struct{}
	// ctx is that of run. When it has ended nobody is answered any more.
	ctx    context.Context
	cancel context.CancelFunc
	// failed is the error of the latest batch, nil if that succeeded. Only kept if there is a Pause.
	failed atomic.Pointer[failure]
}

// failure is an error that everyone gets until a time.
type failure struct {
	err   error
	until time.Time
}

// call is what one caller wants. The worker writes answers and err before it sends on done, which
// has room for that.
type call[Q, A any] struct {
	items   []Q
	answers []A
	err     error
	done    chan struct{}
}

// New returns a Batcher that Start starts.
//
// run does the items of a batch in their order, and returns an answer for each, or an error for
// all. It calls collect when it is able to do them: what queues until then comes along. It may
// call collect again, and gets the same items. It must not change them, and must end in bounded
// time. Its ctx ends by Abort only.
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

// Stop runs what is queued, and waits for the workers. Callers that come later get Unavailable.
func (b *Batcher[Q, A]) Stop() {
	close(b.stopping)
	b.workers.Wait()
	b.cancel()
}

// Abort breaks off the batches under way, and waits for the workers. Callers that wait, or come
// later, get Unavailable at once.
func (b *Batcher[Q, A]) Abort() {
	b.cancel()
	b.workers.Wait()
}

// Queued returns how many calls wait for a worker.
func (b *Batcher[Q, A]) Queued() int { return len(b.queue) }

// Do runs items in one batch, beside those of others, and returns an answer for each.
//
// Errors: that of the batch; Unavailable if ctx ends first, or the Batcher has stopped. The detail
// says whether the items may still be done. If they may, the caller must not change them any more.
func (b *Batcher[Q, A]) Do(ctx context.Context, items []Q) ([]A, error) {
	if failed := b.failed.Load(); failed != nil && time.Now().Before(failed.until) {
		return nil, failed.err
	}
	c, _ := b.spare.Get().(*call[Q, A])
	if c == nil {
		c = &call[Q, A]{done: make(chan struct{}, 1)}
	}
	c.items = items
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
		// The worker may still have the call: it is not used again.
		return nil, b.unanswered(ctx, "; "+b.cfg.Name+" may still do it")
	}
}

// DoOne is Do of one item.
func (b *Batcher[Q, A]) DoOne(ctx context.Context, item Q) (answer A, err error) {
	answers, err := b.Do(ctx, []Q{item})
	if err != nil {
		return answer, err
	}
	return answers[0], nil
}

// answered returns the answers of a call, and keeps the call for a further one.
func (b *Batcher[Q, A]) answered(c *call[Q, A]) ([]A, error) {
	answers, err := c.answers, c.err
	*c = call[Q, A]{done: c.done}
	b.spare.Put(c)
	return answers, err
}

// enqueue queues a call. It returns false if ctx ends, or the Batcher stops, before there is a
// place.
func (b *Batcher[Q, A]) enqueue(ctx context.Context, c *call[Q, A]) bool {
	select {
	case b.queue <- c: // There is a place almost always, and this select is cheaper than the next.
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

// unanswered is the error of a call whose ctx has ended, or which was broken off.
func (b *Batcher[Q, A]) unanswered(ctx context.Context, outcome string) error {
	if err := ctx.Err(); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the call ran out of time"+outcome)
	}
	return tidemark.Errorf(tidemark.Unavailable,
		"the server is stopping: the call was broken off%s", outcome)
}

// next takes a call that waits. It returns nil if none does.
func (b *Batcher[Q, A]) next() *call[Q, A] {
	select {
	case c := <-b.queue:
		return c
	default:
		return nil
	}
}

// worker runs one batch after the other.
type worker[Q, A any] struct {
	*Batcher[Q, A]
	// calls are those of the present batch, and items what they want.
	calls     []*call[Q, A]
	items     []Q
	collected bool
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

// serve runs the first call and those behind it.
func (w *worker[Q, A]) serve(first *call[Q, A], collect func() []Q) {
	w.calls, w.items, w.collected = append(w.calls, first), first.items, false
	answers, err := w.run(w.ctx, collect)
	collect() // If run could not even begin, waiting for its next failure helps nobody.
	if err == nil && len(answers) != len(w.items) {
		err = tidemark.Errorf(tidemark.Internal,
			"%s gave %d answers to %d questions", w.cfg.Name, len(answers), len(w.items))
	}
	w.judge(err)
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

// collect adds the calls that are in the queue now, until they fill the batch.
func (w *worker[Q, A]) collect() []Q {
	if w.collected {
		return w.items
	}
	w.collected = true
	// Callers that were answered just now come back with their next call: let them.
	runtime.Gosched()
	//rule:few_round_trips.fill-the-batch
	for len(w.items) < w.cfg.Most {
		c := w.next()
		if c == nil {
			break
		}
		if len(w.calls) == 1 {
			// The slice of the first caller stays its own.
			w.items = append(make([]Q, 0, 4*(len(w.items)+len(c.items))), w.items...)
		}
		w.calls, w.items = append(w.calls, c), append(w.items, c.items...)
	}
	return w.items
}

// judge notes how a batch went. With a Pause, all calls that wait get the error of one that failed.
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
