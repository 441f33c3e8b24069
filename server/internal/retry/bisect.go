package retry

import (
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// maxTries is how many parts a Bisection gives at most. To find one row among storage.MaxBatch takes
// less than 30.
const maxTries = 256

// Bisection gives rows in batches. A batch that storage refuses, for another reason than that it
// cannot be reached, is halved until it is known which rows are refused, so that one bad row does
// not keep all others from being marked. The caller calls Next and Took in turn.
type Bisection struct {
	// parts are those that are left, the next one last.
	parts   [][]tidemark.PendingDelivery
	tries   int
	refused []tidemark.PendingDelivery
	last    error
}

// Bisect begins with some rows.
func Bisect(rows []tidemark.PendingDelivery) *Bisection {
	parts := slices.Collect(slices.Chunk(rows, storage.MaxBatch))
	slices.Reverse(parts)
	return &Bisection{parts: parts}
}

// Next returns the next part to be marked, nil if none is left or storage cannot be reached.
func (b *Bisection) Next() []tidemark.PendingDelivery {
	if len(b.parts) == 0 || b.tries == maxTries || tidemark.CodeOf(b.last) == tidemark.Unavailable {
		return nil
	}
	b.tries++
	return b.parts[len(b.parts)-1]
}

// Took says what became of the part that Next returned.
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

// Requeue queues the rows that a Bisection left. It returns those that storage refuses, with the last
// error: they are not queued, since nothing says that they can ever be marked. The node joins anew
// instead, so that their users' sessions reconcile.
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
