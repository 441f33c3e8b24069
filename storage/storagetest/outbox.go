package storagetest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// hook is the outlet of these tests.
const hook storage.OutletID = "hook"

var outboxRules = []rule{
	{"each_step_that_makes_news_opens_a_backlog", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice)
		f.equal("backlog of a new chat", f.backlog(c), from(c, storage.Position{}))
		for what, step := range map[string]func(){
			"Append":     func() { f.send(c, alice, 1) },
			"UpdateChat": func() { f.rename(c, f.info(c).Name+"x") },
			"AddMembers": func() { f.add(c, bob) },
			"UpdateMember": func() {
				f.add(c, bob)
				f.settleAll(c)
				_, err := f.store.UpdateMember(f.ctx, c, bob, storage.MemberChange{
					Metadata: json.RawMessage(`{"of":"` + f.info(c).Name + `"}`),
				})
				f.ok(err)
			},
			"RemoveMember": func() {
				f.add(c, bob)
				f.settleAll(c)
				f.remove(c, bob)
			},
		} {
			f.settleAll(c)
			step()
			backlog, now := f.backlog(c), storage.PositionOf(ref(f.info(c)))
			if backlog == nil || backlog.From == now || !now.Covers(backlog.From) {
				f.Errorf("%s leaves the backlog %+v of a chat at %+v", what, backlog, now)
			}
		}
	}},
	{"row_once_a_backlog_begins_before_its_step_and_stays", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 2)
		f.equal("backlog of a new chat", f.backlog(c), from(c, storage.Position{}))
		f.settleAll(c)
		f.equal("backlog after Settle", f.backlog(c), (*storage.Backlog)(nil))
		f.send(c, alice, 50)
		f.rename(c, "x")
		f.add(c, f.user("bob"))
		f.equal("backlog after 52 steps", f.backlog(c),
			from(c, storage.Position{Sequence: 2, Members: 1, Version: 1}))
	}},
	{"a_step_that_changes_nothing_opens_no_backlog", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.direct("c", alice, bob)
		g := f.group("g", alice)
		draft := f.draft(g, alice, "hello")
		f.append(draft)
		f.rename(g, "x")
		f.settleAll(c)
		f.settleAll(g)
		f.append(draft) // a duplicate
		f.rename(g, "x")
		f.add(g, alice)
		_, err := storage.AppendOne(f.ctx, f.store, f.draft(g, bob, "not a member"))
		f.code(err, tidemark.NotMember)
		_, err = f.store.RemoveMember(f.ctx, g, bob, at(1))
		f.code(err, tidemark.NotMember)
		_, err = f.store.UpdateMember(f.ctx, g, alice, role(tidemark.Owner))
		f.ok(err)
		_, created, err := f.store.CreateChat(f.ctx, storage.NewChat{
			ID: f.chat("other"), Type: tidemark.Direct, Members: []tidemark.UserID{bob, alice},
		})
		f.ok(err)
		f.equal("created", created, false)
		f.equal("backlogs", f.backlogs(storage.AllOutlets), map[tidemark.ChatID]storage.Backlog{})
	}},
	{"Settle_R_CLEAR_keeps_what_came_since", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for what, step := range map[string]func(){
			"a message":  func() { f.send(c, alice, 1) },
			"a name":     func() { f.rename(c, f.info(c).Name+"x") },
			"a newcomer": func() { f.add(c, f.user("u"+f.info(c).Name)) },
		} {
			f.send(c, alice, 1)
			backlog, to := f.backlog(c), storage.PositionOf(ref(f.info(c)))
			step()
			f.equal(what+": settled", f.settle(*backlog, to, false), true)
			f.equal(what+": backlog", f.backlog(c), from(c, to))
		}
	}},
	{"Settle_leaves_another_backlog_than_the_one_that_was_read", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 3)
		read := *f.backlog(c)
		half := storage.Position{Sequence: 2, Members: 1, Version: 1}
		f.equal("settled", f.settle(read, half, true), true)
		f.equal("settled again", f.settle(read, storage.PositionOf(ref(f.info(c))), false), false)
		split := from(c, half)
		split.Split = true
		f.equal("backlog", f.backlog(c), split)
		f.settleAll(c)
		f.equal("settled when gone", f.settle(read, half, false), false)

		// A replay from where a worker has begun before (R_STAMP).
		f.rewind(hook, c, storage.Position{Sequence: 1})
		before := f.backlogs(hook)[c]
		f.rewind(hook, c, storage.Position{Sequence: 1})
		end := storage.PositionOf(ref(f.info(c)))
		f.equal("settled over a replay", f.settle(before, end, false), false)
		f.equal("settled with the stamp", f.settle(f.backlogs(hook)[c], end, false), true)
		f.equal("backlogs", f.backlogs(hook), map[tidemark.ChatID]storage.Backlog{})
		f.rewind(hook, c, storage.Position{Sequence: 1})
		f.equal("settled after both", f.settle(before, end, false), false)
	}},
	{"Rewind_at_the_end_is_settled_by_its_stamp", func(f *fixture) {
		// So are the marks of chats whose watermarks may rise (reach).
		const marks storage.OutletID = "hook/receipts"
		alice := f.user("alice")
		c := f.group("c", alice)
		f.settleAll(c)
		beyond := storage.Position{Sequence: math.MaxInt64, Members: math.MaxInt64,
			Version: math.MaxInt64}
		f.rewind(marks, c, beyond)
		first := f.backlogs(marks)[c]
		f.equal("begin", first.From, storage.PositionOf(ref(f.info(c))))
		f.rewind(marks, c, beyond)
		f.equal("settled over another mark", f.settle(first, beyond, false), false)
		second := f.backlogs(marks)[c]
		f.equal("the stamps are equal", second.Stamp == first.Stamp, false)
		f.send(c, alice, 1)
		f.equal("settled after a message", f.settle(second, beyond, false), true)
		f.equal("marks", f.backlogs(marks), map[tidemark.ChatID]storage.Backlog{})
		f.equal("backlogs of the outlet", f.backlogs(hook), map[tidemark.ChatID]storage.Backlog{})
	}},
	{"Rewind_the_least_position_wins", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
		f.settleAll(c)
		for _, test := range []struct{ from, want storage.Position }{
			{storage.Position{Sequence: 5, Members: 1, Version: 1},
				storage.Position{Sequence: 5, Members: 1, Version: 1}},
			{storage.Position{Sequence: 7, Members: 0, Version: 1},
				storage.Position{Sequence: 5, Members: 0, Version: 1}},
			{storage.Position{Sequence: 99, Members: 99, Version: 99},
				storage.Position{Sequence: 5, Members: 0, Version: 1}},
		} {
			f.rewind(hook, c, test.from)
			f.equal("backlog", f.backlogs(hook)[c].From, test.want)
		}
		f.rewind("other", c, storage.Position{Sequence: 99, Members: 99, Version: 99})
		f.equal("a backlog above the chat", f.backlogs("other")[c].From,
			storage.PositionOf(ref(f.info(c))))
		f.equal("backlog for all", f.backlog(c), (*storage.Backlog)(nil))
		f.rewind(hook, f.chat("none"), storage.Position{})
		f.equal("backlogs", len(f.backlogs(hook)), 1)
	}},
	{"Settle_notes_the_split", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for _, split := range []bool{true, false, true} {
			f.send(c, alice, 1)
			to := storage.PositionOf(ref(f.info(c)))
			f.equal("settled", f.settle(*f.backlog(c), to, split), true)
			f.rewind(hook, c, storage.Position{})
			f.equal("settled alone", f.settle(f.backlogs(hook)[c], to, !split), true)
			f.send(c, alice, 1)
			f.equal("split", f.backlog(c).Split, split)
		}
	}},
	{"Backlogs_has_pages_by_shard", func(f *fixture) {
		alice := f.user("alice")
		want := map[int][]tidemark.ChatID{}
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			c := f.group(name, alice)
			want[storage.ShardOf(c)] = append(want[storage.ShardOf(c)], c)
		}
		f.equal("chats of all shards", len(f.backlogsIn(storage.AllOutlets, allShards())), 8)
		for shard, chats := range want {
			f.eventually("chats of a shard", func() any {
				backlogs, _, err := f.store.Backlogs(f.ctx,
					storage.BacklogQuery{Shards: []int{shard}, Limit: storage.MaxBatch})
				f.ok(err)
				var got []tidemark.ChatID
				for _, d := range backlogs {
					if strings.HasPrefix(string(d.Chat), f.prefix) {
						got = append(got, d.Chat)
					}
				}
				return got
			}, chats)
		}
	}},
	{"Settle_goes_at_most_to_the_end_of_the_chat", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		beyond := storage.Position{
			Sequence: 1 << 63, Members: math.MaxUint64, Version: math.MaxInt64,
		}
		f.equal("settled", f.settle(*f.backlog(c), beyond, false), true)
		f.rewind(hook, c, storage.Position{})
		f.equal("settled alone", f.settle(f.backlogs(hook)[c], beyond, false), true)
		f.send(c, alice, 1)
		f.equal("backlog", f.backlog(c), from(c, storage.Position{Members: 1, Version: 1}))
		f.equal("backlogs", f.backlogs(hook), map[tidemark.ChatID]storage.Backlog{})
	}},
	{"Settle_of_a_part_moves_the_backlog", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
		f.rewind(hook, c, storage.Position{})
		for n := range tidemark.Sequence(4) {
			to := storage.Position{Sequence: 2 * n, Members: 1, Version: 1}
			f.equal("settled", f.settle(*f.backlog(c), to, false), true)
			f.equal("backlog", f.backlog(c), from(c, to))
			f.equal("settled alone", f.settle(f.backlogs(hook)[c], to, false), true)
			f.equal("alone", f.backlogs(hook)[c].From, to)
		}
		// A worker that began later reads a position that is behind.
		f.equal("settled", f.settle(*f.backlog(c), storage.Position{Sequence: 1}, false), true)
		f.equal("backlog", f.backlog(c),
			from(c, storage.Position{Sequence: 6, Members: 1, Version: 1}))
	}},
	{"Settle_of_a_part_leaves_a_replay", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 9)
		f.rewind(hook, c, storage.Position{Sequence: 3})
		read := f.backlogs(hook)[c]
		f.rewind(hook, c, storage.Position{Sequence: 3})
		to := storage.Position{Sequence: 5, Members: 1, Version: 1}
		f.equal("settled over a replay", f.settle(read, to, false), false)
		f.equal("backlog", f.backlogs(hook)[c].From, storage.Position{Sequence: 3})
	}},
	{"Outbox_refuses_what_makes_no_sense", func(f *fixture) {
		c := f.group("c", f.user("alice"))
		b := storage.Backlog{Outlet: hook, Chat: c}
		f.code(f.store.Rewind(f.ctx, []storage.Backlog{{Chat: c}}), tidemark.Invalid)
		f.code(f.store.Rewind(f.ctx, []storage.Backlog{b, b}), tidemark.Invalid)
		_, err := f.store.Settle(f.ctx, []storage.Settlement{{Backlog: b}, {Backlog: b}})
		f.code(err, tidemark.Invalid)
		f.code(f.store.Rewind(f.ctx, make([]storage.Backlog, storage.MaxBatch+1)),
			tidemark.Invalid)
		f.equal("backlogs", f.backlogs(hook), map[tidemark.ChatID]storage.Backlog{})
		f.ok(f.store.Rewind(f.ctx, nil))
		settled, err := f.store.Settle(f.ctx, nil)
		f.ok(err)
		f.equal("settled", len(settled), 0)
		settled, err = f.store.Settle(f.ctx, []storage.Settlement{
			{Backlog: storage.Backlog{Chat: f.chat("none")}},
			{Backlog: storage.Backlog{Outlet: hook, Chat: f.chat("none")}},
		})
		f.ok(err)
		f.equal("settled", settled, []bool{false, false})
	}},
	{"MembersSince_returns_last_changes", func(f *fixture) {
		alice, bob, cid, dan := f.user("alice"), f.user("bob"), f.user("cid"), f.user("dan")
		c := f.group("c", alice, dan)
		f.add(c, bob, cid)
		f.remove(c, cid)
		_, err := f.store.UpdateMember(f.ctx, c, bob, role(tidemark.Owner))
		f.ok(err)
		type change struct {
			User    tidemark.UserID
			Version uint64
			Current bool
		}
		for since, want := range [][]change{
			0: {{alice, 1, true}, {bob, 4, true}, {cid, 3, false}, {dan, 1, true}},
			1: {{bob, 4, true}, {cid, 3, false}},
			3: {{bob, 4, true}},
			4: nil,
		} {
			var got []change
			for _, m := range f.since(c, uint64(since)) {
				got = append(got, change{m.UserID, m.Version, m.Intervals.Open()})
			}
			if since != 2 {
				f.equal("changed since "+strconv.Itoa(since), got, want)
			}
		}
		f.equal("role", f.since(c, 3)[0].Role, tidemark.Owner)
		f.equal("members of no chat", len(f.since(f.chat("none"), 0)), 0)

		// If the last owner leaves, the successor changes in the same step.
		_, err = f.store.UpdateMember(f.ctx, c, alice, role(tidemark.Admin))
		f.ok(err)
		version := f.info(c).MembersVersion
		f.remove(c, bob)
		changed := f.since(c, version)
		f.equal("changed with the last owner", len(changed), 2)
		for _, m := range changed {
			f.equal("version", m.Version, version+1)
		}
	}},
	{"MembersSince_has_all_of_a_large_change", func(f *fixture) {
		c := f.group("c", f.user("alice"))
		var users []tidemark.UserID
		for n := range 120 {
			users = append(users, f.user("u"+strconv.Itoa(1000+n)))
		}
		f.add(c, users...)
		changed := f.since(c, 1)
		f.equal("changed", len(changed), len(users))
		for i, m := range changed {
			f.equal("user", m.UserID, users[i])
			f.equal("version", m.Version, uint64(2))
			f.equal("current", m.Intervals.Open(), true)
		}
	}},
	{"EachChat_returns_each_chat_once", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		want := map[tidemark.ChatID]int{f.direct("d", alice, bob): 1}
		for n := range 7 {
			want[f.group("c"+strconv.Itoa(n), alice)] = 1
		}
		got := map[tidemark.ChatID]int{}
		for more, after := true, tidemark.ChatID(""); more; {
			var chats []tidemark.ChatID
			var err error
			chats, after, more, err = f.store.EachChat(f.ctx, after, 3)
			f.ok(err)
			if len(chats) > 3 {
				f.Errorf("a page has %d chats", len(chats))
			}
			for _, c := range chats {
				if strings.HasPrefix(string(c), f.prefix) {
					got[c]++
				}
			}
		}
		f.equal("chats", got, want)
	}},
	{"Settle_of_several_settles_each_by_itself", func(f *fixture) {
		alice := f.user("alice")
		var chats []tidemark.ChatID
		for _, name := range []string{"e", "a", "d", "b", "c"} {
			c := f.group(name, alice)
			f.send(c, alice, 4)
			f.rewind(hook, c, storage.Position{})
			f.rewind("other", c, storage.Position{Sequence: 1, Members: 1, Version: 1})
			chats = append(chats, c)
		}
		all, part := storage.PositionOf(ref(f.info(chats[0]))), storage.Position{
			Sequence: 3, Members: 1, Version: 1,
		}
		var items []storage.Settlement
		var want []bool
		for i, c := range chats {
			to := []storage.Position{all, part}[i%2]
			for _, outlet := range []storage.OutletID{"other", storage.AllOutlets, hook} {
				b := f.backlogs(outlet)[c]
				if i == 3 {
					b.From.Sequence++ // As if another worker had settled it.
				}
				items = append(items, storage.Settlement{Backlog: b, To: to, NowSplit: i == 1})
				want = append(want, i != 3)
			}
		}
		got, err := f.store.Settle(f.ctx, items)
		f.ok(err)
		f.equal("settled", got, want)
		for _, outlet := range []storage.OutletID{storage.AllOutlets, hook, "other"} {
			left := f.backlogs(outlet)
			f.equal("backlogs that are left", len(left), 2)
			f.equal("a part", left[chats[1]].From, part)
			f.equal("split", left[chats[1]].Split, outlet == storage.AllOutlets)
			least := storage.Position{}
			if outlet == "other" {
				least = storage.Position{Sequence: 1, Members: 1, Version: 1}
			}
			f.equal("one of another worker", left[chats[3]].From, least)
		}
	}},
	{"Backlogs_finds_those_of_some_chats", func(f *fixture) {
		alice := f.user("alice")
		c, d, e := f.group("c", alice), f.group("d", alice), f.group("e", alice)
		f.settleAll(d)
		f.rewind(hook, c, storage.Position{})
		f.rewind(hook, d, storage.Position{})
		of := func(outlet storage.OutletID, chats ...tidemark.ChatID) any {
			found, more, err := f.store.Backlogs(f.ctx,
				storage.BacklogQuery{Outlet: outlet, Chats: chats})
			f.ok(err)
			f.equal("more", more, false)
			all := map[tidemark.ChatID]storage.Backlog{}
			for _, b := range found {
				b.End, b.Large = storage.Position{}, false
				all[b.Chat] = b
			}
			f.equal("backlogs of different chats", len(all), len(found))
			return all
		}
		type backlogs = map[tidemark.ChatID]storage.Backlog
		none := f.chat("none")
		f.equal("backlogs", of(storage.AllOutlets, e, d, none, c),
			backlogs{c: *f.backlog(c), e: *f.backlog(e)})
		f.equal("backlog of c", of(storage.AllOutlets, c), backlogs{c: *f.backlog(c)})
		f.equal("own backlogs", of(hook, none, e, d, c), f.backlogs(hook))
		for _, outlet := range []storage.OutletID{storage.AllOutlets, "other"} {
			f.equal("backlogs of d", of(outlet, d, none), backlogs{})
		}
		_, _, err := f.store.Backlogs(f.ctx,
			storage.BacklogQuery{Chats: make([]tidemark.ChatID, storage.MaxBatch+1)})
		f.code(err, tidemark.Invalid)
	}},
	{"Backlogs_for_all_outlets_have_the_end_of_the_chat", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.settleAll(c)
		f.rename(c, "x")
		f.add(c, f.user("bob"))
		f.send(c, alice, 3)
		f.rewind(hook, c, storage.Position{})
		end := storage.PositionOf(ref(f.info(c)))
		for _, q := range []storage.BacklogQuery{
			{Chats: []tidemark.ChatID{c}},
			{Shards: []int{storage.ShardOf(c)}, Limit: storage.MaxBatch},
		} {
			found, _, err := f.store.Backlogs(f.ctx, q)
			f.ok(err)
			n := slices.IndexFunc(found, func(b storage.Backlog) bool { return b.Chat == c })
			f.equal("end", found[n].End, end)
			f.equal("large", found[n].Large, false)
			q.Outlet = hook
			found, _, err = f.store.Backlogs(f.ctx, q)
			f.ok(err)
			n = slices.IndexFunc(found, func(b storage.Backlog) bool { return b.Chat == c })
			f.equal("end in the backlog of an outlet", found[n].End, storage.Position{})
		}
	}},
	{"told_or_owed_and_told_in_order_whatever_workers_do", testWorkers},
}

// testWorkers lets several workers deliver to an outlet that often refuses, while messages come.
func testWorkers(f *fixture) {
	const workers, senders, each = 3, 4, 40
	var chats []tidemark.ChatID
	alice := f.user("alice")
	for _, name := range []string{"a", "b", "c"} {
		chats = append(chats, f.group(name, alice))
	}
	out := &outlet{refuses: true, has: map[tidemark.ChatID]tidemark.Sequence{}}
	var sending, working sync.WaitGroup
	stop := make(chan struct{})
	for n := range workers {
		dice := rand.New(rand.NewPCG(1, uint64(n)))
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f.work(out, dice)
				}
			}
		})
	}
	for n := range senders {
		sending.Go(func() {
			for i := range each {
				f.send(chats[(n+i)%len(chats)], alice, 1)
			}
		})
	}
	sending.Wait()
	close(stop)
	working.Wait()
	out.refuses = false
	dice := rand.New(rand.NewPCG(2, 0))
	f.eventually("backlogs at the end", func() any {
		f.work(out, dice)
		return len(f.backlogs(storage.AllOutlets)) + len(f.backlogs(hook))
	}, 0)
	for _, c := range chats {
		f.equal("received of "+string(c), out.has[c], f.info(c).Head)
	}
	for _, wrong := range out.wrong {
		f.Errorf("%s", wrong)
	}
}

// outlet receives messages. It remembers up to which one it has all of a chat.
type outlet struct {
	mu      sync.Mutex
	refuses bool
	has     map[tidemark.ChatID]tidemark.Sequence
	wrong   []string
}

// accept reports whether the outlet accepts a message.
func (o *outlet) accept(chat tidemark.ChatID, n tidemark.Sequence, dice *rand.Rand) bool {
	if o.refuses && dice.IntN(4) == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > o.has[chat]+1 {
		o.wrong = append(o.wrong, "a message was delivered before an earlier one")
	}
	o.has[chat] = max(o.has[chat], n)
	return true
}

// work does what a worker does: first with the backlogs for all outlets, then with those of the
// outlet. Like a worker that is killed, it may stop at any step.
func (f *fixture) work(o *outlet, dice *rand.Rand) {
	dies := func() bool {
		if o.refuses {
			for range dice.IntN(50) {
				runtime.Gosched()
			}
		}
		return o.refuses && dice.IntN(10) == 0
	}
	for _, backlog := range f.backlogs(storage.AllOutlets) {
		to := storage.PositionOf(ref(f.info(backlog.Chat)))
		since, left := backlog.From, false
		if backlog.Split {
			_, left = f.backlogs(hook)[backlog.Chat]
		}
		for n := backlog.From.Sequence + 1; n <= to.Sequence && !left; n++ {
			if !o.accept(backlog.Chat, n, dice) {
				since.Sequence, left = n-1, true
			}
		}
		if dies() {
			return
		}
		if left {
			f.rewind(hook, backlog.Chat, since)
		}
		if dies() {
			return
		}
		f.settle(backlog, to, left)
	}
	for _, backlog := range f.backlogs(hook) {
		to := storage.PositionOf(ref(f.info(backlog.Chat)))
		for n := backlog.From.Sequence + 1; n <= to.Sequence; n++ {
			if !o.accept(backlog.Chat, n, dice) {
				to.Sequence = n - 1
			}
		}
		if dies() {
			return
		}
		f.settle(backlog, to, false)
	}
}
