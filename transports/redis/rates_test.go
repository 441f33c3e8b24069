package redis_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/internal/sharedtest"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/redis"
)

func TestRates_fill_and_are_forgotten_when_full(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	take := sharedtest.Fill(t, redis.NewRates(patient(t, server.URL())))
	began := time.Now()
	take(1_000)
	left, _ := server.Do(t, "PTTL", "rate:sends:ann").(int64)
	if passed := time.Since(began).Milliseconds(); left < 9_000-passed || left > 10_500 {
		t.Errorf("with about 1,000 missing at 100 a second it is forgotten in %d ms, want about "+
			"10,000", left)
	}
	take(-1_000) // gives the 1,000 back
	wait.Until(t, "it is forgotten", func() bool { return server.Do(t, "DBSIZE") == int64(0) })
}

// allowed reports whether ann may send once more.
func allowed(l *limit.Limiter) bool {
	_, err := l.Send(server.Caller{User: "ann"}, tidemark.KindMessage)
	return err == nil
}

// TestRates_bound_a_user_on_all_nodes runs two limiters that share only Redis.
func TestRates_bound_a_user_on_all_nodes(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	const perSecond, burst = 40, 40
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	limiters := make([]*limit.Limiter, 2)
	for i := range limiters {
		limiters[i] = limit.New(limit.Config{
			User:   limit.Rates{Sends: limit.Rate{PerSecond: perSecond, Burst: burst}},
			Shared: redis.NewRates(open(t, server.URL())),
		})
		running.Go(func() { limiters[i].Run(ctx) })
	}
	sends := 0
	began := time.Now()
	sharedtest.Stays(t, "sending", 6*time.Second, func() bool {
		for _, l := range limiters {
			for allowed(l) {
				sends++
			}
		}
		return true
	})
	took := time.Since(began).Seconds()
	// Each node may allow a burst and a second's share before it knows of the other node. On a busy
	// machine it learns of the other one late. Two nodes that knew nothing of each other would
	// allow twice the rate.
	if most := int(perSecond*took*1.5) + 2*burst + 2*perSecond; sends > most ||
		sends < int(perSecond*took)-burst {
		t.Errorf("%d sends in %.1f s, want about %.0f and at most %d",
			sends, took, perSecond*took, most)
	}
	server.Kill(t)
	wait.Until(t, "each goes on alone", func() bool { return allowed(limiters[0]) })
	rate := limit.Bucket{Name: "x", Rate: limit.Rate{PerSecond: 1, Burst: 1}}
	_, err := redis.NewRates(open(t, server.URL())).Take(t.Context(), rate,
		[]limit.Taken{{User: "ann", N: 1}})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("without Redis: %v", err)
	}
}
