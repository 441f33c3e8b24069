package storagetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var chatRules = []rule{
	{"CreateChat_members_see_everything_from_sequence_1", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		new := storage.NewChat{
			ID:        f.chat("c"),
			Type:      tidemark.Group,
			Name:      "Trip to Łódź 🚋",
			History:   tidemark.HistorySinceJoin,
			CreatedAt: at(3),
			Creator:   bob,
			Members:   []tidemark.UserID{bob, alice},
		}
		got, created, err := f.store.CreateChat(f.ctx, new)
		f.ok(err)
		f.equal("created", created, true)
		want := tidemark.Chat{
			ID:             new.ID,
			Type:           tidemark.Group,
			Name:           new.Name,
			Version:        1,
			History:        new.History,
			CreatedAt:      at(3),
			Floor:          1,
			MemberCount:    2,
			MembersVersion: 1,
		}
		f.equal("chat", got, want)
		f.equal("chat, read again", f.info(new.ID), want)
		all := tidemark.Intervals{{From: 1}}
		f.equal("roster", f.roster(new.ID), &tidemark.Roster{
			ChatID: new.ID, Type: tidemark.Group, History: new.History, Version: 1, Floor: 1,
			Members: []tidemark.Member{
				{UserID: alice, Role: tidemark.Ordinary, Intervals: all, JoinedAt: at(3)},
				{UserID: bob, Role: tidemark.Owner, Intervals: all, JoinedAt: at(3)},
			},
		})
		f.equal("state", f.state(alice, new.ID), tidemark.DeliveryState{
			UserID: alice,
			ChatID: new.ID,
		})
	}},
	{"CreateChat_without_a_creator_has_no_owner", func(f *fixture) {
		create := func(name string, users ...tidemark.UserID) tidemark.ChatID {
			kind := tidemark.Group
			if name == "direct" {
				kind = tidemark.Direct
			}
			got, created, err := f.store.CreateChat(f.ctx, storage.NewChat{
				ID: f.chat(name), Type: kind, History: tidemark.HistoryFull, CreatedAt: at(1),
				Members: users,
			})
			f.ok(err)
			f.equal(name+": created", created, true)
			f.equal(name+": members", got.MemberCount, len(users))
			f.equal(name+", read again", f.info(got.ID), got)
			for _, m := range f.roster(got.ID).Members {
				f.equal(name+": role", m.Role, tidemark.Ordinary)
			}
			return got.ID
		}
		alice, bob := f.user("alice"), f.user("bob")
		create("direct", alice, bob)
		create("large", f.many(tidemark.PendingFanoutLimit+1)...)
		c := create("group", alice, bob)
		removed, err := f.store.RemoveMember(f.ctx, c, alice, at(2))
		f.ok(err)
		f.equal("successor of one who leaves", removed.Successor, tidemark.UserID(""))
		for _, role := range []tidemark.Role{tidemark.Reader, tidemark.Owner} {
			updated, err := f.store.UpdateMember(f.ctx, c, bob, storage.MemberChange{Role: role})
			f.ok(err)
			f.equal("role", updated.Member.Role, role)
			f.equal("successor", updated.Successor, tidemark.UserID(""))
		}
		empty := create("empty")
		added, err := f.store.AddMembers(f.ctx, empty, []tidemark.UserID{bob}, tidemark.Ordinary,
			at(3))
		f.ok(err)
		f.equal("version", added.Version, uint64(2))
		f.equal("role of the first", f.roster(empty).Members[0].Role, tidemark.Ordinary)
	}},
	{"CreateChat_taken_id_is_Conflict_and_changes_nothing", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice)
		before, roster := f.info(c), f.roster(c)
		for _, kind := range []tidemark.ChatType{tidemark.Group, tidemark.Direct} {
			_, _, err := f.store.CreateChat(f.ctx, storage.NewChat{
				ID:        c,
				Type:      kind,
				Name:      "other",
				History:   tidemark.HistoryFull,
				CreatedAt: at(9),
				Creator:   bob,
				Members:   f.users("bob", "carol"),
			})
			f.code(err, tidemark.Conflict)
		}
		f.equal("chat", f.info(c), before)
		f.equal("roster", f.roster(c), roster)
		f.equal("chats of bob", f.chatsOf(bob, 10), nil)
		// The refused direct chat has not used up its pair.
		f.direct("d", bob, f.user("carol"))
	}},
	{"CreateChat_direct_exists_once_for_a_pair", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		d := f.direct("d", alice, bob)
		f.send(d, bob, 2)
		want := f.info(d)
		for _, again := range []storage.NewChat{
			{ID: d, Members: []tidemark.UserID{alice, bob}},
			{ID: d, Members: []tidemark.UserID{bob, alice}},
			{ID: f.chat("other"), Members: []tidemark.UserID{alice, bob}},
			{ID: f.chat("other"), Members: []tidemark.UserID{bob, alice}},
		} {
			again.Type, again.History = tidemark.Direct, tidemark.HistoryFull
			again.CreatedAt, again.Creator = at(8), bob
			got, created, err := f.store.CreateChat(f.ctx, again)
			f.ok(err)
			f.equal("created", created, false)
			f.equal("chat", got, want)
		}
		_, err := f.store.Chat(f.ctx, f.chat("other"))
		f.code(err, tidemark.NotFound)
		f.direct("third", alice, f.user("carol"))
		f.group("group", alice, bob)
	}},
	{"CreateChat_above_PendingFanoutLimit_is_Large", func(f *fixture) {
		for _, test := range []struct {
			name    string
			members int
			large   bool
		}{
			{"at", tidemark.PendingFanoutLimit, false},
			{"above", tidemark.PendingFanoutLimit + 1, true},
		} {
			c := f.group(test.name, f.many(test.members)...)
			f.equal(test.name+": large", f.info(c).Large, test.large)
			f.equal(test.name+": large in the roster", f.roster(c).Large, test.large)
		}
	}},
	{"Chat_and_UpdateChat_of_an_unknown_chat_are_NotFound", func(f *fixture) {
		_, err := f.store.Chat(f.ctx, f.chat("none"))
		f.code(err, tidemark.NotFound)
		_, err = f.store.UpdateChat(f.ctx, f.chat("none"), renamed("x"))
		f.code(err, tidemark.NotFound)
	}},
	{"Chat_ids_differ_in_case_and_punctuation", func(f *fixture) {
		alice := f.user("alice")
		for _, name := range []string{"c", "C", "c.", "c:", "c-", "c_"} {
			f.group(name, alice)
		}
		f.send(f.chat("C"), alice, 1)
		heads, err := f.store.Heads(f.ctx, []tidemark.ChatID{
			f.chat("c"), f.chat("C"), f.chat("c_"),
		})
		f.ok(err)
		f.equal("heads", heads, []tidemark.Sequence{0, 1, 0})
	}},
	{"UpdateChat_changes_what_is_named_and_counts_the_changes", func(f *fixture) {
		c := f.group("c", f.users("alice", "bob")...)
		f.send(c, f.user("bob"), 1)
		want := f.info(c)
		f.equal("version", want.Version, uint64(1))
		raw := `{ "ü" : [1.50, "\u0041'"] }`
		largest := `{"a":"` + strings.Repeat("é", (tidemark.MaxMetadata-8)/2) + `"}`
		var none string
		for i, step := range []struct {
			change storage.ChatChange
			name   string
			raw    *string
		}{
			{renamed("Büro"), "Büro", nil},
			{renamed(""), "", nil},
			{described("Büro", raw), "Büro", &raw},
			{renamed("x"), "x", &raw},
			{storage.ChatChange{Metadata: []byte(largest)}, "x", &largest},
			{described("y", raw), "y", &raw},
			{described("y", none), "y", nil},
			{storage.ChatChange{Metadata: []byte(raw)}, "y", &raw},
		} {
			want.Version++
			if want.Name, want.Metadata = step.name, nil; step.raw != nil {
				want.Metadata = json.RawMessage(*step.raw)
			}
			for range 2 { // a repeated change changes nothing more
				got, err := f.store.UpdateChat(f.ctx, c, step.change)
				f.ok(err)
				f.equal(fmt.Sprint("chat after step ", i), got, want)
				f.equal("chat, read again", f.info(c), want)
			}
		}
		f.eventually("chat in a list", func() any { return f.chatsOf(f.user("bob"), 10)[0].Chat },
			want)
		got, err := f.store.UpdateChat(f.ctx, c, storage.ChatChange{})
		f.ok(err)
		f.equal("chat after no change", got, want)
	}},
	{"CreateChat_with_metadata", func(f *fixture) {
		for name, users := range map[string][]tidemark.UserID{
			"small": f.users("alice", "bob"), "large": f.many(tidemark.PendingFanoutLimit + 1),
		} {
			c := f.chat(name)
			new := storage.NewChat{
				ID: c, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: at(1),
				Creator: users[0], Members: users, Metadata: []byte(`{ "a" : 1 }`),
			}
			got, _, err := f.store.CreateChat(f.ctx, new)
			f.ok(err)
			f.equal("metadata", string(got.Metadata), `{ "a" : 1 }`)
			f.equal("chat, read again", f.info(c), got)
			_, _, err = f.store.CreateChat(f.ctx, storage.NewChat{
				ID: c, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: at(1),
				Creator: users[0], Members: users[:1], Metadata: []byte(`{}`),
			})
			f.code(err, tidemark.Conflict)
			f.equal("chat after a conflict", f.info(c), got)
		}
	}},
	{"UpdateChat_at_the_same_time_counts_each_change", func(f *fixture) {
		c := f.group("c", f.user("alice"))
		const writers = 8
		var all sync.WaitGroup
		errs := make([]error, writers)
		for i := range writers {
			all.Go(func() {
				change := described(fmt.Sprint("name ", i), fmt.Sprintf(`{"n":%d}`, i))
				_, errs[i] = f.store.UpdateChat(f.ctx, c, change)
			})
		}
		all.Wait()
		for _, err := range errs {
			f.ok(err)
		}
		got := f.info(c)
		f.equal("version", got.Version, uint64(1+writers))
		f.equal("name and metadata of one writer", got.Name,
			"name "+strings.Trim(string(got.Metadata), `{"n:}`))
	}},
	{"ChatsOf_latest_activity_first_equal_times_by_id", func(f *fixture) {
		alice := f.user("alice")
		for name, created := range map[string]int{"a": 5, "b": 1, "B": 5, "e": 2, "d": 5, "c": 3} {
			f.create(storage.NewChat{
				ID:        f.chat(name),
				Type:      tidemark.Group,
				History:   tidemark.HistoryFull,
				Members:   []tidemark.UserID{alice},
				CreatedAt: at(created),
			})
		}
		for name, sent := range map[string]int{"b": 9, "c": 5} {
			draft := f.draft(f.chat(name), alice, "hello")
			draft.CreatedAt = at(sent)
			f.append(draft)
		}
		want := []tidemark.ChatID{
			f.chat("b"), f.chat("B"), f.chat("a"), f.chat("c"), f.chat("d"), f.chat("e"),
		}
		for _, limit := range []int{1, 2, 3, 5, 6, 7} {
			f.eventually("chats", func() any { return ids(f.chatsOf(alice, limit)) }, want)
		}
	}},
	{"ChatsOf_lists_the_current_chats", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		stays, left := f.group("stays", alice, bob), f.group("left", alice, bob)
		back := f.group("back", alice, bob)
		f.remove(left, bob)
		f.remove(back, bob)
		f.add(back, bob)
		f.eventually("chats", func() any { return ids(f.chatsOf(bob, 10)) },
			[]tidemark.ChatID{back, stays})
		f.equal("chats of a stranger", f.chatsOf(f.user("stranger"), 10), nil)
	}},
	{"ChatsOf_returns_state_last_message_and_activity", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		last := f.append(f.draft(c, bob, "the last")).Message
		state := f.raise(bob, c, tidemark.Raise{Acked: 2, Read: 1}, at(7)).State
		f.eventually("chats", func() any { return f.chatsOf(bob, 10) }, []storage.ChatListItem{
			{Chat: f.info(c), Role: tidemark.Ordinary, State: state, Last: &last,
				Activity: last.CreatedAt, Unread: storage.Unread{Messages: 1}},
		})
	}},
	{"ChatsOf_Brief_leaves_out_what_needs_more_reads", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		want := f.chatsOf(bob, 10)
		want[0].Role, want[0].Unread, want[0].Last = "", storage.Unread{}, nil
		brief, _, err := f.store.ChatsOf(f.ctx, bob, storage.ChatsPage{Limit: 10, Brief: true})
		f.ok(err)
		f.equal("brief", brief, want)
	}},
	{"ChatsOf_shows_no_message_from_outside_the_membership", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.sinceJoin("c", alice)
		f.send(c, alice, 3)
		f.add(c, bob)
		var activity time.Time
		for _, m := range f.messages(storage.Range{Chat: c, After: 2}) {
			activity = m.CreatedAt
		}
		f.eventually("chats", func() any { return f.chatsOf(bob, 10) }, []storage.ChatListItem{
			{Chat: f.info(c), Role: tidemark.Ordinary, State: f.state(bob, c), Activity: activity},
		})
	}},
	{"ChatsOf_counts_visible_messages_of_others_as_unread", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, alice, 2)
		f.send(c, bob, 1)
		f.remove(c, bob)
		f.send(c, alice, 5)
		f.add(c, bob)
		f.send(c, bob, 1)
		f.send(c, alice, 3)
		unread := func() any { return f.chatsOf(bob, 10)[0].Unread.Messages }
		f.eventually("unread", unread, int64(5))
		f.raise(bob, c, tidemark.Raise{Read: 1}, at(3))
		f.eventually("unread after reading 1", unread, int64(4))
		f.raise(bob, c, tidemark.Raise{Read: 10}, at(3))
		f.eventually("unread after reading 10", unread, int64(2))
		f.raise(bob, c, tidemark.Raise{Acked: 12}, at(3))
		f.eventually("unread after acknowledging 12", unread, int64(2))
		f.raise(bob, c, tidemark.Raise{Read: 12}, at(3))
		f.eventually("unread after reading 12", unread, int64(0))
	}},
	{"Heads_in_order_0_for_an_unknown_chat", func(f *fixture) {
		alice := f.user("alice")
		a, b, empty := f.group("a", alice), f.group("b", alice), f.group("empty", alice)
		for n := tidemark.Sequence(1); n <= 3; n++ {
			f.send(a, alice, 1)
			f.send(b, alice, 2)
			heads, err := f.store.Heads(f.ctx, []tidemark.ChatID{b, f.chat("none"), a, empty, b})
			f.ok(err)
			f.equal("heads", heads, []tidemark.Sequence{2 * n, 0, n, 0, 2 * n})
			f.equal("head", f.info(b).Head, 2*n)
		}
	}},
}

// chatsOf reads all pages of a user's chats, and checks their lengths.
func (f *fixture) chatsOf(user tidemark.UserID, limit int) []storage.ChatListItem {
	f.Helper()
	var all []storage.ChatListItem
	page := storage.ChatsPage{Limit: limit}
	for {
		chats, more, err := f.store.ChatsOf(f.ctx, user, page)
		f.ok(err)
		all = append(all, chats...)
		f.checkPage(len(chats), limit, more)
		if !more {
			return all
		}
		last := chats[len(chats)-1]
		page.Activity, page.ChatID = last.Activity, last.Chat.ID
	}
}

// checkPage checks the length of a page: at most the limit, and exactly the limit if more follow.
func (f *fixture) checkPage(length, limit int, more bool) {
	f.Helper()
	if length > limit || more && length != limit {
		f.Fatalf("got a page of %d items with more %v, want at most %d and a full page before "+
			"another", length, more, limit)
	}
}

func ids(chats []storage.ChatListItem) []tidemark.ChatID {
	list := make([]tidemark.ChatID, len(chats))
	for i, c := range chats {
		list[i] = c.Chat.ID
	}
	return list
}

// renamed returns the change of a chat's name.
func renamed(name string) storage.ChatChange { return storage.ChatChange{Name: &name} }

// described returns the change of a chat's name and metadata. Empty metadata are none.
func described(name, metadata string) storage.ChatChange {
	return storage.ChatChange{Name: &name, Metadata: json.RawMessage(metadata)}
}
