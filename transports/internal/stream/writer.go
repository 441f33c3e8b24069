package stream

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// highWater is how many bytes may wait behind the write under way before Wait blocks: one page of events.
	highWater = 64 << 10
	// chunk is the greatest number of bytes that one deadline covers.
	chunk = 64 << 10
)

// Conn is what a Writer writes to. A net.Conn is one.
type Conn interface {
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error
	// Close ends a Write that is under way, at the latest at its deadline.
	Close() error
}

// Writer is the write side of a connection. Many goroutines may append to it; whoever flushes while nobody is writing writes what all
// of them appended, in one call, and the others go on. So answers and events of a busy connection share
// system calls, no goroutine waits for work, and no lock is held while writing.
//
// A write that makes no progress for the timeout, or fails, closes the connection, which ends its reader; from then on
// every method returns the error. A client that reads slowly is not cut.
type Writer struct {
	conn    Conn
	pool    *Pool
	timeout time.Duration

	mu sync.Mutex
	// room is told when pending was taken and when writing ends.
	room    sync.Cond
	pending *[]byte // nil while nothing waits
	writing bool
	err     error
}

// Init makes the writer ready to write to conn, with buffers from pool. It must be called once, before anything else but Close.
func (w *Writer) Init(conn Conn, pool *Pool, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.pool, w.timeout = conn, pool, timeout
	w.room.L = &w.mu
}

// Write appends p to what the next flush writes. It never blocks. It implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	if err := w.Append(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Append appends all parts, with nothing between them, to what the next flush writes. It never blocks.
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

// Wait blocks while a page or more waits to be written. Whoever produces without a bound calls it before Write.
func (w *Writer) Wait() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	//rule:bounded_use.wait-for-room
	for w.err == nil && w.pending != nil && len(*w.pending) >= highWater {
		w.room.Wait()
	}
	return w.err
}

// Flush writes what was appended, unless another goroutine is writing: that one takes it along, and Flush returns at once.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing {
		return w.err
	}
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
	return w.err
}

// Drain flushes and returns when everything that was appended before has been written, or the connection failed.
func (w *Writer) Drain() error {
	_ = w.Flush() // its error is w.err
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && (w.writing || w.pending != nil) {
		w.room.Wait()
	}
	return w.err
}

// Close closes the connection, and returns when nobody writes to it any more. What was not written yet is dropped.
// A writer that is closed before Init refuses everything, and leaves the connection to its owner.
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

// Busy reports whether a write is under way: a slow client has not yet taken what it was sent.
func (w *Writer) Busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writing
}

// send writes b. Each chunk has the whole timeout, and gets it again whenever the client took some of it.
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
