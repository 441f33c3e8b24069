package queue

import (
	"testing"

	"github.com/tidemark-im/tidemark/reach/push"
)

// BenchmarkEnqueue_full is what a caller pays while the queue is full and each notification drops
// the oldest.
func BenchmarkEnqueue_full(b *testing.B) {
	q := New(&scripted{answer: always(push.Result{Outcome: push.Sent})})
	targets := make([]push.Target, 2*MaxQueued)
	for i := range targets {
		targets[i] = device(i)
		q.Enqueue(targets[i], note("a"))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Enqueue(targets[i%len(targets)], note("a"))
	}
}
