package storage

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// CopySource reads what a copy of all data to another store needs, and what the other roles do not
// tell. It belongs to no Store, because only a copy uses it. If servers work on the data meanwhile,
// calls after each other see different moments.
type CopySource interface {
	// Incarnations returns the incarnations of the data, the oldest first. The last one is the
	// present one.
	Incarnations() []tidemark.Incarnation

	// Nodes returns the names of servers that the store knows to work on the data. There may be
	// others.
	Nodes(ctx context.Context) ([]string, error)

	// Activity returns the activity of a chat (ChatListItem). NotFound: no such chat.
	Activity(ctx context.Context, chat tidemark.ChatID) (time.Time, error)

	// MessageFacts returns what a copy must know of the messages of a range, both ends included, in
	// their order. The range is within the chat's floor and head. It has at most MaxBatch messages.
	// users are those whose mentions are of interest, at most MaxBatch.
	MessageFacts(ctx context.Context, q FactsQuery) ([]MessageFacts, error)

	// Entries returns a page of the entries of a kind. next is the position of the next page, and
	// "" at the end. A page may be shorter than the limit, or empty, and still have a next one.
	// limit is at least 1.
	Entries(ctx context.Context, kind EntryKind, after string, limit int) (entries []Entry,
		next string, err error)
}

// CopyTarget writes what a copy has read. It overwrites what it finds under the same ids, so each
// call may be repeated. It checks nothing. No other call about the chat may run at the same time,
// and none at all during PutLives. A server that uses the store opens it again.
type CopyTarget interface {
	// PutLives puts the incarnations of the source before those of the store. Messages are written
	// with numbers that count from the first of the source's, which is 1.
	PutLives(ctx context.Context, of []tidemark.Incarnation) error

	// PutChat writes a chat without its members and messages. Those that are stored stay. If
	// another chat has the Pair, that one loses it.
	PutChat(ctx context.Context, c CopiedChat) error

	// PutMembers writes members of a chat that PutChat has written, with all that is stored of them
	// in the chat. The two members of a direct chat are in one call. Invalid: more than MaxBatch.
	PutMembers(ctx context.Context, chat tidemark.ChatID, members []CopiedMember) error

	// PutMessages writes messages of a chat that PutChat has written. Conflict: another message of
	// the chat has the key of one of them. Invalid: more than MaxBatch.
	PutMessages(ctx context.Context, chat tidemark.ChatID, messages []CopiedMessage) error

	// DropChat removes a chat and all that PutChat, PutMembers, PutMessages and Ban have written of
	// it, as if it had never been there. Settings of Receipts and backlogs of single outlets may
	// stay. A chat that does not exist is no error. After an error, some of it may be left.
	DropChat(ctx context.Context, chat tidemark.ChatID) error
}

// FactsQuery selects messages of a chat, from From to To.
type FactsQuery struct {
	Chat     tidemark.ChatID
	From, To tidemark.Sequence
	// Users are present and former members of the chat, of whom each is named once. Mentions of
	// others may be missing.
	Users []tidemark.UserID
	// Mentions says that MessageFacts.Mentions is asked for.
	Mentions bool
}

// MessageFacts has what is stored beside a message.
type MessageFacts struct {
	// Life is the number of the incarnation that stored the message, counted from 1.
	Life int64
	// Mentions are those of the message when it was stored, as far as they were asked for. They
	// decide what counts as a mention (rule countable_fixed).
	Mentions tidemark.Mentions
}

// EntryKind is a kind of what is stored beside the chats, or by users.
type EntryKind string

// The kinds.
const (
	// EntryDocument is a document, with any version.
	EntryDocument EntryKind = "documents"
	// EntryBlock is a block of a user by another one.
	EntryBlock EntryKind = "blocks"
	// EntryReceipts is a setting of Receipts for one chat, if Chat is set, or for all. In a chat,
	// it may be that of a user who was never a member.
	EntryReceipts EntryKind = "receipts"
	// EntryBacklog is a backlog of a single outlet.
	EntryBacklog EntryKind = "backlogs"
	// EntryAudit is an entry of the audit log.
	EntryAudit EntryKind = "audit entries"
)

// Entry is one of the entries of its kind. Only the fields of the kind are set.
type Entry struct {
	Document Document
	// User has blocked Blocked, or has the setting Receipts in Chat.
	User     tidemark.UserID
	Blocked  Block
	Chat     tidemark.ChatID
	Receipts tidemark.ReceiptsSetting
	Backlog  Backlog
	Audit    AuditEntry
}

// CopiedChat is a chat as it is written by a copy. Its counts leave out what has expired.
type CopiedChat struct {
	tidemark.Chat
	// Pair is tidemark.DirectKey of the members of a direct chat that is the chat of its pair, else
	// "".
	Pair     string
	Activity time.Time
	// Open says that there is a backlog for all outlets, From where it begins, and Split is
	// Backlog.Split.
	Open  bool
	From  Position
	Split bool
	// Uncounted is the number of messages that do not count as unread, and LastUncounted the
	// sequence of the last. LastMention is that of the last message that counts and names users,
	// and LastSent that of the last that counts and is of a member.
	Uncounted                            int64
	LastUncounted, LastMention, LastSent tidemark.Sequence
	// Bans is the number of users who are banned.
	Bans int
}

// CopiedMember is a present or former member as it is written by a copy. Its counts leave out what
// has expired.
type CopiedMember struct {
	ChangedMember
	State tidemark.DeliveryState
	// Sent is the number of the user's messages that count as unread, and LastSent the sequence of
	// the last. SentRead is the number of those up to State.Read, and SentBefore that up to
	// State.UnreadAfter.
	Sent, SentRead, SentBefore int64
	LastSent                   tidemark.Sequence
	// Pending says that there is a pending row, which begins at FirstUndelivered.
	Pending          bool
	FirstUndelivered tidemark.Sequence
}

// CopiedMessage is a message as it is written by a copy. Its relation has no target.
type CopiedMessage struct {
	tidemark.Message
	MessageFacts
	// Ordinal is the ordinal among the chat's messages that do not count as unread, or 0.
	Ordinal int64
	// Stands says that it is a reaction or a pin that stands (Annotations).
	Stands bool
	// Keyed says that the key must be known for some time to come, in a store that forgets keys.
	Keyed bool
}

// KeyOfTwo returns the Conflict of PutMessages: two messages of a chat have one key. Stores that
// forget keys accept such messages, and others do not.
func KeyOfTwo(chat tidemark.ChatID, one, other tidemark.Sequence) error {
	return tidemark.Errorf(tidemark.Conflict,
		"messages %d and %d of the chat %s have the same sender and client_message_id, which this "+
			"store cannot hold; delete the chat, or let the earlier message expire", one, other,
		chat)
}

// FirstMention is what a store has of whom a message named when it was stored: an id, or everyone.
type FirstMention struct {
	User     tidemark.UserID
	Sequence tidemark.Sequence
}

// PutMentions adds mentions to the facts of a range that begins at a sequence. The user everyone
// stands for all.
func PutMentions(
	facts []MessageFacts, from tidemark.Sequence, everyone tidemark.UserID, found []FirstMention,
) {
	for _, one := range found {
		m := &facts[one.Sequence-from].Mentions
		if one.User == everyone {
			m.All = true
		} else {
			*m = tidemark.NewMentions(m.All, append(m.Users, one.User))
		}
	}
}

// CheckKeys returns the KeyOfTwo of messages that have one key. A store that cannot hold them calls
// it at the start of PutMessages.
func CheckKeys(chat tidemark.ChatID, messages []CopiedMessage) error {
	type key struct {
		sender          tidemark.UserID
		clientMessageID string
	}
	seen := make(map[key]tidemark.Sequence, len(messages))
	for i := range messages {
		m := &messages[i]
		k := key{m.SenderID, m.ClientMessageID}
		if one, twice := seen[k]; twice {
			return KeyOfTwo(chat, one, m.Sequence)
		}
		seen[k] = m.Sequence
	}
	return nil
}
