package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The statements of the transaction that stores a reaction or pin, or its redaction. It has locked
// the chats, so what stands stays as it is.
const (
	// standingReactions returns how many reactions of each user stand to a message, and which one
	// of these has the emoji.
	standingReactions = `SELECT (SELECT count(*) FROM reactions AS r
			WHERE r.chat = n.chat AND r.target = n.target AND r.user_id = n.user_id),
		coalesce((SELECT r.sequence FROM reactions AS r WHERE r.chat = n.chat
			AND r.target = n.target AND r.user_id = n.user_id AND r.emoji = n.emoji LIMIT 1), 0)
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])
			WITH ORDINALITY AS n (chat, target, user_id, emoji, no)
		ORDER BY n.no`
	// standingPins returns how many pins stand in each chat, and which one of these is that of a
	// message.
	standingPins = `SELECT (SELECT count(*) FROM pins AS p WHERE p.chat = n.chat),
		coalesce((SELECT p.sequence FROM pins AS p
			WHERE p.chat = n.chat AND p.target = n.target LIMIT 1), 0)
		FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS n (chat, target, no)
		ORDER BY n.no`
	insertReaction = `INSERT INTO reactions (chat, target, user_id, sequence, created_at, emoji)
		VALUES ($1, $2, $3, $4, $5, $6)`
	insertPin = `INSERT INTO pins (chat, target, user_id, sequence, created_at)
		VALUES ($1, $2, $3, $4, $5)`
	deleteReaction = `DELETE FROM reactions
		WHERE chat = $1 AND target = $2 AND user_id = $3 AND emoji = $4`
	deletePin = `DELETE FROM pins WHERE chat = $1 AND target = $2`
)

// mayStand reads what the accepted reactions and pins meet. It sets the errors of Standing.Allows.
func (a *appending) mayStand(
	ctx context.Context, c *conn, todo []int, verdicts []verdict, refused []error,
) error {
	for _, kind := range []tidemark.Kind{tidemark.KindReact, tidemark.KindPin} {
		var at []int
		var chats, targets []int64
		var users, emojis []string
		for n, i := range todo {
			d := &a.drafts[i]
			if d.Kind != kind || !verdicts[n].accepted() || refused[n] != nil {
				continue
			}
			at = append(at, n)
			chats = append(chats, verdicts[n].chat)
			targets = append(targets, int64(d.Relation.Sequence))
			users, emojis = append(users, string(d.SenderID)), append(emojis, d.Relation.Emoji)
		}
		if len(at) == 0 {
			continue
		}
		text, parameters := standingPins, []any{chats, targets}
		if kind == tidemark.KindReact {
			text, parameters = standingReactions, append(parameters, users, emojis)
		}
		next := 0
		err := c.each(ctx, text, parameters, func(row pgx.Rows) error {
			var count, same int64
			n := at[next]
			next++
			err := row.Scan(&count, &same)
			standing := tidemark.Standing{Count: int(count), Same: tidemark.Sequence(same)}
			refused[n] = standing.Allows(&a.drafts[todo[n]])
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// annotate queues what a stored reaction or pin, draft i, adds: to its own row, and the row with
// which it stands.
func (a *appending) annotate(batch *pgx.Batch, i int, v *verdict) {
	d := &a.drafts[i]
	target := int64(d.Relation.Sequence)
	change(batch, v, d.ChatID, relateMessage, tidemark.Sequence(v.sequence), target)
	text := insertPin
	parameters := []any{v.chat, target, string(d.SenderID), v.sequence, d.CreatedAt.UnixMilli()}
	if d.Kind == tidemark.KindReact {
		text, parameters = insertReaction, append(parameters, d.Relation.Emoji)
	}
	batch.Queue(text, parameters...)
}

// unannotate queues the removal of the row with which a reaction or pin stands. The row is gone if
// its target has expired.
func unannotate(batch *pgx.Batch, v *verdict, m *tidemark.Message) {
	target := int64(m.Relation.Sequence)
	if m.Kind == tidemark.KindReact {
		batch.Queue(deleteReaction, v.chat, target, string(m.SenderID), m.Relation.Emoji)
		return
	}
	batch.Queue(deletePin, v.chat, target)
}

const (
	// countReactions is one statement, so the counts and the head are of one state. A chat without
	// reactions in the range has one row, whose target is NULL. A deleted chat may still have rows,
	// below its floor.
	//
	//rule:annotations_counted.counts-and-head-of-one-state-in-postgres
	countReactions = `SELECT c.head, r.target, r.emoji, r.count, r.own
		FROM (SELECT key, head, floor FROM chats WHERE id = $1 LIMIT 1) AS c
		LEFT JOIN LATERAL (SELECT target, emoji, count(*) AS count, min(sequence) AS oldest,
				coalesce(max(sequence) FILTER (WHERE user_id = $4), 0) AS own
			FROM reactions
			WHERE chat = c.key AND target BETWEEN greatest($2, c.floor) AND $3
			GROUP BY target, emoji) AS r ON true
		ORDER BY r.target, r.oldest`
	//rule:deleted_is_gone.no-reactions-in-postgres
	reactionsTo = `SELECT r.user_id, r.emoji, r.sequence, r.created_at
		FROM (SELECT key FROM chats WHERE id = $1 AND floor <= $2 LIMIT 1) AS c
		CROSS JOIN LATERAL (SELECT user_id, emoji, sequence, created_at FROM reactions
			WHERE chat = c.key AND target = $2 AND sequence > $3
			ORDER BY sequence LIMIT $4) AS r
		ORDER BY r.sequence`
	pinsOf = `SELECT p.target, p.sequence, p.user_id, p.created_at
		FROM (SELECT key, floor FROM chats WHERE id = $1 LIMIT 1) AS c
		CROSS JOIN LATERAL (SELECT target, sequence, user_id, created_at FROM pins
			WHERE chat = c.key AND target >= c.floor ORDER BY target LIMIT $2) AS p
		ORDER BY p.sequence DESC`
)

// Reactions implements storage.Annotations.
func (s *Store) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) (found []storage.ReactionCount, through tidemark.Sequence, err error) {
	if err := storage.CheckReactions(&q); err != nil {
		return nil, 0, err
	}
	parameters := []any{string(q.Chat), column(q.From), column(q.To), string(q.User)}
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		found, through = nil, 0
		return c.each(ctx, countReactions, parameters, func(row pgx.Rows) error {
			var head int64
			var target, count, own *int64
			var emoji *string
			if err := row.Scan(&head, &target, &emoji, &count, &own); err != nil {
				return err
			}
			through = tidemark.Sequence(head)
			if target != nil {
				found = append(found, storage.ReactionCount{
					Sequence: tidemark.Sequence(*target),
					Emoji:    *emoji,
					Count:    *count,
					Own:      tidemark.Sequence(*own),
				})
			}
			return nil
		})
	})
	if err != nil {
		return nil, 0, err
	}
	return found, through, nil
}

// Reactors implements storage.Annotations.
func (s *Store) Reactors(
	ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence, limit int,
) ([]storage.Reaction, bool, error) {
	parameters := []any{string(chat), column(target), column(after), int64(limit) + 1}
	return list(ctx, s, reactionsTo, limit, parameters,
		func(row pgx.Rows) (storage.Reaction, error) {
			r := storage.Reaction{Target: target}
			var sequence, created int64
			err := row.Scan((*string)(&r.User), &r.Emoji, &sequence, &created)
			r.Sequence, r.At = tidemark.Sequence(sequence), timeOf(created)
			return r, err
		})
}

// Pins implements storage.Annotations.
func (s *Store) Pins(ctx context.Context, chat tidemark.ChatID) ([]storage.Pin, error) {
	pins, _, err := list(ctx, s, pinsOf, tidemark.MaxPins, []any{string(chat), tidemark.MaxPins},
		func(row pgx.Rows) (storage.Pin, error) {
			var p storage.Pin
			var target, sequence, created int64
			err := row.Scan(&target, &sequence, (*string)(&p.By), &created)
			p.Target, p.Sequence = tidemark.Sequence(target), tidemark.Sequence(sequence)
			p.At = timeOf(created)
			return p, err
		})
	return pins, err
}
