package session

import (
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Table holds the sessions of this node, by id and by user. It is safe for concurrent use.
type Table struct {
	mu     sync.RWMutex
	byID   map[tidemark.SessionID]*Session
	byUser map[tidemark.UserID][]*Session
	// moved has the users whose first session began or whose last one ended. It is nil while Record
	// is off.
	moved map[tidemark.UserID]struct{}
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		byID:   make(map[tidemark.SessionID]*Session),
		byUser: make(map[tidemark.UserID][]*Session),
	}
}

// Add enters a session. It returns false if the id is taken or the user has most sessions already.
func (t *Table) Add(s *Session, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	//rule:bounded_use.limit-sessions-of-a-user
	if t.byID[s.ID()] != nil || len(t.byUser[s.User()]) >= most {
		return false
	}
	t.byID[s.ID()] = s
	if len(t.byUser[s.User()]) == 0 {
		t.note(s.User())
	}
	t.byUser[s.User()] = append(slices.Clip(t.byUser[s.User()]), s)
	return true
}

// Remove removes s. It does nothing if the id now belongs to another session.
func (t *Table) Remove(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.ID()] != s {
		return
	}
	delete(t.byID, s.ID())
	left := slices.DeleteFunc(slices.Clone(t.byUser[s.User()]),
		func(other *Session) bool { return other == s })
	if len(left) == 0 {
		delete(t.byUser, s.User())
		t.note(s.User())
	} else {
		t.byUser[s.User()] = left
	}
}

func (t *Table) note(user tidemark.UserID) {
	if t.moved != nil {
		//rule:presence_linear.one-entry-for-a-user
		t.moved[user] = struct{}{}
	}
}

// Record begins or ends the record that Moved returns. Without it nothing is kept.
func (t *Table) Record(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !on {
		t.moved = nil
	} else if t.moved == nil {
		t.moved = make(map[tidemark.UserID]struct{})
	}
}

// Moved returns the users whose first session here began, or whose last one ended, since the last
// call. came has those with a session now, and left those without one.
func (t *Table) Moved() (came, left []tidemark.UserID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.moved) == 0 {
		return nil, nil
	}
	for user := range t.moved {
		if len(t.byUser[user]) > 0 {
			came = append(came, user)
		} else {
			left = append(left, user)
		}
	}
	t.moved = make(map[tidemark.UserID]struct{})
	// Sorted, so that a run of the simulation is repeatable.
	slices.Sort(came)
	slices.Sort(left)
	return came, left
}

// Get returns a session, or nil if it is not here.
func (t *Table) Get(id tidemark.SessionID) *Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

// Held appends to buf the session that holds each lease, or nil where no session here holds it.
func (t *Table) Held(buf []*Session, leases []registry.Lease) []*Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := range leases {
		s := t.byID[leases[i].Session]
		//rule:R_ADDR.addressed-session-only
		if s != nil && s.Lease != leases[i] {
			s = nil
		}
		buf = append(buf, s)
	}
	return buf
}

// Of returns the sessions of a user. The caller must not change the slice.
func (t *Table) Of(user tidemark.UserID) []*Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byUser[user]
}

// OfDevice returns the session of a device, or nil.
func (t *Table) OfDevice(user tidemark.UserID, device tidemark.DeviceID) *Session {
	for _, s := range t.Of(user) {
		if s.Lease.Device == device {
			return s
		}
	}
	return nil
}

// All returns all sessions.
func (t *Table) All() []*Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*Session, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}
	return all
}

// Leases returns the leases of users that this node holds itself. They are used if the registry
// does not answer.
func (t *Table) Leases(users []tidemark.UserID) [][]registry.Lease {
	found := make([][]registry.Lease, len(users))
	for i, user := range users {
		for _, s := range t.Of(user) {
			found[i] = append(found[i], s.Lease)
		}
	}
	return found
}

// Count returns the number of sessions.
func (t *Table) Count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}
