package dynamodb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// The metadata of a chat are in an item of their own, because each message pays for the size of the
// counter. The counter has the random name of the item, which is written once and never changed. A
// new chat's item is written before its counter: if the chat is not created, nobody reads the item.

// describedKey returns the key of an item of metadata. No chat id begins like it.
func describedKey(name string) call.Item {
	return record.ChatKey(tidemark.ChatID("metadata|" + name))
}

// described returns the item of metadata with a new name.
func described(metadata json.RawMessage) (name string, it call.Item) {
	name = rand.Text()
	it = describedKey(name)
	it["metadata"] = call.Text(string(metadata))
	return name, it
}

// describe writes the metadata of a chat that is created next, and names their item in its counter.
func (c caller) describe(ctx context.Context, counter *record.Counter) error {
	if counter.Metadata == nil {
		return nil
	}
	var it call.Item
	counter.Described, it = described(counter.Metadata)
	return c.PutAll(ctx, record.Counters, []call.Item{it})
}

// whole adds the metadata to a counter that was read. If they are replaced while it reads, it
// reads the counter again.
func (c caller) whole(ctx context.Context, counter *record.Counter) (*record.Counter, error) {
	for again := 0; counter.Described != ""; again++ {
		it, err := c.Get(ctx, record.Counters, describedKey(counter.Described))
		if err != nil {
			return nil, err
		}
		if it != nil {
			r := call.Reader{Item: it}
			counter.Metadata = json.RawMessage(r.Text("metadata"))
			return counter, r.Err
		}
		if err := call.Yield(ctx, again); err != nil {
			return nil, err
		}
		if counter, err = c.Counter(ctx, counter.ID); err != nil {
			return nil, err
		}
	}
	return counter, nil
}

// describeAll adds the metadata of the chats of a page.
func (c caller) describeAll(
	ctx context.Context, found []storage.ChatListItem, accounts map[tidemark.ChatID]account,
) error {
	var keys []call.Item
	for i := range found {
		if name := accounts[found[i].Chat.ID].counter.Described; name != "" {
			keys = append(keys, describedKey(name))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	items, err := c.GetAll(ctx, call.Read{Table: record.Counters, Eventual: true}, keys)
	if err != nil {
		return err
	}
	described := make(map[string]json.RawMessage, len(items))
	for _, it := range items {
		r := call.Reader{Item: it}
		described[r.Text("chat_id")] = json.RawMessage(r.Text("metadata"))
		if r.Err != nil {
			return r.Err
		}
	}
	for i := range found {
		counter := accounts[found[i].Chat.ID].counter
		if counter.Described == "" {
			continue
		}
		metadata, there := described["metadata|"+counter.Described]
		if !there { // they were replaced since
			if counter, err = c.Counter(ctx, counter.ID); err == nil {
				counter, err = c.whole(ctx, counter)
			}
			if err != nil {
				return err
			}
			found[i].Chat = counter.Chat
			continue
		}
		found[i].Chat.Metadata = metadata
	}
	return nil
}

// UpdateChat implements storage.Chats. A change of who sees what the members read takes a write for
// each user who is or was a member.
func (s *Store) UpdateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	var more time.Duration
	if change.Receipts != nil {
		more = time.Minute
	}
	c, ctx, leave, err := s.enter(ctx, "update_chat", more)
	if err != nil {
		return tidemark.Chat{}, err
	}
	defer leave()
	for again := 0; ; again++ {
		chat, done, err := c.updateChat(ctx, id, change)
		//rule:shown_within_real.spread-the-policy
		if err == nil && done && change.Receipts != nil {
			err = c.spreadPolicy(ctx, id)
		}
		if err != nil || done {
			return chat, call.Public(err)
		}
		if err := call.Yield(ctx, again); err != nil {
			return tidemark.Chat{}, call.Public(err)
		}
	}
}

// updateChat changes a chat, unless another change comes first. If an answer is lost, the next
// attempt finds the chat as it is wanted.
func (c caller) updateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (chat tidemark.Chat, done bool, err error) {
	before, err := c.Alive(ctx, id)
	if err == nil {
		before, err = c.whole(ctx, before)
	}
	if err != nil {
		return chat, false, err
	}
	chat, changed := change.Apply(before.Chat)
	if !changed {
		return chat, true, nil
	}
	values := call.Item{
		":n": call.Text(chat.Name), ":next": call.Number(chat.Version),
		":version": call.Number(before.Chat.Version),
	}
	set, remove := policyChange(chat.Policy, before, values)
	u := call.Update{
		Table: record.Counters, Key: record.ChatKey(id),
		Change:    record.OpenBacklog(id, "SET #n = :n, version = :next"+set, values),
		Condition: "version = :version",
		Values:    values,
		Names:     map[string]string{"#n": "name"},
	}
	if bytes.Equal(chat.Metadata, before.Metadata) {
		u.Change += removeClause(remove)
		_, done, _, err = c.Update(ctx, u)
		return chat, done, err
	}
	var others []types.TransactWriteItem
	if before.Described != "" {
		others = append(others, types.TransactWriteItem{Delete: &types.Delete{
			TableName: c.Table(record.Counters), Key: describedKey(before.Described),
		}})
	}
	if chat.Metadata == nil {
		remove = append(remove, "metadata_item")
	} else {
		name, it := described(chat.Metadata)
		u.Change += ", metadata_item = :item"
		u.Values[":item"] = call.Text(name)
		others = append(others, types.TransactWriteItem{Put: &types.Put{
			TableName: c.Table(record.Counters), Item: it,
		}})
	}
	u.Change += removeClause(remove)
	refused, _, err := c.Transact(ctx, append([]types.TransactWriteItem{c.Action(u)}, others...))
	return chat, refused == nil && err == nil, err
}

// policyChange returns what a SET of a counter has for another policy, and what a REMOVE has. It
// adds to the values.
func policyChange(
	after tidemark.Policy, counter *record.Counter, values call.Item,
) (set string, remove []string) {
	before := counter.Policy
	if after.Receipts != before.Receipts {
		set = ", receipts_policy = :receipts"
		values[":receipts"] = call.Number(record.NextPolicy(counter.PolicyNumber, after.Receipts))
	}
	switch {
	case after.KeepDays == before.KeepDays:
	case after.KeepDays == 0:
		remove = append(remove, "keep_days")
	default:
		set += ", keep_days = :days"
		values[":days"] = call.Number(after.KeepDays)
	}
	switch {
	case after.Hold == before.Hold:
	case after.Hold:
		set += ", on_hold = :hold"
		values[":hold"] = call.Flag(true)
	default:
		remove = append(remove, "on_hold")
	}
	return set, remove
}

// removeClause returns the REMOVE of an update, "" without attributes.
func removeClause(attributes []string) string {
	if len(attributes) == 0 {
		return ""
	}
	return " REMOVE " + strings.Join(attributes, ", ")
}
