package sessions

import (
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// maxReplaced is the most replaced sessions that a node remembers. If there are more, it forgets
// the older half.
const maxReplaced = 10_000

// replaced remembers the sessions of this node that ended because their device has a newer one, or
// because their user ended them. A client that had no connection then, for example between two
// polls, learns it when it resumes. If it opened a new session instead, two clients of one device
// would replace each other for ever. Other nodes do not know these sessions.
type replaced struct {
	mu sync.Mutex
	// later has the newest sessions, and earlier those before. Each has at most half of
	// maxReplaced.
	later, earlier map[tidemark.SessionID]refusal
}

// A refusal is what the client of an ended session is told. A client of user gets err until the
// time until.
type refusal struct {
	user  tidemark.UserID
	until time.Time
	err   error
}

// remember records the answer to the client of a session that has ended.
func (r *replaced) remember(id tidemark.SessionID, e refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	//rule:bounded_use.bound-replaced-sessions
	if len(r.later) >= maxReplaced/2 {
		r.earlier, r.later = r.later, nil
	}
	if r.later == nil {
		r.later = make(map[tidemark.SessionID]refusal)
	}
	r.later[id] = e
}

// of returns the error for a client of user that resumes a session which is not here. It returns
// nil if the node does not remember the session, its time is over, or it is another user's.
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
