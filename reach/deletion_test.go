package reach

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// deletes deletes a chat through a process.
func (w *world) deletes(p *process, chat tidemark.ChatID) {
	w.Helper()
	_, err := p.Hinting(p.store).DeleteChat(w.ctx, chat, time.Now())
	w.ok(err)
}

// typesOf returns the types of the events of a chat that came.
func (i *inbox) typesOf(chat tidemark.ChatID) (types []outlet.Type) {
	for _, e := range i.events() {
		if e.Chat == chat {
			types = append(types, e.Type)
		}
	}
	return types
}

// TestEngine_deleted_is_gone_and_told_last: an outlet that has everything is told at once. What
// waits for one that was away is told no more. Who asks for messages only is not told.
func TestEngine_deleted_is_gone_and_told_last(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		const away, chats, messages = "https://away", "https://chats", "https://messages"
		ids := []storage.OutletID{
			w.outlet(p, NewOutlet{}),
			w.outlet(p, NewOutlet{URL: away}),
			w.outlet(p, NewOutlet{URL: chats, Events: []outlet.Type{outlet.ChatUpdated}}),
			w.outlet(p, NewOutlet{URL: messages, Events: []outlet.Type{outlet.MessagePersisted}}),
		}
		c, other := w.group(), w.group()
		p.Hint(c)
		w.send(c, p)
		w.whole(home, 2*time.Second)
		time.Sleep(5 * time.Second)
		w.inbox(away).does(func(context.Context, []outlet.Event) (int, *outlet.Refusal) {
			return 0, &outlet.Refusal{Action: outlet.Later, After: time.Second}
		})
		for range 3 {
			w.send(c, p)
		}
		time.Sleep(5 * time.Second)
		w.deletes(p, c)
		synctest.Wait()
		if n := len(w.inbox(home).typesOf(c)); n != 7 {
			t.Errorf("%d events have come at once, want 7", n)
		}
		time.Sleep(5 * time.Second)
		w.inbox(away).does(nil)
		w.send(other, p)
		time.Sleep(time.Minute)
		updated, deleted, said := outlet.ChatUpdated, outlet.ChatDeleted, outlet.MessagePersisted
		for url, want := range map[string][]outlet.Type{
			home:     {updated, outlet.MemberChanged, said, said, said, said, deleted},
			away:     {updated, outlet.MemberChanged, said, deleted},
			chats:    {updated, deleted},
			messages: {said, said, said, said},
		} {
			if got := w.inbox(url).typesOf(c); !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", url, got, want)
			}
		}
		for _, id := range append(ids, storage.AllOutlets) {
			if n := w.backlogs(id); n != 0 {
				t.Errorf("%d backlogs are left for %q", n, id)
			}
		}
		events := w.inbox(chats).events()
		last := events[slices.IndexFunc(events, func(e outlet.Event) bool {
			return e.Type == outlet.ChatDeleted
		})]
		found, err := w.store.Chat(w.ctx, c)
		w.ok(err)
		at := found.DeletedAt.Format(tidemark.TimeLayout)
		want := `{"chat_id":"c0","deleted_at":"` + at + `"}`
		if string(last.Data) != want || !last.Time.Equal(found.DeletedAt) {
			t.Errorf("the event of %v says %s, want %s", last.Time, last.Data, want)
		}
	})
}

// TestEngine_deleted_is_gone_for_a_new_outlet: it is told of the deletion, and of nothing else.
func TestEngine_deleted_is_gone_for_a_new_outlet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		c := w.team(3, 5)
		w.deletes(p, c)
		id := w.outlet(p, NewOutlet{FromStart: true})
		time.Sleep(time.Minute)
		w.ok(p.Replay(w.ctx, id, c, 1, time.Time{}))
		time.Sleep(time.Minute)
		got := slices.Compact(w.inbox(home).typesOf(c))
		if !slices.Equal(got, []outlet.Type{outlet.ChatDeleted}) {
			t.Errorf("got %v", got)
		}
		if n := w.backlogs(id) + w.backlogs(storage.AllOutlets); n != 0 {
			t.Errorf("%d backlogs are left", n)
		}
	})
}

// TestEngine_deleted_is_gone_for_those_who_wait: no receipt and no missed message of a chat is told
// after its deletion.
func TestEngine_deleted_is_gone_for_those_who_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online = connected("alice")
		p := w.start(nil)
		small, large := w.team(3, 2), w.team(tidemark.PendingFanoutLimit+1, 9)
		id := w.outlet(p, NewOutlet{
			Events: append(slices.Clone(receiptsOnly), outlet.PendingCreated),
		})
		time.Sleep(2 * time.Minute)
		for n := range tidemark.PendingFanoutLimit {
			user := tidemark.UserID("u" + strconv.Itoa(n))
			w.ok(w.raise(p, large, user, tidemark.Raise{Acked: 2}))
		}
		w.ok(w.raise(p, large, "alice", tidemark.Raise{Acked: 2}))
		w.ok(w.raise(p, small, "u0", tidemark.Raise{Acked: 1}))
		time.Sleep(time.Minute)
		before := len(w.inbox(home).events())
		if got := w.inbox(home).receipts(w, large)[""]; got.Acked != 2 {
			t.Errorf("all have received %d of the large chat, want 2", got.Acked)
		}
		w.ok(w.raise(p, large, "u0", tidemark.Raise{Acked: 3}))
		w.send(small, p) // which u0 and u1 miss
		w.deletes(p, large)
		w.deletes(p, small)
		time.Sleep(10 * time.Minute)
		if after := w.inbox(home).events(); len(after) != before {
			t.Errorf("after the deletion came %+v", after[before:])
		}
		for _, of := range []storage.OutletID{id, receiptsOf(id), pendingOf(id)} {
			if n := w.backlogs(of); n != 0 {
				t.Errorf("%d backlogs are left for %q", n, of)
			}
		}
	})
}
