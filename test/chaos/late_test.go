package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tidemark-im/tidemark/test/services/redis"
)

// replayLate subscribes to what the nodes publish, and publishes a part of it again, later and in
// another order. The delay is up to some seconds, in a long run up to half a minute.
func replayLate(b *testbed, r *rand.Rand, s *redis.Server) (string, error) {
	most := 4 * time.Second
	if b.long() {
		most = 30 * time.Second
	}
	options, err := goredis.ParseURL(s.URL())
	if err != nil {
		return "", err
	}
	c := goredis.NewClient(options)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(b.ctx, between(r, 2, 4))
	defer cancel()
	heard := c.PSubscribe(ctx, "gateway:*:deliver")
	defer func() { _ = heard.Close() }()
	var again sync.WaitGroup
	var received atomic.Int64
	for n := 0; n < 2000; n++ {
		m, err := heard.ReceiveMessage(ctx)
		if err != nil {
			break
		}
		later := time.Duration(r.Int64N(int64(most)))
		if r.IntN(3) > 0 {
			continue
		}
		again.Go(func() {
			pause(b.ctx, later)
			if n, err := c.Publish(b.ctx, m.Channel, m.Payload).Result(); err == nil && n > 0 {
				received.Add(1)
			}
		})
	}
	again.Wait()
	return some(int(received.Load()), "%d publications came again, up to %v late",
		received.Load(), most), nil
}
