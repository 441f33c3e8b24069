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

// connection is a member that ends when it is stopped, or, if it is stubborn, when it is aborted.
type connection struct {
	group    *Group
	stubborn bool
	end      chan struct{}
	once     sync.Once
	stopped  atomic.Int32
	aborted  atomic.Int32
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

func (c *connection) Stop() {
	c.stopped.Add(1)
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
			if got := time.Since(start); got != wantTime || c.aborted.Load() != wantAborts || c.stopped.Load() != 1 {
				t.Errorf("stubborn %v: after %v stopped %d times, aborted %d times", stubborn, got, c.stopped.Load(), c.aborted.Load())
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

func TestHeart_beats_until_it_is_stopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		c := join(t, &g, false)
		var h Heart
		var beats []time.Duration
		start := time.Now()
		h.Start(&g, time.Second, func() time.Duration {
			beats = append(beats, time.Since(start))
			return 2 * time.Second
		})
		time.Sleep(6 * time.Second)
		h.Stop()
		time.Sleep(time.Minute)
		if len(beats) != 3 || beats[0] != time.Second || beats[2] != 5*time.Second {
			t.Errorf("it beat after %v, want 1 s, 3 s and 5 s", beats)
		}
		c.Stop()
		_ = g.Shutdown(t.Context())
	})
}

func TestHeart_shutdown_waits_for_the_beat_under_way(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		c := join(t, &g, true)
		var h Heart
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
			t.Errorf("shutdown returned %v, the beat is over: %v", err, over)
		}
	})
}
