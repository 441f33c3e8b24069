package stream

import "sync"

// largestKept is the largest capacity, in bytes, of a buffer that the pool keeps.
const largestKept = 256 << 10

// Pool holds the write buffers of one adapter's connections, so that an idle connection has none.
// The zero value is ready to use. It is safe for concurrent use.
type Pool struct{ pool sync.Pool }

// Get returns an empty buffer.
func (p *Pool) Get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 4<<10)
	return &b
}

// Put takes a buffer back. The caller must not use it any more. Put drops nil and buffers larger
// than largestKept.
func (p *Pool) Put(b *[]byte) {
	if b == nil || cap(*b) > largestKept {
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}
