package simulationtest

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// floor returns the first sequence of a chat that is kept.
func (tr *truth) floor(chat tidemark.ChatID) tidemark.Sequence { return max(1, tr.floors[chat]) }

// strict returns the sequence below which nothing of a chat may be read from now on. Nodes need not
// know of a deletion until they were told of it.
func (tr *truth) strict(chat tidemark.ChatID) tidemark.Sequence {
	if tr.deleted[chat] && !tr.told[chat] && !tr.w.quiet {
		return tr.before[chat]
	}
	return tr.floor(chat)
}

// stricts returns strict for each chat, and the chats of which nothing may be read any more.
func (tr *truth) stricts() (floors map[tidemark.ChatID]tidemark.Sequence,
	gone map[tidemark.ChatID]bool,
) {
	floors, gone = map[tidemark.ChatID]tidemark.Sequence{}, map[tidemark.ChatID]bool{}
	for _, chat := range tr.w.chats {
		floors[chat] = tr.strict(chat)
		gone[chat] = tr.deleted[chat] && (tr.told[chat] || tr.w.quiet)
	}
	return floors, gone
}

// message returns a message as it was stored first, or nil if there was none.
func (tr *truth) message(chat tidemark.ChatID, n tidemark.Sequence) *tidemark.Message {
	if n < 1 || n > tidemark.Sequence(len(tr.all[chat])) {
		return nil
	}
	return &tr.all[chat][n-1]
}

// picture is what is stored of a chat: what removals leave alone, and what they change.
type picture struct{ rest, messages string }

// pictures returns what is stored of all chats.
func (tr *truth) pictures() map[tidemark.ChatID]picture {
	all, ctx := map[tidemark.ChatID]picture{}, context.Background()
	rows := map[tidemark.ChatID]string{}
	for _, user := range tr.w.users {
		for _, row := range tr.w.rows(user) {
			rows[row.ChatID] += fmt.Sprint(row)
		}
	}
	for _, chat := range tr.w.chats {
		stored, err := tr.w.raw.Chat(ctx, chat)
		if err != nil {
			tr.w.failf("Chat: %v", err)
		}
		pages, err := tr.w.raw.Ranges(ctx, []storage.Range{{Chat: chat, Limit: 10_000}})
		if err != nil {
			tr.w.failf("Ranges: %v", err)
			return nil
		}
		p := picture{rest: fmt.Sprint(stored.Head, stored.MemberCount, rows[chat])}
		for _, user := range tr.w.users {
			p.rest += fmt.Sprintf(" %+v", tr.w.state(user, chat))
		}
		p.messages = fmt.Sprint(stored.Floor)
		for _, m := range pages[0] {
			p.messages += fmt.Sprint(m.Sequence, m.Content, m.Revision)
		}
		all[chat] = p
	}
	return all
}

// others checks that the removal of one chat's messages touched no other chat.
func (tr *truth) others(
	rule string, chat tidemark.ChatID, before, after map[tidemark.ChatID]picture,
) {
	for _, other := range tr.w.chats {
		if other != chat && before[other] != after[other] {
			tr.w.failf("%s: a removal in %s changed %s from %v to %v",
				rule, chat, other, before[other], after[other])
		}
	}
}

// expired checks a step of Expire: it removed what is old, up to the first message that is not, and
// changed nothing else.
func (tr *truth) expired(
	chat tidemark.ChatID, until time.Time, limit int, done storage.Expired,
	before map[tidemark.ChatID]picture,
) {
	first, floor := tr.floor(chat), tr.floor(chat)
	for floor < first+tidemark.Sequence(limit) && !tr.deleted[chat] {
		m := tr.message(chat, floor)
		if m == nil || !m.CreatedAt.Before(until.Truncate(time.Millisecond)) {
			break
		}
		delete(tr.sent, tr.keyOf(m))
		floor++
	}
	if done.Floor != floor || done.Removed != int(floor-first) {
		tr.w.failf("floor_recorded: Expire of %s gives %+v, and the floor is %d after %d",
			chat, done, floor, first)
	}
	tr.floors[chat] = floor
	after := tr.pictures()
	tr.others("floor_recorded", chat, before, after)
	if before[chat].rest != after[chat].rest {
		tr.w.failf("tick_monotone: Expire of %s changed %s to %s",
			chat, before[chat].rest, after[chat].rest)
	}
	if floor == first {
		return
	}
	tr.w.count("messages expired")
	for _, user := range tr.w.users {
		if tr.w.state(user, chat).Acked >= first {
			tr.w.count("checked tick_monotone at a floor")
		}
		tr.counted(user, chat)
	}
}

func (tr *truth) keyOf(m *tidemark.Message) string {
	return fmt.Sprintf("%s %s %s", m.ChatID, m.SenderID, m.ClientMessageID)
}

// unread returns how many messages a user has not read in a chat.
func (tr *truth) unread(user tidemark.UserID, chat tidemark.ChatID) (unread int64) {
	after := tr.w.state(user, chat).UnreadAfter()
	for i := range tr.all[chat] {
		m := &tr.all[chat][i]
		if m.Sequence > after && m.Sequence >= tr.floor(chat) && m.SenderID != user &&
			m.Kind.Counts() && tr.may(user, chat, m.Sequence) {
			unread++
		}
	}
	return unread
}

// counted checks unread_exact for one user in one chat.
func (tr *truth) counted(user tidemark.UserID, chat tidemark.ChatID) {
	got, err := tr.w.raw.Unread(context.Background(), []storage.StateKey{{User: user, Chat: chat}})
	if err != nil {
		tr.w.failf("Unread: %v", err)
		return
	}
	want := tr.unread(user, chat)
	if got[0].Messages != want {
		tr.w.failf("unread_exact: %s has %d unread messages in %s, and %d are counted",
			user, want, chat, got[0].Messages)
	}
	if tr.floor(chat) > 1 && want > 0 {
		tr.w.count("checked unread_exact above a floor")
	}
}

// vanished checks the step of DeleteChat, and records it.
func (tr *truth) vanished(chat tidemark.ChatID, before map[tidemark.ChatID]picture) {
	after := tr.pictures()
	tr.others("deleted_is_gone", chat, before, after)
	if tr.deleted[chat] {
		if before[chat] != after[chat] {
			tr.w.failf("deleted_is_gone: a second deletion of %s changed %v to %v",
				chat, before[chat], after[chat])
		}
		return
	}
	tr.w.count("chat deleted")
	tr.before[chat] = tr.floor(chat)
	tr.deleted[chat], tr.floors[chat] = true, tr.heads[chat]+1
	for key, spans := range tr.spans {
		if key.Chat != chat || !tr.member(key.User, chat) {
			continue
		}
		spans[len(spans)-1].to = tr.heads[chat]
		if spans[len(spans)-1].from > tr.heads[chat] {
			tr.spans[key] = spans[:len(spans)-1]
		}
		tr.changes[key]++
	}
	tr.isGone(chat)
}

// isGone checks that nothing of a deleted chat is stored that anybody could read.
func (tr *truth) isGone(chat tidemark.ChatID) {
	ctx := context.Background()
	pages, err := tr.w.raw.Ranges(ctx, []storage.Range{{Chat: chat, Limit: 10_000}})
	rosters, errRoster := tr.w.raw.Rosters(ctx, []tidemark.ChatID{chat})
	if err != nil || errRoster != nil {
		tr.w.failf("deleted_is_gone: %v, %v", err, errRoster)
		return
	}
	if n := len(pages[0]); n > 0 {
		tr.w.failf("deleted_is_gone: %s has %d messages", chat, n)
	}
	if r := rosters[0]; r != nil && len(r.Members) > 0 {
		tr.w.failf("deleted_is_gone: %s has %d members", chat, len(r.Members))
	}
	for _, user := range tr.w.users {
		tr.counted(user, chat)
	}
}

// purged checks a step of PurgeChat.
func (tr *truth) purged(
	chat tidemark.ChatID, members bool, before map[tidemark.ChatID]picture,
) {
	tr.others("deleted_is_gone", chat, before, tr.pictures())
	tr.isGone(chat)
	if members {
		tr.w.count("members purged")
		for key := range tr.marks {
			if key.Chat == chat {
				delete(tr.marks, key)
			}
		}
	}
}

// page checks a page of history: it has every sequence after one, each as a message or in a gap,
// and nothing below the floor that was there when the request began.
func (tr *truth) page(
	user tidemark.UserID, after tidemark.Sequence, h server.History, floor tidemark.Sequence,
	chat tidemark.ChatID,
) {
	at := map[tidemark.Sequence]bool{}
	through := after
	for i := range h.Messages {
		m := &h.Messages[i]
		at[m.Sequence], through = true, max(through, m.Sequence)
		first := tr.message(chat, m.Sequence)
		switch {
		case first == nil || first.ClientMessageID != m.ClientMessageID:
			tr.w.failf("delivered_implies_persisted: %s reads %d of %s", user, m.Sequence, chat)
		case !tr.may(user, chat, m.Sequence):
			tr.w.failf("nothing_outside_membership: %s reads %d of %s", user, m.Sequence, chat)
		case m.Sequence < floor:
			tr.w.failf("%s: %s reads %d of %s, which begins at %d",
				tr.rule(chat), user, m.Sequence, chat, floor)
		}
		if m.Relation != nil && m.Relation.Target != nil && m.Relation.Target.Sequence < floor {
			tr.w.failf("floor_recorded: %s reads the target of %d of %s", user, m.Sequence, chat)
		}
	}
	for _, g := range h.Gaps {
		tr.gap(user, g)
		for n := g.From; n <= g.To; n++ {
			at[n], through = true, max(through, n)
		}
	}
	for n := after + 1; n <= through; n++ {
		if !at[n] {
			tr.w.failf("sequence_gapless: %s reads %s from %d to %d, and %d is missing",
				user, chat, after+1, through, n)
		}
	}
	tr.through = through
}

// gap checks that a user is told of a gap where one is.
func (tr *truth) gap(user tidemark.UserID, g tidemark.Gap) {
	if g.Reason == tidemark.GapExpired {
		if g.To >= tr.floor(g.ChatID) {
			tr.w.failf("floor_recorded: %s is told that %d-%d of %s have expired, and it begins "+
				"at %d", user, g.From, g.To, g.ChatID, tr.floor(g.ChatID))
		}
		tr.w.count("checked floor_recorded by a gap")
		return
	}
	for n := g.From; n <= g.To; n++ {
		if tr.may(user, g.ChatID, n) {
			tr.w.failf("%s is told of a gap %d-%d in %s, and may see %d",
				user, g.From, g.To, g.ChatID, n)
		}
	}
}

// rule names the rule that says that what is below the floor of a chat is gone.
func (tr *truth) rule(chat tidemark.ChatID) string {
	if tr.deleted[chat] {
		return "deleted_is_gone"
	}
	return "floor_recorded"
}
