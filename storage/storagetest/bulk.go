package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// bulkRules test large calls and the order of ids.
var bulkRules = []rule{
	{"Append_and_Ranges_of_10000", func(f *fixture) {
		alice := f.user("alice")
		chats := make([]tidemark.ChatID, 50)
		for i := range chats {
			chats[i] = f.group(fmt.Sprintf("c%02d", i), alice)
		}
		drafts := make([]tidemark.Draft, storage.MaxBatch)
		for i := range drafts {
			// Every second draft goes to the same chat, so that one chat's drafts need several
			// statements.
			drafts[i] = f.draft(chats[(i%2)*(i/2%len(chats))], alice, fmt.Sprint("number ", i))
		}
		appended, err := f.store.Append(f.ctx, drafts)
		f.ok(err)
		f.equal("results", len(appended), len(drafts))
		heads := map[tidemark.ChatID]tidemark.Sequence{}
		ranges := make([]storage.Range, len(drafts))
		for i, a := range appended {
			chat := drafts[i].ChatID
			heads[chat]++
			if a.Err != nil || a.Duplicate || a.Message.Sequence != heads[chat] ||
				a.Message.Content != drafts[i].Content || a.Message.ChatID != chat {
				f.Fatalf("draft %d of the call: got %+v, want message %d of %s",
					i, a, heads[chat], chat)
			}
			ranges[i] = storage.Range{Chat: chat, After: a.Message.Sequence - 1, Limit: 1}
		}
		pages, err := f.store.Ranges(f.ctx, ranges)
		f.ok(err)
		f.equal("pages", len(pages), len(ranges))
		for i, page := range pages {
			if len(page) != 1 || difference(page[0], appended[i].Message) != "" {
				f.Fatalf("range %d of the call: got %+v, want %+v", i, page, appended[i].Message)
			}
		}
		for _, call := range []func(n int) (int, error){
			func(n int) (int, error) {
				r, err := f.store.Append(f.ctx, make([]tidemark.Draft, n))
				return len(r), err
			},
			func(n int) (int, error) {
				r, err := f.store.Ranges(f.ctx, make([]storage.Range, n))
				return len(r), err
			},
		} {
			results, err := call(storage.MaxBatch + 1)
			f.code(err, tidemark.Invalid)
			f.equal("results of too many", results, 0)
		}
	}},
	{"Append_of_many_keeps_their_order_while_members_change", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		const changers, calls, each = 16, 3, 1_200
		var writing atomic.Int32
		writing.Store(calls)
		f.ok(concurrently(changers+calls, func(i int) error {
			if i < changers { // until all is written, and 500 times at most
				for n := 0; writing.Load() > 0 && n < 500; n++ {
					user := f.user(fmt.Sprintf("guest-%d-%d", i, n))
					err := retry(func() error {
						_, err := f.store.AddMembers(f.ctx, c, []tidemark.UserID{user},
							tidemark.Ordinary, at(1))
						return err
					})
					if err != nil {
						return err
					}
					doubt := false
					err = retry(func() error {
						_, err := f.store.RemoveMember(f.ctx, c, user, at(2))
						if doubt && tidemark.CodeOf(err) == tidemark.NotMember {
							return nil // an earlier call has removed the guest
						}
						doubt = true
						return err
					})
					if err != nil {
						return err
					}
				}
				return nil
			}
			defer writing.Add(-1)
			drafts := make([]tidemark.Draft, each)
			for n := range drafts {
				drafts[n] = f.draft(c, alice, fmt.Sprint("number ", n))
			}
			var appended []storage.Appended
			err := retry(func() (err error) {
				appended, err = f.store.Append(f.ctx, drafts)
				return err
			})
			for n := 1; err == nil && n < each; n++ {
				if appended[n].Err != nil {
					return appended[n].Err
				}
				one, next := appended[n-1].Message.Sequence, appended[n].Message.Sequence
				if one >= next {
					err = fmt.Errorf("draft %d is message %d, and the one before it is message %d",
						n, next, one)
				}
			}
			return err
		}))
		f.gapless(c, calls*each)
	}},
	{"Append_equal_keys_with_other_contents_in_one_call", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		d := f.draft(c, alice, "one")
		other := d
		other.Content = "other"
		got, err := f.store.Append(f.ctx, []tidemark.Draft{d, other, f.draft(c, alice, "two"), d})
		f.ok(err)
		f.equal("first", got[0].Duplicate, false)
		f.code(got[1].Err, tidemark.Conflict)
		f.equal("behind it", got[2].Message.Sequence, tidemark.Sequence(2))
		f.equal("the first again", got[3], storage.Appended{
			Message:   got[0].Message,
			Duplicate: true,
			Version:   1,
		})
		// Two equal drafts of a stranger are both refused.
		d = f.draft(c, f.user("eve"), "no")
		got, err = f.store.Append(f.ctx, []tidemark.Draft{d, d})
		f.ok(err)
		f.code(got[0].Err, tidemark.NotMember)
		f.code(got[1].Err, tidemark.NotMember)
	}},
	{"Append_duplicate_behind_a_conflict_has_the_version_of_now", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		d := f.draft(c, alice, "one")
		f.append(d)
		f.add(c, f.user("bob"))
		other := d
		other.Content = "other"
		got, err := f.store.Append(f.ctx, []tidemark.Draft{other, d})
		f.ok(err)
		f.code(got[0].Err, tidemark.Conflict)
		f.equal("version", got[1].Version, uint64(2))
	}},
	{"Ranges_of_many_chats_each_with_its_own_bounds", func(f *fixture) {
		alice := f.user("alice")
		var ranges []storage.Range
		var want [][]int
		for i := range 120 {
			c := f.group(fmt.Sprintf("c%03d", i), alice)
			drafts := make([]tidemark.Draft, 8)
			for n := range drafts {
				drafts[n] = f.draft(c, alice, strings.Repeat("x", 100))
			}
			_, err := f.store.Append(f.ctx, drafts)
			f.ok(err)
			after := i % 8
			for _, r := range []storage.Range{
				{After: tidemark.Sequence(after), Limit: 1 + i%9},
				{After: tidemark.Sequence(after), Limit: 100, MaxBytes: 1 + 100*(i%5)},
				{Before: 9, Limit: 100, MaxBytes: 100 * (1 + i%7)},
			} {
				r.Chat = c
				from, to := after+1, 8
				switch {
				case r.Before != 0:
					from = 8 - i%7
				case r.MaxBytes != 0:
					to = min(8, after+1+i%5)
				default:
					to = min(8, after+1+i%9)
				}
				var sequences []int
				for n := from; n <= to; n++ {
					sequences = append(sequences, n)
				}
				ranges, want = append(ranges, r), append(want, sequences)
			}
		}
		pages, err := f.store.Ranges(f.ctx, ranges)
		f.ok(err)
		for i, page := range pages {
			var got []int
			for _, m := range page {
				f.equal("chat", m.ChatID, ranges[i].Chat)
				got = append(got, int(m.Sequence))
			}
			f.equal(fmt.Sprintf("%+v", ranges[i]), got, want[i])
		}
	}},
	{"Ranges_of_the_longest_messages", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for range 24 {
			f.append(f.draft(c, alice, strings.Repeat("€", tidemark.MaxContent/3)+"x"))
		}
		for most, want := range map[int]int{
			0: 24, 1: 1, tidemark.MaxContent: 1, tidemark.MaxContent + 1: 2,
			10 * tidemark.MaxContent: 10, 1 << 30: 24,
		} {
			f.equal(fmt.Sprintf("up to %d bytes", most),
				len(f.messages(storage.Range{Chat: c, MaxBytes: most})), want)
			f.equal(fmt.Sprintf("down to %d bytes", most),
				len(f.messages(storage.Range{Chat: c, Before: 99, MaxBytes: most})), want)
		}
	}},
	{"ids_are_in_the_order_of_their_bytes_in_every_list", func(f *fixture) {
		names := []string{
			"-", ".", "0", "10", "9", ":", "A", "AB", "Aa", "B", "Z", "_", "a", "a-", "a-b", "a.",
			"a0", "a:", "aA", "a_", "aa", "ab", "b", "z",
		}
		if !slices.IsSorted(names) {
			f.Fatalf("the names are not in the order of their bytes")
		}
		bob := f.user("bob")
		everyone := append([]tidemark.UserID{bob}, f.users(names...)...)
		created := f.users(names...)
		rand.Shuffle(len(created),
			func(i, j int) { created[i], created[j] = created[j], created[i] })
		team := f.group("team", append([]tidemark.UserID{bob}, created...)...)
		f.send(team, bob, 1)
		slices.Sort(everyone)
		var chats []tidemark.ChatID
		for _, i := range rand.Perm(len(names)) {
			c := f.group("x"+names[i], bob)
			f.send(c, bob, 2)
			f.raise(bob, c, tidemark.Raise{Acked: 1}, at(1))
			f.mark(bob, c, 2)
			chats = append(chats, c)
		}
		slices.Sort(chats)
		for _, limit := range []int{1, 7, len(names) - 1, len(names), len(names) + 1} {
			var got []tidemark.ChatID
			for _, s := range f.statesOf(bob, limit) {
				got = append(got, s.ChatID)
			}
			f.equal("StatesOf", got, chats)
			got = nil
			pendingOf := func(after tidemark.ChatID) ([]storage.PendingRow, bool, error) {
				return f.store.PendingOf(f.ctx, bob, after, limit)
			}
			chatOf := func(r storage.PendingRow) tidemark.ChatID { return r.ChatID }
			for _, r := range pages(f, limit, "", pendingOf, chatOf) {
				got = append(got, r.ChatID)
			}
			f.equal("PendingOf", got, chats)
			got = nil
			for _, lag := range f.behind(bob, limit, false) {
				got = append(got, lag.Chat)
			}
			f.equal("Behind", got, append([]tidemark.ChatID{team}, chats...))
			var users []tidemark.UserID
			for _, s := range f.statesIn(team, limit) {
				users = append(users, s.UserID)
			}
			f.equal("StatesIn", users, everyone)
		}
		var members, added []tidemark.UserID
		for _, m := range f.roster(team).Members {
			members = append(members, m.UserID)
		}
		f.equal("Rosters", members, everyone)
		for _, s := range f.add(team, created...).States {
			added = append(added, s.UserID)
		}
		f.equal("AddMembers", added, f.users(names...))
		// All have the same time, so their ids decide the order.
		for _, name := range names {
			f.group("same"+name, f.user("carol"))
		}
		var listed []string
		for _, chat := range ids(f.chatsOf(f.user("carol"), 5)) {
			listed = append(listed, strings.TrimPrefix(string(chat), f.prefix+"same"))
		}
		f.equal("ChatsOf", listed, names)
	}},
	{"ChatsOf_activity_is_the_time_of_the_last_message_whatever_the_clock_says", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		var times []time.Time
		for _, n := range []int{50, 10, 30, 20} {
			d := f.draft(c, alice, "hello")
			d.CreatedAt = at(n)
			times = append(times, d.CreatedAt)
			f.append(d)
			f.eventually("activity",
				func() any { return f.chatsOf(alice, 1)[0].Activity }, d.CreatedAt)
		}
		drafts := make([]tidemark.Draft, len(times))
		for i := range drafts {
			drafts[i] = f.draft(c, alice, "hello")
			drafts[i].CreatedAt = times[len(times)-1-i]
		}
		drafts[3].CreatedAt = at(5)
		_, err := f.store.Append(f.ctx, drafts)
		f.ok(err)
		f.eventually("activity after one call",
			func() any { return f.chatsOf(alice, 1)[0].Activity }, at(5))
	}},
	{"the_highest_sequence_everywhere", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 2)
		const top = tidemark.MaxSequence
		f.equal("mark", f.mark(alice, c, top), true)
		f.equal("pending", f.pending(alice), first{c: top})
		f.equal("clear below it", f.clear(alice, c, top-1), false)
		f.equal("clear", f.clear(alice, c, top), true)
		f.equal("pending", f.pending(alice), nil)
		f.eventually("summary",
			func() any { return f.summary(c, top) }, storage.Summary{Members: 1})
		f.equal("range up", len(f.messages(storage.Range{Chat: c, After: top})), 0)
		f.equal("range down", len(f.messages(storage.Range{Chat: c, Before: top, Limit: 5})), 2)
	}},
}
