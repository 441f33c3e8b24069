// Package chores has what background jobs on stored data share: when they look for work, at what
// pace they work, and what follows a failure.
//
// Several processes may run the same job. A document says who works on what, and until when
// (storage.Documents). What it says is up to each job. Two processes that do the same work must do
// no harm.
package chores

import (
	"context"
	mathrand "math/rand/v2"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
)

const (
	// Every is how often a job looks for work, unless it is woken.
	Every = 60 * Unit
	// restFactor is the length of a rest, in the time of the work before it.
	restFactor = 4
	// tries is how often work is tried that fails, with pauses of tryPause.
	tries    = 3
	tryPause = 10 * Unit
)

// Job says when a process looks for work. Create it with New. It is safe for concurrent use.
type Job struct{ woken signal.Flag }

// New returns a Job.
func New() Job { return Job{woken: signal.New()} }

// Wake makes Run look soon. It does not block.
func (j Job) Wake() { j.woken.Set() }

// Run calls look until ctx ends: first within Every, and then when the time that look returned is
// over, or when Wake was called.
func (j Job) Run(ctx context.Context, look func() (wait time.Duration)) {
	// Processes that were started together do not look together.
	wait := mathrand.N(Every) //nolint:gosec // It need not be secret.
	for ctx.Err() == nil {
		if _, ok := j.woken.WaitUntil(ctx, time.Now().Add(wait)); !ok {
			return
		}
		wait = look()
	}
}

// RestAfter returns for how long a job rests that has worked for a time. So it works for at most a
// fifth of the time.
func RestAfter(worked time.Duration) time.Duration {
	//rule:bounded_use.a-fifth-of-the-time
	return restFactor * worked
}

// Rest rests after work that began at a time. It returns false if ctx ends first.
func Rest(ctx context.Context, began time.Time) bool {
	return signal.Pause(ctx, RestAfter(time.Since(began)))
}

// Repeat calls work until it is done, and rests between two calls. Before the first call, and then
// four times in ClaimFor, it calls claim, which says that this process goes on.
//
// If work fails three times in a row, failed is the last error. err is that of claim, or that of
// ctx.
func Repeat(
	ctx context.Context, claim func() error, work func() (done bool, err error),
) (failed, err error) {
	failures := 0
	var claimed time.Time
	for {
		began := time.Now()
		if began.Sub(claimed) >= ClaimFor/4 {
			//rule:bounded_use.who-is-overtaken-goes-on-no-more
			if err := claim(); err != nil {
				return nil, err
			}
			claimed = began
		}
		done, err := work()
		rest := RestAfter(time.Since(began))
		switch {
		case err == nil && done:
			return nil, nil
		case err == nil:
			failures = 0
		default:
			//rule:bounded_use.leave-what-fails
			if failures++; failures == tries {
				return err, nil
			}
			rest = tryPause
		}
		if !signal.Pause(ctx, rest) {
			return nil, ctx.Err()
		}
	}
}

// Ahead reports whether a stored time is still to come. If it is further ahead than most, a process
// with a wrong clock has written it, and it does not count. Both times are in milliseconds since
// 1970.
func Ahead(now, at int64, most time.Duration) bool {
	//rule:bounded_use.a-wrong-clock-stops-nobody
	return at > now && at-now <= most.Milliseconds()
}
