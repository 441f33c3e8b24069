package faults

import (
	"sync/atomic"
	"testing"
	"time"
)

// stalls adds up for how long the goroutines of this process did not run although they could. That
// time does not count against a call.
type stalls struct{ sum atomic.Int64 }

// interval is the interval of the measurement.
const interval = 20 * time.Millisecond

// watch measures until the test ends.
func (s *stalls) watch(t *testing.T) {
	t.Helper()
	ended, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			began := time.Now()
			select {
			case <-time.After(interval):
			case <-ended:
				return
			}
			if late := time.Since(began) - interval; late > interval {
				s.sum.Add(int64(late))
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		<-over
	})
}

func (s *stalls) total() time.Duration { return time.Duration(s.sum.Load()) }

// since returns what was added since a total. A stall that ends just now counts.
func (s *stalls) since(total time.Duration) time.Duration {
	<-time.After(2 * interval)
	return s.total() - total
}
