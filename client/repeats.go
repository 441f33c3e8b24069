package client

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"
)

// repeats notes when net/http makes a request of a stream again by itself: its connection, which
// was in use before, broke without an answer. The server may serve the first one after the second,
// and then that replaces our own stream.
type repeats struct {
	mu sync.Mutex // guards the fields below
	// unanswered says that a request is under way.
	unanswered bool
	times      []time.Time
}

// trace returns a context for the requests of one stream, which follow one another.
func (r *repeats) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			r.mu.Lock()
			defer r.mu.Unlock()
			//rule:client_never_stuck.own-repetitions-are-noted
			if r.unanswered {
				r.times = append(r.times, time.Now())
			}
			r.unanswered = true
		},
		GotFirstResponseByte: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.unanswered = false
		},
	})
}

// all returns when it was.
func (r *repeats) all() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times
}
