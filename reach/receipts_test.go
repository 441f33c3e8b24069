package reach

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// receiptsOnly are the events of an outlet that gets receipts.
var receiptsOnly = []outlet.Type{outlet.DeliveryUpdated, outlet.ReadUpdated}

// raise raises watermarks through a process.
func (w *world) raise(
	p *process, chat tidemark.ChatID, user tidemark.UserID, r tidemark.Raise,
) error {
	_, err := p.Hinting(p.store).Advance(w.ctx, []storage.Advance{{
		User: user, Chat: chat, Raise: r, Now: time.Now(),
	}})
	return err
}

// receipts returns what a receiver knows of a chat: the highest watermarks by user.
func (i *inbox) receipts(w *world, chat tidemark.ChatID) map[string]tidemark.Boundary {
	known := map[string]tidemark.Boundary{}
	for _, e := range i.events() {
		if e.Chat != chat || lineOf(&e).feed != feedReceipts {
			continue
		}
		var d struct {
			User  string             `json:"user_id"`
			Acked tidemark.Watermark `json:"last_acked_sequence"`
			Read  tidemark.Watermark `json:"last_read_sequence"`
		}
		w.ok(json.Unmarshal(e.Data, &d))
		known[d.User] = known[d.User].Merge(tidemark.Boundary{Acked: d.Acked, Read: d.Read})
	}
	return known
}

// team creates a chat of some members, with messages.
func (w *world) team(members, messages int) tidemark.ChatID {
	w.Helper()
	c := w.group()
	var users []tidemark.UserID
	for n := range members - 1 {
		users = append(users, tidemark.UserID("u"+strconv.Itoa(n)))
	}
	_, err := w.store.AddMembers(w.ctx, c, users, tidemark.Ordinary, time.Now())
	w.ok(err)
	for range messages {
		w.send(c)
	}
	return c
}

func TestEngine_receipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		small, large := w.team(3, 9), w.team(51, 9)
		w.outlet(p, NewOutlet{URL: "https://other"})
		w.ok(w.raise(p, small, "u0", tidemark.Raise{Acked: 1}))
		if n := w.backlogs(receiptsOf(ownID("webhook", "https://other"))); n != 0 {
			t.Errorf("%d chats are marked, although no outlet wants receipts", n)
		}
		id := w.outlet(p, NewOutlet{URL: home, Events: receiptsOnly})
		time.Sleep(time.Minute + 300*time.Millisecond) // Not at the moment of a poll.
		w.ok(w.raise(p, small, "u0", tidemark.Raise{Acked: 3}))
		synctest.Wait()
		w.ok(w.raise(p, small, "u0", tidemark.Raise{Acked: 5}))
		w.ok(w.raise(p, small, "u1", tidemark.Raise{Read: 4}))
		time.Sleep(2 * time.Second)
		for n := range 51 {
			user := tidemark.UserID("u" + strconv.Itoa(n))
			if n == 50 {
				user = "alice"
			}
			w.ok(w.raise(p, large, user, tidemark.Raise{Acked: tidemark.Sequence(2 + n%3)}))
		}
		time.Sleep(15 * time.Second)
		var got []string
		for _, e := range w.inbox(home).events() {
			got = append(got, string(e.Type)+" "+string(e.Data))
		}
		want := []string{
			`delivery.updated {"chat_id":"c0","user_id":"u0","last_acked_sequence":3,` +
				`"last_read_sequence":0}`,
			`delivery.updated {"chat_id":"c0","user_id":"u0","last_acked_sequence":5,` +
				`"last_read_sequence":0}`,
			`delivery.updated {"chat_id":"c0","user_id":"u1","last_acked_sequence":4,` +
				`"last_read_sequence":4}`,
			`read.updated {"chat_id":"c0","user_id":"u1","last_acked_sequence":4,` +
				`"last_read_sequence":4}`,
			`delivery.updated {"chat_id":"c1","user_id":null,"last_acked_sequence":2,` +
				`"last_read_sequence":0}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if n := w.backlogs(receiptsOf(id)); n != 2 {
			t.Errorf("%d chats are marked, want 2", n)
		}
		time.Sleep(2 * time.Minute)
		if n := w.backlogs(receiptsOf(id)); n != 0 {
			t.Errorf("%d chats are marked after two minutes", n)
		}
		w.ok(w.raise(p, small, "u0", tidemark.Raise{Acked: 6}))
		time.Sleep(2 * time.Second)
		if n := len(w.inbox(home).events()); n != len(want)+1 {
			t.Errorf("%d events came, want %d: the others are known", n, len(want)+1)
		}
		w.ok(p.Delete(w.ctx, id))
		time.Sleep(2 * time.Minute)
		if n := w.backlogs(receiptsOf(id)); n != 0 {
			t.Errorf("%d marks are left of a deleted outlet", n)
		}
		for _, e := range w.inbox("https://other").events() {
			if lineOf(&e).feed == feedReceipts {
				t.Errorf("an outlet that names no events has got %s", e.Data)
			}
		}
	})
}

// TestEngine_receipts_converge_at_random runs schedules of raises by several processes that die at
// any moment, also in the middle of a raise that takes up to 25 s, with a receiver that fails. In
// the end the receiver knows the last state of all members.
func TestEngine_receipts_converge_at_random(t *testing.T) {
	runs, first := number(t, "TIDEMARK_REACH_RUNS", 200)/4, number(t, "TIDEMARK_SEED", 1)
	deaths, raises := 0, 0
	for seed := first; seed < first+runs; seed++ {
		t.Run(fmt.Sprint("TIDEMARK_SEED=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dice := rand.New(rand.NewPCG(uint64(seed), 3))
				d, r := converge(t, dice)
				deaths, raises = deaths+d, raises+r
			})
		})
	}
	t.Logf("%d raises, %d deaths", raises, deaths)
	if runs >= 20 && (deaths == 0 || raises == 0) {
		t.Error("not everything happened")
	}
}

func converge(t *testing.T, dice *rand.Rand) (deaths, raises int) {
	w := newWorld(t)
	chats := []tidemark.ChatID{w.team(2, 40), w.team(3, 40), w.team(3, 40)}
	all := []*process{w.start(nil), w.start(nil)}
	id := w.outlet(all[0], NewOutlet{Events: receiptsOnly, Batch: dice.IntN(2) == 0})
	time.Sleep(time.Minute)
	kill := func(p *process) {
		if n := slices.Index(all, p); n >= 0 {
			deaths++
			p.kill()
			all[n] = w.start(nil)
		}
	}
	var mu sync.Mutex
	fates := rand.New(rand.NewPCG(dice.Uint64(), 4))
	var dying []*process
	w.advance = func(p *process) {
		mu.Lock()
		fate, wait := fates.IntN(12), time.Duration(fates.IntN(25_000))*time.Millisecond
		if fate == 0 {
			p.kill()
			dying = append(dying, p)
		}
		mu.Unlock()
		if fate == 1 {
			time.Sleep(wait)
		}
	}
	var calls sync.WaitGroup
	s := &schedule{world: w, dice: dice}
	for range 40 {
		mu.Lock()
		dead := dying
		dying = nil
		mu.Unlock()
		for _, p := range dead {
			kill(p)
		}
		switch dice.IntN(12) {
		case 0:
			kill(all[dice.IntN(2)])
		case 1:
			s.trouble(w.inbox(home))
		case 2:
			time.Sleep(time.Duration(dice.IntN(90)) * time.Second)
		case 3:
			paused := dice.IntN(2) == 0
			_, err := all[0].Update(w.ctx, id, Change{Paused: &paused})
			w.ok(err)
		default:
			to := tidemark.Sequence(1 + dice.IntN(40))
			r := tidemark.Raise{Acked: to}
			if dice.IntN(2) == 0 {
				r = tidemark.Raise{Read: to}
			}
			user := []tidemark.UserID{"alice", "u0"}[dice.IntN(2)]
			raises++
			p, chat := all[dice.IntN(2)], chats[dice.IntN(3)]
			calls.Go(func() { _ = w.raise(p, chat, user, r) }) // It may die.
		}
		time.Sleep(time.Duration(dice.IntN(8_000)) * time.Millisecond)
	}
	calls.Wait()
	for _, p := range dying {
		kill(p)
	}
	w.advance = nil
	w.inbox(home).does(nil)
	resumed := false
	_, err := all[0].Update(w.ctx, id, Change{Paused: &resumed})
	w.ok(err)
	time.Sleep(20 * time.Second)
	for range 120 {
		if w.backlogs(receiptsOf(id)) == 0 {
			break
		}
		time.Sleep(time.Minute)
	}
	if n := w.backlogs(receiptsOf(id)); n != 0 {
		t.Errorf("%d chats are still marked", n)
	}
	for _, chat := range chats {
		known := w.inbox(home).receipts(w, chat)
		for _, user := range []tidemark.UserID{"alice", "u0"} {
			states, err := w.store.States(w.ctx, []storage.StateKey{{User: user, Chat: chat}})
			w.ok(err)
			want, got := states[0].Exposed(), known[string(user)]
			if got.Acked != want.Acked || got.Read != want.Read {
				t.Errorf("receipts_converge: %s of %s: got %d, %d, want %d, %d", user, chat,
					got.Acked, got.Read, want.Acked, want.Read)
			}
		}
	}
	return deaths, raises
}

// TestEngine_receipts_of_a_gateway: a process that delivers nothing marks the chats, and tells the
// one that does.
func TestEngine_receipts_of_a_gateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		worker := w.start(nil)
		w.aside, w.forward = true, func(hint string) { worker.HintOfAnother(hint) }
		gateway := w.start(nil)
		c := w.team(2, 9)
		id := w.outlet(worker, NewOutlet{Events: receiptsOnly})
		time.Sleep(time.Minute + 300*time.Millisecond) // Not at the moment of a poll.
		w.ok(w.raise(gateway, c, "u0", tidemark.Raise{Acked: 3}))
		synctest.Wait()
		if got := w.inbox(home).receipts(w, c)["u0"].Acked; got != 3 {
			t.Errorf("the outlet knows of %d at once, want 3", got)
		}
		if n := w.backlogs(receiptsOf(id)); n != 1 {
			t.Errorf("%d chats are marked, want 1", n)
		}
		gateway.alone.Store(true) // It cannot read the list.
		time.Sleep(time.Minute)
		err := w.raise(gateway, c, "u0", tidemark.Raise{Acked: 4})
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Errorf("raised by a list that is too old: %v", err)
		}
	})
}

// TestEngine_receipts_of_a_second_outlet: a chat that is marked for one outlet is marked again when
// another one wants receipts. So it gets the last state although the process dies.
func TestEngine_receipts_of_a_second_outlet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.times.Quiet = 10 * time.Minute
		p := w.start(nil)
		c := w.team(2, 9)
		w.outlet(p, NewOutlet{Events: receiptsOnly})
		w.ok(w.raise(p, c, "u0", tidemark.Raise{Acked: 3}))
		w.outlet(p, NewOutlet{URL: "https://second", Events: receiptsOnly})
		w.inbox("https://second").does(refuse(500))
		w.ok(w.raise(p, c, "u0", tidemark.Raise{Acked: 4}))
		p.kill()
		w.inbox("https://second").does(nil)
		w.start(nil)
		time.Sleep(5 * time.Minute)
		if got := w.inbox("https://second").receipts(w, c)["u0"].Acked; got != 4 {
			t.Errorf("the outlet knows of %d, want 4", got)
		}
	})
}

// TestReceipts_hints_are_read_together: the marks of hinted chats take one call for each page of
// these, however many marks there are.
func TestReceipts_hints_are_read_together(t *testing.T) {
	w := newWorld(t)
	id := storage.OutletID("a")
	var chats []tidemark.ChatID
	var marks []storage.Backlog
	for range 2*listed + 1 {
		c := w.group()
		chats = append(chats, c)
		marks = append(marks, storage.Backlog{Outlet: receiptsOf(id), Chat: c, From: beyond})
	}
	for part := range slices.Chunk(marks, storage.MaxBatch) {
		w.ok(w.store.Rewind(w.ctx, part))
	}
	for _, tc := range []struct {
		known, hinted int
		want          int64
	}{
		{0, 1, 1}, {0, 2, 1}, {0, len(chats), 3},
		{2 * listed, 1, 1}, {len(chats) - 5, 5, 1}, {len(chats) - 2, 2, 1},
	} {
		store := &counted{Store: w.store}
		e := New(Config{Store: store})
		r := &receiver{spec: Spec{ID: id}, receipts: newReceipts(time.Minute)}
		for i := range tc.known {
			r.receipts.found(&marks[i], time.Now())
		}
		hinted := chats[tc.known : tc.known+tc.hinted]
		for _, c := range hinted {
			r.receipts.hint(c)
		}
		w.ok(e.findHinted(w.ctx, r))
		if n := store.backlogs.Load(); n > tc.want {
			t.Errorf("%d hints beside %d marks took %d calls, want at most %d", tc.hinted,
				tc.known, n, tc.want)
		}
		for _, c := range hinted {
			if r.receipts.marks[c] == nil {
				t.Errorf("the mark of %s was not found", c)
			}
		}
	}
}

// TestReceipts_begin_in_turn: the states of a chat are read when its time has come, once more if
// there was news meanwhile, and never of a chat that is not marked any more.
func TestReceipts_begin_in_turn(t *testing.T) {
	r := newReceipts(time.Minute)
	now := time.Now()
	found := func(chats ...tidemark.ChatID) {
		for _, c := range chats {
			r.found(&storage.Backlog{Chat: c, Stamp: now.String()}, now)
		}
	}
	refused := tidemark.ChatID("")
	begun := func(want ...tidemark.ChatID) {
		t.Helper()
		var got []tidemark.ChatID
		for {
			m, row, _ := r.begin(now, func(of line) bool { return of.chat != refused })
			if m == nil {
				break
			}
			got = append(got, row.Chat)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("begun %v, want %v", got, want)
		}
	}
	end := func(c tidemark.ChatID, settled bool) {
		r.end(c, r.marks[c], false, settled, now.Add(pause))
	}
	refused = "b"
	found("a", "b", "c")
	begun("a", "c")
	refused = ""
	begun() // b is asked for again after a pause.
	r.hint("a")
	r.take()
	begun() // a is worked on.
	end("a", false)
	end("c", true)
	begun()
	now = now.Add(pause)
	begun("a", "b")
	end("a", false)
	end("b", false)
	now = now.Add(pause)
	found("a", "b", "c")
	r.swept()
	found("a", "c")
	r.swept() // b is gone.
	begun("a", "c")
}

// BenchmarkReceipts_begin is what it costs to look for work while many chats wait for their time.
func BenchmarkReceipts_begin(b *testing.B) {
	r := newReceipts(time.Minute)
	now := time.Now()
	for n := range 10_000 {
		c := tidemark.ChatID(strconv.Itoa(n))
		r.found(&storage.Backlog{Chat: c, Stamp: "s"}, now)
	}
	for m, row, _ := r.begin(now, anyLine); m != nil; m, row, _ = r.begin(now, anyLine) {
		r.end(row.Chat, m, true, false, now.Add(time.Hour))
	}
	for b.Loop() {
		r.begin(now, anyLine)
	}
}

func anyLine(line) bool { return true }
