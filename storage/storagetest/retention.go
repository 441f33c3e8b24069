package storagetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// said appends messages of a sender that were created at times, in this order.
func (f *fixture) said(c tidemark.ChatID, sender tidemark.UserID, times ...int) {
	f.Helper()
	for _, n := range times {
		d := f.draft(c, sender, fmt.Sprint("said at ", n))
		d.CreatedAt = at(n)
		f.append(d)
	}
}

// expires lets messages of a chat expire, and checks the floor and the number of those that did.
func (f *fixture) expires(
	c tidemark.ChatID, before time.Time, limit int, floor tidemark.Sequence, removed int,
) {
	f.Helper()
	got, err := f.store.Expire(f.ctx, c, before, limit)
	f.ok(err)
	f.equal("expired", got, storage.Expired{Floor: floor, Removed: removed})
	f.equal("floor of the chat", f.whole(c).Floor, floor)
	f.equal("floor of the roster", f.roster(c).Floor, floor)
}

var retentionRules = []rule{
	{"Expire_removes_the_first_messages_that_are_old", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.equal("first floor", f.info(c).Floor, tidemark.Sequence(1))
		f.said(c, alice, 1, 2, 3, 4, 5)
		f.expires(c, at(1), 10, 1, 0) // none is older
		f.expires(c, at(4), 10, 4, 3)
		f.equal("head", f.info(c).Head, tidemark.Sequence(5))
		f.expires(c, at(4), 10, 4, 0)
	}},
	{"Expire_stops_at_the_first_younger_message", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.said(c, alice, 1, 9, 2, 3)
		f.expires(c, at(5), 10, 2, 1)
		f.expires(c, at(10), 10, 5, 3)
	}},
	{"Expire_removes_at_most_the_limit_and_goes_on", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.said(c, alice, 1, 1, 1, 1, 1)
		f.expires(c, at(2), 2, 3, 2)
		f.expires(c, at(2), 2, 5, 2)
		f.expires(c, at(2), 2, 6, 1)
		f.expires(c, at(2), 2, 6, 0)
	}},
	{"Expire_floor_never_falls", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.said(c, alice, 1, 2, 3)
		f.expires(c, at(3), 10, 3, 2)
		f.expires(c, at(1), 10, 3, 0)
	}},
	{"Expire_leaves_an_empty_chat_in_which_the_sequences_go_on", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.said(c, alice, 1, 2, 3)
		f.expires(c, at(9), 10, 4, 3)
		f.eventually("list", func() any {
			item := f.chatsOf(bob, 5)[0]
			return []any{item.Last, item.Activity, item.Unread}
		}, []any{(*tidemark.Message)(nil), at(3), storage.Unread{}})
		f.equal("range", len(f.messages(storage.Range{Chat: c})), 0)
		f.equal("range upwards", len(f.messages(storage.Range{Chat: c, Before: 4})), 0)
		f.said(c, alice, 10)
		f.equal("next message", f.one(c, 4).Content, "said at 10")
		f.eventually("unread", func() any { return f.unread(bob, c) },
			storage.Unread{Messages: 1})
	}},
	{"Ranges_begin_at_the_floor", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.said(c, alice, 1, 2, 3, 4, 5, 6)
		f.expires(c, at(4), 10, 4, 3)
		for _, one := range []struct {
			asked storage.Range
			want  []tidemark.Sequence
		}{
			{storage.Range{}, []tidemark.Sequence{4, 5, 6}},
			{storage.Range{After: 1, Limit: 1}, []tidemark.Sequence{4}},
			{storage.Range{After: 3, Limit: 2}, []tidemark.Sequence{4, 5}},
			{storage.Range{After: 4}, []tidemark.Sequence{5, 6}},
			{storage.Range{Before: 6}, []tidemark.Sequence{4, 5}},
			{storage.Range{Before: 6, Limit: 1}, []tidemark.Sequence{5}},
			{storage.Range{After: 2, Before: 7, Limit: 9}, []tidemark.Sequence{4, 5, 6}},
			{storage.Range{Before: 4}, nil},
			{storage.Range{Before: 2}, nil},
		} {
			one.asked.Chat = c
			var got []tidemark.Sequence
			for _, m := range f.messages(one.asked) {
				got = append(got, m.Sequence)
			}
			f.equal(fmt.Sprintf("%+v", one.asked), got, one.want)
		}
	}},
	{"Append_nothing_can_be_said_about_what_has_expired", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.said(c, alice, 1, 2)
		edit := f.edit(c, alice, 1, "edited")
		edit.CreatedAt = at(7)
		f.append(edit)
		f.expires(c, at(5), 10, 3, 2)
		got := f.one(c, 3)
		f.equal("relation", got.Relation, &tidemark.Relation{Sequence: 1})
		again := f.append(edit)
		f.equal("duplicate", again.Duplicate, true)
		f.equal("relation of the duplicate", again.Message.Relation,
			&tidemark.Relation{Sequence: 1})
		sent, found, err := f.store.Sent(f.ctx, storage.SendKeyOf(&edit))
		f.ok(err)
		f.equal("found", found, true)
		f.equal("relation under the key", sent.Message.Relation, &tidemark.Relation{Sequence: 1})
		for _, target := range []tidemark.Sequence{1, 2} {
			for _, d := range []tidemark.Draft{
				f.edit(c, alice, target, "again"), f.redact(c, alice, target),
			} {
				_, err := storage.AppendOne(f.ctx, f.store, d)
				f.code(err, tidemark.NotFound)
			}
		}
		f.equal("head", f.info(c).Head, tidemark.Sequence(3))
	}},
	{"Append_the_key_of_what_has_expired_is_forgotten", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		old, kept := f.draft(c, alice, "old"), f.draft(c, alice, "kept")
		old.CreatedAt, kept.CreatedAt = at(1), at(8)
		f.append(old)
		f.append(kept)
		f.expires(c, at(5), 10, 2, 1)
		_, found, err := f.store.Sent(f.ctx, storage.SendKeyOf(&old))
		f.ok(err)
		f.equal("found", found, false)
		old.Content = "another text"
		appended := f.append(old)
		f.equal("duplicate", appended.Duplicate, false)
		f.equal("sequence", appended.Message.Sequence, tidemark.Sequence(3))
		f.equal("kept", f.append(kept).Duplicate, true)
		f.whole(c)
	}},
	{"Unread_counts_nothing_that_has_expired", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		// Messages 1, 4, 7 and so on are of bob.
		for name, read := range map[string]tidemark.Sequence{"at": 5, "above": 8, "below": 2} {
			c := f.group(name, alice, bob)
			for n := range 15 {
				f.said(c, []tidemark.UserID{bob, alice, alice}[n%3], n)
			}
			f.raise(bob, c, tidemark.Raise{Read: read}, at(20))
			want := func() int64 {
				sum := int64(0)
				for n := max(read+1, f.info(c).Floor); n <= 15; n++ {
					if n%3 != 1 {
						sum++
					}
				}
				return sum
			}
			for floor := tidemark.Sequence(3); floor <= 13; floor += 2 {
				f.expires(c, at(int(floor)-1), 10, floor, 2)
				f.eventually(fmt.Sprint(name, " ", floor),
					func() any { return f.unread(bob, c).Messages }, want())
				if floor == 9 { // further marks are counted from the floor
					f.raise(bob, c, tidemark.Raise{Read: 10}, at(21))
					read = 10
					f.eventually("after 10",
						func() any { return f.unread(bob, c).Messages }, want())
				}
			}
		}
	}},
	{"Unread_mentions_and_lines_of_the_system_expire", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice, bob, carol)
		for n := 1; n <= 8; n++ {
			d := f.draft(c, alice, "x")
			d.CreatedAt = at(n)
			switch n % 4 {
			case 1:
				d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{bob})
			case 2:
				d.Kind = tidemark.KindSystem
			case 3:
				d.Mentions = tidemark.Mentions{All: true}
			}
			f.append(d)
		}
		f.append(f.redact(c, alice, 1))
		check := func(messages, mentions int64) {
			f.Helper()
			f.eventually("unread", func() any { return f.unread(bob, c) },
				storage.Unread{Messages: messages, Mentions: mentions})
			f.eventually("total", func() any { return f.unreadOf(bob).Messages }, messages)
		}
		check(6, 4)
		f.expires(c, at(2), 10, 2, 1)
		check(5, 3)
		f.expires(c, at(4), 10, 4, 2)
		check(4, 2)
		f.expires(c, at(7), 10, 7, 3)
		check(2, 1)
		_, err := f.store.MarkUnread(f.ctx, bob, c, 1)
		f.ok(err)
		check(2, 1)
		f.raise(bob, c, tidemark.Raise{Read: 7}, at(9))
		check(1, 0)
	}},
	{"MarkUnread_below_the_floor_marks_what_is_kept", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		for n := range 9 {
			f.said(c, []tidemark.UserID{alice, bob}[n%2], n)
		}
		f.raise(bob, c, tidemark.Raise{Read: 9}, at(20))
		f.expires(c, at(4), 10, 5, 4)
		for from, want := range map[tidemark.Sequence]int64{1: 3, 4: 3, 5: 3, 6: 2, 8: 1, 9: 1} {
			_, err := f.store.MarkUnread(f.ctx, bob, c, from)
			f.ok(err)
			f.eventually(fmt.Sprint("from ", from),
				func() any { return f.unread(bob, c).Messages }, want)
		}
	}},
	{"Expire_leaves_watermarks_rows_and_memberships", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.sinceJoin("c", alice)
		f.said(c, alice, 1, 2)
		f.add(c, bob)
		f.said(c, alice, 3, 4)
		f.raise(alice, c, tidemark.Raise{Acked: 2, Read: 1}, at(5))
		f.mark(bob, c, 3)
		member, state := f.member(c, bob), f.state(alice, c)
		f.expires(c, at(4), 10, 4, 3)
		f.equal("member", f.member(c, bob), member)
		f.equal("state", f.state(alice, c), state)
		f.equal("row", f.pending(bob), map[tidemark.ChatID]tidemark.Sequence{c: 3})
		f.raise(alice, c, tidemark.Raise{Acked: 3}, at(6))
		f.clear(bob, c, 3)
		f.equal("row later", f.pending(bob), map[tidemark.ChatID]tidemark.Sequence{c: 4})
	}},
	{"Expire_refuses_what_is_young_and_unknown_chats", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		f.send(c, alice, 1)
		_, err := f.store.Expire(f.ctx, f.chat("none"), at(1), 1)
		f.code(err, tidemark.NotFound)
		for _, one := range []struct {
			before time.Time
			limit  int
		}{
			{time.Now().Add(time.Minute - storage.MinAge), 1}, {time.Now(), 1},
			{at(1), 0}, {at(1), -1}, {at(1), storage.MaxExpired + 1},
		} {
			_, err := f.store.Expire(f.ctx, c, one.before, one.limit)
			f.code(err, tidemark.Invalid)
		}
		f.equal("floor", f.info(c).Floor, tidemark.Sequence(1))
	}},
	{"floor_recorded_readers_never_miss_what_is_kept", func(f *fixture) {
		alice := f.user("alice")
		c := f.group("c", alice)
		for n := range 40 {
			f.said(c, alice, n)
		}
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				for n := range 30 {
					if _, err := f.store.Expire(f.ctx, c, at(n+1), 3); err != nil {
						f.Errorf("Expire: %v", err)
					}
				}
			})
		}
		for range 3 {
			running.Go(func() {
				for range 60 {
					page, err := f.read(storage.Range{Chat: c, Limit: 50})
					if err != nil || len(page) == 0 || page[len(page)-1].Sequence != 40 {
						f.Errorf("page of %d messages: %v", len(page), err)
					}
				}
			})
		}
		running.Wait()
		f.equal("floor", f.whole(c).Floor, tidemark.Sequence(31))
	}},
}
