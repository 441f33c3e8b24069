package redis

import (
	"context"
	"math"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Rates implements limit.Shared on Redis. There is a bucket for each user who took something. It
// fills by the clock of Redis and is removed when it is full.
type Rates struct {
	client *redis.Client
	take   *redis.Script
}

// NewRates returns the shared buckets.
func NewRates(client *redis.Client) *Rates {
	return &Rates{client: client, take: redis.NewScript(take)}
}

// Take implements limit.Shared.
func (r *Rates) Take(
	ctx context.Context, bucket limit.Bucket, taken []limit.Taken,
) ([]float64, error) {
	perSecond := strconv.FormatFloat(bucket.PerSecond, 'f', -1, 64)
	calls := make([]redis.Call, len(taken))
	for i, t := range taken {
		calls[i] = redis.Call{
			Script: r.take,
			Keys:   []string{"rate:" + bucket.Name + ":" + string(t.User)},
			Args:   []any{t.N, perSecond, bucket.Burst},
		}
	}
	left := make([]float64, len(taken))
	known := 0
	var failure error
	for i, reply := range r.client.Run(ctx, calls) {
		text, _ := reply.Value.(string)
		n, err := strconv.ParseFloat(text, 64)
		if reply.Err != nil || err != nil {
			failure, left[i] = reply.Err, math.Inf(1)
			continue
		}
		left[i] = n
		known++
	}
	if known == 0 {
		return nil, tidemark.Wrap(tidemark.Unavailable, failure,
			"the shared rates cannot be reached in Redis; this node limits alone")
	}
	return left, nil
}
