package metered

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// SetReceipts implements storage.Receipts.
func (s *Store) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	began := time.Now()
	err := s.store.SetReceipts(ctx, user, chat, setting)
	s.meter.done(ctx, opSetReceipts, began, err)
	return err
}

// ReceiptsOf implements storage.Receipts.
func (s *Store) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	began := time.Now()
	inChat, inAll, err = s.store.ReceiptsOf(ctx, user, chat)
	s.meter.done(ctx, opReceiptsOf, began, err)
	return inChat, inAll, err
}
