package reach

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

func TestFirstMissed(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	page := func(first, last int) []tidemark.Message {
		var messages []tidemark.Message
		for n := first; n <= last; n++ {
			messages = append(messages, tidemark.Message{
				Sequence: tidemark.Sequence(n), CreatedAt: at(1000 * n),
			})
		}
		return messages
	}
	since := func(from ...tidemark.Sequence) tidemark.Intervals {
		var all tidemark.Intervals
		for i, n := range from {
			if all = append(all, tidemark.Interval{From: n}); i > 0 {
				all[i-1].To = n - 5
			}
		}
		return all
	}
	// Message n was sent at the second n. The page has 21 to 23.
	for _, test := range []struct {
		name  string
		since tidemark.Intervals
		// joined is in milliseconds.
		joined int
		acked  tidemark.Watermark
		want   tidemark.Sequence
	}{
		{"missed nothing before", since(1), 0, 20, 21},
		{"acknowledged one", since(1), 0, 21, 22},
		{"acknowledged all", since(1), 0, 23, 0},
		{"missed the one before", since(1), 0, 19, 0},
		{"joined within", since(23), 22_500, 22, 23},
		{"joined after all", since(24), 23_500, 23, 0},
		{"sees the history, joined before", since(1), 20_500, 0, 21},
		{"sees the history, joined within", since(1), 22_500, 0, 23},
		{"sees the history, joined a moment after a message", since(1), 22_100, 0, 22},
		{"sees the history, joined later", since(1), 25_000, 0, 0},
		{"sees the history, joined at the message before", since(1), 20_000, 0, 0},
		{"returned, and missed some before", since(1, 21), 20_500, 4, 21},
		{"returned within", since(1, 22), 21_500, 4, 22},
		{"returned earlier", since(1, 18), 17_500, 4, 0},
	} {
		m := tidemark.Member{Intervals: test.since, JoinedAt: at(test.joined)}
		all := page(20, 23)
		got := tidemark.Sequence(0)
		if of := firstMissed(&m, test.acked, &all[0], all[1:]); of != nil {
			got = of.Sequence
		}
		if got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
	all := page(1, 2)
	m := tidemark.Member{Intervals: since(1), JoinedAt: at(0)}
	if of := firstMissed(&m, 0, nil, all); of == nil || of.Sequence != 1 {
		t.Errorf("got %v of the first messages, want 1", of)
	}
}

// pendingOnly are the events of an outlet that gets outlet.PendingCreated only.
var pendingOnly = []outlet.Type{outlet.PendingCreated}

// missed returns whom a receiver was told of, by "user sequence", in order.
func (i *inbox) missed() []string {
	var all []string
	for _, e := range i.events() {
		if e.Type == outlet.PendingCreated {
			all = append(all, fmt.Sprint(e.User, " ", e.Sequence))
		}
	}
	return all
}

// ack raises the acknowledged watermarks of users to the head of a chat.
func (w *world) ack(chat tidemark.ChatID, users ...tidemark.UserID) {
	w.Helper()
	c, err := w.store.Chat(w.ctx, chat)
	w.ok(err)
	for _, user := range users {
		_, err := w.store.Advance(w.ctx, []storage.Advance{{
			User: user, Chat: chat, Raise: tidemark.Raise{Acked: c.Head}, Now: time.Now(),
		}})
		w.ok(err)
	}
}

// connected is what world.online returns if these users have a session.
func connected(online ...tidemark.UserID) func(
	context.Context, []tidemark.UserID) ([][]tidemark.DeviceID, error) {
	return func(_ context.Context, users []tidemark.UserID) ([][]tidemark.DeviceID, error) {
		devices := make([][]tidemark.DeviceID, len(users))
		for i, user := range users {
			if slices.Contains(online, user) {
				devices[i] = []tidemark.DeviceID{"phone"}
			}
		}
		return devices, nil
	}
}

// TestEngine_pending: u0 has a session and acknowledges, u1 has one and does not, and u2 is away.
func TestEngine_pending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online = connected("alice", "u0", "u1")
		p := w.start(nil)
		c := w.team(4, 0)
		id := w.outlet(p, NewOutlet{Events: pendingOnly})
		w.outlet(p, NewOutlet{URL: "https://other"})
		is := func(when string, want ...string) {
			t.Helper()
			if got := w.inbox(home).missed(); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		send := func() {
			w.send(c, p)
			w.ack(c, "alice")
		}
		sent := time.Now()
		send()
		time.Sleep(2 * time.Second)
		w.ack(c, "u0")
		is("after 2 s")
		time.Sleep(3 * time.Second)
		is("after 5 s", "u2 1")
		time.Sleep(7 * time.Second)
		is("after 12 s", "u2 1", "u1 1")
		if got := w.inbox(home).events()[0]; string(got.Data) !=
			`{"chat_id":"c0","user_id":"u2","first_undelivered_sequence":1}` ||
			!got.Time.Equal(sent) {
			t.Errorf("got %s at %s", got.Data, got.Time)
		}
		for range 250 {
			send()
			w.ack(c, "u0")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(12 * time.Second)
		is("while the rows stand", "u2 1", "u1 1")
		if n := w.backlogs(pendingOf(id)); n != 0 {
			t.Errorf("%d backlogs are left when all was looked at", n)
		}
		w.ack(c, "u1", "u2")
		send()
		w.ack(c, "u0", "u1")
		time.Sleep(12 * time.Second)
		is("after they acknowledged", "u2 1", "u1 1", "u2 252")
		w.ack(c, "u2")
		send()
		time.Sleep(2 * time.Second)
		_, err := w.store.RemoveMember(w.ctx, c, "u1", time.Now())
		w.ok(err)
		_, err = w.store.AddMembers(w.ctx, c, []tidemark.UserID{"u3"}, tidemark.Ordinary,
			time.Now())
		w.ok(err)
		w.ack(c, "u0")
		time.Sleep(12 * time.Second)
		is("u1 left, u3 joined", "u2 1", "u1 1", "u2 252", "u2 253")
		if got := w.inbox("https://other").missed(); len(got) != 0 {
			t.Errorf("an outlet that names no events was told of %q", got)
		}
	})
}

// TestEngine_pending_of_newcomers_with_history: those who may read what was sent before they joined
// have missed what comes next.
func TestEngine_pending_of_newcomers_with_history(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online = connected("alice")
		p := w.start(nil)
		_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
			ID: "full", Type: tidemark.Group, Creator: "alice", History: tidemark.HistoryFull,
			Members: []tidemark.UserID{"alice"}, CreatedAt: time.Now(),
		})
		w.ok(err)
		w.outlet(p, NewOutlet{Events: pendingOnly})
		send := func() {
			w.send("full", p)
			w.ack("full", "alice")
			time.Sleep(30 * time.Second)
		}
		send()
		_, err = w.store.AddMembers(w.ctx, "full", []tidemark.UserID{"bob"}, tidemark.Ordinary,
			time.Now())
		w.ok(err)
		send()
		send()
		if got := w.inbox(home).missed(); !slices.Equal(got, []string{"bob 2"}) {
			t.Errorf("got %q, want bob 2", got)
		}
		if n := p.Counters()["outlet_events_total{accepted}"]; n != 1 {
			t.Errorf("%d events are counted, want 1", n)
		}
	})
}

// TestEngine_pending_in_large_chats: a Large chat has no pending rows of messages, and no events.
func TestEngine_pending_in_large_chats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online = connected()
		p := w.start(nil)
		c := w.team(tidemark.PendingFanoutLimit, 0)
		id := w.outlet(p, NewOutlet{Events: pendingOnly})
		w.send(c, p)
		_, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{"one", "two"},
			tidemark.Ordinary, time.Now())
		w.ok(err)
		time.Sleep(time.Minute)
		w.send(c, p)
		time.Sleep(time.Minute)
		if got := w.inbox(home).missed(); len(got) != 0 {
			t.Errorf("%d events of a large chat came", len(got))
		}
		if n := w.backlogs(pendingOf(id)); n != 0 {
			t.Errorf("%d backlogs are left", n)
		}
	})
}

// TestEngine_pending_spares_other_backlogs: the backlogs of an outlet that wants pending.created do
// not make each round look for those of all outlets.
func TestEngine_pending_spares_other_backlogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		c := w.team(2, 0)
		w.outlet(p, NewOutlet{Events: pendingOnly})
		w.outlet(p, NewOutlet{URL: "https://other"})
		for range 3 {
			p.lookups.Store(0)
			for range 20 {
				w.send(c, p)
				time.Sleep(100 * time.Millisecond)
			}
			if n := p.lookups.Load(); n > 2 {
				t.Errorf("%d look-ups of two outlets in a burst, want 2 or none", n)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestEngine_pending_waits_for_the_outlet: while an outlet is paused, its events wait. Those who
// have acknowledged by then are left out.
func TestEngine_pending_waits_for_the_outlet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		c := w.team(3, 0)
		id := w.outlet(p, NewOutlet{Events: pendingOnly})
		pause := func(paused bool) {
			_, err := p.Update(w.ctx, id, Change{Paused: &paused})
			w.ok(err)
			time.Sleep(time.Minute)
		}
		pause(true)
		w.send(c, p)
		w.ack(c, "alice")
		time.Sleep(10 * time.Minute)
		w.ack(c, "u1")
		if n := w.backlogs(pendingOf(id)); n != 1 {
			t.Errorf("%d backlogs wait, want 1", n)
		}
		pause(false)
		if got := w.inbox(home).missed(); !slices.Equal(got, []string{"u0 1"}) {
			t.Errorf("got %q, want u0 1", got)
		}
		pause(true)
		w.send(c, p)
		time.Sleep(time.Minute)
		w.ok(p.Delete(w.ctx, id))
		time.Sleep(5 * time.Minute)
		if n := w.backlogs(pendingOf(id)); n != 0 {
			t.Errorf("%d backlogs are left of a deleted outlet", n)
		}
	})
}

// TestEngine_pending_while_nothing_can_be_read: the look is repeated until store and registry
// answer.
func TestEngine_pending_while_nothing_can_be_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var away atomic.Bool
		unavailable := func() error {
			if away.Load() {
				return tidemark.Errorf(tidemark.Unavailable, "it is away")
			}
			return nil
		}
		w.online = func(
			ctx context.Context, users []tidemark.UserID,
		) ([][]tidemark.DeviceID, error) {
			if err := unavailable(); err != nil {
				return nil, err
			}
			return connected()(ctx, users)
		}
		p := w.start(unavailable)
		c := w.team(2, 0)
		w.outlet(p, NewOutlet{Events: pendingOnly})
		w.send(c, p)
		w.ack(c, "alice")
		time.Sleep(2 * time.Second)
		away.Store(true)
		time.Sleep(time.Minute)
		if got := w.inbox(home).missed(); len(got) != 0 {
			t.Errorf("got %q while nothing could be read", got)
		}
		away.Store(false)
		time.Sleep(20 * time.Second)
		got := slices.Compact(w.inbox(home).missed()) // A repetition is right.
		if !slices.Equal(got, []string{"u0 1"}) {
			t.Errorf("got %q, want u0 1", got)
		}
	})
}

// TestEngine_pending_at_random runs schedules of messages and acknowledgements, while processes die
// and the receiver fails. Nobody is told of who has acknowledged, nor twice of one absence, and in
// the end the receiver knows of everybody who misses something.
func TestEngine_pending_at_random(t *testing.T) {
	runs, first := number(t, "TIDEMARK_REACH_RUNS", 200)/4, number(t, "TIDEMARK_SEED", 1)
	deaths, told, spared := 0, 0, 0
	for seed := first; seed < first+runs; seed++ {
		t.Run(fmt.Sprint("TIDEMARK_SEED=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAbsences(t, rand.New(rand.NewPCG(uint64(seed), 5)))
				a.run()
				deaths, told, spared = deaths+a.deaths, told+a.told, spared+a.spared
			})
		})
	}
	t.Logf("%d deaths, %d absences told, %d over before", deaths, told, spared)
	if runs >= 20 && (deaths == 0 || told == 0 || spared == 0) {
		t.Error("not everything happened")
	}
}

// absences is a schedule in which users miss messages.
type absences struct {
	schedule
	all []*process
	// begun has the first message of each absence, by user, and ended when it ended.
	begun map[string]bool
	ended map[string]time.Time
	// acked is up to where each user has acknowledged a chat.
	acked map[string]tidemark.Sequence

	deaths, told, spared int
}

func newAbsences(t *testing.T, dice *rand.Rand) *absences {
	w := newWorld(t)
	w.online = connected("alice", "u0")
	return &absences{
		schedule: schedule{world: w, dice: dice}, begun: map[string]bool{},
		ended: map[string]time.Time{}, acked: map[string]tidemark.Sequence{},
	}
}

func (a *absences) run() {
	chats := []tidemark.ChatID{a.team(3, 0), a.team(3, 0)}
	a.all = []*process{a.start(nil), a.start(nil)}
	a.outlet(a.all[0], NewOutlet{Events: pendingOnly, Batch: a.dice.IntN(2) == 0})
	id := ownID("webhook", "https://example.com")
	for range 60 {
		switch a.dice.IntN(10) {
		case 0:
			n := a.dice.IntN(2)
			a.all[n].kill()
			a.all[n] = a.start(nil)
			a.deaths++
		case 1:
			a.trouble(a.inbox(home))
		case 2, 3:
			user := []string{"u0", "u1"}[a.dice.IntN(2)]
			a.acknowledge(chats[a.dice.IntN(2)], user)
		default:
			for chat := chats[a.dice.IntN(2)]; ; {
				a.miss(chat)
				if a.dice.IntN(3) == 0 {
					break
				}
			}
		}
		time.Sleep(time.Duration(a.dice.IntN(15_000)) * time.Millisecond)
	}
	a.inbox(home).does(nil)
	time.Sleep(20 * time.Second)
	for range 120 {
		if a.backlogs(pendingOf(id)) == 0 && a.backlogs(storage.AllOutlets) == 0 {
			break
		}
		time.Sleep(time.Minute)
	}
	if n := a.backlogs(pendingOf(id)); n != 0 {
		a.Errorf("%d backlogs are left", n)
	}
	a.check()
}

// miss sends a message that u0 and u1 do not acknowledge yet.
func (a *absences) miss(chat tidemark.ChatID) {
	a.send(chat, a.all[a.dice.IntN(2)])
	a.ack(chat, "alice")
	for _, user := range []string{"u0", "u1"} {
		a.begun[fmt.Sprint(chat, " ", user, " ", a.acked[string(chat)+user]+1)] = true
	}
}

// acknowledge lets a user acknowledge all messages of a chat.
func (a *absences) acknowledge(chat tidemark.ChatID, user string) {
	c, err := a.store.Chat(a.ctx, chat)
	a.ok(err)
	a.ack(chat, tidemark.UserID(user))
	absence := fmt.Sprint(chat, " ", user, " ", a.acked[string(chat)+user]+1)
	if a.begun[absence] && a.ended[absence].IsZero() {
		a.ended[absence] = time.Now()
	}
	a.acked[string(chat)+user] = c.Head
}

// check compares what the receiver was told with what happened.
func (a *absences) check() {
	came := map[string]bool{}
	for i, e := range a.inbox(home).events() {
		absence := fmt.Sprint(e.Chat, " ", e.User, " ", e.Sequence)
		came[absence] = true
		// A delivery takes up to 4 s.
		end := a.ended[absence]
		if late := a.inbox(home).at[i].Sub(end); !end.IsZero() && late > 5*time.Second {
			a.Errorf("pending_told: %q is told %v after its end", absence, late)
		}
	}
	for absence := range came {
		if !a.begun[absence] {
			a.Errorf("pending_told: %q is told, and began with an earlier message", absence)
		}
	}
	for absence := range a.begun {
		switch {
		case came[absence]:
			a.told++
		case a.ended[absence].IsZero():
			a.Errorf("pending_told: %q is not told", absence)
		default:
			a.spared++
		}
	}
}
