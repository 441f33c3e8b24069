package faults

import (
	"sync"
	"time"
)

const (
	// quick is how long a call takes if the service is not overloaded. slow is how long it takes if
	// it is, or if a fault has happened to the call.
	quick, slow = 200 * time.Millisecond, time.Second
	// leastCalls and mostCalls bound the number of concurrent calls.
	leastCalls, mostCalls = 4, 32
)

// pace adapts the load to what the machine serves. The stores give a call up after a while, and the
// service still works on it. So if there are more callers than it serves, none is served. A quick
// call allows one more concurrent call, a slow one half as many. A nil pace bounds nothing.
type pace struct {
	mu      sync.Mutex
	free    sync.Cond
	most    int
	running int
}

func newPace() *pace {
	p := &pace{most: leastCalls}
	p.free.L = &p.mu
	return p
}

// enter waits until a call is allowed.
func (p *pace) enter() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running >= p.most {
		p.free.Wait()
	}
	p.running++
}

// leave ends a call that took so long.
func (p *pace) leave(took time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	switch {
	case took < quick:
		p.most = min(p.most+1, mostCalls)
	case took > slow:
		p.most = max(p.most/2, leastCalls)
	}
	p.free.Broadcast()
}
