package signal_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
)

// TestRunner_R_RERUN_misses_nothing: what is added before Set is taken, whatever the goroutine does
// at that moment, and no two calls overlap.
func TestRunner_R_RERUN_misses_nothing(t *testing.T) {
	const adders, each = 4, 5_000
	var (
		pool           signal.Pool
		runner         signal.Runner
		work, calls    atomic.Int64
		taken          int64 // only calls touch it, so the race detector sees calls that overlap
		adding, ending sync.WaitGroup
		end            atomic.Bool
	)
	ending.Add(1)
	runner.Start(&pool, func() signal.Left {
		calls.Add(1)
		last := end.Load()
		n := work.Swap(0)
		taken += n
		switch {
		case last:
			ending.Done()
			return signal.Over
		case n > 0:
			return signal.More
		}
		return signal.Nothing
	})
	for range adders {
		adding.Go(func() {
			for range each {
				work.Add(1)
				runner.Set()
			}
		})
	}
	adding.Wait()
	for until := time.Now().Add(time.Minute); work.Load() > 0; {
		if time.Now().After(until) {
			t.Fatalf("%d of %d are left, and nobody takes them", work.Load(), adders*each)
		}
	}
	end.Store(true)
	runner.Set()
	ending.Wait()
	pool.Close()
	if taken != adders*each {
		t.Errorf("%d were taken, want %d", taken, adders*each)
	}
}

// TestRunner_R_RERUN_after_set_during_a_call: a call that was under way may have looked already.
func TestRunner_R_RERUN_after_set_during_a_call(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool signal.Pool
		defer pool.Close()
		var runner signal.Runner
		var calls atomic.Int32
		left := []signal.Left{
			signal.More, signal.Nothing, signal.Nothing, signal.Nothing, signal.Over,
		}
		step := func() signal.Left {
			time.Sleep(time.Second)
			return left[calls.Add(1)-1]
		}
		runner.Set() // before Start it does nothing
		synctest.Wait()
		runner.Start(&pool, step)
		for _, tt := range []struct {
			name  string
			set   int
			after time.Duration
			want  int32
		}{
			{"the first says that there is more", 0, 1500 * time.Millisecond, 1},
			{"set during the second", 2, time.Second, 2},
			{"one more, however often it was set", 0, time.Minute, 3},
			{"set while there is no goroutine", 1, time.Minute, 4},
			{"and again, and it is over", 1, time.Minute, 5},
			{"set when it is over", 3, time.Minute, 5},
		} {
			for range tt.set {
				runner.Set()
			}
			time.Sleep(tt.after)
			synctest.Wait()
			if got := calls.Load(); got != tt.want {
				t.Errorf("%s: %d calls, want %d", tt.name, got, tt.want)
			}
		}
	})
}
