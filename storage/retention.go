package storage

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Retention removes old messages.
//
// The messages of a chat below Chat.Floor have expired. They exist no more:
//
//   - Ranges leaves them out: a range that begins below the floor begins at the floor.
//   - A relation whose target has expired is read without a target. A new relation to it gets the
//     error of Draft.MayRevise for a message that does not exist.
//   - They count as unread no more.
//   - Reactions to them, and pins of them, stand no more (Annotations). The messages of these stay
//     until they expire themselves.
//   - Their keys are forgotten: the same key stores another message. So the caller keeps messages
//     for longer than keys must be kept (Append).
//
// Everything else stays as it is: sequences, heads, watermarks, pending rows and intervals.
type Retention interface {
	// Expire raises the floor of a chat above its first messages, as far as they were created
	// before a time, and removes them: at most limit of them. A younger message ends it, also if
	// older ones follow. The time is at least MinAge ago, and limit is from 1 to MaxExpired.
	//
	// After an error, or a crash, the floor may have risen although messages below it are still
	// stored. No call returns them, and a later Expire of the chat removes them, even if nothing
	// else expires.
	//
	// NotFound: no such chat. Invalid: before or limit. Conflict: the chat is on hold (OnHold), and
	// nothing was removed.
	Expire(ctx context.Context, chat tidemark.ChatID, before time.Time, limit int) (Expired, error)

	// Policies returns what may be removed of each chat. For a chat that does not exist it is zero.
	// A change of the last moment may be missing: Expire decides.
	Policies(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Policy, error)
}

// OnHold returns the Conflict of a chat that is on hold, and nil for any other one. Every backend
// calls it in the steps of Expire and DeleteChat.
func OnHold(chat tidemark.ChatID, policy tidemark.Policy) error {
	//rule:held_is_kept.refuse-while-on-hold
	if policy.Hold {
		return tidemark.Errorf(tidemark.Conflict,
			"the chat %s is on hold, so nothing of it is removed; end the hold first", chat)
	}
	return nil
}

const (
	// MinAge is the age that a message must have to expire. Until then its key must be kept
	// (Append), and nodes may have it in memory.
	MinAge = 8 * 24 * time.Hour
	// MaxExpired is the most messages that one call of Expire removes.
	MaxExpired = 500
)

// CheckExpire returns Invalid if Expire must not be called with these arguments. Every backend
// calls it at the start of Expire.
func CheckExpire(before time.Time, limit int) error {
	//rule:floor_recorded.keep-what-is-young
	if age := time.Since(before); age < MinAge {
		return tidemark.Errorf(tidemark.Invalid,
			"messages expire after %v at the earliest, and not after %v", MinAge, age)
	}
	if limit < 1 || limit > MaxExpired {
		return tidemark.Errorf(tidemark.Invalid,
			"%d messages cannot expire in one step, only 1 to %d", limit, MaxExpired)
	}
	return nil
}

// Expired is the result of Expire.
type Expired struct {
	// Floor is the floor after the step.
	Floor tidemark.Sequence
	// Removed is the number of messages that were removed. If it is the limit, more may follow.
	Removed int
}
