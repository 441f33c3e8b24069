package limit_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// pot is a plain implementation of the shared buckets, with the delay of a round trip.
// transports/redis has the one that ships.
type pot struct {
	trip time.Duration

	mu     sync.Mutex
	away   bool
	left   map[tidemark.UserID]float64
	at     map[tidemark.UserID]time.Time
	calls  int
	shared int
}

func newPot(trip time.Duration) *pot {
	return &pot{
		trip: trip,
		left: make(map[tidemark.UserID]float64),
		at:   make(map[tidemark.UserID]time.Time),
	}
}

// Take implements limit.Shared.
func (p *pot) Take(_ context.Context, bucket limit.Bucket, taken []limit.Taken) ([]float64, error) {
	defer time.Sleep(p.trip) // synctest's clock
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.away {
		return nil, tidemark.Errorf(tidemark.Unavailable, "away")
	}
	now := time.Now()
	left := make([]float64, 0, len(taken))
	for _, t := range taken {
		p.shared++
		n, known := p.left[t.User]
		if !known {
			n = float64(bucket.Burst)
		}
		n = min(n+now.Sub(p.at[t.User]).Seconds()*bucket.PerSecond,
			float64(bucket.Burst)) - float64(t.N)
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

// nodes returns limiters that share a pot.
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

// insist sends at every chance, on all nodes, for d. It returns how many sends were allowed.
func insist(all []*limit.Limiter, d time.Duration) (n int) {
	// synctest's clock
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, l := range all {
			for sends(l, "ann") == nil {
				n++
			}
		}
	}
	return n
}

// All nodes together hold the lasting rate, even for a user who calls all of them at every chance.
// Before the nodes know of each other, the user may take a burst from each. They have to wait for
// the excess later.
func TestRun_a_user_has_one_rate_on_all_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, newPot(20*time.Millisecond), 3)
		if got := insist(all, 900*time.Millisecond); got < 1500 || got > 1500+3*50 {
			t.Errorf("%d before the nodes knew of each other, want three bursts", got)
		}
		const minute = 60
		got := insist(all, minute*time.Second)
		most := minute*limit.SendsPerSecond + 3*limit.SendsPerSecond - 2*limit.SendBurst
		if got > most || got < most-limit.SendBurst {
			t.Errorf("%d in the minute after it, want about %d: less two bursts", got, most)
		}
		got = insist(all, minute*time.Second)
		const want, tolerance = minute * limit.SendsPerSecond, 3 * limit.SendsPerSecond
		if got < want-tolerance || got > want+tolerance {
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
			t.Errorf("%d from two nodes that share nothing, want %d", got, want)
		}
		if all[0].Counters()["rates_unpublished_total"] == 0 {
			t.Error("nothing was counted")
		}
		p.isAway(false)
		time.Sleep(20 * time.Second) // both buckets are full again
		if sends(all[0], "bob") != nil {
			t.Fatal("another user is refused")
		}
		if got := insist(all, 900*time.Millisecond); got < 1000 {
			t.Errorf("%d at once after it, want two bursts, since nothing was shared meanwhile",
				got)
		}
	})
}

// A user who writes at human speed is shared now and then, not with each message, and is never
// refused.
func TestRun_shares_little_of_a_user_who_takes_little(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPot(20 * time.Millisecond)
		all := nodes(t, p, 2)
		for i := range 1_000 {
			if err := sends(all[i%2], "ann"); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.shared < 35 || p.shared > 40 || p.calls != p.shared {
			t.Errorf("1,000 messages were shared in %d entries and %d calls, want about 40 of each",
				p.shared, p.calls)
		}
	})
}

// What a node allows while Take is on the way still counts when the answer comes.
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

func TestRun_what_was_taken_since_the_last_share_counts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPot(5 * time.Second)
		p.left["ann"], p.at["ann"] = 100, time.Now() // ann took 400 on another node
		l := nodes(t, p, 1)[0]
		take := func(n int) {
			t.Helper()
			for range n {
				if err := sends(l, "ann"); err != nil {
					t.Fatal(err)
				}
			}
		}
		take(25)                    // shared after 1 s, when 150 are left for all, less these 25
		time.Sleep(4 * time.Second) // synctest's clock
		take(120)
		time.Sleep(2*time.Second + time.Millisecond) // the answer is here
		got := 0
		for sends(l, "ann") == nil {
			got++
		}
		if got > 10 {
			t.Errorf("%d more, though she had taken 120 of the 125 that were left", got)
		}
	})
}
