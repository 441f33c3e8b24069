package dynamodb

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

var _ storage.Outbox = (*Store)(nil)

// The counter of a chat has its backlog for all outlets: the position, and its shard while the
// backlog is open. The index record.OutboxIndex has only chats with a shard. A backlog of a single
// outlet is an item of its own (record.Backlogs).

// shardsAtOnce is how many shards Backlogs reads at once. It reads a page of each, since the
// backlogs may all be in one, and reads no further shard if the page is full.
const shardsAtOnce = 16

// Backlogs implements storage.Outbox. For all outlets it reads the index with eventual consistency,
// which an index always has, and then the counters.
func (s *Store) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "backlogs", len(q.Chats))
	if err != nil {
		return nil, false, err
	}
	defer leave()
	if len(q.Chats) > 0 {
		found, err := c.backlogsOf(ctx, q.Outlet, q.Chats)
		return found, false, call.Public(err)
	}
	found, more, err := c.backlogs(ctx, q)
	return found, more, call.Public(err)
}

// backlogs returns a page of backlogs. The index may still have some that were settled. Then it
// reads on, until the page is full.
func (c caller) backlogs(
	ctx context.Context, q storage.BacklogQuery,
) (found []storage.Backlog, more bool, err error) {
	for limit := q.Limit; ; {
		q.Limit = limit - len(found)
		listed, more, err := c.listed(ctx, q)
		opened := listed
		if err == nil && q.Outlet == storage.AllOutlets {
			chats := make([]tidemark.ChatID, len(listed))
			for i := range listed {
				chats[i] = listed[i].Chat
			}
			opened, err = c.opened(ctx, chats, true)
		}
		if err != nil {
			return nil, false, err
		}
		found = append(found, opened...)
		if !more || len(found) == limit {
			return found, more, nil
		}
		q.After = listed[len(listed)-1]
	}
}

// backlogsOf returns the open backlogs of some chats for an outlet.
func (c caller) backlogsOf(
	ctx context.Context, outlet storage.OutletID, chats []tidemark.ChatID,
) (found []storage.Backlog, err error) {
	if outlet == storage.AllOutlets {
		return c.opened(ctx, chats, false)
	}
	keys := make([]call.Item, len(chats))
	for i, chat := range chats {
		keys[i] = record.BacklogKey(outlet, chat)
	}
	items, err := c.GetAll(ctx, call.Read{Table: record.Backlogs}, keys)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		b, err := backlogIn(outlet, it)
		if err != nil {
			return nil, err
		}
		found = append(found, b)
	}
	return found, nil
}

// backlogFor returns the open backlog of a chat for all outlets.
func backlogFor(counter *record.Counter) storage.Backlog {
	return storage.Backlog{
		Chat: counter.ID, Shard: storage.ShardOf(counter.ID),
		From: counter.Outbox.From, Split: counter.Outbox.Split,
		End: storage.PositionOf(&counter.Chat), Large: counter.Large,
		//rule:import_once.backlog-of-an-import-in-dynamodb
		Importing: counter.State == tidemark.ChatImporting,
	}
}

// backlogIn returns the backlog of a single outlet in an item.
func backlogIn(outlet storage.OutletID, it call.Item) (storage.Backlog, error) {
	r := call.Reader{Item: it}
	b := storage.Backlog{
		Outlet: outlet, Chat: tidemark.ChatID(r.Text("chat_id")), From: record.PositionIn(&r),
		Stamp: r.Text("outbox_stamp"),
	}
	b.Shard = storage.ShardOf(b.Chat)
	return b, r.Err
}

// listed returns a page of what the index has, or the table of backlogs. Those of the index have no
// position.
func (c caller) listed(
	ctx context.Context, q storage.BacklogQuery,
) (found []storage.Backlog, more bool, err error) {
	shards := q.Shards
	if q.After.Chat != "" {
		at, _ := slices.BinarySearch(shards, q.After.Shard)
		shards = shards[at:]
	}
	for some := range slices.Chunk(shards, shardsAtOnce) {
		parts := make([][]storage.Backlog, len(some))
		err := call.Together(ctx, len(some), func(ctx context.Context, i int) (err error) {
			after := tidemark.ChatID("")
			if some[i] == q.After.Shard {
				after = q.After.Chat
			}
			parts[i], err = c.listedIn(ctx, q.Outlet, some[i], after, q.Limit+1)
			return err
		})
		if err != nil {
			return nil, false, err
		}
		found = slices.Concat(append([][]storage.Backlog{found}, parts...)...)
		if len(found) > q.Limit {
			return found[:q.Limit], true, nil
		}
	}
	return found, false, nil
}

// listedIn returns up to limit entries of one shard.
func (c caller) listedIn(
	ctx context.Context, outlet storage.OutletID, shard int, after tidemark.ChatID, limit int,
) (found []storage.Backlog, err error) {
	//rule:told_in_order.consistent-backlogs-in-dynamodb
	q := call.Query{
		Read:      call.Read{Table: record.Backlogs},
		Partition: "outlet_shard",
		Of:        call.Text(record.OutletShard(outlet, shard)),
		Sort:      "chat_id",
		Page:      limit,
	}
	if outlet == storage.AllOutlets {
		q.Read = call.Read{Table: record.Counters, Eventual: true}
		q.Index, q.Partition, q.Of = record.OutboxIndex, "outbox_shard",
			call.Text(record.Shard(shard))
	}
	if after != "" {
		q.After = call.Text(after)
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		b, err := backlogIn(outlet, it)
		found = append(found, b)
		return len(found) < limit, err
	})
	return found, err
}

// opened returns the open backlogs of some chats for all outlets, with their positions.
func (c caller) opened(
	ctx context.Context, chats []tidemark.ChatID, eventual bool,
) (found []storage.Backlog, err error) {
	counters, err := c.Counters(ctx, chats, eventual)
	if err != nil {
		return nil, err
	}
	for _, chat := range chats {
		if counter := counters[chat]; counter != nil && counter.Outbox.Open {
			found = append(found, backlogFor(counter))
		}
	}
	return found, nil
}

// Rewind implements storage.Outbox.
func (s *Store) Rewind(ctx context.Context, backlogs []storage.Backlog) error {
	if err := storage.CheckRewind(backlogs); err != nil {
		return err
	}
	c, ctx, leave, err := s.enterBatch(ctx, "rewind", len(backlogs))
	if err != nil {
		return err
	}
	defer leave()
	keys, chats := make([]call.Item, len(backlogs)), make([]tidemark.ChatID, len(backlogs))
	for i, b := range backlogs {
		keys[i], chats[i] = record.BacklogKey(b.Outlet, b.Chat), b.Chat
	}
	counters, err := c.Counters(ctx, chats, false)
	if err != nil {
		return call.Public(err)
	}
	items, err := c.GetAll(ctx, call.Read{Table: record.Backlogs}, keys)
	if err != nil {
		return call.Public(err)
	}
	seen := make(map[string]call.Item, len(items))
	for _, it := range items {
		key := call.Item{"outlet_shard": it["outlet_shard"], "chat_id": it["chat_id"]}
		seen[call.NameOf(key)] = it
	}
	return call.Public(call.Together(ctx, len(keys), func(ctx context.Context, i int) error {
		b, counter := &backlogs[i], counters[backlogs[i].Chat]
		if counter == nil {
			return nil
		}
		from := b.From.Least(storage.PositionOf(&counter.Chat))
		return c.rewind(ctx, keys[i], seen[call.NameOf(keys[i])], b.Outlet, from)
	}))
}

// rewind writes one backlog. seen is its item as it was read, nil if there was none.
func (c caller) rewind(
	ctx context.Context, key, seen call.Item, outlet storage.OutletID, to storage.Position,
) error {
	//rule:told_or_owed.stamp-each-rewind-in-dynamodb
	stamp := rand.Text()
	for again := 0; ; again++ {
		u := call.Update{
			Table: record.Backlogs, Key: key,
			Change:    "SET outbox_from = :to, outbox_stamp = :stamp",
			Condition: "attribute_not_exists(outbox_stamp)",
			Values:    call.Item{":stamp": call.Text(stamp)},
		}
		from := to
		if seen != nil {
			old, err := backlogIn(outlet, seen)
			if err != nil {
				return err
			}
			if old.Stamp == stamp { // An attempt without an answer has written it.
				return nil
			}
			//rule:told_or_owed.rewind-to-least-in-dynamodb
			from = to.Least(old.From)
			u.Condition = asRead
			u.Values[":from"] = call.Text(record.Position(old.From))
			u.Values[":read"] = call.Text(old.Stamp)
		}
		u.Values[":to"] = call.Text(record.Position(from))
		now, done, _, err := c.Update(ctx, u)
		if err != nil || done {
			return err
		}
		seen = now
		if err := call.Yield(ctx, again); err != nil {
			return err
		}
	}
}

// asRead is the condition that the backlog of a single outlet is the one that was read.
//
//rule:told_or_owed.compare-stamp-in-dynamodb
const asRead = "outbox_stamp = :read AND outbox_from = :from"

// Settle implements storage.Outbox.
func (s *Store) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	if err := storage.CheckSettle(items); err != nil {
		return nil, err
	}
	c, ctx, leave, err := s.enterBatch(ctx, "settle", len(items))
	if err != nil {
		return nil, err
	}
	defer leave()
	chats, ofChat := make([]tidemark.ChatID, len(items)), make([]call.Item, len(items))
	for i := range items {
		chats[i], ofChat[i] = items[i].Chat, record.ChatKey(items[i].Chat)
	}
	counters, err := c.Counters(ctx, chats, false)
	if err != nil {
		return nil, call.Public(err)
	}
	settled := make([]bool, len(items))
	err = inTurn(ctx, ofChat, func(ctx context.Context, _ string, i int) (err error) {
		settled[i], err = c.settleBacklog(ctx, counters[items[i].Chat], &items[i])
		return err
	})
	if err != nil {
		return nil, call.Public(err)
	}
	return settled, nil
}

// settleBacklog settles one backlog. The counter is as it was read, nil if there is no such chat.
// If news came since and the backlog would be closed, it begins again with the present counter.
func (c caller) settleBacklog(
	ctx context.Context, counter *record.Counter, item *storage.Settlement,
) (settled bool, err error) {
	for again := 0; counter != nil; again++ {
		end := storage.PositionOf(&counter.Chat)
		to := item.From.Most(item.To.Least(end))
		settle := c.settleForAll
		if item.Outlet != storage.AllOutlets {
			settle = c.settleAlone
		}
		var now call.Item
		now, settled, err = settle(ctx, counter, item, to)
		if err != nil || settled || now == nil {
			return settled, err
		}
		if counter, err = c.Learn(item.Chat, now); err != nil {
			return false, err
		}
		if err := call.Yield(ctx, again); err != nil {
			return false, err
		}
	}
	return false, nil
}

// atEnd is the condition that a chat has no news beyond a position (R_CLEAR).
//
//rule:told_or_owed.keep-backlog-of-later-news-in-dynamodb
const atEnd = "head = :head AND members_version = :members AND version = :version"

// endAt returns the values of atEnd.
func endAt(p storage.Position) call.Item {
	return call.Item{
		":head": call.Number(p.Sequence), ":members": call.Number(p.Members),
		":version": call.Number(p.Version),
	}
}

// settleForAll settles the chat's backlog for all outlets up to a position. If it is not settled,
// now is the present item of the chat, or nil if the backlog is another one.
func (c caller) settleForAll(
	ctx context.Context, counter *record.Counter, item *storage.Settlement, to storage.Position,
) (now call.Item, settled bool, err error) {
	if !counter.Outbox.Open || counter.Outbox.From != item.From {
		return nil, false, nil
	}
	u := call.Update{
		Table: record.Counters, Key: record.ChatKey(counter.ID),
		Change: "SET outbox_from = :to",
		//rule:told_in_order.settle-what-was-read-in-dynamodb
		Condition: "attribute_exists(outbox_shard) AND outbox_from = :from",
		Values: call.Item{
			":to":   call.Text(record.Position(to)),
			":from": call.Text(record.Position(item.From)),
		},
	}
	if item.From == (storage.Position{}) {
		u.Condition = "attribute_exists(outbox_shard) AND " +
			"(attribute_not_exists(outbox_from) OR outbox_from = :from)"
	}
	var gone []string
	if to == storage.PositionOf(&counter.Chat) {
		u.Condition += " AND " + atEnd
		maps.Copy(u.Values, endAt(to))
		gone = append(gone, "outbox_shard")
	}
	//rule:told_in_order.note-the-split-in-dynamodb
	if item.NowSplit {
		u.Change += ", outbox_split = :yes"
		u.Values[":yes"] = call.Flag(true)
	} else {
		gone = append(gone, "outbox_split")
	}
	if len(gone) > 0 {
		u.Change += " REMOVE " + strings.Join(gone, ", ")
	}
	now, settled, _, err = c.Update(ctx, u)
	return now, settled, err
}

// settleAlone settles the backlog of a single outlet up to a position. If it is not settled, now is
// the present item of the chat, or nil if the backlog is another one.
func (c caller) settleAlone(
	ctx context.Context, counter *record.Counter, item *storage.Settlement, to storage.Position,
) (now call.Item, settled bool, err error) {
	key := record.BacklogKey(item.Outlet, item.Chat)
	read := call.Item{
		":from": call.Text(record.Position(item.From)), ":read": call.Text(item.Stamp),
	}
	// A chat that has news beyond a position keeps them.
	if to != storage.PositionOf(&counter.Chat) {
		read[":to"] = call.Text(record.Position(to))
		_, settled, _, err = c.Update(ctx, call.Update{
			Table: record.Backlogs, Key: key, Change: "SET outbox_from = :to", Condition: asRead,
			Values: read,
		})
		return nil, settled, err
	}
	for again := 0; ; again++ {
		refused, _, err := c.Transact(ctx, []types.TransactWriteItem{
			{ConditionCheck: &types.ConditionCheck{
				TableName: c.Table(record.Counters), Key: record.ChatKey(item.Chat),
				ConditionExpression:       aws.String(atEnd),
				ExpressionAttributeValues: endAt(to),

				ReturnValuesOnConditionCheckFailure: types.
					ReturnValuesOnConditionCheckFailureAllOld,
			}},
			{Delete: &types.Delete{
				TableName: c.Table(record.Backlogs), Key: key,
				ConditionExpression:       aws.String(asRead),
				ExpressionAttributeValues: read,
			}},
		})
		switch {
		case err != nil || refused == nil:
			return nil, err == nil, err
		case call.Failed(refused[1]):
			return nil, false, nil
		case call.Failed(refused[0]):
			return refused[0].Item, false, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return nil, false, err
		}
	}
}

// EachChat implements storage.Outbox with a scan, as UsersNamed does. The order of the
// chats is that of their hashes. The table also has items that are no chats.
func (s *Store) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	c, ctx, leave, err := s.enter(ctx, "each_chat", 0)
	if err != nil {
		return nil, "", false, err
	}
	defer leave()
	var from call.Item
	if after != "" {
		from = record.ChatKey(after)
	}
	items, last, err := c.Scan(ctx, call.Read{
		Table: record.Counters, Only: []string{"chat_id", "type"},
	}, from, limit)
	if err != nil {
		return nil, "", false, call.Public(err)
	}
	for _, it := range items {
		r := call.Reader{Item: it}
		if r.Has("type") {
			chats = append(chats, tidemark.ChatID(r.Text("chat_id")))
		}
		if r.Err != nil {
			return nil, "", false, r.Err
		}
	}
	if last != nil {
		r := call.Reader{Item: last}
		next, more = tidemark.ChatID(r.Text("chat_id")), true
		err = r.Err
	}
	return chats, next, more, err
}

// membersAtOnce is how many memberships a call of MembersSince reads, of which few may have
// changed.
const membersAtOnce = 1_000

// MembersSince implements storage.Outbox. It reads all memberships of the chat, up to the end of
// the page.
func (s *Store) MembersSince(
	ctx context.Context, q storage.MembersQuery,
) ([]storage.ChangedMember, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "members_since", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	// The counter is read first: memberships that are read later have all that it counts.
	counter, err := c.Alive(ctx, q.Chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, call.Public(err)
	}
	rows := call.Query{
		Read:      call.Read{Table: record.Memberships},
		Partition: "chat_id",
		Sort:      "user_id",
		Of:        call.Text(q.Chat),
		Page:      max(membersAtOnce, q.Limit+1),
		Filter:    "version > :since OR attribute_exists(next_change)",
		Values:    call.Item{":since": call.Number(q.Since)},
	}
	if q.Since == 0 {
		rows.Page = q.Limit + 1
	}
	if q.After != "" {
		rows.After = call.Text(q.After)
	}
	var found []storage.ChangedMember
	more := false
	err = c.Each(ctx, rows, func(it call.Item) (bool, error) {
		row, err := record.MembershipOf(it)
		if err != nil {
			return false, err
		}
		member, version := row.ChangedAt(counter)
		if version <= q.Since {
			return true, nil
		}
		if more = len(found) == q.Limit; more {
			return false, nil
		}
		found = append(found, storage.ChangedMember{Member: member, Version: version})
		return true, nil
	})
	if err != nil {
		return nil, false, call.Public(err)
	}
	return found, more, nil
}
