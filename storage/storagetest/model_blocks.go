package storagetest

import (
	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
)

// changeBlock blocks a user, or lifts that, which is as likely.
func (m *model) changeBlock(rt *rapid.T) {
	pair := rapid.Permutation(m.everyone).Draw(rt, "pair")
	now, lift := at(m.tick()), rapid.Bool().Draw(rt, "lift")
	m.both("blocks", func(f *fixture) (any, error) {
		if lift {
			return f.store.RemoveBlock(f.ctx, pair[0], pair[1])
		}
		return f.store.PutBlock(f.ctx, pair[0], pair[1], now)
	})
	limit := rapid.IntRange(1, 3).Draw(rt, "limit")
	m.both("BlocksOf", func(f *fixture) (any, error) {
		blocks, more, err := f.store.BlocksOf(f.ctx, pair[0], pair[2], limit)
		return []any{blocks, more}, err
	})
	m.both("Apart", func(f *fixture) (any, error) {
		found, err := f.store.Apart(f.ctx, pair[0], pair[1:])
		return append([]tidemark.UserID{}, found...), err
	})
}

// changeBan bans a user, or lifts that, which is as likely.
func (m *model) changeBan(rt *rapid.T) {
	chat, user := m.drawChat(rt), m.drawUser(rt)
	now, lift := at(m.tick()), rapid.Bool().Draw(rt, "lift")
	m.both("bans", func(f *fixture) (any, error) {
		if lift {
			return true, f.store.Unban(f.ctx, chat, user)
		}
		return f.store.Ban(f.ctx, chat, user, now)
	})
	limit, after := rapid.IntRange(1, 3).Draw(rt, "limit"), m.drawUser(rt)
	if m.gone[chat] {
		return // A store may still have its bans.
	}
	m.both("BansOf", func(f *fixture) (any, error) {
		bans, more, err := f.store.BansOf(f.ctx, chat, after, limit)
		return []any{bans, more}, err
	})
}
