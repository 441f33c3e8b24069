package sessions

import (
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// maxReplaced is how many replaced sessions a node remembers. Beyond it, it forgets the older half.
const maxReplaced = 10_000

// replaced remembers the sessions of this node that ended because their device has a newer one, or
// because their user ended them. No connection tells so a client that is between two polls. If it
// opened a new session, two clients of one device would replace each other for ever.
type replaced struct {
	mu sync.Mutex
	// later and earlier have at most half of maxReplaced each.
	later, earlier map[tidemark.SessionID]ending
}

// An ending says to whose client, and until when, err is the answer.
type ending struct {
	user  tidemark.UserID
	until time.Time
	err   error
}

// remember keeps the answer to the client of a session that has ended.
func (r *replaced) remember(id tidemark.SessionID, e ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	//rule:bounded_use.bound-replaced-sessions
	if len(r.later) >= maxReplaced/2 {
		r.earlier, r.later = r.later, nil
	}
	if r.later == nil {
		r.later = make(map[tidemark.SessionID]ending)
	}
	r.later[id] = e
}

// of returns the answer to a client that resumes a session which is not here, or nil.
func (r *replaced) of(user tidemark.UserID, id tidemark.SessionID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, there := r.later[id]
	if !there {
		e = r.earlier[id]
	}
	//rule:nothing_outside_membership.replaced-session-of-its-user
	if e.user != user || time.Now().After(e.until) {
		return nil
	}
	return e.err
}
