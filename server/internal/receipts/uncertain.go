package receipts

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// uncertainPause is the time between two attempts. After uncertainFor there are no more. A
	// registry that is silent for longer than a node's lease makes all sessions reconcile and read
	// their statuses again.
	uncertainPause = time.Second
	uncertainFor   = 15 * time.Second
	// maxUncertain bounds the members and chats that are kept. Beyond it an update is dropped;
	// clients can still query the state.
	maxUncertain = 10_000
)

// uncertain has the updates that only sessions of this node got, because the registry did not
// answer. They are published again for a while, since the next change of the same member may never
// come. It belongs to the goroutine of StatusLoop.
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

// due returns the updates to publish again now, by chat. After uncertainFor it drops them.
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
	// Sorted, so that a run of the simulation is repeatable.
	for _, updates := range due {
		slices.SortFunc(updates,
			func(a, b tidemark.StatusUpdate) int { return cmp.Compare(a.UserID, b.UserID) })
	}
	return due
}

func (u *uncertain) clear() { u.boundaries = nil }

// next returns the earlier of next and the time of the next attempt. A zero next means none.
func (u *uncertain) next(next time.Time) time.Time {
	if len(u.boundaries) == 0 || !next.IsZero() && next.Before(u.try) {
		return next
	}
	return u.try
}
