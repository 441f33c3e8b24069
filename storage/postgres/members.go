package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// lockChat locks a chat as an append does. Its head and its members cannot change until the
// transaction ends.
const lockChat = `SELECT ` + chatColumns +
	`, c.key FROM chats AS c WHERE c.id = $1 FOR NO KEY UPDATE`

// A membership changes the members of a locked chat.
type membership struct {
	tx   pgx.Tx
	chat tidemark.Chat
	key  int64
}

// locked runs do in a transaction that has locked the chat. It returns NotFound if there is no such
// chat.
func (s *Store) locked(
	ctx context.Context, chat tidemark.ChatID, do func(ctx context.Context, m *membership) error,
) error {
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			m := &membership{tx: tx}
			var row chatRow
			err := tx.QueryRow(ctx, lockChat, string(chat)).Scan(append(row.columns(), &m.key)...)
			if err != nil {
				return missing(err, chat)
			}
			m.chat = row.chat()
			return do(ctx, m)
		})
	})
}

// lockedAlive is locked for a chat that is not deleted. Otherwise it returns NotFound.
func (s *Store) lockedAlive(
	ctx context.Context, chat tidemark.ChatID, do func(ctx context.Context, m *membership) error,
) error {
	return s.locked(ctx, chat, func(ctx context.Context, m *membership) error {
		//rule:deleted_is_gone.nothing-is-changed-in-postgres
		if m.chat.State == tidemark.ChatDeleted {
			return storage.WasDeleted(chat)
		}
		return do(ctx, m)
	})
}

// next returns the members' version of the chat after the change.
func (m *membership) next() int64 { return int64(m.chat.MembersVersion) + 1 }

// changeable returns Denied for a direct chat.
func (m *membership) changeable() error {
	if m.chat.Type == tidemark.Direct {
		return tidemark.Errorf(tidemark.Denied, "the chat %s is direct; its members are fixed",
			m.chat.ID)
	}
	return nil
}

const membersNamed = `SELECT m.user_id, m.role, m.joined_at, m.intervals, m.metadata
	FROM unnest($2::text[]) AS u (id)
	CROSS JOIN LATERAL (SELECT * FROM members WHERE chat = $1 AND user_id = u.id LIMIT 1) AS m`

// named returns those of the users who are members, or were.
func (m *membership) named(
	ctx context.Context, users []tidemark.UserID,
) (map[tidemark.UserID]tidemark.Member, error) {
	rows, err := m.tx.Query(ctx, membersNamed, m.key, texts(users))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scanNamed(rows, len(users))
}

// scanNamed reads the rows of membersNamed.
func scanNamed(rows pgx.Rows, n int) (map[tidemark.UserID]tidemark.Member, error) {
	found := make(map[tidemark.UserID]tidemark.Member, n)
	for rows.Next() {
		var row memberRow
		if err := rows.Scan(row.columns()...); err != nil {
			return nil, err
		}
		member, err := row.member()
		if err != nil {
			return nil, err
		}
		found[member.UserID] = member
	}
	return found, rows.Err()
}

// A memberRow is a row of members.
type memberRow struct {
	user, role string
	joinedAt   int64
	intervals  string
	metadata   []byte
}

func (r *memberRow) columns() []any {
	return []any{&r.user, &r.role, &r.joinedAt, &r.intervals, &r.metadata}
}

func (r *memberRow) member() (tidemark.Member, error) {
	intervals, err := tidemark.ParseIntervals(r.intervals)
	return tidemark.Member{
		UserID:    tidemark.UserID(r.user),
		Role:      tidemark.Role(r.role),
		JoinedAt:  timeOf(r.joinedAt),
		Intervals: intervals,
		Metadata:  r.metadata,
	}, err
}

// The writes of a membership change.
//
// Here and elsewhere, current::int = 1 selects the present members. While the tables are small, a
// plain current would let the planner choose the index members_of_user. The connection would keep
// that plan, which reads the whole index.
const (
	putMembers = `INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, intervals,
			version)
		SELECT $1, u.id, $2, $6, $5, $7, u.intervals, $8::bigint
			FROM unnest($3::text[], $4::text[]) AS u (id, intervals)
		ON CONFLICT (chat, user_id) DO UPDATE
			SET current = excluded.current, role = excluded.role, joined_at = excluded.joined_at,
				intervals = excluded.intervals, metadata = NULL, version = excluded.version`
	startAtHead = `INSERT INTO delivery_state AS d
			(chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at)
		SELECT $1, u.id, $3, $3, $4, $4 FROM unnest($2::text[]) AS u (id) ORDER BY u.id COLLATE "C"
		ON CONFLICT (chat, user_id) DO UPDATE SET
			last_acked_sequence = greatest(d.last_acked_sequence, $3),
			last_read_sequence = greatest(d.last_read_sequence, $3),
			acked_at = CASE WHEN d.last_acked_sequence < $3 THEN $4 ELSE d.acked_at END,
			read_at = CASE WHEN d.last_read_sequence < $3 THEN $4 ELSE d.read_at END,
			unread_from = CASE WHEN d.last_read_sequence < $3 THEN 0 ELSE d.unread_from END,
			hidden_from = CASE WHEN d.last_read_sequence < $3 THEN 0 ELSE d.hidden_from END,
			shown_at = CASE WHEN d.last_read_sequence < $3 THEN 0 ELSE d.shown_at END
		WHERE d.last_acked_sequence < $3 OR d.last_read_sequence < $3`
	//rule:pending_once.stand-for-members-only
	standAll = `INSERT INTO pending_deliveries AS p (user_id, chat_id, first_undelivered_seq)
		SELECT m.user_id, m.chat_id, 0 FROM members AS m
			WHERE m.chat = $1 AND m.current::int = 1 ORDER BY m.user_id
		ON CONFLICT (user_id, chat_id) DO UPDATE SET first_undelivered_seq = 0
			WHERE p.first_undelivered_seq > 0`
	stand = `INSERT INTO pending_deliveries AS p (user_id, chat_id, first_undelivered_seq)
		SELECT u.id, $1, 0 FROM unnest($2::text[]) AS u (id) ORDER BY u.id COLLATE "C"
		ON CONFLICT (user_id, chat_id) DO UPDATE SET first_undelivered_seq = 0
			WHERE p.first_undelivered_seq > 0`
	setMembership = `UPDATE chats AS c
		SET member_count = $2, members_version = members_version + 1, large = $3, ` + opened + `
		WHERE key = $1`
	statesNamed = `SELECT u.id, ` + stateColumns + ` FROM unnest($2::text[]) AS u (id)
		LEFT JOIN LATERAL (SELECT * FROM delivery_state
			WHERE chat = $1 AND user_id = u.id LIMIT 1) AS d ON true ORDER BY u.id COLLATE "C"`
	leave = `UPDATE members SET current = false, intervals = $3, metadata = NULL, version = $4
		WHERE chat = $1 AND user_id = $2`
	updateMember = `UPDATE members SET role = $3, metadata = $4, version = $5
		WHERE chat = $1 AND user_id = $2`
	// hold creates the pending row if there is none, and locks it. A concurrent Mark then waits,
	// and writes its row afterwards. A DELETE alone would miss a row that is marked between its
	// snapshot and the commit.
	hold = `INSERT INTO pending_deliveries AS p (user_id, chat_id, first_undelivered_seq)
		VALUES ($1, $2, 1)
		ON CONFLICT (user_id, chat_id) DO UPDATE
			SET first_undelivered_seq = p.first_undelivered_seq`
	unmark = `DELETE FROM pending_deliveries WHERE user_id = $1 AND chat_id = $2`
)

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
	err := s.lockedAlive(ctx, chat, func(ctx context.Context, m *membership) error {
		err := m.changeable()
		if err == nil {
			added, err = m.add(ctx, users, role, now)
		}
		return err
	})
	if err != nil {
		return storage.Added{}, err
	}
	return added, nil
}

// add decides about all the users before it writes anything. users are sorted.
func (m *membership) add(
	ctx context.Context, users []tidemark.UserID, role tidemark.Role, now time.Time,
) (storage.Added, error) {
	known, err := m.unbanned(ctx, users)
	if err != nil {
		return storage.Added{}, err
	}
	added := storage.Added{Version: m.chat.MembersVersion, Head: m.chat.Head}
	var joining, intervals, first []string
	for _, user := range users {
		before, returning := known[user]
		if before.Intervals.Open() {
			continue
		}
		after := before.Intervals.Joined(m.chat.Head, m.chat.History, returning)
		if len(after) > tidemark.MaxIntervals {
			return storage.Added{}, tidemark.Errorf(tidemark.Denied,
				"%s has joined the chat %d times, which is the most", user, tidemark.MaxIntervals)
		}
		added.New = append(added.New, user)
		joining, intervals = append(joining, string(user)), append(intervals, after.Text())
		if !returning {
			first = append(first, string(user))
		}
	}
	members := m.chat.MemberCount + len(joining)
	if members > tidemark.MaxMembers {
		return storage.Added{}, tidemark.Errorf(tidemark.Denied,
			"the chat would have %d members, at most %d are allowed", members, tidemark.MaxMembers)
	}
	var batch pgx.Batch
	if len(joining) > 0 {
		added.Version++
		at := now.UnixMilli()
		batch.Queue(putMembers, m.key, string(m.chat.ID), joining, intervals,
			string(role), true, at, m.next())
		if m.chat.History == tidemark.HistorySinceJoin && m.chat.Head > 0 && len(first) > 0 {
			batch.Queue(startAtHead, m.key, first, int64(m.chat.Head), at)
		}
		large := m.chat.Large || members > tidemark.PendingFanoutLimit
		switch {
		case m.chat.Large:
			batch.Queue(stand, string(m.chat.ID), joining)
		case large:
			batch.Queue(standAll, m.key)
		}
		batch.Queue(setMembership, m.key, members, large)
	}
	batch.Queue(statesNamed, m.key, texts(users)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var user string
			var found stateRow
			if err := rows.Scan(append([]any{&user}, found.columns()...)...); err != nil {
				return err
			}
			added.States = append(added.States, found.state(tidemark.UserID(user), m.chat.ID))
		}
		return rows.Err()
	})
	return added, m.tx.SendBatch(ctx, &batch).Close()
}

// RemoveMember implements storage.Members.
func (s *Store) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, _ time.Time,
) (storage.Removed, error) {
	var removed storage.Removed
	err := s.lockedAlive(ctx, chat, func(ctx context.Context, m *membership) error {
		known, err := m.named(ctx, []tidemark.UserID{user})
		if err != nil {
			return err
		}
		member := known[user]
		if !member.Intervals.Open() {
			return notMember(chat, user)
		}
		if err := m.changeable(); err != nil {
			return err
		}
		var batch pgx.Batch
		if removed, err = m.end(ctx, &batch, member); err != nil {
			return err
		}
		return m.tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return storage.Removed{}, err
	}
	return removed, nil
}

// end queues the end of the membership of a current member of a group.
func (m *membership) end(
	ctx context.Context, batch *pgx.Batch, member tidemark.Member,
) (storage.Removed, error) {
	user, chat := member.UserID, m.chat.ID
	removed := storage.Removed{Version: m.chat.MembersVersion + 1, Head: m.chat.Head}
	if member.Role == tidemark.Owner {
		roster, err := m.roster(ctx)
		if err != nil {
			return removed, err
		}
		//rule:owner_always.succeed-at-removal-in-postgres
		if heir, found, _ := roster.Successor(user); found {
			removed.Successor = heir.UserID
			m.promote(batch, heir)
		}
	}
	batch.Queue(leave, m.key, string(user), member.Intervals.Left(m.chat.Head).Text(), m.next())
	//rule:pending_once.lock-row-at-removal
	batch.Queue(hold, string(user), string(chat))
	batch.Queue(unmark, string(user), string(chat))
	batch.Queue(setMembership, m.key, m.chat.MemberCount-1, m.chat.Large)
	return removed, nil
}

// roster reads all members of the locked chat.
func (m *membership) roster(ctx context.Context) (*tidemark.Roster, error) {
	rows, err := m.tx.Query(ctx, rostersOf, []string{string(m.chat.ID)})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make([]foundRoster, 1)
	for rows.Next() {
		if err := scanRoster(rows, []tidemark.ChatID{m.chat.ID}, found); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return found[0].roster, found[0].err
}

// promote makes a member an owner.
func (m *membership) promote(batch *pgx.Batch, heir tidemark.Member) {
	batch.Queue(updateMember, m.key, string(heir.UserID), string(tidemark.Owner),
		textOrNull(heir.Metadata), m.next())
}

// UpdateMember implements storage.Members.
func (s *Store) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	var updated storage.UpdatedMember
	err := s.lockedAlive(ctx, chat, func(ctx context.Context, m *membership) (err error) {
		updated, err = m.update(ctx, user, change)
		return err
	})
	if err != nil {
		return storage.UpdatedMember{}, err
	}
	return updated, nil
}

func (m *membership) update(
	ctx context.Context, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	known, err := m.named(ctx, []tidemark.UserID{user})
	if err != nil {
		return storage.UpdatedMember{}, err
	}
	before := known[user]
	if !before.Intervals.Open() {
		return storage.UpdatedMember{}, notMember(m.chat.ID, user)
	}
	if err := m.changeable(); err != nil {
		return storage.UpdatedMember{}, err
	}
	updated := storage.UpdatedMember{Version: m.chat.MembersVersion}
	after, changed := change.Apply(before)
	updated.Member = after
	if !changed {
		return updated, nil
	}
	var batch pgx.Batch
	if change.StopsOwning(before) {
		roster, err := m.roster(ctx)
		if err != nil {
			return storage.UpdatedMember{}, err
		}
		heir, err := storage.Heir(roster, user)
		if err != nil {
			return storage.UpdatedMember{}, err
		}
		//rule:owner_always.succeed-at-demotion-in-postgres
		if heir != nil {
			updated.Successor = heir.UserID
			m.promote(&batch, *heir)
		}
	}
	updated.Version++
	batch.Queue(updateMember, m.key, string(user), string(updated.Member.Role),
		textOrNull(updated.Member.Metadata), m.next())
	batch.Queue(setMembership, m.key, m.chat.MemberCount, m.chat.Large)
	return updated, m.tx.SendBatch(ctx, &batch).Close()
}

func notMember(chat tidemark.ChatID, user tidemark.UserID) error {
	return storage.NotSender(chat, user, false)
}

// rostersOf returns a row for each member, and one row for a chat without members. All chats are
// read in one snapshot. OFFSET 0 keeps the planner from turning the look-up of the members into a
// join of whole tables.
const rostersOf = `SELECT n.no, c.type, c.history, c.large, c.members_version, c.member_count,
	c.floor, coalesce(c.state, ''), coalesce(m.user_id, ''), coalesce(m.role, ''),
	coalesce(m.joined_at, 0), coalesce(m.intervals, ''), m.metadata
	FROM unnest($1::text[]) WITH ORDINALITY AS n (id, no)
	CROSS JOIN LATERAL (SELECT * FROM chats WHERE id = n.id LIMIT 1) AS c
	LEFT JOIN LATERAL (SELECT * FROM members WHERE chat = c.key AND current::int = 1 OFFSET 0) AS m
		ON true
	ORDER BY n.no, m.user_id`

// foundRoster is a roster, nil for a chat that does not exist, or why it is not valid.
type foundRoster struct {
	roster *tidemark.Roster
	err    error
}

// Rosters implements storage.Members.
func (s *Store) Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error) {
	found, err := through(ctx, s, s.rosters, chats)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	rosters := make([]*tidemark.Roster, len(found))
	for i := range found {
		if err := found[i].err; err != nil {
			return nil, err
		}
		rosters[i] = found[i].roster
	}
	return rosters, nil
}

// readRosters reads the rosters of several calls. A chat that is there several times is read once.
func readRosters(ctx context.Context, c *conn, chats []tidemark.ChatID) ([]foundRoster, error) {
	places := make(map[tidemark.ChatID]int, len(chats))
	var ids []tidemark.ChatID
	for _, id := range chats {
		//rule:bounded_use.read-a-roster-once
		if _, there := places[id]; !there {
			places[id] = len(ids)
			ids = append(ids, id)
		}
	}
	found := make([]foundRoster, len(ids))
	err := c.each(ctx, rostersOf, []any{texts(ids)}, func(row pgx.Rows) error {
		return scanRoster(row, ids, found)
	})
	if err != nil {
		return nil, err
	}
	all := make([]foundRoster, len(chats))
	for i, id := range chats {
		all[i] = found[places[id]]
	}
	return all, nil
}

// scanRoster adds a row of rostersOf to the roster of its chat. It returns an error only if the
// statement failed.
func scanRoster(row pgx.Rows, chats []tidemark.ChatID, rosters []foundRoster) error {
	var no int64
	var chat chatRow
	var m memberRow
	to := []any{
		&no, &chat.kind, &chat.history, &chat.large, &chat.version, &chat.members,
		&chat.floor, &chat.state,
	}
	if err := row.Scan(append(to, m.columns()...)...); err != nil {
		return err
	}
	found := &rosters[no-1]
	if found.roster == nil {
		found.roster = &tidemark.Roster{
			ChatID:  chats[no-1],
			State:   tidemark.ChatState(chat.state),
			Type:    tidemark.ChatType(chat.kind),
			History: tidemark.HistoryMode(chat.history),
			Large:   chat.large,
			Version: uint64(chat.version),
			Floor:   tidemark.Sequence(chat.floor),
			Members: make([]tidemark.Member, 0, chat.members),
		}
	}
	if m.user == "" {
		return nil
	}
	member, err := m.member()
	//rule:bounded_use.a-damaged-roster-alone
	if err != nil {
		found.err = err
	}
	found.roster.Members = append(found.roster.Members, member)
	return nil
}
