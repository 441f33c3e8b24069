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
	storage.CopiedChat
	// members are the present and former members, ascending by id, and byID finds them.
	members []storage.CopiedMember
	byID    map[tidemark.UserID]*storage.CopiedMember
}

// copyChat copies a chat: its row, who is banned, the messages, the members, and last the row with
// all numbers.
func (c *Copier) copyChat(ctx context.Context, id tidemark.ChatID) error {
	ch := &chat{Copier: c}
	var err error
	if ch.CopiedChat, err = head(ctx, c.cfg.From, id); err != nil {
		return err
	}
	if ch.State == tidemark.ChatDeleted {
		c.chats.Add(1)
		return c.cfg.To.PutChat(ctx, ch.CopiedChat)
	}
	if ch.members, err = membersOf(ctx, c.cfg.From, id); err != nil {
		return err
	}
	ch.byID = make(map[tidemark.UserID]*storage.CopiedMember, len(ch.members))
	for i := range ch.members {
		ch.byID[ch.members[i].UserID] = &ch.members[i]
	}
	ch.Pair = ch.pair()
	if err := c.cfg.To.PutChat(ctx, ch.CopiedChat); err != nil {
		return err
	}
	bans, err := bansOf(ctx, c.cfg.From, id)
	for i := range bans {
		if err == nil {
			_, err = c.cfg.To.Ban(ctx, id, bans[i].User, bans[i].At)
		}
	}
	ch.Bans = len(bans)
	if err == nil {
		err = ch.copyMessages(ctx)
	}
	if err == nil {
		err = ch.putMembers(ctx)
	}
	if err == nil {
		//rule:copy_equal.numbers-last
		err = c.cfg.To.PutChat(ctx, ch.CopiedChat)
	}
	c.chats.Add(1)
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
func (c *chat) pair() string {
	var users []tidemark.UserID
	for i := range c.members {
		if c.members[i].Intervals.Open() {
			users = append(users, c.members[i].UserID)
		}
	}
	if c.Type != tidemark.Direct || len(users) != 2 {
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

// copyMessages copies the messages behind those that the target has, and counts all of them.
func (c *chat) copyMessages(ctx context.Context) error {
	done := c.through(c.ID)
	after, pages := c.Floor-1, 0
	for after < c.Head {
		page, err := messagesBehind(ctx, c.cfg.From, c.ID, after)
		if err != nil {
			return err
		}
		copied, err := c.facts(ctx, page)
		if err != nil {
			return err
		}
		for i := range copied {
			c.count(&copied[i])
			c.bytes.Add(int64(copied[i].Size()))
		}
		c.messages.Add(int64(len(copied)))
		//rule:copy_equal.go-on-within-a-chat
		if after = page[len(page)-1].Sequence; after <= done {
			continue
		}
		if err := c.cfg.To.PutMessages(ctx, c.ID, copied); err != nil {
			return err
		}
		if pages++; pages%savedEvery == 0 {
			if err := c.reached(ctx, c.ID, after); err != nil {
				return err
			}
		}
	}
	return nil
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

// facts returns messages with what is stored beside them.
func (c *chat) facts(
	ctx context.Context, page []tidemark.Message,
) ([]storage.CopiedMessage, error) {
	users := make([]tidemark.UserID, len(c.members))
	for i := range c.members {
		users[i] = c.members[i].UserID
	}
	facts, err := factsOf(ctx, c.cfg.From, page, users)
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
