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
	{"Check_of_a_working_store_is_nil", func(f *fixture) { f.ok(f.store.Check(f.ctx)) }},
	{"every_method_is_Unavailable_once_its_context_has_ended", func(f *fixture) {
		canceled, cancel := context.WithCancel(f.ctx)
		cancel()
		expired, cancel := context.WithDeadline(f.ctx, time.Now().Add(-time.Second))
		defer cancel()
		c := f.group("c", f.user("alice"))
		before := f.roster(c)
		contexts := map[string]context.Context{"canceled": canceled, "expired": expired}
		for name, ctx := range contexts {
			for method, err := range f.callAll(ctx, c) {
				if tidemark.CodeOf(err) != tidemark.Unavailable || !isError(err) {
					f.Errorf("%s with a context that is %s: got error %v, want a *tidemark.Error "+
						"with code Unavailable", method, name, err)
				}
			}
		}
		// The store still works.
		f.send(c, f.user("alice"), 1)
		f.equal("roster", f.roster(c).Members[0].UserID, before.Members[0].UserID)
		f.ok(f.store.Check(f.ctx))
	}},
	{"errors_are_of_type_Error", func(f *fixture) {
		_, notFound := f.store.Chat(f.ctx, f.chat("none"))
		_, notMember := storage.AppendOne(f.ctx, f.store,
			f.draft(f.group("c", f.user("alice")), f.user("bob"), "hello"))
		for _, err := range []error{notFound, notMember} {
			f.equal("an Error", isError(err), true)
		}
	}},
}

func isError(err error) bool {
	var e *tidemark.Error
	return errors.As(err, &e)
}

// callAll calls every method that can return an error, and returns the errors. It may be called
// twice for a chat.
func (f *fixture) callAll(ctx context.Context, chat tidemark.ChatID) map[string]error {
	errs := map[string]error{}
	alice, s := f.user("alice"), f.store
	chats := []tidemark.ChatID{chat}
	_, _, errs["CreateChat"] = s.CreateChat(ctx, storage.NewChat{
		ID:        f.chat("new"),
		Type:      tidemark.Group,
		History:   tidemark.HistoryFull,
		CreatedAt: at(1),
		Creator:   alice,
		Members:   []tidemark.UserID{alice},
	})
	_, errs["Chat"] = s.Chat(ctx, chat)
	_, errs["UpdateChat"] = s.UpdateChat(ctx, chat, renamed("name"))
	_, _, errs["ChatsOf"] = s.ChatsOf(ctx, alice, storage.ChatsPage{Limit: 1})
	_, errs["Heads"] = s.Heads(ctx, chats)
	_, errs["AddMembers"] = s.AddMembers(ctx, chat, f.users("bob"), tidemark.Ordinary, at(1))
	_, errs["RemoveMember"] = s.RemoveMember(ctx, chat, f.user("bob"), at(1))
	_, errs["UpdateMember"] = s.UpdateMember(ctx, chat, alice, memberMetadata("{}"))
	_, errs["Rosters"] = s.Rosters(ctx, chats)
	_, errs["Append"] = storage.AppendOne(ctx, s, f.draft(chat, alice, "hello"))
	_, _, errs["Sent"] = s.Sent(ctx, storage.SendKey{Chat: chat, Sender: alice})
	_, errs["Ranges"] = s.Ranges(ctx, []storage.Range{{Chat: chat, Limit: 1}})
	_, _, errs["Reactions"] = s.Reactions(ctx, storage.ReactionsQuery{Chat: chat, From: 1, To: 1})
	_, _, errs["Reactors"] = s.Reactors(ctx, chat, 1, 0, 1)
	_, errs["Pins"] = s.Pins(ctx, chat)
	_, errs["Advance"] = s.Advance(ctx, []storage.Advance{{User: alice, Chat: chat, Now: at(1)}})
	_, errs["States"] = s.States(ctx, []storage.StateKey{{User: alice, Chat: chat}})
	_, _, errs["StatesOf"] = s.StatesOf(ctx, alice, "", 1)
	_, _, errs["StatesIn"] = s.StatesIn(ctx, chat, "", 1)
	_, errs["Summary"] = s.Summary(ctx, chat, 1, "")
	_, errs["Mark"] = s.Mark(ctx, []tidemark.PendingDelivery{
		{UserID: alice, ChatID: chat, FirstUndelivered: 1},
	})
	_, errs["Clear"] = s.Clear(ctx, []storage.Clear{{User: alice, Chat: chat, Through: 1}})
	_, _, errs["PendingOf"] = s.PendingOf(ctx, alice, "", 1)
	_, _, _, errs["Behind"] = s.Behind(ctx, alice, storage.BehindQuery{Limit: 1})
	_, errs["Shared"] = s.Shared(ctx,
		[]storage.Claim{{Chat: chat, Incarnation: "none", Sequence: 1}})
	_, errs["Expire"] = s.Expire(ctx, chat, at(0), 1)
	_, errs["Policies"] = s.Policies(ctx, []tidemark.ChatID{chat})
	errs["FinishImport"] = s.FinishImport(ctx, chat, at(1))
	_, errs["DeleteChat"] = s.DeleteChat(ctx, f.chat("new"), at(1))
	_, _, errs["PurgeChat"] = s.PurgeChat(ctx, f.chat("new"), 1, true)
	e := tidemark.Erasure{User: f.user("bob"), Alias: tidemark.ErasedID("1"), At: at(1)}
	_, _, _, errs["ChatsNaming"] = s.ChatsNaming(ctx, e.User, "", 1)
	_, err := s.CloseDirect(ctx, f.chat("pair"), e.User, at(1))
	if tidemark.CodeOf(err) != tidemark.NotFound {
		errs["CloseDirect"] = err
	}
	_, errs["EraseMessages"] = s.EraseMessages(ctx, chat, e, storage.ErasePage{Limit: 1})
	_, errs["EraseMember"] = s.EraseMember(ctx, chat, e, 1)
	_, errs["EraseUser"] = s.EraseUser(ctx, e.User, 1)
	_, _, _, errs["UsersNamed"] = s.UsersNamed(ctx, "", 1)
	_, errs["PutBlock"] = s.PutBlock(ctx, alice, f.user("bob"), at(1))
	_, errs["RemoveBlock"] = s.RemoveBlock(ctx, alice, f.user("bob"))
	_, _, errs["BlocksOf"] = s.BlocksOf(ctx, alice, "", 1)
	_, errs["Apart"] = s.Apart(ctx, alice, f.users("bob"))
	_, errs["Ban"] = s.Ban(ctx, chat, f.user("carol"), at(1))
	errs["Unban"] = s.Unban(ctx, chat, f.user("carol"))
	_, _, errs["BansOf"] = s.BansOf(ctx, chat, "", 1)
	entry := storage.NewAuditID(f.day())
	errs["RecordAudit"] = s.RecordAudit(ctx, storage.AuditEntry{
		ID: entry, State: storage.AuditBegun,
	})
	errs["FinishAudit"] = s.FinishAudit(ctx, entry, storage.AuditEnd{
		State: storage.AuditDone, At: at(1),
	})
	_, _, errs["ListAudit"] = s.ListAudit(ctx, storage.AuditPage{Limit: 1})
	errs["RenameAudit"] = s.RenameAudit(ctx, entry, alice, e.Alias)
	_, _, errs["TrimAudit"] = s.TrimAudit(ctx, storage.AuditIDAt(time.UnixMilli(0)), 1)
	errs["Check"] = s.Check(ctx)
	return errs
}

func testClose(t *testing.T, open Open) {
	t.Run("later_calls_are_Unavailable_and_Close_may_be_called_again", func(t *testing.T) {
		f := newSuite(open(t)).fixture(t)
		c := f.group("c", f.user("alice"))
		for method, err := range f.callAll(f.ctx, c) {
			if err != nil {
				t.Errorf("%s before Close: got error %v", method, err)
			}
		}
		for range 3 {
			f.ok(f.store.Close())
		}
		for method, err := range f.callAll(f.ctx, c) {
			if tidemark.CodeOf(err) != tidemark.Unavailable || !isError(err) {
				t.Errorf("%s after Close: got error %v, want a *tidemark.Error with code "+
					"Unavailable", method, err)
			}
		}
	})
	t.Run("calls_under_way_end_with_nil_or_Unavailable", func(t *testing.T) {
		f := newSuite(open(t)).fixture(t)
		closeUnderLoad(f, f.group("c", f.user("alice")))
	})
}

// closeUnderLoad closes the store while 64 senders append. It returns the confirmed messages.
func closeUnderLoad(f *fixture, chat tidemark.ChatID) map[tidemark.Sequence]tidemark.MessageID {
	f.Helper()
	type confirmation struct {
		sequence tidemark.Sequence
		id       tidemark.MessageID
	}
	confirmations := make(chan confirmation, racers)
	ended := make(chan error, 1)
	go func() {
		ended <- concurrently(racers, func(int) error {
			for range 5_000 {
				appended, err := storage.AppendOne(f.ctx, f.store,
					f.draft(chat, f.user("alice"), "hello"))
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
			f.Errorf("messages %s and %s were both confirmed as %d", id, c.id, c.sequence)
		}
		confirmed[c.sequence] = c.id
		if len(confirmed) == 2*racers {
			for range 2 {
				go func() { closed <- f.store.Close() }()
			}
		}
	}
	f.ok(<-ended)
	if len(confirmed) < 2*racers {
		f.Fatalf("the store refused after %d messages, before it was closed", len(confirmed))
	}
	f.ok(<-closed)
	f.ok(<-closed)
	return confirmed
}

func testCloseUnderLoad(
	t *testing.T, open Open, reopen func(t *testing.T, s storage.Store) storage.Store,
) {
	f := newSuite(open(t)).fixture(t)
	c := f.group("c", f.user("alice"))
	confirmed := closeUnderLoad(f, c)
	f.store = reopen(t, f.store)
	head := f.info(c).Head
	f.gapless(c, int(head))
	messages := f.messages(storage.Range{Chat: c, Limit: int(head)})
	for sequence, id := range confirmed {
		if sequence > head || messages[sequence-1].MessageID != id {
			t.Errorf("message %s was confirmed as %d, and is not there", id, sequence)
		}
	}
}

// testReopen writes data of every kind, opens the store again, and compares all reads.
func testReopen(t *testing.T, open Open, reopen func(t *testing.T, s storage.Store) storage.Store) {
	f := newSuite(open(t)).fixture(t)
	alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
	c, d := f.sinceJoin("c", alice, bob), f.direct("d", alice, bob)
	draft := f.draft(c, bob, "before they left")
	draft.Attachments = []byte(`[{ "kept": "as it is" }]`)
	draft.Metadata = []byte(`{ "kept": "as it is" }`)
	f.append(draft)
	f.flood(c, alice, 40)
	f.flood(d, bob, 3)
	f.add(c, carol)
	f.remove(c, bob)
	_, err := f.store.UpdateChat(f.ctx, c, described("another name", `{ "kept": "as it is" }`))
	f.ok(err)
	f.raise(bob, c, tidemark.Raise{Acked: 12, Read: 7}, at(3))
	f.raise(alice, d, tidemark.Raise{Read: 3}, at(4))
	f.mark(bob, c, 13)
	f.mark(alice, d, 1)
	f.mark(carol, c, 5)
	f.clear(alice, d, 2)
	f.clear(carol, c, 41)
	f.append(f.react(d, alice, 2, "👍"))
	f.append(f.pin(d, bob, 3))
	gone, moved := f.furnished("gone"), f.importing("moved", alice)
	f.deletes(gone)
	f.append(f.moved(moved, alice, "first"))
	_, _, err = f.store.PurgeChat(f.ctx, gone, 2, true)
	f.ok(err)
	look := func() any {
		return []any{
			f.info(gone), f.roster(gone), f.messages(storage.Range{Chat: gone}), f.info(moved),
			f.info(c), f.info(d), f.roster(c), f.roster(d), f.messages(storage.Range{Chat: c}),
			f.messages(storage.Range{Chat: d}), f.annotated(d),
			f.state(alice, c), f.state(bob, c), f.state(carol, c), f.state(alice, d),
			f.pending(alice), f.pending(bob), f.pending(carol),
			f.chatsOf(alice, 2), f.chatsOf(carol, 2), f.behind(alice, 2, false), f.summary(c, 20),
			f.summary(d, 3),
		}
	}
	want := look()
	for round := range 2 {
		f.store = reopen(t, f.store)
		f.equal(fmt.Sprint("after reopening, round ", round), look(), want)
	}
	f.equal("a resend is a duplicate", f.append(draft).Duplicate, true)
	again, created, err := f.store.CreateChat(f.ctx, storage.NewChat{
		ID:        f.chat("other"),
		Type:      tidemark.Direct,
		History:   tidemark.HistoryFull,
		CreatedAt: at(1),
		Creator:   bob,
		Members:   []tidemark.UserID{bob, alice},
	})
	f.ok(err)
	f.equal("created", created, false)
	f.equal("direct chat", again.ID, d)
	f.send(c, alice, 1)
	f.gapless(c, 42)
	f.add(c, bob)
	f.equal("intervals of the returning one", f.member(c, bob).Intervals, tidemark.Intervals{
		{From: 1, To: 41}, {From: 43},
	})
}
