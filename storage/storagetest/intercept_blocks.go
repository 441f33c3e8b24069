package storagetest

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func (i *intercepted) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	return results2(i, "PutBlock", 1,
		func() (storage.PairChat, error) { return i.Store.PutBlock(ctx, user, blocked, now) })
}

func (i *intercepted) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	return results2(i, "RemoveBlock", 1,
		func() (storage.PairChat, error) { return i.Store.RemoveBlock(ctx, user, blocked) })
}

func (i *intercepted) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) ([]storage.Block, bool, error) {
	return results3(i, "BlocksOf",
		func() ([]storage.Block, bool, error) { return i.Store.BlocksOf(ctx, user, after, limit) })
}

func (i *intercepted) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) ([]tidemark.UserID, error) {
	return results2(i, "Apart", len(others),
		func() ([]tidemark.UserID, error) { return i.Store.Apart(ctx, user, others) })
}

func (i *intercepted) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Banned, error) {
	return results2(i, "Ban", 1,
		func() (storage.Banned, error) { return i.Store.Ban(ctx, chat, user, now) })
}

func (i *intercepted) Unban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) error {
	return i.around("Unban", 1, func() error { return i.Store.Unban(ctx, chat, user) })
}

func (i *intercepted) BansOf(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]storage.Ban, bool, error) {
	return results3(i, "BansOf",
		func() ([]storage.Ban, bool, error) { return i.Store.BansOf(ctx, chat, after, limit) })
}

func (t *turns) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	return t.next().PutBlock(ctx, user, blocked, now)
}

func (t *turns) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	return t.next().RemoveBlock(ctx, user, blocked)
}

func (t *turns) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) ([]storage.Block, bool, error) {
	return t.next().BlocksOf(ctx, user, after, limit)
}

func (t *turns) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) ([]tidemark.UserID, error) {
	return t.next().Apart(ctx, user, others)
}

func (t *turns) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Banned, error) {
	return t.next().Ban(ctx, chat, user, now)
}

func (t *turns) Unban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) error {
	return t.next().Unban(ctx, chat, user)
}

func (t *turns) BansOf(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]storage.Ban, bool, error) {
	return t.next().BansOf(ctx, chat, after, limit)
}

func (i *intercepted) UsersNamed(
	ctx context.Context, after string, limit int,
) ([]tidemark.UserID, string, bool, error) {
	var more bool
	users, next, err := results3(i, "UsersNamed",
		func() (users []tidemark.UserID, next string, err error) {
			users, next, more, err = i.Store.UsersNamed(ctx, after, limit)
			return users, next, err
		})
	return users, next, more && err == nil, err
}

func (t *turns) UsersNamed(
	ctx context.Context, after string, limit int,
) ([]tidemark.UserID, string, bool, error) {
	return t.next().UsersNamed(ctx, after, limit)
}
