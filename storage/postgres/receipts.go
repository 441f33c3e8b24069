package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	setReceipts = `INSERT INTO receipts (user_id, chat, hidden) VALUES ($1, $2, $3)
		ON CONFLICT (user_id, chat) DO UPDATE SET hidden = excluded.hidden`
	unsetReceipts = `DELETE FROM receipts WHERE user_id = $1 AND chat = $2`
	receiptsOf    = `SELECT (SELECT hidden FROM receipts WHERE user_id = $1
			AND chat = (SELECT key FROM chats WHERE id = $2)),
		(SELECT hidden FROM receipts WHERE user_id = $1 AND chat = 0)`
)

// SetReceipts implements storage.Receipts.
func (s *Store) SetReceipts(
	ctx context.Context, user tidemark.UserID, id tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	if err := storage.CheckReceipts(id, setting); err != nil {
		return err
	}
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			var key, head int64
			if id != "" {
				found := chatRow{id: string(id)}
				err := tx.QueryRow(ctx, headOfChat, string(id)).Scan(&key, &head, &found.state)
				if err = missing(err, id); err == nil {
					err = alive(&found)
				}
				if err != nil {
					return err
				}
			}
			if setting == tidemark.ReceiptsDefault {
				_, err := tx.Exec(ctx, unsetReceipts, string(user), key)
				return err
			}
			_, err := tx.Exec(ctx, setReceipts, string(user), key,
				setting == tidemark.ReceiptsOff)
			return err
		})
	})
}

// ReceiptsOf implements storage.Receipts.
func (s *Store) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		var one, all *bool
		err := c.QueryRow(ctx, receiptsOf, string(user), string(chat)).Scan(&one, &all)
		inChat = settingOf(one, tidemark.ReceiptsDefault)
		inAll = settingOf(all, tidemark.ReceiptsOn)
		return err
	})
	return inChat, inAll, err
}

// settingOf returns the setting of a column, or a default if it is NULL.
func settingOf(hidden *bool, absent tidemark.ReceiptsSetting) tidemark.ReceiptsSetting {
	switch {
	case hidden == nil:
		return absent
	case *hidden:
		return tidemark.ReceiptsOff
	}
	return tidemark.ReceiptsOn
}
