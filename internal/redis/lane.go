package redis

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// queueLength is how many calls wait in a lane. A further caller waits to enter.
	queueLength = 4096
	// pause is how long a lane refuses everybody at once after a round trip that failed for all, instead of letting each caller wait for one more timeout.
	pause = 200 * time.Millisecond
)

// Lane makes one round trip of what queued while the last one was under way. There is no timer: a lone call goes out at once. Its methods may be called concurrently,
// except that Stop comes last.
type Lane[Q, A any] struct {
	queue   chan *waiting[Q, A]
	most    int
	trip    func(context.Context, []Q) ([]A, error)
	stopped chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// shut is until when everybody is refused, and why.
	shut time.Time
	why  error
}

// waiting is a caller.
type waiting[Q, A any] struct {
	items   []Q
	answers []A
	err     error
	done    chan struct{}
}

// NewLane makes a lane, which Start starts. trip makes a round trip of at least one item, and about most of them, in bounded time, and returns an answer for each, or an
// error for all.
func NewLane[Q, A any](most int, trip func(context.Context, []Q) ([]A, error)) *Lane[Q, A] {
	return &Lane[Q, A]{queue: make(chan *waiting[Q, A], queueLength), most: most, trip: trip, stopped: make(chan struct{})}
}

// Start starts the lane's goroutine, which runs until Stop. It is called once.
func (l *Lane[Q, A]) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.running.Go(func() {
		for {
			select {
			case first := <-l.queue:
				l.serve(ctx, first)
			case <-ctx.Done():
				return
			}
		}
	})
}

// Stop ends the goroutine and waits for it. A round trip under way is broken off, and whoever waits, or comes later, gets Unavailable.
func (l *Lane[Q, A]) Stop() {
	close(l.stopped)
	if l.cancel != nil {
		l.cancel()
	}
	l.running.Wait()
}

// Do returns the answers to the items. If ctx ends before, it returns Unavailable, and they may still be done.
func (l *Lane[Q, A]) Do(ctx context.Context, items []Q) ([]A, error) {
	if err := l.refused(); err != nil {
		return nil, err
	}
	w := &waiting[Q, A]{items: items, done: make(chan struct{})}
	select {
	case l.queue <- w:
	case <-ctx.Done():
		return nil, tidemark.Wrap(tidemark.Unavailable, ctx.Err(), "the call ran out of time before Redis took it")
	case <-l.stopped:
		return nil, errStopped()
	}
	select {
	case <-w.done:
		return w.answers, w.err
	case <-ctx.Done():
		return nil, tidemark.Wrap(tidemark.Unavailable, ctx.Err(), "the call ran out of time; Redis may still do it")
	case <-l.stopped:
		return nil, errStopped()
	}
}

func (l *Lane[Q, A]) refused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil && time.Now().Before(l.shut) {
		return l.why
	}
	return nil
}

// serve makes the round trip of the first caller and those behind it.
func (l *Lane[Q, A]) serve(ctx context.Context, first *waiting[Q, A]) {
	// Those who were answered just now come back with their next call: let them.
	runtime.Gosched()
	batch, items := l.gather([]*waiting[Q, A]{first}, first.items, l.most)
	answers, err := l.trip(ctx, items)
	l.mu.Lock()
	l.why = err
	l.shut = time.Now().Add(pause)
	l.mu.Unlock()
	if err != nil {
		// If there was no answer, that is no better for those who queued meanwhile.
		//rule:bounded_input.fail-all-that-waits
		batch, _ = l.gather(batch, nil, queueLength*l.most)
	}
	for _, w := range batch {
		if w.err = err; err == nil {
			w.answers, answers = answers[:len(w.items):len(w.items)], answers[len(w.items):]
		}
		close(w.done)
	}
}

// gather adds the callers that are in the queue now, until they have most items.
func (l *Lane[Q, A]) gather(batch []*waiting[Q, A], items []Q, most int) ([]*waiting[Q, A], []Q) {
	items = items[:len(items):len(items)] // the first caller's stay its own
	//rule:few_round_trips.fill-the-batch
	for len(items) < most {
		select {
		case w := <-l.queue:
			batch, items = append(batch, w), append(items, w.items...)
		default:
			return batch, items
		}
	}
	return batch, items
}
