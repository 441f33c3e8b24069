package storagetest

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// RunOutbox tests the Outbox of a backend. The stores of open implement it.
func RunOutbox(t *testing.T, open func(t *testing.T) storage.Store) {
	newSuite(open(t)).run(t, "Outbox", outboxRules)
}

// hook is the outlet of these tests.
const hook storage.OutletID = "hook"

var outboxRules = []rule{
	{"each_step_that_makes_news_makes_a_debt", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice)
		f.equal("debt of a new chat", f.owed(c), &storage.Debt{Chat: c})
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
			debt, now := f.owed(c), storage.PositionOf(ref(f.info(c)))
			if debt == nil || debt.From == now || debt.From.Least(now) != debt.From {
				f.Errorf("%s leaves the debt %+v of a chat at %+v", what, debt, now)
			}
		}
	}},
	{"a_debt_begins_before_its_step_and_stays", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 2)
		f.equal("debt of a new chat", f.owed(c), &storage.Debt{Chat: c})
		f.settleAll(c)
		f.equal("debt after Settle", f.owed(c), (*storage.Debt)(nil))
		f.send(c, alice, 50)
		f.rename(c, "x")
		f.add(c, f.user("bob"))
		from := storage.Position{Sequence: 2, Members: 1, Version: 1}
		f.equal("debt after 52 steps", f.owed(c), &storage.Debt{Chat: c, From: from})
	}},
	{"a_step_that_changes_nothing_makes_no_debt", func(f *fixture) {
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
		f.equal("debts", f.debts(storage.Everyone), map[tidemark.ChatID]storage.Debt{})
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
			debt, to := f.owed(c), storage.PositionOf(ref(f.info(c)))
			step()
			f.equal(what+": settled", f.settle(*debt, to, false), true)
			f.equal(what+": debt", f.owed(c), &storage.Debt{Chat: c, From: to})
		}
	}},
	{"Settle_leaves_another_debt_than_the_one_that_was_read", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 3)
		read := *f.owed(c)
		half := storage.Position{Sequence: 2, Members: 1, Version: 1}
		f.equal("settled", f.settle(read, half, true), true)
		f.equal("settled again", f.settle(read, storage.PositionOf(ref(f.info(c))), false), false)
		f.equal("debt", f.owed(c), &storage.Debt{Chat: c, From: half, Owed: true})
		f.settleAll(c)
		f.equal("settled when gone", f.settle(read, half, false), false)

		// A replay from where a worker has begun before (R_STAMP).
		f.owe(hook, c, storage.Position{Sequence: 1})
		before := f.debts(hook)[c]
		f.owe(hook, c, storage.Position{Sequence: 1})
		end := storage.PositionOf(ref(f.info(c)))
		f.equal("settled over a replay", f.settle(before, end, false), false)
		f.equal("settled with the stamp", f.settle(f.debts(hook)[c], end, false), true)
		f.equal("debts", f.debts(hook), map[tidemark.ChatID]storage.Debt{})
		f.owe(hook, c, storage.Position{Sequence: 1})
		f.equal("settled after both", f.settle(before, end, false), false)
	}},
	{"Owe_the_least_position_wins", func(f *fixture) {
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
			f.owe(hook, c, test.from)
			f.equal("debt", f.debts(hook)[c].From, test.want)
		}
		f.owe("other", c, storage.Position{Sequence: 99, Members: 99, Version: 99})
		f.equal("a debt above the chat", f.debts("other")[c].From,
			storage.PositionOf(ref(f.info(c))))
		f.equal("debt to Everyone", f.owed(c), (*storage.Debt)(nil))
		f.owe(hook, f.chat("none"), storage.Position{})
		f.equal("debts", len(f.debts(hook)), 1)
	}},
	{"Settle_notes_what_is_owed", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for _, owed := range []bool{true, false, true} {
			f.send(c, alice, 1)
			to := storage.PositionOf(ref(f.info(c)))
			f.equal("settled", f.settle(*f.owed(c), to, owed), true)
			f.owe(hook, c, storage.Position{})
			f.equal("a debt to an outlet settled", f.settle(f.debts(hook)[c], to, !owed), true)
			f.send(c, alice, 1)
			f.equal("owed", f.owed(c).Owed, owed)
		}
	}},
	{"Owing_has_pages_by_shard", func(f *fixture) {
		alice := f.user("alice")
		want := map[int][]tidemark.ChatID{}
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			c := f.group(name, alice)
			want[storage.ShardOf(c)] = append(want[storage.ShardOf(c)], c)
		}
		f.equal("chats of all shards", len(f.debts(storage.Everyone)), 8)
		for shard, chats := range want {
			f.eventually("chats of a shard", func() any {
				debts, _, err := f.outbox().Owing(f.ctx,
					storage.OwingQuery{Shards: []int{shard}, Limit: storage.MaxBatch})
				f.ok(err)
				var got []tidemark.ChatID
				for _, d := range debts {
					if strings.HasPrefix(string(d.Chat), f.prefix) {
						got = append(got, d.Chat)
					}
				}
				return got
			}, chats)
		}
	}},
	{"told_or_owed_and_told_in_order_whatever_workers_do", testWorkers},
}

// testWorkers lets several workers tell an outlet that often refuses, while messages come.
func testWorkers(f *fixture) {
	const workers, senders, each = 3, 4, 40
	var chats []tidemark.ChatID
	alice := f.user("alice")
	for _, name := range []string{"a", "b", "c"} {
		chats = append(chats, f.group(name, alice))
	}
	out := &outlet{refuses: true, told: map[tidemark.ChatID]tidemark.Sequence{}}
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
	f.eventually("debts at the end", func() any {
		f.work(out, dice)
		return len(f.debts(storage.Everyone)) + len(f.debts(hook))
	}, 0)
	for _, c := range chats {
		f.equal("told of "+string(c), out.told[c], f.info(c).Head)
	}
	for _, wrong := range out.wrong {
		f.Errorf("%s", wrong)
	}
}

// outlet is told messages. It remembers up to which one it was told all of a chat.
type outlet struct {
	mu      sync.Mutex
	refuses bool
	told    map[tidemark.ChatID]tidemark.Sequence
	wrong   []string
}

// tell reports whether the outlet accepts a message.
func (o *outlet) tell(chat tidemark.ChatID, n tidemark.Sequence, dice *rand.Rand) bool {
	if o.refuses && dice.IntN(4) == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > o.told[chat]+1 {
		o.wrong = append(o.wrong, "a message was told before an earlier one")
	}
	o.told[chat] = max(o.told[chat], n)
	return true
}

// work does what a worker does: first with the debts to Everyone, then with those to the outlet. As
// a worker that is killed, it may stop at any step.
func (f *fixture) work(o *outlet, dice *rand.Rand) {
	dies := func() bool { return o.refuses && dice.IntN(10) == 0 }
	for _, debt := range f.debts(storage.Everyone) {
		to := storage.PositionOf(ref(f.info(debt.Chat)))
		since, left := debt.From, false
		if debt.Owed {
			_, left = f.debts(hook)[debt.Chat]
		}
		for n := debt.From.Sequence + 1; n <= to.Sequence && !left; n++ {
			if !o.tell(debt.Chat, n, dice) {
				since.Sequence, left = n-1, true
			}
		}
		if dies() {
			return
		}
		if left {
			f.owe(hook, debt.Chat, since)
		}
		if dies() {
			return
		}
		f.settle(debt, to, left)
	}
	for _, debt := range f.debts(hook) {
		to := storage.PositionOf(ref(f.info(debt.Chat)))
		for n := debt.From.Sequence + 1; n <= to.Sequence; n++ {
			if !o.tell(debt.Chat, n, dice) {
				to.Sequence = n - 1
			}
		}
		if dies() {
			return
		}
		f.settle(debt, to, false)
	}
}

func (f *fixture) outbox() storage.Outbox { return f.store.(storage.Outbox) }

// debts returns the debts of the fixture's chats to an outlet. It reads them in small pages.
func (f *fixture) debts(to storage.OutletID) map[tidemark.ChatID]storage.Debt {
	f.Helper()
	shards := make([]int, storage.Shards)
	for i := range shards {
		shards[i] = i
	}
	all := map[tidemark.ChatID]storage.Debt{}
	var seen []tidemark.ChatID
	for more, after := true, tidemark.ChatID(""); more; {
		var debts []storage.Debt
		var err error
		debts, more, err = f.outbox().Owing(f.ctx,
			storage.OwingQuery{Outlet: to, Shards: shards, After: after, Limit: 3})
		f.ok(err)
		f.checkPage(len(debts), 3, more)
		for _, d := range debts {
			after = d.Chat
			seen = append(seen, d.Chat)
			if strings.HasPrefix(string(d.Chat), f.prefix) {
				all[d.Chat] = d
			}
		}
	}
	if !slices.IsSortedFunc(seen, func(a, b tidemark.ChatID) int {
		return storage.ShardOf(a) - storage.ShardOf(b)
	}) {
		f.Errorf("the shards of the debts do not ascend")
	}
	return all
}

// owed returns the chat's debt to Everyone, or nil.
func (f *fixture) owed(chat tidemark.ChatID) *storage.Debt {
	f.Helper()
	if debt, owed := f.debts(storage.Everyone)[chat]; owed {
		return &debt
	}
	return nil
}

func (f *fixture) owe(to storage.OutletID, chat tidemark.ChatID, from storage.Position) {
	f.Helper()
	f.ok(f.outbox().Owe(f.ctx, []storage.Debt{{Outlet: to, Chat: chat, From: from}}))
}

func (f *fixture) settle(debt storage.Debt, to storage.Position, owed bool) bool {
	f.Helper()
	settled, err := f.outbox().Settle(f.ctx,
		[]storage.Settlement{{Debt: debt, To: to, NowOwed: owed}})
	f.ok(err)
	f.equal("number of results", len(settled), 1)
	return settled[0]
}

// settleAll removes the chat's debt to Everyone, if there is one.
func (f *fixture) settleAll(chat tidemark.ChatID) {
	f.Helper()
	if debt := f.owed(chat); debt != nil {
		f.equal("settled", f.settle(*debt, storage.PositionOf(ref(f.info(chat))), false), true)
	}
}

func (f *fixture) rename(chat tidemark.ChatID, name string) {
	f.Helper()
	_, err := f.store.UpdateChat(f.ctx, chat, renamed(name))
	f.ok(err)
}

func ref[T any](v T) *T { return &v }
