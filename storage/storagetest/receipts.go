package storagetest

import (
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// hide sets who sees what a user reads, in a chat or, if it is "", in all.
func (f *fixture) hide(
	user tidemark.UserID, c tidemark.ChatID, setting tidemark.ReceiptsSetting,
) {
	f.Helper()
	f.ok(f.store.SetReceipts(f.ctx, user, c, setting))
}

// shownRead reads as a user, and returns what others see of it.
func (f *fixture) shownRead(
	user tidemark.UserID, c tidemark.ChatID, read tidemark.Sequence,
) tidemark.Sequence {
	f.Helper()
	state := f.raise(user, c, tidemark.Raise{Read: read}, at(int(read))).State
	f.equal("read", state.Read, read)
	return state.ShownRead()
}

var receiptRules = []rule{
	{"shown_within_real_hidden_from_the_setting_on", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 9)
		f.raise(bob, c, tidemark.Raise{Acked: 3, Read: 2}, at(1))
		f.hide(bob, c, tidemark.ReceiptsOff)

		got := f.raise(bob, c, tidemark.Raise{Read: 3}, at(2))
		want := tidemark.DeliveryState{
			UserID: bob, ChatID: c, Acked: 3, Read: 3, AckedAt: at(1), ReadAt: at(2),
			HiddenFrom: 3, ShownAt: at(1),
		}
		f.equal("a hidden read", got, storage.Advanced{State: want, Moved: true})
		got = f.raise(bob, c, tidemark.Raise{Acked: 5, Read: 5}, at(3))
		want.Acked, want.AckedAt, want.Read, want.ReadAt = 5, at(3), 5, at(3)
		f.equal("a hidden read with an acknowledgement",
			got, storage.Advanced{State: want, Moved: true, Shown: true})
		f.equal("state", f.state(bob, c), hiding(want))
		f.equal("least", f.summary(c, 5).Read, 0)
		f.eventually("states in the chat", func() any { return f.statesIn(c, 5)[1] }, want)
		f.eventually("states of the user", func() any { return f.statesOf(bob, 5) },
			[]tidemark.DeliveryState{want})
		f.equal("an older read", f.raise(bob, c, tidemark.Raise{Read: 4}, at(4)),
			storage.Advanced{State: want})

		f.hide(bob, c, tidemark.ReceiptsOn)
		f.equal("nothing is shown by the setting", f.state(bob, c), want)
		f.equal("nor by a repeated read", f.raise(bob, c, tidemark.Raise{Read: 5}, at(4)),
			storage.Advanced{State: want})
		got = f.raise(bob, c, tidemark.Raise{Read: 6}, at(5))
		want.Read, want.ReadAt, want.HiddenFrom, want.ShownAt = 6, at(5), 0, time.Time{}
		f.equal("the next read shows all",
			got, storage.Advanced{State: want, Moved: true, Shown: true})
		f.equal("state", f.state(bob, c), want)
	}},
	{"shown_within_real_summary_of_what_is_shown", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 9)
		f.raise(alice, c, tidemark.Raise{Acked: 9, Read: 9}, at(1))
		f.raise(bob, c, tidemark.Raise{Acked: 2, Read: 3}, at(1))
		f.hide(bob, "", tidemark.ReceiptsOff)
		f.raise(bob, c, tidemark.Raise{Acked: 4, Read: 8}, at(2))
		for sequence, want := range map[tidemark.Sequence]storage.Summary{
			3: {Members: 2, Delivered: 2, Read: 2},
			4: {Members: 2, Delivered: 2, Read: 1},
			8: {Members: 2, Delivered: 1, Read: 1},
		} {
			want.Least = tidemark.Boundary{Acked: 4, Read: 3}
			f.eventually("summary", func() any { return f.summary(c, sequence) }, want)
		}
	}},
	{"shown_within_real_of_the_first_read", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		f.hide(bob, "", tidemark.ReceiptsOff)
		f.equal("shown", f.shownRead(bob, c, 2), tidemark.Sequence(0))
		want := tidemark.DeliveryState{
			UserID: bob, ChatID: c, Read: 2, ReadAt: at(2), HiddenFrom: 1,
		}
		f.equal("state", f.state(bob, c), hiding(want))
		f.equal("unread", f.unread(bob, c), storage.Unread{Messages: 1})
	}},
	{"SetReceipts_for_a_chat_comes_before_that_for_all", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice, bob)
		f.send(c, alice, 20)
		const on, off, inherit = tidemark.ReceiptsOn, tidemark.ReceiptsOff, tidemark.ReceiptsDefault
		for i, tt := range []struct {
			inAll, inChat tidemark.ReceiptsSetting
			hidden        bool
		}{
			{on, inherit, false}, {on, off, true}, {on, on, false}, {off, on, false},
			{off, off, true}, {off, inherit, true}, {on, inherit, false},
		} {
			f.hide(bob, "", tt.inAll)
			f.hide(bob, c, tt.inChat)
			f.hide(bob, c, tt.inChat)
			inChat, inAll, err := f.store.ReceiptsOf(f.ctx, bob, c)
			f.ok(err)
			f.equal("in the chat", inChat, tt.inChat)
			f.equal("in all", inAll, tt.inAll)
			inChat, inAll, err = f.store.ReceiptsOf(f.ctx, bob, "")
			f.ok(err)
			f.equal("no chat", []tidemark.ReceiptsSetting{inChat, inAll},
				[]tidemark.ReceiptsSetting{inherit, tt.inAll})
			f.equal("hides", f.state(bob, c).Hides, tt.hidden)
			f.equal("hides in another chat", f.state(bob, other).Hides, tt.inAll == off)
			f.equal("alice hides", f.state(alice, c).Hides, false)
			read := tidemark.Sequence(i + 1)
			f.equal("hidden", f.shownRead(bob, c, read) < read, tt.hidden)
		}
	}},
	{"SetReceipts_for_all_chats_holds_in_chats_that_follow", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		joined := f.group("joined", alice)
		back := f.group("back", alice, bob)
		since := f.sinceJoin("since", alice)
		for _, c := range []tidemark.ChatID{joined, back, since} {
			f.send(c, alice, 3)
		}
		f.remove(back, bob)
		f.hide(bob, "", tidemark.ReceiptsOff)
		for _, c := range []tidemark.ChatID{joined, back, since} {
			f.add(c, bob)
		}
		f.equal("the head of a first join is shown",
			f.state(bob, since).ShownRead(), tidemark.Sequence(3))
		created := f.group("created", alice, bob)
		for _, c := range []tidemark.ChatID{joined, back, since, created} {
			f.send(c, alice, 3)
			head := f.info(c).Head
			f.equal("hidden", f.shownRead(bob, c, head) < head, true)
		}
		f.remove(back, bob)
		f.hide(bob, "", tidemark.ReceiptsOn)
		f.add(back, bob)
		f.send(back, alice, 1)
		f.equal("shown after the return", f.shownRead(bob, back, 7), tidemark.Sequence(7))
	}},
	{"shown_within_real_policy_comes_before_settings", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c, other := f.group("c", alice, bob), f.group("other", alice, bob)
		f.send(c, alice, 50)
		f.send(other, alice, 1)
		const on, off, inherit = tidemark.ReceiptsOn, tidemark.ReceiptsOff, tidemark.ReceiptsDefault
		const optional = tidemark.ReceiptsOptional
		const required, never = tidemark.ReceiptsRequired, tidemark.ReceiptsNever
		var read tidemark.Sequence
		for _, tt := range []struct {
			policy        tidemark.ReceiptsPolicy
			inAll, inChat tidemark.ReceiptsSetting
			hidden        bool
		}{
			{required, off, inherit, false}, {required, off, off, false},
			{never, off, off, true}, {never, on, on, true}, {never, on, inherit, true},
			{required, on, off, false}, {optional, on, off, true}, {optional, off, on, false},
			{never, off, on, true}, {optional, off, on, false}, {optional, off, inherit, true},
			{required, off, inherit, false}, {required, on, inherit, false},
			{optional, on, inherit, false}, {never, on, inherit, true},
		} {
			f.hide(bob, "", tt.inAll)
			f.hide(bob, c, tt.inChat)
			f.updates(c, showing(tt.policy))
			f.updates(c, showing(tt.policy))
			inChat, inAll, err := f.store.ReceiptsOf(f.ctx, bob, c)
			f.ok(err)
			f.equal("settings", []tidemark.ReceiptsSetting{inChat, inAll},
				[]tidemark.ReceiptsSetting{tt.inChat, tt.inAll})
			f.equal("hides", f.state(bob, c).Hides, tt.hidden)
			f.equal("hides in another chat", f.state(bob, other).Hides, tt.inAll == off)
			f.equal("alice hides", f.state(alice, c).Hides, tt.policy == never)
			for range 2 {
				read++
				f.equal("hidden", f.shownRead(bob, c, read) < read, tt.hidden)
			}
		}
	}},
	{"shown_within_real_policy_of_a_chat_that_users_join", func(f *fixture) {
		alice, early, late := f.user("alice"), f.user("early"), f.user("late")
		back, stranger := f.user("back"), f.user("stranger")
		for _, c := range []tidemark.ChatID{
			f.group("full", alice, back), f.sinceJoin("since", alice, back),
		} {
			f.send(c, alice, 2)
			f.remove(c, back)
			// Of a stranger, a store may have a state that says nothing about the policy.
			f.hide(stranger, c, tidemark.ReceiptsOn)
			f.raise(stranger, c, tidemark.Raise{Acked: 1, Read: 1}, at(1))
			f.updates(c, showing(tidemark.ReceiptsRequired))
			f.hide(early, c, tidemark.ReceiptsOff)
			f.add(c, early, stranger)
			f.send(c, alice, 2)
			for _, user := range []tidemark.UserID{early, stranger} {
				f.equal("shown while required", f.shownRead(user, c, 4), tidemark.Sequence(4))
			}
			f.updates(c, showing(tidemark.ReceiptsNever))
			f.add(c, early, late, back, stranger)
			f.send(c, alice, 2)
			for _, user := range []tidemark.UserID{alice, early, late, back, stranger} {
				f.equal("hides", f.state(user, c).Hides, true)
				f.equal("hidden", f.shownRead(user, c, 6) < 6, true)
			}
			f.updates(c, showing(tidemark.ReceiptsOptional))
			f.send(c, alice, 1)
			f.equal("optional again", f.shownRead(late, c, 7), tidemark.Sequence(7))
			f.equal("the own setting again", f.shownRead(early, c, 7) < 7, true)
		}
	}},
	{"shown_within_real_policy_of_a_large_chat", func(f *fixture) {
		users := f.many(tidemark.PendingFanoutLimit + 2)
		c := f.group("c", users[0])
		f.send(c, users[0], 1)
		f.hide(users[1], "", tidemark.ReceiptsOff)
		f.updates(c, showing(tidemark.ReceiptsNever))
		f.add(c, users...)
		f.send(c, users[0], 3)
		last := users[len(users)-1]
		f.equal("hidden", f.shownRead(last, c, 2), tidemark.Sequence(0))
		f.updates(c, showing(tidemark.ReceiptsRequired))
		for _, user := range []tidemark.UserID{last, users[1]} {
			f.equal("hides", f.state(user, c).Hides, false)
			f.equal("shown", f.shownRead(user, c, 4), tidemark.Sequence(4))
		}
	}},
	{"UpdateChat_refuses_no_policy_of_a_deleted_chat", func(f *fixture) {
		c := f.group("c", f.user("bob"))
		f.updates(c, showing(tidemark.ReceiptsNever))
		f.deletes(c)
		f.equal("policy", f.info(c).Policy, tidemark.Policy{})
		_, err := f.store.UpdateChat(f.ctx, c, showing(tidemark.ReceiptsRequired))
		f.code(err, tidemark.NotFound)
	}},
	{"SetReceipts_refuses", func(f *fixture) {
		bob := f.user("bob")
		f.code(f.store.SetReceipts(f.ctx, bob, f.chat("none"), tidemark.ReceiptsOff),
			tidemark.NotFound)
		f.code(f.store.SetReceipts(f.ctx, bob, "", tidemark.ReceiptsDefault), tidemark.Invalid)
		f.code(f.store.SetReceipts(f.ctx, bob, "", "hidden"), tidemark.Invalid)
		c := f.group("deleted", bob)
		f.deletes(c)
		f.code(f.store.SetReceipts(f.ctx, bob, c, tidemark.ReceiptsOff), tidemark.NotFound)
	}},
}

// hiding is a state as States returns it while the user hides what they read.
func hiding(s tidemark.DeliveryState) tidemark.DeliveryState {
	s.Hides = true
	return s
}
