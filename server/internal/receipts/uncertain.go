package receipts

import (
	"cmp"
	"maps"
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

// uncertain has the updates and own states that only sessions of this node got, because the
// registry did not answer. They are published again for a while, since the next change of the same
// member may never come. It belongs to the goroutine of StatusLoop.
type uncertain struct {
	boundaries map[statusKey]tidemark.Boundary
	try, until time.Time
}

func (u *uncertain) add(due news, now time.Time) {
	if u.boundaries == nil {
		u.boundaries, u.try = make(map[statusKey]tidemark.Boundary), now.Add(uncertainPause)
	}
	u.until = now.Add(uncertainFor)
	keep := func(key statusKey, more tidemark.Boundary) {
		if b, there := u.boundaries[key]; there || len(u.boundaries) < maxUncertain {
			u.boundaries[key] = b.Merge(more)
		}
	}
	for chat, updates := range due.updates {
		for _, up := range updates {
			keep(statusKey{chat: chat, user: up.UserID}, up.Boundary)
		}
	}
	//rule:own_state_reaches_devices.retry-untold
	for _, own := range due.own {
		keep(statusKey{own.Chat, own.User, toUser}, tidemark.Boundary{})
	}
}

// due returns what to publish again now. After uncertainFor it drops it.
func (u *uncertain) due(now time.Time) (due news) {
	if len(u.boundaries) == 0 || now.Before(u.try) {
		return news{}
	}
	if now.After(u.until) {
		u.clear()
		return news{}
	}
	u.try = now.Add(uncertainPause)
	// Sorted, so that a run of the simulation is repeatable.
	for _, key := range slices.SortedFunc(maps.Keys(u.boundaries), compareKeys) {
		due.add(key, status{boundary: u.boundaries[key]})
	}
	return due
}

func compareKeys(a, b statusKey) int {
	return cmp.Or(cmp.Compare(a.chat, b.chat), cmp.Compare(a.user, b.user), cmp.Compare(a.to, b.to))
}

func (u *uncertain) clear() { u.boundaries = nil }

// next returns the earlier of next and the time of the next attempt. A zero next means none.
func (u *uncertain) next(next time.Time) time.Time {
	if len(u.boundaries) == 0 || !next.IsZero() && next.Before(u.try) {
		return next
	}
	return u.try
}
