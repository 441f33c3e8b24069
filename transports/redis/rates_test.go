package redis_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/redis"
)

func oneBucket(t *testing.T, url string) {
	t.Helper()
	a, b := redis.NewRates(patient(t, url)), redis.NewRates(patient(t, url))
	slow := limit.Bucket{Name: "sends", Rate: limit.Rate{PerSecond: 0.001, Burst: 100}}
	for i, tt := range []struct {
		node *redis.Rates
		rate limit.Bucket
		take []limit.Taken
		want []float64
	}{
		{a, slow, []limit.Taken{{User: "ann", N: 30}, {User: "bob", N: 1}}, []float64{70, 99}},
		{b, slow, []limit.Taken{{User: "ann", N: 30}}, []float64{40}},
		// ann's bucket is below 0.
		{a, slow, []limit.Taken{{User: "cid", N: 5}, {User: "ann", N: 100}}, []float64{95, -60}},
		{b, limit.Bucket{Name: "calls", Rate: limit.Rate{PerSecond: 0.001, Burst: 1_000}},
			[]limit.Taken{{User: "ann", N: 30}}, []float64{970}},
		{b, slow, []limit.Taken{{User: "ann", N: 0}}, []float64{-60}},
	} {
		left, err := tt.node.Take(t.Context(), tt.rate, tt.take)
		if err != nil || len(left) != len(tt.want) {
			t.Fatalf("call %d: %v, %v", i, left, err)
		}
		for k := range left {
			if math.Abs(left[k]-tt.want[k]) > 0.1 {
				t.Errorf("call %d: %v are left, want %v", i, left, tt.want)
			}
		}
	}
}

func TestRates_fill_and_are_forgotten_when_full(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	r := redis.NewRates(patient(t, server.URL()))
	quick := limit.Bucket{Name: "sends", Rate: limit.Rate{PerSecond: 100, Burst: 50}}
	take := func(n int) float64 {
		t.Helper()
		left, err := r.Take(t.Context(), quick, []limit.Taken{{User: "ann", N: n}})
		if err != nil {
			t.Fatal(err)
		}
		return left[0]
	}
	began := time.Now()
	first := take(60)
	until(t, "it fills", func() bool { return take(0) >= 10 })
	if took := time.Since(began); first > -9.9 || took < 190*time.Millisecond {
		t.Errorf("from %v to 10 in %v, at 100 a second", first, took)
	}
	began = time.Now()
	take(1_000)
	left, _ := server.Do(t, "PTTL", "rate:sends:ann").(int64)
	if passed := time.Since(began).Milliseconds(); left < 9_000-passed || left > 10_500 {
		t.Errorf("with about 1,000 missing at 100 a second it is forgotten in %d ms, want about "+
			"10,000", left)
	}
	take(-1_000) // gives the 1,000 back
	until(t, "it is forgotten", func() bool { return server.Do(t, "DBSIZE") == int64(0) })
}

// allowed reports whether ann may send once more.
func allowed(l *limit.Limiter) bool {
	_, err := l.Send(server.Caller{User: "ann"})
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
	stays(t, "sending", 6*time.Second, func() bool {
		for _, l := range limiters {
			for allowed(l) {
				sends++
			}
		}
		return true
	})
	took := time.Since(began).Seconds()
	// Each node may allow a burst and a second's share before it knows of the other node.
	if most := int(perSecond*took) + 2*burst + 2*perSecond; sends > most ||
		sends < int(perSecond*took)-burst {
		t.Errorf("%d sends in %.1f s, want about %.0f and at most %d",
			sends, took, perSecond*took, most)
	}
	server.Kill(t)
	until(t, "each goes on alone", func() bool { return allowed(limiters[0]) })
	rate := limit.Bucket{Name: "x", Rate: limit.Rate{PerSecond: 1, Burst: 1}}
	_, err := redis.NewRates(open(t, server.URL())).Take(t.Context(), rate,
		[]limit.Taken{{User: "ann", N: 1}})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("without Redis: %v", err)
	}
}
