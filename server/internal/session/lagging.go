package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark/server/registry"
)

// Lagging says how far the client of a session is behind.
type Lagging struct {
	Lease registry.Lease
	// Connected says that a connection reads the session.
	Connected bool
	// Chats is the number of chats with messages that the client has not acknowledged, and Messages
	// the number of these messages. Unsent is the number of chats that wait to be sent.
	Chats, Unsent int
	Messages      int64
	// Since is about when the node learned of the first of these messages. It is up to a grace
	// period too early.
	Since time.Time
}

// Slowest returns the sessions of this node whose clients have left messages unacknowledged, those
// with the oldest first, at most n. It visits each chat of each session. No lock is held for longer
// than one session needs.
func (t *Table) Slowest(n int) []Lagging {
	now := time.Now()
	var slowest []Lagging
	for _, s := range t.All() {
		l, behind := s.lagging(now)
		if !behind {
			continue
		}
		at, _ := slices.BinarySearchFunc(slowest, l, slower)
		if at < n {
			//rule:bounded_use.list-few-slow-sessions
			slowest = slices.Insert(slowest, at, l)[:min(len(slowest)+1, n)]
		}
	}
	return slowest
}

// slower orders sessions, those with the oldest message first.
func slower(a, b Lagging) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(b.Messages, a.Messages),
		cmp.Compare(a.Lease.Session, b.Lease.Session))
}

// lagging reports how far the client is behind. behind is false if it has acknowledged all.
func (s *Session) lagging(now time.Time) (l Lagging, behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l = Lagging{
		Lease: s.Lease, Connected: s.attachment.state == attached,
		Unsent: len(s.chats.ready), Since: now,
	}
	for _, p := range s.chats.byID {
		if !p.behind() {
			continue
		}
		l.Chats++
		l.Messages += int64(p.head + 1 - p.pending(s.User()).FirstUndelivered)
		if since := p.waiting(now); since.Before(l.Since) {
			l.Since = since
		}
	}
	return l, l.Chats > 0
}
