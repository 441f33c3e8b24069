package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// AddMembers implements storage.Members.
func (s *Store) AddMembers(
	ctx context.Context, id tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (storage.Added, error) {
	if err := s.enterBatch(ctx, len(users)); err != nil {
		return storage.Added{}, err
	}
	defer s.mu.Unlock()
	c, err := s.alive(id)
	if err != nil {
		return storage.Added{}, err
	}
	if c.Type == tidemark.Direct {
		return storage.Added{}, tidemark.Errorf(tidemark.Denied,
			"the chat %s is direct; its members are fixed", id)
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	// All checks come before the first change.
	joined := map[tidemark.UserID]tidemark.Member{}
	for _, user := range users {
		former, returning := c.members[user]
		if former.Intervals.Open() {
			continue
		}
		//rule:banned_stays_out.add-nobody-banned-in-memory
		if _, banned := c.bans[user]; banned {
			return storage.Added{}, storage.IsBanned(id, user)
		}
		intervals := former.Intervals.Joined(c.Head, c.History, returning)
		if len(intervals) > tidemark.MaxIntervals {
			return storage.Added{}, tidemark.Errorf(tidemark.Denied,
				"%s has joined the chat %d times, which is the most", user, tidemark.MaxIntervals)
		}
		joined[user] = tidemark.Member{
			UserID:    user,
			Role:      role,
			Intervals: intervals,
			JoinedAt:  stored(now),
		}
	}
	if c.MemberCount+len(joined) > tidemark.MaxMembers {
		return storage.Added{}, tidemark.Errorf(tidemark.Denied,
			"the chat would have %d members, at most %d are allowed", c.MemberCount+len(joined),
			tidemark.MaxMembers)
	}

	added := storage.Added{Head: c.Head}
	for _, user := range slices.Compact(slices.Sorted(slices.Values(users))) {
		if _, joins := joined[user]; !joins {
			added.States = append(added.States, s.state(user, id))
			continue
		}
		added.New = append(added.New, user)
		_, returning := c.members[user]
		//rule:sync_position_from_watermark.start-at-join
		if !returning && c.History == tidemark.HistorySinceJoin {
			raise := tidemark.Raise{Acked: c.Head, Read: c.Head}
			s.advance(&storage.Advance{User: user, Chat: id, Raise: raise, Now: now})
		}
		c.put(c.MembersVersion+1, joined[user])
		s.link(user, c)
		added.States = append(added.States, s.state(user, id))
	}
	if len(joined) > 0 {
		c.MemberCount += len(joined)
		c.Large = c.Large || c.MemberCount > tidemark.PendingFanoutLimit
		c.MembersVersion++
		c.roster = nil
		s.addStandingRows(c)
	}
	added.Version = c.MembersVersion
	return added, nil
}

// RemoveMember implements storage.Members.
func (s *Store) RemoveMember(
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
	case !member.Intervals.Open():
		return storage.Removed{}, notMember(user, id)
	case c.Type == tidemark.Direct:
		return storage.Removed{}, tidemark.Errorf(tidemark.Denied,
			"the chat %s is direct; its members are fixed", id)
	}
	return s.removeMember(c, member), nil
}

// removeMember ends the membership of a current member of a group. The mutex is held.
func (s *Store) removeMember(c *chat, member tidemark.Member) storage.Removed {
	user, id := member.UserID, c.ID
	defer s.news(c, storage.PositionOf(&c.Chat))
	removed := storage.Removed{Head: c.Head}
	//rule:owner_always.succeed-at-removal
	if heir, found, _ := c.current().Successor(user); found {
		c.promote(heir)
		removed.Successor = heir.UserID
	}
	member.Intervals, member.Metadata = member.Intervals.Left(c.Head), nil
	c.put(c.MembersVersion+1, member)
	delete(s.memberOf[user], id)
	//rule:nothing_outside_membership.remove-pending-row
	delete(s.pending[user], id)
	c.MemberCount--
	//rule:nothing_outside_membership.raise-members-version
	c.MembersVersion++
	//rule:nothing_outside_membership.drop-roster
	c.roster = nil
	removed.Version = c.MembersVersion
	return removed
}

// put stores a member whose last change has a version. The mutex is held.
func (c *chat) put(version uint64, m tidemark.Member) {
	c.members[m.UserID] = m
	//rule:told_or_owed.version-of-member
	c.changed[m.UserID] = version
}

// promote makes a member an owner. The mutex is held.
func (c *chat) promote(heir tidemark.Member) {
	heir.Role = tidemark.Owner
	c.put(c.MembersVersion+1, heir)
}

// UpdateMember implements storage.Members.
func (s *Store) UpdateMember(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	if err := s.enter(ctx); err != nil {
		return storage.UpdatedMember{}, err
	}
	defer s.mu.Unlock()
	c, err := s.alive(id)
	if err != nil {
		return storage.UpdatedMember{}, err
	}
	before := c.members[user]
	switch {
	case !before.Intervals.Open():
		return storage.UpdatedMember{}, notMember(user, id)
	case c.Type == tidemark.Direct:
		return storage.UpdatedMember{}, tidemark.Errorf(tidemark.Denied,
			"the chat %s is direct; its members are fixed", id)
	}
	updated := storage.UpdatedMember{Version: c.MembersVersion}
	after, changed := change.Apply(before)
	updated.Member = after
	if !changed {
		return updated, nil
	}
	if change.StopsOwning(before) {
		heir, err := storage.Heir(c.current(), user)
		if err != nil {
			return storage.UpdatedMember{}, err
		}
		//rule:owner_always.succeed-at-demotion
		if heir != nil {
			c.promote(*heir)
			updated.Successor = heir.UserID
		}
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	c.put(c.MembersVersion+1, updated.Member)
	c.MembersVersion++
	c.roster = nil
	updated.Version = c.MembersVersion
	return updated, nil
}

// Rosters implements storage.Members.
func (s *Store) Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	if err := s.enterBatch(ctx, len(chats)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	rosters := make([]*tidemark.Roster, len(chats))
	for i, id := range chats {
		if c := s.chats[id]; c != nil {
			rosters[i] = c.current()
		}
	}
	return rosters, nil
}

// current returns the roster of this version. The mutex is held.
func (c *chat) current() *tidemark.Roster {
	if c.roster != nil {
		return c.roster
	}
	r := &tidemark.Roster{
		ChatID: c.ID, State: c.State, Type: c.Type, History: c.History, Large: c.Large,
		Version: c.MembersVersion, Floor: c.Floor,
		Members: make([]tidemark.Member, 0, c.MemberCount),
	}
	for _, user := range slices.Sorted(maps.Keys(c.members)) {
		if m := c.members[user]; m.Intervals.Open() {
			r.Members = append(r.Members, m)
		}
	}
	c.roster = r
	return r
}

// link records that the user is a member of the chat. The mutex is held.
func (s *Store) link(user tidemark.UserID, c *chat) {
	if s.memberOf[user] == nil {
		s.memberOf[user] = map[tidemark.ChatID]*chat{}
	}
	s.memberOf[user][c.ID] = c
}

// addStandingRows writes the standing row of each member, if the chat is Large. The mutex is held.
func (s *Store) addStandingRows(c *chat) {
	if !c.Large {
		return
	}
	for user, member := range c.members {
		if member.Intervals.Open() {
			s.setPending(user, c.ID, 0)
		}
	}
}

func notMember(user tidemark.UserID, id tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotMember, "%s is not a member of the chat %s", user, id)
}
