package faults

import (
	"sync"
	"time"
)

const (
	// quick is how long a call takes if the service is not overloaded; slow, if it is, or if a
	// fault has befallen the call.
	quick, slow = 200 * time.Millisecond, time.Second
	// leastCalls and mostCalls bound how many calls are under way at a time.
	leastCalls, mostCalls = 4, 32
)

// pace makes the load what the machine serves. The stores give a call up after a while, and the
// service works on it all the same: callers who are more than it serves are never served. A quick
// call lets one more be under way at a time, and a slow one half as many. A nil pace bounds
// nothing.
type pace struct {
	mu    sync.Mutex
	free  sync.Cond
	most  int
	under int
}

func newPace() *pace {
	p := &pace{most: leastCalls}
	p.free.L = &p.mu
	return p
}

// enter waits for a place.
func (p *pace) enter() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.under >= p.most {
		p.free.Wait()
	}
	p.under++
}

// leave gives the place back after a call that took so long.
func (p *pace) leave(took time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under--
	switch {
	case took < quick:
		p.most = min(p.most+1, mostCalls)
	case took > slow:
		p.most = max(p.most/2, leastCalls)
	}
	p.free.Broadcast()
}
