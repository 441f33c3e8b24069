package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Outbox = (*Store)(nil)

// opened is a part of each UPDATE of a chat c that makes news: it opens the chat's backlog for
// outlets, if that is not open. The shard is storage.ShardOf. It is computed only then.
//
//rule:told_or_owed.open-backlog-in-step-in-postgres
const opened = `outbox_shard = coalesce(c.outbox_shard,
		(get_byte(sha256(convert_to(c.id, 'UTF8')), 0) % 64)::smallint)`

// shardOf returns the shard of a chat as a parameter.
func shardOf(chat tidemark.ChatID) int16 { return int16(storage.ShardOf(chat)) }

// A position is a storage.Position as parameters or columns.
type position struct{ sequence, members, version int64 }

// positionOf returns a position as parameters. What is above every column is the highest value.
func positionOf(p storage.Position) position {
	p = p.Least(storage.Position{
		Sequence: math.MaxInt64, Members: math.MaxInt64, Version: math.MaxInt64,
	})
	return position{int64(p.Sequence), int64(p.Members), int64(p.Version)}
}

func (p *position) position() storage.Position {
	return storage.Position{
		Sequence: tidemark.Sequence(p.sequence), Members: uint64(p.members),
		Version: uint64(p.version),
	}
}

const (
	//rule:import_once.backlog-of-an-import-in-postgres
	backlogsOfAll = `SELECT id, outbox_shard, outbox_sequence, outbox_members, outbox_version,
			outbox_split, '', head, members_version, version, large,
			coalesce(state = 'importing', false)
		FROM chats
		WHERE outbox_shard = ANY ($1::smallint[]) AND (outbox_shard, id) > ($2::smallint, $3)
		ORDER BY outbox_shard, id LIMIT $4`
	// backlogsOfOutlet looks at one shard after the other. So it does not read those of others, of
	// which an outlet that is down may have millions.
	backlogsOfOutlet = `SELECT b.chat_id, b.shard, b.sequence, b.members, b.version, false, b.stamp,
			0::bigint, 0::bigint, 0::bigint, false, false
		FROM unnest($1::smallint[], $2::text[]) WITH ORDINALITY AS s (shard, after, no)
		CROSS JOIN LATERAL (SELECT * FROM outlet_backlogs
			WHERE outlet = $4 AND shard = s.shard AND chat_id > s.after
			ORDER BY chat_id LIMIT $3) AS b
		ORDER BY s.no, b.chat_id LIMIT $3`
	// backlogsOfChats reads a chat without a backlog, too. A condition in the subquery would fit
	// chats_in_outbox.
	backlogsOfChats = `SELECT c.id, c.outbox_shard, c.outbox_sequence, c.outbox_members,
			c.outbox_version, c.outbox_split, '', c.head, c.members_version, c.version, c.large,
			coalesce(c.state = 'importing', false)
		FROM unnest($1::text[]) AS n (id)
		CROSS JOIN LATERAL (SELECT * FROM chats WHERE id = n.id LIMIT 1) AS c
		WHERE c.outbox_shard IS NOT NULL`
	backlogsOfBoth = `SELECT b.chat_id, b.shard, b.sequence, b.members, b.version, false, b.stamp,
			0::bigint, 0::bigint, 0::bigint, false, false
		FROM unnest($1::text[], $2::smallint[]) AS n (id, shard)
		CROSS JOIN LATERAL (SELECT * FROM outlet_backlogs
			WHERE outlet = $3 AND shard = n.shard AND chat_id = n.id LIMIT 1) AS b`
)

// Backlogs implements storage.Outbox.
func (s *Store) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	if err := checkBatch(len(q.Chats)); err != nil {
		return nil, false, err
	}
	if len(q.Chats) > 0 {
		q.Limit = len(q.Chats)
	}
	text, parameters := backlogsQuery(&q)
	return list(ctx, s, text, q.Limit, parameters, func(row pgx.Rows) (storage.Backlog, error) {
		b := storage.Backlog{Outlet: q.Outlet}
		var from, end position
		err := row.Scan(&b.Chat, &b.Shard, &from.sequence, &from.members, &from.version, &b.Split,
			&b.Stamp, &end.sequence, &end.members, &end.version, &b.Large, &b.Importing)
		b.From, b.End = from.position(), end.position()
		return b, err
	})
}

// backlogsQuery returns the statement of a query, with its parameters.
func backlogsQuery(q *storage.BacklogQuery) (text string, parameters []any) {
	all := q.Outlet == storage.AllOutlets
	if len(q.Chats) > 0 {
		if all {
			return backlogsOfChats, []any{texts(q.Chats)}
		}
		shards := make([]int16, len(q.Chats))
		for i, chat := range q.Chats {
			shards[i] = shardOf(chat)
		}
		return backlogsOfBoth, []any{texts(q.Chats), shards, string(q.Outlet)}
	}
	shards := make([]int16, len(q.Shards))
	for i, shard := range q.Shards {
		shards[i] = int16(shard)
	}
	after := int16(q.After.Shard)
	if q.After.Chat == "" {
		after = -1
	}
	if all {
		return backlogsOfAll, []any{shards, after, string(q.After.Chat), int64(q.Limit) + 1}
	}
	shards = slices.DeleteFunc(shards, func(shard int16) bool { return shard < after })
	begin := make([]string, len(shards))
	if len(shards) > 0 && shards[0] == after {
		begin[0] = string(q.After.Chat)
	}
	return backlogsOfOutlet, []any{shards, begin, int64(q.Limit) + 1, string(q.Outlet)}
}

// rewind opens backlogs, or lets open ones begin lower. The rows are in the order of the key.
//
//rule:told_or_owed.rewind-to-least-in-postgres
const rewind = `INSERT INTO outlet_backlogs AS b
		(outlet, shard, chat_id, sequence, members, version, stamp)
	SELECT r.outlet, r.shard, r.chat_id, least(r.sequence, c.head),
		least(r.members, c.members_version), least(r.version, c.version), r.stamp
	FROM unnest($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
		$7::text[]) WITH ORDINALITY
		AS r (outlet, shard, chat_id, sequence, members, version, stamp, no)
	CROSS JOIN LATERAL (SELECT head, members_version, version FROM chats
		WHERE id = r.chat_id LIMIT 1) AS c
	ORDER BY r.no
	ON CONFLICT (outlet, shard, chat_id) DO UPDATE SET
		sequence = least(b.sequence, excluded.sequence),
		members = least(b.members, excluded.members),
		version = least(b.version, excluded.version), stamp = excluded.stamp`

// Rewind implements storage.Outbox.
func (s *Store) Rewind(ctx context.Context, backlogs []storage.Backlog) error {
	err := cmp.Or(storage.CheckRewind(backlogs), checkBatch(len(backlogs)))
	if err != nil || len(backlogs) == 0 {
		return err
	}
	backlogs = slices.Clone(backlogs)
	slices.SortFunc(backlogs, func(a, b storage.Backlog) int { return byKey(&a, &b) })
	n := len(backlogs)
	outlets, chats, stamps := make([]string, n), make([]string, n), make([]string, n)
	shards := make([]int16, n)
	sequences, members, versions := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, b := range backlogs {
		outlets[i], chats[i], shards[i] = string(b.Outlet), string(b.Chat), shardOf(b.Chat)
		from := positionOf(b.From)
		sequences[i], members[i], versions[i] = from.sequence, from.members, from.version
		stamps[i] = rand.Text()
	}
	return s.again(ctx, func(ctx context.Context, c *conn) error {
		_, err := c.Exec(ctx, rewind, outlets, shards, chats, sequences, members, versions, stamps)
		return err
	})
}

// again is change for what may be repeated.
func (s *Store) again(ctx context.Context, do func(context.Context, *conn) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	return s.health.Written("outbox", attempts(ctx, s.writers, mayRepeat, do))
}

const (
	// soon makes the commit of a transaction not wait for the disk. A crash may undo it, which
	// Settle may do.
	soon   = `SET LOCAL synchronous_commit = off`
	keysOf = `SELECT n.no, c.key FROM unnest($1::text[]) WITH ORDINALITY AS n (id, no)
		CROSS JOIN LATERAL (SELECT key FROM chats WHERE id = n.id LIMIT 1) AS c`
	// settleChats settles the backlogs of chats. $1 are their keys, ascending, so that the rows are
	// locked in this order. A simpler condition would fit chats_in_outbox.
	//
	//rule:told_or_owed.keep-backlog-of-later-news-in-postgres
	settleChats = `UPDATE chats AS c SET
			outbox_sequence = greatest(c.outbox_sequence,
				least(($5::bigint[])[width_bucket(c.key, $1)], c.head)),
			outbox_members = greatest(c.outbox_members,
				least(($6::bigint[])[width_bucket(c.key, $1)], c.members_version)),
			outbox_version = greatest(c.outbox_version,
				least(($7::bigint[])[width_bucket(c.key, $1)], c.version)),
			outbox_split = ($8::boolean[])[width_bucket(c.key, $1)],
			outbox_shard = CASE
				WHEN greatest(c.outbox_sequence, $5[width_bucket(c.key, $1)]) >= c.head
					AND greatest(c.outbox_members, $6[width_bucket(c.key, $1)]) >= c.members_version
					AND greatest(c.outbox_version, $7[width_bucket(c.key, $1)]) >= c.version
				THEN NULL
				ELSE c.outbox_shard END
		WHERE c.key = ANY ($1) AND coalesce(c.outbox_shard, -1) >= 0
			AND c.outbox_sequence = ($2::bigint[])[width_bucket(c.key, $1)]
			AND c.outbox_members = ($3::bigint[])[width_bucket(c.key, $1)]
			AND c.outbox_version = ($4::bigint[])[width_bucket(c.key, $1)]
		RETURNING c.key`
	positionsOfChats = `SELECT key, head, members_version, version FROM chats
		WHERE key = ANY ($1) ORDER BY key FOR NO KEY UPDATE`
	closeBacklog = `DELETE FROM outlet_backlogs WHERE outlet = $1 AND shard = $2 AND chat_id = $3
		AND sequence = $4 AND members = $5 AND version = $6 AND stamp = $7`
	//rule:told_in_order.move-what-was-read-in-postgres
	moveBacklog = `UPDATE outlet_backlogs SET sequence = $8, members = $9, version = $10
		WHERE outlet = $1 AND shard = $2 AND chat_id = $3
			AND sequence = $4 AND members = $5 AND version = $6 AND stamp = $7`
)

// Settle implements storage.Outbox.
func (s *Store) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	err := cmp.Or(storage.CheckSettle(items), checkBatch(len(items)))
	if err != nil || len(items) == 0 {
		return nil, err
	}
	settled := make([]bool, len(items))
	err = s.again(ctx, func(ctx context.Context, c *conn) error {
		clear(settled) // An attempt before may have had no answer.
		keys := make([]int64, len(items))
		chats := make([]string, len(items))
		for i := range items {
			chats[i] = string(items[i].Chat)
		}
		err := c.each(ctx, keysOf, []any{chats}, func(row pgx.Rows) error {
			var no, key int64
			err := row.Scan(&no, &key)
			if err == nil {
				keys[no-1] = key
			}
			return err
		})
		if err != nil {
			return err
		}
		// Locks are taken in the order of the keys, as by every statement that locks several chats.
		order := make([]int, 0, len(items))
		for i := range items {
			if keys[i] != 0 {
				order = append(order, i)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
		return settle(ctx, c, items, keys, order, settled)
	})
	if err != nil {
		return nil, err
	}
	return settled, nil
}

// settle settles backlogs in an order, and notes which of them were settled. Those of chats are one
// statement. Those of single outlets are transactions of ownAtOnce, because each locks its chats
// for a round trip.
func settle(
	ctx context.Context, c *conn, items []storage.Settlement, keys []int64, order []int,
	settled []bool,
) error {
	var chats, own []int
	for _, i := range order {
		if items[i].Outlet == storage.AllOutlets {
			chats = append(chats, i)
		} else {
			own = append(own, i)
		}
	}
	if len(chats) > 0 {
		err := c.soon(ctx, func(tx pgx.Tx) error {
			return settleForAll(ctx, tx, items, keys, chats, settled)
		})
		if err != nil {
			return err
		}
	}
	for some := range slices.Chunk(own, ownAtOnce) {
		err := c.soon(ctx, func(tx pgx.Tx) error {
			return settleOwn(ctx, tx, items, keys, some, settled)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ownAtOnce is how many backlogs of single outlets one transaction settles.
const ownAtOnce = 100

// settleForAll settles the backlogs of chats, of which order has the numbers by ascending keys.
func settleForAll(
	ctx context.Context, tx pgx.Tx, items []storage.Settlement, keys []int64, order []int,
	settled []bool,
) error {
	n := len(order)
	sorted, split := make([]int64, n), make([]bool, n)
	var from, to [3][]int64
	for place, i := range order {
		sorted[place], split[place] = keys[i], items[i].NowSplit
		a, b := positionOf(items[i].From), positionOf(items[i].To)
		for k, v := range [3]int64{a.sequence, a.members, a.version} {
			from[k] = append(from[k], v)
		}
		for k, v := range [3]int64{b.sequence, b.members, b.version} {
			to[k] = append(to[k], v)
		}
	}
	rows, err := tx.Query(ctx, settleChats, sorted, from[0], from[1], from[2], to[0], to[1], to[2],
		split)
	if err != nil {
		return err
	}
	var key int64
	_, err = pgx.ForEachRow(rows, []any{&key}, func() error {
		place, _ := slices.BinarySearch(sorted, key)
		settled[order[place]] = true
		return nil
	})
	return err
}

// settleOwn settles backlogs of single outlets, in one step with their chats: these are locked.
func settleOwn(
	ctx context.Context, tx pgx.Tx, items []storage.Settlement, keys []int64, order []int,
	settled []bool,
) error {
	sorted := make([]int64, len(order))
	for place, i := range order {
		sorted[place] = keys[i]
	}
	rows, err := tx.Query(ctx, positionsOfChats, slices.Compact(sorted))
	if err != nil {
		return err
	}
	ends := make(map[int64]storage.Position, len(order))
	var key int64
	var end position
	_, err = pgx.ForEachRow(rows, []any{&key, &end.sequence, &end.members, &end.version},
		func() error {
			ends[key] = end.position()
			return nil
		})
	if err != nil {
		return err
	}
	// The backlogs are locked in the order of their key, as by Rewind.
	order = slices.Clone(order)
	slices.SortFunc(order, func(a, b int) int {
		return byKey(&items[a].Backlog, &items[b].Backlog)
	})
	var batch pgx.Batch
	for _, i := range order {
		end, exists := ends[keys[i]]
		if !exists {
			continue
		}
		text, parameters := settlementOf(&items[i], end)
		batch.Queue(text, parameters...).Exec(func(done pgconn.CommandTag) error {
			settled[i] = done.RowsAffected() > 0
			return nil
		})
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// settlementOf returns the statement that settles the backlog of a single outlet, if its chat ends
// at a position.
func settlementOf(item *storage.Settlement, end storage.Position) (text string, parameters []any) {
	from, now := positionOf(item.From), item.From.Most(item.To.Least(end))
	same := []any{
		string(item.Outlet), shardOf(item.Chat), string(item.Chat), from.sequence, from.members,
		from.version, item.Stamp,
	}
	//rule:told_or_owed.keep-own-backlog-of-later-news-in-postgres
	if now == end {
		return closeBacklog, same
	}
	next := positionOf(now)
	return moveBacklog, append(same, next.sequence, next.members, next.version)
}

// byKey compares backlogs of single outlets by the key of their table.
func byKey(a, b *storage.Backlog) int {
	return cmp.Or(cmp.Compare(a.Outlet, b.Outlet), cmp.Compare(shardOf(a.Chat), shardOf(b.Chat)),
		cmp.Compare(a.Chat, b.Chat))
}

const eachChat = `SELECT id FROM chats WHERE id > $1 ORDER BY id LIMIT $2`

// EachChat implements storage.Outbox. The ids ascend.
func (s *Store) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	chats, more, err = list(ctx, s, eachChat, limit, []any{string(after), int64(limit) + 1},
		func(row pgx.Rows) (id tidemark.ChatID, err error) {
			err = row.Scan(&id)
			return id, err
		})
	if more {
		next = chats[len(chats)-1]
	}
	return chats, next, more, err
}

const (
	// membersSince finds the members that changed by their version, and sorts them by their ids.
	// OFFSET 0 keeps the planner from reading all members in the order of their ids.
	membersSince = `SELECT m.user_id, m.role, m.joined_at, m.intervals, m.metadata, m.version
		FROM (SELECT * FROM members
			WHERE chat = (SELECT key FROM chats
					WHERE id = $1 AND state IS DISTINCT FROM 'deleted' LIMIT 1)
				AND version > 1 AND version > $2 OFFSET 0) AS m
		WHERE m.user_id > $3 ORDER BY m.user_id LIMIT $4`
	// membersAll reads all members in the order of their ids.
	membersAll = `SELECT user_id, role, joined_at, intervals, metadata, version FROM members
		WHERE chat = (SELECT key FROM chats
				WHERE id = $1 AND state IS DISTINCT FROM 'deleted' LIMIT 1)
			AND version > $2 AND user_id > $3
		ORDER BY user_id LIMIT $4`
)

// MembersSince implements storage.Outbox.
func (s *Store) MembersSince(
	ctx context.Context, q storage.MembersQuery,
) ([]storage.ChangedMember, bool, error) {
	parameters := []any{string(q.Chat), int64(q.Since), string(q.After), int64(q.Limit) + 1}
	text := membersSince
	if q.Since == 0 {
		text = membersAll
	}
	return list(ctx, s, text, q.Limit, parameters,
		func(row pgx.Rows) (storage.ChangedMember, error) {
			var m memberRow
			var version int64
			if err := row.Scan(append(m.columns(), &version)...); err != nil {
				return storage.ChangedMember{}, err
			}
			member, err := m.member()
			return storage.ChangedMember{Member: member, Version: uint64(version)}, err
		})
}
