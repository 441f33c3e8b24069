package storagetest

import (
	"math/rand/v2"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var unreadRules = []rule{
	{"Unread_own_messages_never_count", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		f.ownNeverCount(f.group("c", alice, bob), alice, bob)
	}},
	{"Unread_own_messages_never_count_in_a_direct_chat", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		f.ownNeverCount(f.direct("c", alice, bob), alice, bob)
		f.ownNeverCount(f.direct("d", carol, alice), carol, alice)
		f.equal("unread of a stranger", f.unread(carol, f.chat("c")), storage.Unread{})
	}},
	{"Unread_every_way_to_the_same_mark_counts_the_same", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		in := func(name string, reads ...tidemark.Sequence) {
			c := f.group(name, alice, bob)
			sent := 0
			to := func(n int) {
				for ; sent < n; sent++ {
					f.send(c, []tidemark.UserID{alice, bob, bob}[sent%3], 1)
				}
			}
			for _, read := range reads {
				to(int(read) + 2)
				f.raise(bob, c, tidemark.Raise{Read: read}, at(3))
			}
			to(20)
			// After 13, alice sends 16 and 19, and bob the others.
			f.eventually(name, func() any { return f.unread(bob, c) }, storage.Unread{Messages: 2})
		}
		in("at once", 13)
		in("step by step", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
		in("in jumps", 5, 12, 13)
	}},
	{"Unread_system_messages_never_count", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		for n := range 12 {
			d := f.draft(c, []tidemark.UserID{alice, bob}[n%2], "x")
			if n%3 == 0 {
				d.Kind, d.Mentions = tidemark.KindSystem, tidemark.Mentions{All: true}
			}
			f.append(d)
		}
		// 1, 4, 7 and 10 are lines of the system. Of the others, alice wrote 3, 5, 9 and 11.
		for read, want := range []int64{4, 4, 4, 3, 3, 2, 2, 2, 2, 1, 1, 0, 0} {
			f.raise(bob, c, tidemark.Raise{Read: tidemark.Sequence(read)}, at(3))
			f.eventually("unread", func() any { return f.unread(bob, c) },
				storage.Unread{Messages: want})
		}
	}},
	{"Unread_counts_inside_the_intervals_only", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.sinceJoin("c", alice)
		system := func() {
			d := f.draft(c, alice, "x")
			d.Kind = tidemark.KindSystem
			f.append(d)
		}
		f.send(c, alice, 2)
		system()
		f.add(c, bob)
		f.send(c, alice, 2)
		system()
		f.send(c, bob, 1)
		f.remove(c, bob)
		system()
		f.send(c, alice, 5)
		f.add(c, bob)
		system()
		f.send(c, bob, 2)
		f.send(c, alice, 3)
		// bob sees 4 to 7, of which two count, and 14 to 19, of which three do.
		f.eventually("unread", func() any { return f.unread(bob, c).Messages }, int64(5))
		f.raise(bob, c, tidemark.Raise{Read: 4}, at(3))
		f.eventually("unread after 4", func() any { return f.unread(bob, c).Messages }, int64(4))
		f.raise(bob, c, tidemark.Raise{Read: 10}, at(3))
		f.eventually("unread after 10", func() any { return f.unread(bob, c).Messages }, int64(3))
		f.remove(c, bob)
		f.send(c, alice, 3)
		f.eventually("unread of a former member",
			func() any { return f.unread(bob, c).Messages }, int64(3))
		f.eventually("total of a former member", func() any { return f.unreadOf(bob) },
			storage.UnreadTotal{})
		f.equal("unread of a stranger", f.unread(f.user("carol"), c), storage.Unread{})
		f.equal("unread in no chat", f.unread(bob, f.chat("none")), storage.Unread{})
	}},
	{"Unread_mentions_are_those_of_unread_messages", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice, bob, carol)
		say := func(sender tidemark.UserID, m tidemark.Mentions) {
			d := f.draft(c, sender, "x")
			d.Mentions = m
			f.append(d)
		}
		say(alice, tidemark.NewMentions(false, []tidemark.UserID{bob}))
		say(bob, tidemark.NewMentions(false, []tidemark.UserID{bob, carol}))
		say(alice, tidemark.Mentions{All: true})
		say(bob, tidemark.NewMentions(true, []tidemark.UserID{bob, carol}))
		say(alice, tidemark.Mentions{})
		say(carol, tidemark.NewMentions(true, []tidemark.UserID{bob}))
		for user, want := range map[tidemark.UserID][]int64{
			alice: {2, 2, 2, 2, 1, 1, 0}, bob: {3, 2, 2, 1, 1, 1, 0},
			carol: {3, 3, 2, 1, 0, 0, 0},
		} {
			for read, mentions := range want {
				f.raise(user, c, tidemark.Raise{Read: tidemark.Sequence(read)}, at(3))
				f.eventually("mentions", func() any { return f.unread(user, c).Mentions }, mentions)
			}
		}
	}},
	{"unread_exact_with_many_senders", func(f *fixture) {
		users := f.many(30)
		c := f.group("c", users...)
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // The same in each run.
		for round := range 5 {
			for range 50 {
				// The first rounds have few senders, the last all of them.
				sender := users[random.IntN(6*(round+1))]
				f.append(f.someDraft(c, sender, random))
			}
			for range 10 {
				read := tidemark.Sequence(1 + random.IntN(50*(round+1)))
				f.raise(users[random.IntN(len(users))], c, tidemark.Raise{Read: read}, at(round))
			}
			f.checkUnread(c, users)
		}
	}},
	{"unread_exact_after_concurrent_sends_and_reads", func(f *fixture) {
		users := f.many(20)
		f.sendAndRead(f.group("c", users...), users, users)
	}},
	{"unread_exact_after_concurrent_sends_and_reads_in_a_direct_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		var devices []tidemark.UserID
		for range 8 {
			devices = append(devices, alice, bob)
		}
		users := devices[:2]
		f.sendAndRead(f.direct("c", alice, bob), users, devices)
	}},
	{"UnreadOf_sums_over_the_chats", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		f.equal("without chats", f.unreadOf(bob), storage.UnreadTotal{})
		for _, name := range []string{"a", "b", "read", "empty"} {
			f.group(name, alice, bob)
		}
		d := f.draft(f.chat("a"), alice, "@all")
		d.Mentions.All = true
		f.append(d)
		f.send(f.chat("a"), alice, 2)
		f.send(f.chat("b"), alice, 4)
		f.send(f.chat("read"), alice, 4)
		f.raise(bob, f.chat("read"), tidemark.Raise{Read: 4}, at(3))
		f.eventually("total", func() any { return f.unreadOf(bob) }, storage.UnreadTotal{
			Unread: storage.Unread{Messages: 7, Mentions: 1}, Chats: 2,
		})
		f.eventually("total of the author", func() any { return f.unreadOf(alice) },
			storage.UnreadTotal{})
	}},
	{"MarkUnread_lowers_the_count_and_no_watermark", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		f.send(c, bob, 2)
		f.send(c, alice, 3)
		f.raise(bob, c, tidemark.Raise{Acked: 7, Read: 7}, at(3))
		before := f.state(bob, c)
		for _, test := range []struct {
			from   tidemark.Sequence
			unread int64
		}{{7, 2}, {2, 5}, {4, 3}, {5, 3}, {6, 3}, {1, 6}, {8, 1}, {3, 4}, {0, 1}, {4, 3}} {
			want := before
			if want.UnreadFrom = test.from; test.from == 8 {
				want.UnreadFrom = 0 // It is not read.
			}
			got, err := f.store.MarkUnread(f.ctx, bob, c, test.from)
			f.ok(err)
			f.equal("state", got, want)
			f.equal("state, read again", f.state(bob, c), want)
			f.eventually("unread", func() any { return f.unread(bob, c).Messages }, test.unread)
		}
		// A raise that moves only the other watermark, or none, leaves the mark. A newer read ends
		// it.
		f.equal("moved", f.raise(bob, c, tidemark.Raise{Read: 7}, at(4)).Moved, false)
		f.equal("mark after the same read", f.state(bob, c).UnreadFrom, tidemark.Sequence(4))
		f.equal("acknowledgement ends it",
			f.raise(bob, c, tidemark.Raise{Acked: 8}, at(5)).Unmarked, false)
		f.equal("read ends it", f.raise(bob, c, tidemark.Raise{Read: 8}, at(5)).Unmarked, true)
		f.equal("mark after a newer read", f.state(bob, c).UnreadFrom, tidemark.Sequence(0))
		f.eventually("unread", func() any { return f.unread(bob, c).Messages }, int64(0))
	}},
	{"MarkUnread_of_what_was_never_read_changes_nothing", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 3)
		got, err := f.store.MarkUnread(f.ctx, bob, c, 2)
		f.ok(err)
		f.equal("state", got, tidemark.DeliveryState{UserID: bob, ChatID: c})
		f.equal("unread", f.unread(bob, c).Messages, int64(3))
		_, err = f.store.MarkUnread(f.ctx, bob, c, 4)
		f.code(err, tidemark.InvalidSequence)
		_, err = f.store.MarkUnread(f.ctx, bob, f.chat("none"), 1)
		f.code(err, tidemark.NotFound)
	}},
}

// ownNeverCount lets two members send in turns and read to many places.
func (f *fixture) ownNeverCount(c tidemark.ChatID, alice, bob tidemark.UserID) {
	f.Helper()
	// Each reads to the middle of the other's run, in the middle of their own runs, and to the end
	// of one.
	for range 3 {
		f.send(c, alice, 4)
		f.send(c, bob, 3)
	}
	for _, test := range []struct {
		read       tidemark.Sequence
		alice, bob int64
	}{{0, 9, 12}, {2, 9, 10}, {4, 9, 8}, {5, 8, 8}, {7, 6, 8}, {8, 6, 7}, {21, 0, 0}} {
		f.raise(alice, c, tidemark.Raise{Read: test.read}, at(3))
		f.raise(bob, c, tidemark.Raise{Read: test.read}, at(3))
		f.eventually("alice", func() any { return f.unread(alice, c).Messages }, test.alice)
		f.eventually("bob", func() any { return f.unread(bob, c).Messages }, test.bob)
	}
}

// sendAndRead lets the devices of users send, read, and mark as unread at once. Then it compares
// the counts of the users with the messages.
func (f *fixture) sendAndRead(c tidemark.ChatID, users, devices []tidemark.UserID) {
	f.Helper()
	f.ok(concurrently(len(devices), func(i int) error {
		random := rand.New(rand.NewPCG(3, uint64(i))) //nolint:gosec // As above.
		head := tidemark.Sequence(0)
		for range 12 {
			draft := f.someDraft(c, devices[i], random)
			if err := retry(func() error {
				sent, err := storage.AppendOne(f.ctx, f.store, draft)
				head = max(head, sent.Message.Sequence)
				return err
			}); err != nil {
				return err
			}
			raise := storage.Advance{User: devices[i], Chat: c, Now: at(1), Raise: tidemark.Raise{
				Read: 1 + tidemark.Sequence(random.Uint64N(uint64(head))),
			}}
			err := retry(func() error {
				_, err := f.store.Advance(f.ctx, []storage.Advance{raise})
				return err
			})
			if err == nil && random.IntN(4) == 0 {
				err = retry(func() error {
					_, err := f.store.MarkUnread(f.ctx, devices[i], c, raise.Read/2)
					return err
				})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	f.checkUnread(c, users)
}

// someDraft returns a draft of any kind that may name all.
func (f *fixture) someDraft(
	chat tidemark.ChatID, sender tidemark.UserID, random *rand.Rand,
) tidemark.Draft {
	d := f.draft(chat, sender, "x")
	if random.IntN(5) == 0 {
		d.Kind = tidemark.KindSystem
	}
	d.Mentions.All = random.IntN(5) == 0
	return d
}

// checkUnread compares the counts of users in a chat with the messages.
func (f *fixture) checkUnread(chat tidemark.ChatID, users []tidemark.UserID) {
	f.Helper()
	messages := f.messages(storage.Range{Chat: chat})
	for _, user := range users {
		state, want := f.state(user, chat), storage.Unread{}
		for _, m := range messages {
			if m.Sequence > state.UnreadAfter() && m.Kind.Counts() && m.SenderID != user {
				want.Messages++
				if m.Mentions.Name(user) {
					want.Mentions++
				}
			}
		}
		f.eventually("unread of "+string(user),
			func() any { return f.unread(user, chat) }, want)
	}
}

func (f *fixture) unread(user tidemark.UserID, chat tidemark.ChatID) storage.Unread {
	f.Helper()
	counts, err := f.store.Unread(f.ctx, []storage.StateKey{{User: user, Chat: chat}})
	f.ok(err)
	f.equal("number of counts", len(counts), 1)
	return counts[0]
}

func (f *fixture) unreadOf(user tidemark.UserID) storage.UnreadTotal {
	f.Helper()
	total, err := f.store.UnreadOf(f.ctx, user)
	f.ok(err)
	return total
}
