package storagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// role returns the change of a member's role.
func role(r tidemark.Role) storage.MemberChange { return storage.MemberChange{Role: r} }

// memberMetadata returns the change of a member's metadata. Empty metadata are none.
func memberMetadata(raw string) storage.MemberChange {
	return storage.MemberChange{Metadata: json.RawMessage(raw)}
}

var roleRules = []rule{
	{"UpdateMember_changes_what_is_named_and_counts_the_changes", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		for name, c := range map[string]tidemark.ChatID{
			"small": f.group("small", alice, bob),
			"large": f.group("large",
				append(f.many(tidemark.PendingFanoutLimit), alice, bob)...),
		} {
			want := f.member(c, bob)
			version := f.roster(c).Version
			largest := `{"a":"` + strings.Repeat("é", (tidemark.MaxMemberMetadata-8)/2) + `"}`
			for i, step := range []struct {
				change   storage.MemberChange
				role     tidemark.Role
				metadata string
			}{
				{role(tidemark.Admin), tidemark.Admin, ""},
				{memberMetadata(largest), tidemark.Admin, largest},
				{role(tidemark.Reader), tidemark.Reader, largest},
				{storage.MemberChange{Role: tidemark.Owner, Metadata: []byte(`{ "ü" : 1.50 }`)},
					tidemark.Owner, `{ "ü" : 1.50 }`},
				{role(tidemark.Ordinary), tidemark.Ordinary, `{ "ü" : 1.50 }`},
				{memberMetadata(""), tidemark.Ordinary, ""},
			} {
				version++
				if want.Role, want.Metadata = step.role, nil; step.metadata != "" {
					want.Metadata = json.RawMessage(step.metadata)
				}
				for range 2 { // a repeated change changes nothing more
					got, err := f.store.UpdateMember(f.ctx, c, bob, step.change)
					f.ok(err)
					f.equal(fmt.Sprint(name, ": result of step ", i), got, storage.UpdatedMember{
						Member: want, Version: version,
					})
					f.equal(fmt.Sprint(name, ": member after step ", i), f.member(c, bob), want)
					f.equal("version of the roster", f.roster(c).Version, version)
				}
			}
			got, err := f.store.UpdateMember(f.ctx, c, bob, storage.MemberChange{})
			f.ok(err)
			f.equal("no change", got, storage.UpdatedMember{Member: want, Version: version})
		}
	}},
	{"AddMembers_gives_the_role_to_those_who_join_only", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		for name, size := range map[string]int{"few": 3, "many": 60} {
			users := append(f.many(size), bob, carol)
			for _, role := range []tidemark.Role{
				tidemark.Owner, tidemark.Admin, tidemark.Ordinary, tidemark.Reader,
			} {
				label := fmt.Sprint(name, " ", role)
				c := f.group(label, alice, bob, carol)
				f.remove(c, carol)
				for range 2 { // a repetition changes nothing more
					added, err := f.store.AddMembers(f.ctx, c, users, role, at(5))
					f.ok(err)
					f.equal(label+": version", added.Version, uint64(3))
				}
				f.equal(label+": who was a member", f.member(c, bob).Role, tidemark.Ordinary)
				f.equal(label+": who returns", f.member(c, carol).Role, role)
				f.equal(label+": who is new", f.member(c, users[0]).Role, role)
				_, err := storage.AppendOne(f.ctx, f.store, f.draft(c, users[0], "hello"))
				f.equal(label+": may send", err == nil, role.MaySend())
				f.eventually(label+": in the list", func() any {
					chats := f.chatsOf(users[0], 10)
					i := slices.IndexFunc(chats, func(item storage.ChatListItem) bool {
						return item.Chat.ID == c
					})
					return i >= 0 && chats[i].Role == role
				}, true)
			}
		}
	}},
	{"ChatsOf_has_the_present_role_also_of_an_empty_chat", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.direct("d", alice, bob)
		roles := func(user tidemark.UserID) any {
			got := map[tidemark.ChatID]tidemark.Role{}
			for _, item := range f.chatsOf(user, 10) {
				got[item.Chat.ID] = item.Role
			}
			return []tidemark.Role{got[c], got[f.chat("d")]}
		}
		for _, sent := range []bool{false, true} {
			f.update(c, bob, role(tidemark.Admin))
			f.eventually("roles of alice", func() any { return roles(alice) },
				[]tidemark.Role{tidemark.Owner, tidemark.Owner})
			f.eventually("roles of bob", func() any { return roles(bob) },
				[]tidemark.Role{tidemark.Admin, tidemark.Ordinary})
			if f.update(c, bob, role(tidemark.Reader)); !sent {
				f.send(c, alice, 1)
			}
			f.eventually("roles of bob, a reader", func() any { return roles(bob) },
				[]tidemark.Role{tidemark.Reader, tidemark.Ordinary})
		}
	}},
	{"UpdateMember_errors_change_nothing", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		_, err := f.store.UpdateMember(f.ctx, f.chat("none"), alice, role(tidemark.Admin))
		f.code(err, tidemark.NotFound)
		c, d := f.group("c", alice, bob), f.direct("d", alice, bob)
		f.remove(c, bob)
		before, direct := f.roster(c), f.roster(d)
		for _, user := range f.users("bob", "carol") {
			_, err = f.store.UpdateMember(f.ctx, c, user, role(tidemark.Admin))
			f.code(err, tidemark.NotMember)
		}
		_, err = f.store.UpdateMember(f.ctx, d, bob, role(tidemark.Reader))
		f.code(err, tidemark.Denied)
		_, err = f.store.UpdateMember(f.ctx, c, alice, role(tidemark.Admin))
		f.code(err, tidemark.Denied)
		f.equal("roster", f.roster(c), before)
		f.equal("direct roster", f.roster(d), direct)
	}},
	{"Metadata_and_role_end_with_the_membership", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		for name, c := range map[string]tidemark.ChatID{
			"small": f.group("small", alice, bob),
			"large": f.group("large",
				append(f.many(tidemark.PendingFanoutLimit), alice, bob)...),
		} {
			_, err := f.store.UpdateMember(f.ctx, c, bob,
				storage.MemberChange{Role: tidemark.Admin, Metadata: []byte(`{"a":1}`)})
			f.ok(err)
			f.remove(c, bob)
			f.add(c, bob)
			m := f.member(c, bob)
			f.equal(name+": role", m.Role, tidemark.Ordinary)
			f.equal(name+": metadata", m.Metadata == nil, true)
			_, err = f.store.UpdateMember(f.ctx, c, bob, memberMetadata(`{"b":1}`))
			f.ok(err)
			f.remove(c, bob)
			f.add(c, slices.Concat(f.many(tidemark.PendingFanoutLimit+60), f.users("bob"))...)
			f.equal(name+": metadata after a large change", f.member(c, bob).Metadata == nil, true)
		}
	}},
	{"Append_by_a_reader_is_Denied_but_their_own_repeat_is_a_duplicate", func(f *fixture) {
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		c := f.group("c", alice, bob)
		sent := f.draft(c, bob, "hello")
		first := f.append(sent)
		f.update(c, bob, role(tidemark.Reader))
		drafts := []tidemark.Draft{
			f.draft(c, alice, "1"), f.draft(c, bob, "2"), f.draft(c, carol, "3"),
			f.draft(c, alice, "4"), sent,
		}
		got, err := f.store.Append(f.ctx, drafts)
		f.ok(err)
		f.equal("first of alice", got[0].Message.Sequence, first.Message.Sequence+1)
		f.code(got[1].Err, tidemark.Denied)
		f.code(got[2].Err, tidemark.NotMember)
		f.equal("second of alice", got[3].Message.Sequence, first.Message.Sequence+2)
		f.equal("repeat", got[4], storage.Appended{
			Message: first.Message, Duplicate: true, Version: 2,
		})
		f.equal("head", f.info(c).Head, first.Message.Sequence+2)
		f.update(c, bob, role(tidemark.Ordinary))
		f.append(f.draft(c, bob, "again"))
	}},
	{"A_reader_reads_like_any_member", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.send(c, bob, 2)
		f.update(c, bob, role(tidemark.Reader))
		f.send(c, alice, 2)
		f.raise(bob, c, tidemark.Raise{Acked: 4, Read: 3}, at(9))
		f.equal("unread", f.unread(bob, c), storage.Unread{Messages: 1})
	}},
	{"The_last_owner_is_succeeded_by_the_eldest", testSuccession},
	{"A_group_of_readers_has_no_successor", func(f *fixture) {
		alice, bob := f.user("alice"), f.user("bob")
		c := f.group("c", alice, bob)
		f.update(c, bob, role(tidemark.Reader))
		_, err := f.store.UpdateMember(f.ctx, c, alice, role(tidemark.Admin))
		f.code(err, tidemark.Denied)
		f.equal("successor", f.remove(c, alice).Successor, tidemark.UserID(""))
		f.equal("role", f.member(c, bob).Role, tidemark.Reader)
		f.update(c, bob, role(tidemark.Owner))
	}},
	{"Owners_who_leave_and_step_down_at_once_leave_an_owner", testOwnersRace},
	{"Append_races_with_UpdateMember", testAppendWhileRolesChange},
}

// update changes a member, which must succeed.
func (f *fixture) update(
	chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) storage.UpdatedMember {
	f.Helper()
	updated, err := f.store.UpdateMember(f.ctx, chat, user, change)
	f.ok(err)
	return updated
}

// testSuccession has a table of members in the order of their joining, the last owner first.
func testSuccession(f *fixture) {
	for name, test := range map[string]struct {
		others []tidemark.Role // of the users d, c, b and so on: the eldest has the greatest id
		heir   int             // the index in others, or -1
	}{
		"eldest member": {
			[]tidemark.Role{tidemark.Ordinary, tidemark.Ordinary}, 0,
		},
		"eldest admin, not member": {
			[]tidemark.Role{tidemark.Ordinary, tidemark.Admin, tidemark.Admin}, 1,
		},
		"member, not an elder reader": {
			[]tidemark.Role{tidemark.Reader, tidemark.Ordinary}, 1,
		},
		"another owner remains": {
			[]tidemark.Role{tidemark.Admin, tidemark.Owner}, -1,
		},
	} {
		for _, by := range []string{"removal", "demotion"} {
			label := name + ", " + by
			name := strings.NewReplacer(" ", "_", ",", "").Replace(label)
			alice, others := f.user("alice"), f.users("d", "c", "b")[:len(test.others)]
			c := f.group(name, alice)
			for i, user := range others {
				_, err := f.store.AddMembers(f.ctx, c, []tidemark.UserID{user}, tidemark.Ordinary,
					at(i+1))
				f.ok(err)
				f.update(c, user, role(test.others[i]))
			}
			heir, version := tidemark.UserID(""), f.roster(c).Version
			if test.heir >= 0 {
				heir = others[test.heir]
			}
			if by == "removal" {
				removed := f.remove(c, alice)
				f.equal(label+": successor", removed.Successor, heir)
				f.equal(label+": version", removed.Version, version+1)
			} else {
				updated := f.update(c, alice, role(tidemark.Ordinary))
				f.equal(label+": successor", updated.Successor, heir)
				f.equal(label+": version", updated.Version, version+1)
				f.equal(label+": role", f.member(c, alice).Role, tidemark.Ordinary)
			}
			for i, user := range others {
				want := test.others[i]
				if user == heir {
					want = tidemark.Owner
				}
				f.equal(label+": role of "+string(user), f.member(c, user).Role, want)
			}
		}
	}
	// Of those who joined together, the smallest id is the eldest. The others' metadata stay.
	c := f.group("together", f.users("z", "y", "x")...)
	f.update(c, f.user("x"), memberMetadata(`{"a":1}`))
	f.equal("successor", f.remove(c, f.user("z")).Successor, f.user("x"))
	f.equal("metadata", string(f.member(c, f.user("x")).Metadata), `{"a":1}`)
}

// testOwnersRace removes and demotes all owners and members of a group at once, while others look.
func testOwnersRace(f *fixture) {
	users := f.many(racers)
	c := f.group("c", append(slices.Clone(users), f.user("zoe"))...)
	for _, user := range users[1 : racers/2] {
		f.update(c, user, role(tidemark.Owner))
	}
	owned := func() error {
		rosters, err := f.store.Rosters(f.ctx, []tidemark.ChatID{c})
		if err != nil {
			return err
		}
		for _, m := range rosters[0].Members {
			if m.Role == tidemark.Owner {
				return nil
			}
		}
		return fmt.Errorf("no owner among %+v", rosters[0].Members)
	}
	f.ok(concurrently(racers, func(i int) error {
		var err error
		if i%3 == 0 {
			_, err = f.store.UpdateMember(f.ctx, c, users[i], role(tidemark.Ordinary))
		} else {
			_, err = f.store.RemoveMember(f.ctx, c, users[i], at(2))
		}
		if err == nil {
			err = owned()
		}
		return err
	}))
	f.ok(owned())
	f.equal("members", f.info(c).MemberCount, len(f.roster(c).Members))
}

// testAppendWhileRolesChange makes bob a reader and a member by turns while bob sends. No message
// of bob has a version at which bob was a reader.
func testAppendWhileRolesChange(f *fixture) {
	alice, bob := f.user("alice"), f.user("bob")
	c := f.group("c", alice, bob)
	var mu sync.Mutex
	stored := 0
	f.ok(concurrently(1+racers/2, func(i int) error {
		if i == 0 {
			for n := range 20 {
				wanted := []tidemark.Role{tidemark.Reader, tidemark.Ordinary}[n%2]
				updated, err := f.store.UpdateMember(f.ctx, c, bob, role(wanted))
				if err != nil || updated.Version != uint64(n+2) {
					return fmt.Errorf("version %d, %w", updated.Version, err)
				}
			}
			return nil
		}
		for range 6 {
			sender := []tidemark.UserID{alice, bob}[i%2]
			_, err := storage.AppendOne(f.ctx, f.store, f.draft(c, sender, "hello"))
			if sender == bob && tidemark.CodeOf(err) == tidemark.Denied {
				continue
			}
			if err != nil {
				return err
			}
			mu.Lock()
			stored++
			mu.Unlock()
		}
		return nil
	}))
	f.gapless(c, stored)
	for _, m := range f.messages(storage.Range{Chat: c}) {
		if m.SenderID == bob && m.MembersVersion%2 == 0 {
			f.Errorf("message %d is of bob, who was a reader at version %d", m.Sequence,
				m.MembersVersion)
		}
	}
}
