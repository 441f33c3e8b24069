package stream

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// highWater is how many bytes may wait behind the current write before Wait blocks: one
	// page of events.
	highWater = 64 << 10
	// chunk is the largest number of bytes that one write deadline covers.
	chunk = 64 << 10
)

// Conn is what a Writer writes to. A net.Conn is one.
type Conn interface {
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error
	// Close ends a Write that is under way, at the latest at its deadline.
	Close() error
}

// Writer is the write side of a connection. Many goroutines may append to it. A goroutine that
// flushes while no write is under way writes what all of them appended, in one call; the others do
// not wait. So answers and events of a busy connection share system calls. No goroutine waits for
// work, and no lock is held during a write.
//
// If a write fails or makes no progress for the timeout, the writer closes the connection, which
// ends its reader. From then on every method returns the error. A client that reads slowly is not
// cut.
type Writer struct {
	conn    Conn
	pool    *Pool
	timeout time.Duration

	mu sync.Mutex
	// room is signalled when a flush takes pending and when writing ends.
	room    sync.Cond
	pending *[]byte // nil if there is nothing to write
	writing bool
	err     error
}

// Init makes the writer write to conn with buffers of pool. It must be called once and before any
// other method but Close.
func (w *Writer) Init(conn Conn, pool *Pool, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.pool, w.timeout = conn, pool, timeout
	w.room.L = &w.mu
}

// Write appends p to the next flush. It never blocks. It implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	if err := w.Append(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Append appends all parts to the next flush, with nothing between them. It never blocks.
func (w *Writer) Append(parts ...[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.pending == nil {
		w.pending = w.pool.Get()
	}
	for _, p := range parts {
		*w.pending = append(*w.pending, p...)
	}
	return nil
}

// Wait blocks while at least highWater bytes wait. If no write is under way, it writes them. A
// goroutine that produces without a bound must call it before Write.
func (w *Writer) Wait() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	//rule:bounded_use.wait-for-room
	for w.err == nil && w.pending != nil && len(*w.pending) >= highWater {
		if w.writing {
			w.room.Wait()
		} else {
			w.flush()
		}
	}
	return w.err
}

// Flush writes what was appended. If another goroutine is writing, that one writes this too, and
// Flush returns at once.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.writing {
		w.flush()
	}
	return w.err
}

// flush writes what was appended, while mu is not held. No write is under way.
func (w *Writer) flush() {
	w.writing = true
	for w.pending != nil && w.err == nil {
		b := w.pending
		w.pending = nil
		w.room.Broadcast()
		w.mu.Unlock()
		err := w.send(*b)
		w.pool.Put(b)
		w.mu.Lock()
		if err != nil {
			w.err = err
		}
	}
	if w.err != nil {
		w.pool.Put(w.pending)
		w.pending = nil
	}
	w.writing = false
	w.room.Broadcast()
}

// Drain flushes and waits until all that was appended before is written, or the connection has
// failed.
func (w *Writer) Drain() error {
	_ = w.Flush() // its error is w.err
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && (w.writing || w.pending != nil) {
		w.room.Wait()
	}
	return w.err
}

// Close closes the connection and waits until no goroutine writes to it. It drops what was not
// written yet. A writer that is closed before Init refuses everything and leaves the connection to
// its owner.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = net.ErrClosed
	}
	if conn := w.conn; conn != nil {
		w.mu.Unlock()
		_ = conn.Close()
		w.mu.Lock()
	}
	for w.writing {
		w.room.Wait()
	}
	if w.pending != nil {
		w.pool.Put(w.pending)
		w.pending = nil
	}
	w.room.Broadcast()
}

// Busy reports whether a write is under way, which means that a slow client has not taken it yet.
func (w *Writer) Busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writing
}

// send writes b in chunks. A chunk gets the whole timeout again whenever the client took a part of
// it.
func (w *Writer) send(b []byte) error {
	for len(b) > 0 {
		//rule:bounded_use.write-deadline
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			_ = w.conn.Close()
			return err
		}
		n, err := w.conn.Write(b[:min(len(b), chunk)])
		b = b[n:]
		//rule:resume_lossless.keep-slow-client
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			_ = w.conn.Close()
			return err
		}
	}
	return nil
}
