// Package storage is the contract between the delivery core and the databases. It contains no
// implementation. These packages belong to it:
//
//   - storage/memory is the executable specification.
//   - storage/sqlite is the embedded default.
//   - storage/storagetest is the suite that every backend passes, without exceptions.
//
// # What holds for every method
//
// Atomicity: a method happens as a whole or not at all. Concurrent calls take effect in some order,
// one after the other (linearizable). A comment that says "eventual" is the only exception: such a
// read may miss the latest writes. The contract has no transactions.
//
// Durability: when a write returns nil, its effect survives the end of the server and of the
// database process. When a write returns Unavailable, its effect may or may not have happened.
// Every write may be repeated without harm: Append by its idempotency key, the others because a
// repetition changes nothing more.
//
// Errors: every error is a *tidemark.Error. Each method names the codes that it may return. Two
// codes are possible everywhere:
//
//   - Unavailable: the database cannot be reached, is full, read-only or corrupt, or ctx has ended.
//     The detail says what to do.
//   - Internal: a bug.
//
// A backend retries transient errors of its driver itself, until the deadline of ctx.
//
// Batches: a backend commits concurrent calls of Append, Advance, Mark and Clear together. A bad
// item fails alone. A method that takes a slice returns a slice of the same length and order,
// unless its comment says otherwise. An empty slice does nothing, and over MaxBatch it is Invalid.
//
// Values: neither side changes a value after it was passed or returned. Times have millisecond
// precision: the store cuts off the rest, also in the results of writes.
//
// Concurrency: all methods are safe for concurrent use.
package storage

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/tidemark-im/tidemark"
)

// MaxBatch is the maximum length of a slice argument.
const MaxBatch = 10_000

// Store contains all methods of a backend. Only code that assembles a program names it. Code that
// uses storage declares the roles that it needs.
type Store interface {
	Chats
	Members
	Messages
	Annotations
	Deliveries
	Receipts
	Unreads
	Pending
	Retention
	Imports
	Deletions
	Erasures
	Traces
	Blocks
	Bans
	Lives
	Outbox
	Documents
	Audit

	// Check returns nil if the store can serve reads and durable writes now. Otherwise it returns
	// Unavailable with the reason. Readiness probes call it. It takes at most as long as one small
	// read, and need not write.
	Check(ctx context.Context) error
	// Close waits for the calls under way and releases all resources. Later calls return
	// Unavailable. Close may be called more than once.
	Close() error
}

// Chats stores chats, and lists those of a user.
type Chats interface {
	// CreateChat stores a chat with its members. Each member sees the history from sequence 1 on.
	// All watermarks are 0, and MembersVersion is 1. If there are more than
	// tidemark.PendingFanoutLimit members, it sets Chat.Large and adds the standing rows (see
	// Pending).
	//
	// A pair of users has at most one Direct chat. If their chat exists, CreateChat returns it with
	// created false, whatever its id. It checks this before it looks at new.ID. For a Group,
	// created is always true on success.
	//
	// Conflict: new.ID is taken. Denied: the chat is Direct, is not being imported, and a block
	// stands between the two (Blocks). Nothing changes then.
	//
	// The caller has checked the input: ids are valid, members are distinct and at most
	// tidemark.MaxMembersPerCall, and a Direct chat has exactly two members.
	CreateChat(ctx context.Context, new NewChat) (chat tidemark.Chat, created bool, err error)

	// Chat returns a chat. NotFound: no such chat.
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)

	// UpdateChat changes a chat in one step, and returns it: the stored chat becomes
	// ChatChange.Apply of it. An equal change that is repeated changes nothing more.
	//
	// A raise of Read that begins after the call returned heeds Policy.Receipts (Receipts). After
	// an error, the chat may have that policy already, and the raises of some members may not heed
	// it yet: the caller repeats the call.
	//
	// NotFound: no such chat.
	UpdateChat(ctx context.Context, chat tidemark.ChatID, change ChatChange) (tidemark.Chat, error)

	// ChatsOf returns a page of the chats in which the user is a member now. The chat with the
	// latest activity comes first, and equal times ascend by chat id. The activity is the time of
	// the last message, or of the creation if there is no message.
	//
	// more reports whether chats follow the last one. The Activity and Chat.ID of that last chat
	// are the position of the next page. page.Limit is at least 1.
	//
	// Eventual: a chat that becomes active between two pages may be on both or on neither.
	ChatsOf(ctx context.Context, user tidemark.UserID, page ChatsPage) (chats []ChatListItem,
		more bool, err error)

	// Heads returns the head of each chat, or 0 for a chat that does not exist. It sees every
	// append that returned before the call.
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
}

// Members changes and reads the memberships, which decide what a user may see.
type Members interface {
	// AddMembers makes the users members of a group. The caller has checked role, which those get
	// who were no members. It does so in one step with the chat's head:
	//
	//   - The intervals of a new member become Intervals.Joined(head).
	//   - If there is a new member, the membership version grows by one.
	//   - If the chat now has more than tidemark.PendingFanoutLimit members, Chat.Large is set. It
	//     is never cleared.
	//   - On the first join of a HistorySinceJoin chat, both watermarks of the user are raised to
	//     the head, at time now. In all other cases the user's delivery state stays as it is, or
	//     absent.
	//
	// A first join is one of a user who was never a member. A user who was a member returns, even
	// if no message was sent while they were one. Users who are members already stay as they are.
	//
	// These errors change nothing:
	//
	//   - NotFound: no such chat.
	//   - Denied: the chat is direct, or it would have more than tidemark.MaxMembers members, or a
	//     user would have more than tidemark.MaxIntervals intervals, or is banned (Bans).
	AddMembers(ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
		role tidemark.Role, now time.Time) (Added, error)

	// RemoveMember ends the membership of a user. It does so in one step with the chat's head: the
	// user's intervals become Intervals.Left(head), and the membership version grows by one. The
	// delivery state stays (ADR-008 §6.1). The pending row is removed in the same step, so that a
	// user who returns does not find an old row. The user's metadata end. If the user was the last
	// owner, Roster.Successor becomes an owner in the same step, if there is one.
	//
	// NotFound: no such chat. NotMember: the user is not a member. Denied: the chat is direct.
	RemoveMember(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
		now time.Time) (Removed, error)

	// UpdateMember changes the role or the metadata of a current member of a group. It does so in
	// one step: the stored member becomes MemberChange.Apply of it, and the membership version
	// grows by one if anything changed. If the last owner stops being one, Roster.Successor becomes
	// an owner in the same step. An equal change that is repeated changes nothing more.
	//
	// NotFound: no such chat. NotMember: the user is not a member. Denied: the chat is direct, or
	// the user is the last owner and nobody can succeed them.
	UpdateMember(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
		change MemberChange) (UpdatedMember, error)

	// Rosters returns the current members of each chat, all of one version, or nil for a chat that
	// does not exist. It sees every change that returned before the call. A roster may belong to
	// several callers, so it must not be changed.
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
}

// Messages stores and reads messages.
type Messages interface {
	// Append stores messages. Each gets the next sequence of its chat. Drafts of one chat get their
	// sequences in the order of the slice. Idempotency key, membership, head and message are one
	// atomic step (delivery.md §2). So the messages of a chat are exactly
	// floor..head after any crash.
	//
	// The key is the chat, the sender and the client message id. Append looks it up before anything
	// else but the state of the chat, also before the membership. If the key is known, nothing is
	// stored. The result is the first message with Duplicate, or Conflict if that message is not
	// Message.SameAs the draft. Drafts with equal keys, in one call or in concurrent ones, store
	// one message. A key is kept for at least 7 days. After that, the same key may store another
	// message.
	//
	// A refused draft fails alone: Err of its Appended is set, and the draft was not stored. If it
	// is of an importer (Draft.Importing) and its key is not known, the same happens to the drafts
	// of the importer behind it, in its chat and call, whose keys are not known (HeldBack). So a
	// refusal moves no message to another sequence. Drafts of calls at the same time may be refused
	// with them. Their error has the code of the first one.
	//
	//   - NotFound: no such chat, or it was deleted (MayAppend).
	//   - Unavailable or Conflict: the chat is being imported, or is not (MayAppend).
	//   - NotMember: the sender is not a member in this step.
	//   - Denied: the sender is a tidemark.Reader in this step, or the chat is closed (MayWrite).
	//   - Conflict: see above.
	//   - NotFound, Denied or Conflict of Draft.MayRevise, Draft.MayAnnotate or Standing.Allows in
	//     this step (messages with a Relation).
	//   - Unavailable or Internal: this draft alone could not be stored. For example, another call
	//     holds a lock on its chat, or the database rejects a value.
	//
	// After an error of the call, any of the drafts may have been stored. A call with the same keys
	// tells. The caller has checked the drafts (Draft.Check) and set MessageID and CreatedAt.
	//
	// A draft that revises another message also changes that, in the same step: the stored target
	// becomes Message.Revise of it. The results of such drafts have their target (Related). A draft
	// that annotates another message stands from this step on, and one that redacts an annotation
	// ends that (Annotations).
	//
	// A redaction of a list changes all its targets, or none if one is refused. On DynamoDB each
	// is a step before it: a call that fails may have wiped some, with a lower Revision.
	Append(ctx context.Context, drafts []tidemark.Draft) ([]Appended, error)

	// Sent returns the message that a sender has stored under an idempotency key, as Append would
	// for the same draft, and whether there is one. It stores nothing. It sees every append that
	// returned before the call. NotFound: no such chat.
	Sent(ctx context.Context, key SendKey) (appended Appended, found bool, err error)

	// Ranges returns the messages of each range, ascending and without a hole. A range that begins
	// below the floor of its chat begins at the floor. If a message that must exist cannot be read,
	// the page ends before it. Ranges sees every append that returned
	// before the call. It does not check the membership. An unknown chat has no messages. A chat
	// may be named more than once. The ranges of one call may be read at different moments.
	// Edits and redactions have their targets, unless Range.Bare is set (Related).
	Ranges(ctx context.Context, ranges []Range) ([][]tidemark.Message, error)

	// Observe passes a message to the store that another process has stored in these data. Then
	// the store need not read what follows from it. Observe may be called in any order, and with
	// messages that the store knows. It changes no result of other calls. It does no I/O.
	Observe(m *tidemark.Message)
}

// Deliveries stores and reads the watermarks.
type Deliveries interface {
	// Advance raises watermarks: the stored state becomes Raise.Apply of it. Each item is one
	// atomic step with the check against the chat's head (Raise.Bounded). A stale raise succeeds
	// and returns the stored state. The first raise that moves a watermark creates the row. Advance
	// does not check the membership (ADR-008 §3.1). If what the user reads in the chat is hidden
	// (Receipts), the same step sets Raise.Hidden.
	//
	// A refused item fails alone: Err of its Advanced is set, and the item changed nothing.
	//
	//   - InvalidSequence: the raise is beyond the head.
	//   - NotFound: no such chat.
	//
	// Invalid, as the error of the call: a user and chat are named twice, and nothing changed. Any
	// other error of the call means that any of the items may or may not have been written.
	Advance(ctx context.Context, advances []Advance) ([]Advanced, error)

	// States returns the delivery state of each user and chat. If there is no row, the watermarks
	// are 0, and the times are zero. It sees every write that returned before the call. It sets
	// DeliveryState.Hides of users who are or were members.
	States(ctx context.Context, keys []StateKey) ([]tidemark.DeliveryState, error)

	// StatesOf returns a page of a user's states in the chats in which they are a member now. The
	// chat ids ascend and are above after ("" for the first page). Chats without a row are left
	// out. Eventual. limit is at least 1.
	StatesOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID,
		limit int) (states []tidemark.DeliveryState, more bool, err error)

	// StatesIn returns a page of the states of a chat's current members. The user ids ascend and
	// are above after ("" for the first page). Members without a row are included, as in States. An
	// unknown chat has none. Eventual. limit is at least 1.
	StatesIn(ctx context.Context, chat tidemark.ChatID, after tidemark.UserID,
		limit int) (states []tidemark.DeliveryState, more bool, err error)

	// Summary counts the current members of a chat whose exposed boundary has reached a sequence.
	// author, unless empty, counts as a reader once they have received it. Summary also returns the
	// least boundary of all members (ADR-008 §4.3). A member without a row counts as 0. A chat
	// without members has the least boundary 0. NotFound: no such chat. Eventual.
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence,
		author tidemark.UserID) (Summary, error)
}

// Unreads counts the messages that users have not read.
//
// A message counts as unread for a user if it is after DeliveryState.UnreadAfter, if its kind
// counts (tidemark.Kind.Counts), if the user's intervals contain it, if another user sent it, and
// if it has not expired.
// It counts as a mention if it also names the user. The counts are exact, and no message is read to
// tell them: they are differences of stored numbers (rule unread_exact).
type Unreads interface {
	// Unread returns the counts of each user and chat. They are zero for an unknown chat, and for a
	// user who was never a member. It sees every write that returned before the call.
	Unread(ctx context.Context, keys []StateKey) ([]Unread, error)

	// UnreadOf returns the sums over all chats in which the user is a member now. Eventual.
	UnreadOf(ctx context.Context, user tidemark.UserID) (UnreadTotal, error)

	// MarkUnread sets or ends the user's mark in a chat: the stored state becomes
	// DeliveryState.MarkUnread of it. The times stay, since no watermark moves. It returns the
	// stored state. It may be repeated.
	//
	// NotFound: no such chat. InvalidSequence: from is above the head.
	MarkUnread(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
		from tidemark.Sequence) (tidemark.DeliveryState, error)
}

// Pending stores which chats a user has not received completely. One entry is a pending row.
//
// In a chat that is Large, a message writes no row for an absent member. Each member has a standing
// row instead, with FirstUndelivered 0. It says that the chat's head must be compared. The step
// that sets the flag or adds a member writes this row. Mark and Clear leave it, and RemoveMember
// removes it. So one list of rows names both the chats with pending messages and the chats to
// compare.
type Pending interface {
	// Mark records that a user has not received a chat from a sequence on. A user has at most one
	// row per chat, and the smallest sequence wins. If there is a row at or below the sequence,
	// Mark writes nothing. written reports for each item whether Mark created or lowered the row.
	// FirstUndelivered is at least 1. Mark sees every Mark and Clear that returned before the call.
	Mark(ctx context.Context, rows []tidemark.PendingDelivery) (written []bool, err error)

	// Clear records that a user has received a chat up to the sequence Through. It does so in one
	// step with the chat's head (delivery.md §4, R_CLEAR). If the row's first sequence is at most
	// Through, Clear changes it. If Through is at or above the head, Clear removes the row.
	// Otherwise the row then starts at Through + 1. Clear leaves a row above Through and a standing
	// row. cleared reports for each item whether a row was removed or changed.
	Clear(ctx context.Context, items []Clear) (cleared []bool, err error)

	// PendingOf returns a page of a user's rows, each with the user's acknowledged watermark. The
	// chat ids ascend and are above after ("" for the first page). It sees every Mark, Clear and
	// Advance that returned before the call. limit is at least 1.
	PendingOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID,
		limit int) (rows []PendingRow, more bool, err error)

	// Behind returns a page of the user's current chats: those whose head is above the user's
	// acknowledged watermark, and those that were active at q.Since or later. The chat ids ascend
	// and are above q.After. It sees every append that returned before the call. The watermark may
	// be eventual, that is, too low.
	//
	// A page may be shorter than the limit, or empty, and still have more true. next is the
	// position of the next page, to be used as q.After.
	Behind(ctx context.Context, user tidemark.UserID, q BehindQuery) (chats []Lag,
		next tidemark.ChatID, more bool, err error)
}

// NewChat describes a chat to create.
type NewChat struct {
	ID tidemark.ChatID
	// State is tidemark.ChatLive, or tidemark.ChatImporting for an importer.
	State tidemark.ChatState
	Type  tidemark.ChatType
	Name  string
	// Metadata is tidemark.Chat.Metadata.
	Metadata  json.RawMessage
	History   tidemark.HistoryMode
	CreatedAt time.Time
	// Creation is stored with the chat (tidemark.Chat).
	Creation string
	// Creator becomes the owner, and is one of Members. If it is "", the chat has no owner, and all
	// are ordinary members.
	Creator tidemark.UserID
	// Members may be empty in a Group without a Creator.
	Members []tidemark.UserID
}

// ChatsPage selects a page of a user's chats. The zero position is the first page.
type ChatsPage struct {
	Limit int
	// Activity and ChatID are those of the last chat on the previous page.
	Activity time.Time
	ChatID   tidemark.ChatID
	// Brief leaves out Role, Unread and Last, which may need further reads.
	Brief bool
}

// ChatListItem is a chat as one of its members sees it in their list.
type ChatListItem struct {
	Chat tidemark.Chat
	// Role is that of the member.
	Role   tidemark.Role
	State  tidemark.DeliveryState
	Unread Unread
	// Last is the chat's last message. It is nil if there is none, or if the member may not see it.
	// A relation has no target.
	Last *tidemark.Message
	// Activity is the time of the last message, or of the creation if there is no message.
	Activity time.Time
}

// Unread counts the unread messages of a user in a chat (Unreads).
type Unread struct {
	Messages int64
	// Mentions is the number of those that name the user.
	Mentions int64
}

// UnreadTotal counts a user's unread messages in all their chats.
type UnreadTotal struct {
	Unread
	// Chats is the number of chats with unread messages.
	Chats int64
}

// Add adds the counts of one chat.
func (t *UnreadTotal) Add(u Unread) {
	t.Messages += u.Messages
	t.Mentions += u.Mentions
	if u.Messages > 0 {
		t.Chats++
	}
}

// Added is the result of AddMembers.
type Added struct {
	// Version is the membership version after the step.
	Version uint64
	Head    tidemark.Sequence
	// New are the users who were not members before, ascending by id.
	New []tidemark.UserID
	// States are the delivery states of all named users, ascending by id. None is older than the
	// call. Users who were members before are included. So a repeated call, whose first answer was
	// lost, returns what the first one would have returned.
	States []tidemark.DeliveryState
}

// Removed is the result of RemoveMember.
type Removed struct {
	// Version is the membership version after the step.
	Version uint64
	Head    tidemark.Sequence
	// Successor is who became an owner in the step, or "".
	Successor tidemark.UserID
}

// MemberChange says what to change of a member. What is zero stays as it is.
type MemberChange struct {
	Role tidemark.Role
	// Metadata takes the place of the whole object. If it is empty and not nil, none remains.
	Metadata json.RawMessage
}

// UpdatedMember is the result of UpdateMember.
type UpdatedMember struct {
	// Member is the member after the step.
	Member tidemark.Member
	// Version is the membership version after the step.
	Version uint64
	// Successor is who became an owner in the step, or "".
	Successor tidemark.UserID
}

// StateKey identifies a delivery state.
type StateKey struct {
	User tidemark.UserID
	Chat tidemark.ChatID
}

// CheckDistinct returns Invalid if a user and chat are named twice. Every backend calls it at the
// start of Advance.
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

// CheckMark returns InvalidSequence if a mark of MarkUnread is above the head.
func CheckMark(from, head tidemark.Sequence) error {
	if from > head {
		return tidemark.BadParam(tidemark.InvalidSequence, "from_sequence",
			"is %d, but the chat ends at %d", from, head)
	}
	return nil
}

// Advance is a request to raise one user's watermarks in one chat.
type Advance struct {
	User tidemark.UserID
	Chat tidemark.ChatID
	tidemark.Raise
	// Now becomes the time of each watermark that moves.
	Now time.Time
}

// Of returns the result of an Advance of a state. now is Now in the precision of the store.
func (a *Advance) Of(before tidemark.DeliveryState, now time.Time) Advanced {
	state, moved := a.Apply(before, now)
	return Advanced{
		State: state, Moved: moved, Unmarked: before.UnreadFrom != 0 && state.UnreadFrom == 0,
		//rule:shown_within_real.others-see-a-difference
		Shown: moved && before.Exposed() != state.Exposed(),
	}
}

// Advanced is the result of one Advance.
type Advanced struct {
	// State is the stored state afterwards, or zero if Err is set.
	State tidemark.DeliveryState
	// Moved reports whether this item raised a watermark.
	Moved bool
	// Shown reports whether others see a difference: the exposed boundary moved.
	Shown bool
	// Unmarked reports that it ended a mark of MarkUnread. It may also be true after a mark that
	// another raise ended.
	Unmarked bool
	// Err is nil, InvalidSequence or NotFound.
	Err error
}

// Summary is the delivery status of a chat at one sequence. Members counts the current members.
// Delivered and Read count those whose exposed boundary has reached the sequence.
type Summary struct {
	Members   int
	Delivered int
	Read      int
	// Least is the least exposed boundary of all current members.
	Least tidemark.Boundary
}

// Count adds a member with this state to the summary of a sequence and its author.
func (s *Summary) Count(
	st tidemark.DeliveryState, sequence tidemark.Sequence, author tidemark.UserID,
) {
	//rule:read_implies_delivered.summary-of-exposed
	boundary := st.Exposed()
	if boundary.Acked >= sequence {
		s.Delivered++
	}
	//rule:group_delivered_requires_all_members.author-reads-what-they-received
	if boundary.Read >= sequence || st.UserID == author && boundary.Acked >= sequence {
		s.Read++
	}
	if s.Members++; s.Members == 1 {
		s.Least = boundary
	}
	//rule:group_delivered_requires_all_members.summary-of-least
	s.Least = s.Least.Least(boundary)
}

// Clear is an acknowledgement that may remove or shorten a pending row.
type Clear struct {
	User    tidemark.UserID
	Chat    tidemark.ChatID
	Through tidemark.Sequence
}

// BehindQuery selects a page of the chats in which a user is behind.
type BehindQuery struct {
	// LargeOnly limits the page to Large chats.
	LargeOnly bool
	// Since, unless zero, adds the chats whose Activity is at that time or later, also if the user
	// has acknowledged all of them.
	Since time.Time
	After tidemark.ChatID
	// Limit is at least 1.
	Limit int
}

// PendingRow is a pending row with the user's acknowledged watermark in the chat, 0 if there is
// none. The row need not start right after the watermark: earlier messages may be about to be
// marked.
type PendingRow struct {
	tidemark.PendingDelivery
	Acked tidemark.Sequence
}

// SinceMillis returns Since in milliseconds since 1970. If Since is zero, the result is later than
// any time.
func (q *BehindQuery) SinceMillis() int64 {
	if q.Since.IsZero() {
		return math.MaxInt64
	}
	return q.Since.UnixMilli()
}

// ActiveSince reports whether a chat with this activity was active at Since or later.
func (q *BehindQuery) ActiveSince(activity time.Time) bool {
	return activity.UnixMilli() >= q.SinceMillis()
}

// Lag is a chat in which a user is behind, or which was active since a time.
type Lag struct {
	Chat  tidemark.ChatID
	Head  tidemark.Sequence
	Acked tidemark.Sequence
	// Active says that the chat was active at BehindQuery.Since or later.
	Active bool
}
