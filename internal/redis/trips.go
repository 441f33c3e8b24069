package redis

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark/internal/batch"
)

// pauseAfterFailure is how long calls are refused at once after a round trip that failed as a
// whole. Without it each caller would wait for another timeout.
const pauseAfterFailure = 200 * time.Millisecond

// NewTrips returns a Batcher of round trips. It ends with Abort. trip makes a round trip of at
// least one item, and about most of them, in bounded time. It returns an answer for each, or an
// error for all.
func NewTrips[Q, A any](
	most int, trip func(context.Context, []Q) ([]A, error),
) *batch.Batcher[Q, A] {
	cfg := batch.Config{Name: "Redis", Most: most, Pause: pauseAfterFailure}
	return batch.New(cfg, func(ctx context.Context, collect func() []Q) ([]A, error) {
		return trip(ctx, collect())
	})
}
