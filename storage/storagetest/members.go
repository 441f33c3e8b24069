package storagetest

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var memberRules = []rule{
	{"AddMembers_first_join_of_full_history_sees_everything", func(w *world) {
		alice, bob, carol := w.user("alice"), w.user("bob"), w.user("carol")
		c := w.group("c", bob)
		w.send(c, bob, 3)
		added, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{carol, alice}, at(5))
		w.ok(err)
		w.equal("added", added,
			storage.Added{Version: 2, Head: 3, New: []tidemark.UserID{alice, carol},
				States: []tidemark.DeliveryState{
					{UserID: alice, ChatID: c}, {UserID: carol, ChatID: c},
				}})
		w.equal("member", w.member(c, carol), tidemark.Member{
			UserID:    carol,
			Role:      tidemark.Ordinary,
			Intervals: tidemark.Intervals{{From: 1}},
			JoinedAt:  at(5),
		})
		chat := w.info(c)
		w.equal("member count", chat.MemberCount, 3)
		w.equal("members version", chat.MembersVersion, uint64(2))
	}},
	{"AddMembers_first_join_of_since_join_starts_at_the_head", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.sinceJoin("c", alice)
		w.send(c, alice, 4)
		added, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{bob}, at(5))
		w.ok(err)
		state := tidemark.DeliveryState{UserID: bob, ChatID: c, Acked: 4, Read: 4, UpdatedAt: at(5)}
		w.equal("added", added, storage.Added{
			Version: 2,
			Head:    4,
			New:     []tidemark.UserID{bob},
			States:  []tidemark.DeliveryState{state},
		})
		w.equal("state", w.state(bob, c), state)
		w.equal("intervals", w.member(c, bob).Intervals, tidemark.Intervals{{From: 5}})
	}},
	{"AddMembers_first_join_of_an_empty_since_join_chat_has_no_state", func(w *world) {
		c := w.sinceJoin("c", w.user("alice"))
		added := w.add(c, w.user("bob"))
		w.equal("states", added.States, []tidemark.DeliveryState{
			{UserID: w.user("bob"), ChatID: c},
		})
		w.equal("intervals", w.member(c, w.user("bob")).Intervals, tidemark.Intervals{{From: 1}})
	}},
	{"AddMembers_returning_sees_what_he_saw_and_what_follows", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		for name, c := range map[string]tidemark.ChatID{
			"full": w.group("full", alice, bob), "since_join": w.sinceJoin("since", alice, bob),
		} {
			w.send(c, alice, 3)
			state := w.raise(bob, c, tidemark.Raise{Acked: 2, Read: 1}, at(3)).State
			w.remove(c, bob)
			w.send(c, alice, 2)
			added, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{bob}, at(6))
			w.ok(err)
			w.equal(name+": added", added, storage.Added{
				Version: 3,
				Head:    5,
				New:     []tidemark.UserID{bob},
				States:  []tidemark.DeliveryState{state},
			})
			w.equal(name+": state is kept", w.state(bob, c), state)
			w.equal(name+": member", w.member(c, bob), tidemark.Member{
				UserID:    bob,
				Role:      tidemark.Ordinary,
				Intervals: tidemark.Intervals{{From: 1, To: 3}, {From: 6}},
				JoinedAt:  at(6),
			})
		}
	}},
	{"AddMembers_returning_with_nothing_missed_joins_the_intervals", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 3)
		w.remove(c, bob)
		w.equal("version", w.add(c, bob).Version, uint64(3))
		w.equal("intervals", w.member(c, bob).Intervals, tidemark.Intervals{{From: 1}})
	}},
	{"AddMembers_returning_after_an_empty_membership_is_no_first_join", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		full, since := w.group("full", alice, bob), w.sinceJoin("since", alice)
		w.send(since, alice, 2)
		w.add(since, bob)
		for _, c := range []tidemark.ChatID{full, since} {
			w.remove(c, bob)
			w.send(c, alice, 1)
			w.add(c, bob)
		}
		w.equal("intervals, full", w.member(full, bob).Intervals, tidemark.Intervals{{From: 2}})
		w.equal("intervals, since_join",
			w.member(since, bob).Intervals, tidemark.Intervals{{From: 4}})
		w.equal("state, since_join",
			w.state(bob, since).Exposed(), tidemark.Boundary{Acked: 2, Read: 2})
	}},
	{"AddMembers_members_are_left_as_they_are", func(w *world) {
		alice, bob, carol := w.user("alice"), w.user("bob"), w.user("carol")
		c := w.group("c", alice, bob)
		w.send(c, alice, 1)
		before := w.roster(c)
		added := w.add(c, bob, alice)
		states := []tidemark.DeliveryState{{UserID: alice, ChatID: c}, {UserID: bob, ChatID: c}}
		w.equal("added", added, storage.Added{Version: 1, Head: 1, States: states})
		w.equal("roster", w.roster(c), before)
		added = w.add(c, alice, carol, bob)
		w.equal("added", added, storage.Added{
			Version: 2,
			Head:    1,
			New:     []tidemark.UserID{carol},
			States:  append(states, tidemark.DeliveryState{UserID: carol, ChatID: c}),
		})
		w.equal("role", w.member(c, alice).Role, tidemark.Owner)
		w.equal("joined", w.member(c, bob).JoinedAt, before.Members[1].JoinedAt)
	}},
	{"AddMembers_above_PendingFanoutLimit_sets_Large_for_good", func(w *world) {
		users := w.many(tidemark.PendingFanoutLimit + 1)
		c := w.group("c", users[:tidemark.PendingFanoutLimit-1]...)
		w.add(c, users[tidemark.PendingFanoutLimit-1])
		w.equal("large at the limit", w.info(c).Large, false)
		w.add(c, users[tidemark.PendingFanoutLimit])
		w.equal("large above the limit", w.info(c).Large, true)
		w.remove(c, users[0])
		w.remove(c, users[1])
		w.equal("large below it again", w.info(c).Large, true)
		w.add(c, users[0])
		w.equal("large after another joined below it", w.info(c).Large, true)
		w.equal("large in the roster", w.roster(c).Large, true)
	}},
	{"AddMembers_errors_change_nothing", func(w *world) {
		alice, bob, carol := w.user("alice"), w.user("bob"), w.user("carol")
		_, err := w.store.AddMembers(w.ctx, w.chat("none"), []tidemark.UserID{alice}, at(1))
		w.code(err, tidemark.NotFound)
		d := w.direct("d", alice, bob)
		before := w.roster(d)
		_, err = w.store.AddMembers(w.ctx, d, []tidemark.UserID{carol}, at(1))
		w.code(err, tidemark.Denied)
		w.equal("roster", w.roster(d), before)
		w.equal("chats of carol", w.chatsOf(carol, 10), nil)
	}},
	{"RemoveMember_ends_what_he_may_see_at_the_head", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, bob, 2)
		w.equal("removed", w.remove(c, bob), storage.Removed{Version: 2, Head: 2})
		r := w.roster(c)
		w.equal("version", r.Version, uint64(2))
		w.equal("members", len(r.Members), 1)
		chat := w.info(c)
		w.equal("member count", chat.MemberCount, 1)
		w.equal("members version", chat.MembersVersion, uint64(2))
		w.equal("removing the owner", w.remove(c, alice), storage.Removed{Version: 3, Head: 2})
		w.equal("nobody is left", len(w.roster(c).Members), 0)
	}},
	{"RemoveMember_keeps_delivery_state_and_takes_the_pending_row", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 3)
		state := w.raise(bob, c, tidemark.Raise{Acked: 1, Read: 1}, at(4)).State
		w.mark(bob, c, 2)
		w.remove(c, bob)
		w.equal("state", w.state(bob, c), state)
		w.equal("pending", w.pending(bob), map[tidemark.ChatID]tidemark.Sequence{})
	}},
	{"RemoveMember_errors_change_nothing", func(w *world) {
		alice, bob, carol := w.user("alice"), w.user("bob"), w.user("carol")
		_, err := w.store.RemoveMember(w.ctx, w.chat("none"), alice, at(1))
		w.code(err, tidemark.NotFound)
		c := w.group("c", alice, bob)
		w.remove(c, bob)
		d := w.direct("d", alice, bob)
		before, direct := w.roster(c), w.roster(d)
		for _, user := range []tidemark.UserID{bob, carol} {
			_, err = w.store.RemoveMember(w.ctx, c, user, at(1))
			w.code(err, tidemark.NotMember)
		}
		_, err = w.store.RemoveMember(w.ctx, d, bob, at(1))
		w.code(err, tidemark.Denied)
		w.equal("roster", w.roster(c), before)
		w.equal("direct roster", w.roster(d), direct)
	}},
	{"Rosters_nil_for_an_unknown_chat_and_in_order_of_user_ids", func(w *world) {
		a := w.group("a", w.users("b", "B", "a.", "a-", "a", "a:", "a_", "A")...)
		b := w.group("b", w.user("x"))
		rosters, err := w.store.Rosters(w.ctx, []tidemark.ChatID{b, w.chat("none"), a, b})
		w.ok(err)
		w.equal("number", len(rosters), 4)
		w.equal("unknown", rosters[1] == nil, true)
		w.equal("of b", rosters[0].ChatID, b)
		w.equal("of b again", rosters[3], rosters[0])
		var got []tidemark.UserID
		for _, m := range rosters[2].Members {
			got = append(got, m.UserID)
		}
		w.equal("users", got, w.users("A", "B", "a", "a-", "a.", "a:", "a_", "b"))
	}},
	{"Rosters_see_every_change_and_are_immutable", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice)
		first := w.roster(c)
		w.add(c, bob)
		w.equal("members after the addition", len(w.roster(c).Members), 2)
		w.remove(c, alice)
		w.equal("members of the first roster", len(first.Members), 1)
		w.equal("version of the first roster", first.Version, uint64(1))
		now := w.roster(c)
		w.equal("version", now.Version, uint64(3))
		w.equal("only member", now.Members[0].UserID, bob)
	}},
}
