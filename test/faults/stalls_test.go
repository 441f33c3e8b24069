package faults

import (
	"sync/atomic"
	"testing"
	"time"
)

// stalls adds up for how long the goroutines of this process did not run although they could. A
// call is not to blame for that.
type stalls struct{ sum atomic.Int64 }

// beat is how often that is measured.
const beat = 20 * time.Millisecond

// watch measures until the test ends.
func (s *stalls) watch(t *testing.T) {
	t.Helper()
	ended, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			began := time.Now()
			select {
			case <-time.After(beat):
			case <-ended:
				return
			}
			if late := time.Since(began) - beat; late > beat {
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
	<-time.After(2 * beat)
	return s.total() - total
}
