package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// PutBlock implements storage.Blocks.
func (s *Store) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	if err := s.enter(ctx); err != nil {
		return storage.PairChat{}, err
	}
	defer s.mu.Unlock()
	if _, stands := s.blocks[user][blocked]; !stands {
		if err := storage.CheckBlocks(len(s.blocks[user])); err != nil {
			return storage.PairChat{}, err
		}
		if s.blocks[user] == nil {
			s.blocks[user] = map[tidemark.UserID]time.Time{}
		}
		s.blocks[user][blocked] = stored(now)
	}
	return s.closePair(user, blocked), nil
}

// RemoveBlock implements storage.Blocks.
func (s *Store) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	if err := s.enter(ctx); err != nil {
		return storage.PairChat{}, err
	}
	defer s.mu.Unlock()
	delete(s.blocks[user], blocked)
	return s.closePair(user, blocked), nil
}

// closePair gives the direct chat of two users the state that their blocks ask for. The mutex is
// held.
func (s *Store) closePair(a, b tidemark.UserID) storage.PairChat {
	c := s.direct[tidemark.DirectKey(a, b)]
	if c == nil {
		return storage.PairChat{}
	}
	before := storage.PositionOf(&c.Chat)
	first, second := s.blocking(a, b)
	//rule:blocked_is_closed.close-with-the-block-in-memory
	after, changed := storage.CloseBy(c.Chat, first, second)
	if !changed {
		return storage.PairChatOf(&c.Chat)
	}
	pair := storage.PairAfter(&c.Chat, &after)
	c.Chat, c.roster = after, nil
	s.news(c, before)
	return pair
}

// blocking says whether the user with the smaller id has blocked the other one, and the reverse.
// The mutex is held.
func (s *Store) blocking(a, b tidemark.UserID) (first, second bool) {
	if b < a {
		a, b = b, a
	}
	_, first = s.blocks[a][b]
	_, second = s.blocks[b][a]
	return first, second
}

// closing returns the state of a direct chat of two users. The mutex is held.
func (s *Store) closing(a, b tidemark.UserID) tidemark.ChatState {
	return storage.Closing(s.blocking(a, b))
}

// apart reports whether a block stands between two users. The mutex is held.
func (s *Store) apart(a, b tidemark.UserID) bool { return s.closing(a, b).Closed() }

// BlocksOf implements storage.Blocks.
func (s *Store) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) ([]storage.Block, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	var blocks []storage.Block
	for _, one := range slices.Sorted(maps.Keys(s.blocks[user])) {
		if one > after {
			blocks = append(blocks, storage.Block{User: one, At: s.blocks[user][one]})
		}
	}
	blocks, more := page(blocks, limit)
	return blocks, more, nil
}

// Apart implements storage.Blocks.
func (s *Store) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) ([]tidemark.UserID, error) {
	if err := s.enterBatch(ctx, len(others)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var found []tidemark.UserID
	for _, other := range others {
		if s.apart(user, other) {
			found = append(found, other)
		}
	}
	return found, nil
}

// Ban implements storage.Bans.
func (s *Store) Ban(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Banned, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Banned{}, err
	}
	defer s.mu.Unlock()
	c, err := s.alive(id)
	switch {
	case err != nil:
		return storage.Banned{}, err
	case c.Type == tidemark.Direct:
		return storage.Banned{}, storage.NoBans(id)
	}
	banned := storage.Banned{
		Removed: storage.Removed{Version: c.MembersVersion, Head: c.Head},
	}
	if _, stands := c.bans[user]; stands {
		return banned, nil
	}
	if err := storage.CheckBans(id, len(c.bans)); err != nil {
		return storage.Banned{}, err
	}
	c.bans[user] = stored(now)
	member := c.members[user]
	//rule:banned_stays_out.remove-with-the-ban-in-memory
	if banned.Left = member.Intervals.Open(); banned.Left {
		banned.Removed = s.removeMember(c, member)
		return banned, nil
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	c.MembersVersion++
	c.roster = nil
	banned.Version = c.MembersVersion
	return banned, nil
}

// Unban implements storage.Bans.
func (s *Store) Unban(ctx context.Context, id tidemark.ChatID, user tidemark.UserID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.alive(id)
	if err != nil {
		return err
	}
	delete(c.bans, user)
	return nil
}

// BansOf implements storage.Bans.
func (s *Store) BansOf(
	ctx context.Context, id tidemark.ChatID, after tidemark.UserID, limit int,
) ([]storage.Ban, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	c := s.chats[id]
	if c == nil {
		return nil, false, nil
	}
	var bans []storage.Ban
	for _, user := range slices.Sorted(maps.Keys(c.bans)) {
		if user > after {
			bans = append(bans, storage.Ban{User: user, At: c.bans[user]})
		}
	}
	bans, more := page(bans, limit)
	return bans, more, nil
}
