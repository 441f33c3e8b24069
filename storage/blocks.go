package storage

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Blocks stores which users have blocked which others. A block closes the direct chat of the two.
// It holds until it is lifted, whether they have a direct chat or not.
//
// Both members still read a closed chat, and raise their watermarks. Append refuses their drafts
// (MayWrite). CreateChat creates no direct chat of two users between whom a block stands, unless it
// is being imported. FinishImport then closes that.
type Blocks interface {
	// PutBlock records that a user blocks another one. In the same step it closes their direct
	// chat, unless that is being imported (CloseBy). If the user has blocked the other one already,
	// nothing changes, also not the time.
	//
	// It returns their direct chat as it is after the step, zero if there is none. The caller has
	// checked that both ids are valid and differ.
	//
	// Denied: the user has blocked tidemark.MaxBlocks users.
	PutBlock(ctx context.Context, user, blocked tidemark.UserID, now time.Time) (PairChat, error)

	// RemoveBlock lifts a block. In the same step it opens the direct chat of the two again, unless
	// the other one has blocked the user. If there is no such block, nothing changes. It returns
	// what PutBlock returns.
	RemoveBlock(ctx context.Context, user, blocked tidemark.UserID) (PairChat, error)

	// BlocksOf returns a page of those whom a user has blocked. Their ids ascend, and are above
	// after ("" for the first page). It sees every change that returned before the call. limit is
	// at least 1.
	BlocksOf(ctx context.Context, user, after tidemark.UserID, limit int) (blocks []Block,
		more bool, err error)

	// Apart returns those of the others who have blocked the user, or whom the user has blocked, in
	// the order of others. It sees every change that returned before the call. others are distinct.
	Apart(ctx context.Context, user tidemark.UserID,
		others []tidemark.UserID) ([]tidemark.UserID, error)
}

// Block is a user whom another one has blocked.
type Block struct {
	User tidemark.UserID
	// At is when the other one blocked them.
	At time.Time
}

// PairChat is the direct chat of two users after a step of Blocks. It is zero if there is none.
type PairChat struct {
	ID    tidemark.ChatID
	State tidemark.ChatState
	// Version is tidemark.Chat.Version, and MembersVersion that of its members.
	Version, MembersVersion uint64
	// Turned reports that the step has closed the chat, or opened it. If only another member has
	// closed it since, users see no difference, and so it is false.
	Turned bool
}

// PairChatOf returns a chat as the result of a step of Blocks that has not changed it.
func PairChatOf(c *tidemark.Chat) PairChat {
	return PairChat{
		ID: c.ID, State: c.State, Version: c.Version, MembersVersion: c.MembersVersion,
	}
}

// PairAfter returns the result of a step of Blocks that has changed a chat.
func PairAfter(before, after *tidemark.Chat) PairChat {
	pair := PairChatOf(after)
	pair.Turned = before.State.Closed() != after.State.Closed()
	return pair
}

// Closing returns the state of a direct chat that is neither imported nor deleted. first says
// whether its member with the smaller id has blocked the other one, and second the reverse.
func Closing(first, second bool) tidemark.ChatState {
	switch {
	case first && second:
		return tidemark.ChatClosedByBoth
	case first:
		return tidemark.ChatClosedByFirst
	case second:
		return tidemark.ChatClosedBySecond
	}
	return tidemark.ChatLive
}

// CloseBy returns a direct chat after a step of Blocks, or of FinishImport. first and second are
// those of Closing after the step. It reports whether the step changes the chat.
//
// Members see both versions. So these rise only if the chat is closed or opened by the step: who
// has blocked already does not learn that the other one does so, too, or has ceased to.
func CloseBy(c tidemark.Chat, first, second bool) (after tidemark.Chat, changed bool) {
	next := Closing(first, second)
	if c.State == tidemark.ChatDeleted || c.State == tidemark.ChatImporting || c.State == next {
		return c, false
	}
	//rule:blocked_is_closed.raise-the-version
	if c.State.Closed() != next.Closed() {
		c.Version++
		c.MembersVersion++
	}
	c.State = next
	return c, true
}

// MayWrite returns nil if the state of a chat lets a member store a draft whose key is not known.
// Every backend calls it in the step of Append, after the look-up of the key: a repeated send gets
// the first message, also of a chat that was closed since. A backend still redacts, and so does
// the server.
//
// Denied: the chat is closed.
func MayWrite(state tidemark.ChatState, d *tidemark.Draft) error {
	//rule:blocked_is_closed.backends-still-redact
	if !state.Closed() || (d.ByBackend || d.ByServer) && d.Kind == tidemark.KindRedact {
		return nil
	}
	return Closed()
}

// Closed returns the Denied of a chat that is closed, or that a block keeps from being made. It has
// the same text for both users, so that nobody learns who has blocked whom.
func Closed() error {
	return tidemark.Errorf(tidemark.Denied,
		"this chat is closed: its members cannot write to each other")
}

// CheckBlocks returns Denied if a user who has blocked n users may block no further one.
func CheckBlocks(n int) error {
	//rule:bounded_use.limit-blocks
	if n >= tidemark.MaxBlocks {
		return tidemark.Errorf(tidemark.Denied,
			"you have blocked %d users, which is the most; unblock one first", tidemark.MaxBlocks)
	}
	return nil
}
