// Package storage is the contract between the delivery core and the databases. It holds no implementation:
// storage/memory is the executable specification, storage/sqlite the embedded default, and storage/storagetest the
// suite that every backend passes, without exceptions.
//
// # What holds for every method
//
// A method is one atomic intent: it happens wholly or not at all, and concurrent calls take effect in some order
// (linearizable), except where a comment says "eventual". There is no exposed transaction.
//
// Durability: when a write returns nil, its effect survives the death of the server and of the database process.
// When it returns Unavailable, the effect may or may not have happened; every write may be repeated, and repeating it is
// harmless (Append by its idempotency key, the others because they are monotone).
//
// Errors are *tidemark.Error. Every method may return Unavailable (the database cannot be reached, is full, read-only or
// corrupt, or ctx has ended), with a detail that a person can act on, and Internal (a bug); the others are named at each method. Transient errors of a
// driver are retried inside the backend, within the deadline of ctx.
//
// Batching: concurrent calls of Append, Advance, Mark and Clear are coalesced into common commits by the backend. A bad
// item fails alone. A method that takes a slice returns a slice of the same length and order unless it says otherwise;
// an empty slice does nothing. Slices hold at most MaxBatch items; a longer one is Invalid.
//
// Values handed in or out are not changed afterwards by either side. Times have millisecond precision: what is finer is
// cut off, in the results of writes too.
// All methods are safe for concurrent use.
package storage

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// MaxBatch is the greatest length of a slice argument.
const MaxBatch = 10_000

// Store is everything a backend provides. It is named only where programs are put together; code that uses
// storage declares the roles it needs.
type Store interface {
	Chats
	Members
	Messages
	Deliveries
	Pending

	// Check returns nil if the store can serve reads and durable writes now, else Unavailable with the reason. It is
	// what readiness asks; it takes at most as long as one small read and need not write.
	Check(ctx context.Context) error
	// Close waits for the calls under way, refuses later ones with Unavailable, and releases everything. It may be
	// called more than once.
	Close() error
}

// Chats is the role of chats and their counters.
type Chats interface {
	// CreateChat stores a chat with its members, all of them with history from sequence 1, watermarks at 0, and
	// MembersVersion 1. Chat.Large is set, with the rows that belong to it (see Pending), if there are more than
	// tidemark.PendingFanoutLimit members.
	//
	// If new.ID is taken it returns Conflict and changes nothing. A Direct chat exists once for its pair of members: if it
	// exists, whatever its id, it is returned with created false; this is looked at before new.ID is. For a Group created is always true on success.
	// The input has been checked by the caller: ids are valid, members distinct and at most tidemark.MaxMembersPerCall,
	// a Direct chat has exactly two.
	CreateChat(ctx context.Context, new NewChat) (chat tidemark.Chat, created bool, err error)

	// Chat returns a chat. NotFound if there is none.
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)

	// RenameChat sets the name and returns the chat. NotFound if there is none.
	RenameChat(ctx context.Context, chat tidemark.ChatID, name string) (tidemark.Chat, error)

	// ChatsOf returns a page of the chats of which the user is a member now, latest activity first (the time of the last
	// message, or of the creation while there is none), equal times in ascending order of chat id. Eventual: a chat that becomes active
	// between two pages may be seen twice or not at all. Limit is at least 1. more reports whether
	// chats follow the last one; its Activity and Chat.ID are the position of the next page.
	ChatsOf(ctx context.Context, user tidemark.UserID, page ChatsPage) (chats []ChatListItem,
		more bool, err error)

	// Heads returns the head of each chat, 0 for one that does not exist. It sees every append that returned before it was
	// called.
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
}

// Members is the role of who may see what.
type Members interface {
	// AddMembers makes the users members of a group with the role tidemark.Ordinary, in one step with the chat's head: their
	// intervals become Intervals.Joined(head), the membership version grows by one if anyone was added, and Chat.Large is set for good if there
	// are now more than tidemark.PendingFanoutLimit members. On his first join of a HistorySinceJoin chat both watermarks of a user
	// start at the head, by a raise to it at now; otherwise his delivery state is kept, or stays absent. Only who was
	// never a member joins for the first time: one whose membership was empty returns.
	//
	// Users who are members already are left as they are. Errors, all of them changing
	// nothing: NotFound (no such chat), Denied (a direct chat; more than tidemark.MaxMembers members; a user who would have more than
	// tidemark.MaxIntervals intervals).
	AddMembers(ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
		now time.Time) (Added, error)

	// RemoveMember ends the membership of a user, in one step with the chat's head: his intervals become
	// Intervals.Left(head), and the membership version grows by one. His delivery state is kept (ADR-008 §6.1);
	// his pending row goes in this step, so that it is never that of his return. NotFound (no such chat), NotMember (he is not one), Denied (a direct chat).
	RemoveMember(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
		now time.Time) (Removed, error)

	// Rosters returns the current members of each chat, at one version each; nil for a chat that does not exist.
	// It sees every change that returned before it was called.
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
}

// Messages is the role of the messages.
type Messages interface {
	// Append stores messages, each at the next sequence of its chat: those of one chat in the order of the slice, one behind the other. Idempotency key,
	// membership, counter and message are one atomic step (delivery.md §2), so that the messages of a chat are exactly 1..head, whatever crashes.
	//
	// The key (chat, sender, client message id) is looked up before anything else, membership included. If it is known,
	// nothing is stored: the first message is returned with Duplicate, or Conflict if it is not Message.SameAs the draft. Equal keys in one call, or in
	// concurrent ones, store one message. Keys are kept at least 7 days; after that the same key may store another message.
	//
	// A draft that is refused fails alone, with the Err of its Appended: NotFound (no such chat), NotMember (the sender is not a member in this
	// step), Conflict; or Unavailable or Internal, if it alone could not be stored (somebody holds a lock on its chat; the database refuses a value),
	// and was not. The error of the call means that any of the drafts may or may not have been stored; it is resolved by calling again with the same
	// keys. Drafts have been checked (Draft.Check) and carry MessageID and CreatedAt.
	Append(ctx context.Context, drafts []tidemark.Draft) ([]Appended, error)

	// Ranges returns messages of each range in ascending order, without a hole: if a message that must exist cannot be seen,
	// the page ends before it. It sees every append that returned before it was called. Membership is not
	// looked at. An unknown chat has no messages. Chats may be named more than once; there is no order between ranges.
	Ranges(ctx context.Context, ranges []Range) ([][]tidemark.Message, error)
}

// Deliveries is the role of the watermarks.
type Deliveries interface {
	// Advance raises watermarks: the stored state becomes Raise.Apply of it, each item atomically with the bound by the chat's
	// head (Raise.Bounded). No user and chat may be named twice in one call (Invalid). A stale raise
	// succeeds and returns the stored state. A row is created by the first raise that moves something. Membership is not
	// looked at (ADR-008 §3.1).
	//
	// The error of an item is InvalidSequence (beyond the head; the item changes nothing) or NotFound (no such chat). The error
	// of the call means that any of the items may or may not have been written.
	Advance(ctx context.Context, advances []Advance) ([]Advanced, error)

	// States returns the delivery state of each (user, chat); watermarks 0 and a zero UpdatedAt where there is no row. It may be
	// eventual: a state may be older than the latest, never newer, and no older than what this process wrote or read.
	States(ctx context.Context, keys []StateKey) ([]tidemark.DeliveryState, error)

	// StatesOf returns a page of the states of a user in the chats of which he is a member now, in ascending order of chat id after the one
	// given ("" for the first page); chats without a row are left out. Eventual. Limit is at least 1.
	StatesOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID,
		limit int) (states []tidemark.DeliveryState, more bool, err error)

	// StatesIn returns a page of the states of the current members of a chat, in ascending order of user id after the one
	// given; members without a row are included as in States. An unknown chat has none. Eventual. Limit is at least 1.
	StatesIn(ctx context.Context, chat tidemark.ChatID, after tidemark.UserID,
		limit int) (states []tidemark.DeliveryState, more bool, err error)

	// Summary counts the current members of a chat whose exposed boundary has reached a sequence, and gives the least boundary
	// of all of them (ADR-008 §4.3; members without a row count as 0). NotFound (no such chat). Eventual. A chat without
	// members has the least boundary 0.
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence) (Summary, error)
}

// Pending is the role of what users still have to receive.
//
// A chat flagged Large costs no write for each absent member: the step that sets the flag, or adds a member later, writes him a row with FirstUndelivered
// 0, which Mark finds standing, Clear leaves alone, and RemoveMember removes. So one listing names what is pending and what has to be compared.
type Pending interface {
	// Mark notes that a user has not received a chat from a sequence on. There is one row for a user and chat; the smallest sequence wins.
	// written reports, for each item, whether the row was created or lowered: while a row at or below the sequence stands, Mark
	// writes nothing. FirstUndelivered is at least 1. It sees every Mark and Clear that returned before it was called.
	Mark(ctx context.Context, rows []tidemark.PendingDelivery) (written []bool, err error)

	// Clear notes that a user has received a chat up to a sequence, in one step with the chat's head (delivery.md §4, R_CLEAR): a row
	// whose first sequence is at most Through is removed if Through is the head (or above it), else set to Through + 1. A row above
	// Through, that of a Large chat, or none, is left. cleared reports whether a row was touched.
	Clear(ctx context.Context, items []Clear) (cleared []bool, err error)

	// PendingOf returns a page of the rows of a user, in ascending order of chat id after the one given ("" for the first
	// page), each with his acknowledged watermark. It sees every Mark, Clear and Advance that returned before it was called. Limit is at least 1.
	PendingOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID,
		limit int) (rows []PendingRow, more bool, err error)

	// Behind returns a page of the chats of which the user is a member now and whose head is above his acknowledged
	// watermark, in ascending order of chat id after q.After. It sees every append that returned before it was called; the watermark
	// may be eventual (too low). A page may be shorter than the limit, even empty, with more true: next is then where
	// the next page starts.
	Behind(ctx context.Context, user tidemark.UserID, q BehindQuery) (chats []Lag,
		next tidemark.ChatID, more bool, err error)
}

// NewChat is a chat to be created.
type NewChat struct {
	ID        tidemark.ChatID
	Type      tidemark.ChatType
	Name      string
	History   tidemark.HistoryMode
	CreatedAt time.Time
	// Creator becomes owner. He is one of Members.
	Creator tidemark.UserID
	Members []tidemark.UserID
}

// ChatsPage is a page of a user's chats. The zero position is the first page.
type ChatsPage struct {
	Limit int
	// Activity and ChatID are those of the last chat of the page before.
	Activity time.Time
	ChatID   tidemark.ChatID
	// Brief leaves out what needs a look at messages: Unread is 0 and Last nil.
	Brief bool
}

// ChatListItem is a chat as one of its members sees it.
type ChatListItem struct {
	Chat  tidemark.Chat
	State tidemark.DeliveryState
	// Unread is the number of messages after State.Read that he may see, except that his own do not count among the
	// first UnreadScan of them.
	Unread int64
	// Last is the last message, nil while there is none or if he may not see it.
	Last *tidemark.Message
	// Activity is the time of the last message, or of the creation.
	Activity time.Time
}

// UnreadScan is how many messages are looked at to tell a user's own from the unread ones.
const UnreadScan = 100

// Added is what AddMembers did.
type Added struct {
	// Version is the membership version after the step.
	Version uint64
	Head    tidemark.Sequence
	// New are those who were not members before, in the order of their ids.
	New []tidemark.UserID
	// States are the delivery states of all users named, those who were members before included, in the order of their ids, none older than the call:
	// a call that repeats one whose answer was lost says what that one would have said.
	States []tidemark.DeliveryState
}

// Removed is what RemoveMember did.
type Removed struct {
	// Version is the membership version after the step.
	Version uint64
	Head    tidemark.Sequence
}

// Appended is what Append did.
type Appended struct {
	// Message is the stored one: of the first send, if this is a duplicate.
	Message   tidemark.Message
	Duplicate bool
	// Version is the chat's membership version: of this step, or, for a duplicate, not older than the call.
	Version uint64
	// Err is why the draft is not stored (see Append); the other fields are empty then.
	Err error
}

// AppendOne is Append for one draft. Its error is that of the call, or of the draft.
func AppendOne(ctx context.Context, m Messages, draft tidemark.Draft) (Appended, error) {
	appended, err := m.Append(ctx, []tidemark.Draft{draft})
	if err == nil {
		err = appended[0].Err
	}
	if err != nil {
		return Appended{}, err
	}
	return appended[0], nil
}

// Range selects messages of a chat: those above After, or, if Before is not 0, the last ones below Before and above After.
type Range struct {
	Chat   tidemark.ChatID
	After  tidemark.Sequence
	Before tidemark.Sequence
	// Limit is the greatest number of messages, at least 1.
	Limit int
	// MaxBytes, if not 0, ends the page after the message with which contents and attachments reach it. A page holds at
	// least one message if there is one. Counted from the end that the page starts at (the last one if Before is set).
	MaxBytes int
}

// StateKey names a delivery state.
type StateKey struct {
	User tidemark.UserID
	Chat tidemark.ChatID
}

// CheckDistinct returns Invalid if a user and chat are named twice. Every backend's Advance begins with it.
func CheckDistinct(advances []Advance) error {
	if len(advances) < 2 {
		return nil
	}
	named := make(map[StateKey]struct{}, len(advances))
	for i := range advances {
		key := StateKey{User: advances[i].User, Chat: advances[i].Chat}
		if _, twice := named[key]; twice {
			return tidemark.Errorf(tidemark.Invalid, "%s and chat %s are named twice",
				key.User, key.Chat)
		}
		named[key] = struct{}{}
	}
	return nil
}

// Advance is a raise of one user's watermarks in one chat.
type Advance struct {
	User tidemark.UserID
	Chat tidemark.ChatID
	tidemark.Raise
	// Now becomes UpdatedAt if something moves.
	Now time.Time
}

// Advanced is what became of an Advance.
type Advanced struct {
	// State is the stored state afterwards. It is the zero state if Err is not nil.
	State tidemark.DeliveryState
	// Moved reports whether this item raised something.
	Moved bool
	// Err is InvalidSequence or NotFound.
	Err error
}

// Summary is the delivery status of a chat at one sequence.
type Summary struct {
	Members   int
	Delivered int
	Read      int
	// Least is the least exposed boundary of all current members.
	Least tidemark.Boundary
}

// Clear is an acknowledgement that may end a pending row.
type Clear struct {
	User    tidemark.UserID
	Chat    tidemark.ChatID
	Through tidemark.Sequence
}

// BehindQuery is a page of the chats in which a user is behind.
type BehindQuery struct {
	// LargeOnly selects the chats flagged Large.
	LargeOnly bool
	After     tidemark.ChatID
	// Limit is at least 1.
	Limit int
}

// PendingRow is a pending row of a user and his acknowledged watermark in the chat, 0 if he has none. The row's first message need not be the one behind the
// watermark: those before it may be on their way to be marked.
type PendingRow struct {
	tidemark.PendingDelivery
	Acked tidemark.Sequence
}

// Lag is a chat in which a user is behind.
type Lag struct {
	Chat  tidemark.ChatID
	Head  tidemark.Sequence
	Acked tidemark.Sequence
}
