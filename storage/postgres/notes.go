package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// isNoted reports whether a draft needs more than appendDrafts writes. That may be rows that say
// that it does not count as unread, or whom it names. It may also be changes of a relation and its
// target, or the row of a reaction or pin.
func isNoted(d *tidemark.Draft) bool { return !d.Kind.Counts() || !d.Mentions.None() }

// The statements of note. The transaction has locked the chats.
const (
	// insertUncounted continues the ordinals of a chat.
	insertUncounted = `INSERT INTO uncounted (chat, sequence, ordinal)
		SELECT c.key, u.sequence, c.uncounted + u.no
		FROM (SELECT key, uncounted FROM chats WHERE id = $1 LIMIT 1) AS c,
			unnest($2::bigint[]) WITH ORDINALITY AS u (sequence, no)`
	countUncounted = `UPDATE chats SET uncounted = uncounted + $2, last_uncounted = $3
		WHERE id = $1`
	insertMentions = `INSERT INTO mentions (chat, user_id, sequence, sender_id)
		SELECT c.key, u.id, $2, $3
		FROM (SELECT key FROM chats WHERE id = $1 LIMIT 1) AS c, unnest($4::text[]) AS u (id)`
)

// note stores which of the messages do not count as unread, and whom the others name. It also
// changes the target of an edit or a redaction, and adds the row of a reaction or pin.
func (a *appending) note(ctx context.Context, c *conn, todo []int, verdicts []verdict) error {
	var batch pgx.Batch
	uncounted := map[tidemark.ChatID][]int64{}
	for n, i := range todo {
		d, sequence := &a.drafts[i], verdicts[n].sequence
		if sequence == 0 {
			continue
		}
		switch {
		case d.Kind.Revises():
			//rule:redacted_stays.target-in-step-of-relation-in-postgres
			a.revise(&batch, i, &verdicts[n])
		case d.Kind.Annotates():
			//rule:annotations_counted.stands-in-step-of-message-in-postgres
			a.annotate(&batch, i, &verdicts[n])
		}
		switch {
		case !d.Kind.Counts():
			//rule:unread_exact.number-what-does-not-count-in-postgres
			uncounted[d.ChatID] = append(uncounted[d.ChatID], sequence)
		case d.Mentions.All:
			batch.Queue(insertMentions, string(d.ChatID), sequence, string(d.SenderID),
				[]string{unread.Everyone})
		case len(d.Mentions.Users) > 0:
			batch.Queue(insertMentions, string(d.ChatID), sequence, string(d.SenderID),
				texts(d.Mentions.Users))
		}
	}
	for chat, sequences := range uncounted { // in any order: the chats are locked
		n := len(sequences)
		batch.Queue(insertUncounted, string(chat), sequences)
		batch.Queue(countUncounted, string(chat), n, sequences[n-1])
	}
	return c.SendBatch(ctx, &batch).Close()
}
