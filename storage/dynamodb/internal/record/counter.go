package record

import (
	"context"
	"maps"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// A Counter is the item of a chat. It has the chat itself and its head.
type Counter struct {
	tidemark.Chat
	// Activity is the time of the last message, or of the creation.
	Activity time.Time
	// Standing reports that standing rows of a Large chat may have been written, although the chat
	// is not Large.
	Standing bool
	// Senders are the latest senders. LastMoved is the highest Last of those that have left it.
	Senders   Senders
	LastMoved tidemark.Sequence
	// Uncounted is the number of messages that do not count as unread, and LastUncounted the
	// sequence of the last. LastMention is that of the last message that counts and names users.
	Uncounted                  int64
	LastUncounted, LastMention tidemark.Sequence
	// Described names the item that has the chat's metadata, or is empty. A counter that was read
	// has no Metadata.
	Described string
	// CreatedBy is the token of the call that created the chat.
	CreatedBy string
	// PolicyNumber is the number of Policy.Receipts (ReceiptsPolicyOf).
	PolicyNumber int64
	// Bans is the number of users who are banned.
	Bans   int
	Outbox Outbox
	Change
}

// A Change is a change of more members than fit into a transaction. Usually all its fields are
// empty.
type Change struct {
	// Changed is the token of the last change that took effect, until all its items are settled.
	// ChangeHead and ChangeVersion are the head and version at which it did.
	Changed       string
	ChangeHead    tidemark.Sequence
	ChangeVersion uint64
}

// CounterOf returns the counter in an item. It returns nil for a missing item, and for a chat that
// is only prepared.
func CounterOf(it call.Item) (*Counter, error) {
	r := call.Reader{Item: it}
	if !r.Has("type") {
		return nil, nil
	}
	c := &Counter{
		Chat: tidemark.Chat{
			ID:             tidemark.ChatID(r.Text("chat_id")),
			State:          tidemark.ChatState(r.Text("chat_state")),
			Type:           tidemark.ChatType(r.Text("type")),
			Name:           r.Text("name"),
			Version:        r.Number("version"),
			History:        tidemark.HistoryMode(r.Text("history")),
			CreatedAt:      r.Time("created_at"),
			Creation:       r.Text("creation"),
			Head:           r.Sequence("head"),
			Floor:          max(1, r.Sequence("floor")),
			MemberCount:    int(r.Number("member_count")),
			MembersVersion: r.Number("members_version"),
			Large:          r.Flag("is_large"),
			DeletedAt:      r.Time("deleted_at"),
			Policy: tidemark.Policy{
				KeepDays: int(r.Number("keep_days")), Hold: r.Flag("on_hold"),
				Receipts: ReceiptsPolicyOf(int64(r.Number("receipts_policy"))),
			},
		},
		PolicyNumber: int64(r.Number("receipts_policy")),
		Activity:     r.Time("activity_at"),
		Standing:     r.Flag("may_stand"),
		Senders:      sendersOf(&r, "senders"),
		LastMoved:    r.Sequence("last_moved"),
		Uncounted:    int64(r.Number("uncounted")), LastUncounted: r.Sequence("last_uncounted"),
		LastMention: r.Sequence("last_mention"),
		Described:   r.Text("metadata_item"),
		CreatedBy:   r.Text("created_by"),
		Bans:        int(r.Number("bans")),
		Outbox:      outboxOf(&r),
		Change: Change{
			Changed:       r.Text("change"),
			ChangeHead:    r.Sequence("change_head"),
			ChangeVersion: r.Number("change_version"),
		},
	}
	return c, r.Err
}

// Counter reads the item of a chat. It returns NotFound if there is none.
func (c Access) Counter(ctx context.Context, chat tidemark.ChatID) (*Counter, error) {
	it, err := c.Get(ctx, Counters, ChatKey(chat))
	if err != nil {
		return nil, err
	}
	return c.Learn(chat, it)
}

// Learn returns the counter in an item that was read, and remembers its head. It returns NotFound
// if there is no chat in it.
func (c Access) Learn(chat tidemark.ChatID, it call.Item) (*Counter, error) {
	found, err := CounterOf(it)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, NoChat(chat)
	}
	c.SawCounter(found)
	return found, nil
}

// Alive is Counter for a chat that is not deleted. It returns NotFound for any other one.
func (c Access) Alive(ctx context.Context, chat tidemark.ChatID) (*Counter, error) {
	found, err := c.Counter(ctx, chat)
	//rule:deleted_is_gone.nothing-is-changed-in-dynamodb
	if err == nil && found.State == tidemark.ChatDeleted {
		return nil, storage.WasDeleted(chat)
	}
	return found, err
}

// Living reads the items of those chats that exist and are not deleted.
func (c Access) Living(
	ctx context.Context, chats []tidemark.ChatID, eventual bool,
) (map[tidemark.ChatID]*Counter, error) {
	found, err := c.Counters(ctx, chats, eventual)
	//rule:deleted_is_gone.no-list-has-it-in-dynamodb
	maps.DeleteFunc(found, func(_ tidemark.ChatID, one *Counter) bool {
		return one.State == tidemark.ChatDeleted
	})
	return found, err
}

// Counters reads the items of those chats that exist.
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
		c.SawCounter(one)
		found[one.ID] = one
	}
	return found, nil
}

// Item returns the counter of a new chat as an item. Its creation is news for outlets.
func (c *Counter) Item() call.Item {
	it := call.Item{
		"chat_id": call.Text(c.ID), "type": call.Text(c.Type), "name": call.Text(c.Name),
		"history": call.Text(c.History), "created_at": call.Number(c.CreatedAt.UnixMilli()),
		"head": call.Number(c.Head), "activity_at": call.Number(c.Activity.UnixMilli()),
		"members_version": call.Number(c.MembersVersion),
		"member_count":    call.Number(c.MemberCount), "created_by": call.Text(c.CreatedBy),
		"creation": call.Text(c.Creation), "version": call.Number(c.Version),
	}
	//rule:told_or_owed.open-backlog-at-creation-in-dynamodb
	it["outbox_shard"] = call.Text(ShardOf(c.ID))
	if c.State != tidemark.ChatLive {
		it["chat_state"] = call.Text(c.State)
	}
	if c.Described != "" {
		it["metadata_item"] = call.Text(c.Described)
	}
	if c.Large {
		it["is_large"] = call.Flag(true)
	}
	if c.Standing {
		it["may_stand"] = call.Flag(true)
	}
	return it
}
