package ticks

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// untoldPause is the time between two attempts, untoldFor that after which no more is made: when nobody can be asked for longer than a node's lease lasts, all sessions compare, and read
	// the statuses of their chats.
	untoldPause = time.Second
	untoldFor   = 15 * time.Second
	// maxUntold bounds the members and chats that wait. Beyond it an update is dropped: it is a hint, and the query is the arbiter.
	maxUntold = 10_000
)

// untold is what could be told only to the sessions of this node, since the registry could not be asked who else has to know. It is tried again for a while: the member's next move
// would say it too, and may never come. It belongs to StatusLoop.
type untold struct {
	boundaries map[statusKey]tidemark.Boundary
	try, until time.Time
}

func (u *untold) add(due map[tidemark.ChatID][]tidemark.StatusUpdate, now time.Time) {
	if u.boundaries == nil {
		u.boundaries, u.try = make(map[statusKey]tidemark.Boundary), now.Add(untoldPause)
	}
	u.until = now.Add(untoldFor)
	for chat, updates := range due {
		for _, up := range updates {
			key := statusKey{chat, up.UserID}
			if b, there := u.boundaries[key]; there || len(u.boundaries) < maxUntold {
				u.boundaries[key] = b.Merge(up.Boundary)
			}
		}
	}
}

// due returns what is to be tried again now, by chat, and gives up what has been tried for long enough.
func (u *untold) due(now time.Time) map[tidemark.ChatID][]tidemark.StatusUpdate {
	if len(u.boundaries) == 0 || now.Before(u.try) {
		return nil
	}
	if now.After(u.until) {
		u.clear()
		return nil
	}
	u.try = now.Add(untoldPause)
	due := make(map[tidemark.ChatID][]tidemark.StatusUpdate)
	for key, b := range u.boundaries {
		due[key.chat] = append(due[key.chat], tidemark.StatusUpdate{ChatID: key.chat, UserID: key.user, Boundary: b})
	}
	for _, updates := range due { // in an order that no map gives, so that a run of the simulation can be repeated
		slices.SortFunc(updates, func(a, b tidemark.StatusUpdate) int { return cmp.Compare(a.UserID, b.UserID) })
	}
	return due
}

func (u *untold) clear() { u.boundaries = nil }

// next returns how long it is until something is due: in next, if that is not 0, or when the next attempt is.
func (u *untold) next(next time.Duration, now time.Time) time.Duration {
	if len(u.boundaries) == 0 {
		return next
	}
	try := max(u.try.Sub(now), time.Millisecond)
	if next == 0 {
		return try
	}
	return min(next, try)
}
