package server

import (
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// sessions is the sessions of this node, by id and by user. It is safe for concurrent use.
type sessions struct {
	mu     sync.RWMutex
	byID   map[tidemark.SessionID]*session.Session
	byUser map[tidemark.UserID][]*session.Session
}

func newSessions() *sessions {
	return &sessions{byID: make(map[tidemark.SessionID]*session.Session), byUser: make(map[tidemark.UserID][]*session.Session)}
}

// add enters a session, unless it is there, or its user has most already.
func (t *sessions) add(s *session.Session, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.ID] != nil || len(t.byUser[s.User]) >= most {
		return false
	}
	t.byID[s.ID] = s
	t.byUser[s.User] = append(slices.Clip(t.byUser[s.User]), s)
	return true
}

func (t *sessions) remove(s *session.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[s.ID] != s {
		return
	}
	delete(t.byID, s.ID)
	left := slices.DeleteFunc(slices.Clone(t.byUser[s.User]), func(other *session.Session) bool { return other == s })
	if len(left) == 0 {
		delete(t.byUser, s.User)
	} else {
		t.byUser[s.User] = left
	}
}

func (t *sessions) get(id tidemark.SessionID) *session.Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

// held returns the sessions that hold the leases, nil for a lease that none holds, appended to buf.
func (t *sessions) held(buf []*session.Session, leases []registry.Lease) []*session.Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := range leases {
		s := t.byID[leases[i].Session]
		if s != nil && s.Lease != leases[i] {
			s = nil
		}
		buf = append(buf, s)
	}
	return buf
}

// of returns the sessions of a user. The result must not be changed.
func (t *sessions) of(user tidemark.UserID) []*session.Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byUser[user]
}

func (t *sessions) ofDevice(user tidemark.UserID, device tidemark.DeviceID) *session.Session {
	for _, s := range t.of(user) {
		if s.Lease.Device == device {
			return s
		}
	}
	return nil
}

func (t *sessions) all() []*session.Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*session.Session, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}
	return all
}

// leases returns the leases that this node itself holds for users: what is known when the registry cannot be asked.
func (t *sessions) leases(users []tidemark.UserID) [][]registry.Lease {
	found := make([][]registry.Lease, len(users))
	for i, user := range users {
		for _, s := range t.of(user) {
			found[i] = append(found[i], s.Lease)
		}
	}
	return found
}

// count returns how many sessions there are.
func (t *sessions) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}
