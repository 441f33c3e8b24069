package client

import (
	"context"
	"sync"
	"time"
)

// stream is one connection over any transport. One goroutine calls next.
type stream interface {
	// next returns the next event. The one before is handled when it is called. Every error is a
	// *failure, or the cause of ctx.
	next(ctx context.Context) (event, error)
	// close drops the connection, and waits for its goroutines. The session stays.
	close()
}

// framer is a stream that takes frames.
type framer interface {
	// open reports whether the session has come.
	open() bool
	// write sends a frame.
	write(ctx context.Context, frame []byte) error
}

// dial returns a stream at a position. It connects at the first call of next.
func (c *Client) dial(
	ctx context.Context, over Transport, token string, at position, w *watch,
) stream {
	switch over {
	case SSE:
		return newSSE(ctx, c, token, at, w)
	case LongPoll:
		return &longPoll{c: c, token: token, at: at, watch: w}
	default:
		return &webSocket{c: c, token: token, at: at, watch: w}
	}
}

// defaultHeartbeat is the heartbeat of a server that does not name one.
const defaultHeartbeat = 20 * time.Second

// watch ends a stream that is silent for too long.
//
//	stage     begins with    ends the stream after  as
//	waiting                  first                  blocked
//	accepted  the first byte session                busy
//	open      the session    two heartbeats         silent
type watch struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the fields below
	stage stage
	timer *time.Timer
	bound time.Duration
	cause *failure
}

// stage is how far a stream is.
type stage int

// The stages.
const (
	waiting stage = iota
	accepted
	opened
)

func newWatch(cancel context.CancelCauseFunc, first time.Duration, cause *failure) *watch {
	w := &watch{cancel: cancel, bound: first, cause: cause}
	w.timer = time.AfterFunc(first, w.expire)
	return w
}

func (w *watch) expire() {
	w.mu.Lock()
	cause := w.cause
	w.mu.Unlock()
	w.cancel(cause)
}

// heard notes that something arrived. While the session has not come, bound is how long that may
// take from the first byte on.
func (w *watch) heard(bound time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.stage {
	case waiting:
		w.stage = accepted
		w.setLocked(bound, fail(busy, nil, "the session did not come"))
	case opened:
		w.timer.Reset(w.bound)
	}
}

// opened notes that the session came.
func (w *watch) opened(heartbeat time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stage = opened
	w.setLocked(2*heartbeat, fail(silent, nil, "no sign of life for two heartbeats"))
}

// within bounds the time until the next sign of life, if the stream is open.
func (w *watch) within(bound time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stage == opened {
		w.setLocked(bound, w.cause)
	}
}

func (w *watch) setLocked(bound time.Duration, cause *failure) {
	w.bound, w.cause = bound, cause
	w.timer.Reset(bound)
}

func (w *watch) stop() { w.timer.Stop() }
