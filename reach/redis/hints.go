// Package redis carries hints between processes that share a Redis. They say which chats have news
// for outlets (reach.Engine.Hint), and which banners were sent, read or confirmed
// (pusher.Config.Forward). A lost hint costs little, so none is repeated.
package redis

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/internal/signal"
)

const (
	// channel is where the hints of all processes are published.
	channel = "gateway:outlets:hints"
	// collect is how long hints are collected for a publication.
	collect = 20 * time.Millisecond
	// maxWaiting is how many hints wait for a publication at most. Further ones are dropped.
	maxWaiting = 10_000
	// maxPublished is how many of them a publication has at most.
	maxPublished = 500
	// again is the least time after which a broken subscription is tried again, and silence how
	// long a subscription may get nothing before it is replaced: it may be dead.
	again   = 500 * time.Millisecond
	silence = time.Minute
)

// Hints sends hints to the other processes, and receives theirs. Call New, and then Run once. Send
// is safe for concurrent use.
type Hints struct {
	client *redis.Client
	wake   signal.Flag
	// sent counts publications, and dropped counts hints.
	sent, dropped atomic.Int64

	mu      sync.Mutex
	waiting map[string]struct{}
}

// New returns hints over a client of Redis.
func New(client *redis.Client) *Hints {
	return &Hints{
		client: client, wake: signal.New(), waiting: map[string]struct{}{},
	}
}

// Send sends a hint to the other processes. A hint must not contain spaces. Send never blocks.
func (h *Hints) Send(hint string) {
	h.mu.Lock()
	full := len(h.waiting) >= maxWaiting
	if !full {
		h.waiting[hint] = struct{}{}
	}
	h.mu.Unlock()
	if full {
		h.dropped.Add(1)
		return
	}
	h.wake.Set()
}

// Counters returns the figures by the names of their metrics.
func (h *Hints) Counters() map[string]int64 {
	return map[string]int64{
		"outlet_hints_published_total":   h.sent.Load(),
		"outlet_hints_unpublished_total": h.dropped.Load(),
	}
}

// Run publishes what is sent, and calls received for the hints of all processes, also of this one,
// until ctx ends.
func (h *Hints) Run(ctx context.Context, received func(hint string)) {
	var running sync.WaitGroup
	running.Go(func() { h.receive(ctx, received) })
	h.publish(ctx)
	running.Wait()
}

// publish publishes until ctx ends.
func (h *Hints) publish(ctx context.Context) {
	for ctx.Err() == nil {
		if _, ok := h.wake.WaitUntil(ctx, time.Now().Add(time.Hour)); !ok {
			return
		}
		signal.Pause(ctx, collect)
		h.mu.Lock()
		waiting := h.waiting
		h.waiting = make(map[string]struct{}, len(waiting))
		h.mu.Unlock()
		var calls []redis.Call
		for _, payload := range payloads(waiting) {
			calls = append(calls, h.client.Publish(channel, payload))
		}
		if len(calls) == 0 {
			continue
		}
		for _, reply := range h.client.Run(ctx, calls) {
			if reply.Err == nil {
				h.sent.Add(1)
			}
		}
	}
}

// payloads returns hints, divided by spaces.
func payloads(hints map[string]struct{}) [][]byte {
	var all [][]byte
	var one []byte
	n := 0
	for hint := range hints {
		if n++; n > 1 {
			one = append(one, ' ')
		}
		if one = append(one, hint...); n == maxPublished {
			all, one, n = append(all, one), nil, 0
		}
	}
	if n > 0 {
		all = append(all, one)
	}
	return all
}

// receive receives hints until ctx ends.
func (h *Hints) receive(ctx context.Context, received func(hint string)) {
	for ctx.Err() == nil {
		subscription, err := h.client.Subscribe(ctx, channel)
		if err == nil {
			h.listen(ctx, subscription, received)
		}
		signal.Pause(ctx, again+rand.N(again))
	}
}

// listen receives hints until the subscription or ctx ends.
func (h *Hints) listen(
	ctx context.Context, subscription *redis.Subscription, received func(hint string),
) {
	stop := context.AfterFunc(ctx, subscription.Close) // which ends Receive
	defer subscription.Close()
	defer stop()
	for {
		text, err := subscription.Receive(ctx, silence)
		if err != nil || ctx.Err() != nil {
			return
		}
		for hint := range strings.FieldsSeq(text) {
			received(hint)
		}
	}
}
