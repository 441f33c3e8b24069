package limit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/limit"
)

func TestSend_burst_then_rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{})
		taken := func() (n int) {
			for l.Send("ann") == nil {
				n++
			}
			return n
		}
		if got := taken(); got != 500 {
			t.Errorf("%d at once, want 500", got)
		}
		if got := tidemark.CodeOf(l.Send("ann")); got != tidemark.Exhausted {
			t.Errorf("code = %q", got)
		}
		if err := l.Send("bob"); err != nil {
			t.Errorf("another user: %v", err)
		}
		time.Sleep(time.Second) // synctest's clock
		if got := taken(); got != 50 {
			t.Errorf("%d after a second, want 50", got)
		}
	})
}

func TestSend_nil_limits_nothing(t *testing.T) {
	var l *limit.Limiter
	for range 10_000 {
		if err := l.Send("ann"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSend_forgetting_idle_users_forgives_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{PerSecond: 0.001, Burst: 1, MaxUsers: 3_000})
		if l.Send("ann") != nil || l.Send("ann") == nil {
			t.Fatal("a burst of 1 is not 1")
		}
		time.Sleep(500 * time.Second) // the bucket is not full again
		for i := range 2_500 {
			if err := l.Send(tidemark.UserID(fmt.Sprint("u", i))); err != nil {
				t.Fatal(err)
			}
		}
		if l.Send("ann") == nil {
			t.Error("ann was forgotten while her bucket was not full")
		}
	})
}
