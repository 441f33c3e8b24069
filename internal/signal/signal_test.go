package signal_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
)

func TestFlag_set_several_times_is_set_once(t *testing.T) {
	flag := signal.New()
	for _, times := range []int{0, 1, 3} {
		for range times {
			flag.Set()
		}
		if got, want := flag.Clear(), times > 0; got != want {
			t.Errorf("Clear after %d calls of Set = %v, want %v", times, got, want)
		}
		if flag.Clear() {
			t.Errorf("after %d calls of Set the flag was still set when it had been cleared", times)
		}
	}
}

func TestFlag_copies_are_one_flag(t *testing.T) {
	flag := signal.New()
	other := flag
	flag.Set()
	if !other.Clear() {
		t.Error("the copy is not set")
	}
	if flag.Clear() {
		t.Error("the flag is set although its copy was cleared")
	}
}

func TestFlag_zero_value_is_never_set(t *testing.T) {
	var flag signal.Flag
	flag.Set()
	if flag.Clear() {
		t.Error("the zero flag was set")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if flag.Wait(ctx) {
		t.Error("Wait of the zero flag = true, want false when ctx ends")
	}
}

// TestFlag_waits tests what ends a wait, and when. 0 means never.
func TestFlag_waits(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name               string
		set, at, ends      time.Duration
		wantSet, wantGoing bool
		want               time.Duration
	}{
		{name: "until it is set", set: 5 * ms, wantSet: true, wantGoing: true, want: 5 * ms},
		{name: "until ctx ends", ends: 5 * ms, want: 5 * ms},
		{name: "set before ctx ends", set: 3 * ms, ends: 5 * ms, wantSet: true, wantGoing: true,
			want: 3 * ms},
		{name: "set before the time", set: 3 * ms, at: 5 * ms, wantSet: true, wantGoing: true,
			want: 3 * ms},
		{name: "the time comes first", set: 5 * ms, at: 3 * ms, wantGoing: true, want: 3 * ms},
		{name: "the time is over", at: -3 * ms, wantGoing: true},
		{name: "ctx ends before the time", at: 5 * ms, ends: 3 * ms, want: 3 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.ends > 0 {
					time.AfterFunc(tt.ends, cancel)
				}
				flag := signal.New()
				if tt.set > 0 {
					time.AfterFunc(tt.set, flag.Set)
				}
				began, at := time.Now(), time.Time{}
				if tt.at != 0 {
					at = began.Add(tt.at)
				}
				set, going := flag.WaitUntil(ctx, at)
				if set != tt.wantSet || going != tt.wantGoing {
					t.Errorf("WaitUntil = %v, %v, want %v, %v",
						set, going, tt.wantSet, tt.wantGoing)
				}
				if got := time.Since(began); got != tt.want {
					t.Errorf("it took %v, want %v", got, tt.want)
				}
				if set && flag.Clear() {
					t.Error("the wait left the flag set")
				}
			})
		})
	}
}

func TestFlag_set_before_the_wait_ends_it_at_once(t *testing.T) {
	flag := signal.New()
	flag.Set()
	if !flag.Wait(t.Context()) {
		t.Error("Wait = false, want true")
	}
}

func TestPause(t *testing.T) {
	for _, tt := range []struct {
		name             string
		pause, ends, dur time.Duration
		want             bool
	}{
		{"to its end", time.Second, time.Minute, time.Second, true},
		{"until ctx ends", time.Minute, time.Second, time.Second, false},
		{"none", 0, time.Second, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
				defer cancel()
				began := time.Now()
				if got := signal.Pause(ctx, tt.pause); got != tt.want {
					t.Errorf("Pause = %v, want %v", got, tt.want)
				}
				if took := time.Since(began); took != tt.dur {
					t.Errorf("it took %v, want %v", took, tt.dur)
				}
			})
		})
	}
}
