package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// listRecent orders the snapshot of the most recently active chats.
func (s *Session) listRecent(ctx context.Context, c *Connection) error {
	recent, _, err := s.server.storage.ChatsOf(ctx, s.user, storage.ChatsPage{Limit: snapshotChats})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil {
		return err
	}
	s.recent = false
	for _, r := range recent {
		s.snapshot(r.Chat.ID)
	}
	return nil
}

// serveSnapshot reads and sends the statuses of chats.
func (s *Session) serveSnapshot(ctx context.Context, c *Connection, ids []tidemark.ChatID, buf []tidemark.Event) ([]tidemark.Event, error) {
	updates, err := s.server.boundaries(ctx, s.user, ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		for _, id := range ids {
			s.snapshot(id)
		}
		return buf, err
	}
	if err := s.ownedBy(c); err != nil {
		for _, id := range ids {
			s.snapshot(id)
		}
		return buf, err
	}
	for _, u := range updates {
		key := statusKey{u.ChatID, u.UserID}
		if waiting, there := s.statuses[key]; there {
			// What waits may be older than what was read: sent after it, it would be a step back.
			s.statuses[key] = waiting.Merge(u.Boundary)
			continue
		}
		buf = s.sendStatus(buf, u)
	}
	return buf, nil
}

// boundaries returns what a member may know of the watermarks in chats: of each member, or of all of them in chats above
// tidemark.StatusFanoutLimit members. Boundaries at 0, and chats of which the user is not a member, are left out.
func (s *Server) boundaries(ctx context.Context, user tidemark.UserID, ids []tidemark.ChatID) ([]tidemark.StatusUpdate, error) {
	all, err := s.peopleOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	var updates []tidemark.StatusUpdate
	var keys []storage.StateKey
	for _, p := range all {
		if p == nil {
			continue
		}
		if _, ok := p.Member(user); !ok {
			continue
		}
		if len(p.users) > tidemark.StatusFanoutLimit {
			sum, err := s.storage.Summary(ctx, p.ChatID, 0)
			if err != nil {
				return nil, err
			}
			updates = append(updates, tidemark.StatusUpdate{ChatID: p.ChatID, Boundary: sum.Least})
			continue
		}
		for _, member := range p.users {
			keys = append(keys, stateKey(member, p.ChatID))
		}
	}
	states, err := s.storage.States(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		updates = append(updates, tidemark.StatusUpdate{ChatID: st.ChatID, UserID: st.UserID, Boundary: st.Exposed()})
	}
	moved := updates[:0]
	for _, u := range updates {
		if u.Boundary != (tidemark.Boundary{}) {
			moved = append(moved, u)
		}
	}
	return moved, nil
}

// peopleOf returns the members of many chats, nil for one that does not exist, with one read for those that are not in memory.
func (s *Server) peopleOf(ctx context.Context, ids []tidemark.ChatID) ([]*people, error) {
	all := make([]*people, len(ids))
	var missing []*hotChat
	var at []int
	for i, id := range ids {
		c := s.hot.get(id)
		if all[i] = c.people.Load(); all[i] == nil {
			missing, at = append(missing, c), append(at, i)
		}
	}
	if len(missing) == 0 {
		return all, nil
	}
	read, err := s.readPeople(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, p := range read {
		all[at[i]] = p
	}
	return all, nil
}
