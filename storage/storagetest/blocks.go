package storagetest

import (
	"fmt"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// block lets a user block another one, and returns their direct chat.
func (f *fixture) block(user, blocked tidemark.UserID) storage.PairChat {
	f.Helper()
	pair, err := f.store.PutBlock(f.ctx, user, blocked, at(20))
	f.ok(err)
	return pair
}

func (f *fixture) unblock(user, blocked tidemark.UserID) storage.PairChat {
	f.Helper()
	pair, err := f.store.RemoveBlock(f.ctx, user, blocked)
	f.ok(err)
	return pair
}

// newDirect is a direct chat of two users in a state.
func (f *fixture) newDirect(
	name string, a, b tidemark.UserID, in tidemark.ChatState,
) storage.NewChat {
	return storage.NewChat{
		ID: f.chat(name), State: in, Type: tidemark.Direct, History: tidemark.HistoryFull,
		CreatedAt: at(0), Members: []tidemark.UserID{a, b},
	}
}

// blocked returns whom a user has blocked, read in pages.
func (f *fixture) blocked(user tidemark.UserID, limit int) (users []tidemark.UserID) {
	f.Helper()
	after, more := tidemark.UserID(""), true
	for more {
		var page []storage.Block
		var err error
		page, more, err = f.store.BlocksOf(f.ctx, user, after, limit)
		f.ok(err)
		if len(page) > limit || more && len(page) < limit {
			f.Fatalf("a page of %d has %d blocks, and more is %v", limit, len(page), more)
		}
		for _, one := range page {
			f.equal("time of the block", one.At, at(20))
			users, after = append(users, one.User), one.User
		}
	}
	return users
}

var blockRules = []rule{
	{"blocked_is_closed_in_the_step_of_the_block", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.direct("c", alice, bob)
		first := f.draft(c, alice, "first")
		f.append(first)
		f.append(f.draft(c, bob, "second"))
		before := f.info(c)
		pair := f.block(bob, alice)
		want := storage.PairChat{
			ID: c, State: tidemark.ChatClosedBySecond, Version: before.Version + 1,
			MembersVersion: before.MembersVersion + 1, Turned: true,
		}
		f.equal("pair", pair, want)
		want.Turned = false
		f.equal("repeated", f.block(bob, alice), want)
		after := f.info(c)
		f.equal("chat", storage.PairChatOf(&after), want)
		f.equal("state of the roster", f.roster(c).State, tidemark.ChatClosedBySecond)
		f.equal("members", len(f.roster(c).Members), 2)
		for _, user := range []tidemark.UserID{alice, bob} {
			f.refuses(f.draft(c, user, "too late"), tidemark.Denied)
			f.refuses(f.edit(c, user, 1, "too late"), tidemark.Denied)
			pin := f.edit(c, user, 1, "")
			pin.Kind = tidemark.KindPin
			f.refuses(pin, tidemark.Denied)
		}
		f.refuses(f.draft(c, f.user("carol"), "of a stranger"), tidemark.NotMember)
		f.equal("repeated send", f.append(first).Duplicate, true)
		f.equal("messages", len(f.messages(storage.Range{Chat: c})), 2)
		f.equal("moved", f.raise(alice, c, tidemark.Raise{Acked: 2, Read: 2}, at(30)).Moved, true)
	}},
	{"blocked_is_closed_until_both_have_lifted_it", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.direct("c", bob, alice)
		steps := []struct {
			do   func(user, blocked tidemark.UserID) storage.PairChat
			a, b tidemark.UserID
			want tidemark.ChatState
		}{
			{f.unblock, alice, bob, tidemark.ChatLive},
			{f.block, alice, bob, tidemark.ChatClosedByFirst},
			{f.unblock, bob, alice, tidemark.ChatClosedByFirst},
			{f.block, bob, alice, tidemark.ChatClosedByBoth},
			{f.unblock, alice, bob, tidemark.ChatClosedBySecond},
			{f.block, alice, bob, tidemark.ChatClosedByBoth},
			{f.unblock, bob, alice, tidemark.ChatClosedByFirst},
			{f.unblock, alice, bob, tidemark.ChatLive},
		}
		before := f.info(c)
		for i, step := range steps {
			want := storage.PairChat{
				ID: c, State: step.want, Version: before.Version,
				MembersVersion: before.MembersVersion,
				Turned:         before.State.Closed() != step.want.Closed(),
			}
			if want.Turned { // else nobody may notice it
				want.Version, want.MembersVersion = want.Version+1, want.MembersVersion+1
			}
			f.equal(fmt.Sprint("pair after step ", i), step.do(step.a, step.b), want)
			before = f.info(c)
			f.equal(fmt.Sprint("state after step ", i), before.State, step.want)
			f.equal(fmt.Sprint("version after step ", i), before.Version, want.Version)
			f.equal(fmt.Sprint("state of the roster after step ", i), f.roster(c).State, step.want)
			_, err := storage.AppendOne(f.ctx, f.store, f.draft(c, alice, "hello"))
			if got := tidemark.CodeOf(err); (got == tidemark.Denied) != step.want.Closed() {
				f.Errorf("append after step %d: got %v", i, err)
			}
		}
	}},
	{"blocked_is_closed_for_a_chat_that_is_created_later", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		f.equal("pair", f.block(alice, bob), storage.PairChat{})
		for i, pair := range [][2]tidemark.UserID{{alice, bob}, {bob, alice}} {
			_, _, err := f.store.CreateChat(f.ctx,
				f.newDirect(fmt.Sprint(i), pair[0], pair[1], tidemark.ChatLive))
			f.code(err, tidemark.Denied)
		}
		f.direct("other", alice, carol)
		f.group("group", alice, bob)
		f.unblock(alice, bob)
		c := f.direct("c", bob, alice)
		f.send(c, alice, 1)
		f.block(alice, bob)
		chat, created, err := f.store.CreateChat(f.ctx,
			f.newDirect("again", alice, bob, tidemark.ChatLive))
		f.ok(err)
		f.equal("created", created, false)
		f.equal("chat", chat, f.info(c))
		f.deletes(c)
		f.equal("pair after the deletion", f.block(bob, alice), storage.PairChat{})
		_, _, err = f.store.CreateChat(f.ctx, f.newDirect("new", alice, bob, tidemark.ChatLive))
		f.code(err, tidemark.Denied)
		f.unblock(alice, bob)
		f.unblock(bob, alice)
		f.direct("new", alice, bob)
	}},
	{"blocked_is_closed_at_the_end_of_an_import", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		f.block(bob, alice)
		c := f.create(f.newDirect("c", alice, bob, tidemark.ChatImporting))
		d := f.create(f.newDirect("d", alice, carol, tidemark.ChatImporting))
		f.equal("pair", f.block(alice, carol), storage.PairChat{
			ID: d, State: tidemark.ChatImporting, Version: 1, MembersVersion: 1,
		})
		for _, chat := range []tidemark.ChatID{c, d} {
			f.append(f.moved(chat, alice, "moved"))
			f.ok(f.store.FinishImport(f.ctx, chat, at(30)))
			f.refuses(f.draft(chat, alice, "too late"), tidemark.Denied)
			f.refuses(f.moved(chat, alice, "too late"), tidemark.Conflict)
			f.ok(f.store.FinishImport(f.ctx, chat, at(31)))
		}
		f.equal("state of c", f.info(c).State, tidemark.ChatClosedBySecond)
		f.equal("state of d", f.info(d).State, tidemark.ChatClosedByFirst)
	}},
	{"blocked_is_closed_and_backends_still_redact", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.direct("c", alice, bob)
		f.append(f.draft(c, alice, "first"))
		f.block(bob, alice)
		redaction := f.edit(c, bob, 1, "")
		redaction.Kind = tidemark.KindRedact
		f.refuses(redaction, tidemark.Denied)
		redaction.ByBackend = true
		f.append(redaction)
		edit := f.edit(c, alice, 1, "by a backend")
		edit.ByBackend = true
		f.refuses(edit, tidemark.Denied)
	}},
	{"BlocksOf_has_pages_in_order", func(f *fixture) {
		alice := f.user("alice")
		var want []tidemark.UserID
		for _, name := range []string{"A", "a", "a.b", "a:b", "a_", "b"} {
			want = append(want, f.user(name))
			f.block(alice, f.user(name))
		}
		f.block(f.user("b"), f.user("c"))
		for limit := 1; limit < 8; limit++ {
			f.equal(fmt.Sprint("pages of ", limit), f.blocked(alice, limit), want)
		}
		f.unblock(alice, f.user("a"))
		f.unblock(alice, f.user("nobody"))
		f.equal("after one was lifted", f.blocked(alice, 9), slices.Delete(want, 1, 2))
		f.equal("of another user", f.blocked(f.user("A"), 9), nil)
	}},
	{"Apart_has_both_directions_in_order", func(f *fixture) {
		alice, bob, carol, dave := f.user("alice"), f.user("bob"), f.user("carol"), f.user("dave")
		f.block(alice, bob)
		f.block(carol, alice)
		f.block(bob, dave)
		f.block(alice, f.user("eve"))
		f.unblock(alice, f.user("eve"))
		found, err := f.store.Apart(f.ctx, alice,
			[]tidemark.UserID{dave, carol, f.user("eve"), bob})
		f.ok(err)
		f.equal("apart", found, []tidemark.UserID{carol, bob})
		found, err = f.store.Apart(f.ctx, alice, nil)
		f.ok(err)
		f.equal("apart from nobody", len(found), 0)
	}},
	{"blocked_is_closed_whichever_comes_first", func(f *fixture) {
		for n := range 12 {
			alice, bob := f.user(fmt.Sprint("alice", n)), f.user(fmt.Sprint("bob", n))
			new := f.newDirect(fmt.Sprint("c", n), alice, bob, tidemark.ChatLive)
			heads := make(chan tidemark.Sequence, 1)
			f.ok(concurrently(2, func(i int) error {
				if i == 1 {
					_, err := f.store.PutBlock(f.ctx, bob, alice, at(20))
					if err != nil {
						return err
					}
					found, err := f.store.Heads(f.ctx, []tidemark.ChatID{new.ID})
					heads <- found[0]
					return err
				}
				_, _, err := f.store.CreateChat(f.ctx, new)
				for tidemark.CodeOf(err) == "" {
					_, err = storage.AppendOne(f.ctx, f.store, f.draft(new.ID, alice, "hello"))
				}
				if tidemark.CodeOf(err) != tidemark.Denied {
					return err
				}
				return nil
			}))
			found, err := f.store.Heads(f.ctx, []tidemark.ChatID{new.ID})
			f.ok(err)
			f.equal("head since the block", found[0], <-heads)
			if found[0] > 0 {
				f.equal("state", f.info(new.ID).State.Closed(), true)
			}
		}
	}},
}
