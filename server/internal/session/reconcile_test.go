package session

import (
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/server/registry"
)

func TestReconcile_steps(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		from       phase
		rowless    bool
		more, last phase
	}{
		{readRows, false, readRows, idle},
		{readRows, true, readRows, readLarge},
		{readLarge, true, readLarge, idle},
		{readMissed, false, readMissed, idle},
		{readAll, false, readAll, idle},
	} {
		for more, want := range map[bool]phase{true: tt.more, false: tt.last} {
			var r reconcile
			r.begin(tt.from, registry.Epoch{}, now)
			r.rowless = tt.rowless
			r.advance("m", more)
			if r.phase != want {
				t.Errorf("phase %d, rowless %v, more %v: got phase %d, want %d",
					tt.from, tt.rowless, more, r.phase, want)
			}
			if more && r.after != "m" || !more && r.after != "" {
				t.Errorf("phase %d, more %v: got after %q", tt.from, more, r.after)
			}
			if done := want == idle; r.complete() != done || r.certain.Equal(now) != done {
				t.Errorf("phase %d, more %v: complete %v, certain %v, want done %v",
					tt.from, more, r.complete(), r.certain, done)
			}
		}
	}
}

func TestReconcile_R_COMPLETE_only_idle_and_with_nothing_queued(t *testing.T) {
	for p := idle; p <= readAll; p++ {
		for s := nothing; s <= missedChats; s++ {
			r := reconcile{phase: p, queued: s}
			if got, want := r.complete(), p == idle && s == nothing; got != want {
				t.Errorf("phase %d, queued %d: complete = %v, want %v", p, s, got, want)
			}
			for _, full := range []bool{false, true} {
				want := p != idle || s != nothing && !full
				if got := r.due(full); got != want {
					t.Errorf("phase %d, queued %d, full %v: due = %v, want %v",
						p, s, full, got, want)
				}
			}
		}
	}
}

// The higher scope wins, in any order.
func TestReconcile_queued_is_begun_in_the_same_epoch(t *testing.T) {
	epoch := registry.Epoch{Crashes: 7}
	for _, tt := range []struct {
		queued []scope
		want   phase
	}{
		{[]scope{allChats}, readAll},
		{[]scope{missedChats}, readMissed},
		{[]scope{missedChats, allChats}, readMissed},
		{[]scope{allChats, missedChats}, readMissed},
	} {
		r := reconcile{order: 3, epoch: epoch, certain: time.Unix(5, 0)}
		for _, s := range tt.queued {
			r.queue(s)
		}
		r.beginQueued(time.Unix(9, 0))
		if r.phase != tt.want || r.queued != nothing || r.epoch != epoch || r.order != 4 {
			t.Errorf("queued %v: got %+v, want phase %d", tt.queued, r, tt.want)
		}
		if !r.since.Equal(time.Unix(5, 0)) || !r.began.Equal(time.Unix(9, 0)) {
			t.Errorf("queued %v: since %v, began %v", tt.queued, r.since, r.began)
		}
	}
}

// A page counts only for the order, phase and position for which it was read.
func TestReconcile_a_page_of_before_is_discarded(t *testing.T) {
	now := reconcile{order: 2, phase: readAll, after: "b"}
	for _, tt := range []struct {
		page reconcile
		want bool
	}{
		{now, true},
		{reconcile{order: 1, phase: readAll, after: "b"}, false},
		{reconcile{order: 2, phase: readMissed, after: "b"}, false},
		{reconcile{order: 2, phase: readAll, after: "a"}, false},
	} {
		if got := now.reads(tt.page); got != tt.want {
			t.Errorf("reads(%+v) = %v, want %v", tt.page, got, tt.want)
		}
	}
}

// A node dies while a page is read. The page is of the time before, so it completes nothing.
func TestReconcile_R_EPOCH_a_page_of_before_the_epoch_completes_nothing(t *testing.T) {
	s := newHost().New(leaseAt("a"), false)
	s.LeaseAnswered(LeaseAnswer{Granted: true, Epoch: registry.Epoch{Crashes: 1}})
	r, ordered := s.Attach(""), s.reconcile
	s.Reconcile(registry.Epoch{Crashes: 2}, false)
	for range 2 {
		err := s.takePage(r, ordered, "", false, func() { t.Error("the page was applied") })
		if err != nil || s.reconcile.complete() || s.reconcile.phase != readMissed {
			t.Errorf("got %v, reconcile %+v", err, s.reconcile)
		}
	}
}
