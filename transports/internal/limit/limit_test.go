package limit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
)

func TestTake_burst_then_rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{})
		taken := func() (n int) {
			for l.Take("ann") == nil {
				n++
			}
			return n
		}
		if got := taken(); got != 500 {
			t.Errorf("%d at once, want 500", got)
		}
		if got := tidemark.CodeOf(l.Take("ann")); got != tidemark.Exhausted {
			t.Errorf("code = %q", got)
		}
		if err := l.Take("bob"); err != nil {
			t.Errorf("another user: %v", err)
		}
		time.Sleep(time.Second) // of the bubble's clock
		if got := taken(); got != 50 {
			t.Errorf("%d after a second, want 50", got)
		}
	})
}

func TestTake_nil_limits_nothing(t *testing.T) {
	var l *limit.Limiter
	for range 10_000 {
		if err := l.Take("ann"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTake_forgetting_idle_users_forgives_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{PerSecond: 0.001, Burst: 1, MaxUsers: 3_000})
		if l.Take("ann") != nil || l.Take("ann") == nil {
			t.Fatal("a burst of 1 is not 1")
		}
		time.Sleep(500 * time.Second) // the bucket is not full again
		for i := range 2_500 {
			if err := l.Take(tidemark.UserID(fmt.Sprint("u", i))); err != nil {
				t.Fatal(err)
			}
		}
		if l.Take("ann") == nil {
			t.Error("ann was forgotten while her bucket was not full")
		}
	})
}
