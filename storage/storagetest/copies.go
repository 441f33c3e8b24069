package storagetest

import (
	"cmp"
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
