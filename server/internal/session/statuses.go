package session

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/storage"
)

// statusKey names a member of a chat, or, with an empty user, all of them.
type statusKey struct {
	chat tidemark.ChatID
	user tidemark.UserID
}

// waiting is what will be said of a member. heard says that it is not below what the client may have been told by another node.
type waiting struct {
	tidemark.Boundary
	heard bool
}

// Status takes in boundaries that moved. At most one unsent pair is kept for a member and chat.
// may is asked whether the user may still know: whoever takes him out of a chat says so before he drops it here.
func (s *Session) Status(updates []tidemark.StatusUpdate, may func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !may() {
		return
	}
	for _, u := range updates {
		key := statusKey{u.ChatID, u.UserID}
		w, there := s.statuses[key]
		if !there {
			if len(s.statuses) >= maxStatuses {
				s.snapshot(u.ChatID)
				continue
			}
			if s.statuses == nil {
				s.statuses = make(map[statusKey]waiting)
			}
			s.statusOrder = append(s.statusOrder, key)
			//rule:tick_monotone.hold-old-status
			if w.heard = s.hears(key); !w.heard {
				s.unheard = append(s.unheard, key)
			}
		}
		w.Boundary = w.Merge(u.Boundary)
		if u.UserID != "" {
			// The update may have been on its way while a snapshot was read that is newer, and was sent.
			//rule:tick_monotone.merge-known-into-snapshot
			w.Boundary = w.Merge(s.node.Known.Exposed(u.UserID, u.ChatID))
		}
		s.statuses[key] = w
	}
	notify(s.signal)
}

// hears reports whether this node knows whatever the client was told of a member.
func (s *Session) hears(key statusKey) bool {
	if key.user == "" {
		return true
	}
	p := s.heard[key.chat]
	if p == nil {
		return false
	}
	_, member := p.Member(key.user)
	//rule:tick_monotone.former-member-is-not-counted
	return member
}

// hear reads the statuses of the members of chats of which something was said for the first time, and of those of whom it was said, who may have left.
func (s *Session) hear(ctx context.Context, c *Connection, st step) error {
	var chats []tidemark.ChatID
	also := make([]storage.StateKey, len(st.keys))
	for i, key := range st.keys {
		also[i] = storage.StateKey{User: key.user, Chat: key.chat}
		if !slices.Contains(chats, key.chat) {
			chats = append(chats, key.chat)
		}
	}
	//rule:tick_monotone.include-former-members
	updates, people, err := s.node.Boundaries(ctx, s.User, chats, also...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil || s.drops != st.drops {
		return err
	}
	s.hasHeard(people)
	for _, u := range updates {
		s.newest(u)
	}
	s.unheard = slices.Delete(s.unheard, 0, len(st.keys))
	for _, key := range st.keys {
		w, waits := s.statuses[key]
		if w.heard = slices.ContainsFunc(people, func(p *feed.People) bool { return p.ChatID == key.chat }); w.heard && waits {
			s.statuses[key] = w
			continue
		}
		delete(s.statuses, key) // the user is no member himself, or the chat has become large
		s.statusOrder = slices.DeleteFunc(s.statusOrder, func(k statusKey) bool { return k == key })
	}
	return nil
}

// hasHeard notes that the statuses of the members of chats were read.
func (s *Session) hasHeard(people []*feed.People) {
	for _, p := range people {
		if s.heard == nil || len(s.heard) >= maxStatuses {
			s.heard = make(map[tidemark.ChatID]*feed.People)
		}
		s.heard[p.ChatID] = p
	}
}

// newest returns what a client is told of a member of whom a boundary was read, and reports whether it waits to be sent.
func (s *Session) newest(u tidemark.StatusUpdate) (told tidemark.StatusUpdate, waits bool) {
	if u.UserID != "" {
		// What was read may be older than what was sent meanwhile, or newer than what is on its way.
		//rule:tick_monotone.remember-snapshot
		u.Boundary = s.node.Known.Tell(u)
	}
	key := statusKey{u.ChatID, u.UserID}
	w, waits := s.statuses[key]
	if waits {
		// And what waits may be older than what was read: sent after it, it would be a step back.
		//rule:tick_monotone.merge-waiting-status
		s.statuses[key] = waiting{w.Merge(u.Boundary), true}
	}
	return u, waits
}
