package http

import (
	"bytes"
	"context"
	"crypto/hmac"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/internal/frame"
	"github.com/tidemark-im/tidemark/server/registry"
)

// link posts the publications to a life of a node, one post at a time.
type link struct {
	bus  *Bus
	node registry.Node
	// posts answers with NotFound, or with nil. Its error is Unavailable.
	posts *batch.Batcher[*bus.Event, error]
	// used is when the last publication began: how long after Bus.began.
	used atomic.Int64
	// failed says that the last post failed, so that the node may have died. probing says that a
	// probe is under way.
	failed, probing atomic.Bool
}

// Publish implements bus.Bus. For an event for a node of this process, it calls the subscriber.
func (b *Bus) Publish(ctx context.Context, publications []bus.Publication) []error {
	errs := make([]error, len(publications))
	away := make(map[registry.Node][]int)
	var order []registry.Node
	for i := range publications {
		p := &publications[i]
		if s, _ := b.here(p.Node); s != nil {
			s.receive(p.Event)
			continue
		}
		if away[p.Node] == nil {
			order = append(order, p.Node)
		}
		away[p.Node] = append(away[p.Node], i)
	}
	var others sync.WaitGroup
	for n, node := range order {
		post := func() {
			events := make([]*bus.Event, len(away[node]))
			for k, i := range away[node] {
				events[k] = &publications[i].Event
			}
			err := b.publish(ctx, node, events)
			for _, i := range away[node] {
				errs[i] = err
			}
		}
		if n == len(order)-1 {
			post()
		} else {
			others.Go(post)
		}
	}
	others.Wait()
	return errs
}

// publish publishes events to another process. They share their outcome.
func (b *Bus) publish(ctx context.Context, node registry.Node, events []*bus.Event) error {
	b.count.events.Add(int64(len(events)))
	l, err := b.link(node)
	if err == nil {
		var answers []error
		if answers, err = l.posts.Do(ctx, events); err == nil {
			if answers[0] != nil {
				b.count.nobody.Add(int64(len(events)))
			}
			return answers[0]
		}
	}
	if slices.ContainsFunc(events, func(e *bus.Event) bool { return !e.Repeated() }) {
		// Also a caller who has left, or found no place in the queue, may be the only one to know.
		//rule:R_EPOCH.complain-of-each-failure
		b.cfg.Peers.Complain(node)
	}
	return err
}

// link returns the link to a node. It is in use from then on, so that unlink leaves it.
func (b *Bus) link(node registry.Node) (*link, error) {
	b.mu.RLock()
	l := b.links[node]
	if l != nil {
		l.use()
	}
	b.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, tidemark.Errorf(tidemark.Unavailable, "the bus has stopped")
	}
	if l = b.links[node]; l == nil {
		l = &link{bus: b, node: node}
		l.posts = batch.New(batch.Config{
			Name: "node " + string(node.ID), Most: postEvents, Pause: pauseAfterFailure,
		}, func(ctx context.Context, collect func() []*bus.Event) ([]error, error) {
			events := collect()
			err := l.post(ctx, events)
			// It holds for these events only, and not for those that come within the pause: the
			// node may join meanwhile.
			//rule:R_NOBODY.ask-for-each-post
			if tidemark.CodeOf(err) == tidemark.NotFound {
				return slices.Repeat([]error{err}, len(events)), nil
			}
			return make([]error, len(events)), err
		})
		l.posts.Start()
		b.links[node] = l
	}
	l.use()
	return l, nil
}

// use records that a publication or a probe of an unreached node begins or ends.
func (l *link) use() { l.used.Store(int64(time.Since(l.bus.began))) }

// unlink forgets links without publications for a while, such as those to nodes that have ended.
func (b *Bus) unlink() {
	before := int64(time.Since(b.began) - idleTime)
	var over []*link
	b.mu.Lock()
	for node, l := range b.links {
		if l.used.Load() < before {
			over = append(over, l)
			delete(b.links, node)
		}
	}
	b.mu.Unlock()
	for _, l := range over {
		l.posts.Abort()
	}
}

// probe posts an empty frame over each link whose last post failed. It complains again of nodes
// that still are not reached. Otherwise complaints would end when there is nothing to publish, and
// the node would join anew, although nothing has changed. probe does not wait for the posts.
func (b *Bus) probe() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, l := range b.links {
		if !b.stopped && l.failed.Load() && l.probing.CompareAndSwap(false, true) {
			b.probes.Go(func() {
				defer l.probing.Store(false)
				err := l.post(b.ending, nil)
				// A link to a node that has ended is not used any more.
				if tidemark.CodeOf(err) == tidemark.Unavailable && b.ending.Err() == nil {
					l.use()
					//rule:R_EPOCH.complain-until-reached
					b.cfg.Peers.Complain(l.node)
				}
			})
		}
	}
}

// post posts events, in several posts if they are large, or an empty frame. Its error is NotFound
// in two cases only. Either the registry says, after the publications began, that the node has no
// lease. Or another life of the node answers. Then this life must join again, and its sessions
// reconcile. A refused connection proves no such thing: a firewall refuses, too.
func (l *link) post(ctx context.Context, events []*bus.Event) error {
	peers, find, within := l.bus.cfg.Peers, l.bus.cfg.Peers.Address, postTime
	if l.failed.Load() {
		find = peers.Find
		if len(events) > 0 {
			within = failedTime
		}
	}
	begun, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	address, err := find(begun, l.node)
	for rest, first := events, true; err == nil && (first || len(rest) > 0); first = false {
		body := frame.Begin(nil)
		for len(rest) > 0 && len(body) <= MaxFrame {
			body = frame.AppendEvent(body, rest[0])
			rest = rest[1:]
		}
		err = l.send(begun, address, body)
	}
	if err == nil {
		l.failed.Store(false)
		return nil
	}
	if !l.failed.Swap(true) && tidemark.CodeOf(err) != tidemark.NotFound {
		// The time of the post may be over: the question has its own.
		ask, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		//rule:R_NOBODY.ask-registry-whether-node-died
		if _, gone := peers.Find(ask, l.node); tidemark.CodeOf(gone) == tidemark.NotFound {
			return gone
		}
	}
	return err
}

// send posts a frame. The error is NotFound if another life of the node answers, else Unavailable.
func (l *link) send(ctx context.Context, address string, body []byte) error {
	b := l.bus
	code := b.codeOf(l.node, body)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path,
		bytes.NewReader(body))
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"the address of node "+string(l.node.ID)+" is none")
	}
	r.Header[headerNode] = []string{string(l.node.ID)}
	r.Header[headerBoot] = []string{l.node.Boot}
	r.Header[headerCode] = []string{code}
	// The transport may post it again on another connection: an event may come twice. An empty key
	// is not sent.
	r.Header["Idempotency-Key"] = []string{}
	b.count.frames.Add(1)
	b.count.bytes.Add(int64(len(body)))
	response, err := b.client.Do(r)
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"node "+string(l.node.ID)+" cannot be reached at "+address)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 4<<10))
	_ = response.Body.Close()
	//rule:R_NOBODY.believe-nodes-only
	if !hmac.Equal([]byte(response.Header.Get(headerCode)), []byte(b.answerTo(code,
		response.StatusCode))) {
		return tidemark.Errorf(tidemark.Unavailable,
			"what answers at %s is not node %s, or has another secret", address, l.node.ID)
	}
	switch response.StatusCode {
	case http.StatusNoContent:
		return nil
	//rule:R_NOBODY.report-no-receiver-over-http
	case http.StatusNotFound:
		return tidemark.Errorf(tidemark.NotFound, "node %s is not subscribed", l.node.ID)
	default:
		return tidemark.Errorf(tidemark.Unavailable, "node %s answered %d at %s", l.node.ID,
			response.StatusCode, address)
	}
}
