package receipts

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// uncertainPause is the time between two attempts. uncertainFor is the time after which no more
	// is made: a registry that is silent for longer than a node's lease lasts makes all sessions
	// reconcile, and read the statuses of their chats.
	uncertainPause = time.Second
	uncertainFor   = 15 * time.Second
	// maxUncertain bounds the members and chats that wait. Beyond it an update is dropped: it is a
	// hint, and the query is the arbiter.
	maxUncertain = 10_000
)

// uncertain is what was published to the sessions of this node only, because the registry could not
// be asked for the others. It is tried again for a while: the member's next move would say it too,
// and may never come. It belongs to StatusLoop.
type uncertain struct {
	boundaries map[statusKey]tidemark.Boundary
	try, until time.Time
}

func (u *uncertain) add(due map[tidemark.ChatID][]tidemark.StatusUpdate, now time.Time) {
	if u.boundaries == nil {
		u.boundaries, u.try = make(map[statusKey]tidemark.Boundary), now.Add(uncertainPause)
	}
	u.until = now.Add(uncertainFor)
	for chat, updates := range due {
		for _, up := range updates {
			key := statusKey{chat, up.UserID}
			if b, there := u.boundaries[key]; there || len(u.boundaries) < maxUncertain {
				u.boundaries[key] = b.Merge(up.Boundary)
			}
		}
	}
}

// due returns what is to be tried again now, by chat. It gives up what was tried for long enough.
func (u *uncertain) due(now time.Time) map[tidemark.ChatID][]tidemark.StatusUpdate {
	if len(u.boundaries) == 0 || now.Before(u.try) {
		return nil
	}
	if now.After(u.until) {
		u.clear()
		return nil
	}
	u.try = now.Add(uncertainPause)
	due := make(map[tidemark.ChatID][]tidemark.StatusUpdate)
	for key, b := range u.boundaries {
		due[key.chat] = append(due[key.chat], tidemark.StatusUpdate{
			ChatID: key.chat, UserID: key.user, Boundary: b,
		})
	}
	for _, updates := range due { // in an order that no map gives, so that a run of the simulation can be repeated
		slices.SortFunc(updates,
			func(a, b tidemark.StatusUpdate) int { return cmp.Compare(a.UserID, b.UserID) })
	}
	return due
}

func (u *uncertain) clear() { u.boundaries = nil }

// next returns when something is due: at next, if that is not zero, or at the next attempt.
func (u *uncertain) next(next time.Time) time.Time {
	if len(u.boundaries) == 0 || !next.IsZero() && next.Before(u.try) {
		return next
	}
	return u.try
}
