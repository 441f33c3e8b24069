package stream

import "sync"

// largestKept is the capacity above which a buffer is left to the garbage collector.
const largestKept = 256 << 10

// Pool is the buffers of the connections of one adapter: an idle connection has none. The zero value is ready.
type Pool struct{ pool sync.Pool }

// Get returns an empty buffer.
func (p *Pool) Get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 4<<10)
	return &b
}

// Put gives a buffer back, which must not be used any more. A nil or very large one is dropped.
func (p *Pool) Put(b *[]byte) {
	if b == nil || cap(*b) > largestKept {
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}
