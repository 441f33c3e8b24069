package reach

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// TestEngine_Delivers_R_LATER: an outlet can be relied on while it is active in a list that was
// read lately, and while a process delivers.
func TestEngine_Delivers_R_LATER(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own, w.relied = true, true
		worker := w.start(nil)
		synctest.Wait()
		check := func(what string, p *process, want bool) {
			t.Helper()
			if got := p.Delivers("own"); got != want {
				t.Errorf("%s: Delivers is %t, want %t", what, got, want)
			}
		}
		check("it is being created", worker, false)
		time.Sleep(time.Minute)
		check("it is active", worker, true)
		w.aside = true
		gateway := w.start(nil)
		time.Sleep(9 * time.Second)
		check("a deletion under way may not have seen it", gateway, false)
		time.Sleep(2 * time.Second)
		check("another process delivers", gateway, true)

		worker.alone.Store(true)
		time.Sleep(3 * time.Second)
		check("the list was read lately", worker, true)
		time.Sleep(3 * time.Second)
		check("the list was not read for long", worker, false)
		worker.alone.Store(false)
		time.Sleep(10 * time.Second)
		check("the list is read again", worker, true)

		worker.kill()
		time.Sleep(10 * time.Second)
		check("the worker may only be slow", gateway, true)
		time.Sleep(10 * time.Second)
		check("no process delivers", gateway, false)
	})
}

// TestEngine_Delivers_R_LATER_of_its_own_outlet_only: an outlet of an operator may have had the id
// before it was reserved.
func TestEngine_Delivers_R_LATER_of_its_own_outlet_only(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.outlet(w.start(nil), NewOutlet{ID: "push"})
		w.own, w.relied = true, true
		p := w.start(nil)
		time.Sleep(time.Minute)
		if p.Delivers("own") {
			t.Error("an outlet of another kind is relied on")
		}
	})
}

// TestEngine_R_LATER_operators_leave_it_alone: nobody pauses, changes or deletes an outlet on which
// nodes rely. Where it is off, it is served, and can be deleted.
func TestEngine_R_LATER_operators_leave_it_alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own, w.relied = true, true
		p, c := w.start(nil), w.group()
		time.Sleep(time.Minute)
		paused := true
		_, updateErr := p.Update(w.ctx, "push", Change{Paused: &paused})
		for what, err := range map[string]error{
			"pause": updateErr, "delete": p.Delete(w.ctx, "push"),
		} {
			if tidemark.CodeOf(err) != tidemark.Conflict {
				t.Errorf("%s: %v, want a conflict", what, err)
			}
		}
		p.stop()
		w.off = true
		p = w.start(nil)
		time.Sleep(time.Minute)
		w.send(c, p)
		time.Sleep(time.Second)
		if n := w.inbox("").upTo(c); n != 1 {
			t.Errorf("the outlet that is off has got %d messages, want 1", n)
		}
		_, err := p.Update(w.ctx, "push", Change{Paused: &paused})
		if tidemark.CodeOf(err) != tidemark.Conflict {
			t.Errorf("pause where it is off: %v, want a conflict", err)
		}
		w.ok(p.Delete(w.ctx, "push"))
	})
}

// TestEngine_R_LATER_nobody_deletes_what_others_use: where the outlet is off, it can be deleted
// when no other process relies on it any more, be it one that stands aside. One that was killed
// counts for a while.
func TestEngine_R_LATER_nobody_deletes_what_others_use(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own, w.relied = true, true
		worker := w.start(nil)
		w.aside = true
		gateway := w.start(nil)
		w.aside, w.off = false, true
		off := w.start(nil)
		time.Sleep(time.Minute)
		refused := func(what string) {
			t.Helper()
			if err := off.Delete(w.ctx, "push"); tidemark.CodeOf(err) != tidemark.Conflict {
				t.Errorf("%s: %v, want a conflict", what, err)
			}
		}
		refused("two processes use it")
		worker.stop()
		refused("one stands aside")
		for range 5 { // The document is not removed while its process lives.
			time.Sleep(time.Minute)
			if !gateway.Delivers("own") {
				t.Error("the process that stands aside relies on it no more")
			}
		}
		gateway.kill()
		refused("it may live")
		time.Sleep(90 * time.Second)
		w.ok(off.Delete(w.ctx, "push"))
	})
}

// TestEngine_R_LATER_a_process_comes_during_a_deletion: a deletion that has not seen it ends before
// it relies on the outlet.
func TestEngine_R_LATER_a_process_comes_during_a_deletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own, w.relied = true, true
		var comes *process
		var deleting atomic.Bool
		w.onWrite(func(_ *process, d storage.Document) {
			if d.Kind == listKind && deleting.Swap(false) {
				w.off = false
				comes = w.start(nil)
				time.Sleep(4500 * time.Millisecond) // It reads the list each second.
			}
		})
		first := w.start(nil)
		time.Sleep(time.Minute)
		first.stop()
		w.off = true
		off := w.start(nil)
		time.Sleep(time.Minute)
		deleting.Store(true)
		w.ok(off.Delete(w.ctx, "push"))
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if comes.Delivers("own") {
				t.Fatal("a process relies on an outlet that is being deleted")
			}
		}
	})
}

// TestEngine_urgent_outlets_do_not_wait: a webhook that takes a second for each message does not
// hold up the next ones of the chat.
func TestEngine_urgent_outlets_do_not_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own, w.relied = true, true
		p, c := w.start(nil), w.group()
		time.Sleep(time.Minute)
		w.outlet(p, NewOutlet{})
		w.inbox(home).does(func(ctx context.Context, e []outlet.Event) (int, *outlet.Refusal) {
			time.Sleep(time.Second)
			return len(e), nil
		})
		for range 5 {
			w.send(c, p)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(urgentLinger)
		if n := w.inbox("").upTo(c); n != 5 {
			t.Errorf("the urgent outlet has got %d messages, want 5", n)
		}
		w.whole(home, time.Minute)
	})
}
