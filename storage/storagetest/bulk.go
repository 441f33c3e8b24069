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

// bulkRules are about much in one call, and about the order of ids.
var bulkRules = []rule{
	{"Append_and_Ranges_of_10000", func(w *world) {
		alice := w.user("alice")
		chats := make([]tidemark.ChatID, 50)
		for i := range chats {
			chats[i] = w.group(fmt.Sprintf("c%02d", i), alice)
		}
		drafts := make([]tidemark.Draft, storage.MaxBatch)
		for i := range drafts {
			// Every other one goes to the same chat, so that a statement of a backend does not hold all of it.
			drafts[i] = w.draft(chats[(i%2)*(i/2%len(chats))], alice, fmt.Sprint("number ", i))
		}
		appended, err := w.store.Append(w.ctx, drafts)
		w.ok(err)
		w.equal("results", len(appended), len(drafts))
		heads := map[tidemark.ChatID]tidemark.Sequence{}
		ranges := make([]storage.Range, len(drafts))
		for i, a := range appended {
			chat := drafts[i].ChatID
			heads[chat]++
			if a.Err != nil || a.Duplicate || a.Message.Sequence != heads[chat] ||
				a.Message.Content != drafts[i].Content || a.Message.ChatID != chat {
				w.Fatalf("draft %d of the call: got %+v, want message %d of %s",
					i, a, heads[chat], chat)
			}
			ranges[i] = storage.Range{Chat: chat, After: a.Message.Sequence - 1, Limit: 1}
		}
		pages, err := w.store.Ranges(w.ctx, ranges)
		w.ok(err)
		w.equal("pages", len(pages), len(ranges))
		for i, page := range pages {
			if len(page) != 1 || difference(page[0], appended[i].Message) != "" {
				w.Fatalf("range %d of the call: got %+v, want %+v", i, page, appended[i].Message)
			}
		}
		for _, call := range []func(n int) (int, error){
			func(n int) (int, error) {
				r, err := w.store.Append(w.ctx, make([]tidemark.Draft, n))
				return len(r), err
			},
			func(n int) (int, error) {
				r, err := w.store.Ranges(w.ctx, make([]storage.Range, n))
				return len(r), err
			},
		} {
			results, err := call(storage.MaxBatch + 1)
			w.code(err, tidemark.Invalid)
			w.equal("results of too many", results, 0)
		}
	}},
	{"Append_of_many_keeps_their_order_while_members_change", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		const changers, calls, each = 16, 3, 1_200
		var writing atomic.Int32
		writing.Store(calls)
		w.ok(concurrently(changers+calls, func(i int) error {
			if i < changers { // at every moment, until all is written: that must come to an end
				for n := 0; writing.Load() > 0 && n < 500; n++ {
					user := w.user(fmt.Sprintf("guest-%d-%d", i, n))
					err := insist(func() error {
						_, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{user}, at(1))
						return err
					})
					if err != nil {
						return err
					}
					doubt := false
					err = insist(func() error {
						_, err := w.store.RemoveMember(w.ctx, c, user, at(2))
						if doubt && tidemark.CodeOf(err) == tidemark.NotMember {
							return nil // the call before has removed them
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
				drafts[n] = w.draft(c, alice, fmt.Sprint("number ", n))
			}
			var appended []storage.Appended
			err := insist(func() (err error) {
				appended, err = w.store.Append(w.ctx, drafts)
				return err
			})
			for n := 1; err == nil && n < each; n++ {
				if appended[n].Err != nil {
					return appended[n].Err
				}
				if one, next := appended[n-1].Message, appended[n].Message; one.Sequence >= next.Sequence {
					err = fmt.Errorf("draft %d is message %d, and the one before it %d",
						n, next.Sequence, one.Sequence)
				}
			}
			return err
		}))
		w.gapless(c, calls*each)
	}},
	{"Append_equal_keys_with_other_contents_in_one_call", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		d := w.draft(c, alice, "one")
		other := d
		other.Content = "other"
		got, err := w.store.Append(w.ctx, []tidemark.Draft{d, other, w.draft(c, alice, "two"), d})
		w.ok(err)
		w.equal("first", got[0].Duplicate, false)
		w.code(got[1].Err, tidemark.Conflict)
		w.equal("behind it", got[2].Message.Sequence, tidemark.Sequence(2))
		w.equal("the first again", got[3], storage.Appended{
			Message:   got[0].Message,
			Duplicate: true,
			Version:   1,
		})
		// One that is a stranger's twice is refused twice.
		d = w.draft(c, w.user("eve"), "no")
		got, err = w.store.Append(w.ctx, []tidemark.Draft{d, d})
		w.ok(err)
		w.code(got[0].Err, tidemark.NotMember)
		w.code(got[1].Err, tidemark.NotMember)
	}},
	{"Append_duplicate_behind_a_conflict_has_the_version_of_now", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		d := w.draft(c, alice, "one")
		w.append(d)
		w.add(c, w.user("bob"))
		other := d
		other.Content = "other"
		got, err := w.store.Append(w.ctx, []tidemark.Draft{other, d})
		w.ok(err)
		w.code(got[0].Err, tidemark.Conflict)
		w.equal("version", got[1].Version, uint64(2))
	}},
	{"Ranges_of_many_chats_each_with_its_own_bounds", func(w *world) {
		alice := w.user("alice")
		var ranges []storage.Range
		var want [][]int
		for i := range 120 {
			c := w.group(fmt.Sprintf("c%03d", i), alice)
			drafts := make([]tidemark.Draft, 8)
			for n := range drafts {
				drafts[n] = w.draft(c, alice, strings.Repeat("x", 100))
			}
			_, err := w.store.Append(w.ctx, drafts)
			w.ok(err)
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
		pages, err := w.store.Ranges(w.ctx, ranges)
		w.ok(err)
		for i, page := range pages {
			var got []int
			for _, m := range page {
				w.equal("chat", m.ChatID, ranges[i].Chat)
				got = append(got, int(m.Sequence))
			}
			w.equal(fmt.Sprintf("%+v", ranges[i]), got, want[i])
		}
	}},
	{"Ranges_of_the_longest_messages", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		for range 24 {
			w.append(w.draft(c, alice, strings.Repeat("€", tidemark.MaxContent/3)+"x"))
		}
		for most, want := range map[int]int{0: 24, 1: 1, tidemark.MaxContent: 1, tidemark.MaxContent + 1: 2, 10 * tidemark.MaxContent: 10, 1 << 30: 24} {
			w.equal(fmt.Sprintf("up to %d bytes", most),
				len(w.messages(storage.Range{Chat: c, MaxBytes: most})), want)
			w.equal(fmt.Sprintf("down to %d bytes", most),
				len(w.messages(storage.Range{Chat: c, Before: 99, MaxBytes: most})), want)
		}
	}},
	{"ids_are_in_the_order_of_their_bytes_in_every_list", func(w *world) {
		names := []string{
			"-", ".", "0", "10", "9", ":", "A", "AB", "Aa", "B", "Z", "_", "a", "a-", "a-b", "a.",
			"a0", "a:", "aA", "a_", "aa", "ab", "b", "z",
		}
		if !slices.IsSorted(names) {
			w.Fatalf("the names are not in the order of their bytes")
		}
		bob := w.user("bob")
		everyone := append([]tidemark.UserID{bob}, w.users(names...)...)
		created := w.users(names...)
		rand.Shuffle(len(created),
			func(i, j int) { created[i], created[j] = created[j], created[i] })
		team := w.group("team", append([]tidemark.UserID{bob}, created...)...)
		w.send(team, bob, 1)
		slices.Sort(everyone)
		var chats []tidemark.ChatID
		for _, i := range rand.Perm(len(names)) {
			c := w.group("x"+names[i], bob)
			w.send(c, bob, 2)
			w.raise(bob, c, tidemark.Raise{Acked: 1}, at(1))
			w.mark(bob, c, 2)
			chats = append(chats, c)
		}
		slices.Sort(chats)
		for _, limit := range []int{1, 7, len(names) - 1, len(names), len(names) + 1} {
			var got []tidemark.ChatID
			for _, s := range pages(w, limit, "", func(after tidemark.ChatID) ([]tidemark.DeliveryState, bool, error) {
				return w.store.StatesOf(w.ctx, bob, after, limit)
			}, func(s tidemark.DeliveryState) tidemark.ChatID { return s.ChatID }) {
				got = append(got, s.ChatID)
			}
			w.equal("StatesOf", got, chats)
			got = nil
			for _, r := range pages(w, limit, "", func(after tidemark.ChatID) ([]storage.PendingRow, bool, error) {
				return w.store.PendingOf(w.ctx, bob, after, limit)
			}, func(r storage.PendingRow) tidemark.ChatID { return r.ChatID }) {
				got = append(got, r.ChatID)
			}
			w.equal("PendingOf", got, chats)
			got = nil
			for _, lag := range w.behind(bob, limit, false) {
				got = append(got, lag.Chat)
			}
			w.equal("Behind", got, append([]tidemark.ChatID{team}, chats...))
			var users []tidemark.UserID
			for _, s := range pages(w, limit, "", func(after tidemark.UserID) ([]tidemark.DeliveryState, bool, error) {
				return w.store.StatesIn(w.ctx, team, after, limit)
			}, func(s tidemark.DeliveryState) tidemark.UserID { return s.UserID }) {
				users = append(users, s.UserID)
			}
			w.equal("StatesIn", users, everyone)
		}
		var members, added []tidemark.UserID
		for _, m := range w.roster(team).Members {
			members = append(members, m.UserID)
		}
		w.equal("Rosters", members, everyone)
		for _, s := range w.add(team, created...).States {
			added = append(added, s.UserID)
		}
		w.equal("AddMembers", added, w.users(names...))
		// All of one time: then their ids decide.
		for _, name := range names {
			w.group("same"+name, w.user("carol"))
		}
		var listed []string
		for _, chat := range ids(w.chatsOf(w.user("carol"), 5)) {
			listed = append(listed, strings.TrimPrefix(string(chat), w.prefix+"same"))
		}
		w.equal("ChatsOf", listed, names)
	}},
	{"ChatsOf_activity_is_the_time_of_the_last_message_whatever_the_clock_says", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		var times []time.Time
		for _, n := range []int{50, 10, 30, 20} {
			d := w.draft(c, alice, "hello")
			d.CreatedAt = at(n)
			times = append(times, d.CreatedAt)
			w.append(d)
			w.eventually("activity",
				func() any { return w.chatsOf(alice, 1)[0].Activity }, d.CreatedAt)
		}
		drafts := make([]tidemark.Draft, len(times))
		for i := range drafts {
			drafts[i] = w.draft(c, alice, "hello")
			drafts[i].CreatedAt = times[len(times)-1-i]
		}
		drafts[3].CreatedAt = at(5)
		_, err := w.store.Append(w.ctx, drafts)
		w.ok(err)
		w.eventually("activity after one call",
			func() any { return w.chatsOf(alice, 1)[0].Activity }, at(5))
	}},
	{"the_highest_sequence_everywhere", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.send(c, alice, 2)
		const top = tidemark.MaxSequence
		w.equal("mark", w.mark(alice, c, top), true)
		w.equal("pending", w.pending(alice), first{c: top})
		w.equal("clear below it", w.clear(alice, c, top-1), false)
		w.equal("clear", w.clear(alice, c, top), true)
		w.equal("pending", w.pending(alice), nil)
		w.eventually("summary",
			func() any { return w.summary(c, top) }, storage.Summary{Members: 1})
		w.equal("range up", len(w.messages(storage.Range{Chat: c, After: top})), 0)
		w.equal("range down", len(w.messages(storage.Range{Chat: c, Before: top, Limit: 5})), 2)
	}},
}
