package limit_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
)

// pot is the shared buckets as plainly as they can be written, with a round trip's delay. transports/redis has the real ones.
type pot struct {
	trip time.Duration

	mu    sync.Mutex
	away  bool
	left  map[tidemark.UserID]float64
	at    map[tidemark.UserID]time.Time
	calls int
	told  int
}

func newPot(trip time.Duration) *pot {
	return &pot{trip: trip, left: make(map[tidemark.UserID]float64), at: make(map[tidemark.UserID]time.Time)}
}

// Take implements limit.Shared.
func (p *pot) Take(_ context.Context, rate limit.Rate, taken []limit.Taken) ([]float64, error) {
	defer time.Sleep(p.trip) // of the bubble's clock
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.away {
		return nil, tidemark.Errorf(tidemark.Unavailable, "away")
	}
	now := time.Now()
	left := make([]float64, 0, len(taken))
	for _, t := range taken {
		p.told++
		n, known := p.left[t.User]
		if !known {
			n = float64(rate.Burst)
		}
		n = min(n+now.Sub(p.at[t.User]).Seconds()*rate.PerSecond, float64(rate.Burst)) - float64(t.N)
		p.left[t.User], p.at[t.User] = n, now
		left = append(left, n)
	}
	return left, nil
}

func (p *pot) isAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// nodes are limiters that share a pot.
func nodes(t *testing.T, p *pot, n int) []*limit.Limiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	all := make([]*limit.Limiter, n)
	var running sync.WaitGroup
	for i := range all {
		all[i] = limit.New(limit.Config{Shared: p})
		running.Go(func() { all[i].Run(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return all
}

// insist sends as fast as it may, on all nodes, for so long, and returns how many sends were let through.
func insist(all []*limit.Limiter, d time.Duration) (n int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // of the bubble's clock
		for _, l := range all {
			for l.Send("ann") == nil {
				n++
			}
		}
	}
	return n
}

// The lasting rate is that of all nodes together, also for who calls all of them as fast as he can: what he got beyond it before they knew of each other, at
// most a burst from each, he has to wait for.
func TestRun_a_user_has_one_rate_on_all_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, newPot(20*time.Millisecond), 3)
		if got := insist(all, 900*time.Millisecond); got < 1500 || got > 1500+3*50 {
			t.Errorf("%d before the nodes knew of each other, want three bursts", got)
		}
		const minute = 60
		if got, most := insist(all, minute*time.Second), minute*limit.SendsPerSecond+3*limit.SendsPerSecond-2*limit.SendBurst; got > most || got < most-limit.SendBurst {
			t.Errorf("%d in the minute after it, want about %d, as from one node that was in debt for two bursts", got, most)
		}
		if got, want := insist(all, minute*time.Second), minute*limit.SendsPerSecond; got < want-3*limit.SendsPerSecond || got > want+3*limit.SendsPerSecond {
			t.Errorf("%d in a further minute, want about %d", got, want)
		}
	})
}

func TestRun_without_the_others_each_node_limits_alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPot(20 * time.Millisecond)
		all := nodes(t, p, 2)
		p.isAway(true)
		if got, want := insist(all, 10*time.Second), 2*(500+10*50); got < want-10 || got > want {
			t.Errorf("%d from two nodes that know nothing of each other, want %d", got, want)
		}
		if all[0].Counters()["rates_unpublished_total"] == 0 {
			t.Error("nothing was counted")
		}
		p.isAway(false)
		for time.Sleep(20 * time.Second); all[0].Send("bob") != nil; { // both buckets are full again
			t.Fatal("another user is refused")
		}
		if got := insist(all, 900*time.Millisecond); got < 1000 {
			t.Errorf("%d at once after it, want two bursts: what was taken meanwhile is forgiven", got)
		}
	})
}

// Who writes as people do is told of now and then, not with each message, and is never refused.
func TestRun_tells_little_of_who_takes_little(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPot(20 * time.Millisecond)
		all := nodes(t, p, 2)
		for i := range 1_000 {
			if err := all[i%2].Send("ann"); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.told < 35 || p.told > 40 || p.calls != p.told {
			t.Errorf("%d messages were told of in %d entries and %d calls, want about 40 of 25 messages each", 1_000, p.told, p.calls)
		}
	})
}

// What a node lets through while its answer is on the way is not forgotten by the answer.
func TestRun_slow_answers_change_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, newPot(5*time.Second), 2)
		insist(all, 10*time.Second)
		const minutes = 10
		got, want := insist(all, minutes*time.Minute), minutes*60*limit.SendsPerSecond
		if got > want+2*limit.SendBurst {
			t.Errorf("%d in %d minutes, want at most %d", got, minutes, want)
		}
	})
}

func TestRun_what_was_taken_since_it_told_is_taken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPot(5 * time.Second)
		p.left["ann"], p.at["ann"] = 100, time.Now() // she took 400 elsewhere
		l := nodes(t, p, 1)[0]
		take := func(n int) {
			t.Helper()
			for range n {
				if err := l.Send("ann"); err != nil {
					t.Fatal(err)
				}
			}
		}
		take(25)                    // told after a second, when 150 are left for all, less these
		time.Sleep(4 * time.Second) // of the bubble's clock
		take(120)
		time.Sleep(2*time.Second + time.Millisecond) // the answer has come
		got := 0
		for l.Send("ann") == nil {
			got++
		}
		if got > 10 {
			t.Errorf("%d more, though she had taken 120 of the 125 that were left", got)
		}
	})
}
