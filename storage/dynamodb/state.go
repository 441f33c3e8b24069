package dynamodb

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	c, ctx, leave, err := s.enter(ctx, "finish_import", 0)
	if err != nil {
		return err
	}
	defer leave()
	done, err := s.appends.Turn(ctx, id)
	if err != nil {
		return call.Public(err)
	}
	defer done()
	for again := 0; ; again++ {
		ended, err := c.finishImport(ctx, id)
		if err != nil || ended {
			return call.Public(err)
		}
		if err := call.Yield(ctx, again); err != nil {
			return call.Public(err)
		}
	}
}

// finishImport makes a chat live, unless its members change meanwhile. If an answer is lost, the
// next attempt finds the chat live.
func (c caller) finishImport(ctx context.Context, id tidemark.ChatID) (ended bool, err error) {
	now, err := c.Counter(ctx, id)
	if err != nil {
		return false, err
	}
	changes, err := storage.Finishes(id, now.State)
	if err != nil || !changes {
		return err == nil, err
	}
	if now.Type == tidemark.Direct {
		return c.finishDirect(ctx, now)
	}
	values := call.Item{
		":importing": call.Text(tidemark.ChatImporting),
		":version":   call.Number(now.MembersVersion),
		":next":      call.Number(now.MembersVersion + 1),
	}
	live := record.OpenBacklog(id, "SET members_version = :next", values) + " REMOVE chat_state"
	it, ended, _, err := c.Update(ctx, call.Update{
		Table:     record.Counters,
		Key:       record.ChatKey(id),
		Change:    live,
		Condition: "chat_state = :importing AND members_version = :version",
		Values:    values,
	})
	if err == nil && ended {
		_, err = c.Learn(id, it)
	}
	return ended, err
}

// finishDirect is finishImport of a direct chat. It is closed if a block stands.
func (c caller) finishDirect(ctx context.Context, now *record.Counter) (ended bool, err error) {
	pair, err := c.pairOf(ctx, now)
	if err != nil || pair == nil {
		return false, err
	}
	after := now.Chat
	//rule:blocked_is_closed.close-at-the-end-of-an-import-in-dynamodb
	after.State = pair.closed
	after.MembersVersion++
	actions := []types.TransactWriteItem{c.Action(closing(&now.Chat, &after))}
	if pair.key != "" {
		actions = append(actions, c.check(pairKey(pair.key), "closed", pair.closed))
	}
	refused, _, err := c.Transact(ctx, actions)
	return err == nil && refused == nil, err
}

// DeleteChat implements storage.Deletions. The counter says that the chat is deleted. The items of
// its members stay until PurgeChat removes them, because they do not fit into a transaction.
func (s *Store) DeleteChat(
	ctx context.Context, id tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	c, ctx, leave, err := s.enter(ctx, "delete_chat", 0)
	if err != nil {
		return storage.Deleted{}, err
	}
	defer leave()
	done, err := s.appends.Turn(ctx, id)
	if err != nil {
		return storage.Deleted{}, call.Public(err)
	}
	defer done()
	for again := 0; ; again++ {
		deleted, err := c.deleteChat(ctx, id, call.Stored(now))
		if err != nil {
			return storage.Deleted{}, call.Public(err)
		}
		if deleted != nil {
			return *deleted, nil
		}
		if err := call.Yield(ctx, again); err != nil {
			return storage.Deleted{}, call.Public(err)
		}
	}
}

// deleteChat deletes a chat in one transaction. It returns nil if another write was in the way. If
// an answer is lost, the next attempt finds the chat deleted.
func (c caller) deleteChat(
	ctx context.Context, id tidemark.ChatID, now time.Time,
) (*storage.Deleted, error) {
	counter, err := c.Counter(ctx, id)
	if err != nil {
		return nil, err
	}
	if counter.State == tidemark.ChatDeleted {
		deleted := storage.DeletedOf(&counter.Chat)
		return &deleted, nil
	}
	// A hold of the last moment raises the version, which is a condition of the step.
	//rule:held_is_kept.no-deletion-in-dynamodb
	if err := storage.OnHold(id, counter.Policy); err != nil {
		return nil, err
	}
	after := storage.Delete(counter.Chat, now)
	actions := []types.TransactWriteItem{c.Action(deletion(counter, &after))}
	if counter.Described != "" {
		actions = append(actions, c.removal(describedKey(counter.Described)))
	}
	if counter.Type == tidemark.Direct {
		pair, err := c.pairOf(ctx, counter)
		if err != nil || pair == nil {
			return nil, err
		}
		if pair.key != "" {
			actions = append(actions, c.putPair(pair, pair.closed, ""))
		}
	}
	refused, _, err := c.Transact(ctx, actions)
	if err != nil || refused != nil {
		return nil, err
	}
	c.SawDeletion(id)
	deleted := storage.DeletedOf(&after)
	return &deleted, nil
}

// deletion returns the update of a counter when its chat is deleted. A change of its members that
// is under way does not take effect any more, since their version rises.
func deletion(counter *record.Counter, after *tidemark.Chat) call.Update {
	values := call.Item{
		":state": call.Text(after.State), ":at": call.Number(after.DeletedAt.UnixMilli()),
		":floor": call.Number(after.Floor), ":none": call.Number(0), ":empty": call.Text(""),
		":next_members": call.Number(after.MembersVersion),
		":next_version": call.Number(after.Version),
		":head":         call.Number(counter.Head),
		":members":      call.Number(counter.MembersVersion),
		":version":      call.Number(counter.Version),
	}
	change := "SET chat_state = :state, deleted_at = :at, floor = :floor, member_count = :none, " +
		"members_version = :next_members, version = :next_version, #name = :empty, " +
		"#creation = :empty"
	return call.Update{
		Table: record.Counters,
		Key:   record.ChatKey(counter.ID),
		Change: record.OpenBacklog(counter.ID, change, values) +
			" REMOVE metadata_item, keep_days, receipts_policy, senders, changing, changing_at, " +
			"change, change_head, change_version",
		Condition: "head = :head AND members_version = :members AND version = :version",
		Values:    values,
		Names:     map[string]string{"#name": "name", "#creation": "creation"},
	}
}

// removal removes an item of the counters' table that belongs to a chat.
func (c caller) removal(key call.Item) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{
		TableName: c.Table(record.Counters), Key: key,
	}}
}

// PurgeChat implements storage.Deletions. What is left of a member is removed before their
// membership, which is found by the chat. The keys of messages end by their time.
func (s *Store) PurgeChat(
	ctx context.Context, id tidemark.ChatID, limit int, members bool,
) (removed int, done bool, err error) {
	c, ctx, leave, err := s.enterBatch(ctx, "purge_chat", max(0, limit))
	if err != nil {
		return 0, false, err
	}
	defer leave()
	counter, err := c.Counter(ctx, id)
	if err == nil {
		err = storage.CheckPurge(id, counter.State, limit)
	}
	if err != nil {
		return 0, false, call.Public(err)
	}
	steps := []func(context.Context, tidemark.ChatID, int) (int, error){
		c.purgeMessages, c.purgeNotes,
	}
	if members {
		steps = append(steps, c.purgeBans, c.purgeMembers)
	}
	for _, step := range steps {
		n, err := step(ctx, id, limit-removed)
		if err != nil {
			return 0, false, call.Public(err)
		}
		if removed += n; removed >= limit {
			return removed, false, nil
		}
	}
	return removed, true, nil
}

// purgeMessages removes at most limit of the first messages of a chat, with what is noted beside
// them. The messages come last, because they say what is noted.
func (c caller) purgeMessages(
	ctx context.Context, id tidemark.ChatID, limit int,
) (int, error) {
	var messages, notes []call.Item
	q := call.Query{
		Read: call.Read{
			Table: record.Messages, Only: []string{"chat_id", "sequence", "kind", "mentions"},
		},
		Partition: "chat_id", Sort: "sequence", Of: call.Text(id), Page: limit,
	}
	err := c.Each(ctx, q, func(it call.Item) (bool, error) {
		m, err := record.MessageOf(it)
		messages = append(messages, placeOf(string(id), m.Sequence))
		for _, partition := range notedIn(&m) {
			notes = append(notes, placeOf(partition, m.Sequence))
		}
		return len(messages) < limit, err
	})
	if err == nil {
		err = c.RemoveAll(ctx, record.Messages, notes)
	}
	if err == nil {
		err = c.RemoveAll(ctx, record.Messages, messages)
	}
	return len(messages), err
}

// notedIn returns the partitions in which a message is noted, as far as it says so. If it was
// changed, it may have named others before.
func notedIn(m *tidemark.Message) (partitions []string) {
	switch {
	case !m.Kind.Counts():
		return []string{record.UncountedKey(m.ChatID)}
	case m.Mentions.All:
		return []string{record.MentionKey(m.ChatID, unread.Everyone)}
	}
	for _, user := range m.Mentions.Users {
		partitions = append(partitions, record.MentionKey(m.ChatID, user))
	}
	return partitions
}

// placeOf returns the key of an item in a partition of the messages' table.
func placeOf(partition string, sequence tidemark.Sequence) call.Item {
	return call.Item{"chat_id": call.Text(partition), "sequence": call.Number(sequence)}
}

// purgeNotes removes at most limit of the ordinals, mentions, reactions and pins that are left when
// all messages of a chat are removed.
func (c caller) purgeNotes(ctx context.Context, id tidemark.ChatID, limit int) (int, error) {
	//rule:deleted_is_gone.purge-reactions-in-dynamodb
	return c.purgePartitions(ctx, limit, record.ReactionsKey(id), record.PinsKey(id),
		record.UncountedKey(id), record.MentionKey(id, unread.Everyone))
}

// purgePartitions removes at most limit items of some partitions of the messages' table.
func (c caller) purgePartitions(
	ctx context.Context, limit int, partitions ...string,
) (int, error) {
	var keys []call.Item
	for _, partition := range partitions {
		if len(keys) >= limit {
			break
		}
		q := call.Query{
			Read: call.Read{
				Table: record.Messages, Only: []string{"chat_id", "sequence"},
			},
			Partition: "chat_id", Of: call.Text(partition), Page: limit,
		}
		err := c.Each(ctx, q, func(it call.Item) (bool, error) {
			keys = append(keys, it)
			return len(keys) < limit, nil
		})
		if err != nil {
			return 0, err
		}
	}
	return len(keys), c.RemoveAll(ctx, record.Messages, keys)
}

// purgeMembers removes at most limit members of a chat, present and former ones, and before them
// their states, pending rows and mentions.
func (c caller) purgeMembers(ctx context.Context, id tidemark.ChatID, limit int) (int, error) {
	var members, states, rows []call.Item
	var mentions []string
	q := call.Query{
		Read:      call.Read{Table: record.Memberships, Only: []string{"user_id"}},
		Partition: "chat_id", Of: call.Text(id), Page: limit,
	}
	err := c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		user := tidemark.UserID(r.Text("user_id"))
		members = append(members, record.MemberKey(id, user))
		states = append(states, record.StateKey(user, id))
		rows = append(rows, record.PendingKey(user, id))
		mentions = append(mentions, record.MentionKey(id, user))
		return len(members) < limit, r.Err
	})
	if err != nil {
		return 0, err
	}
	err = call.Together(ctx, len(mentions), func(ctx context.Context, i int) error {
		for {
			n, err := c.purgePartitions(ctx, storage.MaxExpired, mentions[i])
			if err != nil || n < storage.MaxExpired {
				return err
			}
		}
	})
	if err == nil {
		err = c.RemoveAll(ctx, record.States, states)
	}
	//rule:deleted_is_gone.rows-before-members-in-dynamodb
	if err == nil {
		err = c.RemoveAll(ctx, record.Pendings, rows)
	}
	if err == nil {
		err = c.RemoveAll(ctx, record.Memberships, members)
	}
	return len(members), err
}
