package stream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// connection is a member that ends on Stop, or only on Abort if it is stubborn.
type connection struct {
	group    *Group
	stubborn bool
	end      chan struct{}
	once     sync.Once
	stopped  atomic.Int32
	// stoppedAt and retryAfter are the time and the argument of the last Stop.
	stoppedAt  time.Time
	retryAfter time.Duration
	aborted    atomic.Int32
}

func join(t *testing.T, g *Group, stubborn bool) *connection {
	t.Helper()
	c := &connection{group: g, stubborn: stubborn, end: make(chan struct{})}
	if !g.Add(c) {
		t.Fatal("the group does not take the connection")
	}
	g.Go(func() {
		<-c.end
		g.Remove(c)
	})
	return c
}

func (c *connection) Stop(retryAfter time.Duration) {
	c.stopped.Add(1)
	c.stoppedAt, c.retryAfter = time.Now(), retryAfter
	if !c.stubborn {
		c.once.Do(func() { close(c.end) })
	}
}

func (c *connection) Abort() {
	c.aborted.Add(1)
	c.once.Do(func() { close(c.end) })
}

func TestGroup_shutdown_waits_and_aborts_when_time_is_up(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var g Group
			c := join(t, &g, stubborn)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			err := g.Shutdown(ctx)
			wantTime, wantAborts := time.Duration(0), int32(0)
			if stubborn {
				wantTime, wantAborts = time.Minute, 1
			}
			if got := time.Since(start); got != wantTime || c.aborted.Load() != wantAborts ||
				c.stopped.Load() != 1 {
				t.Errorf("stubborn %v: after %v stopped %d times, aborted %d times",
					stubborn, got, c.stopped.Load(), c.aborted.Load())
			}
			if errors.Is(err, context.DeadlineExceeded) != stubborn || g.Len() != 0 {
				t.Errorf("stubborn %v: %v, %d left", stubborn, err, g.Len())
			}
			if g.Add(c) {
				t.Error("a stopped group takes a connection")
			}
		})
	}
}

// TestGroup_shutdown_spreads_goodbyes_and_returns: the times of the notices spread the clients that
// return at once. The times in the notices spread the others.
func TestGroup_shutdown_spreads_goodbyes_and_returns(t *testing.T) {
	for _, tt := range []struct {
		name   string
		n      int
		within time.Duration
		spread time.Duration
	}{
		{"few get their notice at once", 5, time.Minute, 5 * time.Millisecond},
		{"many get it one after the other", 2_000, time.Minute, 2 * time.Second},
		{"within half of the time", 2_000, time.Second, 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Group
				members := make([]*connection, tt.n)
				for i := range members {
					members[i] = join(t, &g, false)
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				defer cancel()
				start := time.Now()
				if err := g.Shutdown(ctx); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > tt.spread ||
					took < tt.spread*8/10*time.Duration(tt.n-1)/time.Duration(tt.n) {
					t.Errorf("all had their notice after %v, want %v", took, tt.spread)
				}
				slots := map[time.Duration]int{}
				last := time.Duration(0)
				for _, m := range members {
					back := m.stoppedAt.Add(m.retryAfter)
					last = max(last, back.Sub(start))
					if back.Before(start.Add(tt.spread * 8 / 10)) {
						t.Fatalf("a client is to return after %v, before all have their notice",
							back.Sub(start))
					}
					slots[back.Sub(start)/(500*time.Millisecond)]++
				}
				// The last time grows by a second for each thousand clients,
				// however short the notices take.
				want := tt.spread + retryWithin + time.Duration(tt.n)*time.Millisecond
				if tt.n > 100 && last < want*9/10 {
					t.Errorf("the last client returns after %v, want about %v", last, want)
				}
				for slot, n := range slots {
					if tt.n > 100 && n > tt.n/5 {
						t.Errorf("%d of %d return in the same half second, the %dth",
							n, tt.n, slot)
					}
				}
			})
		})
	}
}

// TestGroup_drain_sends_clients_elsewhere: each client gets one notice, spread over the time, and
// is asked to return at once. Shutdown ends the stubborn ones.
func TestGroup_drain_sends_clients_elsewhere(t *testing.T) {
	for _, tt := range []struct {
		name     string
		n        int
		within   time.Duration
		stubborn bool
		took     time.Duration
	}{
		{"a handful at once", 5, 10 * time.Second, false, 40 * time.Millisecond},
		{"a hundred in a second", 100, 10 * time.Second, false, 990 * time.Millisecond},
		{"many within the time", 3_000, 10 * time.Second, false, 10 * time.Second},
		{"all of them stubborn", 200, time.Second, true, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Group
				members := make([]*connection, tt.n)
				for i := range members {
					members[i] = join(t, &g, tt.stubborn)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				g.Drain(ctx, tt.within)
				if took := time.Since(start); took > tt.took || took < tt.took*9/10 {
					t.Errorf("all had their notice after %v, want %v", took, tt.took)
				}
				if g.Add(members[0]) {
					t.Error("a group that drains takes a connection")
				}
				seconds := map[time.Duration]int{}
				for i, m := range members {
					synctest.Wait()
					if m.retryAfter <= 0 || m.retryAfter > reconnectWithin {
						t.Fatalf("member %d is to return after %v", i, m.retryAfter)
					}
					seconds[m.stoppedAt.Sub(start)/time.Second]++
				}
				for second, n := range seconds {
					if most := max(drainsPerSecond,
						tt.n*int(time.Second)/int(tt.within)); n > most+1 {
						t.Errorf("%d notices in second %d, want at most %d", n, second, most)
					}
				}
				if err := g.Shutdown(ctx); (err != nil) != tt.stubborn {
					t.Error(err)
				}
				for i, m := range members {
					if got := m.stopped.Load(); got != 1 {
						t.Fatalf("member %d got %d notices", i, got)
					}
				}
			})
		})
	}
}

func TestHeartbeat_goes_on_until_it_is_stopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		c := join(t, &g, false)
		var h Heartbeat
		var calls []time.Duration
		start := time.Now()
		h.Start(&g, time.Second, func() time.Duration {
			calls = append(calls, time.Since(start))
			return 2 * time.Second
		})
		time.Sleep(6 * time.Second)
		h.Stop()
		time.Sleep(time.Minute)
		if len(calls) != 3 || calls[0] != time.Second || calls[2] != 5*time.Second {
			t.Errorf("calls after %v, want 1 s, 3 s and 5 s", calls)
		}
		c.Stop(0)
		_ = g.Shutdown(t.Context())
	})
}

func TestHeartbeat_shutdown_waits_for_the_call_under_way(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		c := join(t, &g, true)
		var h Heartbeat
		over := false
		h.Start(&g, time.Second, func() time.Duration {
			time.Sleep(time.Minute)
			over = true
			return 0
		})
		time.Sleep(2 * time.Second)
		h.Stop()
		c.Abort()
		if err := g.Shutdown(t.Context()); err != nil || !over {
			t.Errorf("shutdown returned %v, the call is over: %v", err, over)
		}
	})
}
