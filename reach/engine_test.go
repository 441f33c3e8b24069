package reach

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

const home = "https://example.com"

func refuse(status int) answer {
	return func(context.Context, []outlet.Event) (int, *outlet.Refusal) {
		return 0, &outlet.Refusal{Status: status, Detail: "no"}
	}
}

func TestEngine_delivers_what_is_appended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		c := w.group()
		p.Hint(c)
		w.send(c, p)
		synctest.Wait()
		w.whole(home, 0) // At once: a hint needs no time.
		w.send(c)
		w.whole(home, 2*time.Second) // Without a hint, by the poll.
		time.Sleep(10 * time.Second)
		if n := w.backlogs(storage.AllOutlets); n != 0 {
			t.Errorf("%d backlogs of quiet chats are open", n)
		}
		var types []outlet.Type
		for _, e := range w.inbox(home).events() {
			types = append(types, e.Type)
		}
		want := []outlet.Type{
			outlet.ChatUpdated, outlet.MemberChanged, outlet.MessagePersisted,
			outlet.MessagePersisted,
		}
		if !slices.Equal(types, want) {
			t.Errorf("got the events %v, want %v", types, want)
		}
		w.send(c, p)
		synctest.Wait()
		w.whole(home, 0)
		if n := len(w.inbox(home).events()); n != 5 {
			t.Errorf("%d events came, want 5: each one once", n)
		}
	})
}

func TestEngine_begins_with_what_comes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.group()
		for range 300 {
			w.send(old)
		}
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		w.send(old, p)
		synctest.Wait()
		if got := w.inbox(home).begin(old); got != 301 {
			t.Errorf("the first message was %d, want 301", got)
		}
		w.outlet(p, NewOutlet{URL: "https://all", FromStart: true})
		w.whole("https://all", 10*time.Second)
		if got := w.inbox("https://all").begin(old); got != 1 {
			t.Errorf("the first message was %d, want 1", got)
		}
	})
}

func TestEngine_members_come_before_their_messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		c := w.group()
		_, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{"bob"}, tidemark.Ordinary,
			time.Now())
		w.ok(err)
		w.send(c, p)
		w.whole(home, 2*time.Second)
		_, err = w.store.RemoveMember(w.ctx, c, "bob", time.Now())
		w.ok(err)
		name := "new"
		_, err = w.store.UpdateChat(w.ctx, c, storage.ChatChange{Name: &name})
		w.ok(err)
		time.Sleep(2 * time.Second)
		info, err := w.store.Chat(w.ctx, c)
		w.ok(err)
		at := info.CreatedAt.Format(tidemark.TimeLayout)
		var got []string
		for _, e := range w.inbox(home).events() {
			got = append(got, string(e.Type)+" "+string(e.Data))
		}
		want := []string{
			`chat.updated {"chat_id":"c0","type":"group","name":"","metadata":null,` +
				`"history":"","created_at":"` + at + `","version":1}`,
			`member.changed {"chat_id":"c0","user_id":"alice","member":true,"role":"owner",` +
				`"joined_at":"` + at + `","metadata":null,"members_version":1}`,
			`member.changed {"chat_id":"c0","user_id":"bob","member":true,"role":"member",` +
				`"joined_at":"` + at + `","metadata":null,"members_version":2}`,
			"message",
			`chat.updated {"chat_id":"c0","type":"group","name":"new","metadata":null,` +
				`"history":"","created_at":"` + at + `","version":2}`,
			`member.changed {"chat_id":"c0","user_id":"bob","member":false,"role":"member",` +
				`"joined_at":"` + at + `","metadata":null,"members_version":3}`,
		}
		if len(got) != len(want) {
			t.Fatalf("got %q", got)
		}
		for i := range want {
			if want[i] != "message" && got[i] != want[i] {
				t.Errorf("got  %s\nwant %s", got[i], want[i])
			}
		}
	})
}

// TestEngine_slow_receiver_does_not_hold_up_others: others do not wait for it.
func TestEngine_slow_receiver_does_not_hold_up_others(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		w.outlet(p, NewOutlet{URL: "https://slow"})
		w.inbox("https://slow").does(func(
			_ context.Context, events []outlet.Event,
		) (int, *outlet.Refusal) {
			time.Sleep(3 * time.Second)
			return len(events), nil
		})
		c := w.group()
		for n := range 20 {
			w.send(c, p)
			time.Sleep(100 * time.Millisecond)
			if n > 0 { // Only the first one waits.
				continue
			}
			time.Sleep(3 * time.Second)
		}
		w.whole(home, 100*time.Millisecond)
		w.whole("https://slow", 2*time.Minute)
	})
}

func TestEngine_poison_is_parked_and_resent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.times = seldom
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{Batch: true})
		bad, good := w.group(), w.group()
		poisoned := func(e outlet.Event) bool {
			return e.Chat == bad && e.Type == outlet.MessagePersisted && sequenceOf(e) == 3
		}
		w.inbox(home).does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			if slices.ContainsFunc(events, poisoned) {
				return 0, &outlet.Refusal{
					Action: outlet.Split, Status: 422, Detail: "cannot read that",
				}
			}
			return len(events), nil
		})
		for range 5 {
			w.send(bad, p)
			w.send(good, p)
		}
		time.Sleep(time.Minute)
		if got := w.inbox(home).upTo(good); got != 5 {
			t.Errorf("the other chat came up to %d, want 5", got)
		}
		if got := w.inbox(home).upTo(bad); got != 2 {
			t.Errorf("the chat came up to %d, want 2", got)
		}
		for range 26 * 6 {
			w.send(good, p)
			time.Sleep(10 * time.Minute)
		}
		parked, _, err := p.ParkedEvents(w.ctx, id, "", 10)
		w.ok(err)
		if len(parked) != 1 || !poisoned(parked[0].Event) || parked[0].Status != 422 {
			t.Fatalf("parked %+v", parked)
		}
		in := w.inbox(home)
		in.mu.Lock()
		var after []tidemark.Sequence
		for _, e := range in.got {
			if e.Chat == bad && e.Type == outlet.MessagePersisted {
				after = append(after, sequenceOf(e))
			}
		}
		in.wrong = nil // That 4 came after 2 is what is wanted here.
		in.mu.Unlock()
		if want := []tidemark.Sequence{1, 2, 4, 5}; !slices.Equal(after, want) {
			t.Errorf("got %v, want %v", after, want)
		}
		refused, err := p.Resend(w.ctx, id, parked[0].Event.ID)
		w.ok(err)
		if refused == nil || refused.Status != 422 {
			t.Errorf("resent: %+v", refused)
		}
		in.does(nil)
		if refused, err = p.Resend(w.ctx, id, parked[0].Event.ID); err != nil || refused != nil {
			t.Errorf("resent: %+v, %v", refused, err)
		}
		if parked, _, _ = p.ParkedEvents(w.ctx, id, "", 10); len(parked) != 0 {
			t.Errorf("%d events are parked still", len(parked))
		}
		log, err := p.Failures(w.ctx, id)
		w.ok(err)
		if len(log) < refusalsUntilParked || log[0].Status != 422 || log[0].Chat != bad {
			t.Errorf("the log has %d failures, the last is %+v", len(log), log[0])
		}
	})
}

// TestEngine_shows_that_it_works while it goes through a list that is so long that other processes
// would count it as dead.
func TestEngine_shows_that_it_works(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		for range 300 {
			w.send(w.group())
		}
		p.slow.Store(true)
		worked := func() uint64 {
			found, _, err := w.store.Documents(w.ctx, processKind, "", 10)
			w.ok(err)
			if len(found) != 1 {
				t.Fatalf("%d processes are known, want 1", len(found))
			}
			return found[0].Version
		}
		before := worked()
		for range 6 {
			time.Sleep(10 * time.Second)
			now := worked()
			if now == before {
				t.Error("the process has not shown for 10 s that it works")
			}
			before = now
		}
		p.slow.Store(false)
		time.Sleep(time.Minute)
		if n := w.backlogs(storage.AllOutlets); n != 0 {
			t.Errorf("%d backlogs are left", n)
		}
	})
}

// TestEngine_news_during_a_delivery are delivered at once, and not after the next poll.
func TestEngine_news_during_a_delivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		c := w.group()
		w.inbox("https://example.com").does(func(
			context.Context, []outlet.Event,
		) (int, *outlet.Refusal) {
			time.Sleep(10 * time.Millisecond)
			return 1, nil
		})
		time.Sleep(10*time.Second + 100*time.Millisecond) // Polls are at full seconds.
		for range 3 {
			w.send(c, p)
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		if got := w.inbox("https://example.com").upTo(c); got != 3 {
			t.Errorf("after 0.1 s the receiver has up to message %d, want 3", got)
		}
	})
}

// TestEngine_news_of_another_process: a hint reaches the process that works on the chat at once.
func TestEngine_news_of_another_process(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all []*process
		w.forward = func(hint string) {
			for _, p := range all {
				p.HintOfAnother(hint)
			}
		}
		all = append(all, w.start(nil), w.start(nil))
		w.outlet(all[0], NewOutlet{})
		time.Sleep(time.Minute + 100*time.Millisecond) // Polls are at full seconds.
		var chats []tidemark.ChatID
		for range 20 {
			c := w.group()
			w.send(c, all[0])
			chats = append(chats, c)
		}
		time.Sleep(100 * time.Millisecond)
		for _, c := range chats {
			if got := w.inbox(home).upTo(c); got != 1 {
				t.Errorf("after 0.1 s the receiver has nothing of %s", c)
			}
		}
	})
}

// TestEngine_begin_at_the_start_comes_once: neither the first outlet nor a later one gets what
// happened before it twice, from its own backlogs and by the walk that opens them.
func TestEngine_begin_at_the_start_comes_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		for range 30 {
			c := w.group()
			w.send(c)
			w.send(c)
		}
		for _, url := range []string{"https://first", "https://later"} {
			w.outlet(p, NewOutlet{URL: url, FromStart: true})
			w.whole(url, time.Minute)
			time.Sleep(time.Minute)
			if got, ids := len(w.inbox(url).events()), w.inbox(url).ids(); got != ids {
				t.Errorf("%s got %d events, of which %d are different", url, got, ids)
			}
		}
	})
}

// TestEngine_without_outlets_writes_nothing: they cost nothing while nobody asks for them.
func TestEngine_without_outlets_writes_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		c := w.group()
		for range 10 {
			w.send(c, p)
		}
		time.Sleep(time.Hour)
		for _, kind := range []string{listKind, processKind} {
			if found, _, _ := w.store.Documents(w.ctx, kind, "", 10); len(found) != 0 {
				t.Errorf("there are %d documents of the kind %s", len(found), kind)
			}
		}
		if n := w.backlogs(storage.AllOutlets); n != 1 {
			t.Errorf("%d backlogs are open, want that of the chat", n)
		}
	})
}

// TestEngine_another_process_takes_over after the death of one, in the middle of its work.
func TestEngine_another_process_takes_over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one := w.start(nil)
		two := w.start(nil)
		w.outlet(one, NewOutlet{})
		for range 20 {
			w.group()
		}
		for n := range 200 {
			w.send(w.chats[n%20], one, two)
		}
		one.kill()
		for n := range 200 {
			w.send(w.chats[n%20], two)
		}
		w.whole(home, 17*time.Second)
		three := w.start(nil)
		time.Sleep(17 * time.Second) // Until then it does not know that the first one is dead.
		two.stop()
		for n := range 200 {
			w.send(w.chats[n%20], three)
		}
		w.whole(home, 5*time.Second) // An orderly stop takes no time.
	})
}

// TestEngine_list_R_LIST: a process that cannot read the list of outlets delivers by an older one.
// It settles nothing that a new outlet may lack, neither then nor when it reads the list again.
func TestEngine_list_R_LIST(t *testing.T) {
	for range 12 { // The names of the processes say which of them promises.
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.times.Linger = 500 * time.Millisecond // A chat is quiet while the process is trusted.
			one, two := w.start(nil), w.start(nil)
			w.outlet(one, NewOutlet{})
			for range 20 {
				w.group()
			}
			time.Sleep(time.Minute)
			one.alone.Store(true)
			w.outlet(two, NewOutlet{URL: "https://new"})
			two.blind.Store(true)
			for _, c := range w.chats {
				w.send(c, one)
			}
			time.Sleep(4 * time.Second)
			one.alone.Store(false)
			time.Sleep(10 * time.Second)
			two.blind.Store(false)
			w.whole("https://new", time.Minute)
			w.whole(home, 0)
		})
	}
}

// TestEngine_order_after_a_refusal: of a chat whose message was refused, nothing later is delivered
// in the same batch.
func TestEngine_order_after_a_refusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{Batch: true})
		c, d := w.group(), w.group()
		refusals := 0
		w.inbox(home).does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			for i, e := range events {
				fifth := e.Chat == c && e.Type == outlet.MessagePersisted && sequenceOf(e) == 5
				if fifth && refusals < 3 {
					refusals++
					return i, &outlet.Refusal{Status: 500}
				}
			}
			return len(events), nil
		})
		for range 10 {
			w.send(c)
			w.send(d)
		}
		w.whole(home, 10*time.Minute)
	})
}

// state waits until an outlet has a state.
// TestEngine_processes_that_die_soon: a chat that is never quiet is saved for the first time soon
// after a process begins with it. So the next process repeats what came since then. Some processes
// of this test die before that. If none saved, 600 messages would come 3,320 times.
func TestEngine_processes_that_die_soon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.times.Dead = 2 * time.Second
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		c := w.group()
		sent := 0
		for range 10 {
			for range 60 {
				w.send(c, p)
				sent++
				time.Sleep(100 * time.Millisecond)
			}
			p.kill()
			p = w.start(nil)
		}
		w.whole(home, time.Minute)
		if events := len(w.inbox(home).events()); events > 5*sent {
			t.Errorf("%d messages came %d times", sent, events)
		}
	})
}

func (w *world) state(p *process, id storage.OutletID, want State) {
	w.Helper()
	for range 600 {
		if info, err := p.Outlet(w.ctx, id); err == nil && info.State == want {
			return
		}
		time.Sleep(time.Second)
	}
	info, err := p.Outlet(w.ctx, id)
	w.Fatalf("the outlet %s is %q, %v, want %q", id, info.State, err, want)
}

// whole waits until a receiver has all messages of all chats, in order.
func (w *world) whole(url string, within time.Duration) {
	w.Helper()
	i := w.inbox(url)
	var missing string
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		missing = ""
		i.mu.Lock()
		for _, id := range w.chats {
			c, err := w.store.Chat(w.ctx, id)
			w.ok(err)
			if i.first[id] < c.Head {
				missing += fmt.Sprintf(" %s: %d of %d;", id, i.first[id], c.Head)
			}
		}
		i.mu.Unlock()
		if missing == "" {
			break
		}
		if time.Now().After(end) {
			w.Fatalf("after %v, %s lacks%s", within, url, missing)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, wrong := range i.wrong {
		w.Errorf("%s: %s", url, wrong)
	}
}

// TestEngine_reads_a_chat_once_for_its_news: while a backlog only waits to be settled, its chat is
// not read again. A message or a change of a member without a hint comes within a second all the
// same.
func TestEngine_reads_a_chat_once_for_its_news(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		w.outlet(p, NewOutlet{})
		c := w.group()
		time.Sleep(time.Minute)
		w.send(c, p)
		time.Sleep(100 * time.Millisecond)
		p.looks.Store(0)
		time.Sleep(time.Minute)
		if n := p.looks.Load(); n != 0 {
			t.Errorf("after the message was delivered, its chat was read %d times", n)
		}
		w.send(c, p)
		time.Sleep(500 * time.Millisecond)
		w.send(c)
		time.Sleep(1100 * time.Millisecond)
		if n := w.inbox(home).upTo(c); n != 3 {
			t.Errorf("a message without a hint did not come in a second: the last is %d", n)
		}
		w.send(c, p)
		time.Sleep(100 * time.Millisecond)
		before := len(w.inbox(home).events())
		_, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{"bob"}, tidemark.Ordinary,
			time.Now())
		w.ok(err)
		time.Sleep(1100 * time.Millisecond)
		if n := len(w.inbox(home).events()); n != before+1 {
			t.Errorf("%d events came for a new member without a hint, want 1", n-before)
		}
	})
}
