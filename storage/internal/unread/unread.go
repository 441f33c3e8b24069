// Package unread counts unread messages from the numbers that backends store, so that no message is
// read for a count (storage.Unreads, rule unread_exact).
//
// A message that does not count, such as a line of the system, has an ordinal among those of its
// chat: the first has 1. So the messages that count up to a sequence are the sequence less the
// ordinal of the last that does not. A member's own messages are left out by two totals: of all
// that they sent, and of those up to their mark. A third one has those that have expired, because a
// mark may be below the floor.
package unread

import "github.com/tidemark-im/tidemark"

// Everyone stands for all members where a backend stores whom a message names. No id equals it.
const Everyone = "*"

// An Account has what is stored about one user in one chat.
type Account struct {
	// User is the user.
	User tidemark.UserID
	// Head and Floor are the chat's, and Visible is what the user may see.
	Head, Floor tidemark.Sequence
	Visible     tidemark.Intervals
	// After is tidemark.DeliveryState.UnreadAfter.
	After tidemark.Sequence
	// Sent is the number of the user's messages that count, and SentBefore that of those up to
	// After.
	Sent, SentBefore int64
	// Expired is the number of the user's messages that count and have expired.
	Expired int64
	// Uncounted is the number of messages in the chat that do not count, and LastUncounted the
	// sequence of the last.
	Uncounted     int64
	LastUncounted tidemark.Sequence
}

// Pieces returns the visible ranges after the user's mark, without what has expired.
func (a *Account) Pieces() []tidemark.Interval {
	//rule:nothing_outside_membership.count-what-members-see
	return a.Visible.Within(max(a.After+1, a.Floor), a.Head)
}

// own returns the number of the user's messages that are not after their mark, or have expired.
// SentBefore may be too low if the mark is below the floor: what has expired cannot be counted. But
// then Expired has all.
func (a *Account) own() int64 {
	//rule:unread_exact.own-that-expired
	return max(a.SentBefore, a.Expired)
}

// Asks returns the sequences up to which the number of messages that do not count must be known. In
// most chats there are none. Count asks in this order.
func (a *Account) Asks() []tidemark.Sequence {
	var asks []tidemark.Sequence
	for _, piece := range a.Pieces() {
		for _, s := range []tidemark.Sequence{piece.To, piece.From - 1} {
			if s > 0 && s < a.LastUncounted {
				asks = append(asks, s)
			}
		}
	}
	return asks
}

// Count returns the number of unread messages. ordinal returns the answer to each of Asks.
func (a *Account) Count(ordinal func(tidemark.Sequence) int64) int64 {
	counting := func(s tidemark.Sequence) int64 {
		switch {
		case s >= a.LastUncounted:
			return int64(s) - a.Uncounted
		case s == 0:
			return 0
		default:
			return int64(s) - ordinal(s)
		}
	}
	unread, pieces := int64(0), a.Pieces()
	// The numbers of a deleted chat do not say that its messages are gone.
	//rule:deleted_is_gone.nothing-is-unread
	if len(pieces) == 0 {
		return 0
	}
	for _, piece := range pieces {
		//rule:unread_exact.leave-out-what-does-not-count
		unread += counting(piece.To) - counting(piece.From-1)
	}
	//rule:unread_exact.leave-out-own
	return unread - (a.Sent - a.own())
}

// A Mark is a sequence of a chat, with the number of a user's messages up to it that count.
type Mark struct {
	At   tidemark.Sequence
	Sent int64
}

// NotBelow returns the mark from which the user's messages are counted up to another one. If it is
// below the floor, it is the message before the floor, up to which expired of them were sent.
func (m Mark) NotBelow(floor tidemark.Sequence, expired int64) Mark {
	//rule:unread_exact.count-from-the-floor
	if m.At+1 < floor {
		return Mark{At: floor - 1, Sent: expired}
	}
	return m
}
