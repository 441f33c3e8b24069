package dynamodb

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// CreateChat implements storage.Chats. A chat of up to 49 members is one transaction.
func (s *Store) CreateChat(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "create_chat", longTime)
	if err != nil {
		return tidemark.Chat{}, false, err
	}
	defer leave()
	chat, created, err := c.create(ctx, new)
	return chat, created, public(err)
}

func (c caller) create(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	if new.Type == tidemark.Direct {
		existing, err := c.direct(ctx, new)
		if err != nil || existing != nil {
			return chatOrNone(existing), false, err
		}
	}
	token := newToken()
	made := counter{
		Chat: tidemark.Chat{
			ID: new.ID, Type: new.Type, Name: new.Name, History: new.History, CreatedAt: stored(new.CreatedAt),
			MemberCount: len(new.Members), MembersVersion: 1, Large: len(new.Members) > tidemark.PendingFanoutLimit,
		},
		activity: stored(new.CreatedAt), createdBy: token,
	}
	if 2+2*len(new.Members) > mostActions {
		return c.createMany(ctx, new, made)
	}
	actions := []types.TransactWriteItem{{Put: &types.Put{
		TableName: c.table(counters), Item: made.item(), ConditionExpression: aws.String("attribute_not_exists(chat_id)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}}
	if new.Type == tidemark.Direct {
		actions = append(actions, types.TransactWriteItem{Put: &types.Put{
			TableName: c.table(counters), ConditionExpression: aws.String("attribute_not_exists(chat_id)"),
			Item: item{"chat_id": text(directKey(new)), "direct_chat": text(new.ID)},
		}})
	}
	for _, user := range new.Members {
		row := membership{
			Member:  tidemark.Member{UserID: user, Role: roleIn(new, user), Intervals: tidemark.Intervals{{From: 1}}, JoinedAt: made.CreatedAt},
			version: 1, changedBy: token,
		}
		actions = append(actions,
			types.TransactWriteItem{Put: &types.Put{TableName: c.table(memberships), Item: row.item(new.ID)}},
			c.action(update{table: states, key: stateKey(user, new.ID), change: "SET is_member = :yes", values: item{":yes": flag(true)}}))
	}
	for again := 0; ; again++ {
		refused, doubtful, err := c.transact(ctx, actions)
		if err != nil {
			return tidemark.Chat{}, false, err
		}
		if refused == nil {
			c.known.head(new.ID, 0)
			return made.Chat, true, nil
		}
		if failed(refused[0]) {
			there, err := counterOf(refused[0].Item)
			if err == nil && doubtful && there != nil && there.createdBy == token {
				return made.Chat, true, nil
			}
			if err == nil && (new.Type != tidemark.Direct || !failed(refused[1])) {
				err = tidemark.Errorf(tidemark.Conflict, "there is a chat %s already", new.ID)
			}
			if err != nil {
				return tidemark.Chat{}, false, err
			}
		}
		if new.Type == tidemark.Direct && failed(refused[1]) {
			existing, err := c.direct(ctx, new)
			if err != nil || existing != nil {
				return chatOrNone(existing), false, err
			}
		}
		if err := pause(ctx, again); err != nil {
			return tidemark.Chat{}, false, err
		}
	}
}

func chatOrNone(c *counter) tidemark.Chat {
	if c == nil {
		return tidemark.Chat{}
	}
	return c.Chat
}

func roleIn(new storage.NewChat, user tidemark.UserID) tidemark.Role {
	if user == new.Creator {
		return tidemark.Owner
	}
	return tidemark.Ordinary
}

// directKey is the key of the item that names the direct chat of a pair. No id begins so.
func directKey(new storage.NewChat) string {
	return "direct|" + tidemark.DirectKey(new.Members[0], new.Members[1])
}

// direct returns the direct chat of a pair, nil if there is none.
func (c caller) direct(ctx context.Context, new storage.NewChat) (*counter, error) {
	it, err := c.get(ctx, counters, chatKey(tidemark.ChatID(directKey(new))))
	if err != nil || it == nil {
		return nil, err
	}
	r := reader{item: it}
	chat := tidemark.ChatID(r.text("direct_chat"))
	if r.err != nil {
		return nil, r.err
	}
	return c.counter(ctx, chat)
}

// item is how the counter of a new chat is stored.
func (c *counter) item() item {
	it := item{
		"chat_id": text(c.ID), "type": text(c.Type), "name": text(c.Name), "history": text(c.History), "created_at": number(c.CreatedAt.UnixMilli()),
		"head": number(c.Head), "activity_at": number(c.activity.UnixMilli()), "members_version": number(c.MembersVersion),
		"member_count": number(c.MemberCount), "created_by": text(c.createdBy),
	}
	if c.Large {
		it["is_large"] = flag(true)
	}
	return it
}

// action is an update as a part of a transaction.
func (c caller) action(u update) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: c.table(u.table), Key: u.key, UpdateExpression: aws.String(u.change), ConditionExpression: some(u.condition),
		ExpressionAttributeValues: u.values, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// Chat implements storage.Chats.
func (s *Store) Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error) {
	c, ctx, leave, err := s.enter(ctx, "chat", callTime)
	if err != nil {
		return tidemark.Chat{}, err
	}
	defer leave()
	found, err := c.counter(ctx, chat)
	if err != nil {
		return tidemark.Chat{}, public(err)
	}
	return found.Chat, nil
}

// RenameChat implements storage.Chats.
func (s *Store) RenameChat(ctx context.Context, chat tidemark.ChatID, name string) (tidemark.Chat, error) {
	c, ctx, leave, err := s.enter(ctx, "rename_chat", callTime)
	if err != nil {
		return tidemark.Chat{}, err
	}
	defer leave()
	it, done, _, err := c.update(ctx, update{
		table: counters, key: chatKey(chat), change: "SET #n = :n", condition: "attribute_exists(head)", values: item{":n": text(name)},
		names: map[string]string{"#n": "name"},
	})
	if err == nil && !done {
		err = noChat(chat)
	}
	if err != nil {
		return tidemark.Chat{}, public(err)
	}
	found, err := c.learn(chat, it)
	if err != nil {
		return tidemark.Chat{}, public(err)
	}
	return found.Chat, nil
}

// Heads implements storage.Chats.
func (s *Store) Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "heads", callTime, len(chats))
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := c.counters(ctx, chats, false)
	if err != nil {
		return nil, public(err)
	}
	heads := make([]tidemark.Sequence, len(chats))
	for i, chat := range chats {
		if counter := found[chat]; counter != nil {
			heads[i] = counter.Head
		}
	}
	return heads, nil
}

// ChatsOf implements storage.Chats. No index holds the activity, since it would cost a write for each message and member: the counters of all chats of
// the user are read, and sorted here.
func (s *Store) ChatsOf(ctx context.Context, user tidemark.UserID, p storage.ChatsPage) ([]storage.Conversation, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "chats_of", callTime)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	position := func(v storage.Conversation) storage.ChatsPage {
		return storage.ChatsPage{Activity: v.Activity, ChatID: v.Chat.ID}
	}
	var found []storage.Conversation
	err = c.chatsOf(ctx, chatsQuery{user: user, eventual: true}, func(entries []entry) (bool, error) {
		chats := make([]tidemark.ChatID, len(entries))
		for i, e := range entries {
			chats[i] = e.state.ChatID
		}
		counters, err := c.counters(ctx, chats, true)
		if err != nil {
			return false, err
		}
		for _, e := range entries {
			counter := counters[e.state.ChatID]
			if counter == nil {
				continue
			}
			v := storage.Conversation{Chat: counter.Chat, State: e.state, Activity: counter.activity}
			if p.ChatID == "" || later(p, position(v)) < 0 {
				found = append(found, v)
			}
		}
		return true, nil
	})
	if err != nil {
		return nil, false, public(err)
	}
	slices.SortFunc(found, func(a, b storage.Conversation) int { return later(position(a), position(b)) })
	more := len(found) > p.Limit
	found = found[:min(len(found), p.Limit)]
	if !p.Brief {
		err = c.fill(ctx, user, found)
	}
	return found, more, public(err)
}

// later orders chats as a list shows them: the latest activity first, equal times by id.
func later(a, b storage.ChatsPage) int {
	return cmp.Or(b.Activity.Compare(a.Activity), cmp.Compare(a.ChatID, b.ChatID))
}

// fill adds the last messages and the numbers of unread ones.
func (c caller) fill(ctx context.Context, user tidemark.UserID, found []storage.Conversation) error {
	return together(ctx, len(found), func(ctx context.Context, i int) error {
		v := &found[i]
		if v.Chat.Head == 0 {
			return nil
		}
		rows, err := c.memberships(ctx, v.Chat.ID, []tidemark.UserID{user})
		if err != nil {
			return err
		}
		counter := &counter{Chat: v.Chat}
		if rows[user].next != nil { // Only then the change matters.
			if counter, err = c.counter(ctx, v.Chat.ID); err != nil {
				return err
			}
		}
		intervals := rows[user].member(counter).Intervals
		if intervals.Contains(v.Chat.Head) {
			page, err := c.page(ctx, storage.Range{Chat: v.Chat.ID, After: v.Chat.Head - 1, Limit: 1})
			if err != nil {
				return err
			}
			if len(page) == 1 {
				v.Last = &page[0]
			}
		}
		v.Unread, err = c.unread(ctx, user, v.Chat, intervals, v.State.Read)
		return err
	})
}

// unread counts the messages behind a watermark that a user may see, except his own among the first storage.UnreadScan of them.
func (c caller) unread(ctx context.Context, user tidemark.UserID, chat tidemark.Chat, intervals tidemark.Intervals, read tidemark.Watermark) (unread int64, err error) {
	left := storage.UnreadScan
	for from := read + 1; from <= chat.Head; {
		end, visible := intervals.Visible(from, chat.Head)
		if visible {
			unread += int64(end - from + 1)
			if last := min(end, from+tidemark.Sequence(left)-1); left > 0 {
				own, err := c.written(ctx, user, chat.ID, from, last)
				if err != nil {
					return 0, err
				}
				unread -= own
				left -= int(last - from + 1)
			}
		}
		from = end + 1
	}
	return unread, nil
}

// written counts the messages of a user in a part of a chat.
func (c caller) written(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from, to tidemark.Sequence) (own int64, err error) {
	q := query{
		read:      read{table: messages, eventual: true, only: []string{"sender_id"}},
		partition: "chat_id", sort: "sequence", of: text(chat), after: number(from), before: number(to),
	}
	err = c.each(ctx, q, func(it item) (bool, error) {
		r := reader{item: it}
		if tidemark.UserID(r.text("sender_id")) == user {
			own++
		}
		return true, r.err
	})
	return own, err
}

// An entry is one chat of a user, by his delivery state: it says as well whether he is a member.
type entry struct {
	state tidemark.DeliveryState
	// change is the token of a change that makes him a member, if it takes effect.
	change string
}

// A chatsQuery asks for the chats of which a user is a member, in the order of their ids.
type chatsQuery struct {
	user     tidemark.UserID
	after    tidemark.ChatID
	eventual bool
	// most is how many are wanted at most, 0 for all.
	most int
	// wanted, if not nil, selects some.
	wanted func(entry) bool
}

// chatsOf gives the chats of a user to do, up to 100 at a time, until it returns false, or there are no more.
func (c caller) chatsOf(ctx context.Context, q chatsQuery, do func([]entry) (more bool, err error)) error {
	rows := query{read: read{table: states, eventual: q.eventual}, partition: "user_id", sort: "chat_id", of: text(q.user)}
	if q.after != "" {
		rows.after = text(q.after)
	}
	if q.most > 0 {
		rows.page = max(mostGets, q.most)
	}
	var entries []entry
	flush := func() (bool, error) {
		batch, err := c.effective(ctx, entries)
		entries = nil
		if err != nil || len(batch) == 0 {
			return true, err
		}
		return do(batch)
	}
	more := true
	err := c.each(ctx, rows, func(it item) (_ bool, err error) {
		r := reader{item: it}
		e := entry{change: r.text("member_change")}
		if !r.flag("is_member") && e.change == "" {
			return true, r.err
		}
		if r.flag("is_member") {
			e.change = ""
		}
		if e.state, err = c.stateOf(q.user, tidemark.ChatID(r.text("chat_id")), it); err != nil {
			return false, err
		}
		if q.wanted != nil && !q.wanted(e) {
			return true, r.err
		}
		if entries = append(entries, e); len(entries) == mostGets {
			more, err = flush()
		}
		return more, err
	})
	if err != nil || !more {
		return err
	}
	_, err = flush()
	return err
}

// effective leaves out the entries whose change has not taken effect.
func (c caller) effective(ctx context.Context, entries []entry) ([]entry, error) {
	var chats []tidemark.ChatID
	for _, e := range entries {
		if e.change != "" {
			chats = append(chats, e.state.ChatID)
		}
	}
	if len(chats) == 0 {
		return entries, nil
	}
	found, err := c.counters(ctx, chats, false)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(entries, func(e entry) bool {
		counter := found[e.state.ChatID]
		return e.change != "" && (counter == nil || counter.changed != e.change)
	}), nil
}

// now is the time as conditions use it.
func now() int64 { return time.Now().UnixMilli() }
