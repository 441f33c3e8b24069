package storagetest

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// copyable is a store that can be copied. Every backend is.
type copyable interface {
	storage.Store
	storage.CopySource
	storage.CopyTarget
}

// copyable returns the store, without the wrapper around it.
func (f *fixture) copyable() copyable {
	f.Helper()
	s := f.store
	if wrapped, is := s.(interface{ Unwrap() storage.Store }); is {
		s = wrapped.Unwrap()
	}
	found, is := s.(copyable)
	if !is {
		f.Fatalf("the store is no storage.CopySource and CopyTarget")
	}
	return found
}

// copyChat copies a chat to another id of the same store, with the numbers that a copy counts. All
// of its messages are kept.
func (f *fixture) copyChat(s copyable, from, to tidemark.ChatID) {
	f.Helper()
	copied := storage.CopiedChat{Chat: f.info(from), Open: true, LastSent: f.info(from).Head}
	copied.ID = to
	var err error
	copied.Activity, err = s.Activity(f.ctx, from)
	f.ok(err)
	f.ok(s.PutChat(f.ctx, copied))
	found, _, err := s.MembersSince(f.ctx, storage.MembersQuery{Chat: from, Limit: 100})
	f.ok(err)
	members := make([]storage.CopiedMember, len(found))
	users := make([]tidemark.UserID, len(found))
	for i := range found {
		users[i] = found[i].UserID
		members[i] = storage.CopiedMember{
			ChangedMember: found[i], State: f.state(users[i], from),
			Pending: true, FirstUndelivered: 2,
		}
		members[i].State.ChatID = to
	}
	facts, err := s.MessageFacts(f.ctx, storage.FactsQuery{
		Chat: from, From: 1, To: copied.Head, Users: users, Mentions: true,
	})
	f.ok(err)
	messages := make([]storage.CopiedMessage, 0, len(facts))
	for i, m := range f.messages(storage.Range{Chat: from}) {
		m = m.WithoutTarget()
		m.ChatID = to
		one := storage.CopiedMessage{
			Message: m, MessageFacts: facts[i], Keyed: true,
			Stands: m.Kind.Annotates() && !m.Redacted(),
		}
		if !m.Kind.Counts() {
			copied.Uncounted++
			one.Ordinal, copied.LastUncounted = copied.Uncounted, m.Sequence
		} else if !facts[i].Mentions.None() {
			copied.LastMention = m.Sequence
		}
		for n := range members {
			if st := &members[n]; m.Kind.Counts() && st.UserID == m.SenderID {
				st.Sent, st.LastSent = st.Sent+1, m.Sequence
				if m.Sequence <= st.State.Read {
					st.SentRead++
				}
				if m.Sequence <= st.State.UnreadAfter() {
					st.SentBefore++
				}
			}
		}
		messages = append(messages, one)
	}
	for range 2 { // Each call may be repeated.
		f.ok(s.PutMessages(f.ctx, to, messages))
		f.ok(s.PutMembers(f.ctx, to, members))
		f.ok(s.PutChat(f.ctx, copied))
	}
}

var copyRules = []rule{
	{"copy_equal_policy_of_receipts", func(f *fixture) {
		s := f.copyable()
		alice, bob, left := f.user("alice"), f.user("bob"), f.user("left")
		for _, policy := range []tidemark.ReceiptsPolicy{
			tidemark.ReceiptsNever, tidemark.ReceiptsRequired, tidemark.ReceiptsOptional,
		} {
			name := "c" + string(policy)
			from, to := f.group(name, alice, bob, left), f.chat(name+".copy")
			f.append(f.draft(from, alice, "hello"))
			f.remove(from, left)
			f.updates(from, showing(tidemark.ReceiptsRequired))
			f.updates(from, showing(policy))
			f.copyChat(s, from, to)
			f.equal("policy", f.info(to).Policy.Receipts, policy)
			for _, user := range []tidemark.UserID{bob, left} {
				f.equal("hides", f.state(user, to).Hides, policy == tidemark.ReceiptsNever)
				f.equal("hidden", f.shownRead(user, to, 1) < 1, policy == tidemark.ReceiptsNever)
			}
		}
	}},
	{"copy_equal_settings_of_who_left", func(f *fixture) {
		s := f.copyable()
		alice, left := f.user("alice"), f.user("left")
		from, to := f.group("from", alice, left), f.chat("to")
		f.append(f.draft(from, alice, "hello"))
		f.remove(from, left)
		f.copyChat(s, from, to)
		// A copy writes the settings after the members.
		f.hide(left, "", tidemark.ReceiptsOff)
		f.equal("hides", f.state(left, to).Hides, true)
		f.equal("shown", f.shownRead(left, to, 1), tidemark.Sequence(0))
	}},

	{"copy_equal_a_chat_is_as_it_was", func(f *fixture) {
		s := f.copyable()
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		from, to := f.group("from", alice, bob, carol), f.chat("to")
		send := func(change func(d *tidemark.Draft)) tidemark.Draft {
			d := f.draft(from, alice, "hello")
			d.CreatedAt = time.Now()
			change(&d)
			f.append(d)
			return d
		}
		first := send(func(d *tidemark.Draft) {
			d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{bob, carol})
		})
		send(func(d *tidemark.Draft) { d.SenderID = bob })
		send(func(d *tidemark.Draft) {
			d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 1}
		})
		send(func(d *tidemark.Draft) {
			d.Kind, d.Content = tidemark.KindReact, ""
			d.Relation = &tidemark.Relation{Sequence: 2, Emoji: "👍"}
		})
		send(func(d *tidemark.Draft) {
			d.Kind, d.Content = tidemark.KindPin, ""
			d.Relation = &tidemark.Relation{Sequence: 2}
		})
		send(func(d *tidemark.Draft) { d.Kind = tidemark.KindSystem })
		send(func(d *tidemark.Draft) { d.Mentions = tidemark.NewMentions(true, nil) })
		last := send(func(d *tidemark.Draft) { d.SenderID = bob })
		send(func(d *tidemark.Draft) {
			d.Kind, d.Content = tidemark.KindRedact, ""
			d.Relation = &tidemark.Relation{Sequences: []tidemark.Sequence{7}}
		})
		f.raise(bob, from, tidemark.Raise{Acked: 8, Read: 7}, at(30))
		f.remove(from, carol)
		_, err := s.MarkUnread(f.ctx, bob, from, 2)
		f.ok(err)
		f.copyChat(s, from, to)

		want := f.info(from)
		want.ID = to
		f.equal("chat", f.info(to), want)
		messages := f.messages(storage.Range{Chat: from})
		for i := range messages {
			m := &messages[i]
			if m.ChatID = to; m.Relation != nil && m.Relation.Target != nil {
				m.Relation.Target.ChatID = to
			}
		}
		f.equal("messages", f.messages(storage.Range{Chat: to}), messages)
		f.equal("members", f.roster(to).Members, f.roster(from).Members)
		for _, user := range []tidemark.UserID{alice, bob, carol} {
			unread, err := s.Unread(f.ctx, []storage.StateKey{
				{User: user, Chat: from}, {User: user, Chat: to},
			})
			f.ok(err)
			f.equal("unread of "+string(user), unread[1], unread[0])
			state := f.state(user, from)
			state.ChatID = to
			f.equal("state of "+string(user), f.state(user, to), state)
		}
		f.equal("pending", f.pending(bob)[to], tidemark.Sequence(2))
		for _, chat := range []tidemark.ChatID{from, to} {
			reactions, _, err := s.Reactions(f.ctx,
				storage.ReactionsQuery{Chat: chat, From: 1, To: 8, User: alice})
			f.ok(err)
			f.equal("reactions", reactions, []storage.ReactionCount{
				{Sequence: 2, Emoji: "👍", Count: 1, Own: 4},
			})
			pins, err := s.Pins(f.ctx, chat)
			f.ok(err)
			f.equal("pins", len(pins), 1)
		}
		for _, d := range []tidemark.Draft{first, last} {
			d.ChatID = to
			f.equal("a resend is known", f.append(d).Duplicate, true)
		}
		next := f.draft(to, bob, "after the copy")
		f.equal("the next message", f.append(next).Message.Sequence, tidemark.Sequence(10))
		// What Bob sent after the mark is as little unread for Bob as before.
		next.ChatID = from
		f.append(next)
		unread, err := s.Unread(f.ctx, []storage.StateKey{
			{User: bob, Chat: from}, {User: bob, Chat: to},
		})
		f.ok(err)
		f.equal("unread after another message", unread[1], unread[0])
		f.deletes(to)
		f.purges(to, 100, true)
	}},

	{"copy_equal_a_dropped_chat_was_never_there", func(f *fixture) {
		s := f.copyable()
		alice, bob, carol := f.user("alice"), f.user("bob"), f.user("carol")
		stays, goes := f.group("stays", alice, bob), f.group("goes", alice, bob, carol)
		for _, chat := range []tidemark.ChatID{stays, goes} {
			for _, change := range []func(d *tidemark.Draft){
				func(d *tidemark.Draft) {
					d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{bob})
				},
				func(d *tidemark.Draft) {
					d.Kind, d.Content = tidemark.KindReact, ""
					d.Relation = &tidemark.Relation{Sequence: 1, Emoji: "👍"}
				},
				func(d *tidemark.Draft) {
					d.Kind, d.Content = tidemark.KindPin, ""
					d.Relation = &tidemark.Relation{Sequence: 1}
				},
			} {
				d := f.draft(chat, alice, "text of "+string(chat))
				d.CreatedAt = time.Now()
				d.ClientMessageID = "key-" + d.ClientMessageID
				change(&d)
				f.append(d)
			}
			f.raise(bob, chat, tidemark.Raise{Acked: 2, Read: 1}, at(30))
		}
		f.remove(goes, carol)
		_, err := s.Ban(f.ctx, goes, carol, at(31))
		f.ok(err)
		metadata := storage.ChatChange{Metadata: json.RawMessage(`{"topic":"canary"}`)}
		_, err = s.UpdateChat(f.ctx, goes, metadata)
		f.ok(err)
		kept := f.messages(storage.Range{Chat: stays})
		old := f.messages(storage.Range{Chat: goes})[0]
		for range 2 { // The call may be repeated.
			f.ok(s.DropChat(f.ctx, goes))
		}

		_, err = s.Chat(f.ctx, goes)
		f.code(err, tidemark.NotFound)
		f.equal("messages of another chat", f.messages(storage.Range{Chat: stays}), kept)
		f.equal("members of another chat", len(f.roster(stays).Members), 2)
		naming, _, _, err := s.ChatsNaming(f.ctx, bob, "", storage.MaxErased)
		f.ok(err)
		for _, id := range naming {
			f.equal("a chat that names bob is dropped", id == goes, false)
		}
		_, pending := f.pending(bob)[goes]
		f.equal("pending", pending, false)

		// A chat of the same id begins anew, with the same keys.
		f.ok(s.PutChat(f.ctx, storage.CopiedChat{Chat: tidemark.Chat{
			ID: goes, Type: tidemark.Group, History: tidemark.HistoryFull, Floor: 1, Version: 1,
			MembersVersion: 1, CreatedAt: at(1),
		}, Activity: at(1)}))
		f.equal("messages", len(f.messages(storage.Range{Chat: goes})), 0)
		f.equal("metadata", len(f.info(goes).Metadata), 0)
		members, _, err := s.MembersSince(f.ctx, storage.MembersQuery{Chat: goes, Limit: 10})
		f.ok(err)
		f.equal("members", len(members), 0)
		f.equal("state", f.state(bob, goes).Acked, tidemark.Sequence(0))
		bans, _, err := s.BansOf(f.ctx, goes, "", 10)
		f.ok(err)
		f.equal("bans", len(bans), 0)
		pins, err := s.Pins(f.ctx, goes)
		f.ok(err)
		f.equal("pins", len(pins), 0)
		reactions, _, err := s.Reactions(f.ctx,
			storage.ReactionsQuery{Chat: goes, From: 1, To: 8, User: alice})
		f.ok(err)
		f.equal("reactions", len(reactions), 0)
		_, known, err := s.Sent(f.ctx, storage.SendKey{
			Chat: goes, Sender: old.SenderID, ClientMessageID: old.ClientMessageID,
		})
		f.ok(err)
		f.equal("a key is known", known, false)
		f.ok(s.DropChat(f.ctx, goes))
	}},

	{"copy_equal_a_member_is_overwritten", func(f *fixture) {
		s := f.copyable()
		alice, bob := f.user("alice"), f.user("bob")
		from, to := f.group("from", alice, bob), f.chat("to")
		f.append(f.draft(from, alice, "hello"))
		f.copyChat(s, from, to)
		chats := func() int { return len(f.chatsOf(bob, 10)) }
		f.equal("chats of bob", chats(), 2)
		f.remove(from, bob)
		f.copyChat(s, from, to)
		f.equal("chats of bob who has left", chats(), 0)
		f.equal("members", len(f.roster(to).Members), 1)
	}},

	{"copy_equal_a_pair_has_one_chat", func(f *fixture) {
		s := f.copyable()
		alice, bob := f.user("alice"), f.user("bob")
		pair := func(id tidemark.ChatID) storage.CopiedChat {
			return storage.CopiedChat{Chat: tidemark.Chat{
				ID: id, Type: tidemark.Direct, History: tidemark.HistoryFull, Floor: 1, Version: 1,
				MembersVersion: 1, MemberCount: 2, CreatedAt: at(1),
			}, Activity: at(1), Pair: tidemark.DirectKey(alice, bob)}
		}
		put := func(id tidemark.ChatID) {
			f.ok(s.PutChat(f.ctx, pair(id)))
			var members []storage.CopiedMember
			for _, user := range []tidemark.UserID{alice, bob} {
				members = append(members, storage.CopiedMember{
					ChangedMember: storage.ChangedMember{Version: 1, Member: tidemark.Member{
						UserID: user, Role: tidemark.Ordinary, JoinedAt: at(1),
						Intervals: tidemark.Intervals{}.Joined(0, tidemark.HistoryFull, false),
					}},
					State: tidemark.DeliveryState{UserID: user, ChatID: id},
				})
			}
			f.ok(s.PutMembers(f.ctx, id, members))
		}
		first, second := f.chat("first"), f.chat("second")
		found := func() tidemark.ChatID {
			chat, _, err := s.CreateChat(f.ctx, storage.NewChat{
				ID: f.chat("new"), Type: tidemark.Direct, History: tidemark.HistoryFull,
				CreatedAt: at(2), Members: []tidemark.UserID{alice, bob}, Creator: alice,
			})
			f.ok(err)
			return chat.ID
		}
		put(first)
		put(second)
		f.equal("the chat of the pair", found(), second)
		f.ok(s.DropChat(f.ctx, first))
		f.equal("the chat of the pair, after the other one is dropped", found(), second)
		f.ok(s.DropChat(f.ctx, second))
		f.equal("the chat of the pair, after its own is dropped", found(), f.chat("new"))
	}},

	{"copy_equal_entries_of_the_audit_log", func(f *fixture) {
		s := f.copyable()
		done, refused := f.audited(1), f.audited(3)
		bare := storage.AuditEntry{ID: f.entry(2), Operation: "import", State: storage.AuditBegun}
		f.record(done, bare, refused)
		done = done.Finish(storage.AuditEnd{State: storage.AuditDone, At: at(1)})
		f.ok(s.FinishAudit(f.ctx, done.ID, storage.AuditEnd{State: done.State, At: done.EndedAt}))
		end := storage.AuditEnd{State: storage.AuditRefused, Code: tidemark.Denied, At: at(2)}
		refused = refused.Finish(end)
		f.ok(s.FinishAudit(f.ctx, refused.ID, end))
		f.equal("entries of a source", f.copiedAudit(s), []storage.AuditEntry{done, bare, refused})

		// A copy writes an entry as it is.
		later := refused
		later.ID = f.entry(4)
		for range 2 {
			f.record(later)
		}
		f.equal("entries of a target", f.ownAudit(9),
			[]storage.AuditEntry{later, refused, bare, done})
	}},
}

// copiedAudit returns the entries of the fixture's day as a copy reads them, in their order.
func (f *fixture) copiedAudit(s storage.CopySource) (found []storage.AuditEntry) {
	f.Helper()
	from, to := storage.AuditIDAt(f.day()), storage.AuditIDAt(f.day().AddDate(0, 0, 1))
	for after, more := "", true; more; more = after != "" {
		some, next, err := s.Entries(f.ctx, storage.EntryAudit, after, 100)
		f.ok(err)
		after = next
		for _, one := range some {
			if id := one.Audit.ID; id >= from && id < to {
				found = append(found, one.Audit)
			}
		}
	}
	slices.SortFunc(found, func(a, b storage.AuditEntry) int { return cmp.Compare(a.ID, b.ID) })
	return found
}
