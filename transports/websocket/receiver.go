package websocket

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// receiver reads what a client sends. Its buffer is of a pool, and it has none while it waits for a
// frame. So to wait, a connection needs only the stack of its goroutine, 2 KiB.
//
// Its methods must be called from one goroutine. After an error, only close may be called.
type receiver struct {
	conn net.Conn
	pool *stream.Pool
	// raw waits for bytes without a buffer. It is nil if the connection is no socket.
	raw syscall.RawConn
	// read is readSocket, and err its error.
	read func(socket uintptr) bool
	err  error

	// in has what was read, or is nil. Its first used bytes are handled.
	in   *[]byte
	used int
	// message has the fragments of an unfinished message, and kind is its opcode. kind is
	// opContinuation if no message is unfinished.
	message *[]byte
	kind    opcode
}

func (r *receiver) init(conn net.Conn, pool *stream.Pool) {
	r.conn, r.pool, r.read = conn, pool, r.readSocket
	if socket, ok := conn.(syscall.Conn); ok {
		r.raw, _ = socket.SyscallConn() // without it the receiver waits with a buffer
	}
}

// await waits until there are bytes to handle.
func (r *receiver) await() error {
	switch {
	case r.in != nil:
		return nil
	case r.raw == nil:
		return r.fill()
	}
	if err := r.raw.Read(r.read); err != nil {
		return err
	}
	return r.err
}

// readSocket reads what has arrived. If nothing has, it returns false, and keeps no buffer.
func (r *receiver) readSocket(socket uintptr) bool {
	b := r.pool.Get()
	n, err := syscall.Read(int(socket), (*b)[:cap(*b)])
	for err == syscall.EINTR {
		n, err = syscall.Read(int(socket), (*b)[:cap(*b)])
	}
	if n > 0 {
		*b = (*b)[:n]
		r.in = b
		return true
	}
	r.pool.Put(b)
	switch err {
	case nil:
		r.err = io.EOF
	case syscall.EAGAIN:
		return false
	default:
		r.err = os.NewSyscallError("read", err)
	}
	return true
}

// fill reads more, behind what is not handled.
func (r *receiver) fill() error {
	if r.in == nil {
		r.in = r.pool.Get()
	}
	b := *r.in
	if r.used > 0 {
		b = b[:copy(b, b[r.used:])]
		r.used = 0
	}
	if len(b) == cap(b) {
		// It grows with what has come, not with the length that the client announces.
		b = append(b, 0)[:len(b)]
	}
	n, err := r.conn.Read(b[len(b):cap(b)])
	*r.in = b[:len(b)+n]
	if n > 0 {
		return nil
	}
	return err
}

// next returns the next control frame, or the next message with the opcode of its first frame. The
// payload is valid until the next call of done.
func (r *receiver) next() (opcode, []byte, error) {
	for {
		h, payload, err := r.frame()
		if err != nil || h.opcode.control() {
			return h.opcode, payload, err
		}
		switch first := h.opcode != opContinuation; {
		case first && r.unfinished():
			return 0, nil, malformed("a message begins before the end of another")
		case !first && !r.unfinished():
			return 0, nil, malformed("a fragment of no message")
		case first && h.final:
			return h.opcode, payload, nil
		case first:
			r.kind, r.message = h.opcode, r.pool.Get()
		}
		*r.message = append(*r.message, payload...)
		if h.final {
			kind := r.kind
			r.kind = opContinuation
			return kind, *r.message, nil
		}
	}
}

// unfinished reports whether a message has begun and not ended.
func (r *receiver) unfinished() bool { return r.kind != opContinuation }

// frame returns the next frame.
func (r *receiver) frame() (head, []byte, error) {
	most := wire.MaxBody
	if r.unfinished() {
		most -= len(*r.message)
	}
	for {
		if r.in != nil {
			rest := (*r.in)[r.used:]
			h, ok, err := parseHead(rest, most)
			if err != nil {
				return h, nil, err
			}
			if end := h.size + h.length; ok && len(rest) >= end {
				payload := rest[h.size:end]
				unmask(payload, h.mask)
				r.used += end
				return h, payload, nil
			}
		}
		if err := r.fill(); err != nil {
			return head{}, nil, err
		}
	}
}

// done gives back the buffers of what next returned, unless they have something else to handle.
func (r *receiver) done() {
	if !r.unfinished() {
		r.pool.Put(r.message)
		r.message = nil
	}
	if r.in != nil && r.used == len(*r.in) {
		r.pool.Put(r.in)
		r.in, r.used = nil, 0
	}
}

// close gives all buffers back.
func (r *receiver) close() {
	r.pool.Put(r.message)
	r.pool.Put(r.in)
	r.message, r.in = nil, nil
}
