package storagetest

import (
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// first maps each chat to the first undelivered sequence of a user.
type first = map[tidemark.ChatID]tidemark.Sequence

var pendingRules = []rule{
	{"Mark_pending_once_and_the_smallest_sequence_wins", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 9)
		for _, test := range []struct {
			first, stands tidemark.Sequence
			written       bool
		}{
			{5, 5, true}, {6, 5, false}, {5, 5, false}, {9, 5, false}, {3, 3, true}, {4, 3, false},
			{1, 1, true}, {1, 1, false},
		} {
			f.equal("written", f.mark(bob, c, test.first), test.written)
			f.equal("pending", f.pending(bob), first{c: test.stands})
		}
		f.equal("pending of alice", f.pending(alice), nil)
	}},
	{"Mark_has_one_result_for_each_row", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice, bob)
		f.mark(bob, c, 2)
		written, err := f.store.Mark(f.ctx, []tidemark.PendingDelivery{
			{UserID: bob, ChatID: c, FirstUndelivered: 3},
			{UserID: alice, ChatID: c, FirstUndelivered: 3},
			{UserID: bob, ChatID: other, FirstUndelivered: 1},
		})
		f.ok(err)
		f.equal("written", written, []bool{false, true, true})
		f.equal("pending of bob", f.pending(bob), first{c: 2, other: 1})
		f.equal("pending of alice", f.pending(alice), first{c: 3})
	}},
	{"Mark_equal_keys_in_one_call_make_one_row", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		var rows []tidemark.PendingDelivery
		for _, n := range []tidemark.Sequence{7, 4, 9, 4, 8} {
			rows = append(rows, tidemark.PendingDelivery{
				UserID:           alice,
				ChatID:           c,
				FirstUndelivered: n,
			})
		}
		written, err := f.store.Mark(f.ctx, rows)
		f.ok(err)
		f.equal("number of results", len(written), len(rows))
		f.equal("one of the smallest was written", written[1] || written[3], true)
		f.equal("pending", f.pending(alice), first{c: 4})
	}},
	{"Clear_at_the_head_removes_the_row", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 5)
		for _, through := range []tidemark.Sequence{5, 6} {
			f.mark(alice, c, 2)
			f.equal("cleared", f.clear(alice, c, through), true)
			f.equal("pending", f.pending(alice), nil)
			f.equal("cleared again", f.clear(alice, c, through), false)
		}
		f.equal("written again", f.mark(alice, c, 5), true)
		f.equal("cleared", f.clear(alice, c, 5), true)
	}},
	{"Clear_below_the_head_sets_the_row_to_the_next", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 5)
		f.mark(alice, c, 1)
		for _, test := range []struct {
			through, stands tidemark.Sequence
			cleared         bool
		}{{2, 3, true}, {2, 3, false}, {1, 3, false}, {3, 4, true}, {4, 5, true}, {4, 5, false}} {
			f.equal("cleared", f.clear(alice, c, test.through), test.cleared)
			f.equal("pending", f.pending(alice), first{c: test.stands})
		}
	}},
	{"Clear_leaves_a_row_above_and_what_is_not_there", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice, bob)
		f.send(c, alice, 5)
		f.send(other, alice, 2)
		f.mark(alice, c, 4)
		f.mark(bob, c, 1)
		f.mark(alice, other, 1)
		cleared, err := f.store.Clear(f.ctx, []storage.Clear{
			{User: alice, Chat: c, Through: 3}, {User: bob, Chat: other, Through: 2},
			{User: alice, Chat: other, Through: 2},
		})
		f.ok(err)
		f.equal("cleared", cleared, []bool{false, false, true})
		f.equal("pending of alice", f.pending(alice), first{c: 4})
		f.equal("pending of bob", f.pending(bob), first{c: 1})
	}},
	{"Clear_equal_keys_in_one_call_end_at_the_highest", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
		f.mark(alice, c, 1)
		var items []storage.Clear
		for _, n := range []tidemark.Sequence{3, 7, 5, 7} {
			items = append(items, storage.Clear{User: alice, Chat: c, Through: n})
		}
		cleared, err := f.store.Clear(f.ctx, items)
		f.ok(err)
		f.equal("one of the highest touched it", cleared[1] || cleared[3], true)
		f.equal("pending", f.pending(alice), first{c: 8})
	}},
	{"Clear_R_CLEAR_keeps_what_was_appended_since", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 3)
		f.mark(alice, c, 1)
		f.send(c, alice, 1)
		f.equal("cleared", f.clear(alice, c, 3), true)
		f.equal("pending", f.pending(alice), first{c: 4})
	}},
	{"Large_chats_have_a_row_that_stands_for_each_member", func(f *fixture) {
		users := f.many(tidemark.PendingFanoutLimit + 2)
		alice, late := users[0], users[len(users)-1]
		born := f.group("born", users[:len(users)-1]...)
		grown := f.group("grown", users[:2]...)
		f.send(grown, alice, 3)
		f.mark(alice, grown, 2)
		gone := f.user("gone")
		f.add(grown, gone)
		f.remove(grown, gone)
		f.add(grown, users[2:len(users)-1]...)
		for _, c := range []tidemark.ChatID{born, grown} {
			f.add(c, late)
			f.send(c, alice, 1)
			for _, user := range []tidemark.UserID{alice, late} {
				f.equal("Mark finds it standing", f.mark(user, c, 1), false)
				f.equal("Clear leaves it alone", f.clear(user, c, f.info(c).Head), false)
			}
		}
		f.equal("rows of alice", f.pending(alice), first{born: 0, grown: 0})
		f.equal("rows of a late member", f.pending(late), first{born: 0, grown: 0})
		f.equal("rows of one who had left before it was large", f.pending(gone), first{})
		f.remove(born, late)
		f.equal("rows after a removal", f.pending(late), first{grown: 0})
		f.add(born, late)
		f.equal("rows after the return", f.pending(late), first{born: 0, grown: 0})
	}},
	{"PendingOf_pages_in_order_of_chat_id_with_the_watermarks", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		var want []storage.PendingRow
		for i, name := range []string{"A", "B", "a", "a-", "a.", "b", "left"} {
			c := f.group(name, alice, bob)
			f.send(c, alice, i+1)
			row := storage.PendingRow{
				PendingDelivery: tidemark.PendingDelivery{
					UserID:           bob,
					ChatID:           c,
					FirstUndelivered: tidemark.Sequence(i + 1),
				},
				Acked: tidemark.Sequence(i / 2), // 0 means no delivery state
			}
			if row.Acked > 0 {
				f.raise(bob, c, tidemark.Raise{Acked: row.Acked}, at(1))
			}
			if name == "left" {
				f.remove(c, bob)
			}
			f.mark(bob, c, row.FirstUndelivered)
			f.mark(alice, c, 1)
			// The watermark of another user must not appear.
			f.raise(alice, c, tidemark.Raise{Acked: tidemark.Sequence(i + 1)}, at(1))
			want = append(want, row)
		}
		for _, limit := range []int{1, 2, 3, 6, 7, 8} {
			got := pages(f, limit, "",
				func(after tidemark.ChatID) ([]storage.PendingRow, bool, error) {
					return f.store.PendingOf(f.ctx, bob, after, limit)
				}, func(row storage.PendingRow) tidemark.ChatID { return row.ChatID })
			f.equal("rows", got, want)
		}
		f.equal("pending of a stranger", f.pending(f.user("stranger")), nil)
	}},
}

var behindRules = []rule{
	{"Behind_chats_whose_head_is_above_the_acknowledged_watermark", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		var want []storage.Lag
		for i, name := range []string{"A", "B", "a", "a-", "b"} {
			c := f.group(name, alice, bob)
			f.send(c, alice, 3)
			acked := tidemark.Sequence(i % 3)
			// A read watermark does not count as acknowledged.
			f.raise(bob, c, tidemark.Raise{Acked: acked, Read: 3}, at(1))
			want = append(want, storage.Lag{Chat: c, Head: 3, Acked: acked})
		}
		even, left := f.group("even", alice, bob), f.group("left", alice, bob)
		f.group("empty", alice, bob)
		f.send(even, alice, 2)
		f.send(left, alice, 2)
		f.raise(bob, even, tidemark.Raise{Acked: 2}, at(1))
		f.remove(left, bob)
		f.send(f.group("stranger", alice), alice, 2)
		for _, limit := range []int{1, 2, 4, 5, 6, 100} {
			f.eventually(fmt.Sprintf("behind, by %d", limit),
				func() any { return f.behind(bob, limit, false) }, want)
		}
		f.equal("large ones only", f.behind(bob, 2, true), nil)
		f.equal("of a stranger", f.behind(f.user("stranger"), 2, false), nil)
	}},
	{"Behind_LargeOnly_selects_the_flagged_chats", func(f *fixture) {
		users := f.many(tidemark.PendingFanoutLimit + 1)
		bob := users[3]
		small := f.group("small", bob)
		large := f.group("large", users...)
		quiet := f.group("quiet", users...)
		for _, c := range []tidemark.ChatID{small, large} {
			f.send(c, bob, 2)
		}
		for _, limit := range []int{1, 2, 10} {
			f.equal("large", f.behind(bob, limit, true), []storage.Lag{{Chat: large, Head: 2}})
			f.equal("all", f.behind(bob, limit, false), []storage.Lag{
				{Chat: large, Head: 2}, {Chat: small, Head: 2},
			})
		}
		// A chat that became Large stays Large.
		f.remove(quiet, users[0])
		f.send(quiet, bob, 1)
		f.equal("large", f.behind(bob, 10, true), []storage.Lag{
			{Chat: large, Head: 2}, {Chat: quiet, Head: 1},
		})
	}},
	{"Behind_sees_every_append_that_returned", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		for n := tidemark.Sequence(1); n <= 20; n++ {
			f.send(c, alice, 1)
			f.equal("behind", f.behind(bob, 10, false), []storage.Lag{{Chat: c, Head: n}})
		}
	}},
	{"Behind_Since_adds_chats_that_were_active", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		var all []storage.Lag
		var sent []time.Time
		for i, name := range []string{"A", "B", "a", "a-", "b"} {
			c := f.group(name, alice, bob)
			sent = append(sent, f.append(f.draft(c, alice, "hello")).Message.CreatedAt)
			// Bob lacks the message of every second chat.
			acked := tidemark.Sequence(i % 2)
			f.raise(bob, c, tidemark.Raise{Acked: acked}, at(1))
			all = append(all, storage.Lag{Chat: c, Head: 1, Acked: acked})
		}
		left := f.group("left", alice, bob)
		f.send(left, alice, 1)
		f.remove(left, bob)
		for from := range len(all) + 1 {
			since := at(1_000)
			if from < len(all) {
				since = sent[from].Add(time.Millisecond / 2) // the store cuts it off
			}
			var want []storage.Lag
			for i, lag := range all {
				lag.Active = i >= from
				if lag.Active || lag.Acked == 0 {
					want = append(want, lag)
				}
			}
			for _, limit := range []int{1, 2, 5, 6} {
				f.eventually(fmt.Sprintf("from %d on, by %d", from, limit), func() any {
					return f.lags(bob, storage.BehindQuery{Limit: limit, Since: since})
				}, want)
			}
		}
		f.equal("large ones only", f.lags(bob, storage.BehindQuery{
			Limit: 2, Since: at(0), LargeOnly: true,
		}), nil)
	}},
	{"Behind_of_a_user_with_more_chats_than_a_page_looks_at", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		const chats = 1_010
		all := make([]tidemark.ChatID, chats)
		const creators = 10
		f.ok(concurrently(creators, func(i int) error {
			for ; i < chats; i += creators {
				all[i] = f.chat(fmt.Sprintf("c%04d", i))
				_, _, err := f.store.CreateChat(f.ctx, storage.NewChat{
					ID: all[i], Type: tidemark.Group, History: tidemark.HistoryFull,
					Members: []tidemark.UserID{alice, bob}, Creator: alice, CreatedAt: at(0),
				})
				if err != nil {
					return err
				}
			}
			return nil
		}))
		// Most chats are not behind, so whole pages may be empty.
		var want []storage.Lag
		for _, i := range []int{0, 998, 999, 1_000, 1_001, 1_008} {
			f.send(all[i], alice, 1)
			want = append(want, storage.Lag{Chat: all[i], Head: 1})
		}
		for _, limit := range []int{1, 2, 3, 10, 2_000} {
			f.equal(fmt.Sprint("behind, by ", limit), f.behind(bob, limit, false), want)
		}
		f.equal("large ones only", f.behind(bob, 10, true), nil)
	}},
	{"Behind_of_many_users_at_once", func(f *fixture) {
		const users, each = 40, 3
		alice := f.user("alice")
		want := make([][]storage.Lag, users)
		all := f.many(users)
		for i, user := range all {
			for n := range each {
				c := f.group(fmt.Sprintf("c%02d-%d", i, n), alice, user)
				f.send(c, alice, i%3)
				if i%3 > 0 {
					want[i] = append(want[i], storage.Lag{Chat: c, Head: tidemark.Sequence(i % 3)})
				}
			}
		}
		got := make([][]storage.Lag, users)
		f.ok(concurrently(users, func(i int) (err error) {
			got[i], err = f.tryLags(all[i], storage.BehindQuery{Limit: 1 + i%4})
			return err
		}))
		f.equal("behind", got, want)
	}},
}

// behind reads all pages of the chats in which a user is behind.
func (f *fixture) behind(user tidemark.UserID, limit int, largeOnly bool) []storage.Lag {
	f.Helper()
	return f.lags(user, storage.BehindQuery{LargeOnly: largeOnly, Limit: limit})
}

// lags reads all pages of Behind from q on.
func (f *fixture) lags(user tidemark.UserID, q storage.BehindQuery) []storage.Lag {
	f.Helper()
	all, err := f.tryLags(user, q)
	f.ok(err)
	return all
}

func (f *fixture) tryLags(
	user tidemark.UserID, q storage.BehindQuery,
) (all []storage.Lag, err error) {
	for {
		lags, next, more, err := f.store.Behind(f.ctx, user, q)
		if err != nil {
			return nil, err
		}
		if len(lags) > q.Limit {
			return nil, fmt.Errorf("got a page of %d chats, want at most %d", len(lags), q.Limit)
		}
		all = append(all, lags...)
		if !more {
			return all, nil
		}
		if next <= q.After {
			return nil, fmt.Errorf("got next %q after %q, want a later one", next, q.After)
		}
		q.After = next
	}
}
