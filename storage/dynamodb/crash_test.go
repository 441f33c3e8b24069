package dynamodb

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// crowd is the number of users that a change adds in these tests. They do not fit into one
// transaction, and are not settled in one.
const crowd = 60

// The calls before which the author of a change dies.
var deaths = []struct {
	name   string
	at     trap
	effect bool // the change has taken effect
	every  bool // the test tries every next call
}{
	{"begun", trap{operation: "UpdateItem", has: "next_role"}, false, false},
	{
		"half prepared",
		trap{operation: "UpdateItem", has: "next_role", skip: crowd / 2}, false, false,
	},
	{
		"prepared in part for the lists of chats",
		trap{operation: "UpdateItem", has: "SET member_change", skip: crowd / 2}, false, false,
	},
	{"prepared", trap{operation: "UpdateItem", has: "change_head = head"}, false, true},
	{"took effect", trap{operation: "Query", has: "chat_memberships"}, true, true},
	{
		"half settled",
		trap{operation: "TransactWriteItems", has: "chat_memberships", skip: 1}, true, true,
	},
	{"settled", trap{operation: "UpdateItem", has: "REMOVE change,"}, true, false},
}

// die makes a store's next call of a kind the last one of its caller.
func die(t *testing.T, w *wire, at trap) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	at.before, at.leave = cancel, true
	w.set(t, at)
	return ctx
}

// old makes the beginning of a change so old that another process may take it over.
func old(t *testing.T, s *Store, chat tidemark.ChatID) {
	t.Helper()
	change(t, s, call.Update{
		Table:     record.Counters,
		Key:       record.ChatKey(chat),
		Change:    "SET changing_at = :long",
		Condition: "attribute_exists(changing)",
		Values:    call.Item{":long": call.Number(1)},
	})
}

// sees demands that all methods agree whether a user is a member.
func sees(
	t *testing.T, s *Store, chat tidemark.ChatID, user tidemark.UserID, want bool, members int,
) {
	t.Helper()
	rosters, err := s.Rosters(t.Context(), []tidemark.ChatID{chat})
	must(t, err)
	if rosters[0] == nil {
		t.Fatalf("there is no chat %s", chat)
	}
	_, inRoster := rosters[0].Member(user)
	found, err := s.Chat(t.Context(), chat)
	must(t, err)
	list, _, err := s.ChatsOf(t.Context(), user, storage.ChatsPage{Limit: 99})
	must(t, err)
	inList := slices.ContainsFunc(list,
		func(c storage.ChatListItem) bool { return c.Chat.ID == chat && c.Last != nil })
	lags, _, _, err := s.Behind(t.Context(), user, storage.BehindQuery{Limit: 99})
	must(t, err)
	behind := slices.ContainsFunc(lags, func(l storage.Lag) bool { return l.Chat == chat })
	states, _, err := s.StatesIn(t.Context(), chat, "", 3*crowd)
	must(t, err)
	summary, err := s.Summary(t.Context(), chat, 1, "")
	must(t, err)
	if inRoster != want || inList != want || behind != want {
		t.Errorf("%s is in the roster: %v, has the chat listed: %v, is behind: %v; want %v",
			user, inRoster, inList, behind, want)
	}
	if len(rosters[0].Members) != members || found.MemberCount != members ||
		len(states) != members || summary.Members != members {
		t.Errorf("members: %d in the roster, %d by the count, %d states, %d in the summary; want "+
			"%d", len(rosters[0].Members), found.MemberCount, len(states), summary.Members, members)
	}
	if rosters[0].Version != found.MembersVersion {
		t.Errorf("the roster has version %d, the chat %d", rosters[0].Version, found.MembersVersion)
	}
}

// A process that dies while it adds many users leaves all of them members, or none. The next call
// of another process succeeds.
func TestCrash_of_a_change_leaves_it_whole_or_undone(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	for i, tc := range deaths {
		users := usersFrom(crowd, fmt.Sprint("u", i, "-"))
		all := []string{"again"}
		if tc.every {
			all = append(all, "another member", "removal", "many others")
		}
		for _, next := range all {
			t.Run(tc.name+", then "+next, func(t *testing.T) {
				chat := tidemark.ChatID(fmt.Sprint("c", i, "-", next[:3], next[len(next)-1:]))
				createGroup(t, other, chat, "anna")
				send(t, other, chat, "anna", "before", 1)
				ctx := die(t, w, tc.at)
				_, err := author.AddMembers(ctx, chat, users, tidemark.Ordinary, time.UnixMilli(5))
				if tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Fatalf("the author did not die: %v", err)
				}
				members := 1
				if tc.effect {
					members += crowd
				}
				for _, user := range []tidemark.UserID{users[0], users[crowd-1]} {
					sees(t, other, chat, user, tc.effect, members)
					got, err := storage.AppendOne(t.Context(), other, draft(chat, user, "hello"))
					if tc.effect != (err == nil) ||
						!tc.effect && tidemark.CodeOf(err) != tidemark.NotMember {
						t.Errorf("the message: %+v, %v", got, err)
					}
				}
				version := uint64(1)
				if tc.effect {
					version++
				}
				switch next {
				case "again", "many others":
					them := users
					if next == "many others" {
						them = usersFrom(crowd, "w")
					}
					if !tc.effect {
						old(t, other, chat)
					}
					added := add(t, other, chat, them...)
					if next == "again" && tc.effect {
						if len(added.New) != 0 || added.Version != version {
							t.Errorf("added again: %d at version %d", len(added.New), added.Version)
						}
					} else if members += crowd; len(added.New) != crowd ||
						added.Version != version+1 {
						t.Errorf("added: %d at version %d, want %d at %d",
							len(added.New), added.Version, crowd, version+1)
					}
					sees(t, other, chat, them[7], true, members)
					sees(t, other, chat, users[7], next == "again" || tc.effect, members)
				case "another member":
					if added := add(t, other, chat, "carl"); added.Version != version+1 {
						t.Errorf("version %d, want %d", added.Version, version+1)
					}
					sees(t, other, chat, "carl", true, members+1)
					sees(t, other, chat, users[7], tc.effect, members+1)
				case "removal":
					removed, err := other.RemoveMember(t.Context(), chat, users[7],
						time.UnixMilli(9))
					if tc.effect != (err == nil) ||
						!tc.effect && tidemark.CodeOf(err) != tidemark.NotMember {
						t.Errorf("the removal: %+v, %v", removed, err)
					}
					if tc.effect {
						members--
					}
					sees(t, other, chat, users[7], false, members)
					sees(t, other, chat, users[8], tc.effect, members)
				}
			})
		}
	}
}

// A user who joins a chat that shows only what follows begins at the head of the step that took
// effect. That holds whichever process settles the change, and whatever happens to the user before.
func TestCrash_of_a_change_keeps_where_its_members_begin(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	users := usersFrom(crowd, "u")
	for i, tc := range deaths[4:] {
		t.Run(tc.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", i))
			_, _, err := other.CreateChat(t.Context(), storage.NewChat{
				ID:        chat,
				Type:      tidemark.Group,
				History:   tidemark.HistorySinceJoin,
				Creator:   "anna",
				Members:   []tidemark.UserID{"anna"},
				CreatedAt: time.UnixMilli(1),
			})
			must(t, err)
			for n := range 3 {
				send(t, other, chat, "anna", fmt.Sprint("k", n), tidemark.Sequence(n+1))
			}
			ctx := die(t, w, tc.at)
			_, err = author.AddMembers(ctx, chat, users, tidemark.Ordinary, time.UnixMilli(5))
			if tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Fatalf("the author did not die: %v", err)
			}
			send(t, other, chat, users[3], "after", 4)
			remove(t, other, chat, users[5])
			remove(t, other, chat, users[crowd-1])
			add(t, other, chat, "carl")
			for user, want := range map[tidemark.UserID]tidemark.Sequence{
				users[0]: 3, users[crowd-2]: 3, users[5]: 3, users[crowd-1]: 3, "carl": 4,
			} {
				got, err := other.States(t.Context(), []storage.StateKey{{User: user, Chat: chat}})
				must(t, err)
				if got[0].Acked != want || got[0].Read != want {
					t.Errorf("%s begins at %d and %d, want %d",
						user, got[0].Acked, got[0].Read, want)
				}
			}
		})
	}
}

// A process that settles a change late does not undo later changes.
func TestChange_settled_by_another(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	users := usersFrom(crowd, "u")
	createGroup(t, other, "c", "anna")
	send(t, other, "c", "anna", "k", 1)
	w.set(t, trap{operation: "TransactWriteItems", has: "chat_memberships", before: func() {
		add(t, other, "c", "carl")
		remove(t, other, "c", users[0])
		remove(t, other, "c", users[crowd-1])
	}})
	if added := add(t, author, "c", users...); len(added.New) != crowd || added.Version != 2 ||
		added.Head != 1 {
		t.Errorf("added %d at version %d, head %d", len(added.New), added.Version, added.Head)
	}
	sees(t, other, "c", users[1], true, crowd)
	sees(t, author, "c", users[0], false, crowd)
	sees(t, author, "c", users[crowd-1], false, crowd)
	if found, err := other.Chat(t.Context(), "c"); err != nil || found.MembersVersion != 5 {
		t.Errorf("%+v, %v; want version 5", found, err)
	}
}

// A change that another process has taken over does not take effect, whatever its author does. The
// other change loses no member.
func TestChange_taken_over(t *testing.T) {
	t.Parallel()
	for i, tc := range deaths[:4] {
		for _, whom := range []string{"the same", "others"} {
			t.Run(tc.name+", "+whom, func(t *testing.T) {
				t.Parallel()
				author, w, other := trapped(t)
				chat := tidemark.ChatID(fmt.Sprint("c", i))
				createGroup(t, other, chat, "anna")
				send(t, other, chat, "anna", "k", 1)
				users, them := usersFrom(crowd, "u"), usersFrom(crowd, "w")
				if whom == "the same" {
					them = users
				}
				at := tc.at
				at.before = func() {
					old(t, other, chat)
					if added := add(t, other, chat, them...); len(added.New) != crowd ||
						added.Version != 2 {
						t.Errorf("the other process has added %d at version %d",
							len(added.New), added.Version)
					}
				}
				w.set(t, at)
				added := add(t, author, chat, users...)
				members := 1 + crowd
				if whom == "the same" && (len(added.New) != 0 || added.Version != 2) ||
					whom == "others" && (len(added.New) != crowd || added.Version != 3) {
					t.Errorf("the author has added %d at version %d", len(added.New), added.Version)
				}
				if whom == "others" {
					members += crowd
				}
				for _, user := range slices.Concat(users, them) {
					list, _, err := other.ChatsOf(t.Context(), user,
						storage.ChatsPage{Limit: 99, Brief: true})
					if err != nil || len(list) != 1 {
						t.Errorf("the list of %s: %v, %v", user, list, err)
					}
				}
				sees(t, other, chat, users[0], true, members)
				sees(t, author, chat, them[crowd-1], true, members)
			})
		}
	}
}

// If the answer to a write of a change is lost, the change is not made twice.
func TestChange_whose_answers_are_lost(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	for i, lost := range []trap{
		{operation: "UpdateItem", has: "SET changing"},
		{operation: "UpdateItem", has: "next_role"},
		{operation: "UpdateItem", has: "SET member_change"},
		{operation: "UpdateItem", has: "change_head = head"},
		{operation: "TransactWriteItems", has: "chat_memberships"},
		{operation: "UpdateItem", has: "REMOVE change,"},
	} {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		createGroup(t, other, chat, "anna")
		send(t, other, chat, "anna", "k", 1)
		lost.lose = true
		w.set(t, lost)
		if added := add(t, author, chat, usersFrom(crowd, "u")...); len(added.New) != crowd ||
			added.Version != 2 || added.Head != 1 || len(added.States) != crowd {
			t.Errorf("%s: added %d at version %d, head %d, %d states",
				lost.has, len(added.New), added.Version, added.Head, len(added.States))
		}
		sees(t, other, chat, "u00001", true, 1+crowd)
	}
}

// If the creator of a chat dies, the chat does not exist, and another user may create it. Or it
// exists with all its members.
func TestCrash_of_the_creation_of_a_chat(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	users := usersFrom(crowd, "u")
	group := func(id tidemark.ChatID, members []tidemark.UserID) storage.NewChat {
		return storage.NewChat{
			ID:        id,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			Creator:   members[0],
			Members:   members,
			CreatedAt: time.UnixMilli(1),
		}
	}
	for i, tc := range []struct {
		name   string
		at     trap
		effect bool
	}{
		{"begun", trap{operation: "UpdateItem", has: "next_role"}, false},
		{"prepared", trap{operation: "PutItem", has: "chat_counters"}, false},
		{"took effect", trap{operation: "Query", has: "chat_memberships"}, true},
		{
			"half settled",
			trap{operation: "TransactWriteItems", has: "chat_memberships", skip: 1}, true,
		},
	} {
		for _, next := range [][]tidemark.UserID{users[:2], users, usersFrom(crowd, "w")} {
			t.Run(fmt.Sprintf("%s, then %d from %s", tc.name, len(next), next[0]),
				func(t *testing.T) {
					chat := tidemark.ChatID(fmt.Sprint("c", i, "-", len(next), next[0]))
					ctx := die(t, w, tc.at)
					_, _, err := author.CreateChat(ctx, group(chat, users))
					if tidemark.CodeOf(err) != tidemark.Unavailable {
						t.Fatalf("the author did not die: %v", err)
					}
					if _, err := other.Chat(t.Context(), chat); tc.effect != (err == nil) ||
						!tc.effect && tidemark.CodeOf(err) != tidemark.NotFound {
						t.Errorf("the chat: %v", err)
					}
					heads, err := other.Heads(t.Context(), []tidemark.ChatID{chat})
					if err != nil || heads[0] != 0 {
						t.Errorf("the chat's head: %v, %v", heads, err)
					}
					list, _, err := other.ChatsOf(t.Context(), users[1],
						storage.ChatsPage{Limit: 99, Brief: true})
					listed := slices.ContainsFunc(list,
						func(c storage.ChatListItem) bool { return c.Chat.ID == chat })
					if err != nil || listed != tc.effect {
						t.Errorf("the list of chats: %+v, %v", list, err)
					}
					members := users
					if !tc.effect {
						members = next
						old(t, other, chat)
					}
					_, created, err := other.CreateChat(t.Context(), group(chat, next))
					if created != !tc.effect ||
						tc.effect != (tidemark.CodeOf(err) == tidemark.Conflict) {
						t.Errorf("created by another user: %v, %v", created, err)
					}
					send(t, other, chat, members[0], "k", 1)
					sees(t, other, chat, members[1], true, len(members))
					sees(t, other, chat, "w00009", slices.Contains(members, "w00009"), len(members))
					sees(t, other, chat, "u00009", slices.Contains(members, "u00009"), len(members))
				})
		}
	}
}

// A standing row of a Large chat keeps Mark from writing. So a user with such a row compares the
// chat's head, even if the change that makes the chat Large never takes effect.
func TestCrash_pending_or_delivered_when_a_chat_does_not_become_Large(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	many := usersFrom(tidemark.PendingFanoutLimit+1, "u")
	createsMany := func(ctx context.Context, chat tidemark.ChatID) error {
		_, _, err := author.CreateChat(ctx, storage.NewChat{
			ID:        chat,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			Creator:   "u00000",
			Members:   many,
			CreatedAt: time.UnixMilli(1),
		})
		return err
	}
	for _, tc := range []struct {
		name string
		at   trap
		do   func(ctx context.Context, chat tidemark.ChatID) error
		then func(chat tidemark.ChatID)
	}{
		{"members are added", trap{operation: "UpdateItem", has: "change_head = head"},
			func(ctx context.Context, chat tidemark.ChatID) error {
				createGroup(t, other, chat, many[:450]...)
				_, err := author.AddMembers(ctx, chat, many, tidemark.Ordinary, time.UnixMilli(5))
				return err
			}, func(tidemark.ChatID) {}},
		{"it is created", trap{operation: "PutItem", has: "chat_counters"},
			createsMany, func(chat tidemark.ChatID) {
				old(t, other, chat)
				createGroup(t, other, chat, many[:crowd]...)
			}},
		{"it is created, and then by few", trap{operation: "PutItem", has: "chat_counters"},
			createsMany, func(chat tidemark.ChatID) { createGroup(t, other, chat, many[:2]...) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", len(tc.name)))
			ctx := die(t, w, tc.at)
			if err := tc.do(ctx, chat); tidemark.CodeOf(err) != tidemark.Unavailable {
				t.Fatalf("the author did not die: %v", err)
			}
			tc.then(chat)
			if found, err := other.Chat(t.Context(), chat); err != nil || found.Large {
				t.Fatalf("%+v, %v; want a chat that is not Large", found, err)
			}
			send(t, other, chat, "u00000", "k", 1)
			written, err := other.Mark(t.Context(), []tidemark.PendingDelivery{
				{UserID: "u00001", ChatID: chat, FirstUndelivered: 1},
			})
			must(t, err)
			lags, _, _, err := other.Behind(t.Context(), "u00001",
				storage.BehindQuery{LargeOnly: true, Limit: 99})
			must(t, err)
			behind := slices.ContainsFunc(lags,
				func(l storage.Lag) bool { return l.Chat == chat && l.Acked == 0 && l.Head == 1 })
			if !written[0] && !behind {
				t.Error("no row was written, and the chat is not among those to be compared: " +
					"nobody would look")
			}
		})
	}
}

// A change that was prepared for one membership version does not take effect at a later one.
func TestChange_beside_one_of_few(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	createGroup(t, other, "c", "anna")
	send(t, other, "c", "anna", "k", 1)
	w.set(t, trap{
		operation: "UpdateItem",
		has:       "change_head = head",
		before:    func() { add(t, other, "c", "carl") },
	})
	if added := add(t, author, "c", usersFrom(crowd, "u")...); len(added.New) != crowd ||
		added.Version != 3 {
		t.Errorf("added %d at version %d, want %d at 3", len(added.New), added.Version, crowd)
	}
	sees(t, other, "c", "carl", true, 2+crowd)
}
