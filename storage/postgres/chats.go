package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// chatColumns are the columns that chatRow.columns scans, in the same order.
const chatColumns = `c.id, c.type, c.name, c.history, c.created_at, c.head, c.member_count,
	c.members_version, c.large, c.creation, c.version, c.floor,
	(SELECT metadata FROM chat_metadata WHERE chat = c.key LIMIT 1), coalesce(c.state, ''),
	coalesce(c.deleted_at, 0), coalesce(c.keep_days, 0), coalesce(c.hold, false),
	coalesce(c.read_receipts, '')`

// A chatRow is a row of chats.
type chatRow struct {
	id, kind, name, history  string
	createdAt, head, version int64
	members                  int
	large                    bool
	creation                 string
	changes, floor           int64
	metadata                 []byte
	rareRow
}

// A rareRow has the columns of a chat that are NULL for most of them.
type rareRow struct {
	state     string
	deletedAt int64
	policy    tidemark.Policy
}

// columns returns the destinations of chatColumns.
func (r *chatRow) columns() []any {
	return []any{
		&r.id, &r.kind, &r.name, &r.history, &r.createdAt, &r.head, &r.members, &r.version,
		&r.large, &r.creation, &r.changes, &r.floor, &r.metadata, &r.state,
		&r.deletedAt, &r.policy.KeepDays, &r.policy.Hold, &r.policy.Receipts,
	}
}

func (r *chatRow) chat() tidemark.Chat {
	chat := tidemark.Chat{
		ID:             tidemark.ChatID(r.id),
		State:          tidemark.ChatState(r.state),
		Type:           tidemark.ChatType(r.kind),
		Name:           r.name,
		History:        tidemark.HistoryMode(r.history),
		CreatedAt:      timeOf(r.createdAt),
		Head:           tidemark.Sequence(r.head),
		Floor:          tidemark.Sequence(r.floor),
		MemberCount:    r.members,
		MembersVersion: uint64(r.version),
		Large:          r.large,
		Creation:       r.creation,
		Version:        uint64(r.changes),
		Metadata:       r.metadata,
	}
	chat.Policy = r.policy
	if r.deletedAt != 0 {
		chat.DeletedAt = timeOf(r.deletedAt)
	}
	return chat
}

func noChat(id tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotFound, "there is no chat %s", id)
}

// missing returns NotFound for pgx.ErrNoRows, and any other error as it is. It is for statements
// that return a row for each chat that exists.
func missing(err error, id tidemark.ChatID) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return noChat(id)
	}
	return err
}

// insertChat creates a chat with its members. It returns no row if the id or the pair of a direct
// chat is taken.
const insertChat = `WITH chat AS (
	INSERT INTO chats (id, type, history, name, direct_key, created_at, activity_at, member_count,
		large, creation, outbox_shard, state)
	VALUES ($1, $2, $3, $4, $5, $6, $6, cardinality($7::text[]), $9, $12, $14, $15)
		ON CONFLICT DO NOTHING
		RETURNING key
), described AS (
	INSERT INTO chat_metadata (chat, metadata) SELECT key, $13::text FROM chat
		WHERE $13::text IS NOT NULL
), joined AS (
	INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat, intervals)
	SELECT c.key, u.id, $1, true, CASE WHEN u.id = $8 THEN $10 ELSE $11 END, $6,
			CASE WHEN $5::text IS NULL THEN 0 ELSE u.no END, '1-'
		FROM chat AS c, unnest($7::text[]) WITH ORDINALITY AS u (id, no)
), standing AS (
	INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq) SELECT u.id, $1, 0
		FROM chat AS c, unnest($7::text[]) AS u (id) WHERE $9
	ON CONFLICT (user_id, chat_id) DO UPDATE SET first_undelivered_seq = 0
)
SELECT key FROM chat`

const (
	chatByID   = `SELECT ` + chatColumns + ` FROM chats AS c WHERE c.id = $1`
	chatByPair = `SELECT ` + chatColumns + ` FROM chats AS c WHERE c.direct_key = $1`
)

// CreateChat implements storage.Chats.
func (s *Store) CreateChat(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	var pair *string
	if new.Type == tidemark.Direct {
		key := tidemark.DirectKey(new.Members[0], new.Members[1])
		pair = &key
	}
	members := make([]string, len(new.Members))
	for i, user := range new.Members {
		members[i] = string(user)
	}
	slices.Sort(members)
	chat := new.Chat(timeOf(new.CreatedAt.UnixMilli()))
	created := false
	err := s.change(ctx, func(ctx context.Context, c *conn) error {
		if pair != nil {
			// Most direct chats exist when a client opens them. Looking first saves the write.
			found, err := c.chat(ctx, chatByPair, *pair)
			if !errors.Is(err, pgx.ErrNoRows) {
				chat = found
				return err
			}
		}
		var key int64
		insert := func(by querier) error {
			return by.QueryRow(ctx, insertChat, string(chat.ID), string(chat.Type),
				string(chat.History), chat.Name, pair, chat.CreatedAt.UnixMilli(), members,
				string(new.Creator), chat.Large, string(tidemark.Owner),
				string(tidemark.Ordinary), chat.Creation, textOrNull(chat.Metadata),
				shardOf(chat.ID), stateOrNull(chat.State)).Scan(&key)
		}
		var err error
		if pair != nil && chat.State == tidemark.ChatLive {
			err = c.open(ctx, new, insert)
		} else {
			err = insert(c)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			created = err == nil
			return err
		}
		if pair != nil {
			found, err := c.chat(ctx, chatByPair, *pair)
			if !errors.Is(err, pgx.ErrNoRows) {
				chat = found
				return err
			}
		}
		return storage.Taken(new.ID)
	})
	if err != nil {
		return tidemark.Chat{}, false, err
	}
	return chat, created, nil
}

// chat runs a statement with one parameter that finds at most one chat. It returns pgx.ErrNoRows if
// there is none.
func (c *conn) chat(ctx context.Context, text, parameter string) (tidemark.Chat, error) {
	var row chatRow
	err := c.QueryRow(ctx, text, parameter).Scan(row.columns()...)
	return row.chat(), err
}

// Chat implements storage.Chats.
func (s *Store) Chat(ctx context.Context, id tidemark.ChatID) (chat tidemark.Chat, err error) {
	err = s.read(ctx, func(ctx context.Context, c *conn) (err error) {
		chat, err = c.chat(ctx, chatByID, string(id))
		return missing(err, id)
	})
	if err != nil {
		return tidemark.Chat{}, err
	}
	return chat, nil
}

// textOrNull returns JSON as the parameter of a text column. nil is NULL.
func textOrNull(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	text := string(raw)
	return &text
}

// stateOrNull returns a state as the parameter of its column. NULL is live.
func stateOrNull(state tidemark.ChatState) *string {
	if state == tidemark.ChatLive {
		return nil
	}
	text := string(state)
	return &text
}

const (
	keyOfChat  = `SELECT key FROM chats WHERE id = $1 FOR UPDATE`
	updateChat = `WITH dropped AS (
		DELETE FROM chat_metadata WHERE chat = $1 AND $4::text IS NULL
	), described AS (
		INSERT INTO chat_metadata (chat, metadata) SELECT $1, $4::text WHERE $4::text IS NOT NULL
		ON CONFLICT (chat) DO UPDATE SET metadata = excluded.metadata
	)
	UPDATE chats AS c SET name = $2, version = $3, keep_days = nullif($5::integer, 0),
		hold = nullif($6::boolean, false), read_receipts = nullif($7::text, ''), ` + opened + `
		WHERE key = $1`
)

// UpdateChat implements storage.Chats.
func (s *Store) UpdateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	var chat tidemark.Chat
	err := s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			var key int64
			// The lock comes first: what a later statement reads is then the latest.
			err := tx.QueryRow(ctx, keyOfChat, string(id)).Scan(&key)
			if err != nil {
				return missing(err, id)
			}
			var row chatRow
			err = tx.QueryRow(ctx, chatByID, string(id)).Scan(row.columns()...)
			if err == nil {
				err = alive(&row)
			}
			if err != nil {
				return err
			}
			var changed bool
			if chat, changed = change.Apply(row.chat()); !changed {
				return nil
			}
			_, err = tx.Exec(ctx, updateChat, key, chat.Name, int64(chat.Version),
				textOrNull(chat.Metadata), chat.Policy.KeepDays, chat.Policy.Hold,
				string(chat.Policy.Receipts))
			return err
		})
	})
	if err != nil {
		return tidemark.Chat{}, err
	}
	return chat, nil
}

const headsOf = `SELECT n.no, c.head FROM unnest($1::text[]) WITH ORDINALITY AS n (id, no)
	CROSS JOIN LATERAL (SELECT head FROM chats WHERE id = n.id LIMIT 1) AS c`

// Heads implements storage.Chats.
func (s *Store) Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error) {
	if err := checkBatch(len(chats)); err != nil || len(chats) == 0 {
		return nil, err
	}
	heads := make([]tidemark.Sequence, len(chats))
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		return c.each(ctx, headsOf, []any{texts(chats)}, func(row pgx.Rows) error {
			var no, head int64
			err := row.Scan(&no, &head)
			if err == nil {
				heads[no-1] = tidemark.Sequence(head)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}

// texts returns ids as strings, for a parameter of type text[].
func texts[T ~string](ids []T) []string {
	plain := make([]string, len(ids))
	for i, id := range ids {
		plain[i] = string(id)
	}
	return plain
}

// conversationsByActivity lists a user's chats, the latest activity first. It reads all chats of
// the user, since every message changes the order, and the other tables for one page only.
const conversationsByActivity = `SELECT ` + chatColumns + `,
	c.activity_at, c.role, ` + stateColumns + `, ` + accountColumns + `
	FROM (
		SELECT c.*, m.intervals AS visible, m.seat, m.role, m.expired
		FROM members AS m
		CROSS JOIN LATERAL (SELECT * FROM chats WHERE key = m.chat LIMIT 1) AS c
		WHERE m.user_id = $1 AND m.current
			AND (c.activity_at < $2 OR (c.activity_at = $2 AND c.id > $3))
		ORDER BY c.activity_at DESC, c.id LIMIT $4
	) AS c
	CROSS JOIN LATERAL (SELECT $1 AS user_id, c.seat, c.visible AS intervals, c.expired) AS m
` + accountRows + `
	ORDER BY c.activity_at DESC, c.id`

// ChatsOf implements storage.Chats. One statement reads the chats, one their last messages, and at
// most two count (accounts.count).
func (s *Store) ChatsOf(
	ctx context.Context, user tidemark.UserID, page storage.ChatsPage,
) ([]storage.ChatListItem, bool, error) {
	activity := int64(math.MaxInt64)
	if page.ChatID != "" {
		activity = page.Activity.UnixMilli()
	}
	var l listing
	more := false
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		return counted(func() error {
			l = listing{user: user, brief: page.Brief}
			err := c.each(ctx, conversationsByActivity,
				[]any{string(user), activity, string(page.ChatID), int64(page.Limit) + 1}, l.add)
			if more = len(l.conversations) > page.Limit; more {
				l.conversations = l.conversations[:page.Limit]
				l.accounts = l.accounts[:page.Limit]
			}
			if err != nil || page.Brief {
				return err
			}
			if err := l.last(ctx, c); err != nil {
				return err
			}
			counts, err := l.accounts.count(ctx, c)
			for i := range counts {
				l.conversations[i].Unread = counts[i]
			}
			return err
		})
	})
	if err != nil {
		return nil, false, err
	}
	return l.conversations, more, nil
}

// A listing is a page of a user's chats while it is being read.
type listing struct {
	user          tidemark.UserID
	brief         bool
	conversations []storage.ChatListItem
	accounts      accounts
}

// add appends a row of conversationsByActivity.
func (l *listing) add(row pgx.Rows) error {
	var chat chatRow
	var activity int64
	var role string
	var found stateRow
	var account accountRow
	to := append(append(chat.columns(), &activity, &role), found.columns()...)
	if err := row.Scan(append(to, account.columns()...)...); err != nil {
		return err
	}
	c := storage.ChatListItem{Chat: chat.chat(), Activity: timeOf(activity)}
	if !l.brief {
		c.Role = tidemark.Role(role)
	}
	c.State = found.state(l.user, c.Chat.ID)
	l.conversations = append(l.conversations, c)
	return l.accounts.add(&account, l.user)
}

// messagesAt sorts by sequence, an order that only the primary key has. While the tables are small,
// the planner would choose messages_by_key as well.
const messagesAt = `SELECT n.no, ` + messageColumns + `
	FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS n (chat, sequence, no)
	CROSS JOIN LATERAL (SELECT * FROM messages
		WHERE chat = n.chat AND sequence BETWEEN n.sequence AND n.sequence
		ORDER BY sequence LIMIT 1) AS m`

// last reads the last message of each chat, if the user may see it.
func (l *listing) last(ctx context.Context, c *conn) error {
	var keys, sequences []int64
	var at []int
	for i := range l.conversations {
		chat := &l.conversations[i].Chat
		head := chat.Head
		if head >= chat.Floor && l.accounts[i].Visible.Contains(head) {
			keys, sequences = append(keys, l.accounts[i].chat), append(sequences, int64(head))
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	var no int64
	var m messageRow
	to := append([]any{&no}, m.columns()...)
	return c.each(ctx, messagesAt, []any{keys, sequences}, func(row pgx.Rows) error {
		if err := row.Scan(to...); err != nil {
			return err
		}
		found := &l.conversations[at[no-1]]
		last, err := m.message(found.Chat.ID)
		found.Last = &last
		return err
	})
}
