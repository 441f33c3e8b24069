package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// The statements of Expire. The transaction has locked the chat, so its messages stay as they are.
const (
	agedMessages = `SELECT sequence, created_at, sender_id, kind IS NULL, mentions,
			revision IS NOT NULL
		FROM messages WHERE chat = $1 AND sequence >= $2 ORDER BY sequence LIMIT $3`
	raiseFloor = `UPDATE chats SET floor = $2 WHERE key = $1`
	// removeMessages sorts by sequence, an order that only the primary key has (messagesAt). It
	// names the chat and the sequences, too, because each partition of messages may have a row of
	// that ctid. The additions of 0 keep the planner from choosing another index for them.
	removeMessages = `DELETE FROM messages WHERE chat + 0 = $1 AND sequence + 0 BETWEEN $2 AND $3
		AND ctid = ANY (ARRAY(SELECT ctid FROM messages
			WHERE chat = $1 AND sequence BETWEEN $2 AND $3 ORDER BY sequence))`
	countExpired = `UPDATE members AS m SET expired = m.expired + n.sent
		FROM unnest($2::text[], $3::bigint[]) AS n (user_id, sent)
		WHERE m.chat = $1 AND m.user_id = n.user_id`
	// removeUncounted keeps the last row below the floor: its ordinal says how many there are.
	removeUncounted = `DELETE FROM uncounted WHERE chat = $1 AND sequence < (SELECT max(sequence)
		FROM uncounted WHERE chat = $1 AND sequence < $2)`
	removeMentions = `DELETE FROM mentions
		WHERE chat = $1 AND sequence < $2 AND user_id = ANY ($3::text[])`
	removeAllMentions = `DELETE FROM mentions WHERE chat = $1 AND sequence < $2`
	removeReactions   = `DELETE FROM reactions WHERE chat = $1 AND target < $2`
	removePins        = `DELETE FROM pins WHERE chat = $1 AND target < $2`
)

// Expire implements storage.Retention. The floor and the messages change in one transaction, so no
// message is ever left below the floor.
func (s *Store) Expire(
	ctx context.Context, id tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	if err := storage.CheckExpire(before, limit); err != nil {
		return storage.Expired{}, err
	}
	var done storage.Expired
	err := s.locked(ctx, id, func(ctx context.Context, m *membership) error {
		//rule:held_is_kept.nothing-expires-in-postgres
		if err := storage.OnHold(id, m.chat.Policy); err != nil {
			return err
		}
		old, err := m.aged(ctx, before.UnixMilli(), limit)
		if err != nil {
			return err
		}
		done = storage.Expired{
			Floor: m.chat.Floor + tidemark.Sequence(old.messages), Removed: old.messages,
		}
		if old.messages == 0 {
			return nil
		}
		return m.remove(ctx, old, int64(done.Floor))
	})
	if err != nil {
		return storage.Expired{}, err
	}
	return done, nil
}

const policiesOf = `SELECT n.no, coalesce(c.keep_days, 0), coalesce(c.hold, false),
		coalesce(c.read_receipts, '')
	FROM unnest($1::text[]) WITH ORDINALITY AS n (id, no)
	CROSS JOIN LATERAL (SELECT keep_days, hold, read_receipts FROM chats
		WHERE id = n.id LIMIT 1) AS c`

// Policies implements storage.Retention.
func (s *Store) Policies(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Policy, error) {
	if err := checkBatch(len(chats)); err != nil || len(chats) == 0 {
		return nil, err
	}
	policies := make([]tidemark.Policy, len(chats))
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		return c.each(ctx, policiesOf, []any{texts(chats)}, func(row pgx.Rows) error {
			var no int64
			var policy tidemark.Policy
			err := row.Scan(&no, &policy.KeepDays, &policy.Hold, &policy.Receipts)
			if err == nil {
				policies[no-1] = policy
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return policies, nil
}

// aged are the first messages of a chat, as far as they are old.
type aged struct {
	messages int
	// sent has the number of those that count, by their senders.
	sent map[string]int64
	// named has whom they name. If changed is set, some of them have named others before.
	named   map[string]bool
	changed bool
}

// aged reads at most limit of the first messages of the chat, as far as they were created before a
// time in milliseconds.
func (m *membership) aged(ctx context.Context, before int64, limit int) (aged, error) {
	old := aged{sent: make(map[string]int64), named: make(map[string]bool)}
	rows, err := m.tx.Query(ctx, agedMessages, m.key, column(m.chat.Floor), limit)
	if err != nil {
		return old, err
	}
	defer rows.Close()
	for rows.Next() {
		var sequence, created int64
		var sender string
		var counts, changed bool
		var mentions *string
		err := rows.Scan(&sequence, &created, &sender, &counts, &mentions, &changed)
		if err != nil {
			return old, err
		}
		next := m.chat.Floor + tidemark.Sequence(old.messages)
		if tidemark.Sequence(sequence) != next {
			return old, &hole{m.chat.ID, next}
		}
		//rule:floor_recorded.stop-at-the-first-younger-message-in-postgres
		if created >= before {
			break
		}
		old.messages++
		if !counts {
			continue
		}
		//rule:unread_exact.count-own-that-expire-in-postgres
		old.sent[sender]++
		old.changed = old.changed || changed
		if mentions != nil {
			old.name(tidemark.ParseMentions(*mentions))
		}
	}
	return old, rows.Err()
}

// name notes whom a message names.
func (a *aged) name(mentions tidemark.Mentions) {
	for _, name := range mentions.Users {
		a.named[string(name)] = true
	}
	if mentions.All {
		a.named[unread.Everyone] = true
	}
}

// remove raises the floor of the chat, and removes what is below it. A message that was changed
// does not say any more whom it named first. Then all mentions of the chat are looked at.
func (m *membership) remove(ctx context.Context, old aged, floor int64) error {
	var batch pgx.Batch
	batch.Queue(raiseFloor, m.key, floor)
	batch.Queue(removeMessages, m.key, column(m.chat.Floor), floor-1)
	batch.Queue(removeUncounted, m.key, floor)
	//rule:annotations_counted.reactions-expire-in-postgres
	batch.Queue(removeReactions, m.key, floor)
	//rule:annotations_counted.pins-expire-in-postgres
	batch.Queue(removePins, m.key, floor)
	users, sent := make([]string, 0, len(old.sent)), make([]int64, 0, len(old.sent))
	for user, n := range old.sent {
		users, sent = append(users, user), append(sent, n)
	}
	batch.Queue(countExpired, m.key, users, sent)
	names := make([]string, 0, len(old.named))
	for name := range old.named {
		names = append(names, name)
	}
	slices.Sort(names)
	switch {
	case old.changed:
		batch.Queue(removeAllMentions, m.key, floor)
	case len(names) > 0:
		batch.Queue(removeMentions, m.key, floor, names)
	}
	return m.tx.SendBatch(ctx, &batch).Close()
}
