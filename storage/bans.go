package storage

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Bans stores who is banned from which group. While a ban stands, AddMembers does not make the user
// a member. The bans of a deleted chat end with PurgeChat.
type Bans interface {
	// Ban bans a user from a group. In the same step it ends the user's membership, if they are a
	// member, as RemoveMember does. The membership version grows by one, also if they are none. If
	// the user is banned already, nothing changes, not even the time.
	//
	// NotFound: no such chat, or it was deleted. Denied: the chat is direct, or tidemark.MaxBans
	// users are banned from it.
	Ban(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time) (Banned,
		error)

	// Unban lifts a ban. If there is none, nothing changes. NotFound: no such chat, or it was
	// deleted.
	Unban(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID) error

	// BansOf returns a page of those who are banned from a chat. Their ids ascend, and are above
	// after ("" for the first page). It sees every change that returned before the call. An unknown
	// chat has none. A deleted chat may still have some. limit is at least 1.
	BansOf(ctx context.Context, chat tidemark.ChatID, after tidemark.UserID,
		limit int) (bans []Ban, more bool, err error)
}

// Ban is a user who is banned from a chat.
type Ban struct {
	User tidemark.UserID
	// At is when they were banned.
	At time.Time
}

// Banned is the result of Ban.
type Banned struct {
	Removed
	// Left reports that the step ended the user's membership.
	Left bool
}

// CheckBans returns Denied if no further user may be banned from a chat from which n are.
func CheckBans(chat tidemark.ChatID, n int) error {
	//rule:bounded_use.limit-bans
	if n >= tidemark.MaxBans {
		return tidemark.Errorf(tidemark.Denied,
			"%d users are banned from the chat %s, which is the most; lift a ban first",
			tidemark.MaxBans, chat)
	}
	return nil
}

// IsBanned returns the Denied of AddMembers for a user who is banned.
func IsBanned(chat tidemark.ChatID, user tidemark.UserID) error {
	return tidemark.Errorf(tidemark.Denied,
		"%s is banned from the chat %s; lift the ban before you add them", user, chat)
}

// NoBans returns the Denied of Ban for a direct chat.
func NoBans(chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.Denied,
		"the chat %s is direct; nobody can be banned from it", chat)
}
