package storagetest

import (
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// first is what is pending for a user.
type first = map[tidemark.ChatID]tidemark.Sequence

var pendingRules = []rule{
	{"Mark_pending_once_and_the_smallest_sequence_wins", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 9)
		for _, test := range []struct {
			first, stands tidemark.Sequence
			written       bool
		}{{5, 5, true}, {6, 5, false}, {5, 5, false}, {9, 5, false}, {3, 3, true}, {4, 3, false}, {1, 1, true}, {1, 1, false}} {
			w.equal("written", w.mark(bob, c, test.first), test.written)
			w.equal("pending", w.pending(bob), first{c: test.stands})
		}
		w.equal("pending of alice", w.pending(alice), nil)
	}},
	{"Mark_rows_of_one_call_are_told_apart", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c, other := w.group("c", alice, bob), w.group("other", alice, bob)
		w.mark(bob, c, 2)
		written, err := w.store.Mark(w.ctx, []tidemark.PendingDelivery{
			{UserID: bob, ChatID: c, FirstUndelivered: 3},
			{UserID: alice, ChatID: c, FirstUndelivered: 3},
			{UserID: bob, ChatID: other, FirstUndelivered: 1},
		})
		w.ok(err)
		w.equal("written", written, []bool{false, true, true})
		w.equal("pending of bob", w.pending(bob), first{c: 2, other: 1})
		w.equal("pending of alice", w.pending(alice), first{c: 3})
	}},
	{"Mark_equal_keys_in_one_call_make_one_row", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		var rows []tidemark.PendingDelivery
		for _, n := range []tidemark.Sequence{7, 4, 9, 4, 8} {
			rows = append(rows, tidemark.PendingDelivery{
				UserID:           alice,
				ChatID:           c,
				FirstUndelivered: n,
			})
		}
		written, err := w.store.Mark(w.ctx, rows)
		w.ok(err)
		w.equal("number of results", len(written), len(rows))
		w.equal("one of the smallest was written", written[1] || written[3], true)
		w.equal("pending", w.pending(alice), first{c: 4})
	}},
	{"Clear_at_the_head_removes_the_row", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 5)
		for _, through := range []tidemark.Sequence{5, 6} {
			w.mark(alice, c, 2)
			w.equal("cleared", w.clear(alice, c, through), true)
			w.equal("pending", w.pending(alice), nil)
			w.equal("cleared again", w.clear(alice, c, through), false)
		}
		w.equal("written anew", w.mark(alice, c, 5), true)
		w.equal("cleared", w.clear(alice, c, 5), true)
	}},
	{"Clear_below_the_head_sets_the_row_to_the_next", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 5)
		w.mark(alice, c, 1)
		for _, test := range []struct {
			through, stands tidemark.Sequence
			cleared         bool
		}{{2, 3, true}, {2, 3, false}, {1, 3, false}, {3, 4, true}, {4, 5, true}, {4, 5, false}} {
			w.equal("cleared", w.clear(alice, c, test.through), test.cleared)
			w.equal("pending", w.pending(alice), first{c: test.stands})
		}
	}},
	{"Clear_leaves_a_row_above_and_what_is_not_there", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c, other := w.group("c", alice, bob), w.group("other", alice, bob)
		w.send(c, alice, 5)
		w.send(other, alice, 2)
		w.mark(alice, c, 4)
		w.mark(bob, c, 1)
		w.mark(alice, other, 1)
		cleared, err := w.store.Clear(w.ctx, []storage.Clear{
			{User: alice, Chat: c, Through: 3}, {User: bob, Chat: other, Through: 2},
			{User: alice, Chat: other, Through: 2},
		})
		w.ok(err)
		w.equal("cleared", cleared, []bool{false, false, true})
		w.equal("pending of alice", w.pending(alice), first{c: 4})
		w.equal("pending of bob", w.pending(bob), first{c: 1})
	}},
	{"Clear_equal_keys_in_one_call_end_at_the_highest", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 9)
		w.mark(alice, c, 1)
		var items []storage.Clear
		for _, n := range []tidemark.Sequence{3, 7, 5, 7} {
			items = append(items, storage.Clear{User: alice, Chat: c, Through: n})
		}
		cleared, err := w.store.Clear(w.ctx, items)
		w.ok(err)
		w.equal("one of the highest touched it", cleared[1] || cleared[3], true)
		w.equal("pending", w.pending(alice), first{c: 8})
	}},
	{"Clear_R_CLEAR_keeps_what_was_appended_since", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 3)
		w.mark(alice, c, 1)
		w.send(c, alice, 1)
		w.equal("cleared", w.clear(alice, c, 3), true)
		w.equal("pending", w.pending(alice), first{c: 4})
	}},
	{"Large_chats_have_a_row_that_stands_for_each_member", func(w *world) {
		users := w.many(tidemark.PendingFanoutLimit + 2)
		alice, late := users[0], users[len(users)-1]
		born := w.group("born", users[:len(users)-1]...)
		grown := w.group("grown", users[:2]...)
		w.send(grown, alice, 3)
		w.mark(alice, grown, 2)
		gone := w.user("gone")
		w.add(grown, gone)
		w.remove(grown, gone)
		w.add(grown, users[2:len(users)-1]...)
		for _, c := range []tidemark.ChatID{born, grown} {
			w.add(c, late)
			w.send(c, alice, 1)
			for _, user := range []tidemark.UserID{alice, late} {
				w.equal("Mark finds it standing", w.mark(user, c, 1), false)
				w.equal("Clear leaves it alone", w.clear(user, c, w.info(c).Head), false)
			}
		}
		w.equal("rows of alice", w.pending(alice), first{born: 0, grown: 0})
		w.equal("rows of a late member", w.pending(late), first{born: 0, grown: 0})
		w.equal("rows of one who had left before it was large", w.pending(gone), first{})
		w.remove(born, late)
		w.equal("rows after a removal", w.pending(late), first{grown: 0})
		w.add(born, late)
		w.equal("rows after the return", w.pending(late), first{born: 0, grown: 0})
	}},
	{"PendingOf_pages_in_order_of_chat_id_with_the_watermarks", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		var want []storage.PendingRow
		for i, name := range []string{"A", "B", "a", "a-", "a.", "b", "left"} {
			c := w.group(name, alice, bob)
			w.send(c, alice, i+1)
			row := storage.PendingRow{
				PendingDelivery: tidemark.PendingDelivery{
					UserID:           bob,
					ChatID:           c,
					FirstUndelivered: tidemark.Sequence(i + 1),
				},
				Acked: tidemark.Sequence(i / 2), // 0 has no delivery state
			}
			if row.Acked > 0 {
				w.raise(bob, c, tidemark.Raise{Acked: row.Acked}, at(1))
			}
			if name == "left" {
				w.remove(c, bob)
			}
			w.mark(bob, c, row.FirstUndelivered)
			w.mark(alice, c, 1)
			w.raise(alice, c, tidemark.Raise{Acked: tidemark.Sequence(i + 1)}, at(1)) // hers is not his
			want = append(want, row)
		}
		for _, limit := range []int{1, 2, 3, 6, 7, 8} {
			got := pages(w, limit, "",
				func(after tidemark.ChatID) ([]storage.PendingRow, bool, error) {
					return w.store.PendingOf(w.ctx, bob, after, limit)
				}, func(row storage.PendingRow) tidemark.ChatID { return row.ChatID })
			w.equal("rows", got, want)
		}
		w.equal("pending of a stranger", w.pending(w.user("stranger")), nil)
	}},
}

var behindRules = []rule{
	{"Behind_chats_whose_head_is_above_his_acknowledged_watermark", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		var want []storage.Lag
		for i, name := range []string{"A", "B", "a", "a-", "b"} {
			c := w.group(name, alice, bob)
			w.send(c, alice, 3)
			acked := tidemark.Sequence(i % 3)
			// Reading is not acknowledging.
			w.raise(bob, c, tidemark.Raise{Acked: acked, Read: 3}, at(1))
			want = append(want, storage.Lag{Chat: c, Head: 3, Acked: acked})
		}
		even, left := w.group("even", alice, bob), w.group("left", alice, bob)
		w.group("empty", alice, bob)
		w.send(even, alice, 2)
		w.send(left, alice, 2)
		w.raise(bob, even, tidemark.Raise{Acked: 2}, at(1))
		w.remove(left, bob)
		w.send(w.group("stranger", alice), alice, 2)
		for _, limit := range []int{1, 2, 4, 5, 6, 100} {
			w.eventually(fmt.Sprintf("behind, by %d", limit),
				func() any { return w.behind(bob, limit, false) }, want)
		}
		w.equal("large ones only", w.behind(bob, 2, true), nil)
		w.equal("of a stranger", w.behind(w.user("stranger"), 2, false), nil)
	}},
	{"Behind_LargeOnly_selects_the_flagged_chats", func(w *world) {
		users := w.many(tidemark.PendingFanoutLimit + 1)
		bob := users[3]
		small := w.group("small", bob)
		large := w.group("large", users...)
		quiet := w.group("quiet", users...)
		for _, c := range []tidemark.ChatID{small, large} {
			w.send(c, bob, 2)
		}
		for _, limit := range []int{1, 2, 10} {
			w.equal("large", w.behind(bob, limit, true), []storage.Lag{{Chat: large, Head: 2}})
			w.equal("all", w.behind(bob, limit, false), []storage.Lag{
				{Chat: large, Head: 2}, {Chat: small, Head: 2},
			})
		}
		// A chat that was large once stays large.
		w.remove(quiet, users[0])
		w.send(quiet, bob, 1)
		w.equal("large", w.behind(bob, 10, true), []storage.Lag{
			{Chat: large, Head: 2}, {Chat: quiet, Head: 1},
		})
	}},
	{"Behind_sees_every_append_that_returned", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		for n := tidemark.Sequence(1); n <= 20; n++ {
			w.send(c, alice, 1)
			w.equal("behind", w.behind(bob, 10, false), []storage.Lag{{Chat: c, Head: n}})
		}
	}},
}

// behind reads all pages of the chats in which a user is behind.
func (w *world) behind(user tidemark.UserID, limit int, largeOnly bool) []storage.Lag {
	w.Helper()
	var all []storage.Lag
	q := storage.BehindQuery{LargeOnly: largeOnly, Limit: limit}
	for {
		lags, next, more, err := w.store.Behind(w.ctx, user, q)
		w.ok(err)
		if len(lags) > limit {
			w.Fatalf("got a page of %d chats, want at most %d", len(lags), limit)
		}
		all = append(all, lags...)
		if !more {
			return all
		}
		if next <= q.After {
			w.Fatalf("got next %q after %q, want a later one", next, q.After)
		}
		q.After = next
	}
}
