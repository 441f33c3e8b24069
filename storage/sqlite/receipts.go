package sqlite

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// hides reports whether what a user reads in a chat is hidden.
func (w *writer) hides(c *chat, user tidemark.UserID) (hidden bool, err error) {
	//rule:shown_within_real.policy-first-in-sqlite
	if c.receipts != tidemark.ReceiptsOptional {
		return c.receipts.Hides(false), nil
	}
	q, err := w.c.prepared(`SELECT chat, hidden FROM receipts
		WHERE user_id = ? AND chat IN (0, ?)`)
	if err != nil {
		return false, err
	}
	q.string(1, string(user))
	q.integer(2, c.key)
	alone := false
	err = q.each(func(row *stmt) bool {
		if key := row.integerAt(0); key != 0 || !alone {
			alone, hidden = key != 0, row.integerAt(1) != 0
		}
		return true
	})
	return hidden, err
}

// SetReceipts implements storage.Receipts.
func (s *Store) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	if err := storage.CheckReceipts(chat, setting); err != nil {
		return err
	}
	return s.change(ctx, func(w *writer) error {
		var key int64
		if chat != "" {
			c, err := w.alive(chat)
			if err != nil {
				return err
			}
			key = c.key
		}
		text := `INSERT INTO receipts (user_id, chat, hidden) VALUES (?1, ?2, ?3)
			ON CONFLICT DO UPDATE SET hidden = excluded.hidden WHERE hidden <> excluded.hidden`
		if setting == tidemark.ReceiptsDefault {
			text = `DELETE FROM receipts WHERE user_id = ?1 AND chat = ?2`
		}
		q, err := w.c.prepared(text)
		if err != nil {
			return err
		}
		q.string(1, string(user))
		q.integer(2, key)
		switch setting {
		case tidemark.ReceiptsOn:
			q.integer(3, 0)
		case tidemark.ReceiptsOff:
			q.integer(3, 1)
		}
		return q.run()
	})
}

// ReceiptsOf implements storage.Receipts.
func (s *Store) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	inChat, inAll = tidemark.ReceiptsDefault, tidemark.ReceiptsOn
	err = s.read(ctx, func(c *conn) error {
		q, err := c.prepared(`SELECT chat, hidden FROM receipts
			WHERE user_id = ? AND chat IN (0, (SELECT key FROM chats WHERE id = ?))`)
		if err != nil {
			return err
		}
		q.string(1, string(user))
		q.string(2, string(chat))
		err = q.each(func(row *stmt) bool {
			if setting := settingOf(row.integerAt(1)); row.integerAt(0) == 0 {
				inAll = setting
			} else {
				inChat = setting
			}
			return true
		})
		return err
	})
	return inChat, inAll, err
}

func settingOf(hidden int64) tidemark.ReceiptsSetting {
	if hidden != 0 {
		return tidemark.ReceiptsOff
	}
	return tidemark.ReceiptsOn
}
