package reach

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// TestEngine_asks_again_later: an outlet for which it is too early gets the event then. That is no
// failure, and other chats of the delivery do not wait.
func TestEngine_asks_again_later(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		info := w.outlet(p, NewOutlet{Batch: true, Events: []outlet.Type{outlet.MessagePersisted}})
		early, other := w.group(), w.group()
		began := time.Now()
		w.inbox(home).does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			for i, e := range events {
				if wait := 3*time.Second - time.Since(began); e.Chat == early && wait > 0 {
					return i, &outlet.Refusal{Action: outlet.Later, After: wait}
				}
			}
			return len(events), nil
		})
		w.send(early, p)
		w.send(other, p)
		w.send(early, p)
		time.Sleep(2900 * time.Millisecond)
		if n := w.inbox(home).upTo(early); n != 0 {
			t.Errorf("message %d came too early", n)
		}
		if n := w.inbox(home).upTo(other); n != 1 {
			t.Errorf("the other chat has come up to %d, want 1", n)
		}
		time.Sleep(1200 * time.Millisecond)
		if n := w.inbox(home).upTo(early); n != 2 {
			t.Errorf("the chat has come up to %d after its time, want 2", n)
		}
		now, err := p.Outlet(w.ctx, info)
		w.ok(err)
		if now.Refused != 0 || !now.FailingSince.IsZero() {
			t.Errorf("to be early counts as a failure: %+v", now)
		}
		time.Sleep(5 * time.Second)
		if n := w.backlogs(info); n != 0 {
			t.Errorf("%d backlogs are left", n)
		}
	})
}

// TestEngine_rests_after_a_failure: if a chat cannot be read, its backlog is tried once a second.
// It is delivered once the chat can be read again.
func TestEngine_rests_after_a_failure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, c := w.start(nil), w.group()
		w.outlet(p, NewOutlet{Events: []outlet.Type{outlet.MessagePersisted}})
		w.inbox(home).does(func(context.Context, []outlet.Event) (int, *outlet.Refusal) {
			return 0, &outlet.Refusal{Action: outlet.Later, After: time.Second}
		})
		w.send(c, p)
		time.Sleep(10*time.Second + 100*time.Millisecond) // Retries are at full seconds.
		w.inbox(home).does(nil)
		before := p.looks.Load()
		p.unreadable.Store(1000)
		time.Sleep(20 * time.Second)
		if n := p.looks.Load() - before; n < 10 || n > 50 {
			t.Errorf("the chat was read %d times in 20 s, want about 20", n)
		}
		p.unreadable.Store(0)
		time.Sleep(5 * time.Second)
		if n := w.inbox(home).upTo(c); n != 1 {
			t.Errorf("the chat has come up to %d, want 1", n)
		}
	})
}

// TestEngine_reserves_what_is_off: where the kind of an own outlet is not served, none is created,
// and no other outlet gets its id. One that was there waits, and can be deleted with its backlogs.
func TestEngine_reserves_what_is_off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own = true
		p, c := w.start(nil), w.group()
		time.Sleep(time.Minute)
		p.stop()
		w.off = true
		p = w.start(nil)
		time.Sleep(time.Minute)
		w.send(c, p)
		time.Sleep(time.Minute)
		all, err := p.Outlets(w.ctx)
		w.ok(err)
		if len(all) != 1 || all[0].State != Active || w.backlogs("push") != 1 {
			t.Errorf("%d backlogs wait for the outlets %+v", w.backlogs("push"), all)
		}
		w.ok(p.Delete(w.ctx, "push"))
		time.Sleep(time.Minute)
		l, err := readList(w.ctx, w.store)
		w.ok(err)
		if len(l.Outlets) != 0 || w.backlogs("push") != 0 {
			t.Errorf("%d backlogs and the outlets %+v are left", w.backlogs("push"), l.Outlets)
		}
		_, err = p.Create(w.ctx, NewOutlet{ID: "push", Kind: "webhook", URL: home})
		if tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("a webhook got the reserved id: %v", err)
		}
	})
}

// TestEngine_creates_its_own_outlets: once, in all processes, and again after it was deleted. No
// operator creates another one.
func TestEngine_creates_its_own_outlets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own = true
		p := w.start(nil)
		w.start(nil)
		time.Sleep(time.Minute)
		id := storage.OutletID("push")
		for range 2 {
			all, err := p.Outlets(w.ctx)
			w.ok(err)
			if len(all) != 1 || all[0].ID != id || all[0].State != Active || all[0].Kind != "own" {
				t.Fatalf("the outlets are %+v, want one that is active", all)
			}
			w.ok(p.Delete(w.ctx, id))
			time.Sleep(time.Minute)
		}
		_, err := p.Create(w.ctx, NewOutlet{Kind: "own", URL: home})
		if tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("another outlet of the kind is created: %v", err)
		}
		c := w.group()
		w.send(c, p)
		w.whole("", 5*time.Second)
		if n := w.inbox("").upTo(c); n != 1 {
			t.Errorf("the own outlet has got %d messages, want 1", n)
		}
		for _, e := range w.inbox("").events() {
			if e.Type != outlet.MessagePersisted {
				t.Errorf("the own outlet has got a %s", e.Type)
			}
		}
	})
}

// TestEngine_keeps_its_own_outlets_as_they_are: operators pause and resume them, and no more.
func TestEngine_keeps_its_own_outlets_as_they_are(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.own = true
		p, id := w.start(nil), storage.OutletID("push")
		time.Sleep(time.Minute)
		url, content, batch, yes, no := "x", "none", true, true, false
		for name, change := range map[string]Change{
			"url": {URL: &url}, "content": {Content: &content}, "batch": {Batch: &batch},
			"events": {Events: &[]outlet.Type{outlet.ReadUpdated}},
		} {
			if _, err := p.Update(w.ctx, id, change); tidemark.CodeOf(err) != tidemark.Invalid {
				t.Errorf("%s was changed: %v", name, err)
			}
		}
		if _, err := p.Test(w.ctx, id); tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("a test event was delivered: %v", err)
		}
		_, _, err := p.Rotate(w.ctx, id)
		if tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(err.Error(), "no secret") {
			t.Errorf("it has a secret: %v", err)
		}
		_, err = p.Update(w.ctx, id, Change{Paused: &yes})
		w.ok(err)
		_, err = p.Update(w.ctx, id, Change{Paused: &no})
		w.ok(err)
	})
}

// TestEngine_reads_nothing_that_waits: events that an outlet makes wait are not read while it says
// so. Further events of their chat are read, also those that come while the backlog is read.
func TestEngine_reads_nothing_that_waits(t *testing.T) {
	for name, during := range map[string]bool{"between": false, "during": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.start(nil)
				w.outlet(p, NewOutlet{
					Batch: true, Events: []outlet.Type{outlet.MessagePersisted},
				})
				c := w.group()
				var calls, latest atomic.Int64
				var open atomic.Bool
				wait := &outlet.Refusal{
					Action: outlet.Later, After: time.Second, Waits: func() time.Duration {
						if open.Load() {
							return 0
						}
						return time.Second
					},
				}
				w.inbox(home).does(func(
					_ context.Context, events []outlet.Event,
				) (int, *outlet.Refusal) {
					if open.Load() {
						return len(events), nil
					}
					switch n := calls.Add(1); {
					case n == 1:
						return 0, &outlet.Refusal{Action: outlet.Later, After: time.Second}
					case n == 2 && during:
						w.send(c, p)
						time.Sleep(100 * time.Millisecond)
					}
					latest.Store(int64(events[len(events)-1].Sequence))
					return 0, wait
				})
				w.send(c, p)
				if !during {
					time.Sleep(time.Minute)
					if n := calls.Load(); n > 2 {
						t.Errorf("in a minute the outlet was asked %d times, want twice at most", n)
					}
					w.send(c, p)
				}
				time.Sleep(10 * time.Second)
				if n := latest.Load(); n != 2 {
					t.Errorf("the outlet was asked about the messages up to %d, want 2", n)
				}
				open.Store(true)
				time.Sleep(10 * time.Second)
				if n := w.inbox(home).upTo(c); n != 2 {
					t.Errorf("the chat has come up to %d, want 2", n)
				}
			})
		})
	}
}
