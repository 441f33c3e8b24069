package dynamodb

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// CreateChat implements storage.Chats. A chat of up to 49 members is one transaction.
func (s *Store) CreateChat(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "create_chat", time.Duration(len(new.Members))*memberTime)
	if err != nil {
		return tidemark.Chat{}, false, err
	}
	defer leave()
	chat, created, err := c.create(ctx, new)
	if err == nil && created {
		err = c.copyReceipts(ctx, namesOf(chat.ID, new.Members))
	}
	return chat, created, call.Public(err)
}

func (c caller) create(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	if new.Type == tidemark.Direct {
		existing, err := c.direct(ctx, new)
		if err != nil || existing != nil {
			return c.chatOrNone(ctx, existing, err)
		}
	}
	made := firstCounter(new, rand.Text())
	if err := c.describe(ctx, &made); err != nil {
		return tidemark.Chat{}, false, err
	}
	if 2+2*len(new.Members) > call.MostActions {
		return c.createMany(ctx, new, made)
	}
	hiders, err := c.hiders(ctx, new.Members, 0)
	if err != nil {
		return tidemark.Chat{}, false, err
	}
	actions := c.creationActions(&made, new, hiders)
	for again := 0; ; again++ {
		refused, doubtful, err := c.Transact(ctx, actions)
		if err != nil {
			return tidemark.Chat{}, false, err
		}
		if refused == nil {
			c.SawCounter(&made)
			return made.Chat, true, nil
		}
		if call.Failed(refused[0]) {
			there, err := record.CounterOf(refused[0].Item)
			switch {
			case err != nil:
				return tidemark.Chat{}, false, err
			case there == nil:
				// The chat is only prepared, which does not prevent its creation. But standing rows
				// may have been written.
				//rule:pending_or_delivered.rows-may-stand-at-creation
				made.Standing = true
				actions[0] = c.creation(&made, "attribute_not_exists(head)")
			case doubtful && there.CreatedBy == made.CreatedBy:
				return made.Chat, true, nil
			case new.Type != tidemark.Direct || !call.Failed(refused[1]):
				return tidemark.Chat{}, false, storage.Taken(new.ID)
			}
		}
		if new.Type == tidemark.Direct && call.Failed(refused[1]) {
			existing, err := c.direct(ctx, new)
			if err != nil || existing != nil {
				return c.chatOrNone(ctx, existing, err)
			}
		}
		if err := call.Pause(ctx, again); err != nil {
			return tidemark.Chat{}, false, err
		}
	}
}

// firstCounter returns the counter of a new chat. The token identifies the call that creates it.
func firstCounter(new storage.NewChat, token string) record.Counter {
	return record.Counter{
		Chat:     new.Chat(call.Stored(new.CreatedAt)),
		Activity: call.Stored(new.CreatedAt), CreatedBy: token,
	}
}

// creationActions returns the transaction that creates a chat. It has the counter first, then the
// key that keeps a direct chat single, then two items for each member.
func (c caller) creationActions(
	made *record.Counter, new storage.NewChat, hiders hiders,
) []types.TransactWriteItem {
	actions := []types.TransactWriteItem{c.creation(made, "attribute_not_exists(chat_id)")}
	if new.Type == tidemark.Direct {
		condition := "attribute_not_exists(direct_chat)"
		if new.State == tidemark.ChatLive {
			condition += " AND attribute_not_exists(closed)"
		}
		actions = append(actions, c.Action(call.Update{
			Table:     record.Counters,
			Key:       pairKey(pairOf(new)),
			Change:    "SET direct_chat = :chat",
			Condition: condition,
			Values:    call.Item{":chat": call.Text(new.ID)},
		}))
	}
	for _, user := range new.Members {
		values := hiders.values(user)
		values[":yes"] = call.Flag(true)
		row := record.Membership{
			Member: tidemark.Member{
				UserID:    user,
				Role:      roleIn(new, user),
				Intervals: tidemark.Intervals{{From: 1}},
				JoinedAt:  made.CreatedAt,
			},
			Version:   1,
			ChangedBy: made.CreatedBy,
		}
		actions = append(actions,
			types.TransactWriteItem{
				Put: &types.Put{TableName: c.Table(record.Memberships), Item: row.Item(new.ID)},
			},
			c.Action(call.Update{
				Table:  record.States,
				Key:    record.StateKey(user, new.ID),
				Change: "SET is_member = :yes" + hiders.set(user),
				Values: values,
			}))
	}
	return actions
}

// creation returns the write of a new chat's counter.
func (c caller) creation(made *record.Counter, condition string) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName:                           c.Table(record.Counters),
		Item:                                made.Item(),
		ConditionExpression:                 aws.String(condition),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// chatOrNone returns a chat that existed before CreateChat, if there is one.
func (c caller) chatOrNone(
	ctx context.Context, existing *record.Counter, err error,
) (tidemark.Chat, bool, error) {
	if err != nil || existing == nil {
		return tidemark.Chat{}, false, err
	}
	if existing, err = c.whole(ctx, existing); err != nil {
		return tidemark.Chat{}, false, err
	}
	return existing.Chat, false, nil
}

func roleIn(new storage.NewChat, user tidemark.UserID) tidemark.Role {
	if user == new.Creator {
		return tidemark.Owner
	}
	return tidemark.Ordinary
}

// pairKey returns the key of the item that names the direct chat of a pair. pair is
// tidemark.DirectKey of its users. No chat id begins like it.
func pairKey(pair string) call.Item { return record.ChatKey(tidemark.ChatID("direct|" + pair)) }

// pairOf returns tidemark.DirectKey of the members of a new direct chat.
func pairOf(new storage.NewChat) string {
	return tidemark.DirectKey(new.Members[0], new.Members[1])
}

// direct returns the direct chat of a pair, nil if there is none. Denied: there must be none.
func (c caller) direct(ctx context.Context, new storage.NewChat) (*record.Counter, error) {
	now, err := c.pair(ctx, pairOf(new))
	switch {
	case err != nil:
		return nil, err
	//rule:blocked_is_closed.no-new-chat-in-dynamodb
	case now.chat == "" && now.closed.Closed() && new.State == tidemark.ChatLive:
		return nil, storage.Closed()
	case now.chat == "":
		return nil, nil
	}
	found, err := c.Counter(ctx, now.chat)
	// It was deleted since the pair was read.
	if err == nil && found.State == tidemark.ChatDeleted {
		return nil, nil
	}
	return found, err
}

// Chat implements storage.Chats.
func (s *Store) Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error) {
	c, ctx, leave, err := s.enter(ctx, "chat", 0)
	if err != nil {
		return tidemark.Chat{}, err
	}
	defer leave()
	found, err := c.Counter(ctx, chat)
	if err != nil {
		return tidemark.Chat{}, call.Public(err)
	}
	if found, err = c.whole(ctx, found); err != nil {
		return tidemark.Chat{}, call.Public(err)
	}
	return found.Chat, nil
}

// Heads implements storage.Chats.
func (s *Store) Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "heads", len(chats))
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := c.Counters(ctx, chats, false)
	if err != nil {
		return nil, call.Public(err)
	}
	heads := make([]tidemark.Sequence, len(chats))
	for i, chat := range chats {
		if counter := found[chat]; counter != nil {
			heads[i] = counter.Head
		}
	}
	return heads, nil
}

// ChatsOf implements storage.Chats. It reads the counters of all the user's chats, and sorts them
// here. An index by activity would cost a write for each message and member.
func (s *Store) ChatsOf(
	ctx context.Context, user tidemark.UserID, p storage.ChatsPage,
) ([]storage.ChatListItem, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "chats_of", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	position := func(v storage.ChatListItem) storage.ChatsPage {
		return storage.ChatsPage{Activity: v.Activity, ChatID: v.Chat.ID}
	}
	var found []storage.ChatListItem
	accounts := map[tidemark.ChatID]account{}
	err = c.chatsOf(ctx, chatsQuery{user: user, eventual: true},
		func(entries []entry) (bool, error) {
			chats := make([]tidemark.ChatID, len(entries))
			for i, e := range entries {
				chats[i] = e.state.ChatID
			}
			counters, err := c.Living(ctx, chats, true)
			if err != nil {
				return false, err
			}
			for _, e := range entries {
				counter := counters[e.state.ChatID]
				if counter == nil {
					continue
				}
				v := storage.ChatListItem{
					Chat:     counter.Chat,
					State:    e.state.DeliveryState,
					Activity: counter.Activity,
				}
				if p.ChatID == "" || later(p, position(v)) < 0 {
					found = append(found, v)
					accounts[v.Chat.ID] = account{counter: counter, state: e.state}
				}
			}
			return true, nil
		})
	if err != nil {
		return nil, false, call.Public(err)
	}
	slices.SortFunc(found,
		func(a, b storage.ChatListItem) int { return later(position(a), position(b)) })
	more := len(found) > p.Limit
	found = found[:min(len(found), p.Limit)]
	if !p.Brief {
		err = c.describeAll(ctx, found, accounts)
	}
	if err == nil && !p.Brief {
		err = c.fill(ctx, user, found, accounts)
	}
	return found, more, call.Public(err)
}

// later orders chats for a list: the latest activity first, equal times by id.
func later(a, b storage.ChatsPage) int {
	return cmp.Or(b.Activity.Compare(a.Activity), cmp.Compare(a.ChatID, b.ChatID))
}

// fill adds the roles, the last messages and the unread counts.
func (c caller) fill(
	ctx context.Context, user tidemark.UserID, found []storage.ChatListItem,
	accounts map[tidemark.ChatID]account,
) error {
	counters := make([]*record.Counter, len(found))
	for i, v := range found {
		counters[i] = accounts[v.Chat.ID].counter
	}
	members, err := c.membersOf(ctx, slices.Repeat([]tidemark.UserID{user}, len(found)), counters,
		false)
	if err != nil {
		return err
	}
	return call.Together(ctx, len(found), func(ctx context.Context, i int) (err error) {
		v := &found[i]
		if v.Role = members[i].Role; v.Chat.Head == 0 {
			return nil
		}
		if members[i].Intervals.Contains(v.Chat.Head) {
			page, err := c.page(ctx, storage.Range{
				Chat:  v.Chat.ID,
				After: v.Chat.Head - 1,
				Limit: 1,
			})
			if err != nil {
				return err
			}
			if len(page) == 1 && page[0].Sequence == v.Chat.Head {
				v.Last = &page[0]
			}
		}
		v.Unread, err = c.unread(ctx, user, accounts[v.Chat.ID], members[i].Intervals, true)
		return err
	})
}

// An entry is one chat of a user. The item of the delivery state also says whether the user is a
// member.
type entry struct {
	state record.State
	// change is the token of a change that makes the user a member, if it takes effect.
	change string
}

// A chatsQuery asks for the chats of which a user is a member, in the order of their ids.
type chatsQuery struct {
	user     tidemark.UserID
	after    tidemark.ChatID
	eventual bool
	// most is the maximum number of chats, 0 for all.
	most int
	// wanted, if not nil, selects the chats.
	wanted func(entry) bool
}

// chunk is how many chats are handled together. One read of their counters takes that many.
const chunk = 100

// chatsOf calls do with the chats of a user, up to 100 at a time. It ends when do returns false or
// there are no more chats.
func (c caller) chatsOf(
	ctx context.Context, q chatsQuery, do func([]entry) (more bool, err error),
) error {
	rows := call.Query{
		Read:      call.Read{Table: record.States, Eventual: q.eventual},
		Partition: "user_id",
		Sort:      "chat_id",
		Of:        call.Text(q.user),
	}
	if q.after != "" {
		rows.After = call.Text(q.after)
	}
	if q.most > 0 {
		rows.Page = max(chunk, q.most)
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
	err := c.Each(ctx, rows, func(it call.Item) (_ bool, err error) {
		r := call.Reader{Item: it}
		e := entry{change: r.Text("member_change")}
		if !r.Flag("is_member") && e.change == "" {
			return true, r.Err
		}
		if r.Flag("is_member") {
			e.change = ""
		}
		if e.state, err = c.stateOf(q.user, tidemark.ChatID(r.Text("chat_id")), it); err != nil {
			return false, err
		}
		if q.wanted != nil && !q.wanted(e) {
			return true, r.Err
		}
		if entries = append(entries, e); len(entries) == chunk {
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

// effective returns the entries without those whose change has not taken effect.
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
	found, err := c.Counters(ctx, chats, false)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(entries, func(e entry) bool {
		counter := found[e.state.ChatID]
		//rule:nothing_outside_membership.hide-until-in-effect
		return e.change != "" && (counter == nil || counter.Changed != e.change)
	}), nil
}
