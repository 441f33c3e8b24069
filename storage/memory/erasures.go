package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Erasures = (*Store)(nil)

// ChatsNaming implements storage.Erasures.
func (s *Store) ChatsNaming(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return nil, "", false, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, "", false, err
	}
	defer s.mu.Unlock()
	all := slices.Sorted(maps.Keys(s.chats))
	all = slices.DeleteFunc(all, func(id tidemark.ChatID) bool { return id <= after })
	all, more = page(all, limit)
	for _, id := range all {
		if next = id; s.names(s.chats[id], user) {
			chats = append(chats, id)
		}
	}
	if !more {
		next = ""
	}
	return chats, next, more, nil
}

// names reports whether a chat has something of a user. The mutex is held.
func (s *Store) names(c *chat, user tidemark.UserID) bool {
	if _, member := c.members[user]; member {
		return true
	}
	if _, state := s.states[storage.StateKey{User: user, Chat: c.ID}]; state {
		return true
	}
	if _, banned := c.bans[user]; banned {
		return true
	}
	for i := range c.messages {
		m := &c.messages[i]
		first, changed := c.mentions[m.Sequence]
		if slices.Contains(m.Mentions.Users, user) ||
			changed && slices.Contains(first.Users, user) {
			return true
		}
	}
	return false
}

// CloseDirect implements storage.Erasures.
func (s *Store) CloseDirect(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID, _ time.Time,
) (storage.Removed, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Removed{}, err
	}
	defer s.mu.Unlock()
	c, err := s.alive(id)
	if err != nil {
		return storage.Removed{}, err
	}
	member := c.members[user]
	switch {
	case c.Type != tidemark.Direct:
		return storage.Removed{}, storage.NotDirect(id)
	case !member.Intervals.Open():
		return storage.Removed{}, notMember(user, id)
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	for other, m := range c.members {
		if other != user {
			c.put(c.MembersVersion+1, storage.AsReader(m))
		}
	}
	member.Intervals, member.Metadata = member.Intervals.Left(c.Head), nil
	c.put(c.MembersVersion+1, member)
	delete(s.memberOf[user], id)
	delete(s.pending[user], id)
	maps.DeleteFunc(s.direct, func(_ string, of *chat) bool { return of == c })
	c.MemberCount--
	c.MembersVersion++
	c.roster = nil
	return storage.Removed{Version: c.MembersVersion, Head: c.Head}, nil
}

// EraseMessages implements storage.Erasures.
func (s *Store) EraseMessages(
	ctx context.Context, id tidemark.ChatID, e tidemark.Erasure, p storage.ErasePage,
) (done storage.ErasedPage, err error) {
	if err := storage.CheckErase(p.Limit); err != nil {
		return done, err
	}
	if err := s.enter(ctx); err != nil {
		return done, err
	}
	defer s.mu.Unlock()
	c, err := s.erasable(id)
	if err != nil {
		return done, err
	}
	e.At = stored(e.At)
	first := max(p.After+1, c.Floor)
	done.Through = min(c.Head, first+tidemark.Sequence(p.Limit)-1)
	for n := first; n <= done.Through; n++ {
		touched := c.erase(n, e)
		done.Count(c.message(n), touched, e)
	}
	done.Done = done.Through == c.Head
	return done, nil
}

// erasable returns a chat of which something may be erased. The mutex is held.
func (s *Store) erasable(id tidemark.ChatID) (*chat, error) {
	c, err := s.alive(id)
	if err == nil {
		//rule:held_is_kept.nothing-is-erased
		err = storage.OnHold(id, c.Policy)
	}
	return c, err
}

// erase erases a user in a message. The mutex is held.
func (c *chat) erase(n tidemark.Sequence, e tidemark.Erasure) tidemark.Touched {
	m := c.message(n)
	erased, touched := m.Erase(e, c.Head)
	first, kept := c.mentions[n]
	if !kept && touched == tidemark.Wiped {
		first, kept = m.Mentions, true
	}
	if kept {
		users := slices.Clone(first.Users)
		if named := slices.Index(users, e.User); named >= 0 {
			users[named] = e.Alias
		}
		c.mentions[n] = tidemark.NewMentions(first.All, users)
	}
	if touched != tidemark.Untouched {
		delete(c.keys, sendKey{m.SenderID, m.ClientMessageID})
		c.keys[sendKey{erased.SenderID, erased.ClientMessageID}] = n
		*m = erased
	}
	return touched
}

// EraseMember implements storage.Erasures.
func (s *Store) EraseMember(
	ctx context.Context, id tidemark.ChatID, e tidemark.Erasure, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	c, err := s.erasable(id)
	if err != nil {
		return false, err
	}
	if m := c.members[e.User]; m.Intervals.Open() {
		return false, storage.StillMember(id, e.User)
	}
	// All rows of a user in a chat are listed here.
	delete(s.states, storage.StateKey{User: e.User, Chat: id})
	delete(s.pending[e.User], id)
	//rule:erased_nowhere.bans
	delete(c.bans, e.User)
	if _, was := c.members[e.User]; was {
		defer s.news(c, storage.PositionOf(&c.Chat))
		c.MembersVersion++
		c.roster = nil
	}
	//rule:erased_nowhere.membership
	delete(c.members, e.User)
	delete(c.changed, e.User)
	return true, nil
}

// EraseUser implements storage.Erasures.
func (s *Store) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	// All rows of a user that are outside chats are listed here.
	done = s.eraseBlocks(user, limit)
	maps.DeleteFunc(s.hides, func(of storage.StateKey, _ bool) bool { return of.User == user })
	rows := s.pending[user]
	all := slices.Sorted(maps.Keys(rows))
	for _, id := range all[:min(limit, len(all))] {
		delete(rows, id)
	}
	if !done || len(all) >= limit {
		return false, nil
	}
	delete(s.pending, user)
	if len(s.memberOf[user]) == 0 {
		delete(s.memberOf, user)
	}
	return true, nil
}

// eraseBlocks removes at most limit blocks by a user, and as many of them. done reports that none
// is left. The mutex is held.
func (s *Store) eraseBlocks(user tidemark.UserID, limit int) (done bool) {
	own := slices.Sorted(maps.Keys(s.blocks[user]))
	for _, blocked := range own[:min(limit, len(own))] {
		delete(s.blocks[user], blocked)
	}
	var by []tidemark.UserID
	for other, blocks := range s.blocks {
		if _, stands := blocks[user]; stands {
			by = append(by, other)
		}
	}
	slices.Sort(by)
	for _, other := range by[:min(limit, len(by))] {
		//rule:erased_nowhere.blocks-of-the-erased
		delete(s.blocks[other], user)
	}
	if len(s.blocks[user]) == 0 {
		delete(s.blocks, user)
	}
	return len(own) < limit && len(by) < limit
}
