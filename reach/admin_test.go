package reach

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

func TestEngine_disabled_and_paused_outlets_lose_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{})
		c := w.group()
		pause := func(paused bool) {
			_, err := p.Update(w.ctx, id, Change{Paused: &paused})
			w.ok(err)
		}
		w.inbox(home).does(func(context.Context, []outlet.Event) (int, *outlet.Refusal) {
			return 0, &outlet.Refusal{Action: outlet.Disable, Status: 410, Detail: "gone"}
		})
		w.send(c, p)
		w.state(p, id, Disabled)
		info, err := p.Outlet(w.ctx, id)
		w.ok(err)
		if info.Reason != "gone" {
			t.Errorf("the reason is %q", info.Reason)
		}
		time.Sleep(2 * time.Second) // until the node has read the list again
		w.inbox(home).does(nil)
		for range 100 {
			w.send(c, p)
		}
		time.Sleep(time.Minute)
		if n := len(w.inbox(home).events()); n != 0 {
			t.Errorf("%d events came although the outlet is disabled", n)
		}
		pause(false)
		w.whole(home, 5*time.Second)
		pause(true)
		time.Sleep(2 * time.Second)
		before := len(w.inbox(home).events())
		for range 100 {
			w.send(c, p)
		}
		time.Sleep(time.Minute)
		if n := len(w.inbox(home).events()) - before; n != 0 {
			t.Errorf("%d events came although the outlet is paused", n)
		}
		pause(false)
		w.whole(home, 5*time.Second)
	})
}

func TestEngine_gives_up_after_days(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.times = seldom
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{})
		w.inbox(home).does(refuse(503))
		for range 5 {
			c := w.group()
			w.send(c, p)
		}
		time.Sleep(4 * 24 * time.Hour)
		w.state(p, id, Active)
		time.Sleep(2 * 24 * time.Hour)
		w.state(p, id, Disabled)
	})
}

func TestEngine_replays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{Events: []outlet.Type{outlet.MessagePersisted}})
		c, d := w.group(), w.group()
		for range 10 {
			w.send(c, p)
			w.send(d, p)
		}
		w.whole(home, 5*time.Second)
		replayed := func(want int, replay func() error) {
			t.Helper()
			before := len(w.inbox(home).events())
			w.ok(replay())
			time.Sleep(time.Minute)
			if n := len(w.inbox(home).events()) - before; n != want {
				t.Errorf("%d events were replayed, want %d", n, want)
			}
		}
		replayed(4, func() error { return p.Replay(w.ctx, id, c, 7, time.Time{}) })
		replayed(20, func() error { return p.Replay(w.ctx, id, "", 0, time.Time{}) })
		time.Sleep(time.Hour)
		at := time.Now()
		w.send(c, p)
		w.whole(home, 5*time.Second)
		replayed(1, func() error { return p.Replay(w.ctx, id, "", 0, at) })
		if got := w.inbox(home).ids(); got != 21 {
			t.Errorf("%d ids came, want 21: a repeat has the same id", got)
		}
		err := p.Replay(w.ctx, id, "none", 1, time.Time{})
		if tidemark.CodeOf(err) != tidemark.NotFound {
			t.Errorf("the replay of an unknown chat: %v", err)
		}
	})
}

func TestEngine_deleted_outlet_leaves_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		id := w.outlet(p, NewOutlet{URL: "https://down"})
		w.inbox("https://down").does(refuse(500))
		for range 20 {
			w.send(w.group(), p)
		}
		time.Sleep(10 * time.Second)
		if n := w.backlogs(id); n == 0 {
			t.Fatal("there is no backlog to remove")
		}
		w.ok(p.Delete(w.ctx, id))
		if _, err := p.Outlet(w.ctx, id); tidemark.CodeOf(err) != tidemark.NotFound {
			t.Errorf("the deleted outlet: %v", err)
		}
		time.Sleep(time.Minute)
		if n := w.backlogs(id); n != 0 {
			t.Errorf("%d backlogs of the deleted outlet are left", n)
		}
		for _, kind := range []string{parkedKind(id), logKind(id)} {
			if found, _, _ := w.store.Documents(w.ctx, kind, "", 1); len(found) != 0 {
				t.Errorf("documents of the kind %s are left", kind)
			}
		}
		l, err := readList(w.ctx, w.store)
		w.ok(err)
		if l.find(id) != nil {
			t.Error("the deleted outlet is listed still")
		}
	})
}

// TestEngine_creates_once: a repetition changes nothing, and an id may be used again after its
// outlet was deleted.
func TestEngine_creates_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		asked := NewOutlet{ID: "crm", Kind: "webhook", URL: "https://a"}
		id := w.outlet(p, asked)
		again, err := p.Create(w.ctx, asked)
		if err != nil || !again.Existed || again.Secret != "" || again.State != Active {
			t.Errorf("a repetition: %+v, %v", again, err)
		}
		wantConflict := func(what string, asked NewOutlet) {
			if _, err := p.Create(w.ctx, asked); tidemark.CodeOf(err) != tidemark.Conflict {
				t.Errorf("%s: %v, want Conflict", what, err)
			}
		}
		other := asked
		other.URL = "https://b"
		wantConflict("another URL", other)
		unnamed := NewOutlet{Kind: "webhook", URL: "https://c"}
		first, err := p.Create(w.ctx, unnamed)
		w.ok(err)
		if second, err := p.Create(w.ctx, unnamed); err != nil || second.ID != first.ID {
			t.Errorf("a repetition without an id: %s, %v, want %s", second.ID, err, first.ID)
		}
		w.state(p, first.ID, Active)

		c := w.group()
		w.send(c, p)
		time.Sleep(time.Minute)
		w.ok(p.Delete(w.ctx, id))
		wantConflict("while it is deleted", asked)
		time.Sleep(time.Minute)
		w.outlet(p, asked)
		w.send(c, p)
		time.Sleep(time.Minute)
		if got := w.inbox("https://a").upTo(c); got != 2 {
			t.Errorf("the outlet got up to message %d, want 2", got)
		}
	})
}

// TestEngine_new_secret_after_a_lost_key: the news waits until the outlet has a secret that this
// key opens.
func TestEngine_new_secret_after_a_lost_key(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		before := w.start(nil)
		id := w.outlet(before, NewOutlet{})
		before.stop()
		other, err := NewSealer([]byte("another key, which has 32 bytes."))
		w.ok(err)
		w.sealer = other
		p := w.start(nil)
		c := w.group()
		w.send(c, p)
		time.Sleep(time.Minute)
		if n := len(w.inbox(home).events()); n != 0 {
			t.Errorf("%d events came, and no secret could be opened", n)
		}
		info, err := p.Outlet(w.ctx, id)
		w.ok(err)
		if !strings.Contains(info.Reason, "it cannot be opened") {
			t.Errorf("the reason is %q", info.Reason)
		}
		if _, err := p.Test(w.ctx, id); tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("a test event: %v, want Denied", err)
		}
		yes, no := true, false
		if _, err := p.Update(w.ctx, id, Change{Paused: &yes}); err != nil {
			t.Errorf("it cannot be paused: %v", err)
		}
		_, err = p.Update(w.ctx, id, Change{Paused: &no})
		if tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("it was resumed without a secret: %v, want Denied", err)
		}
		_, secret, err := p.Rotate(w.ctx, id)
		if err != nil || secret == "" {
			t.Fatalf("a new secret: %q, %v", secret, err)
		}
		_, err = p.Update(w.ctx, id, Change{Paused: &no})
		w.ok(err)
		w.whole(home, 5*time.Second)
		if info, err = p.Outlet(w.ctx, id); err != nil || info.Reason != "" {
			t.Errorf("the reason is %q, %v", info.Reason, err)
		}
	})
}

// TestEngine_old_secrets_expire: an outlet that stays open uses the old secret for 24 hours after a
// new one was made, and not longer.
func TestEngine_old_secrets_expire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.times = seldom
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{})
		c := w.group()
		_, _, err := p.Rotate(w.ctx, id)
		w.ok(err)
		for _, want := range []int{2, 1} {
			time.Sleep(rotation/2 + time.Minute)
			w.send(c, p)
			w.whole(home, time.Minute)
			in := w.inbox(home)
			in.mu.Lock()
			if in.signers != want {
				t.Errorf("%d secrets sign, want %d", in.signers, want)
			}
			in.mu.Unlock()
		}
	})
}

// TestList_gains an outlet that has the id of a deleted one: what a process knows of the deliveries
// to that one says nothing of the new one.
func TestList_gains(t *testing.T) {
	born := time.Now()
	older := list{Outlets: []Spec{{ID: "a", State: Active, CreatedAt: born}}}
	for name, c := range map[string]struct {
		outlet Spec
		want   bool
	}{
		"the same":          {Spec{ID: "a", State: Paused, CreatedAt: born}, false},
		"one of another id": {Spec{ID: "b", State: Joining, CreatedAt: born}, true},
		"a later one": {
			Spec{ID: "a", State: Joining, CreatedAt: born.Add(time.Hour)}, true,
		},
		"one that is starting": {Spec{ID: "b", State: Starting, CreatedAt: born}, false},
	} {
		l := list{Outlets: []Spec{c.outlet}}
		if got := l.gains(&older); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestCreate_unknown_type: the refusal quotes the beginning of a long type only.
func TestCreate_unknown_type(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		long := outlet.Type(strings.Repeat("x", 100_000))
		_, err := w.start(nil).Create(w.ctx, NewOutlet{
			Kind: "webhook", URL: home, Events: []outlet.Type{long},
		})
		if tidemark.ParamOf(err) != "events" || len(tidemark.DetailOf(err)) > 1_000 {
			t.Errorf("got %.2000v, want a short refusal of events", err)
		}
	})
}
