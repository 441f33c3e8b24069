package storagetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var contextRules = []rule{
	{"Check_of_a_working_store_is_nil", func(w *world) { w.ok(w.store.Check(w.ctx)) }},
	{"every_method_is_Unavailable_once_its_context_has_ended", func(w *world) {
		cancelled, cancel := context.WithCancel(w.ctx)
		cancel()
		expired, cancel := context.WithDeadline(w.ctx, time.Now().Add(-time.Second))
		defer cancel()
		c := w.group("c", w.user("alice"))
		before := w.roster(c)
		for name, ctx := range map[string]context.Context{"cancelled": cancelled, "expired": expired} {
			for method, err := range w.callAll(ctx, c) {
				if tidemark.CodeOf(err) != tidemark.Unavailable || !isError(err) {
					w.Errorf("%s with a context that is %s: got error %v, want a *tidemark.Error "+
						"with code Unavailable", method, name, err)
				}
			}
		}
		// The store has not suffered.
		w.send(c, w.user("alice"), 1)
		w.equal("roster", w.roster(c).Members[0].UserID, before.Members[0].UserID)
		w.ok(w.store.Check(w.ctx))
	}},
	{"errors_are_of_type_Error", func(w *world) {
		_, notFound := w.store.Chat(w.ctx, w.chat("none"))
		_, notMember := storage.AppendOne(w.ctx, w.store,
			w.draft(w.group("c", w.user("alice")), w.user("bob"), "hello"))
		for _, err := range []error{notFound, notMember} {
			w.equal("an Error", isError(err), true)
		}
	}},
}

func isError(err error) bool {
	var e *tidemark.Error
	return errors.As(err, &e)
}

// callAll calls every method that can return an error, and returns what each returned. It changes nothing of chat that a second
// call would find in its way.
func (w *world) callAll(ctx context.Context, chat tidemark.ChatID) map[string]error {
	errs := map[string]error{}
	alice, s := w.user("alice"), w.store
	chats := []tidemark.ChatID{chat}
	_, _, errs["CreateChat"] = s.CreateChat(ctx, storage.NewChat{
		ID:        w.chat("new"),
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: at(1),
		Creator:   alice,
		Members:   []tidemark.UserID{alice},
	})
	_, errs["Chat"] = s.Chat(ctx, chat)
	_, errs["RenameChat"] = s.RenameChat(ctx, chat, "name")
	_, _, errs["ChatsOf"] = s.ChatsOf(ctx, alice, storage.ChatsPage{Limit: 1})
	_, errs["Heads"] = s.Heads(ctx, chats)
	_, errs["AddMembers"] = s.AddMembers(ctx, chat, w.users("bob"), at(1))
	_, errs["RemoveMember"] = s.RemoveMember(ctx, chat, w.user("bob"), at(1))
	_, errs["Rosters"] = s.Rosters(ctx, chats)
	_, errs["Append"] = storage.AppendOne(ctx, s, w.draft(chat, alice, "hello"))
	_, errs["Ranges"] = s.Ranges(ctx, []storage.Range{{Chat: chat, Limit: 1}})
	_, errs["Advance"] = s.Advance(ctx, []storage.Advance{{User: alice, Chat: chat, Now: at(1)}})
	_, errs["States"] = s.States(ctx, []storage.StateKey{{User: alice, Chat: chat}})
	_, _, errs["StatesOf"] = s.StatesOf(ctx, alice, "", 1)
	_, _, errs["StatesIn"] = s.StatesIn(ctx, chat, "", 1)
	_, errs["Summary"] = s.Summary(ctx, chat, 1)
	_, errs["Mark"] = s.Mark(ctx, []tidemark.PendingDelivery{
		{UserID: alice, ChatID: chat, FirstUndelivered: 1},
	})
	_, errs["Clear"] = s.Clear(ctx, []storage.Clear{{User: alice, Chat: chat, Through: 1}})
	_, _, errs["PendingOf"] = s.PendingOf(ctx, alice, "", 1)
	_, _, _, errs["Behind"] = s.Behind(ctx, alice, storage.BehindQuery{Limit: 1})
	errs["Check"] = s.Check(ctx)
	return errs
}

func testClose(t *testing.T, open Open) {
	t.Run("later_calls_are_Unavailable_and_Close_may_be_called_again", func(t *testing.T) {
		w := newSuite(open(t)).world(t)
		c := w.group("c", w.user("alice"))
		for method, err := range w.callAll(w.ctx, c) {
			if err != nil {
				t.Errorf("%s before Close: got error %v", method, err)
			}
		}
		for range 3 {
			w.ok(w.store.Close())
		}
		for method, err := range w.callAll(w.ctx, c) {
			if tidemark.CodeOf(err) != tidemark.Unavailable || !isError(err) {
				t.Errorf("%s after Close: got error %v, want a *tidemark.Error with code "+
					"Unavailable", method, err)
			}
		}
	})
	t.Run("calls_under_way_end_with_nil_or_Unavailable", func(t *testing.T) {
		w := newSuite(open(t)).world(t)
		closeUnderLoad(w, w.group("c", w.user("alice")))
	})
}

// closeUnderLoad closes the store while 64 senders append, and returns what was confirmed.
func closeUnderLoad(w *world, chat tidemark.ChatID) map[tidemark.Sequence]tidemark.MessageID {
	w.Helper()
	type confirmation struct {
		sequence tidemark.Sequence
		id       tidemark.MessageID
	}
	confirmations := make(chan confirmation, racers)
	ended := make(chan error, 1)
	go func() {
		ended <- concurrently(racers, func(int) error {
			for range 5_000 {
				appended, err := storage.AppendOne(w.ctx, w.store,
					w.draft(chat, w.user("alice"), "hello"))
				if err != nil {
					return expect(err, tidemark.Unavailable)
				}
				confirmations <- confirmation{appended.Message.Sequence, appended.Message.MessageID}
			}
			return errors.New("the store takes messages for ever, although it was closed")
		})
		close(confirmations)
	}()
	confirmed := map[tidemark.Sequence]tidemark.MessageID{}
	closed := make(chan error, 2)
	for c := range confirmations {
		if id, double := confirmed[c.sequence]; double {
			w.Errorf("messages %s and %s were both confirmed as %d", id, c.id, c.sequence)
		}
		confirmed[c.sequence] = c.id
		if len(confirmed) == 2*racers {
			for range 2 {
				go func() { closed <- w.store.Close() }()
			}
		}
	}
	w.ok(<-ended)
	if len(confirmed) < 2*racers {
		w.Fatalf("the store refused after %d messages, before it was closed", len(confirmed))
	}
	w.ok(<-closed)
	w.ok(<-closed)
	return confirmed
}

func testCloseUnderLoad(
	t *testing.T, open Open, reopen func(t *testing.T, s storage.Store) storage.Store,
) {
	w := newSuite(open(t)).world(t)
	c := w.group("c", w.user("alice"))
	confirmed := closeUnderLoad(w, c)
	w.store = reopen(t, w.store)
	head := w.info(c).Head
	w.gapless(c, int(head))
	messages := w.messages(storage.Range{Chat: c, Limit: int(head)})
	for sequence, id := range confirmed {
		if sequence > head || messages[sequence-1].MessageID != id {
			t.Errorf("message %s was confirmed as %d, and is not there", id, sequence)
		}
	}
}

// testReopen makes one of everything, opens the store again, and looks.
func testReopen(t *testing.T, open Open, reopen func(t *testing.T, s storage.Store) storage.Store) {
	w := newSuite(open(t)).world(t)
	alice, bob, carol := w.user("alice"), w.user("bob"), w.user("carol")
	c, d := w.sinceJoin("c", alice, bob), w.direct("d", alice, bob)
	draft := w.draft(c, bob, "before he left")
	draft.Attachment = []byte(`{ "kept": "as it is" }`)
	w.append(draft)
	w.flood(c, alice, 40)
	w.flood(d, bob, 3)
	w.add(c, carol)
	w.remove(c, bob)
	_, err := w.store.RenameChat(w.ctx, c, "another name")
	w.ok(err)
	w.raise(bob, c, tidemark.Raise{Acked: 12, Read: 7}, at(3))
	w.raise(alice, d, tidemark.Raise{Read: 3}, at(4))
	w.mark(bob, c, 13)
	w.mark(alice, d, 1)
	w.mark(carol, c, 5)
	w.clear(alice, d, 2)
	w.clear(carol, c, 41)
	look := func() any {
		return []any{
			w.info(c), w.info(d), w.roster(c), w.roster(d), w.messages(storage.Range{Chat: c}),
			w.messages(storage.Range{Chat: d}),
			w.state(alice, c), w.state(bob, c), w.state(carol, c), w.state(alice, d),
			w.pending(alice), w.pending(bob), w.pending(carol),
			w.chatsOf(alice, 2), w.chatsOf(carol, 2), w.behind(alice, 2, false), w.summary(c, 20),
			w.summary(d, 3),
		}
	}
	want := look()
	for round := range 2 {
		w.store = reopen(t, w.store)
		w.equal(fmt.Sprint("after reopening, round ", round), look(), want)
	}
	w.equal("a resend is a duplicate", w.append(draft).Duplicate, true)
	again, created, err := w.store.CreateChat(w.ctx, storage.NewChat{
		ID:        w.chat("other"),
		Type:      tidemark.Direct,
		History:   tidemark.HistoryFull,
		CreatedAt: at(1),
		Creator:   bob,
		Members:   []tidemark.UserID{bob, alice},
	})
	w.ok(err)
	w.equal("created", created, false)
	w.equal("direct chat", again.ID, d)
	w.send(c, alice, 1)
	w.gapless(c, 42)
	w.add(c, bob)
	w.equal("intervals of the returning one", w.member(c, bob).Intervals, tidemark.Intervals{
		{From: 1, To: 41}, {From: 43},
	})
}
