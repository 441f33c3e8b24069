package simulationtest

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// No simulated user blocks or bans another one. So these calls do not wait at the gate.

func (s gatedStore) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) ([]tidemark.UserID, error) {
	return s.n.simulation.raw.Apart(context.WithoutCancel(ctx), user, others)
}

func (s gatedStore) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	return s.n.simulation.raw.PutBlock(ctx, user, blocked, now)
}

func (s gatedStore) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	return s.n.simulation.raw.RemoveBlock(ctx, user, blocked)
}

func (s gatedStore) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) ([]storage.Block, bool, error) {
	return s.n.simulation.raw.BlocksOf(ctx, user, after, limit)
}

func (s gatedStore) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Banned, error) {
	return s.n.simulation.raw.Ban(ctx, chat, user, now)
}

func (s gatedStore) Unban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) error {
	return s.n.simulation.raw.Unban(ctx, chat, user)
}

func (s gatedStore) BansOf(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]storage.Ban, bool, error) {
	return s.n.simulation.raw.BansOf(ctx, chat, after, limit)
}

func (s gatedStore) CloseDirect(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	return s.n.simulation.raw.CloseDirect(ctx, chat, user, now)
}
