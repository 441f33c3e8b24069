package dynamodb

import (
	"cmp"
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// A block changes four items in one transaction, and the counter of the direct chat. The item of
// the pair names that chat, and decides whether a block stands. The other three are in the table of
// the documents. Two are the block in the list of the user, and the length of that list. The third
// is the block in the list of those who have blocked the other user: an erasure of that user reads
// it. No kind of a document contains a bar.

// A pair is the item of two users: their direct chat, "" if there is none, and the state that the
// blocks between them ask for, "" if there are none.
type pair struct {
	key    string
	chat   tidemark.ChatID
	closed tidemark.ChatState
}

// pair reads the item of a pair. key is its tidemark.DirectKey.
func (c caller) pair(ctx context.Context, key string) (pair, error) {
	it, err := c.Get(ctx, record.Counters, pairKey(key))
	r := call.Reader{Item: it}
	return pair{
		key, tidemark.ChatID(r.Text("direct_chat")), tidemark.ChatState(r.Text("closed")),
	}, cmp.Or(err, r.Err)
}

// pairOf reads the item of the pair of a direct chat. It returns nil if the chat changes meanwhile.
// If one of the two was erased, the chat is that of no pair, and the key is "".
func (c caller) pairOf(ctx context.Context, counter *record.Counter) (*pair, error) {
	roster, err := c.RosterAt(ctx, counter)
	if err != nil || roster.Version != counter.MembersVersion {
		return nil, err
	}
	if len(roster.Members) < 2 {
		return &pair{}, nil
	}
	key := tidemark.DirectKey(roster.Members[0].UserID, roster.Members[1].UserID)
	now, err := c.pair(ctx, key)
	if err != nil || now.chat != counter.ID {
		return nil, err
	}
	return &now, nil
}

// putPair writes what the item of a pair says, if it still is as it was read. An item that says
// nothing is removed.
func (c caller) putPair(
	before *pair, closed tidemark.ChatState, chat tidemark.ChatID,
) types.TransactWriteItem {
	values := call.Item{}
	condition := unchanged("direct_chat", before.chat, values) + " AND " +
		unchanged("closed", before.closed, values)
	if len(values) == 0 {
		values = nil
	}
	if closed == "" && chat == "" {
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: c.Table(record.Counters), Key: pairKey(before.key),
			ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
		}}
	}
	it := pairKey(before.key)
	if closed != "" {
		it["closed"] = call.Text(closed)
	}
	if chat != "" {
		it["direct_chat"] = call.Text(chat)
	}
	return types.TransactWriteItem{Put: &types.Put{
		TableName: c.Table(record.Counters), Item: it,
		ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
	}}
}

// unchanged returns the condition that an attribute has a text, or is absent if that is "".
func unchanged[T ~string](name string, text T, values call.Item) string {
	if text == "" {
		return "attribute_not_exists(" + name + ")"
	}
	values[":old_"+name] = call.Text(text)
	return name + " = :old_" + name
}

// check returns the condition of unchanged as a part of a transaction, for an item of the counters'
// table.
func (c caller) check(
	key call.Item, name string, text tidemark.ChatState,
) types.TransactWriteItem {
	values := call.Item{}
	check := &types.ConditionCheck{
		TableName: c.Table(record.Counters), Key: key,
		ConditionExpression: aws.String(unchanged(name, text, values)),
	}
	if len(values) > 0 {
		check.ExpressionAttributeValues = values
	}
	return types.TransactWriteItem{ConditionCheck: check}
}

// closing returns the update of a counter whose chat is closed, opened, or no longer imported.
func closing(before, after *tidemark.Chat) call.Update {
	values := call.Item{
		":version": call.Number(before.Version), ":members": call.Number(before.MembersVersion),
		":next_version": call.Number(after.Version),
		":next_members": call.Number(after.MembersVersion),
	}
	change, remove := "SET members_version = :next_members, version = :next_version",
		" REMOVE chat_state"
	if after.State != tidemark.ChatLive {
		values[":state"] = call.Text(after.State)
		change, remove = change+", chat_state = :state", ""
	}
	if after.MembersVersion != before.MembersVersion { // else there is no news
		change = record.OpenBacklog(before.ID, change, values)
	}
	return call.Update{
		Table:     record.Counters,
		Key:       record.ChatKey(before.ID),
		Change:    change + remove,
		Condition: "members_version = :members AND version = :version",
		Values:    values,
	}
}

// blockKey returns the key of a block in the list of the user who blocks.
func blockKey(user, blocked tidemark.UserID) call.Item {
	return call.Item{"kind": call.Text(blocksBy(user)), "name": call.Text(blocked)}
}

// blocksBy and blocksOf return the partitions with the blocks by a user, and of a user.
func blocksBy(user tidemark.UserID) string { return "block|" + string(user) }
func blocksOf(user tidemark.UserID) string { return "blocked|" + string(user) }

// blockedKey returns the key of a block in the list of those who have blocked a user.
func blockedKey(user, blocked tidemark.UserID) call.Item {
	return call.Item{"kind": call.Text(blocksOf(blocked)), "name": call.Text(user)}
}

// blocksKey returns the key of the number of users whom a user has blocked.
func blocksKey(user tidemark.UserID) call.Item {
	return call.Item{"kind": call.Text("blocks|" + string(user)), "name": call.Text("number")}
}

// PutBlock implements storage.Blocks.
func (s *Store) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	return s.changeBlock(ctx, "put_block", &blocking{
		user: user, blocked: blocked, stands: true, at: now,
	})
}

// RemoveBlock implements storage.Blocks.
func (s *Store) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	return s.changeBlock(ctx, "remove_block", &blocking{user: user, blocked: blocked})
}

func (s *Store) changeBlock(
	ctx context.Context, operation string, b *blocking,
) (storage.PairChat, error) {
	c, ctx, leave, err := s.enter(ctx, operation, 0)
	if err != nil {
		return storage.PairChat{}, err
	}
	defer leave()
	b.caller = c
	found, err := b.run(ctx)
	return found, call.Public(err)
}

// A blocking executes PutBlock or RemoveBlock: the block stands afterwards, or not.
type blocking struct {
	caller
	user, blocked tidemark.UserID
	stands        bool
	at            time.Time
}

func (b *blocking) run(ctx context.Context) (storage.PairChat, error) {
	for again := 0; ; again++ {
		found, err := b.attempt(ctx)
		if err != nil {
			return storage.PairChat{}, err
		}
		if found != nil {
			return *found, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return storage.PairChat{}, err
		}
	}
}

// attempt changes the block in one transaction. It returns nil if another write was in the way. If
// an answer is lost, the next attempt finds the block changed.
func (b *blocking) attempt(ctx context.Context) (*storage.PairChat, error) {
	now, err := b.pair(ctx, tidemark.DirectKey(b.user, b.blocked))
	if err != nil {
		return nil, err
	}
	var chat *record.Counter
	found := &storage.PairChat{}
	if now.chat != "" {
		done, err := b.appends.Turn(ctx, now.chat)
		if err != nil {
			return nil, err
		}
		defer done()
		if chat, err = b.Counter(ctx, now.chat); err != nil {
			return nil, err
		}
		if chat.State == tidemark.ChatDeleted {
			return nil, nil // The item of the pair was read before.
		}
		*found = storage.PairChatOf(&chat.Chat)
	}
	first, second := whoClosed(now.closed)
	own := &first
	if b.blocked < b.user {
		own = &second
	}
	if *own == b.stands {
		return found, nil
	}
	*own = b.stands
	closed := storage.Closing(first, second)
	actions := append(b.items(), b.putPair(&now, closed, now.chat))
	if chat != nil {
		//rule:blocked_is_closed.close-with-the-block-in-dynamodb
		after, changed := storage.CloseBy(chat.Chat, first, second)
		if changed {
			*found = storage.PairAfter(&chat.Chat, &after)
			actions = append(actions, b.Action(closing(&chat.Chat, &after)))
		} else {
			actions = append(actions, b.check(record.ChatKey(chat.ID), "chat_state", chat.State))
		}
	}
	refused, _, err := b.Transact(ctx, actions)
	switch {
	case err != nil:
		return nil, err
	case refused == nil:
		return found, nil
	case b.stands && call.Failed(refused[1]):
		return nil, storage.CheckBlocks(tidemark.MaxBlocks)
	}
	return nil, nil
}

// items returns the changes of the list of the user who blocks, of its length, and of the list of
// those who have blocked the other one.
func (b *blocking) items() []types.TransactWriteItem {
	key, back := blockKey(b.user, b.blocked), blockedKey(b.user, b.blocked)
	values := call.Item{":one": call.Number(1)}
	number := call.Update{Table: record.Documents, Key: blocksKey(b.user), Values: values}
	if !b.stands {
		number.Change, number.Condition = "SET blocks = blocks - :one", "blocks >= :one"
		return []types.TransactWriteItem{
			{Delete: &types.Delete{TableName: b.Table(record.Documents), Key: key}},
			b.Action(number),
			{Delete: &types.Delete{TableName: b.Table(record.Documents), Key: back}},
		}
	}
	number.Change = "SET blocks = if_not_exists(blocks, :none) + :one"
	number.Condition = "attribute_not_exists(blocks) OR blocks < :most"
	values[":none"], values[":most"] = call.Number(0), call.Number(tidemark.MaxBlocks)
	key["blocked_at"] = call.Number(b.at.UnixMilli())
	return []types.TransactWriteItem{
		{Put: &types.Put{TableName: b.Table(record.Documents), Item: key}},
		b.Action(number),
		{Put: &types.Put{TableName: b.Table(record.Documents), Item: back}},
	}
}

// whoClosed is the reverse of storage.Closing.
func whoClosed(state tidemark.ChatState) (first, second bool) {
	both := state == tidemark.ChatClosedByBoth
	return both || state == tidemark.ChatClosedByFirst,
		both || state == tidemark.ChatClosedBySecond
}

// BlocksOf implements storage.Blocks with one strongly consistent query.
func (s *Store) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) (blocks []storage.Block, more bool, err error) {
	c, ctx, leave, err := s.enter(ctx, "blocks_of", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	more, err = c.pageOf(ctx, blocksBy(user), string(after), limit,
		func(r *call.Reader) {
			blocks = append(blocks, storage.Block{
				User: tidemark.UserID(r.Text("name")), At: r.Time("blocked_at"),
			})
		})
	if err != nil {
		return nil, false, call.Public(err)
	}
	return blocks, more, nil
}

// pageOf reads a page of a partition of the documents' table.
func (c caller) pageOf(
	ctx context.Context, partition, after string, limit int, add func(r *call.Reader),
) (more bool, err error) {
	q := call.Query{
		Read:      call.Read{Table: record.Documents},
		Partition: "kind", Sort: "name", Of: call.Text(partition), Page: limit + 1,
	}
	if after != "" {
		q.After = call.Text(after)
	}
	n := 0
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		if more = n == limit; more {
			return false, nil
		}
		n++
		r := call.Reader{Item: it}
		add(&r)
		return true, r.Err
	})
	return more, err
}

// Apart implements storage.Blocks. It reads the items of the pairs.
func (s *Store) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) (found []tidemark.UserID, err error) {
	c, ctx, leave, err := s.enterBatch(ctx, "apart", len(others))
	if err != nil {
		return nil, err
	}
	defer leave()
	keys := make([]call.Item, len(others))
	for i, other := range others {
		keys[i] = pairKey(tidemark.DirectKey(user, other))
	}
	items, err := c.GetAll(ctx, call.Read{
		Table: record.Counters, Only: []string{"chat_id", "closed"},
	}, keys)
	if err != nil {
		return nil, call.Public(err)
	}
	closed := make(map[string]bool, len(items))
	for _, it := range items {
		r := call.Reader{Item: it}
		closed[r.Text("chat_id")] = r.Has("closed")
	}
	for i, other := range others {
		r := call.Reader{Item: keys[i]}
		if closed[r.Text("chat_id")] {
			found = append(found, other)
		}
	}
	return found, nil
}
