package storagetest

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// keeping and holding are changes of the policy of a chat.
func keeping(days int) storage.ChatChange  { return storage.ChatChange{KeepDays: &days} }
func holding(hold bool) storage.ChatChange { return storage.ChatChange{Hold: &hold} }

// showing is a change of who sees what the members of a chat read.
func showing(policy tidemark.ReceiptsPolicy) storage.ChatChange {
	return storage.ChatChange{Receipts: &policy}
}

// updates changes a chat, and returns it.
func (f *fixture) updates(c tidemark.ChatID, change storage.ChatChange) tidemark.Chat {
	f.Helper()
	chat, err := f.store.UpdateChat(f.ctx, c, change)
	f.ok(err)
	f.equal("chat as it is read", f.info(c), chat)
	return chat
}

// policies returns those of chats.
func (f *fixture) policies(chats ...tidemark.ChatID) []tidemark.Policy {
	f.Helper()
	policies, err := f.store.Policies(f.ctx, chats)
	f.ok(err)
	return policies
}

var policyRules = []rule{
	{"UpdateChat_changes_the_policy", func(f *fixture) {
		alice := f.user("alice")
		c, other := f.group("c", alice), f.group("other", alice)
		f.updates(c, described("a name", `{"a":1}`))
		both := keeping(9)
		both.Hold = holding(true).Hold
		const required, never = tidemark.ReceiptsRequired, tidemark.ReceiptsNever
		for i, one := range []struct {
			change storage.ChatChange
			want   tidemark.Policy
			more   uint64
		}{
			{keeping(30), tidemark.Policy{KeepDays: 30}, 1},
			{keeping(30), tidemark.Policy{KeepDays: 30}, 0},
			{holding(true), tidemark.Policy{KeepDays: 30, Hold: true}, 1},
			{renamed("another"), tidemark.Policy{KeepDays: 30, Hold: true}, 1},
			{described("a third", ""), tidemark.Policy{KeepDays: 30, Hold: true}, 1},
			{keeping(0), tidemark.Policy{Hold: true}, 1},
			{holding(false), tidemark.Policy{}, 1},
			{holding(false), tidemark.Policy{}, 0},
			{both, tidemark.Policy{KeepDays: 9, Hold: true}, 1},
			{described("a fourth", `{"b":2}`), tidemark.Policy{KeepDays: 9, Hold: true}, 1},
			{showing(never), tidemark.Policy{KeepDays: 9, Hold: true, Receipts: never}, 1},
			{showing(never), tidemark.Policy{KeepDays: 9, Hold: true, Receipts: never}, 0},
			{keeping(0), tidemark.Policy{Hold: true, Receipts: never}, 1},
			{showing(required), tidemark.Policy{Hold: true, Receipts: required}, 1},
			{renamed("a fifth"), tidemark.Policy{Hold: true, Receipts: required}, 1},
			{showing(""), tidemark.Policy{Hold: true}, 1},
			{showing(never), tidemark.Policy{Hold: true, Receipts: never}, 1},
		} {
			before := f.info(c)
			after := f.updates(c, one.change)
			f.equal("policy", after.Policy, one.want)
			f.equal("version", after.Version, before.Version+one.more)
			if i == 0 {
				f.equal("name", after.Name, "a name")
				f.equal("metadata", string(after.Metadata), `{"a":1}`)
			}
			f.eventually("policies", func() any { return f.policies(c, other) },
				[]tidemark.Policy{one.want, {}})
		}
		f.eventually("list", func() any {
			for _, item := range f.chatsOf(alice, 5) {
				if item.Chat.ID == c {
					return item.Chat.Policy
				}
			}
			return nil
		}, f.info(c).Policy)
	}},
	{"UpdateChat_with_a_policy_is_news", func(f *fixture) {
		c := f.group("c", f.user("alice"))
		f.settleAll(c)
		before := f.info(c)
		f.updates(c, keeping(30))
		f.equal("backlog", f.backlog(c), from(c, storage.PositionOf(&before)))
	}},
	{"Policies_in_order", func(f *fixture) {
		alice := f.user("alice")
		c, d := f.group("c", alice), f.group("d", alice)
		f.updates(d, keeping(8))
		f.eventually("policies", func() any { return f.policies(f.chat("none"), d, c) },
			[]tidemark.Policy{{}, {KeepDays: 8}, {}})
		f.equal("of no chat", len(f.policies()), 0)
	}},
	{"held_is_kept_nothing_expires", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.said(c, alice, 1, 2, 3)
		f.expires(c, at(2), 10, 2, 1)
		f.updates(c, holding(true))
		for range 2 {
			_, err := f.store.Expire(f.ctx, c, at(9), 10)
			f.code(err, tidemark.Conflict)
			f.equal("floor", f.info(c).Floor, tidemark.Sequence(2))
			f.equal("messages", len(f.messages(storage.Range{Chat: c})), 2)
		}
		f.said(c, alice, 4)
		f.updates(c, holding(false))
		f.expires(c, at(9), 10, 5, 3)
	}},
	{"held_is_kept_no_deletion", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		for _, c := range []tidemark.ChatID{f.group("c", alice), f.direct("d", alice, bob)} {
			f.send(c, alice, 1)
			f.updates(c, keeping(30))
			before := f.updates(c, holding(true))
			_, err := f.store.DeleteChat(f.ctx, c, at(50))
			f.code(err, tidemark.Conflict)
			f.equal("chat", f.info(c), before)
			f.send(c, alice, 1)
			f.updates(c, holding(false))
			f.deletes(c)
			f.equal("policy", f.info(c).Policy, tidemark.Policy{})
			f.eventually("policies", func() any { return f.policies(c) }, []tidemark.Policy{{}})
		}
	}},
	{"held_is_kept_beside_those_who_expire", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for range 30 {
			f.said(c, alice, 1)
		}
		var floor tidemark.Sequence
		f.ok(concurrently(3, func(i int) error {
			if i == 0 {
				err := retry(func() error {
					_, err := f.store.UpdateChat(f.ctx, c, holding(true))
					return err
				})
				if err != nil {
					return err
				}
				return retry(func() error {
					chat, err := f.store.Chat(f.ctx, c)
					floor = chat.Floor
					return err
				})
			}
			for range 15 {
				err := retry(func() error {
					_, err := f.store.Expire(f.ctx, c, at(9), 1)
					return err
				})
				if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
					return err
				}
			}
			return nil
		}))
		f.equal("floor since the hold", f.info(c).Floor, floor)
	}},
}
