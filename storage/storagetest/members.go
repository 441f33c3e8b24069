package storagetest

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var memberRules = []rule{
	{"AddMembers_first_join_of_full_history_sees_everything", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", bob)
		f.send(c, bob, 3)
		added, err := f.store.AddMembers(f.ctx, c, []tidemark.UserID{carol, alice},
			tidemark.Ordinary, at(5))
		f.ok(err)
		f.equal("added", added,
			storage.Added{Version: 2, Head: 3, New: []tidemark.UserID{alice, carol},
				States: []tidemark.DeliveryState{
					{UserID: alice, ChatID: c}, {UserID: carol, ChatID: c},
				}})
		f.equal("member", f.member(c, carol), tidemark.Member{
			UserID:    carol,
			Role:      tidemark.Ordinary,
			Intervals: tidemark.Intervals{{From: 1}},
			JoinedAt:  at(5),
		})
		chat := f.info(c)
		f.equal("member count", chat.MemberCount, 3)
		f.equal("members version", chat.MembersVersion, uint64(2))
	}},
	{"AddMembers_first_join_of_since_join_starts_at_the_head", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.sinceJoin("c", alice)
		f.send(c, alice, 4)
		added, err := f.store.AddMembers(f.ctx, c, []tidemark.UserID{bob}, tidemark.Ordinary, at(5))
		f.ok(err)
		state := tidemark.DeliveryState{UserID: bob, ChatID: c, Acked: 4, Read: 4,
			AckedAt: at(5), ReadAt: at(5)}
		f.equal("added", added, storage.Added{
			Version: 2,
			Head:    4,
			New:     []tidemark.UserID{bob},
			States:  []tidemark.DeliveryState{state},
		})
		f.equal("state", f.state(bob, c), state)
		f.equal("intervals", f.member(c, bob).Intervals, tidemark.Intervals{{From: 5}})
	}},
	{"AddMembers_first_join_of_an_empty_since_join_chat_has_no_state", func(f *fixture) {
		c := f.sinceJoin("c", f.user("alice"))
		added := f.add(c, f.user("bob"))
		f.equal("states", added.States, []tidemark.DeliveryState{
			{UserID: f.user("bob"), ChatID: c},
		})
		f.equal("intervals", f.member(c, f.user("bob")).Intervals, tidemark.Intervals{{From: 1}})
	}},
	{"AddMembers_returning_sees_the_former_intervals_and_what_follows", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		for name, c := range map[string]tidemark.ChatID{
			"full": f.group("full", alice, bob), "since_join": f.sinceJoin("since", alice, bob),
		} {
			f.send(c, alice, 3)
			state := f.raise(bob, c, tidemark.Raise{Acked: 2, Read: 1}, at(3)).State
			f.remove(c, bob)
			f.send(c, alice, 2)
			added, err := f.store.AddMembers(f.ctx, c, []tidemark.UserID{bob}, tidemark.Ordinary,
				at(6))
			f.ok(err)
			f.equal(name+": added", added, storage.Added{
				Version: 3,
				Head:    5,
				New:     []tidemark.UserID{bob},
				States:  []tidemark.DeliveryState{state},
			})
			f.equal(name+": state is kept", f.state(bob, c), state)
			f.equal(name+": member", f.member(c, bob), tidemark.Member{
				UserID:    bob,
				Role:      tidemark.Ordinary,
				Intervals: tidemark.Intervals{{From: 1, To: 3}, {From: 6}},
				JoinedAt:  at(6),
			})
		}
	}},
	{"AddMembers_returning_with_nothing_missed_joins_the_intervals", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		f.remove(c, bob)
		f.equal("version", f.add(c, bob).Version, uint64(3))
		f.equal("intervals", f.member(c, bob).Intervals, tidemark.Intervals{{From: 1}})
	}},
	{"AddMembers_returning_after_an_empty_membership_is_no_first_join", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		full, since := f.group("full", alice, bob), f.sinceJoin("since", alice)
		f.send(since, alice, 2)
		f.add(since, bob)
		for _, c := range []tidemark.ChatID{full, since} {
			f.remove(c, bob)
			f.send(c, alice, 1)
			f.add(c, bob)
		}
		f.equal("intervals, full", f.member(full, bob).Intervals, tidemark.Intervals{{From: 2}})
		f.equal("intervals, since_join",
			f.member(since, bob).Intervals, tidemark.Intervals{{From: 4}})
		f.equal("state, since_join",
			marks(f.state(bob, since).Exposed()), tidemark.Boundary{Acked: 2, Read: 2})
	}},
	{"AddMembers_members_are_left_as_they_are", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice, bob)
		f.send(c, alice, 1)
		before := f.roster(c)
		added := f.add(c, bob, alice)
		states := []tidemark.DeliveryState{{UserID: alice, ChatID: c}, {UserID: bob, ChatID: c}}
		f.equal("added", added, storage.Added{Version: 1, Head: 1, States: states})
		f.equal("roster", f.roster(c), before)
		added = f.add(c, alice, carol, bob)
		f.equal("added", added, storage.Added{
			Version: 2,
			Head:    1,
			New:     []tidemark.UserID{carol},
			States:  append(states, tidemark.DeliveryState{UserID: carol, ChatID: c}),
		})
		f.equal("role", f.member(c, alice).Role, tidemark.Owner)
		f.equal("joined", f.member(c, bob).JoinedAt, before.Members[1].JoinedAt)
	}},
	{"AddMembers_above_PendingFanoutLimit_sets_Large_for_good", func(f *fixture) {
		users := f.many(tidemark.PendingFanoutLimit + 1)
		c := f.group("c", users[:tidemark.PendingFanoutLimit-1]...)
		f.add(c, users[tidemark.PendingFanoutLimit-1])
		f.equal("large at the limit", f.info(c).Large, false)
		f.add(c, users[tidemark.PendingFanoutLimit])
		f.equal("large above the limit", f.info(c).Large, true)
		f.remove(c, users[0])
		f.remove(c, users[1])
		f.equal("large below it again", f.info(c).Large, true)
		f.add(c, users[0])
		f.equal("large after another joined below it", f.info(c).Large, true)
		f.equal("large in the roster", f.roster(c).Large, true)
	}},
	{"AddMembers_errors_change_nothing", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		_, err := f.store.AddMembers(f.ctx, f.chat("none"), []tidemark.UserID{alice},
			tidemark.Ordinary, at(1))
		f.code(err, tidemark.NotFound)
		d := f.direct("d", alice, bob)
		before := f.roster(d)
		_, err = f.store.AddMembers(f.ctx, d, []tidemark.UserID{carol}, tidemark.Ordinary, at(1))
		f.code(err, tidemark.Denied)
		f.equal("roster", f.roster(d), before)
		f.equal("chats of carol", f.chatsOf(carol, 10), nil)
	}},
	{"RemoveMember_ends_the_visible_interval_at_the_head", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, bob, 2)
		f.equal("removed", f.remove(c, bob), storage.Removed{Version: 2, Head: 2})
		r := f.roster(c)
		f.equal("version", r.Version, uint64(2))
		f.equal("members", len(r.Members), 1)
		chat := f.info(c)
		f.equal("member count", chat.MemberCount, 1)
		f.equal("members version", chat.MembersVersion, uint64(2))
		f.equal("removing the owner", f.remove(c, alice), storage.Removed{Version: 3, Head: 2})
		f.equal("members", len(f.roster(c).Members), 0)
	}},
	{"RemoveMember_keeps_delivery_state_and_takes_the_pending_row", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		state := f.raise(bob, c, tidemark.Raise{Acked: 1, Read: 1}, at(4)).State
		f.mark(bob, c, 2)
		f.remove(c, bob)
		f.equal("state", f.state(bob, c), state)
		f.equal("pending", f.pending(bob), map[tidemark.ChatID]tidemark.Sequence{})
	}},
	{"RemoveMember_errors_change_nothing", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		_, err := f.store.RemoveMember(f.ctx, f.chat("none"), alice, at(1))
		f.code(err, tidemark.NotFound)
		c := f.group("c", alice, bob)
		f.remove(c, bob)
		d := f.direct("d", alice, bob)
		before, direct := f.roster(c), f.roster(d)
		for _, user := range []tidemark.UserID{bob, carol} {
			_, err = f.store.RemoveMember(f.ctx, c, user, at(1))
			f.code(err, tidemark.NotMember)
		}
		_, err = f.store.RemoveMember(f.ctx, d, bob, at(1))
		f.code(err, tidemark.Denied)
		f.equal("roster", f.roster(c), before)
		f.equal("direct roster", f.roster(d), direct)
	}},
	{"Rosters_nil_for_an_unknown_chat_and_in_order_of_user_ids", func(f *fixture) {
		a := f.group("a", f.users("b", "B", "a.", "a-", "a", "a:", "a_", "A")...)
		b := f.group("b", f.user("x"))
		rosters, err := f.store.Rosters(f.ctx, []tidemark.ChatID{b, f.chat("none"), a, b})
		f.ok(err)
		f.equal("number", len(rosters), 4)
		f.equal("unknown", rosters[1] == nil, true)
		f.equal("of b", rosters[0].ChatID, b)
		f.equal("of b again", rosters[3], rosters[0])
		var got []tidemark.UserID
		for _, m := range rosters[2].Members {
			got = append(got, m.UserID)
		}
		f.equal("users", got, f.users("A", "B", "a", "a-", "a.", "a:", "a_", "b"))
	}},
	{"Rosters_see_every_change_and_are_immutable", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice)
		first := f.roster(c)
		f.add(c, bob)
		f.equal("members after the addition", len(f.roster(c).Members), 2)
		f.remove(c, alice)
		f.equal("members of the first roster", len(first.Members), 1)
		f.equal("version of the first roster", first.Version, uint64(1))
		now := f.roster(c)
		f.equal("version", now.Version, uint64(3))
		f.equal("only member", now.Members[0].UserID, bob)
	}},
}
