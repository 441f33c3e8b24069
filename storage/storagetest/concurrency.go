package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// racers is how many calls run at once.
const racers = 64

var concurrencyRules = []rule{
	{"Append_sequence_gapless_in_one_chat", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.appendConcurrently(func(int) tidemark.ChatID { return c }, alice)
		w.gapless(c, racers*4)
	}},
	{"Append_sequence_gapless_in_many_chats", func(w *world) {
		alice := w.user("alice")
		chats := make([]tidemark.ChatID, 8)
		for i := range chats {
			chats[i] = w.group(fmt.Sprint("c", i), alice)
		}
		w.appendConcurrently(func(i int) tidemark.ChatID { return chats[i%len(chats)] }, alice)
		for _, c := range chats {
			w.gapless(c, racers*4/len(chats))
		}
	}},
	{"Append_a_refused_message_among_others_fails_alone", func(w *world) {
		alice, stranger := w.user("alice"), w.user("stranger")
		c := w.group("c", alice)
		w.ok(concurrently(racers, func(i int) error {
			chat, sender, want := c, alice, tidemark.Code("")
			switch i % 4 {
			case 1:
				sender, want = stranger, tidemark.NotMember
			case 2:
				chat, want = w.chat("none"), tidemark.NotFound
			}
			_, err := storage.AppendOne(w.ctx, w.store, w.draft(chat, sender, "hello"))
			return expect(err, want)
		}))
		w.gapless(c, racers/2)
	}},
	{"Append_send_idempotent_with_racing_equal_keys", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		const keys = 8
		drafts := make([]tidemark.Draft, keys)
		for i := range drafts {
			drafts[i] = w.draft(c, alice, "hello")
		}
		results := make([]storage.Appended, racers)
		w.ok(concurrently(racers, func(i int) (err error) {
			draft := drafts[i%keys]
			draft.MessageID = tidemark.MessageID(fmt.Sprintf("%s-%d", draft.MessageID, i))
			results[i], err = storage.AppendOne(w.ctx, w.store, draft)
			return err
		}))
		w.gapless(c, keys)
		firsts := 0
		for i, r := range results {
			if !r.Duplicate {
				firsts++
			}
			w.equal("the message of every send of a key", r.Message, results[i%keys].Message)
		}
		w.equal("sends that are no duplicate", firsts, keys)
	}},
	{"Append_send_idempotent_with_racing_conflicts", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		draft := w.draft(c, alice, "")
		var mu sync.Mutex
		stored := map[string]int{}
		w.ok(concurrently(racers, func(i int) error {
			own := draft
			own.Content = fmt.Sprint("version ", i%2)
			appended, err := storage.AppendOne(w.ctx, w.store, own)
			if tidemark.CodeOf(err) == tidemark.Conflict {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			stored[appended.Message.Content]++
			return err
		}))
		w.gapless(c, 1)
		w.equal("sends of the stored content", stored, map[string]int{
			w.messages(storage.Range{Chat: c})[0].Content: racers / 2,
		})
	}},
	{"Append_races_with_RemoveMember", testAppendWhileMembersChange},
	{"AddMembers_and_RemoveMember_count_every_change_once", func(w *world) {
		users := w.many(racers)
		c := w.group("c", w.user("alice"))
		versions := make([]uint64, racers)
		w.ok(concurrently(racers, func(i int) error {
			added, err := w.store.AddMembers(w.ctx, c, users[i:i+1], at(1))
			versions[i] = added.Version
			return err
		}))
		slices.Sort(versions)
		for i, v := range versions {
			w.equal("version", v, uint64(i+2))
		}
		w.ok(concurrently(racers, func(i int) error {
			_, err := w.store.RemoveMember(w.ctx, c, users[i/2], at(1))
			if tidemark.CodeOf(err) == tidemark.NotMember {
				return nil // The other one of the pair was first.
			}
			return err
		}))
		chat := w.info(c)
		w.equal("members", chat.MemberCount, 1+racers/2)
		w.equal("version", chat.MembersVersion, uint64(1+racers+racers/2))
		w.equal("roster", len(w.roster(c).Members), 1+racers/2)
	}},
	{"CreateChat_racing_for_one_pair_or_id_makes_one", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		results := make([]tidemark.Chat, racers)
		created := make([]bool, racers)
		taken := make([]bool, racers)
		w.ok(concurrently(racers, func(i int) (err error) {
			new := storage.NewChat{
				ID:        w.chat(fmt.Sprint("d", i)),
				Type:      tidemark.Direct,
				History:   tidemark.HistoryFull,
				CreatedAt: at(1),
				Creator:   alice,
				Members:   []tidemark.UserID{alice, bob},
			}
			if i%2 == 1 {
				slices.Reverse(new.Members)
			}
			if results[i], created[i], err = w.store.CreateChat(w.ctx, new); err != nil {
				return err
			}
			new.ID, new.Type = w.chat("g"), tidemark.Group
			_, _, err = w.store.CreateChat(w.ctx, new)
			taken[i] = tidemark.CodeOf(err) == tidemark.Conflict
			if taken[i] {
				return nil
			}
			return err
		}))
		for _, chat := range results {
			w.equal("direct chat", chat, results[0])
		}
		w.equal("created", countTrue(created), 1)
		w.equal("refused groups", countTrue(taken), racers-1)
	}},
	{"Advance_watermark_monotonic_and_multi_device_highest_wins", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		const head = 40
		w.flood(c, alice, head)
		moved := make([]int, racers)
		w.ok(concurrently(racers, func(i int) error {
			for n := range 10 {
				sequence := tidemark.Sequence(1 + (i*7+n*13)%(head+4))
				got, err := w.store.Advance(w.ctx, []storage.Advance{
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
			w.Errorf("%d raises report a move, want 1 to %d", total, head+head/2)
		}
		w.equal("state",
			w.state(alice, c).Exposed(), tidemark.Boundary{Acked: head, Read: head / 2})
	}},
	{"Advance_watermark_bounded_by_counter_while_it_grows", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.ok(concurrently(racers, func(i int) error {
			appended, err := storage.AppendOne(w.ctx, w.store, w.draft(c, alice, "hello"))
			if err != nil {
				return err
			}
			n := appended.Message.Sequence
			got, err := w.store.Advance(w.ctx, []storage.Advance{
				{User: alice, Chat: c, Raise: tidemark.Raise{Acked: n}, Now: at(i)},
			})
			if err != nil {
				return err
			}
			return got[0].Err // What was appended is within the head.
		}))
		w.equal("acked", w.state(alice, c).Acked, tidemark.Watermark(racers))
	}},
	{"Mark_pending_once_and_one_write", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		written := make([]bool, racers)
		w.ok(concurrently(racers, func(i int) error {
			got, err := w.store.Mark(w.ctx, []tidemark.PendingDelivery{
				{UserID: alice, ChatID: c, FirstUndelivered: 3},
			})
			written[i] = err == nil && got[0]
			return err
		}))
		w.equal("written", countTrue(written), 1)
		w.equal("pending", w.pending(alice), first{c: 3})
		w.ok(concurrently(racers, func(i int) error {
			row := tidemark.PendingDelivery{
				UserID:           w.user("bob"),
				ChatID:           c,
				FirstUndelivered: tidemark.Sequence(racers - i),
			}
			_, err := w.store.Mark(w.ctx, []tidemark.PendingDelivery{row})
			return err
		}))
		w.equal("pending of bob", w.pending(w.user("bob")), first{c: 1})
	}},
	{"Clear_R_CLEAR_never_loses_what_is_appended_meanwhile", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		for range 16 {
			w.send(c, alice, 1)
			head := w.info(c).Head
			w.mark(bob, c, head)
			// A message arrives: it is appended, and marked because bob is away. Meanwhile he acknowledges what he has.
			w.ok(concurrently(3, func(i int) error {
				if i == 0 {
					_, err := w.store.Clear(w.ctx, []storage.Clear{
						{User: bob, Chat: c, Through: head},
					})
					return err
				}
				appended, err := storage.AppendOne(w.ctx, w.store, w.draft(c, alice, "hello"))
				if err != nil {
					return err
				}
				_, err = w.store.Mark(w.ctx, []tidemark.PendingDelivery{
					{UserID: bob, ChatID: c, FirstUndelivered: appended.Message.Sequence},
				})
				return err
			}))
			if stands, found := w.pending(bob)[c]; !found || stands > head+1 {
				w.Fatalf("got pending %d (found %v) after messages up to %d, of which bob has %d",
					stands, found, head+2, head)
			}
			w.clear(bob, c, head+2)
			w.equal("pending", w.pending(bob), nil)
		}
	}},
	{"reads_beside_writes_see_whole_steps", func(w *world) {
		alice := w.user("alice")
		c := w.group("c", alice)
		w.ok(concurrently(16, func(i int) error {
			for range 8 {
				if i < 8 {
					if _, err := storage.AppendOne(w.ctx, w.store, w.draft(c, alice, "hello")); err != nil {
						return err
					}
					continue
				}
				heads, err := w.store.Heads(w.ctx, []tidemark.ChatID{c})
				if err != nil {
					return err
				}
				messages, err := w.read(storage.Range{Chat: c, Limit: 1_000})
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
		w.gapless(c, 64)
	}},
}

// testAppendWhileMembersChange lets bob come and go while he and alice send. Every change of the membership says at
// which head and version it took effect, so that the versions of all messages are known, and who could send which.
func testAppendWhileMembersChange(w *world) {
	alice, bob := w.user("alice"), w.user("bob")
	c := w.group("c", alice, bob)
	type change struct {
		version uint64
		head    tidemark.Sequence
	}
	var changes []change // Of the one goroutine that makes them.
	var mu sync.Mutex
	answers := map[tidemark.Sequence]storage.Appended{}
	w.ok(concurrently(1+racers/2, func(i int) error {
		if i == 0 {
			for n := range 20 {
				if n%2 == 0 {
					removed, err := w.store.RemoveMember(w.ctx, c, bob, at(n))
					if err != nil {
						return err
					}
					changes = append(changes, change{removed.Version, removed.Head})
					continue
				}
				added, err := w.store.AddMembers(w.ctx, c, []tidemark.UserID{bob}, at(n))
				if err != nil {
					return err
				}
				changes = append(changes, change{added.Version, added.Head})
			}
			return nil
		}
		for range 6 {
			sender := []tidemark.UserID{alice, bob}[i%2]
			appended, err := storage.AppendOne(w.ctx, w.store, w.draft(c, sender, "hello"))
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
	messages := w.messages(storage.Range{Chat: c})
	w.gapless(c, len(answers))
	for i, ch := range changes {
		w.equal("version of a change", ch.version, uint64(i+2))
	}
	for _, m := range messages {
		version := uint64(1)
		for _, ch := range changes {
			if ch.head < m.Sequence {
				version = ch.version
			}
		}
		w.equal("answer", answers[m.Sequence], storage.Appended{Message: m, Version: version})
		w.equal("members version of the message", m.MembersVersion, version)
		if m.SenderID == bob && version%2 == 0 {
			w.Errorf("message %d is of bob, who was no member at version %d", m.Sequence, version)
		}
	}
}

// appendConcurrently sends 4 messages from each of the racers.
func (w *world) appendConcurrently(chat func(i int) tidemark.ChatID, sender tidemark.UserID) {
	w.Helper()
	w.ok(concurrently(racers, func(i int) error {
		before := tidemark.Sequence(0)
		for range 4 {
			draft := w.draft(chat(i), sender, "hello")
			appended, err := storage.AppendOne(w.ctx, w.store, draft)
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

// gapless checks that the messages of a chat are exactly 1..n, and n its head.
func (w *world) gapless(chat tidemark.ChatID, n int) {
	w.Helper()
	messages := w.messages(storage.Range{Chat: chat, Limit: n + 10})
	w.equal("number of messages", len(messages), n)
	seen := map[tidemark.MessageID]bool{}
	for i, m := range messages {
		w.equal("sequence", m.Sequence, tidemark.Sequence(i+1))
		if seen[m.MessageID] {
			w.Errorf("message %s is there twice", m.MessageID)
		}
		seen[m.MessageID] = true
	}
	w.equal("head", w.info(chat).Head, tidemark.Sequence(n))
}

// expect returns an error unless err has the code.
func expect(err error, want tidemark.Code) error {
	if got := tidemark.CodeOf(err); got != want {
		return fmt.Errorf("got error %v with code %q, want code %q", err, got, want)
	}
	return nil
}
