// Package record maps chats, members and messages to items, and reads them.
package record

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// The tables (migrations/dynamodb). Their names have the prefix of the store's URL.
const (
	Counters    = "chat_counters"
	Memberships = "chat_memberships"
	Messages    = "messages"
	Keys        = "idempotency_keys"
	States      = "delivery_state"
	Pendings    = "pending_deliveries"
	Backlogs    = "outlet_backlogs"
	Documents   = "documents"
)

// Access reads items for one method of storage.Store, and remembers heads and watermarks.
type Access struct {
	call.Caller
	*Known
}

// ChatKey returns the key of a chat's counter.
func ChatKey(chat tidemark.ChatID) call.Item { return call.Item{"chat_id": call.Text(chat)} }

// MemberKey returns the key of a membership.
func MemberKey(chat tidemark.ChatID, user tidemark.UserID) call.Item {
	return call.Item{"chat_id": call.Text(chat), "user_id": call.Text(user)}
}

// StateKey returns the key of a delivery state. It has the attributes of MemberKey; only their
// order differs between the two tables.
func StateKey(user tidemark.UserID, chat tidemark.ChatID) call.Item { return MemberKey(chat, user) }

// PendingKey returns the key of a pending row.
func PendingKey(user tidemark.UserID, chat tidemark.ChatID) call.Item {
	return call.Item{"receiver_id": call.Text(user), "chat_id": call.Text(chat)}
}

// UncountedKey returns the partition of the messages table that has the ordinals of a chat's
// messages that do not count as unread, by their sequences. No chat id contains a bar.
func UncountedKey(chat tidemark.ChatID) string { return "uncounted|" + string(chat) }

// MentionKey returns the partition of the messages table that has the messages of a chat that name
// a user, or all (unread.Everyone), by their sequences.
func MentionKey(chat tidemark.ChatID, user tidemark.UserID) string {
	return "mention|" + string(user) + "|" + string(chat)
}

// NoChat returns a NotFound error: there is no such chat.
func NoChat(id tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotFound, "there is no chat %s", id)
}

// NotMember returns the error that a user is not a member.
func NotMember(chat tidemark.ChatID, user tidemark.UserID) error {
	return storage.NotSender(chat, user, false)
}
