package retry

import (
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// maxTries is how many parts a Bisection returns at most. Fewer than 30 find one row among
// storage.MaxBatch.
const maxTries = 256

// Bisection splits rows into batches to be marked. It halves a batch that storage refuses for any
// reason but Unavailable, until the refused rows are found. So one bad row does not block the
// others. The caller calls Next and Took in turn.
type Bisection struct {
	// parts has the remaining batches in reverse order.
	parts   [][]tidemark.PendingDelivery
	tries   int
	refused []tidemark.PendingDelivery
	last    error
}

// Bisect returns a Bisection of rows.
func Bisect(rows []tidemark.PendingDelivery) *Bisection {
	parts := slices.Collect(slices.Chunk(rows, storage.MaxBatch))
	slices.Reverse(parts)
	return &Bisection{parts: parts}
}

// Next returns the next batch to mark. It returns nil if none is left, storage is unavailable, or
// maxTries is reached.
func (b *Bisection) Next() []tidemark.PendingDelivery {
	if len(b.parts) == 0 || b.tries == maxTries || tidemark.CodeOf(b.last) == tidemark.Unavailable {
		return nil
	}
	b.tries++
	return b.parts[len(b.parts)-1]
}

// Took records the outcome of marking the batch that Next returned.
func (b *Bisection) Took(err error) {
	if err != nil {
		b.last = err
	}
	//rule:pending_or_delivered.retry-unavailable-only
	if tidemark.CodeOf(err) == tidemark.Unavailable {
		return
	}
	part := b.parts[len(b.parts)-1]
	b.parts = b.parts[:len(b.parts)-1]
	if half := len(part) / 2; err != nil && half > 0 {
		b.parts = append(b.parts, part[half:], part[:half])
	} else if err != nil {
		b.refused = append(b.refused, part...)
	}
}

// Requeue queues the rows that b has left. It returns the refused rows and the last error. Refused
// rows are not queued, because they may never be accepted. The node joins the registry again
// instead, so that all sessions reconcile.
func (q *Queue) Requeue(b *Bisection) (refused []tidemark.PendingDelivery, last error) {
	for _, part := range slices.Backward(b.parts) {
		//rule:pending_or_delivered.retry-failed-rows
		q.Mark(part)
	}
	//rule:pending_or_delivered.raise-epoch-after-refusal
	if len(b.refused) > 0 {
		q.Overflow()
	}
	return b.refused, b.last
}
