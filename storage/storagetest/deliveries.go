package storagetest

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// deliveryRules are about writing watermarks; the invariants of ADR-008 Appendix E are named as there.
var deliveryRules = []rule{
	{"Advance_watermark_monotonic_and_stale_raises_succeed", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 9)
		for i, test := range []struct {
			raise       tidemark.Raise
			acked, read tidemark.Watermark
			moved       bool
		}{
			{tidemark.Raise{Acked: 5}, 5, 0, true},
			{tidemark.Raise{Acked: 3}, 5, 0, false},
			{tidemark.Raise{Acked: 5}, 5, 0, false},
			{tidemark.Raise{Read: 2}, 5, 2, true},
			{tidemark.Raise{Read: 1, Acked: 6}, 6, 2, true},
			{tidemark.Raise{Read: 8, Acked: 1}, 6, 8, true},
			{tidemark.Raise{}, 6, 8, false},
			{tidemark.Raise{Read: 9, Acked: 9}, 9, 9, true},
			{tidemark.Raise{Read: 8, Acked: 8}, 9, 9, false},
		} {
			before := w.state(alice, c)
			want := tidemark.DeliveryState{
				UserID:    alice,
				ChatID:    c,
				Acked:     test.acked,
				Read:      test.read,
				UpdatedAt: before.UpdatedAt,
			}
			if test.moved {
				want.UpdatedAt = at(10 + i)
			}
			got := w.raise(alice, c, test.raise, at(10+i))
			w.equal("advanced", got, storage.Advanced{State: want, Moved: test.moved})
			w.equal("state", w.state(alice, c), want)
		}
	}},
	{"Advance_watermark_bounded_by_counter", func(w *world) {
		alice := w.user("alice")
		c, empty := w.group("c", alice), w.group("empty", alice)
		w.send(c, alice, 3)
		state := w.raise(alice, c, tidemark.Raise{Acked: 2, Read: 1}, at(1)).State
		for _, refused := range []storage.Advance{
			{Chat: c, Raise: tidemark.Raise{Acked: 4}},
			{Chat: c, Raise: tidemark.Raise{Read: 4}},
			{Chat: c, Raise: tidemark.Raise{Acked: 3, Read: 4}},
			{Chat: c, Raise: tidemark.Raise{Acked: 4, Read: 3}},
			{Chat: c, Raise: tidemark.Raise{Acked: 4, AckedFrom: 4}},
			{Chat: c, Raise: tidemark.Raise{Read: 4, ReadWithinAcked: true}},
			{Chat: c, Raise: tidemark.Raise{Acked: tidemark.MaxSequence}},
			{Chat: empty, Raise: tidemark.Raise{Acked: 1}},
		} {
			refused.User, refused.Now = alice, at(5)
			got, err := w.store.Advance(w.ctx, []storage.Advance{refused})
			w.ok(err)
			w.code(got[0].Err, tidemark.InvalidSequence)
			w.equal("state of the result", got[0].State, tidemark.DeliveryState{})
			w.equal("moved", got[0].Moved, false)
		}
		w.equal("state", w.state(alice, c), state)
		w.equal("state of the empty chat", w.state(alice, empty), tidemark.DeliveryState{
			UserID: alice,
			ChatID: empty,
		})
		w.raise(alice, c, tidemark.Raise{Acked: 3, Read: 3}, at(6))
	}},
	{"Advance_a_bad_item_fails_alone", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 3)
		got, err := w.store.Advance(w.ctx, []storage.Advance{
			{User: alice, Chat: c, Raise: tidemark.Raise{Acked: 2}, Now: at(1)},
			{User: alice, Chat: w.chat("none"), Raise: tidemark.Raise{Acked: 1}, Now: at(1)},
			{User: w.user("carol"), Chat: c, Raise: tidemark.Raise{Acked: 4}, Now: at(1)},
			{User: bob, Chat: c, Raise: tidemark.Raise{Read: 3}, Now: at(1)},
		})
		w.ok(err)
		w.code(got[0].Err, "")
		w.code(got[1].Err, tidemark.NotFound)
		w.code(got[2].Err, tidemark.InvalidSequence)
		w.code(got[3].Err, "")
		w.equal("alice", w.state(alice, c).Acked, tidemark.Watermark(2))
		w.equal("bob", w.state(bob, c).Read, tidemark.Watermark(3))
	}},
	{"Advance_run_of_own_messages_counts_if_nothing_is_missing_before", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 9)
		for i, test := range []struct {
			raise tidemark.Raise
			acked tidemark.Watermark
		}{
			{tidemark.Raise{AckedFrom: 2, Acked: 3}, 0},
			{tidemark.Raise{AckedFrom: 1, Acked: 2}, 2},
			{tidemark.Raise{AckedFrom: 4, Acked: 5}, 2},
			{tidemark.Raise{AckedFrom: 3, Acked: 5}, 5},
			{tidemark.Raise{AckedFrom: 2, Acked: 4}, 5},
			{tidemark.Raise{AckedFrom: 4, Acked: 7}, 7},
		} {
			w.equal("acked", w.raise(alice, c, test.raise, at(i)).State.Acked, test.acked)
		}
	}},
	{"Advance_ReadWithinAcked_is_bounded_by_what_was_acknowledged", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 9)
		for i, test := range []struct {
			raise       tidemark.Raise
			acked, read tidemark.Watermark
		}{
			{tidemark.Raise{Read: 4, ReadWithinAcked: true}, 0, 0},
			{tidemark.Raise{Read: 2, ReadWithinAcked: true, Acked: 1}, 1, 1},
			{tidemark.Raise{Acked: 3}, 3, 1},
			{tidemark.Raise{Read: 4, ReadWithinAcked: true}, 3, 3},
			{tidemark.Raise{Read: 2, ReadWithinAcked: true}, 3, 3},
			{tidemark.Raise{Read: 5}, 3, 5},
			{tidemark.Raise{Read: 9, ReadWithinAcked: true}, 3, 5},
		} {
			got := w.raise(alice, c, test.raise, at(i)).State
			w.equal("boundary", tidemark.Boundary{Acked: got.Acked, Read: got.Read},
				tidemark.Boundary{Acked: test.acked, Read: test.read})
		}
	}},
	{"Advance_takes_each_user_and_chat_once", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 9)
		_, err := w.store.Advance(w.ctx, []storage.Advance{
			{User: alice, Chat: c, Raise: tidemark.Raise{Acked: 4}, Now: at(1)},
			{User: alice, Chat: c, Raise: tidemark.Raise{Read: 3}, Now: at(1)},
		})
		w.code(err, tidemark.Invalid)
		w.equal("state", w.state(alice, c), tidemark.DeliveryState{UserID: alice, ChatID: c})
	}},
	{"Advance_does_not_look_at_the_membership", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.sinceJoin("c", alice)
		w.send(c, alice, 3)
		state := w.raise(bob, c, tidemark.Raise{Acked: 2}, at(1)).State
		w.equal("state", w.state(bob, c), state)
		w.equal("acked", state.Acked, tidemark.Watermark(2))
		// His first join raises what he has, and lowers nothing.
		w.add(c, bob)
		w.equal("after the join", w.state(bob, c).Exposed(), tidemark.Boundary{Acked: 3, Read: 3})
	}},
	{"Advance_moves_one_user_in_one_chat_only", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c, other := w.group("c", alice, bob), w.group("other", alice, bob)
		w.send(c, alice, 3)
		w.send(other, alice, 3)
		w.mark(alice, c, 1)
		w.raise(alice, c, tidemark.Raise{Acked: 3, Read: 3}, at(1))
		w.equal("bob", w.state(bob, c), tidemark.DeliveryState{UserID: bob, ChatID: c})
		w.equal("other chat", w.state(alice, other), tidemark.DeliveryState{
			UserID: alice,
			ChatID: other,
		})
		w.equal("pending is for Clear",
			w.pending(alice), map[tidemark.ChatID]tidemark.Sequence{c: 1})
	}},
}

// statusRules are about reading watermarks.
var statusRules = []rule{
	{"States_in_order_and_0_without_a_row", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 3)
		state := w.raise(bob, c, tidemark.Raise{Acked: 3}, at(1)).State
		none := w.chat("none")
		got, err := w.store.States(w.ctx, []storage.StateKey{
			{User: alice, Chat: c}, {User: bob, Chat: c}, {User: bob, Chat: none},
			{User: bob, Chat: c},
		})
		w.ok(err)
		w.equal("states", got, []tidemark.DeliveryState{
			{UserID: alice, ChatID: c}, state, {UserID: bob, ChatID: none}, state,
		})
	}},
	{"StatesOf_pages_of_the_chats_of_which_he_is_a_member_now", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		var want []tidemark.DeliveryState
		for _, name := range []string{"A", "B", "a", "a-", "a.", "b", "left"} {
			c := w.group(name, alice, bob)
			w.send(c, alice, 2)
			state := w.raise(bob, c, tidemark.Raise{Acked: 1}, at(1)).State
			w.raise(alice, c, tidemark.Raise{Acked: 2}, at(1))
			if name == "left" {
				w.remove(c, bob)
				continue
			}
			want = append(want, state)
		}
		// A raise that moves nothing makes no row.
		w.raise(bob, w.group("rowless", alice, bob), tidemark.Raise{}, at(1))
		stranger := w.group("stranger", alice)
		w.send(stranger, alice, 1)
		w.raise(bob, stranger, tidemark.Raise{Acked: 1}, at(1))
		for _, limit := range []int{1, 2, 3, 5, 6, 7} {
			w.eventually("states", func() any {
				return pages(w, limit, "",
					func(after tidemark.ChatID) ([]tidemark.DeliveryState, bool, error) {
						return w.store.StatesOf(w.ctx, bob, after, limit)
					}, func(s tidemark.DeliveryState) tidemark.ChatID { return s.ChatID })
			}, want)
		}
	}},
	{"StatesIn_pages_of_all_current_members", func(w *world) {
		users := w.users("A", "B", "a", "a-", "a.", "b", "left")
		c := w.group("c", users...)
		w.send(c, users[0], 2)
		var want []tidemark.DeliveryState
		for i, user := range users {
			state := tidemark.DeliveryState{UserID: user, ChatID: c}
			if i%2 == 0 {
				state = w.raise(user, c, tidemark.Raise{Acked: 2, Read: 1}, at(i)).State
			}
			want = append(want, state)
		}
		w.raise(w.user("stranger"), c, tidemark.Raise{Acked: 2}, at(1))
		w.remove(c, users[6])
		want = want[:6]
		for _, limit := range []int{1, 2, 3, 5, 6, 7} {
			w.eventually("states", func() any {
				return pages(w, limit, "",
					func(after tidemark.UserID) ([]tidemark.DeliveryState, bool, error) {
						return w.store.StatesIn(w.ctx, c, after, limit)
					}, func(s tidemark.DeliveryState) tidemark.UserID { return s.UserID })
			}, want)
		}
		states, more, err := w.store.StatesIn(w.ctx, w.chat("none"), "", 10)
		w.ok(err)
		w.equal("states of an unknown chat", states, nil)
		w.equal("more", more, false)
	}},
	{"Summary_counts_current_members_by_exposed_boundary", func(w *world) {
		users := w.users("a", "b", "c", "d", "left")
		c := w.group("chat", users...)
		w.send(c, users[0], 5)
		for i, r := range []tidemark.Raise{{Acked: 5, Read: 5}, {Acked: 2, Read: 4}, {Acked: 3}, {Acked: 4, Read: 2}} {
			w.raise(users[i], c, r, at(i))
		}
		w.remove(c, users[4])
		for sequence, want := range map[tidemark.Sequence]storage.Summary{
			0: {Members: 4, Delivered: 4, Read: 4}, 1: {Members: 4, Delivered: 4, Read: 3},
			2: {Members: 4, Delivered: 4, Read: 3},
			3: {Members: 4, Delivered: 4, Read: 2}, 4: {Members: 4, Delivered: 3, Read: 2},
			5: {Members: 4, Delivered: 1, Read: 1},
			6: {Members: 4},
		} {
			want.Least = tidemark.Boundary{Acked: 3, Read: 0}
			w.eventually("summary", func() any { return w.summary(c, sequence) }, want)
		}
	}},
	{"Summary_members_without_a_row_count_as_0", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 2)
		w.raise(alice, c, tidemark.Raise{Acked: 2, Read: 2}, at(1))
		w.eventually("summary", func() any { return w.summary(c, 1) }, storage.Summary{
			Members:   2,
			Delivered: 1,
			Read:      1,
		})
		w.remove(c, bob)
		w.eventually("without bob", func() any { return w.summary(c, 1) },
			storage.Summary{Members: 1, Delivered: 1, Read: 1, Least: tidemark.Boundary{Acked: 2, Read: 2}})
		w.remove(c, alice)
		w.eventually("without members", func() any { return w.summary(c, 1) }, storage.Summary{})
		_, err := w.store.Summary(w.ctx, w.chat("none"), 1)
		w.code(err, tidemark.NotFound)
	}},
}

func (w *world) summary(chat tidemark.ChatID, sequence tidemark.Sequence) storage.Summary {
	w.Helper()
	s, err := w.store.Summary(w.ctx, chat, sequence)
	w.ok(err)
	return s
}

// pages reads all pages of a list whose position is the key of the last item.
func pages[T any, K ~string](
	w *world, limit int, after K, read func(after K) ([]T, bool, error), key func(T) K,
) []T {
	w.Helper()
	var all []T
	for {
		items, more, err := read(after)
		w.ok(err)
		w.checkPage(len(items), limit, more)
		all = append(all, items...)
		if !more {
			return all
		}
		after = key(items[len(items)-1])
	}
}
