package storage

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Erasures forgets a user in what is stored about chats. A job calls the methods in an order
// (package erasure), and tries again what failed. Each call is one step. It may be repeated, and a
// crash between two calls loses nothing.
//
// Sequences, heads, floors and the unread counts of other users stay as they are.
//
// A call for a chat returns NotFound (WasDeleted) if it was deleted: PurgeChat removes all of it.
type Erasures interface {
	// ChatsNaming goes through all chats, in an order of the store. Of the next limit ones, it
	// returns those that have something of a user: a membership, also a former one, a delivery
	// state, a mention, or a ban. A mention that only an edit has may be left out. after is "" for
	// the first page, and then the next of the page before. A page may be empty, and still have
	// more true. limit is from 1 to MaxErased.
	ChatsNaming(ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int) (
		chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error)

	// CloseDirect ends the membership of a user in a direct chat, and with it their pending row, as
	// RemoveMember does in a group. The other member becomes a tidemark.Reader, so nobody can send
	// any more. The pair may have another chat then. A chat that a block has closed keeps its
	// state. Lifting the block does not open it any more.
	//
	// NotFound: no such chat. NotMember: the user is no member. Conflict: the chat is a group.
	CloseDirect(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time) (
		Removed, error)

	// EraseMessages replaces the messages of a page by tidemark.Message.Erase of them, with the
	// head of the chat in the step. It removes the reactions of the user among them, their pins
	// name the alias, and so do the mentions in messages of others. A mention by the user, of
	// another user, stays, as by the alias.
	//
	// On DynamoDB each message is a step of its own.
	//
	// NotFound: no such chat. Conflict: the chat is on hold (OnHold), and nothing changed.
	EraseMessages(ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, page ErasePage) (
		ErasedPage, error)

	// EraseMember removes the rest of what the chat has of a former member: some of the mentions of
	// them, and at last their state, pending row, counts, ban and membership. It also makes the
	// alias the sender of mentions that EraseMessages has not found, because their message was
	// edited. If there was a membership, the membership version grows by one when it is removed. If
	// done is false, more is left. limit is from 1 to MaxErased.
	//
	// NotFound: no such chat. Conflict: the chat is on hold, or the user is still a member.
	EraseMember(ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, limit int) (
		done bool, err error)

	// EraseUser removes the rows of a user that belong to no chat any more, their settings of
	// Receipts, and the blocks by them and of them: at most limit of each kind, which is from 1 to
	// MaxErased. If done is true, nothing is left. CloseDirect has ended their direct chats before,
	// so that no chat is opened.
	EraseUser(ctx context.Context, user tidemark.UserID, limit int) (done bool, err error)
}

// Traces finds users whom a store names, also those who are a member of no chat. ListAudit finds
// those whom only the audit log names.
type Traces interface {
	// UsersNamed goes through the blocks, the bans, the settings of Receipts and the mentions, in
	// an order of the store. It returns the users whom the next ones name. A user may come more
	// than once. A mention that only an edit has may be left out. after is "" for the first page,
	// and then the next of the page before. A page may be empty, and still have more true. limit,
	// from 1 to MaxErased, says how much is read; a page may have more users than that.
	//
	// Invalid: after is no position.
	//
	// All pages together read whole tables; on DynamoDB all messages are in one of them. A name
	// that is stored or removed meanwhile may be left out.
	UsersNamed(ctx context.Context, after string, limit int) (users []tidemark.UserID, next string,
		more bool, err error)
}

// NoTrace returns the Invalid of UsersNamed for a position that is none.
func NoTrace(after string) error {
	return tidemark.Errorf(tidemark.Invalid, "%q is no position among the users", after)
}

// MaxErased is the most chats, messages or rows that one call of Erasures handles.
const MaxErased = 500

// ErasePage names the messages that EraseMessages looks at: at most Limit above After. Limit is
// from 1 to MaxErased.
type ErasePage struct {
	After tidemark.Sequence
	Limit int
}

// ErasedPage is the result of EraseMessages.
type ErasedPage struct {
	// Through is the last sequence of the page. It is ErasePage.After of the next one.
	Through tidemark.Sequence
	// Wiped is how many messages say nothing any more, and Renamed how many others were changed.
	Wiped, Renamed int
	// Erased are the messages of the page that say nothing because of this erasure
	// (tidemark.Message.Erased), also those that an earlier call has wiped. They ascend. So a
	// process that goes on after a crash can announce them.
	Erased []tidemark.Sequence
	// Done reports that Through is the head.
	Done bool
}

// Count counts a message that an erasure has left as m. The messages of a page come in order.
func (p *ErasedPage) Count(m *tidemark.Message, touched tidemark.Touched, e tidemark.Erasure) {
	if m.Erased(e) {
		p.Erased = append(p.Erased, m.Sequence)
	}
	switch touched {
	case tidemark.Wiped:
		p.Wiped++
	case tidemark.Renamed:
		p.Renamed++
	case tidemark.Untouched:
	}
}

// CheckErase returns Invalid if the limit of a method of Erasures is not from 1 to MaxErased. Every
// backend calls it at the start of each method that has a limit.
func CheckErase(limit int) error {
	if limit < 1 || limit > MaxErased {
		return tidemark.Errorf(tidemark.Invalid,
			"%d items cannot be erased in one step, only 1 to %d", limit, MaxErased)
	}
	return nil
}

// StillMember returns the Conflict of EraseMember for a user who is a member.
func StillMember(chat tidemark.ChatID, user tidemark.UserID) error {
	return tidemark.Errorf(tidemark.Conflict,
		"%s is a member of the chat %s; end the membership first", user, chat)
}

// NotDirect returns the Conflict of CloseDirect for a group.
func NotDirect(chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.Conflict, "the chat %s is no direct chat", chat)
}

// AsReader returns the other member of a direct chat after the step of CloseDirect.
func AsReader(m tidemark.Member) tidemark.Member {
	//rule:erased_nowhere.nobody-sends-to-the-erased
	m.Role = tidemark.Reader
	return m
}
