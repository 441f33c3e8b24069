package record

import (
	"fmt"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// OutboxIndex is the index of the counters' table that has the chats with an open backlog, by their
// shards.
const OutboxIndex = "outbox"

// An Outbox says what of a chat's news was handed to all outlets (storage.Outbox).
type Outbox struct {
	// Open reports that the chat may have news beyond From.
	Open  bool
	From  storage.Position
	Split bool
}

// outboxOf returns the Outbox in the item of a chat.
func outboxOf(r *call.Reader) Outbox {
	return Outbox{
		Open: r.Has("outbox_shard"), From: PositionIn(r), Split: r.Flag("outbox_split"),
	}
}

// OpenBacklog returns the change of a counter, which begins with SET, with one that opens the
// chat's backlog for all outlets. An open backlog stays as it is: the index does not change then,
// and the write costs what it did. OpenBacklog adds to values.
func OpenBacklog(chat tidemark.ChatID, change string, values call.Item) string {
	values[":outbox_shard"] = call.Text(ShardOf(chat))
	//rule:told_or_owed.open-backlog-in-step-in-dynamodb
	return "SET outbox_shard = if_not_exists(outbox_shard, :outbox_shard), " +
		strings.TrimPrefix(change, "SET ")
}

// ShardOf returns the key of a chat's shard in the index.
func ShardOf(chat tidemark.ChatID) string { return Shard(storage.ShardOf(chat)) }

// Shard returns the key of a shard in the index.
func Shard(number int) string { return fmt.Sprintf("%02d", number) }

// BacklogKey returns the key of a backlog of a single outlet. No outlet's id contains a bar.
func BacklogKey(outlet storage.OutletID, chat tidemark.ChatID) call.Item {
	return call.Item{
		"outlet_shard": call.Text(OutletShard(outlet, storage.ShardOf(chat))),
		"chat_id":      call.Text(chat),
	}
}

// OutletShard returns the partition of the backlogs of a single outlet in a shard.
func OutletShard(outlet storage.OutletID, shard int) string {
	return string(outlet) + "|" + Shard(shard)
}

// Position returns a position as it is stored.
func Position(p storage.Position) string {
	return fmt.Sprintf("%d,%d,%d", p.Sequence, p.Members, p.Version)
}

// PositionIn returns the position in an item, which is zero if it is missing.
func PositionIn(r *call.Reader) (p storage.Position) {
	text := r.Text("outbox_from")
	if text == "" {
		return p
	}
	_, err := fmt.Sscanf(text, "%d,%d,%d", &p.Sequence, &p.Members, &p.Version)
	if err != nil || Position(p) != text {
		r.Err = tidemark.Errorf(tidemark.Internal, "the position %q of an item is none", text)
	}
	return p
}
