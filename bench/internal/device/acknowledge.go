package device

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// Acknowledger acknowledges to the server what one device has: the contiguous prefix per chat.
// It writes after `every` messages, or `interval` after the first of them, whichever comes first
// (ADR-008 §2.1).
type Acknowledger struct {
	every    int
	interval time.Duration
	// write sends one batch of acknowledgements: {"chats":[...]}.
	write func(body []byte) error
	// first and full signal Run: the first message after a flush, and the one that fills the batch.
	first, full signal.Flag

	mu      sync.Mutex
	pending map[string]uint64 // chat to its unwritten prefix
	known   map[string]uint64 // chat to its prefix
	count   int
	writing bool
	written int64
}

// NewAcknowledger returns an acknowledger, whose Run calls write with each batch.
func NewAcknowledger(every int, interval time.Duration, write func([]byte) error) *Acknowledger {
	return &Acknowledger{
		every: every, interval: interval, write: write,
		first: signal.New(), full: signal.New(),
		pending: make(map[string]uint64), known: make(map[string]uint64),
	}
}

// Received records one more message of a chat. The chat's contiguous prefix is now through.
func (a *Acknowledger) Received(chat []byte, through uint64) {
	a.mu.Lock()
	a.pending[string(chat)], a.known[string(chat)] = through, through
	a.count++
	count := a.count
	a.mu.Unlock()
	if count == 1 {
		a.first.Set()
	}
	if count == a.every {
		a.full.Set()
	}
}

// Again makes Run write the prefixes of all chats once more. A device calls it after it lost its
// connection, and perhaps an acknowledgement on it.
func (a *Acknowledger) Again() {
	a.mu.Lock()
	maps.Copy(a.pending, a.known)
	if len(a.pending) > 0 {
		a.count++
	}
	count := a.count
	a.mu.Unlock()
	if count == 1 {
		a.first.Set()
	}
}

// Idle reports whether everything received has been written.
func (a *Acknowledger) Idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count == 0 && !a.writing
}

// Hurry makes Run write at once what is pending, as a client does that has caught up.
func (a *Acknowledger) Hurry() { a.full.Set() }

// Run writes acknowledgements until ctx ends or a write fails.
func (a *Acknowledger) Run(ctx context.Context) error {
	for a.first.Wait(ctx) {
		if _, ok := a.full.WaitUntil(ctx, time.Now().Add(a.interval)); !ok {
			return nil
		}
		if err := a.flush(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (a *Acknowledger) flush() error {
	a.full.Clear()
	a.mu.Lock()
	body := append([]byte(nil), `{"chats":[`...)
	first := true
	for chat, through := range a.pending {
		if !first {
			body = append(body, ',')
		}
		first = false
		body = append(body, `{"chat_id":`...)
		body = client.AppendQuoted(body, chat)
		body = append(body, `,"last_acked_sequence":`...)
		body = strconv.AppendUint(body, through, 10)
		body = append(body, '}')
	}
	body = append(body, "]}"...)
	clear(a.pending)
	a.count, a.writing = 0, true
	a.mu.Unlock()

	var err error
	if !first {
		err = a.write(body)
	}

	a.mu.Lock()
	a.writing = false
	a.written++
	a.mu.Unlock()
	return err
}

// Writes returns how many batches were written.
func (a *Acknowledger) Writes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.written
}
