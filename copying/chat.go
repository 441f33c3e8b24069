package copying

import (
	"cmp"
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A chat is a chat of the source while it is copied.
type chat struct {
	*Copier
	part
	// byID finds the members.
	byID map[tidemark.UserID]*storage.CopiedMember
	// there is the chat as the target has it, or nil. Its messages are those up to its head.
	there *part
}

// copyChat copies a chat.
func (c *Copier) copyChat(ctx context.Context, id tidemark.ChatID) error {
	defer c.chats.Add(1)
	if c.state.Step != unfinished {
		return c.merge(ctx, id)
	}
	from, err := partOf(ctx, c.cfg.From, id)
	if err != nil {
		return err
	}
	return c.write(ctx, from, nil)
}

// write writes a chat: its row, the messages, the members, who is banned, and last the row with all
// numbers. there is what the target has of it.
func (c *Copier) write(ctx context.Context, from part, there *part) error {
	if from.State == tidemark.ChatDeleted {
		return c.cfg.To.PutChat(ctx, from.CopiedChat)
	}
	ch := &chat{Copier: c, part: from, there: there}
	ch.members = slices.Clone(from.members) // Their numbers are counted anew.
	ch.byID = make(map[tidemark.UserID]*storage.CopiedMember, len(ch.members))
	for i := range ch.members {
		ch.byID[ch.members[i].UserID] = &ch.members[i]
	}
	ch.Pair, ch.Bans = ch.pair(), len(ch.bans)
	if err := c.cfg.To.PutChat(ctx, ch.begun()); err != nil {
		return err
	}
	err := ch.copyMessages(ctx)
	if err == nil {
		err = ch.putMembers(ctx)
	}
	// Who is banned may be a member in the target until now. Ban would end that, and count it.
	for i := range ch.bans {
		if err == nil {
			_, err = c.cfg.To.Ban(ctx, ch.ID, ch.bans[i].User, ch.bans[i].At)
		}
	}
	if err == nil {
		//rule:copy_equal.numbers-last
		err = c.cfg.To.PutChat(ctx, ch.CopiedChat)
	}
	return err
}

// head reads the row of a chat, with its backlog.
func head(ctx context.Context, s Store, id tidemark.ChatID) (c storage.CopiedChat, err error) {
	if c.Chat, err = s.Chat(ctx, id); err != nil {
		return c, err
	}
	if c.Activity, err = s.Activity(ctx, id); err != nil {
		return c, err
	}
	backlogs, _, err := s.Backlogs(ctx, storage.BacklogQuery{
		Outlet: storage.AllOutlets, Chats: []tidemark.ChatID{id}, Limit: 1,
	})
	// What is settled may have been settled with backlogs of single outlets. So these are looked
	// for before the next news is told.
	c.From, c.Split = storage.PositionOf(&c.Chat), true
	if len(backlogs) > 0 {
		//rule:copy_equal.outlets-go-on-where-they-were
		c.Open, c.From, c.Split = true, backlogs[0].From, backlogs[0].Split
	}
	return c, err
}

// pair returns the key of the two members of a direct chat, or "" if one of them was erased.
func (p *part) pair() string {
	var users []tidemark.UserID
	for i := range p.members {
		if p.members[i].Intervals.Open() {
			users = append(users, p.members[i].UserID)
		}
	}
	if p.Type != tidemark.Direct || len(users) != 2 {
		return ""
	}
	return tidemark.DirectKey(users[0], users[1])
}

// bansOf returns all who are banned from a chat, at most tidemark.MaxBans.
func bansOf(
	ctx context.Context, s storage.Bans, id tidemark.ChatID,
) (bans []storage.Ban, err error) {
	after := tidemark.UserID("")
	for more := true; more; {
		var page []storage.Ban
		if page, more, err = s.BansOf(ctx, id, after, membersAtOnce); err != nil {
			return nil, err
		}
		bans = append(bans, page...)
		if len(page) > 0 {
			after = page[len(page)-1].User
		}
	}
	return bans, nil
}

// membersOf returns all present and former members of a chat, with their states.
func membersOf(
	ctx context.Context, s Store, id tidemark.ChatID,
) (members []storage.CopiedMember, err error) {
	q := storage.MembersQuery{Chat: id, Limit: membersAtOnce}
	for more := true; more; {
		var page []storage.ChangedMember
		if page, more, err = s.MembersSince(ctx, q); err != nil || len(page) == 0 {
			return members, err
		}
		q.After = page[len(page)-1].UserID
		keys := make([]storage.StateKey, len(page))
		for i := range page {
			keys[i] = storage.StateKey{User: page[i].UserID, Chat: id}
		}
		states, err := s.States(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i := range page {
			page[i].Intervals = orNil(page[i].Intervals)
			members = append(members,
				storage.CopiedMember{ChangedMember: page[i], State: states[i]})
		}
	}
	slices.SortFunc(members, func(a, b storage.CopiedMember) int {
		return cmp.Compare(a.UserID, b.UserID)
	})
	return members, nil
}

// putMembers writes the members. Who is behind gets a pending row, so that their next session
// compares.
func (c *chat) putMembers(ctx context.Context) error {
	for i := range c.members {
		m := &c.members[i]
		present := m.Intervals.Open() && c.State != tidemark.ChatImporting
		switch {
		case !m.Intervals.Open():
		//rule:copy_equal.standing-rows-of-large-chats
		case c.Large:
			m.Pending = true
		//rule:copy_equal.who-is-behind-is-told
		case present && m.State.Acked < c.Head:
			m.Pending, m.FirstUndelivered = true, m.State.Acked+1
		}
	}
	for page := range slices.Chunk(c.members, membersAtOnce) {
		if err := c.cfg.To.PutMembers(ctx, c.ID, page); err != nil {
			return err
		}
	}
	return nil
}

// copyMessages copies the messages that the target does not have, and counts all of them.
// errRemains: the target has something else.
func (c *chat) copyMessages(ctx context.Context) error {
	done := c.through(c.ID)
	after, pages := c.Floor-1, 0
	for after < c.Head {
		page, err := messagesBehind(ctx, c.cfg.From, c.ID, after)
		if err != nil {
			return err
		}
		// The row does not know of those that came later.
		//rule:copy_equal.no-message-above-the-row
		page = page[:min(len(page), int(c.Head-after))]
		copied, err := c.facts(ctx, page)
		if err != nil {
			return err
		}
		for i := range copied {
			c.count(&copied[i])
		}
		//rule:copy_equal.go-on-within-a-chat
		if after = page[len(page)-1].Sequence; after <= done {
			c.copied(copied)
			continue
		}
		if c.there != nil {
			if copied, err = c.news(ctx, page, copied); err != nil {
				return err
			}
		}
		if err := c.cfg.To.PutMessages(ctx, c.ID, copied); err != nil {
			return err
		}
		c.copied(copied)
		if pages++; c.state.Step == unfinished && pages%savedEvery == 0 {
			if err := c.reached(ctx, c.ID, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// copied counts messages that are in the target now.
func (c *Copier) copied(messages []storage.CopiedMessage) {
	for i := range messages {
		c.bytes.Add(int64(messages[i].Size()))
	}
	c.messages.Add(int64(len(messages)))
}

// messagesBehind returns a page of messages without the targets of relations. There is at least
// one.
func messagesBehind(
	ctx context.Context, s storage.Messages, id tidemark.ChatID, after tidemark.Sequence,
) ([]tidemark.Message, error) {
	pages, err := s.Ranges(ctx, []storage.Range{{
		Chat: id, After: after, Limit: messagesAtOnce, MaxBytes: bytesAtOnce,
	}})
	if err != nil {
		return nil, err
	}
	page := pages[0]
	if len(page) == 0 || page[0].Sequence != after+1 {
		return nil, tidemark.Errorf(tidemark.Unavailable, "the store has no message %d of the "+
			"chat %s: a server works on it, or it is damaged", after+1, id)
	}
	for i := range page {
		page[i] = page[i].WithoutTarget()
	}
	return page, nil
}

// users returns the ids of the members.
func (c *chat) users() []tidemark.UserID {
	users := make([]tidemark.UserID, len(c.members))
	for i := range c.members {
		users[i] = c.members[i].UserID
	}
	return users
}

// facts returns messages with what is stored beside them.
func (c *chat) facts(
	ctx context.Context, page []tidemark.Message,
) ([]storage.CopiedMessage, error) {
	facts, err := factsOf(ctx, c.cfg.From, page, c.users())
	if err != nil {
		return nil, err
	}
	copied := make([]storage.CopiedMessage, len(page))
	now := c.cfg.Clock()
	for i := range page {
		m := &page[i]
		copied[i] = storage.CopiedMessage{
			Message: *m, MessageFacts: facts[i],
			Keyed: now.Sub(m.CreatedAt) < keysKept || c.State == tidemark.ChatImporting,
		}
		//rule:copy_equal.what-stands-stands
		if m.Kind.Annotates() && !m.Redacted() && m.Relation.Sequence >= c.Floor {
			copied[i].Stands = true
		}
	}
	return copied, nil
}

// factsOf returns what is stored beside messages of a chat. Only messages that were changed have
// other mentions than those that count.
func factsOf(
	ctx context.Context, s storage.CopySource, page []tidemark.Message, users []tidemark.UserID,
) ([]storage.MessageFacts, error) {
	changed := func(m tidemark.Message) bool { return m.Revision != nil && m.Kind.Counts() }
	q := storage.FactsQuery{
		Chat: page[0].ChatID, From: page[0].Sequence, To: page[len(page)-1].Sequence,
		Mentions: slices.ContainsFunc(page, changed),
	}
	var facts []storage.MessageFacts
	for first := 0; first == 0 || q.Mentions && first < len(users); first += storage.MaxBatch {
		q.Users = users[min(first, len(users)):min(first+storage.MaxBatch, len(users))]
		found, err := s.MessageFacts(ctx, q)
		if err == nil && len(found) != len(page) {
			err = tidemark.Errorf(tidemark.Unavailable, "messages of the chat %s are gone: a "+
				"server works on it, or it is damaged", q.Chat)
		}
		if err != nil {
			return nil, err
		}
		if facts == nil {
			facts = found
			continue
		}
		for i := range facts {
			facts[i].Mentions = tidemark.NewMentions(facts[i].Mentions.All,
				append(facts[i].Mentions.Users, found[i].Mentions.Users...))
		}
	}
	for i := range page {
		m := &page[i]
		switch names := m.Mentions; {
		//rule:copy_equal.mentions-of-the-first-step
		case changed(*m):
		case !m.Kind.Counts():
			facts[i].Mentions = tidemark.Mentions{}
		case names.All:
			facts[i].Mentions = tidemark.Mentions{All: true}
		default:
			facts[i].Mentions = names
		}
	}
	return facts, nil
}

// count counts a message in the numbers of its chat and of its sender.
func (c *chat) count(m *storage.CopiedMessage) {
	if !m.Kind.Counts() {
		c.Uncounted++
		m.Ordinal, c.LastUncounted = c.Uncounted, m.Sequence
		return
	}
	if !m.MessageFacts.Mentions.None() {
		c.LastMention = m.Sequence
	}
	from := c.byID[m.SenderID]
	if from == nil { // The sender was erased.
		return
	}
	c.LastSent = m.Sequence
	from.Sent++
	from.LastSent = m.Sequence
	//rule:copy_equal.own-before-the-mark
	if m.Sequence <= from.State.Read {
		from.SentRead++
	}
	if m.Sequence <= from.State.UnreadAfter() {
		from.SentBefore++
	}
}
