package sqlite

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// mayRelate returns nil if a message with a relation may be stored. A target is nil if the chat has
// no such message.
func (w *writer) mayRelate(
	c *chat, d *tidemark.Draft, targets []*tidemark.Message, role tidemark.Role,
) error {
	if d.Kind.Revises() {
		return d.MayRevise(targets, role, c.kind)
	}
	if err := d.MayAnnotate(targets[0], role, c.kind); err != nil {
		return err
	}
	standing, err := w.standing(c, d)
	if err != nil {
		return err
	}
	return standing.Allows(d)
}

// standing returns what a reaction or pin meets in the running transaction.
func (w *writer) standing(c *chat, d *tidemark.Draft) (s tidemark.Standing, err error) {
	text := `SELECT count(*), coalesce(max(iif(target = ?2, sequence, 0)), 0) FROM pins
		WHERE chat = ?1`
	if d.Kind == tidemark.KindReact {
		text = `SELECT count(*), coalesce(max(iif(emoji = ?4, sequence, 0)), 0) FROM reactions
			WHERE chat = ?1 AND target = ?2 AND user_id = ?3`
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return s, err
	}
	q.integer(1, c.key)
	q.integer(2, int64(d.Relation.Sequence))
	if d.Kind == tidemark.KindReact {
		q.string(3, string(d.SenderID))
		q.string(4, d.Relation.Emoji)
	}
	_, err = q.one(func(row *stmt) {
		s = tidemark.Standing{
			Count: int(row.integerAt(0)), Same: tidemark.Sequence(row.integerAt(1)),
		}
	})
	return s, err
}

// annotate adds the row of a reaction or pin that was just stored.
func (w *writer) annotate(c *chat, m *tidemark.Message) error {
	text := `INSERT INTO pins (chat, target, user_id, sequence, created_at)
		VALUES (?1, ?2, ?3, ?4, ?5)`
	if m.Kind == tidemark.KindReact {
		text = `INSERT INTO reactions (chat, target, user_id, sequence, created_at, emoji)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6)`
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.integer(2, int64(m.Relation.Sequence))
	q.string(3, string(m.SenderID))
	q.integer(4, int64(m.Sequence))
	q.integer(5, m.CreatedAt.UnixMilli())
	if m.Kind == tidemark.KindReact {
		q.string(6, m.Relation.Emoji)
	}
	return q.run()
}

// unannotate removes the row of a reaction or pin, which is gone if its target has expired.
func (w *writer) unannotate(c *chat, m *tidemark.Message) error {
	text := `DELETE FROM pins WHERE chat = ?1 AND target = ?2`
	if m.Kind == tidemark.KindReact {
		text = `DELETE FROM reactions WHERE chat = ?1 AND target = ?2 AND user_id = ?3
			AND emoji = ?4`
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.integer(2, int64(m.Relation.Sequence))
	if m.Kind == tidemark.KindReact {
		q.string(3, string(m.SenderID))
		q.string(4, m.Relation.Emoji)
	}
	return q.run()
}

const (
	// countReactions is one statement, so the counts and the head are of one state. A chat without
	// reactions in the range has one row, whose target is NULL. A deleted chat may still have rows,
	// below its floor.
	//
	//rule:annotations_counted.counts-and-head-of-one-state-in-sqlite
	countReactions = `SELECT c.head, r.target, r.emoji, count(*), min(r.sequence) AS oldest,
			max(iif(r.user_id = ?4, r.sequence, 0))
		FROM chats AS c
		LEFT JOIN reactions AS r
			ON r.chat = c.key AND r.target >= max(?2, c.floor) AND r.target <= ?3
		WHERE c.id = ?1 GROUP BY r.target, r.emoji ORDER BY r.target, oldest`
	//rule:deleted_is_gone.no-reactions-in-sqlite
	reactionsTo = `SELECT r.user_id, r.emoji, r.sequence, r.created_at
		FROM chats AS c CROSS JOIN reactions AS r ON r.chat = c.key
		WHERE c.id = ?1 AND c.floor <= ?2 AND r.target = ?2 AND r.sequence > ?3
		ORDER BY r.sequence LIMIT ?4`
	pinsOf = `SELECT p.target, p.sequence, p.user_id, p.created_at
		FROM chats AS c CROSS JOIN pins AS p ON p.chat = c.key
		WHERE c.id = ?1 AND p.target >= c.floor ORDER BY p.sequence DESC`
)

// Reactions implements storage.Annotations.
func (s *Store) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) (found []storage.ReactionCount, through tidemark.Sequence, err error) {
	if err := storage.CheckReactions(&q); err != nil {
		return nil, 0, err
	}
	err = s.read(ctx, func(c *conn) error {
		text, err := c.prepared(countReactions)
		if err != nil {
			return err
		}
		text.string(1, string(q.Chat))
		text.integer(2, int64(q.From))
		text.integer(3, int64(q.To))
		text.string(4, string(q.User))
		return text.each(func(row *stmt) bool {
			through = tidemark.Sequence(row.integerAt(0))
			if !row.nullAt(1) {
				found = append(found, storage.ReactionCount{
					Sequence: tidemark.Sequence(row.integerAt(1)),
					Emoji:    row.stringAt(2),
					Count:    row.integerAt(3),
					Own:      tidemark.Sequence(row.integerAt(5)),
				})
			}
			return true
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
) (reactions []storage.Reaction, more bool, err error) {
	err = s.read(ctx, func(c *conn) error {
		q, err := c.prepared(reactionsTo)
		if err != nil {
			return err
		}
		q.string(1, string(chat))
		q.integer(2, int64(target))
		q.integer(3, int64(after))
		q.integer(4, int64(limit)+1)
		return q.each(func(row *stmt) bool {
			if more = len(reactions) == limit; more {
				return false
			}
			reactions = append(reactions, storage.Reaction{
				Target:   target,
				User:     tidemark.UserID(row.stringAt(0)),
				Emoji:    row.stringAt(1),
				Sequence: tidemark.Sequence(row.integerAt(2)),
				At:       timeOf(row.integerAt(3)),
			})
			return true
		})
	})
	if err != nil {
		return nil, false, err
	}
	return reactions, more, nil
}

// Pins implements storage.Annotations.
func (s *Store) Pins(
	ctx context.Context, chat tidemark.ChatID,
) (pins []storage.Pin, err error) {
	err = s.read(ctx, func(c *conn) error {
		q, err := c.prepared(pinsOf)
		if err != nil {
			return err
		}
		q.string(1, string(chat))
		return q.each(func(row *stmt) bool {
			pins = append(pins, storage.Pin{
				Target:   tidemark.Sequence(row.integerAt(0)),
				Sequence: tidemark.Sequence(row.integerAt(1)),
				By:       tidemark.UserID(row.stringAt(2)),
				At:       timeOf(row.integerAt(3)),
			})
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	return pins, nil
}
