package chat

import (
	"maps"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// lateFor is how long a message may take to a node. For so long a node remembers a relation,
	// also of a chat that it has forgotten: otherwise it would take a late message from before it.
	lateFor = time.Minute
	// recent is how old a message may look that was stored less than lateFor ago. The clocks of two
	// nodes may differ by ten minutes.
	recent = lateFor + 10*time.Minute
	// maxFloors is how many relations are remembered.
	maxFloors = 50_000
)

// floors remembers the latest relation of each chat for lateFor. The zero value is empty. It is
// safe for concurrent use.
type floors struct {
	mu  sync.Mutex
	all map[tidemark.ChatID]floor
}

type floor struct {
	relation tidemark.Sequence
	at       time.Time
}

// of returns the latest relation that is remembered of a chat, or 0.
func (f *floors) of(id tidemark.ChatID) tidemark.Sequence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[id].relation
}

// raise remembers a relation. It returns false if there are too many, and forgets all others then.
// The caller must then keep no message that is from before now.
func (f *floors) raise(id tidemark.ChatID, relation tidemark.Sequence) (roomLeft bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	roomLeft = true
	if len(f.all) >= maxFloors {
		maps.DeleteFunc(f.all, func(_ tidemark.ChatID, old floor) bool {
			return now.Sub(old.at) >= lateFor
		})
		//rule:bounded_use.limit-remembered-relations
		if len(f.all) >= maxFloors {
			clear(f.all)
			roomLeft = false
		}
	}
	if f.all == nil {
		f.all = make(map[tidemark.ChatID]floor)
	}
	f.all[id] = floor{max(relation, f.all[id].relation), now}
	return roomLeft
}
