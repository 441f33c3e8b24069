package memory

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Outbox = (*Store)(nil)

// debtKey identifies a debt.
type debtKey struct {
	outlet storage.OutletID
	chat   tidemark.ChatID
}

// news ends a step that began at a position of the chat. The mutex is held.
func (s *Store) news(c *chat, before storage.Position) {
	key := debtKey{storage.Everyone, c.ID}
	//rule:told_or_owed.write-debt-of-step
	if _, stands := s.debts[key]; !stands && storage.PositionOf(&c.Chat) != before {
		s.debts[key] = storage.Debt{Chat: c.ID, From: before}
	}
}

// Owing implements storage.Outbox.
func (s *Store) Owing(ctx context.Context, q storage.OwingQuery) ([]storage.Debt, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	var debts []storage.Debt
	for key, debt := range s.debts {
		mine := key.outlet == q.Outlet && slices.Contains(q.Shards, storage.ShardOf(key.chat))
		if mine && (q.After == "" || byShard(key.chat, q.After) > 0) {
			debt.Owed = key.outlet == storage.Everyone && s.chats[key.chat].owed
			debts = append(debts, debt)
		}
	}
	slices.SortFunc(debts, func(a, b storage.Debt) int { return byShard(a.Chat, b.Chat) })
	debts, more := page(debts, q.Limit)
	return debts, more, nil
}

func byShard(a, b tidemark.ChatID) int {
	return cmp.Or(cmp.Compare(storage.ShardOf(a), storage.ShardOf(b)), cmp.Compare(a, b))
}

// Owe implements storage.Outbox.
func (s *Store) Owe(ctx context.Context, debts []storage.Debt) error {
	if err := s.enterBatch(ctx, len(debts)); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, d := range debts {
		c := s.chats[d.Chat]
		if c == nil {
			continue
		}
		from := d.From.Least(storage.PositionOf(&c.Chat))
		key := debtKey{d.Outlet, d.Chat}
		if old, stands := s.debts[key]; stands {
			from = from.Least(old.From)
		}
		s.stamps++
		s.debts[key] = storage.Debt{
			Outlet: d.Outlet, Chat: d.Chat, From: from,
			//rule:told_or_owed.stamp-each-owe
			Stamp: strconv.FormatUint(s.stamps, 10),
		}
	}
	return nil
}

// Settle implements storage.Outbox.
func (s *Store) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	if err := s.enterBatch(ctx, len(items)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	settled := make([]bool, len(items))
	for i, item := range items {
		key := debtKey{item.Outlet, item.Chat}
		debt, stands := s.debts[key]
		//rule:told_in_order.settle-what-was-read
		if !stands || debt.From != item.From || debt.Stamp != item.Stamp {
			continue
		}
		settled[i] = true
		c := s.chats[item.Chat]
		if item.Outlet == storage.Everyone {
			//rule:told_in_order.note-what-is-owed
			c.owed = item.NowOwed
		}
		debt.From = debt.From.Most(item.To)
		//rule:told_or_owed.keep-debt-of-later-news
		if position := storage.PositionOf(&c.Chat); debt.From.Least(position) != position {
			s.debts[key] = debt
		} else {
			delete(s.debts, key)
		}
	}
	return settled, nil
}
