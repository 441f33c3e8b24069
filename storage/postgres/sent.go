package postgres

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// sequenceUnder finds the message with an idempotency key, 0 if there is none. An unknown chat
// returns no row.
const sequenceUnder = `SELECT c.members_version, coalesce((SELECT m.sequence FROM messages AS m
		WHERE m.client_message_id = $3 AND m.sender_id = $2 AND m.chat = c.key LIMIT 1), 0),
		coalesce(c.state, '')
	FROM chats AS c WHERE c.id = $1`

// Sent implements storage.Messages.
func (s *Store) Sent(
	ctx context.Context, key storage.SendKey,
) (appended storage.Appended, found bool, err error) {
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		appended, found = storage.Appended{}, false
		var version, sequence int64
		chat := chatRow{id: string(key.Chat)}
		err := c.QueryRow(ctx, sequenceUnder, string(key.Chat), string(key.Sender),
			key.ClientMessageID).Scan(&version, &sequence, &chat.state)
		if err = missing(err, key.Chat); err == nil {
			err = alive(&chat)
		}
		if err != nil || sequence == 0 {
			return err
		}
		pages, err := c.ranges(ctx, []storage.Range{
			{Chat: key.Chat, After: tidemark.Sequence(sequence) - 1, Limit: 1},
		})
		if err != nil {
			return err
		}
		// The message may have expired meanwhile.
		page := pages[0]
		if len(page) == 0 || page[0].Sequence != tidemark.Sequence(sequence) {
			return nil
		}
		appended, found = storage.Appended{
			Message: page[0], Duplicate: true, Version: uint64(version),
		}, true
		if err := storage.Relate(ctx, &appended, c.ranges); err != nil {
			return err
		}
		//rule:confirmed_is_durable.confirm-what-was-sent
		_, err = c.Exec(ctx, waitForStandbys)
		return err
	})
	if err != nil {
		return storage.Appended{}, false, err
	}
	return appended, found, nil
}
