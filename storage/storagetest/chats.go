package storagetest

import (
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var chatRules = []rule{
	{"CreateChat_members_see_everything_from_sequence_1", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		new := storage.NewChat{
			ID:        w.chat("c"),
			Type:      tidemark.Group,
			Name:      "Trip to Łódź 🚋",
			History:   tidemark.HistorySinceJoin,
			CreatedAt: at(3),
			Creator:   bob,
			Members:   []tidemark.UserID{bob, alice},
		}
		got, created, err := w.store.CreateChat(w.ctx, new)
		w.ok(err)
		w.equal("created", created, true)
		want := tidemark.Chat{
			ID:             new.ID,
			Type:           tidemark.Group,
			Name:           new.Name,
			History:        new.History,
			CreatedAt:      at(3),
			MemberCount:    2,
			MembersVersion: 1,
		}
		w.equal("chat", got, want)
		w.equal("chat, read again", w.info(new.ID), want)
		all := tidemark.Intervals{{From: 1}}
		w.equal("roster", w.roster(new.ID), &tidemark.Roster{
			ChatID: new.ID, Type: tidemark.Group, History: new.History, Version: 1, Members: []tidemark.Member{
				{UserID: alice, Role: tidemark.Ordinary, Intervals: all, JoinedAt: at(3)},
				{UserID: bob, Role: tidemark.Owner, Intervals: all, JoinedAt: at(3)},
			},
		})
		w.equal("state", w.state(alice, new.ID), tidemark.DeliveryState{
			UserID: alice,
			ChatID: new.ID,
		})
	}},
	{"CreateChat_taken_id_is_Conflict_and_changes_nothing", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice)
		before, roster := w.info(c), w.roster(c)
		for _, kind := range []tidemark.ChatType{tidemark.Group, tidemark.Direct} {
			_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
				ID:        c,
				Type:      kind,
				Name:      "other",
				History:   tidemark.HistoryFull,
				CreatedAt: at(9),
				Creator:   bob,
				Members:   w.users("bob", "carol"),
			})
			w.code(err, tidemark.Conflict)
		}
		w.equal("chat", w.info(c), before)
		w.equal("roster", w.roster(c), roster)
		w.equal("chats of bob", w.chatsOf(bob, 10), nil)
		// The refused direct chat has not taken its pair.
		w.direct("d", bob, w.user("carol"))
	}},
	{"CreateChat_direct_exists_once_for_a_pair", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		d := w.direct("d", alice, bob)
		w.send(d, bob, 2)
		want := w.info(d)
		for _, again := range []storage.NewChat{
			{ID: d, Members: []tidemark.UserID{alice, bob}},
			{ID: d, Members: []tidemark.UserID{bob, alice}},
			{ID: w.chat("other"), Members: []tidemark.UserID{alice, bob}},
			{ID: w.chat("other"), Members: []tidemark.UserID{bob, alice}},
		} {
			again.Type, again.History, again.CreatedAt, again.Creator = tidemark.Direct, tidemark.HistoryFull, at(8), bob
			got, created, err := w.store.CreateChat(w.ctx, again)
			w.ok(err)
			w.equal("created", created, false)
			w.equal("chat", got, want)
		}
		_, err := w.store.Chat(w.ctx, w.chat("other"))
		w.code(err, tidemark.NotFound)
		w.direct("third", alice, w.user("carol"))
		w.group("group", alice, bob)
	}},
	{"CreateChat_above_PendingFanoutLimit_is_Large", func(w *world) {
		for _, test := range []struct {
			name    string
			members int
			large   bool
		}{
			{"at", tidemark.PendingFanoutLimit, false},
			{"above", tidemark.PendingFanoutLimit + 1, true},
		} {
			c := w.group(test.name, w.many(test.members)...)
			w.equal(test.name+": large", w.info(c).Large, test.large)
			w.equal(test.name+": large in the roster", w.roster(c).Large, test.large)
		}
	}},
	{"Chat_and_RenameChat_of_an_unknown_chat_are_NotFound", func(w *world) {
		_, err := w.store.Chat(w.ctx, w.chat("none"))
		w.code(err, tidemark.NotFound)
		_, err = w.store.RenameChat(w.ctx, w.chat("none"), "x")
		w.code(err, tidemark.NotFound)
	}},
	{"Chat_ids_differ_in_case_and_punctuation", func(w *world) {
		alice := w.user("alice")
		for _, name := range []string{"c", "C", "c.", "c:", "c-", "c_"} {
			w.group(name, alice)
		}
		w.send(w.chat("C"), alice, 1)
		heads, err := w.store.Heads(w.ctx, []tidemark.ChatID{
			w.chat("c"), w.chat("C"), w.chat("c_"),
		})
		w.ok(err)
		w.equal("heads", heads, []tidemark.Sequence{0, 1, 0})
	}},
	{"RenameChat_sets_the_name_only", func(w *world) {
		c := w.group("c", w.users("alice", "bob")...)
		w.send(c, w.user("bob"), 1)
		want := w.info(c)
		for _, name := range []string{"Büro", "", "Büro"} {
			got, err := w.store.RenameChat(w.ctx, c, name)
			w.ok(err)
			want.Name = name
			w.equal("chat", got, want)
			w.equal("chat, read again", w.info(c), want)
		}
	}},
	{"ChatsOf_latest_activity_first_equal_times_by_id", func(w *world) {
		alice := w.user("alice")
		for name, created := range map[string]int{"a": 5, "b": 1, "B": 5, "e": 2, "d": 5, "c": 3} {
			w.create(storage.NewChat{
				ID:        w.chat(name),
				Type:      tidemark.Group,
				History:   tidemark.HistoryFull,
				Members:   []tidemark.UserID{alice},
				CreatedAt: at(created),
			})
		}
		for name, sent := range map[string]int{"b": 9, "c": 5} {
			draft := w.draft(w.chat(name), alice, "hello")
			draft.CreatedAt = at(sent)
			w.append(draft)
		}
		want := []tidemark.ChatID{
			w.chat("b"), w.chat("B"), w.chat("a"), w.chat("c"), w.chat("d"), w.chat("e"),
		}
		for _, limit := range []int{1, 2, 3, 5, 6, 7} {
			w.eventually("chats", func() any { return ids(w.chatsOf(alice, limit)) }, want)
		}
	}},
	{"ChatsOf_holds_the_chats_of_which_he_is_a_member_now", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		stays, left, back := w.group("stays", alice, bob), w.group("left",
			alice, bob), w.group("back", alice, bob)
		w.remove(left, bob)
		w.remove(back, bob)
		w.add(back, bob)
		w.eventually("chats",
			func() any { return ids(w.chatsOf(bob, 10)) }, []tidemark.ChatID{back, stays})
		w.equal("chats of a stranger", w.chatsOf(w.user("stranger"), 10), nil)
	}},
	{"ChatsOf_tells_state_last_message_and_activity", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 2)
		last := w.append(w.draft(c, bob, "the last")).Message
		state := w.raise(bob, c, tidemark.Raise{Acked: 2, Read: 1}, at(7)).State
		w.eventually("chats", func() any { return w.chatsOf(bob, 10) }, []storage.ChatListItem{
			{Chat: w.info(c), State: state, Unread: 1, Last: &last, Activity: last.CreatedAt},
		})
	}},
	{"ChatsOf_Brief_leaves_out_what_needs_messages", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 2)
		want := w.chatsOf(bob, 10)
		want[0].Unread, want[0].Last = 0, nil
		brief, _, err := w.store.ChatsOf(w.ctx, bob, storage.ChatsPage{Limit: 10, Brief: true})
		w.ok(err)
		w.equal("brief", brief, want)
	}},
	{"ChatsOf_shows_no_message_from_outside_the_membership", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.sinceJoin("c", alice)
		w.send(c, alice, 3)
		w.add(c, bob)
		var activity time.Time
		for _, m := range w.messages(storage.Range{Chat: c, After: 2}) {
			activity = m.CreatedAt
		}
		w.eventually("chats", func() any { return w.chatsOf(bob, 10) }, []storage.ChatListItem{
			{Chat: w.info(c), State: w.state(bob, c), Activity: activity},
		})
	}},
	{"ChatsOf_counts_as_unread_what_he_may_see_and_did_not_send", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.send(c, alice, 2)
		w.send(c, bob, 1)
		w.remove(c, bob)
		w.send(c, alice, 5)
		w.add(c, bob)
		w.send(c, bob, 1)
		w.send(c, alice, 3)
		unread := func() any { return w.chatsOf(bob, 10)[0].Unread }
		w.eventually("unread", unread, int64(5))
		w.raise(bob, c, tidemark.Raise{Read: 1}, at(3))
		w.eventually("unread after reading 1", unread, int64(4))
		w.raise(bob, c, tidemark.Raise{Read: 10}, at(3))
		w.eventually("unread after reading 10", unread, int64(2))
		w.raise(bob, c, tidemark.Raise{Acked: 12}, at(3))
		w.eventually("unread after acknowledging 12", unread, int64(2))
		w.raise(bob, c, tidemark.Raise{Read: 12}, at(3))
		w.eventually("unread after reading 12", unread, int64(0))
	}},
	{"ChatsOf_looks_at_UnreadScan_messages_and_counts_the_rest", func(w *world) {
		alice, bob := w.user("alice"), w.user("bob")
		c := w.group("c", alice, bob)
		w.flood(c, alice, 3)
		w.remove(c, bob)
		w.flood(c, alice, 4)
		w.add(c, bob)
		w.flood(c, bob, storage.UnreadScan)
		unread := func() any { return w.chatsOf(bob, 10)[0].Unread }
		// Looked at: 3 of alice and 97 of bob; the last 3 of bob count unseen.
		w.eventually("unread", unread, int64(6))
		w.flood(c, alice, 2)
		w.eventually("unread with two more", unread, int64(8))
		w.raise(bob, c, tidemark.Raise{Read: 7}, at(3))
		w.eventually("unread from 8 on", unread, int64(2))
	}},
	{"Heads_in_order_0_for_an_unknown_chat", func(w *world) {
		alice := w.user("alice")
		a, b, empty := w.group("a", alice), w.group("b", alice), w.group("empty", alice)
		for n := tidemark.Sequence(1); n <= 3; n++ {
			w.send(a, alice, 1)
			w.send(b, alice, 2)
			heads, err := w.store.Heads(w.ctx, []tidemark.ChatID{b, w.chat("none"), a, empty, b})
			w.ok(err)
			w.equal("heads", heads, []tidemark.Sequence{2 * n, 0, n, 0, 2 * n})
			w.equal("head", w.info(b).Head, 2*n)
		}
	}},
}

// chatsOf reads all pages of a user's chats, and checks that none is longer than the limit.
func (w *world) chatsOf(user tidemark.UserID, limit int) []storage.ChatListItem {
	w.Helper()
	var all []storage.ChatListItem
	page := storage.ChatsPage{Limit: limit}
	for {
		chats, more, err := w.store.ChatsOf(w.ctx, user, page)
		w.ok(err)
		all = append(all, chats...)
		w.checkPage(len(chats), limit, more)
		if !more {
			return all
		}
		last := chats[len(chats)-1]
		page.Activity, page.ChatID = last.Activity, last.Chat.ID
	}
}

// checkPage checks the length of a page: full if others follow, and never above the limit.
func (w *world) checkPage(length, limit int, more bool) {
	w.Helper()
	if length > limit || more && length != limit {
		w.Fatalf("got a page of %d items with more %v, want at most %d and a full page before "+
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
