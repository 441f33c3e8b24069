package signal

import "sync"

// mostKept is how many goroutines a Pool keeps. Each has a stack of 2 to 8 KiB.
const mostKept = 512

// Pool has the goroutines of Runners. It keeps some that have nothing to do: the stack of a new
// goroutine has to grow, which costs more than its start. A Runner gets the one that came back
// last. The zero value is ready to use. It is safe for concurrent use.
type Pool struct {
	mu sync.Mutex
	// kept has the channels of the goroutines that wait for a Runner.
	kept    []chan *Runner
	closed  bool
	running sync.WaitGroup
}

// Close ends the goroutines that are kept, and waits for the others. Each Runner that was started
// must be over, or soon be over by itself. After Close none may be started.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	for _, next := range p.kept {
		close(next)
	}
	p.kept = nil
	p.mu.Unlock()
	p.running.Wait()
}

// run runs r on a goroutine.
func (p *Pool) run(r *Runner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.kept) - 1; last >= 0 {
		p.kept[last] <- r // it has room
		p.kept = p.kept[:last]
		return
	}
	p.running.Go(func() { p.work(r) })
}

// work runs r, and then what it is given.
func (p *Pool) work(r *Runner) {
	next := make(chan *Runner, 1)
	for r != nil {
		r.run()
		if !p.keep(next) {
			return
		}
		r = <-next
	}
}

// keep keeps a goroutine that has nothing to do. It returns false if the goroutine has to end.
func (p *Pool) keep(next chan *Runner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.kept) == mostKept {
		return false
	}
	p.kept = append(p.kept, next)
	return true
}
