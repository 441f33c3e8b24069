package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// putMember stores a member of a chat, or replaces the row of a former one, who keeps their seat.
// version is the members' version of the chat after the step.
func (w *writer) putMember(c *chat, m tidemark.Member, seat int, version uint64) error {
	//rule:told_or_owed.version-of-member-in-sqlite
	q, err := w.c.prepared(`INSERT INTO members (chat, user_id, chat_id, current, role, joined_at,
			intervals, seat, metadata, version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (chat, user_id) DO UPDATE SET current = excluded.current, role = excluded.role,
			joined_at = excluded.joined_at, intervals = excluded.intervals,
			metadata = excluded.metadata, version = excluded.version`)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.string(2, string(m.UserID))
	q.string(3, string(c.id))
	q.integer(4, flag(m.Intervals.Open()))
	q.string(5, string(m.Role))
	q.integer(6, m.JoinedAt.UnixMilli())
	q.string(7, m.Intervals.Text())
	q.integer(8, int64(seat))
	if q.null(9); m.Metadata != nil {
		q.string(9, string(m.Metadata))
	}
	q.integer(10, int64(version))
	return q.run()
}

// member returns the present or past membership of a user, and reports whether there is one.
func (w *writer) member(c *chat, user tidemark.UserID) (m tidemark.Member, found bool, err error) {
	q, err := w.c.prepared(`SELECT user_id, role, joined_at, intervals, metadata FROM members
		WHERE chat = ? AND user_id = ?`)
	if err != nil {
		return m, false, err
	}
	q.integer(1, c.key)
	q.string(2, string(user))
	var bad error
	found, err = q.one(func(row *stmt) { m, bad = scanMember(row) })
	if err == nil {
		err = bad
	}
	return m, found, err
}

func scanMember(row *stmt) (tidemark.Member, error) {
	intervals, err := tidemark.ParseIntervals(row.stringAt(3))
	m := tidemark.Member{
		UserID: tidemark.UserID(row.stringAt(0)), Role: tidemark.Role(row.stringAt(1)),
		JoinedAt: timeOf(row.integerAt(2)), Intervals: intervals,
	}
	if !row.nullAt(4) {
		m.Metadata = row.bytesAt(4)
	}
	return m, err
}

// existing returns a chat, also a deleted one. NotFound: no such chat.
func (w *writer) existing(id tidemark.ChatID) (*chat, error) {
	c, err := w.chat(id)
	if err == nil && c == nil {
		err = noChat(id)
	}
	return c, err
}

// alive returns a chat that is not deleted. NotFound: no such chat, or it was deleted.
func (w *writer) alive(id tidemark.ChatID) (*chat, error) {
	c, err := w.existing(id)
	//rule:deleted_is_gone.nothing-is-changed-in-sqlite
	if err == nil && c.state == tidemark.ChatDeleted {
		return nil, storage.WasDeleted(id)
	}
	return c, err
}

// changeable returns Denied for a direct chat.
func (c *chat) changeable() error {
	if c.kind == tidemark.Direct {
		return tidemark.Errorf(tidemark.Denied, "the chat %s is direct; its members are fixed",
			c.id)
	}
	return nil
}

// AddMembers implements storage.Members.
func (s *Store) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (storage.Added, error) {
	if err := checkBatch(len(users)); err != nil {
		return storage.Added{}, err
	}
	users = slices.Clone(users)
	slices.Sort(users)
	users = slices.Compact(users)
	var added storage.Added
	err := s.change(ctx, func(w *writer) (err error) {
		added, err = w.addMembers(chat, users, role, timeOf(now.UnixMilli()))
		return err
	})
	if err != nil {
		return storage.Added{}, err
	}
	return added, nil
}

// addMembers checks all users before it writes. They are sorted and distinct.
func (w *writer) addMembers(
	id tidemark.ChatID, users []tidemark.UserID, role tidemark.Role, now time.Time,
) (storage.Added, error) {
	c, err := w.alive(id)
	if err != nil {
		return storage.Added{}, err
	}
	if err := c.changeable(); err != nil {
		return storage.Added{}, err
	}
	//rule:banned_stays_out.add-nobody-banned-in-sqlite
	if err := w.noneBanned(c, users); err != nil {
		return storage.Added{}, err
	}
	var joining []tidemark.Member
	var first []bool
	for _, user := range users {
		m, returning, err := w.member(c, user)
		if err != nil {
			return storage.Added{}, err
		}
		if m.Intervals.Open() {
			continue
		}
		m.UserID, m.Role, m.JoinedAt = user, role, now
		m.Intervals = m.Intervals.Joined(c.head, c.history, returning)
		if len(m.Intervals) > tidemark.MaxIntervals {
			return storage.Added{}, tidemark.Errorf(tidemark.Denied,
				"%s has joined the chat %d times, which is the most", user, tidemark.MaxIntervals)
		}
		joining, first = append(joining, m), append(first, !returning)
	}
	if c.members+len(joining) > tidemark.MaxMembers {
		return storage.Added{}, tidemark.Errorf(tidemark.Denied,
			"the chat would have %d members, at most %d are allowed", c.members+len(joining),
			tidemark.MaxMembers)
	}
	added := storage.Added{Version: c.version, Head: c.head}
	for _, user := range users {
		i := slices.IndexFunc(joining, func(m tidemark.Member) bool { return m.UserID == user })
		state, err := w.admit(c, user, joining, first, i, now)
		if err != nil {
			return storage.Added{}, err
		}
		if i >= 0 {
			added.New = append(added.New, user)
		}
		added.States = append(added.States, state)
	}
	if len(joining) == 0 {
		return added, nil
	}
	added.Version++
	switch {
	case c.large:
		for _, m := range joining {
			if err := w.addStandingRow(c, m.UserID); err != nil {
				return storage.Added{}, err
			}
		}
	case c.members+len(joining) > tidemark.PendingFanoutLimit:
		if err := w.addStandingRows(c); err != nil {
			return storage.Added{}, err
		}
	}
	return added, w.setMembership(c, c.members+len(joining))
}

// admit stores the user who is joining[i], and returns their delivery state. If they are a member
// already, i is -1 and admit only reads.
func (w *writer) admit(
	c *chat, user tidemark.UserID, joining []tidemark.Member, first []bool, i int, now time.Time,
) (tidemark.DeliveryState, error) {
	if i < 0 {
		state, err := w.state(c, user)
		return state.DeliveryState, err
	}
	if err := w.putMember(c, joining[i], 0, c.version+1); err != nil {
		return tidemark.DeliveryState{}, err
	}
	return w.join(c, user, first[i], now)
}

// join returns the delivery state of a user who was just added. On a first join of a
// HistorySinceJoin chat, the state starts at the head.
func (w *writer) join(
	c *chat, user tidemark.UserID, first bool, now time.Time,
) (tidemark.DeliveryState, error) {
	before, err := w.state(c, user)
	//rule:sync_position_from_watermark.keep-start-of-first-join
	if err != nil || !first || c.history != tidemark.HistorySinceJoin {
		return before.DeliveryState, err
	}
	state, moved := tidemark.Raise{Acked: c.head, Read: c.head}.Apply(before.DeliveryState, now)
	if !moved {
		return state, nil
	}
	return state, w.putState(c, before, state)
}

// setMembership writes the new number of members and the next version. It removes the chat from the
// cache.
func (w *writer) setMembership(c *chat, members int) error {
	if err := w.openBacklog(c); err != nil {
		return err
	}
	if err := w.forget(c); err != nil {
		return err
	}
	q, err := w.c.prepared(`UPDATE chats
		SET member_count = ?1, members_version = ?2, large = large OR ?1 > ?3
		WHERE key = ?4`)
	if err != nil {
		return err
	}
	q.integer(1, int64(members))
	q.integer(2, int64(c.version)+1)
	q.integer(3, tidemark.PendingFanoutLimit)
	q.integer(4, c.key)
	return q.run()
}

// RemoveMember implements storage.Members.
func (s *Store) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, _ time.Time,
) (storage.Removed, error) {
	var removed storage.Removed
	err := s.change(ctx, func(w *writer) error {
		c, err := w.alive(chat)
		if err != nil {
			return err
		}
		m, _, err := w.member(c, user)
		if err != nil {
			return err
		}
		if !m.Intervals.Open() {
			return notMember(chat, user)
		}
		if err := c.changeable(); err != nil {
			return err
		}
		removed, err = w.removeMember(c, m)
		return err
	})
	if err != nil {
		return storage.Removed{}, err
	}
	return removed, nil
}

// removeMember ends the membership of a current member of a group.
func (w *writer) removeMember(c *chat, m tidemark.Member) (storage.Removed, error) {
	//rule:delivery_state_independent_of_membership.keep-state-at-removal
	removed := storage.Removed{Version: c.version + 1, Head: c.head}
	if m.Role == tidemark.Owner {
		r, err := roster(w.c, c.id)
		if err != nil {
			return removed, err
		}
		//rule:owner_always.succeed-at-removal-in-sqlite
		if heir, found, _ := r.Successor(m.UserID); found {
			removed.Successor = heir.UserID
			if err := w.promote(c, heir); err != nil {
				return removed, err
			}
		}
	}
	m.Intervals, m.Metadata = m.Intervals.Left(c.head), nil
	if err := w.putMember(c, m, 0, c.version+1); err != nil {
		return removed, err
	}
	if err := w.unmark(c, m.UserID); err != nil {
		return removed, err
	}
	return removed, w.setMembership(c, c.members-1)
}

// promote makes a member an owner.
func (w *writer) promote(c *chat, heir tidemark.Member) error {
	heir.Role = tidemark.Owner
	return w.putMember(c, heir, 0, c.version+1)
}

// UpdateMember implements storage.Members.
func (s *Store) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	var updated storage.UpdatedMember
	err := s.change(ctx, func(w *writer) (err error) {
		updated, err = w.updateMember(chat, user, change)
		return err
	})
	if err != nil {
		return storage.UpdatedMember{}, err
	}
	return updated, nil
}

func (w *writer) updateMember(
	id tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	c, err := w.alive(id)
	if err != nil {
		return storage.UpdatedMember{}, err
	}
	before, _, err := w.member(c, user)
	switch {
	case err != nil:
		return storage.UpdatedMember{}, err
	case !before.Intervals.Open():
		return storage.UpdatedMember{}, notMember(id, user)
	}
	if err := c.changeable(); err != nil {
		return storage.UpdatedMember{}, err
	}
	updated := storage.UpdatedMember{Version: c.version}
	after, changed := change.Apply(before)
	updated.Member = after
	if !changed {
		return updated, nil
	}
	if change.StopsOwning(before) {
		r, err := roster(w.c, id)
		if err != nil {
			return storage.UpdatedMember{}, err
		}
		heir, err := storage.Heir(r, user)
		//rule:owner_always.succeed-at-demotion-in-sqlite
		if err == nil && heir != nil {
			updated.Successor = heir.UserID
			err = w.promote(c, *heir)
		}
		if err != nil {
			return storage.UpdatedMember{}, err
		}
	}
	updated.Version++
	if err := w.putMember(c, updated.Member, 0, updated.Version); err != nil {
		return storage.UpdatedMember{}, err
	}
	return updated, w.setMembership(c, c.members)
}

func notMember(chat tidemark.ChatID, user tidemark.UserID) error {
	return storage.NotSender(chat, user, false)
}

// Rosters implements storage.Members.
func (s *Store) Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	if err := checkBatch(len(chats)); err != nil || len(chats) == 0 {
		return nil, err
	}
	var found []*tidemark.Roster
	err := s.snapshot(ctx, func(c *conn) (err error) {
		found, err = rosters(c, chats)
		return err
	})
	return found, err
}

// roster reads a chat and its members in the caller's snapshot. It returns nil if there is no chat.
func roster(c *conn, id tidemark.ChatID) (*tidemark.Roster, error) {
	found, err := rosters(c, []tidemark.ChatID{id})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// rosterChats reads the chats of a JSON array, in its order. A chat that does not exist is a row of
// NULL.
const rosterChats = `SELECT c.key, c.type, c.history, c.large, c.members_version, c.member_count,
		c.floor, c.state
	FROM json_each(?) AS j LEFT JOIN chats AS c ON c.id = j.value`

// rosterMembers reads the members of the chats of a JSON array of keys.
const rosterMembers = `SELECT m.user_id, m.role, m.joined_at, m.intervals, m.metadata, m.chat
	FROM json_each(?) AS j CROSS JOIN members AS m ON m.chat = j.value WHERE m.current = 1`

// rosters reads chats and their members, with two statements. For a chat that does not exist it
// returns nil. A chat that is named twice is read once.
func rosters(c *conn, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	q, err := c.prepared(rosterChats)
	if err != nil {
		return nil, err
	}
	found := make([]*tidemark.Roster, 0, len(chats))
	byKey := make(map[int64]*tidemark.Roster)
	var keys []int64
	q.string(1, jsonArray(chats))
	err = q.each(func(row *stmt) bool {
		key := row.integerAt(0)
		if byKey[key] == nil && !row.nullAt(0) {
			byKey[key] = &tidemark.Roster{
				ChatID:  chats[len(found)],
				Type:    tidemark.ChatType(row.stringAt(1)),
				History: tidemark.HistoryMode(row.stringAt(2)),
				Large:   row.integerAt(3) != 0, Version: uint64(row.integerAt(4)),
				Floor:   tidemark.Sequence(row.integerAt(6)),
				State:   tidemark.ChatState(row.stringAt(7)),
				Members: make([]tidemark.Member, 0, row.integerAt(5)),
			}
			keys = append(keys, key)
		}
		found = append(found, byKey[key])
		return true
	})
	if err != nil || len(keys) == 0 {
		return found, err
	}
	if q, err = c.prepared(rosterMembers); err != nil {
		return nil, err
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	var bad error
	q.string(1, string(text))
	err = q.each(func(row *stmt) bool {
		var m tidemark.Member
		m, bad = scanMember(row)
		r := byKey[row.integerAt(5)]
		r.Members = append(r.Members, m)
		return bad == nil
	})
	for _, r := range byKey {
		slices.SortFunc(r.Members, func(a, b tidemark.Member) int {
			return strings.Compare(string(a.UserID), string(b.UserID))
		})
	}
	return found, cmp.Or(err, bad)
}
