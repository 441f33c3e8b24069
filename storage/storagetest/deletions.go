package storagetest

import (
	"fmt"
	"sync/atomic"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// deletes deletes a chat, and lets each store know that.
func (f *fixture) deletes(c tidemark.ChatID) storage.Deleted {
	f.Helper()
	deleted, err := f.store.DeleteChat(f.ctx, c, at(50))
	f.ok(err)
	f.know(c)
	return deleted
}

// know lets each store on the data read a chat.
func (f *fixture) know(c tidemark.ChatID) {
	f.Helper()
	stores := []storage.Store{f.store}
	if t, shared := f.store.(*turns); shared {
		stores = t.stores[:]
	}
	for _, s := range stores {
		_, err := s.Chat(f.ctx, c)
		f.ok(err)
	}
}

// mostPurges is more calls of PurgeChat than a test needs.
const mostPurges = 2_000

// purges removes what is left of a chat, at most limit of each kind in a call. It returns how many
// calls it took.
func (f *fixture) purges(c tidemark.ChatID, limit int, members bool) int {
	f.Helper()
	for n := range mostPurges {
		removed, done, err := f.store.PurgeChat(f.ctx, c, limit, members)
		f.ok(err)
		if done {
			return n + 1
		}
		if removed == 0 {
			f.Fatalf("a call removed nothing, and more is left")
		}
	}
	f.Fatalf("after %d calls, more is left", mostPurges)
	return mostPurges
}

// furnished returns a group of alice, bob and a former member, with all that a chat may have.
func (f *fixture) furnished(name string) tidemark.ChatID {
	f.Helper()
	alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
	c := f.group(name, alice, bob, carol)
	_, err := f.store.UpdateChat(f.ctx, c, described("a name", `{"a":1}`))
	f.ok(err)
	named := f.draft(c, alice, "for bob")
	named.Mentions = tidemark.NewMentions(false, []tidemark.UserID{bob, carol})
	f.append(named)
	all := f.draft(c, bob, "for all")
	all.Mentions.All = true
	f.append(all)
	line := f.draft(c, carol, "a line")
	line.Kind = tidemark.KindSystem
	f.append(line)
	f.append(f.edit(c, alice, 1, "for nobody"))
	f.send(c, carol, 3)
	f.remove(c, carol)
	f.raise(alice, c, tidemark.Raise{Acked: 5, Read: 4}, at(3))
	f.raise(bob, c, tidemark.Raise{Acked: 2, Read: 2}, at(3))
	f.mark(bob, c, 3)
	_, err = f.store.MarkUnread(f.ctx, alice, c, 2)
	f.ok(err)
	return c
}

// refusedByDeleted makes all calls that a deleted chat refuses, and returns their errors.
func (f *fixture) refusedByDeleted(c tidemark.ChatID) map[string]error {
	f.Helper()
	alice, bob := f.user("alice"), f.user("bob")
	errs := map[string]error{}
	_, errs["UpdateChat"] = f.store.UpdateChat(f.ctx, c, renamed("another"))
	_, errs["AddMembers"] = f.store.AddMembers(f.ctx, c, f.users("dave"), tidemark.Ordinary, at(60))
	_, errs["RemoveMember"] = f.store.RemoveMember(f.ctx, c, bob, at(60))
	_, errs["UpdateMember"] = f.store.UpdateMember(f.ctx, c, bob, role(tidemark.Reader))
	_, errs["Append"] = storage.AppendOne(f.ctx, f.store, f.draft(c, alice, "too late"))
	_, errs["Append of an importer"] = storage.AppendOne(f.ctx, f.store,
		f.moved(c, alice, "too late"))
	_, errs["Append of a stranger"] = storage.AppendOne(f.ctx, f.store,
		f.draft(c, f.user("dave"), "too late"))
	_, errs["Append of an edit"] = storage.AppendOne(f.ctx, f.store, f.edit(c, alice, 1, "late"))
	_, _, errs["Sent"] = f.store.Sent(f.ctx, storage.SendKey{Chat: c, Sender: alice})
	_, errs["MarkUnread"] = f.store.MarkUnread(f.ctx, alice, c, 1)
	for _, raise := range []tidemark.Raise{{}, {Acked: 1}, {Acked: 6, Read: 6}} {
		advanced, err := f.store.Advance(f.ctx, []storage.Advance{
			{User: bob, Chat: c, Raise: raise, Now: at(60)},
		})
		f.ok(err)
		errs[fmt.Sprintf("Advance %+v", raise)] = advanced[0].Err
	}
	return errs
}

var deletionRules = []rule{
	{"deleted_is_gone_from_the_step_on", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.furnished("c"), f.group("other", alice, bob)
		f.send(other, alice, 2)
		before := f.info(c)
		deleted := f.deletes(c)
		f.equal("deleted", deleted, storage.Deleted{
			Head: 7, Version: before.MembersVersion + 1, At: at(50),
		})
		f.equal("chat", f.info(c), tidemark.Chat{
			ID: c, State: tidemark.ChatDeleted, DeletedAt: at(50), Type: before.Type,
			History: before.History, CreatedAt: before.CreatedAt, Head: 7, Floor: 8,
			Version: before.Version + 1, MembersVersion: before.MembersVersion + 1,
		})
		f.equal("roster", f.roster(c), &tidemark.Roster{
			ChatID: c, State: tidemark.ChatDeleted, Type: before.Type, History: before.History,
			Version: before.MembersVersion + 1, Floor: 8,
		})
		for call, err := range f.refusedByDeleted(c) {
			if tidemark.CodeOf(err) != tidemark.NotFound || !storage.IsDeletion(err) {
				f.Errorf("%s: got error %v, want WasDeleted", call, err)
			}
		}
		_, _, err := f.store.CreateChat(f.ctx, storage.NewChat{
			ID: c, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: at(60),
			Creator: alice, Members: []tidemark.UserID{alice},
		})
		f.code(err, tidemark.Conflict)
		f.code(f.store.FinishImport(f.ctx, c, at(60)), tidemark.Conflict)
		for _, r := range []storage.Range{{}, {After: 3}, {Before: 8}, {Before: 3}} {
			r.Chat = c
			f.equal(fmt.Sprintf("%+v", r), len(f.messages(r)), 0)
		}
		for _, user := range []tidemark.UserID{alice, bob, f.user("carol")} {
			f.equal("unread", f.unread(user, c), storage.Unread{})
		}
		changed, more, err := f.store.MembersSince(f.ctx, storage.MembersQuery{Chat: c, Limit: 9})
		f.ok(err)
		f.equal("changed members", len(changed), 0)
		f.equal("more", more, false)
		heads, err := f.store.Heads(f.ctx, []tidemark.ChatID{c})
		f.ok(err)
		f.equal("head", heads[0], tidemark.Sequence(7))
		f.eventually("states in it", func() any { return f.statesIn(c, 5) }, nil)
		f.eventually("summary", func() any { return f.summary(c, 1) }, storage.Summary{})
		f.eventually("list", func() any {
			var ids []tidemark.ChatID
			for _, item := range f.chatsOf(bob, 5) {
				ids = append(ids, item.Chat.ID)
			}
			return ids
		}, []tidemark.ChatID{other})
		f.eventually("behind", func() any { return len(f.behind(bob, 5, false)) }, 1)
		f.eventually("total", func() any { return f.unreadOf(bob) },
			storage.UnreadTotal{Unread: storage.Unread{Messages: 2}, Chats: 1})
	}},
	{"DeleteChat_again_returns_the_same", func(f *fixture) {
		c := f.furnished("c")
		first := f.deletes(c)
		chat := f.info(c)
		for n := range 3 {
			again, err := f.store.DeleteChat(f.ctx, c, at(60+n))
			f.ok(err)
			f.equal("deleted", again, first)
			f.equal("chat", f.info(c), chat)
			f.purges(c, 2, n > 0)
		}
		_, err := f.store.DeleteChat(f.ctx, f.chat("none"), at(1))
		f.code(err, tidemark.NotFound)
	}},
	{"deleted_is_gone_also_to_a_repeated_send", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		sent := f.draft(c, alice, "sent")
		f.append(sent)
		f.deletes(c)
		for _, purged := range []bool{false, true} {
			_, err := storage.AppendOne(f.ctx, f.store, sent)
			f.code(err, tidemark.NotFound)
			f.equal("says that it was deleted", storage.IsDeletion(err), true)
			_, _, err = f.store.Sent(f.ctx, storage.SendKeyOf(&sent))
			f.code(err, tidemark.NotFound)
			if !purged {
				f.purges(c, 500, true)
			}
		}
	}},
	{"DeleteChat_lets_a_pair_have_another_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.direct("c", alice, bob)
		f.send(c, alice, 1)
		f.deletes(c)
		new := storage.NewChat{
			ID: c, Type: tidemark.Direct, History: tidemark.HistoryFull, CreatedAt: at(60),
			Creator: bob, Members: []tidemark.UserID{bob, alice},
		}
		_, _, err := f.store.CreateChat(f.ctx, new)
		f.code(err, tidemark.Conflict)
		new.ID = f.chat("d")
		got, created, err := f.store.CreateChat(f.ctx, new)
		f.ok(err)
		f.equal("created", created, true)
		f.equal("chat", got, f.info(new.ID))
		f.send(new.ID, alice, 1)
		f.purges(c, 500, true)
		new.ID = f.chat("e")
		got, created, err = f.store.CreateChat(f.ctx, new)
		f.ok(err)
		f.equal("created again", created, false)
		f.equal("chat of the pair", got.ID, f.chat("d"))
		f.equal("head", f.whole(got.ID).Head, tidemark.Sequence(1))
	}},
	{"PurgeChat_removes_what_is_left_of_this_chat_only", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		for _, limit := range []int{1, 2, 500} {
			c, other := f.furnished(fmt.Sprint("c", limit)), f.furnished(fmt.Sprint("d", limit))
			look := func() any {
				return []any{
					f.info(other), f.roster(other), f.messages(storage.Range{Chat: other}),
					f.state(alice, other), f.state(bob, other), f.state(carol, other),
					f.pending(bob)[other], f.unread(alice, other), f.unread(bob, other),
				}
			}
			want := look()
			f.deletes(c)
			f.purges(c, limit, false)
			f.purges(c, limit, true)
			for _, user := range []tidemark.UserID{alice, bob, carol} {
				f.equal("state", f.state(user, c), tidemark.DeliveryState{UserID: user, ChatID: c})
				f.equal("unread", f.unread(user, c), storage.Unread{})
			}
			_, pending := f.pending(bob)[c]
			f.equal("a pending row", pending, false)
			f.equal("messages", len(f.messages(storage.Range{Chat: c})), 0)
			f.equal("state of the chat", f.info(c).State, tidemark.ChatDeleted)
			f.equal("members", len(f.roster(c).Members), 0)
			f.equal("the other chat", look(), want)
			removed, done, err := f.store.PurgeChat(f.ctx, c, limit, true)
			f.ok(err)
			f.equal("removed again", removed, 0)
			f.equal("done", done, true)
		}
	}},
	{"deleted_is_gone_with_its_reactions_and_pins", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice, bob)
		var pins []tidemark.Draft
		for _, chat := range []tidemark.ChatID{c, other} {
			f.send(chat, alice, 2)
			f.append(f.react(chat, bob, 1, "👍"))
			f.append(f.react(chat, alice, 1, "👍"))
			pins = append(pins, f.pin(chat, alice, 2))
			f.append(pins[len(pins)-1])
		}
		f.deletes(c)
		for _, limit := range []int{0, 1} {
			if limit > 0 {
				f.purges(c, limit, true)
			}
			f.wantReactions(c, bob, 5)
			reactions, _, err := f.store.Reactors(f.ctx, c, 1, 0, 10)
			f.ok(err)
			f.equal("who reacted", len(reactions), 0)
			f.wantPins(c)
			f.wantReactions(other, bob, 5, "1 👍 2 3")
			f.wantPins(other, pinOf(pins[1], 5))
		}
	}},
	{"PurgeChat_finds_a_row_that_was_marked_late", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 1)
		f.deletes(c)
		f.purges(c, 500, false)
		f.mark(bob, c, 1)
		f.purges(c, 500, true)
		f.equal("rows", len(f.pending(bob)), 0)
	}},
	{"PurgeChat_refuses_what_is_not_deleted", func(f *fixture) {
		alice := f.user("alice")
		for state, c := range map[string]tidemark.ChatID{
			"live": f.group("c", alice), "importing": f.importing("i", alice),
		} {
			_, _, err := f.store.PurgeChat(f.ctx, c, 1, true)
			f.code(err, tidemark.Conflict)
			f.equal(state, len(f.roster(c).Members), 1)
		}
		_, _, err := f.store.PurgeChat(f.ctx, f.chat("none"), 1, true)
		f.code(err, tidemark.NotFound)
		c := f.group("d", alice)
		f.deletes(c)
		for _, limit := range []int{-1, 0, storage.MaxExpired + 1} {
			_, _, err := f.store.PurgeChat(f.ctx, c, limit, true)
			f.code(err, tidemark.Invalid)
		}
	}},
	{"Expire_leaves_a_deleted_chat_alone", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.said(c, alice, 1, 2, 3)
		f.expires(c, at(2), 10, 2, 1)
		f.deletes(c)
		f.expires(c, at(10), 10, 4, 0)
		f.purges(c, 1, true)
		f.equal("messages", len(f.messages(storage.Range{Chat: c})), 0)
	}},
	{"DeleteChat_opens_a_backlog_and_is_settled", func(f *fixture) {
		c := f.furnished("c")
		f.settleAll(c)
		before := f.info(c)
		f.deletes(c)
		f.equal("backlog", f.backlog(c), from(c, storage.PositionOf(&before)))
		f.settleAll(c)
		f.equal("backlog after Settle", f.backlog(c), (*storage.Backlog)(nil))
		f.deletes(c)
		f.equal("backlog of a repetition", f.backlog(c), (*storage.Backlog)(nil))
	}},
	{"DeleteChat_of_a_chat_with_standing_rows", func(f *fixture) {
		users := f.many(tidemark.PendingFanoutLimit + 1)
		c := f.group("c", users...)
		f.send(c, users[0], 2)
		f.deletes(c)
		f.equal("members", len(f.roster(c).Members), 0)
		f.eventually("behind", func() any { return len(f.behind(users[1], 5, true)) }, 0)
		f.purges(c, 400, true)
		for _, user := range []tidemark.UserID{users[0], users[300], users[len(users)-1]} {
			f.equal("rows", len(f.pending(user)), 0)
		}
	}},
	{"DeleteChat_of_a_chat_that_is_being_imported", func(f *fixture) {
		alice := f.user("alice")
		c := f.importing("c", alice)
		f.append(f.moved(c, alice, "first"))
		f.deletes(c)
		f.code(f.store.FinishImport(f.ctx, c, at(60)), tidemark.Conflict)
		f.refuses(f.moved(c, alice, "second"), tidemark.NotFound)
		f.purges(c, 500, true)
	}},
	{"deleted_is_gone_beside_those_who_send_and_join", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice)
		var stored atomic.Int64
		const senders = 6
		f.ok(concurrently(senders+2, func(i int) error {
			for n := range 12 {
				var err error
				switch {
				case i == senders && n == 6:
					err = retry(func() error {
						_, err := f.store.DeleteChat(f.ctx, c, at(50))
						return err
					})
				case i == senders+1:
					_, err = f.store.AddMembers(f.ctx, c, []tidemark.UserID{bob},
						tidemark.Ordinary, at(1))
				case i < senders:
					d := f.draft(c, alice, "hello")
					err = retry(func() error {
						_, err := storage.AppendOne(f.ctx, f.store, d)
						if err == nil {
							stored.Add(1)
						}
						return err
					})
				}
				switch tidemark.CodeOf(err) {
				case "", tidemark.NotFound, tidemark.Unavailable:
				default:
					return err
				}
			}
			return nil
		}))
		f.know(c)
		chat := f.info(c)
		f.equal("state", chat.State, tidemark.ChatDeleted)
		f.equal("floor", chat.Floor, chat.Head+1)
		if n := stored.Load(); n > int64(chat.Head) {
			f.Errorf("%d messages were stored, and the chat ends at %d", n, chat.Head)
		}
		f.equal("members", len(f.roster(c).Members), 0)
		f.purges(c, 7, true)
		f.equal("messages", len(f.messages(storage.Range{Chat: c})), 0)
		f.equal("chat", f.info(c), chat)
	}},
}
