package record

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// A Counter is the item of a chat: the chat itself, with its head.
type Counter struct {
	tidemark.Chat
	// Activity is the time of the last message, or of the creation.
	Activity time.Time
	// Standing says that pending rows that stand for a Large chat may have been written, although the chat did not become one.
	Standing bool
	// CreatedBy is the token of the call that created it.
	CreatedBy string
	Change
}

// A Change is one of more members than fit into a transaction. All of it is empty as a rule.
type Change struct {
	// Changed is the token of the last one that took effect, until all its items are settled; at which head and version it did.
	Changed       string
	ChangeHead    tidemark.Sequence
	ChangeVersion uint64
}

// CounterOf takes an item apart. It is nil for none, and for a chat that is only being prepared.
func CounterOf(it call.Item) (*Counter, error) {
	r := call.Reader{Item: it}
	if !r.Has("type") {
		return nil, nil
	}
	c := &Counter{
		Chat: tidemark.Chat{
			ID:             tidemark.ChatID(r.Text("chat_id")),
			Type:           tidemark.ChatType(r.Text("type")),
			Name:           r.Text("name"),
			History:        tidemark.HistoryMode(r.Text("history")),
			CreatedAt:      r.Time("created_at"),
			Head:           r.Sequence("head"),
			MemberCount:    int(r.Number("member_count")),
			MembersVersion: r.Number("members_version"),
			Large:          r.Flag("is_large"),
		},
		Activity:  r.Time("activity_at"),
		Standing:  r.Flag("may_stand"),
		CreatedBy: r.Text("created_by"),
		Change: Change{
			Changed:       r.Text("change"),
			ChangeHead:    r.Sequence("change_head"),
			ChangeVersion: r.Number("change_version"),
		},
	}
	return c, r.Err
}

// Counter reads the item of a chat. NotFound if there is none.
func (c Access) Counter(ctx context.Context, chat tidemark.ChatID) (*Counter, error) {
	it, err := c.Get(ctx, Counters, ChatKey(chat))
	if err != nil {
		return nil, err
	}
	return c.Learn(chat, it)
}

// Learn takes in the item of a chat as it was read. NotFound if it is none.
func (c Access) Learn(chat tidemark.ChatID, it call.Item) (*Counter, error) {
	found, err := CounterOf(it)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, NoChat(chat)
	}
	c.SawHead(chat, found.Head)
	return found, nil
}

// Counters reads the items of chats, those that are there.
func (c Access) Counters(
	ctx context.Context, chats []tidemark.ChatID, eventual bool,
) (map[tidemark.ChatID]*Counter, error) {
	wanted := make([]call.Item, len(chats))
	for i, chat := range chats {
		wanted[i] = ChatKey(chat)
	}
	//rule:confirmed_is_durable.consistent-heads
	items, err := c.GetAll(ctx, call.Read{Table: Counters, Eventual: eventual}, wanted)
	if err != nil {
		return nil, err
	}
	found := make(map[tidemark.ChatID]*Counter, len(items))
	for _, it := range items {
		one, err := CounterOf(it)
		if err != nil {
			return nil, err
		}
		if one == nil {
			continue
		}
		c.SawHead(one.ID, one.Head)
		found[one.ID] = one
	}
	return found, nil
}

// Item is how the counter of a new chat is stored.
func (c *Counter) Item() call.Item {
	it := call.Item{
		"chat_id": call.Text(c.ID), "type": call.Text(c.Type), "name": call.Text(c.Name),
		"history": call.Text(c.History), "created_at": call.Number(c.CreatedAt.UnixMilli()),
		"head": call.Number(c.Head), "activity_at": call.Number(c.Activity.UnixMilli()),
		"members_version": call.Number(c.MembersVersion),
		"member_count":    call.Number(c.MemberCount), "created_by": call.Text(c.CreatedBy),
	}
	if c.Large {
		it["is_large"] = call.Flag(true)
	}
	if c.Standing {
		it["may_stand"] = call.Flag(true)
	}
	return it
}
