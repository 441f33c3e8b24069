// Package wait bounds what tests wait for. A test waits for a condition, never for a time, so that
// it shows the same on slow and fast machines. The bound only separates a hang from slowness.
package wait

import (
	"context"
	"testing"
	"time"
)

// Hang is how long a test waits without progress before it fails. It is the same everywhere, and
// below the time limit of a recorded break (test/mutate).
const Hang = 30 * time.Second

// tick is the interval at which a condition is checked.
const tick = 2 * time.Millisecond

// Until waits until the condition holds. It fails the test, at once, after Hang.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	For(t, what, func() (int, bool) { return 0, condition() })
}

// For is Until for slow conditions: condition also counts the progress, and each step of it
// restarts Hang.
func For(t testing.TB, what string, condition func() (progress int, holds bool)) {
	t.Helper()
	if last, ok := Poll(condition); !ok {
		t.Fatalf("it does not happen that %s: no progress for %v, after %d steps", what, Hang, last)
	}
}

// Poll is For without a test: it reports the last progress, and whether the condition holds.
func Poll(condition func() (progress int, holds bool)) (last int, ok bool) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for since := time.Now(); ; <-ticker.C {
		progress, holds := condition()
		if holds {
			return progress, true
		}
		if progress != last {
			last, since = progress, time.Now()
		}
		if time.Since(since) > Hang {
			return last, false
		}
	}
}

// Context returns a context for one step of a test, which ends after Hang.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Hang)
	t.Cleanup(cancel)
	return ctx
}
