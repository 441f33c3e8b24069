package metered

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// PutBlock implements storage.Blocks.
func (s *Store) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (pair storage.PairChat, err error) {
	began := time.Now()
	pair, err = s.store.PutBlock(ctx, user, blocked, now)
	s.meter.done(ctx, opPutBlock, began, err)
	return pair, err
}

// RemoveBlock implements storage.Blocks.
func (s *Store) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (pair storage.PairChat, err error) {
	began := time.Now()
	pair, err = s.store.RemoveBlock(ctx, user, blocked)
	s.meter.done(ctx, opRemoveBlock, began, err)
	return pair, err
}

// BlocksOf implements storage.Blocks.
func (s *Store) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) (blocks []storage.Block, more bool, err error) {
	began := time.Now()
	blocks, more, err = s.store.BlocksOf(ctx, user, after, limit)
	s.meter.done(ctx, opBlocksOf, began, err)
	return blocks, more, err
}

// Apart implements storage.Blocks.
func (s *Store) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) (found []tidemark.UserID, err error) {
	began := time.Now()
	found, err = s.store.Apart(ctx, user, others)
	s.meter.done(ctx, opApart, began, err)
	return found, err
}

// Ban implements storage.Bans.
func (s *Store) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (banned storage.Banned, err error) {
	began := time.Now()
	banned, err = s.store.Ban(ctx, chat, user, now)
	s.meter.done(ctx, opBan, began, err)
	return banned, err
}

// Unban implements storage.Bans.
func (s *Store) Unban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) (err error) {
	began := time.Now()
	err = s.store.Unban(ctx, chat, user)
	s.meter.done(ctx, opUnban, began, err)
	return err
}

// BansOf implements storage.Bans.
func (s *Store) BansOf(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) (bans []storage.Ban, more bool, err error) {
	began := time.Now()
	bans, more, err = s.store.BansOf(ctx, chat, after, limit)
	s.meter.done(ctx, opBansOf, began, err)
	return bans, more, err
}
