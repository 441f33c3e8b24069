package storagetest

import (
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func (f *fixture) ban(chat tidemark.ChatID, user tidemark.UserID) storage.Banned {
	f.Helper()
	banned, err := f.store.Ban(f.ctx, chat, user, at(20))
	f.ok(err)
	return banned
}

// banned returns who is banned from a chat, read in pages.
func (f *fixture) banned(chat tidemark.ChatID, limit int) (users []tidemark.UserID) {
	f.Helper()
	after, more := tidemark.UserID(""), true
	for more {
		var page []storage.Ban
		var err error
		page, more, err = f.store.BansOf(f.ctx, chat, after, limit)
		f.ok(err)
		if len(page) > limit || more && len(page) < limit {
			f.Fatalf("a page of %d has %d bans, and more is %v", limit, len(page), more)
		}
		for _, one := range page {
			f.equal("time of the ban", one.At, at(20))
			users, after = append(users, one.User), one.User
		}
	}
	return users
}

// joins returns the error of adding users.
func (f *fixture) joins(chat tidemark.ChatID, users ...tidemark.UserID) error {
	_, err := f.store.AddMembers(f.ctx, chat, users, tidemark.Ordinary, at(40))
	return err
}

var banRules = []rule{
	{"banned_stays_out_from_the_step_on", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		f.mark(bob, c, 1)
		before := f.info(c)
		banned := f.ban(c, bob)
		want := storage.Banned{Left: true, Removed: storage.Removed{
			Version: before.MembersVersion + 1, Head: 2,
		}}
		f.equal("banned", banned, want)
		want.Left = false
		f.equal("repeated", f.ban(c, bob), want)
		f.equal("members", len(f.roster(c).Members), 1)
		f.equal("pending rows", len(f.pending(bob)), 0)
		f.refuses(f.draft(c, bob, "too late"), tidemark.NotMember)
		f.code(f.joins(c, bob), tidemark.Denied)
		f.code(f.joins(c, carol, bob), tidemark.Denied)
		f.equal("version", f.roster(c).Version, banned.Version)
		f.ok(f.joins(c, alice, carol))
		f.ok(f.store.Unban(f.ctx, c, bob))
		f.ok(f.store.Unban(f.ctx, c, bob))
		f.ok(f.joins(c, bob))
		f.equal("intervals", f.member(c, bob).Intervals.Text(), "1-")
		f.equal("bans", f.banned(c, 9), nil)
	}},
	{"banned_stays_out_who_was_no_member", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice), f.group("other", alice)
		banned := f.ban(c, bob)
		f.equal("banned", banned, storage.Banned{Removed: storage.Removed{Version: 2}})
		f.equal("version", f.info(c).MembersVersion, uint64(2))
		f.equal("members", f.info(c).MemberCount, 1)
		f.code(f.joins(c, bob), tidemark.Denied)
		f.ok(f.joins(other, bob))
	}},
	{"banned_stays_out_of_a_call_of_many", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		many := f.many(120)
		f.ban(c, many[77])
		f.code(f.joins(c, many...), tidemark.Denied)
		f.equal("members", f.info(c).MemberCount, 1)
		f.ok(f.store.Unban(f.ctx, c, many[77]))
		f.ok(f.joins(c, many...))
		f.equal("members", f.info(c).MemberCount, 121)
		f.equal("left", f.ban(c, many[77]).Left, true)
	}},
	{"banned_stays_out_when_bans_come_and_go", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.ok(concurrently(6, func(i int) error {
			user := f.user(fmt.Sprint("user", i))
			for range 4 {
				if _, err := f.store.Ban(f.ctx, c, user, at(20)); err != nil {
					return err
				}
				if err := f.store.Unban(f.ctx, c, user); err != nil {
					return err
				}
			}
			_, err := f.store.Ban(f.ctx, c, user, at(20))
			return err
		}))
		f.equal("bans", len(f.banned(c, 9)), 6)
		for i := range 6 {
			user := f.user(fmt.Sprint("user", i))
			f.code(f.joins(c, user), tidemark.Denied)
			f.ok(f.store.Unban(f.ctx, c, user))
			f.ok(f.joins(c, user))
		}
		f.equal("bans at the end", f.banned(c, 9), nil)
	}},
	{"Ban_of_the_last_owner_has_a_successor", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.equal("successor", f.ban(c, alice).Successor, bob)
		f.equal("role", f.member(c, bob).Role, tidemark.Owner)
		f.equal("bans", f.banned(c, 9), []tidemark.UserID{alice})
	}},
	{"Ban_is_refused", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		d, unknown := f.direct("d", alice, bob), f.chat("unknown")
		_, err := f.store.Ban(f.ctx, d, bob, at(20))
		f.code(err, tidemark.Denied)
		_, err = f.store.Ban(f.ctx, unknown, bob, at(20))
		f.code(err, tidemark.NotFound)
		f.code(f.store.Unban(f.ctx, unknown, bob), tidemark.NotFound)
		f.equal("bans of an unknown chat", f.banned(unknown, 2), nil)
		gone := f.group("gone", alice)
		f.ban(gone, bob)
		f.deletes(gone)
		_, err = f.store.Ban(f.ctx, gone, alice, at(20))
		f.code(err, tidemark.NotFound)
		f.code(f.store.Unban(f.ctx, gone, bob), tidemark.NotFound)
		f.purges(gone, 3, true)
		f.equal("bans of a purged chat", f.banned(gone, 2), nil)
	}},
	{"BansOf_has_pages_in_order", func(f *fixture) {
		c := f.group("c", f.user("alice"))
		var want []tidemark.UserID
		for _, name := range []string{"A", "a", "a.b", "a:b", "a_", "b"} {
			want = append(want, f.user(name))
			f.ban(c, f.user(name))
		}
		for limit := 1; limit < 8; limit++ {
			f.equal(fmt.Sprint("pages of ", limit), f.banned(c, limit), want)
		}
	}},
	{"banned_stays_out_whichever_comes_first", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		for n := range 12 {
			c := f.group(fmt.Sprint("c", n), alice)
			f.ok(concurrently(3, func(i int) error {
				switch i {
				case 0:
					_, err := f.store.Ban(f.ctx, c, bob, at(20))
					return err
				case 1:
					_, err := storage.AppendOne(f.ctx, f.store, f.draft(c, alice, "hello"))
					return err
				}
				if err := f.joins(c, bob); tidemark.CodeOf(err) != tidemark.Denied {
					return err
				}
				return nil
			}))
			_, member := f.roster(c).Member(bob)
			f.equal("member", member, false)
			f.code(f.joins(c, bob), tidemark.Denied)
		}
	}},
}
