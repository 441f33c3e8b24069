package reach

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestHealth_steps: a receiver that takes each step, and what it is then asked to do.
func TestHealth_steps(t *testing.T) {
	times := func(n int, do func(*health)) func(*health) {
		return func(h *health) {
			for range n {
				do(h)
			}
		}
	}
	refuses := func(h *health) { h.failed(0) }
	asksToWait := func(h *health) { h.failed(time.Minute) }
	begins := func(h *health) { h.begin() }
	waits := func(h *health) { time.Sleep(time.Until(h.until)); h.prompt() }
	goesDown := times(failuresUntilDown, refuses)
	for _, tc := range []struct {
		name  string
		steps []func(*health)
		want  healthStep
		// ready says that a delivery of a backlog may begin.
		ready bool
	}{
		{"new", nil, up, true},
		{"refuses some", []func(*health){times(failuresUntilDown-1, refuses)}, up, true},
		{
			"refuses some, accepts, refuses some",
			[]func(*health){times(4, refuses), (*health).succeeded, times(4, refuses)}, up, true,
		},
		{"refuses all", []func(*health){goesDown}, down, false},
		{"asks to wait", []func(*health){asksToWait}, down, false},
		{"gives up before an answer", []func(*health){(*health).abandoned}, up, true},

		{"is late", []func(*health){(*health).late}, slow, true},
		{"is late, and accepts", []func(*health){(*health).late, (*health).succeeded}, slow, true},
		{"is late, and refuses all", []func(*health){(*health).late, goesDown}, down, false},
		{"is late, and a minute passes", []func(*health){(*health).late, waits}, up, true},

		{"down, and accepts", []func(*health){goesDown, (*health).succeeded}, up, true},
		{"down, and is late", []func(*health){goesDown, (*health).late}, down, false},
		{"down, and nothing begins yet", []func(*health){goesDown, begins}, down, false},
		{"down, and the wait is over", []func(*health){goesDown, waits}, down, true},

		{"trial", []func(*health){goesDown, waits, begins}, trial, false},
		{
			"trial, and is late",
			[]func(*health){goesDown, waits, begins, (*health).late}, trial, false,
		},
		{"trial, accepts", []func(*health){goesDown, waits, begins, (*health).succeeded}, up, true},
		{"trial, refuses", []func(*health){goesDown, waits, begins, refuses}, down, false},
		{
			"trial, gives up before an answer",
			[]func(*health){goesDown, waits, begins, (*health).abandoned}, down, true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := new(health)
				for _, step := range tc.steps {
					step(h)
				}
				if got := h.step; got != tc.want {
					t.Errorf("the step is %d, want %d", got, tc.want)
				}
				if got := h.ready(); got != tc.ready {
					t.Errorf("ready() = %t, want %t", got, tc.ready)
				}
			})
		})
	}
}

// TestHealth_waits_longer_after_each_trial: a refusal that belongs to a delivery from before does
// not count.
func TestHealth_waits_longer_after_each_trial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(health)
		for range failuresUntilDown {
			h.failed(0)
		}
		for i, want := range retryAfter[1:] {
			h.failed(0) // of a delivery that began before
			time.Sleep(time.Until(h.until))
			if !h.begin() || h.begin() {
				t.Fatalf("trial %d: want one delivery", i)
			}
			h.failed(0)
			wait := time.Until(h.until)
			if wait < want*9/10 || wait > want*11/10 {
				t.Errorf("after trial %d the wait is %v, want %v, or a tenth more or less", i,
					wait, want)
			}
		}
	})
}
