// Package lane makes one write of many calls.
package lane

import (
	"context"
	"runtime"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// queueLength is how many calls wait in a lane. A further caller waits to enter.
const queueLength = 4096

// A Lane takes calls of one kind. Each of its goroutines takes all that queued while it was busy, and writes it at once. There is no timer: a
// lone call is written at once. Its methods may be called concurrently, except that Stop comes last.
type Lane[I, R any] struct {
	queue   chan *call[I, R]
	width   int
	most    int
	write   func(collect func() []I) ([]R, error)
	running sync.WaitGroup
}

// A call is what one caller wants written.
type call[I, R any] struct {
	items   []I
	results []R
	err     error
	done    chan struct{}
}

// New makes a lane of a number of goroutines, which Start starts. write calls collect when it is able to write, does the items in their order, and
// returns a result for each, or an error for all. collect returns calls until they have most items, and the same each time; what queues until it is
// called comes along.
func New[I, R any](width, most int, write func(collect func() []I) ([]R, error)) *Lane[I, R] {
	return &Lane[I, R]{queue: make(chan *call[I, R], queueLength), width: width, most: most, write: write}
}

// Start starts the goroutines, which write until Stop. It is called once.
func (l *Lane[I, R]) Start() {
	for range l.width {
		l.running.Go(func() {
			for first := range l.queue {
				l.serve(first)
			}
		})
	}
}

// Stop ends the goroutines, and waits for them. No call is under way.
func (l *Lane[I, R]) Stop() {
	close(l.queue)
	l.running.Wait()
}

// Waiting returns how many calls wait in the queue.
func (l *Lane[I, R]) Waiting() int { return len(l.queue) }

// Do returns when the items are written. If ctx ends before, it returns Unavailable, and they may still be.
func (l *Lane[I, R]) Do(ctx context.Context, items []I) ([]R, error) {
	c := &call[I, R]{items: items, done: make(chan struct{})}
	select {
	case l.queue <- c:
	case <-ctx.Done():
		return nil, tidemark.Wrap(tidemark.Unavailable, ctx.Err(), "the call ran out of time before the database took it")
	}
	select {
	case <-c.done:
		return c.results, c.err
	case <-ctx.Done():
		return nil, tidemark.Wrap(tidemark.Unavailable, ctx.Err(), "the call ran out of time; it may still be stored")
	}
}

// serve writes the first call and those behind it.
func (l *Lane[I, R]) serve(first *call[I, R]) {
	batch := []*call[I, R]{first}
	items, collected := first.items, false
	collect := func() []I {
		if !collected {
			collected = true
			// Those who were answered just now come back with their next write: let them.
			runtime.Gosched()
			batch, items = l.gather(batch)
		}
		return items
	}
	results, err := l.write(collect)
	collect() // If it could not write, that is no better for those who wait.
	for _, c := range batch {
		if c.err = err; err == nil {
			c.results, results = results[:len(c.items):len(c.items)], results[len(c.items):]
		}
		close(c.done)
	}
}

// gather adds the calls that are in the queue now.
func (l *Lane[I, R]) gather(batch []*call[I, R]) ([]*call[I, R], []I) {
	items := batch[0].items
	for len(items) < l.most {
		select {
		case c, open := <-l.queue:
			if !open {
				return batch, items
			}
			if len(batch) == 1 {
				// The first call's items stay its own.
				items = append(make([]I, 0, 4*(len(items)+len(c.items))), items...)
			}
			batch, items = append(batch, c), append(items, c.items...)
		default:
			return batch, items
		}
	}
	return batch, items
}
