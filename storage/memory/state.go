package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return err
	}
	changes, err := storage.Finishes(id, c.State)
	if err != nil || !changes {
		return err
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	c.State = tidemark.ChatLive
	// A direct chat whose other member was erased has one member.
	if members := c.current().Members; c.Type == tidemark.Direct && len(members) == 2 {
		//rule:blocked_is_closed.close-at-the-end-of-an-import-in-memory
		c.State = s.closing(members[0].UserID, members[1].UserID)
	}
	//rule:importing_is_closed.raise-the-version
	c.MembersVersion++
	c.roster = nil
	return nil
}

// DeleteChat implements storage.Deletions.
func (s *Store) DeleteChat(
	ctx context.Context, id tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Deleted{}, err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return storage.Deleted{}, err
	}
	if c.State == tidemark.ChatDeleted {
		return storage.DeletedOf(&c.Chat), nil
	}
	//rule:held_is_kept.no-deletion-in-memory
	if err := storage.OnHold(id, c.Policy); err != nil {
		return storage.Deleted{}, err
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	for _, m := range c.current().Members {
		//rule:deleted_is_gone.end-memberships
		delete(s.memberOf[m.UserID], id)
		delete(s.pending[m.UserID], id)
		m.Intervals, m.Metadata = m.Intervals.Left(c.Head), nil
		c.put(c.MembersVersion+1, m)
	}
	for pair, direct := range s.direct {
		if direct == c {
			delete(s.direct, pair)
		}
	}
	c.Chat = storage.Delete(c.Chat, stored(now))
	c.roster = nil
	return storage.DeletedOf(&c.Chat), nil
}

// PurgeChat implements storage.Deletions.
func (s *Store) PurgeChat(
	ctx context.Context, id tidemark.ChatID, limit int, members bool,
) (removed int, done bool, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, false, err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err == nil {
		err = storage.CheckPurge(id, c.State, limit)
	}
	if err != nil {
		return 0, false, err
	}
	last := min(len(c.messages), c.purged+limit)
	removed = last - c.purged
	for ; c.purged < last; c.purged++ {
		m := &c.messages[c.purged]
		delete(c.keys, sendKey{m.SenderID, m.ClientMessageID})
		delete(c.mentions, m.Sequence)
		*m = tidemark.Message{}
	}
	if removed == limit || !members {
		return removed, removed < limit, nil
	}
	users := slices.Sorted(maps.Keys(c.members))
	for _, user := range users[:min(limit, len(users))] {
		delete(s.states, storage.StateKey{User: user, Chat: id})
		delete(s.pending[user], id)
		delete(c.members, user)
		delete(c.changed, user)
		removed++
	}
	c.bans = nil
	return removed, len(users) < limit, nil
}
