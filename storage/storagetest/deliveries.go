package storagetest

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// deliveryRules test writes of watermarks. They name the invariants as ADR-008 Appendix E does.
var deliveryRules = []rule{
	{"Advance_watermark_monotonic_and_stale_raises_succeed", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
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
			before := f.state(alice, c)
			want := tidemark.DeliveryState{
				UserID:  alice,
				ChatID:  c,
				Acked:   test.acked,
				Read:    test.read,
				AckedAt: before.AckedAt,
				ReadAt:  before.ReadAt,
			}
			if test.acked != before.Acked {
				want.AckedAt = at(10 + i)
			}
			if test.read != before.Read {
				want.ReadAt = at(10 + i)
			}
			got := f.raise(alice, c, test.raise, at(10+i))
			f.equal("advanced", got, storage.Advanced{
				State: want, Moved: test.moved, Shown: before.Exposed() != want.Exposed(),
			})
			f.equal("state", f.state(alice, c), want)
		}
	}},
	{"Advance_watermark_bounded_by_counter", func(f *fixture) {
		alice := f.user("alice")
		c, empty := f.group("c", alice), f.group("empty", alice)
		f.send(c, alice, 3)
		state := f.raise(alice, c, tidemark.Raise{Acked: 2, Read: 1}, at(1)).State
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
			got, err := f.store.Advance(f.ctx, []storage.Advance{refused})
			f.ok(err)
			f.code(got[0].Err, tidemark.InvalidSequence)
			f.equal("state of the result", got[0].State, tidemark.DeliveryState{})
			f.equal("moved", got[0].Moved, false)
		}
		f.equal("state", f.state(alice, c), state)
		f.equal("state of the empty chat", f.state(alice, empty), tidemark.DeliveryState{
			UserID: alice,
			ChatID: empty,
		})
		f.raise(alice, c, tidemark.Raise{Acked: 3, Read: 3}, at(6))
	}},
	{"Advance_a_bad_item_fails_alone", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		got, err := f.store.Advance(f.ctx, []storage.Advance{
			{User: alice, Chat: c, Raise: tidemark.Raise{Acked: 2}, Now: at(1)},
			{User: alice, Chat: f.chat("none"), Raise: tidemark.Raise{Acked: 1}, Now: at(1)},
			{User: f.user("carol"), Chat: c, Raise: tidemark.Raise{Acked: 4}, Now: at(1)},
			{User: bob, Chat: c, Raise: tidemark.Raise{Read: 3}, Now: at(1)},
		})
		f.ok(err)
		f.code(got[0].Err, "")
		f.code(got[1].Err, tidemark.NotFound)
		f.code(got[2].Err, tidemark.InvalidSequence)
		f.code(got[3].Err, "")
		f.equal("alice", f.state(alice, c).Acked, tidemark.Watermark(2))
		f.equal("bob", f.state(bob, c).Read, tidemark.Watermark(3))
	}},
	{"Advance_run_of_own_messages_counts_if_nothing_is_missing_before", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
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
			f.equal("acked", f.raise(alice, c, test.raise, at(i)).State.Acked, test.acked)
		}
	}},
	{"Advance_ReadWithinAcked_is_bounded_by_what_was_acknowledged", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
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
			got := f.raise(alice, c, test.raise, at(i)).State
			f.equal("boundary", tidemark.Boundary{Acked: got.Acked, Read: got.Read},
				tidemark.Boundary{Acked: test.acked, Read: test.read})
		}
	}},
	{"Advance_takes_each_user_and_chat_once", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
		_, err := f.store.Advance(f.ctx, []storage.Advance{
			{User: alice, Chat: c, Raise: tidemark.Raise{Acked: 4}, Now: at(1)},
			{User: alice, Chat: c, Raise: tidemark.Raise{Read: 3}, Now: at(1)},
		})
		f.code(err, tidemark.Invalid)
		f.equal("state", f.state(alice, c), tidemark.DeliveryState{UserID: alice, ChatID: c})
	}},
	{"Advance_does_not_look_at_the_membership", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.sinceJoin("c", alice)
		f.send(c, alice, 3)
		state := f.raise(bob, c, tidemark.Raise{Acked: 2}, at(1)).State
		f.equal("state", f.state(bob, c), state)
		f.equal("acked", state.Acked, tidemark.Watermark(2))
		// The first join raises the watermarks to the head, and lowers none.
		f.add(c, bob)
		f.equal("after the join", marks(f.state(bob, c).Exposed()),
			tidemark.Boundary{Acked: 3, Read: 3})
	}},
	{"Advance_moves_one_user_in_one_chat_only", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice, bob)
		f.send(c, alice, 3)
		f.send(other, alice, 3)
		f.mark(alice, c, 1)
		f.raise(alice, c, tidemark.Raise{Acked: 3, Read: 3}, at(1))
		f.equal("bob", f.state(bob, c), tidemark.DeliveryState{UserID: bob, ChatID: c})
		f.equal("other chat", f.state(alice, other), tidemark.DeliveryState{
			UserID: alice,
			ChatID: other,
		})
		f.equal("pending is for Clear",
			f.pending(alice), map[tidemark.ChatID]tidemark.Sequence{c: 1})
	}},
}

// statusRules test reads of watermarks.
var statusRules = []rule{
	{"States_in_order_and_0_without_a_row", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		state := f.raise(bob, c, tidemark.Raise{Acked: 3}, at(1)).State
		none := f.chat("none")
		got, err := f.store.States(f.ctx, []storage.StateKey{
			{User: alice, Chat: c}, {User: bob, Chat: c}, {User: bob, Chat: none},
			{User: bob, Chat: c},
		})
		f.ok(err)
		f.equal("states", got, []tidemark.DeliveryState{
			{UserID: alice, ChatID: c}, state, {UserID: bob, ChatID: none}, state,
		})
	}},
	{"StatesOf_pages_of_the_current_chats", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		var want []tidemark.DeliveryState
		for _, name := range []string{"A", "B", "a", "a-", "a.", "b", "left"} {
			c := f.group(name, alice, bob)
			f.send(c, alice, 2)
			state := f.raise(bob, c, tidemark.Raise{Acked: 1}, at(1)).State
			f.raise(alice, c, tidemark.Raise{Acked: 2}, at(1))
			if name == "left" {
				f.remove(c, bob)
				continue
			}
			want = append(want, state)
		}
		// A raise that moves nothing creates no row.
		f.raise(bob, f.group("rowless", alice, bob), tidemark.Raise{}, at(1))
		stranger := f.group("stranger", alice)
		f.send(stranger, alice, 1)
		f.raise(bob, stranger, tidemark.Raise{Acked: 1}, at(1))
		for _, limit := range []int{1, 2, 3, 5, 6, 7} {
			f.eventually("states", func() any {
				return pages(f, limit, "",
					func(after tidemark.ChatID) ([]tidemark.DeliveryState, bool, error) {
						return f.store.StatesOf(f.ctx, bob, after, limit)
					}, func(s tidemark.DeliveryState) tidemark.ChatID { return s.ChatID })
			}, want)
		}
	}},
	{"StatesIn_pages_of_all_current_members", func(f *fixture) {
		users := f.users("A", "B", "a", "a-", "a.", "b", "left")
		c := f.group("c", users...)
		f.send(c, users[0], 2)
		var want []tidemark.DeliveryState
		for i, user := range users {
			state := tidemark.DeliveryState{UserID: user, ChatID: c}
			if i%2 == 0 {
				state = f.raise(user, c, tidemark.Raise{Acked: 2, Read: 1}, at(i)).State
			}
			want = append(want, state)
		}
		f.raise(f.user("stranger"), c, tidemark.Raise{Acked: 2}, at(1))
		f.remove(c, users[6])
		want = want[:6]
		for _, limit := range []int{1, 2, 3, 5, 6, 7} {
			f.eventually("states", func() any {
				return pages(f, limit, "",
					func(after tidemark.UserID) ([]tidemark.DeliveryState, bool, error) {
						return f.store.StatesIn(f.ctx, c, after, limit)
					}, func(s tidemark.DeliveryState) tidemark.UserID { return s.UserID })
			}, want)
		}
		states, more, err := f.store.StatesIn(f.ctx, f.chat("none"), "", 10)
		f.ok(err)
		f.equal("states of an unknown chat", states, nil)
		f.equal("more", more, false)
	}},
	{"Summary_counts_current_members_by_exposed_boundary", func(f *fixture) {
		users := f.users("a", "b", "c", "d", "left")
		c := f.group("chat", users...)
		f.send(c, users[0], 5)
		for i, r := range []tidemark.Raise{
			{Acked: 5, Read: 5}, {Acked: 2, Read: 4}, {Acked: 3}, {Acked: 4, Read: 2},
		} {
			f.raise(users[i], c, r, at(i))
		}
		f.remove(c, users[4])
		for sequence, want := range map[tidemark.Sequence]storage.Summary{
			0: {Members: 4, Delivered: 4, Read: 4},
			1: {Members: 4, Delivered: 4, Read: 3},
			2: {Members: 4, Delivered: 4, Read: 3},
			3: {Members: 4, Delivered: 4, Read: 2},
			4: {Members: 4, Delivered: 3, Read: 2},
			5: {Members: 4, Delivered: 1, Read: 1},
			6: {Members: 4},
		} {
			want.Least = tidemark.Boundary{Acked: 3, Read: 0}
			f.eventually("summary", func() any { return f.summary(c, sequence) }, want)
		}
	}},
	{"Summary_author_is_a_reader_once_they_have_received_it", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob, f.user("carol"))
		f.send(c, alice, 2)
		f.raise(alice, c, tidemark.Raise{Acked: 1}, at(1))
		f.raise(bob, c, tidemark.Raise{Acked: 2, Read: 2}, at(2))
		readers := func(sequence tidemark.Sequence, author tidemark.UserID, want int) {
			f.Helper()
			f.eventually("readers", func() any {
				s, err := f.store.Summary(f.ctx, c, sequence, author)
				f.ok(err)
				return s.Read
			}, want)
		}
		readers(1, "", 1)
		readers(1, alice, 2)
		readers(2, alice, 1) // they have not received it
		f.raise(alice, c, tidemark.Raise{Acked: 2, Read: 2}, at(3))
		readers(2, alice, 2)
		f.remove(c, alice)
		readers(2, alice, 1)
	}},
	{"Summary_members_without_a_row_count_as_0", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		f.raise(alice, c, tidemark.Raise{Acked: 2, Read: 2}, at(1))
		f.eventually("summary", func() any { return f.summary(c, 1) }, storage.Summary{
			Members:   2,
			Delivered: 1,
			Read:      1,
		})
		f.remove(c, bob)
		f.eventually("without bob", func() any { return f.summary(c, 1) }, storage.Summary{
			Members: 1, Delivered: 1, Read: 1, Least: tidemark.Boundary{Acked: 2, Read: 2},
		})
		f.remove(c, alice)
		f.eventually("without members", func() any { return f.summary(c, 1) }, storage.Summary{})
		_, err := f.store.Summary(f.ctx, f.chat("none"), 1, "")
		f.code(err, tidemark.NotFound)
	}},
}

func (f *fixture) summary(chat tidemark.ChatID, sequence tidemark.Sequence) storage.Summary {
	f.Helper()
	s, err := f.store.Summary(f.ctx, chat, sequence, "")
	f.ok(err)
	return s
}

// statesOf reads all pages of StatesOf.
func (f *fixture) statesOf(user tidemark.UserID, limit int) []tidemark.DeliveryState {
	f.Helper()
	read := func(after tidemark.ChatID) ([]tidemark.DeliveryState, bool, error) {
		return f.store.StatesOf(f.ctx, user, after, limit)
	}
	key := func(s tidemark.DeliveryState) tidemark.ChatID { return s.ChatID }
	return pages(f, limit, "", read, key)
}

// statesIn reads all pages of StatesIn.
func (f *fixture) statesIn(chat tidemark.ChatID, limit int) []tidemark.DeliveryState {
	f.Helper()
	read := func(after tidemark.UserID) ([]tidemark.DeliveryState, bool, error) {
		return f.store.StatesIn(f.ctx, chat, after, limit)
	}
	key := func(s tidemark.DeliveryState) tidemark.UserID { return s.UserID }
	return pages(f, limit, "", read, key)
}

// pages reads all pages of a list. key returns the position of an item.
func pages[T any, K ~string](
	f *fixture, limit int, after K, read func(after K) ([]T, bool, error), key func(T) K,
) []T {
	f.Helper()
	var all []T
	for {
		items, more, err := read(after)
		f.ok(err)
		f.checkPage(len(items), limit, more)
		all = append(all, items...)
		if !more {
			return all
		}
		after = key(items[len(items)-1])
	}
}

// marks returns a boundary without its times.
func marks(b tidemark.Boundary) tidemark.Boundary {
	return tidemark.Boundary{Acked: b.Acked, Read: b.Read}
}
