// Package local is a bus for one process. A publication is a function call. Several nodes of one
// process may share one Bus.
package local

import (
	"context"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Bus implements bus.Bus. Use New. It is safe for concurrent use.
type Bus struct {
	mu          sync.RWMutex
	subscribers map[registry.Node]*subscription
}

// subscription is a node's subscriber. calls counts the calls under way, so that stop can wait for
// them.
type subscription struct {
	bus.Subscriber
	calls sync.WaitGroup
}

var _ bus.Bus = (*Bus)(nil)

// New returns a bus without subscribers.
func New() *Bus { return &Bus{subscribers: make(map[registry.Node]*subscription)} }

// Subscribe implements bus.Bus. stop waits for the calls under way, so the subscriber must not call
// it. Missed is never called.
func (b *Bus) Subscribe(_ context.Context, node registry.Node, s bus.Subscriber) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	//rule:R_ADDR.one-subscription-per-node
	if _, there := b.subscribers[node]; there {
		return nil, tidemark.Errorf(tidemark.Conflict, "node %s is subscribed already", node.ID)
	}
	sub := &subscription{Subscriber: s}
	b.subscribers[node] = sub
	return func() {
		b.mu.Lock()
		if b.subscribers[node] == sub {
			delete(b.subscribers, node)
		}
		b.mu.Unlock()
		//rule:R_ORDER.wait-for-running-calls
		sub.calls.Wait()
	}, nil
}

// Publish implements bus.Bus. It returns after the subscribers have been called.
func (b *Bus) Publish(_ context.Context, publications []bus.Publication) []error {
	errs := make([]error, len(publications))
	for i := range publications {
		errs[i] = b.publish(publications[i].Node, publications[i].Event)
	}
	return errs
}

func (b *Bus) publish(node registry.Node, event bus.Event) error {
	b.mu.RLock()
	sub := b.subscribers[node]
	if sub == nil {
		b.mu.RUnlock()
		//rule:R_NOBODY.report-missing-subscriber
		return tidemark.Errorf(tidemark.NotFound, "node %s is not subscribed", node.ID)
	}
	sub.calls.Add(1)
	b.mu.RUnlock()
	defer sub.calls.Done()
	sub.Receive(event)
	return nil
}
