package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// racers is the number of concurrent calls.
const racers = 64

var concurrencyRules = []rule{
	{"Append_sequence_gapless_in_one_chat", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.appendConcurrently(func(int) tidemark.ChatID { return c }, alice)
		f.gapless(c, racers*4)
	}},
	{"Append_sequence_gapless_in_many_chats", func(f *fixture) {
		alice := f.user("alice")
		chats := make([]tidemark.ChatID, 8)
		for i := range chats {
			chats[i] = f.group(fmt.Sprint("c", i), alice)
		}
		f.appendConcurrently(func(i int) tidemark.ChatID { return chats[i%len(chats)] }, alice)
		for _, c := range chats {
			f.gapless(c, racers*4/len(chats))
		}
	}},
	{"Append_a_refused_message_among_others_fails_alone", func(f *fixture) {
		alice, stranger := f.user("alice"), f.user("stranger")
		c := f.group("c", alice)
		f.ok(concurrently(racers, func(i int) error {
			chat, sender, want := c, alice, tidemark.Code("")
			switch i % 4 {
			case 1:
				sender, want = stranger, tidemark.NotMember
			case 2:
				chat, want = f.chat("none"), tidemark.NotFound
			}
			_, err := storage.AppendOne(f.ctx, f.store, f.draft(chat, sender, "hello"))
			return expect(err, want)
		}))
		f.gapless(c, racers/2)
	}},
	{"Append_send_idempotent_with_racing_equal_keys", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		const keys = 8
		drafts := make([]tidemark.Draft, keys)
		for i := range drafts {
			drafts[i] = f.draft(c, alice, "hello")
		}
		results := make([]storage.Appended, racers)
		f.ok(concurrently(racers, func(i int) (err error) {
			draft := drafts[i%keys]
			draft.MessageID = tidemark.MessageID(fmt.Sprintf("%s-%d", draft.MessageID, i))
			results[i], err = storage.AppendOne(f.ctx, f.store, draft)
			return err
		}))
		f.gapless(c, keys)
		firsts := 0
		for i, r := range results {
			if !r.Duplicate {
				firsts++
			}
			f.equal("the message of every send of a key", r.Message, results[i%keys].Message)
		}
		f.equal("sends that are no duplicate", firsts, keys)
	}},
	{"Append_send_idempotent_with_racing_conflicts", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		draft := f.draft(c, alice, "")
		var mu sync.Mutex
		stored := map[string]int{}
		f.ok(concurrently(racers, func(i int) error {
			own := draft
			own.Content = fmt.Sprint("version ", i%2)
			appended, err := storage.AppendOne(f.ctx, f.store, own)
			if tidemark.CodeOf(err) == tidemark.Conflict {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			stored[appended.Message.Content]++
			return err
		}))
		f.gapless(c, 1)
		f.equal("sends of the stored content", stored, map[string]int{
			f.messages(storage.Range{Chat: c})[0].Content: racers / 2,
		})
	}},
	{"Append_races_with_RemoveMember", testAppendWhileMembersChange},
	{"AddMembers_and_RemoveMember_count_every_change_once", func(f *fixture) {
		users := f.many(racers)
		c := f.group("c", f.user("alice"))
		versions := make([]uint64, racers)
		f.ok(concurrently(racers, func(i int) error {
			added, err := f.store.AddMembers(f.ctx, c, users[i:i+1], tidemark.Ordinary, at(1))
			versions[i] = added.Version
			return err
		}))
		slices.Sort(versions)
		for i, v := range versions {
			f.equal("version", v, uint64(i+2))
		}
		f.ok(concurrently(racers, func(i int) error {
			_, err := f.store.RemoveMember(f.ctx, c, users[i/2], at(1))
			if tidemark.CodeOf(err) == tidemark.NotMember {
				return nil // the other call of the pair was first
			}
			return err
		}))
		chat := f.info(c)
		f.equal("members", chat.MemberCount, 1+racers/2)
		f.equal("version", chat.MembersVersion, uint64(1+racers+racers/2))
		f.equal("roster", len(f.roster(c).Members), 1+racers/2)
	}},
	{"CreateChat_racing_for_one_pair_or_id_makes_one", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		results := make([]tidemark.Chat, racers)
		created := make([]bool, racers)
		taken := make([]bool, racers)
		f.ok(concurrently(racers, func(i int) (err error) {
			new := storage.NewChat{
				ID:        f.chat(fmt.Sprint("d", i)),
				Type:      tidemark.Direct,
				History:   tidemark.HistoryFull,
				CreatedAt: at(1),
				Creator:   alice,
				Members:   []tidemark.UserID{alice, bob},
			}
			if i%2 == 1 {
				slices.Reverse(new.Members)
			}
			if results[i], created[i], err = f.store.CreateChat(f.ctx, new); err != nil {
				return err
			}
			new.ID, new.Type = f.chat("g"), tidemark.Group
			_, _, err = f.store.CreateChat(f.ctx, new)
			taken[i] = tidemark.CodeOf(err) == tidemark.Conflict
			if taken[i] {
				return nil
			}
			return err
		}))
		for _, chat := range results {
			f.equal("direct chat", chat, results[0])
		}
		f.equal("created", countTrue(created), 1)
		f.equal("refused groups", countTrue(taken), racers-1)
	}},
	{"Advance_watermark_monotonic_and_multi_device_highest_wins", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		const head = 40
		f.flood(c, alice, head)
		moved := make([]int, racers)
		f.ok(concurrently(racers, func(i int) error {
			for n := range 10 {
				sequence := tidemark.Sequence(1 + (i*7+n*13)%(head+4))
				got, err := f.store.Advance(f.ctx, []storage.Advance{
					{
						User:  alice,
						Chat:  c,
						Raise: tidemark.Raise{Acked: sequence, Read: sequence / 2},
						Now:   at(n),
					},
				})
				if err != nil {
					return err
				}
				if sequence > head {
					if err := expect(got[0].Err, tidemark.InvalidSequence); err != nil {
						return err
					}
					continue
				}
				if s := got[0].State; s.Acked < sequence || s.Read < sequence/2 || s.Acked > head {
					return fmt.Errorf("got state %+v after a raise to %d, head %d",
						s, sequence, head)
				}
				if got[0].Moved {
					moved[i]++
				}
			}
			return nil
		}))
		total := 0
		for _, n := range moved {
			total += n
		}
		if total == 0 || total > head+head/2 {
			f.Errorf("%d raises report a move, want 1 to %d", total, head+head/2)
		}
		f.equal("state", marks(f.state(alice, c).Exposed()),
			tidemark.Boundary{Acked: head, Read: head / 2})
	}},
	{"Advance_watermark_bounded_by_counter_while_it_grows", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.ok(concurrently(racers, func(i int) error {
			appended, err := storage.AppendOne(f.ctx, f.store, f.draft(c, alice, "hello"))
			if err != nil {
				return err
			}
			n := appended.Message.Sequence
			got, err := f.store.Advance(f.ctx, []storage.Advance{
				{User: alice, Chat: c, Raise: tidemark.Raise{Acked: n}, Now: at(i)},
			})
			if err != nil {
				return err
			}
			return got[0].Err // the head is at least n
		}))
		f.equal("acked", f.state(alice, c).Acked, tidemark.Watermark(racers))
	}},
	{"Mark_pending_once_and_one_write", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		written := make([]bool, racers)
		f.ok(concurrently(racers, func(i int) error {
			got, err := f.store.Mark(f.ctx, []tidemark.PendingDelivery{
				{UserID: alice, ChatID: c, FirstUndelivered: 3},
			})
			written[i] = err == nil && got[0]
			return err
		}))
		f.equal("written", countTrue(written), 1)
		f.equal("pending", f.pending(alice), first{c: 3})
		f.ok(concurrently(racers, func(i int) error {
			row := tidemark.PendingDelivery{
				UserID:           f.user("bob"),
				ChatID:           c,
				FirstUndelivered: tidemark.Sequence(racers - i),
			}
			_, err := f.store.Mark(f.ctx, []tidemark.PendingDelivery{row})
			return err
		}))
		f.equal("pending of bob", f.pending(f.user("bob")), first{c: 1})
	}},
	{"Clear_R_CLEAR_never_loses_what_is_appended_meanwhile", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		for range 16 {
			f.send(c, alice, 1)
			head := f.info(c).Head
			f.mark(bob, c, head)
			// Two messages are appended, and marked because bob is away. Meanwhile bob acknowledges
			// the earlier ones.
			f.ok(concurrently(3, func(i int) error {
				if i == 0 {
					_, err := f.store.Clear(f.ctx, []storage.Clear{
						{User: bob, Chat: c, Through: head},
					})
					return err
				}
				appended, err := storage.AppendOne(f.ctx, f.store, f.draft(c, alice, "hello"))
				if err != nil {
					return err
				}
				_, err = f.store.Mark(f.ctx, []tidemark.PendingDelivery{
					{UserID: bob, ChatID: c, FirstUndelivered: appended.Message.Sequence},
				})
				return err
			}))
			if stands, found := f.pending(bob)[c]; !found || stands > head+1 {
				f.Fatalf("got pending %d (found %v) after messages up to %d, of which bob has %d",
					stands, found, head+2, head)
			}
			f.clear(bob, c, head+2)
			f.equal("pending", f.pending(bob), nil)
		}
	}},
	{"reads_beside_writes_see_whole_steps", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.ok(concurrently(16, func(i int) error {
			for range 8 {
				if i < 8 {
					_, err := storage.AppendOne(f.ctx, f.store, f.draft(c, alice, "hello"))
					if err != nil {
						return err
					}
					continue
				}
				heads, err := f.store.Heads(f.ctx, []tidemark.ChatID{c})
				if err != nil {
					return err
				}
				messages, err := f.read(storage.Range{Chat: c, Limit: 1_000})
				if err != nil {
					return err
				}
				if tidemark.Sequence(len(messages)) < heads[0] {
					return fmt.Errorf("got %d messages of a chat whose head was %d",
						len(messages), heads[0])
				}
			}
			return nil
		}))
		f.gapless(c, 64)
	}},
}

// testAppendWhileMembersChange removes and adds bob while bob and alice send. Each change returns
// the head and version at which it took effect. So the test knows the version of each message, and
// who could send it.
func testAppendWhileMembersChange(f *fixture) {
	alice, bob := f.user("alice"), f.user("bob")
	c := f.group("c", alice, bob)
	type change struct {
		version uint64
		head    tidemark.Sequence
	}
	var changes []change // written by one goroutine
	var mu sync.Mutex
	answers := map[tidemark.Sequence]storage.Appended{}
	f.ok(concurrently(1+racers/2, func(i int) error {
		if i == 0 {
			for n := range 20 {
				if n%2 == 0 {
					removed, err := f.store.RemoveMember(f.ctx, c, bob, at(n))
					if err != nil {
						return err
					}
					changes = append(changes, change{removed.Version, removed.Head})
					continue
				}
				added, err := f.store.AddMembers(f.ctx, c, []tidemark.UserID{bob},
					tidemark.Ordinary, at(n))
				if err != nil {
					return err
				}
				changes = append(changes, change{added.Version, added.Head})
			}
			return nil
		}
		for range 6 {
			sender := []tidemark.UserID{alice, bob}[i%2]
			appended, err := f.tryAppend(f.draft(c, sender, "hello"))
			if sender == bob && tidemark.CodeOf(err) == tidemark.NotMember {
				continue
			}
			if err != nil {
				return err
			}
			mu.Lock()
			answers[appended.Message.Sequence] = appended
			mu.Unlock()
		}
		return nil
	}))
	messages := f.messages(storage.Range{Chat: c})
	f.gapless(c, len(answers))
	for i, ch := range changes {
		f.equal("version of a change", ch.version, uint64(i+2))
	}
	for _, m := range messages {
		version := uint64(1)
		for _, ch := range changes {
			if ch.head < m.Sequence {
				version = ch.version
			}
		}
		f.equal("answer", answers[m.Sequence], storage.Appended{Message: m, Version: version})
		f.equal("members version of the message", m.MembersVersion, version)
		if m.SenderID == bob && version%2 == 0 {
			f.Errorf("message %d is of bob, who was no member at version %d", m.Sequence, version)
		}
	}
}

// appendConcurrently sends 4 messages from each of the racers.
func (f *fixture) appendConcurrently(chat func(i int) tidemark.ChatID, sender tidemark.UserID) {
	f.Helper()
	f.ok(concurrently(racers, func(i int) error {
		before := tidemark.Sequence(0)
		for range 4 {
			draft := f.draft(chat(i), sender, "hello")
			appended, err := storage.AppendOne(f.ctx, f.store, draft)
			switch {
			case err != nil:
				return err
			case appended.Message.Sequence <= before:
				return fmt.Errorf("got sequence %d after %d", appended.Message.Sequence, before)
			case appended.Message.MessageID != draft.MessageID || appended.Duplicate:
				return errors.New("got another message back than was sent")
			}
			before = appended.Message.Sequence
		}
		return nil
	}))
}

// gapless checks that the messages of a chat are exactly 1..n, and that its head is n.
func (f *fixture) gapless(chat tidemark.ChatID, n int) {
	f.Helper()
	info := f.whole(chat)
	f.equal("floor", info.Floor, tidemark.Sequence(1))
	f.equal("head", info.Head, tidemark.Sequence(n))
}

// whole checks that a chat has exactly the messages from its floor to its head, each once, and
// returns the chat.
func (f *fixture) whole(chat tidemark.ChatID) tidemark.Chat {
	f.Helper()
	info := f.info(chat)
	n := int(info.Head + 1 - info.Floor)
	messages := f.messages(storage.Range{Chat: chat, Limit: n + 10})
	f.equal("number of messages", len(messages), n)
	seen := map[tidemark.MessageID]bool{}
	for i, m := range messages {
		f.equal("sequence", m.Sequence, info.Floor+tidemark.Sequence(i))
		if seen[m.MessageID] {
			f.Errorf("message %s is there twice", m.MessageID)
		}
		seen[m.MessageID] = true
	}
	return info
}

// expect returns an error unless err has the code.
func expect(err error, want tidemark.Code) error {
	if got := tidemark.CodeOf(err); got != want {
		return fmt.Errorf("got error %v with code %q, want code %q", err, got, want)
	}
	return nil
}
