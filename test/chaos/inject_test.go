package chaos

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
)

// TestInject_until_the_fault_shows: a fault that found nothing to break is injected again, a few
// times. It counts once, and as not shown if it never showed.
func TestInject_until_the_fault_shows(t *testing.T) {
	for name, tc := range map[string]struct{ showsAt, calls, shown int }{
		"at once":        {1, 1, 1},
		"the third time": {3, 3, 1},
		"never":          {1_000, attempts, 0},
	} {
		b := &testbed{t: t, ctx: t.Context(), ledger: checker.NewLedger()}
		b.kinds = map[string]*kindTally{name: {}}
		calls := 0
		b.inject(fault{name, func(*testbed, *rand.Rand) (string, error) {
			if calls++; calls < tc.showsAt {
				return "", nil
			}
			return "it broke", nil
		}}, nil)
		if tally := b.kinds[name]; calls != tc.calls || tally.injected != 1 ||
			tally.shown != tc.shown {
			t.Errorf("%s: %d calls, %+v", name, calls, tally)
		}
	}
}
