package signal

import "sync/atomic"

// Runner calls a function while there is something to do, on a goroutine that it has only then. So
// something that waits needs no stack. It is the counterpart of a Flag: Set says that there is
// something to do, and the function finds out how much.
//
//	state      Start    Set      call returns Nothing   More      Over
//	unstarted  running  -        -                      -         -
//	running    -        again    idle                   running   over
//	again      -        -        running                running   over
//	idle       -        running  -                      -         -
//	over       -        -        -                      -         -
//
// A call begins in running. With the step to idle or over, the Runner leaves its goroutine. Two
// calls never overlap. The zero value is ready for Start. It is safe for concurrent use.
type Runner struct {
	state atomic.Uint32
	pool  *Pool
	call  func() Left
}

// The states of a Runner.
const (
	unstarted uint32 = iota
	idle             // there is no goroutine
	running          // a call is under way, and saw all that was set before it began
	again            // Set came during the call
	over             // there will be no further call
)

// Left is what a call of a Runner's function leaves to do.
type Left uint8

const (
	// Nothing says that there is nothing to do until Set is called.
	Nothing Left = iota
	// More says that the function has to be called again.
	More
	// Over says that the function must not be called any more.
	Over
)

// Start makes the first call, on a goroutine of a pool. It must be called once. A Set before Start
// has no effect: the first call finds what there is to do.
func (r *Runner) Start(p *Pool, call func() Left) {
	r.pool, r.call = p, call
	r.state.Store(running)
	p.run(r)
}

// Set causes a call that begins after Set was called, unless the Runner is over. It never waits for
// a call.
func (r *Runner) Set() {
	for {
		switch r.state.Load() {
		case idle:
			if r.state.CompareAndSwap(idle, running) {
				r.pool.run(r)
				return
			}
		case running:
			//rule:R_RERUN.note-set-during-call
			if r.state.CompareAndSwap(running, again) {
				return
			}
		default:
			return
		}
	}
}

func (r *Runner) run() {
	for {
		// Only this goroutine leaves running and again, so no other state is overwritten.
		r.state.Store(running)
		switch r.call() {
		case Over:
			r.state.Store(over)
			return
		case Nothing:
			//rule:R_RERUN.end-if-nothing-was-set
			if r.state.CompareAndSwap(running, idle) {
				return
			}
		case More:
		}
	}
}
