package storagetest

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// erasureOf returns the erasure of a user in a chat.
func erasureOf(user tidemark.UserID, n int) tidemark.Erasure {
	return tidemark.Erasure{
		User: user, Alias: tidemark.ErasedID(fmt.Sprint("alias", n)), At: at(90),
	}
}

// erasesMessages erases a user in all messages of a chat, limit at a time.
func (f *fixture) erasesMessages(
	c tidemark.ChatID, e tidemark.Erasure, limit int,
) (sum storage.ErasedPage) {
	f.Helper()
	for p := (storage.ErasePage{Limit: limit}); !sum.Done; p.After = sum.Through {
		got, err := f.store.EraseMessages(f.ctx, c, e, p)
		f.ok(err)
		if !got.Done && got.Through != max(p.After+1, f.info(c).Floor)+tidemark.Sequence(limit)-1 {
			f.Fatalf("a page from %d of %d messages ended at %d", p.After, limit, got.Through)
		}
		sum.Through, sum.Done = got.Through, got.Done
		sum.Wiped, sum.Renamed = sum.Wiped+got.Wiped, sum.Renamed+got.Renamed
	}
	return sum
}

// erasesMember erases what is left of a member, limit rows at a time.
func (f *fixture) erasesMember(c tidemark.ChatID, e tidemark.Erasure, limit int) {
	f.Helper()
	for range mostPurges {
		done, err := f.store.EraseMember(f.ctx, c, e, limit)
		f.ok(err)
		if done {
			return
		}
	}
	f.Fatalf("EraseMember does not end")
}

// erasesUser erases the rows of a user that belong to no chat, and returns the number of calls.
func (f *fixture) erasesUser(user tidemark.UserID, limit int) (calls int) {
	f.Helper()
	for done := false; !done; calls++ {
		if calls == mostPurges {
			f.Fatalf("EraseUser does not end")
		}
		var err error
		done, err = f.store.EraseUser(f.ctx, user, limit)
		f.ok(err)
	}
	return calls
}

// naming returns the chats that have something of a user, which it reads limit chats at a time.
func (f *fixture) naming(user tidemark.UserID, limit int) map[tidemark.ChatID]bool {
	f.Helper()
	found := map[tidemark.ChatID]bool{}
	for after, more := tidemark.ChatID(""), true; more; {
		var chats []tidemark.ChatID
		var err error
		chats, after, more, err = f.store.ChatsNaming(f.ctx, user, after, limit)
		f.ok(err)
		if len(chats) > limit {
			f.Errorf("a page has %d chats, want at most %d", len(chats), limit)
		}
		for _, c := range chats {
			if found[c] {
				f.Errorf("%s is in two pages", c)
			}
			found[c] = true
		}
	}
	return found
}

// nothingOf checks that nothing that can be read of a chat has an id.
func (f *fixture) nothingOf(user tidemark.UserID, c tidemark.ChatID) {
	f.Helper()
	for _, m := range f.messages(storage.Range{Chat: c}) {
		if again, touched := m.Erase(erasureOf(user, 1), f.info(c).Head); touched != 0 {
			f.Errorf("message %d has something of %s: %+v, and not %+v", m.Sequence, user, m, again)
		}
	}
	for _, m := range f.since(c, 0) {
		if m.Member.UserID == user {
			f.Errorf("%s is a member, or was: %+v", user, m)
		}
	}
	f.equal("chats that name them", f.naming(user, 500)[c], false)
	_, pending := f.pending(user)[c]
	f.equal("a pending row", pending, false)
}

var erasureRules = []rule{
	{"erased_nowhere_in_a_chat", func(f *fixture) {
		for n, limit := range []int{500, 2} {
			alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
			c := f.furnished(fmt.Sprint("c", n))
			f.append(f.react(c, alice, 3, "👍"))
			f.append(f.react(c, bob, 2, "👍"))
			f.append(f.pin(c, alice, 2))
			to := f.draft(c, bob, "for both")
			to.Mentions = tidemark.NewMentions(false, []tidemark.UserID{alice, carol})
			f.append(to)
			before, messages := f.info(c), f.messages(storage.Range{Chat: c})
			unread := f.unread(bob, c)
			f.remove(c, alice)
			e := erasureOf(alice, n)
			f.equal("a chat that names them", f.naming(alice, 61)[c], true)
			// The message, its edit, the reaction and the pin are theirs. One names them.
			got := f.erasesMessages(c, e, limit)
			f.equal("messages", got, storage.ErasedPage{
				Through: 11, Wiped: 2, Renamed: 3, Done: true,
			})
			f.erasesMember(c, e, limit)
			f.nothingOf(alice, c)
			after := f.messages(storage.Range{Chat: c})
			f.equal("number of messages", len(after), len(messages))
			for i := range after {
				f.equal("sequence", after[i].Sequence, messages[i].Sequence)
				f.equal("kind", after[i].Kind, messages[i].Kind)
				f.equal("id", after[i].MessageID, messages[i].MessageID)
			}
			f.equal("content of theirs", after[0].Content, "")
			f.equal("it is redacted", after[0].Redacted(), true)
			f.equal("their revision", after[0].Revision.By, e.Alias)
			f.equal("the revision rises", after[0].Revision.Sequence > 4, true)
			f.equal("content of another", after[1].Content, "for all")
			f.equal("head", f.info(c).Head, before.Head)
			f.equal("unread of others", f.unread(bob, c), unread)
			f.wantReactions(c, bob, 11, "2 👍 1 9")
			pins, err := f.store.Pins(f.ctx, c)
			f.ok(err)
			f.equal("pins", len(pins), 1)
			f.equal("who pinned", pins[0].By, e.Alias)
			again := f.erasesMessages(c, e, limit)
			f.equal("again", again, storage.ErasedPage{Through: 11, Done: true})
			f.erasesMember(c, e, limit)
			f.equal("messages after a repetition", f.messages(storage.Range{Chat: c}), after)
		}
	}},
	{"erased_nowhere_in_the_lists_of_members", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		e := erasureOf(alice, 1)
		_, err := f.store.EraseMember(f.ctx, c, e, 10)
		f.code(err, tidemark.Conflict)
		f.equal("members", len(f.roster(c).Members), 2)
		f.remove(c, alice)
		f.raise(alice, c, tidemark.Raise{Acked: 2, Read: 1}, at(3))
		f.mark(alice, c, 1)
		version := f.info(c).MembersVersion
		f.erasesMessages(c, e, 10)
		f.erasesMember(c, e, 10)
		f.nothingOf(alice, c)
		f.equal("version", f.info(c).MembersVersion, version+1)
		f.equal("roster", f.roster(c).Version, version+1)
		f.equal("members", f.roster(c).Members[0].UserID, bob)
		f.send(c, bob, 2)
		f.gapless(c, 4)
		f.equal("unread", f.unread(bob, c), storage.Unread{Messages: 2})
	}},
	{"erased_nowhere_after_a_late_write", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, bob, 3)
		f.remove(c, alice)
		e := erasureOf(alice, 1)
		f.erasesMessages(c, e, 10)
		f.erasesMember(c, e, 10)
		f.raise(alice, c, tidemark.Raise{Acked: 3, Read: 3}, at(3))
		f.mark(alice, c, 1)
		named := f.draft(c, bob, "for alice")
		named.Mentions = tidemark.NewMentions(false, []tidemark.UserID{alice})
		f.append(named)
		f.equal("it is found again", f.naming(alice, 500)[c], true)
		f.erasesMessages(c, e, 10)
		f.erasesMember(c, e, 10)
		f.nothingOf(alice, c)
	}},
	{"erased_nowhere_among_the_rows_of_no_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		for n := range 5 {
			c := f.group(fmt.Sprint("c", n), bob)
			f.send(c, bob, 1)
			f.mark(alice, c, 1)
			f.mark(bob, c, 1)
		}
		f.equal("calls", f.erasesUser(alice, 2) >= 3, true)
		f.equal("rows of alice", len(f.pending(alice)), 0)
		f.equal("rows of bob", len(f.pending(bob)), 5)
	}},
	{"CloseDirect_leaves_a_reader", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.direct("d", alice, bob)
		f.send(c, alice, 2)
		f.send(c, bob, 1)
		f.mark(alice, c, 3)
		removed, err := f.store.CloseDirect(f.ctx, c, alice, at(9))
		f.ok(err)
		f.equal("removed", removed, storage.Removed{Version: 2, Head: 3})
		f.equal("members", len(f.roster(c).Members), 1)
		f.equal("who is left", f.member(c, bob).Role, tidemark.Reader)
		f.equal("count", f.info(c).MemberCount, 1)
		_, pending := f.pending(alice)[c]
		f.equal("a pending row", pending, false)
		for user, want := range map[tidemark.UserID]tidemark.Code{
			alice: tidemark.NotMember, bob: tidemark.Denied,
		} {
			_, err := storage.AppendOne(f.ctx, f.store, f.draft(c, user, "too late"))
			f.code(err, want)
		}
		_, err = f.store.CloseDirect(f.ctx, c, alice, at(9))
		f.code(err, tidemark.NotMember)
		e := erasureOf(alice, 1)
		f.equal("messages", f.erasesMessages(c, e, 10).Wiped, 2)
		f.erasesMember(c, e, 10)
		f.nothingOf(alice, c)
		f.equal("messages of the other", f.one(c, 3).SenderID, bob)
		f.direct("another", alice, bob)
	}},
	{"erased_nowhere_among_blocks_and_settings", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c, d := f.group("c", alice, bob), f.direct("d", alice, bob)
		f.block(alice, bob)
		for n := range 5 {
			f.block(alice, f.user(fmt.Sprint("blocked", n)))
			f.block(f.user(fmt.Sprint("blocks", n)), alice)
		}
		f.block(bob, alice)
		f.block(bob, carol)
		f.hide(alice, "", tidemark.ReceiptsOff)
		f.hide(alice, c, tidemark.ReceiptsOff)
		f.hide(bob, "", tidemark.ReceiptsOff)
		f.remove(c, alice)
		_, err := f.store.CloseDirect(f.ctx, d, alice, at(9))
		f.ok(err)
		state := f.info(d).State
		f.equal("the block has closed it", state.Closed(), true)
		for n, chat := range []tidemark.ChatID{c, d} {
			e := erasureOf(alice, n)
			f.erasesMessages(chat, e, 10)
			f.erasesMember(chat, e, 10)
			f.nothingOf(alice, chat)
		}
		f.equal("calls", f.erasesUser(alice, 2) >= 3, true)
		f.equal("blocks by alice", f.blocked(alice, 9), nil)
		f.equal("blocks by bob", f.blocked(bob, 9), []tidemark.UserID{carol})
		for n := range 5 {
			by := f.user(fmt.Sprint("blocks", n))
			f.equal("blocks by another", f.blocked(by, 9), nil)
		}
		apart, err := f.store.Apart(f.ctx, alice, []tidemark.UserID{bob, f.user("blocks1")})
		f.ok(err)
		f.equal("apart", len(apart), 0)
		for user, want := range map[tidemark.UserID]tidemark.ReceiptsSetting{
			alice: tidemark.ReceiptsOn, bob: tidemark.ReceiptsOff,
		} {
			inChat, inAll, err := f.store.ReceiptsOf(f.ctx, user, c)
			f.ok(err)
			f.equal("setting for the chat", inChat, tidemark.ReceiptsDefault)
			f.equal("setting for all chats", inAll, want)
		}
		f.equal("state of the direct chat", f.info(d).State, state)
		f.equal("it belongs to no pair", f.unblock(bob, alice), storage.PairChat{})
		f.equal("again", f.erasesUser(alice, 500), 1)
		f.direct("another", alice, bob)
	}},
	{"erased_nowhere_among_bans", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		left, never, other := f.group("left", alice, bob), f.group("never", bob),
			f.group("other", bob)
		f.send(left, alice, 1)
		for _, c := range []tidemark.ChatID{left, never} {
			f.ban(c, carol)
			f.ban(c, alice)
		}
		f.equal("chats that name them", f.naming(alice, 500),
			map[tidemark.ChatID]bool{left: true, never: true})
		f.updates(never, holding(true))
		_, err := f.store.EraseMember(f.ctx, never, erasureOf(alice, 1), 10)
		f.code(err, tidemark.Conflict)
		f.equal("bans on hold", f.banned(never, 9), []tidemark.UserID{alice, carol})
		f.updates(never, holding(false))
		version := f.info(never).MembersVersion
		for n, c := range []tidemark.ChatID{left, never, other} {
			e := erasureOf(alice, n)
			f.erasesMessages(c, e, 10)
			f.erasesMember(c, e, 10)
			f.erasesMember(c, e, 10)
			f.nothingOf(alice, c)
		}
		f.equal("version without a membership", f.info(never).MembersVersion, version)
		for _, c := range []tidemark.ChatID{left, never} {
			f.equal("bans", f.banned(c, 9), []tidemark.UserID{carol})
			f.code(f.joins(c, carol), tidemark.Denied)
			f.ok(f.store.Unban(f.ctx, c, carol))
			f.ok(f.joins(c, carol, alice))
		}
	}},
	{"CloseDirect_of_a_closed_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		imported := f.create(f.newDirect("imported", alice, bob, tidemark.ChatImporting))
		deleted := f.direct("deleted", f.user("carol"), bob)
		f.block(bob, alice)
		f.block(bob, f.user("carol"))
		for user, c := range map[tidemark.UserID]tidemark.ChatID{
			alice: imported, f.user("carol"): deleted,
		} {
			_, err := f.store.CloseDirect(f.ctx, c, user, at(9))
			f.ok(err)
			_, err = f.store.CloseDirect(f.ctx, c, user, at(9))
			f.code(err, tidemark.NotMember)
		}
		// The other member is alone in it, so no block counts.
		f.ok(f.store.FinishImport(f.ctx, imported, at(30)))
		f.equal("state", f.info(imported).State, tidemark.ChatLive)
		f.refuses(f.draft(imported, bob, "too late"), tidemark.Denied)
		f.equal("state of the other", f.info(deleted).State.Closed(), true)
		f.equal("blocks", len(f.blocked(bob, 9)), 2)
		f.equal("lifted", f.unblock(bob, alice), storage.PairChat{})
		f.deletes(deleted)
		f.deletes(imported)
		f.equal("blocks after the deletion", f.blocked(bob, 9),
			[]tidemark.UserID{f.user("carol")})
		f.equal("lifted after the deletion", f.unblock(bob, f.user("carol")), storage.PairChat{})
		f.direct("new", f.user("carol"), bob)
	}},
	{"CloseDirect_refuses_groups", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		_, err := f.store.CloseDirect(f.ctx, c, alice, at(9))
		f.code(err, tidemark.Conflict)
		_, err = f.store.CloseDirect(f.ctx, f.chat("none"), alice, at(9))
		f.code(err, tidemark.NotFound)
		d := f.direct("d", alice, f.user("bob"))
		f.deletes(d)
		_, err = f.store.CloseDirect(f.ctx, d, alice, at(9))
		f.code(err, tidemark.NotFound)
	}},
	{"held_is_kept_from_erasure", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		f.remove(c, alice)
		f.updates(c, holding(true))
		e, before := erasureOf(alice, 1), f.messages(storage.Range{Chat: c})
		_, err := f.store.EraseMessages(f.ctx, c, e, storage.ErasePage{Limit: 10})
		f.code(err, tidemark.Conflict)
		_, err = f.store.EraseMember(f.ctx, c, e, 10)
		f.code(err, tidemark.Conflict)
		f.equal("messages", f.messages(storage.Range{Chat: c}), before)
		f.equal("it is found", f.naming(alice, 500)[c], true)
		f.updates(c, holding(false))
		f.erasesMessages(c, e, 10)
		f.erasesMember(c, e, 10)
		f.nothingOf(alice, c)
	}},
	{"Erasures_refuse_bad_limits_and_chats", func(f *fixture) {
		e := erasureOf(f.user("alice"), 1)
		for _, limit := range []int{-1, 0, storage.MaxErased + 1} {
			_, _, _, err := f.store.ChatsNaming(f.ctx, e.User, "", limit)
			f.code(err, tidemark.Invalid)
			_, err = f.store.EraseMessages(f.ctx, f.chat("c"), e, storage.ErasePage{Limit: limit})
			f.code(err, tidemark.Invalid)
			_, err = f.store.EraseMember(f.ctx, f.chat("c"), e, limit)
			f.code(err, tidemark.Invalid)
			_, err = f.store.EraseUser(f.ctx, e.User, limit)
			f.code(err, tidemark.Invalid)
		}
		gone := f.group("gone", e.User)
		f.deletes(gone)
		for _, c := range []tidemark.ChatID{gone, f.chat("none")} {
			_, err := f.store.EraseMessages(f.ctx, c, e, storage.ErasePage{Limit: 1})
			f.code(err, tidemark.NotFound)
			_, err = f.store.EraseMember(f.ctx, c, e, 1)
			f.code(err, tidemark.NotFound)
		}
	}},
}

// eraseOne erases one of the users in all chats of a model at its end. Then it compares what the
// others see.
func (m *model) eraseOne(rt *rapid.T) {
	user := m.drawUser(rt)
	limit := rapid.IntRange(1, 6).Draw(rt, "limit")
	for n, chat := range m.rooms {
		e := erasureOf(user, n)
		m.both("RemoveMember", func(f *fixture) (any, error) {
			return f.store.RemoveMember(f.ctx, chat, user, e.At)
		})
		m.both("CloseDirect", func(f *fixture) (any, error) {
			return f.store.CloseDirect(f.ctx, chat, user, e.At)
		})
		for page := (storage.ErasePage{Limit: limit}); ; {
			var through storage.ErasedPage
			var failed error
			m.both("EraseMessages", func(f *fixture) (any, error) {
				through, failed = f.store.EraseMessages(f.ctx, chat, e, page)
				return through, failed
			})
			if page.After = through.Through; failed != nil || through.Done {
				break
			}
		}
		for more := true; more; {
			more = false
			m.both("EraseMember", func(f *fixture) (any, error) {
				done, err := f.store.EraseMember(f.ctx, chat, e, limit)
				more = more || err == nil && !done
				return true, err
			})
		}
	}
	m.everyone = slicesWithout(m.everyone, user)
	m.compareStates()
	m.compareMessages()
}

func slicesWithout(users []tidemark.UserID, user tidemark.UserID) (left []tidemark.UserID) {
	for _, other := range users {
		if other != user {
			left = append(left, other)
		}
	}
	return left
}
