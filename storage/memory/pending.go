package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Mark implements storage.Pending.
func (s *Store) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	if err := s.enterBatch(ctx, len(rows)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	written := make([]bool, len(rows))
	for i, row := range rows {
		first, stands := s.pending[row.UserID][row.ChatID]
		//rule:pending_once.keep-lowest-mark
		if stands && first <= row.FirstUndelivered {
			continue
		}
		s.setPending(row.UserID, row.ChatID, row.FirstUndelivered)
		written[i] = true
	}
	return written, nil
}

// setPending writes a row. The mutex is held.
func (s *Store) setPending(user tidemark.UserID, chat tidemark.ChatID, first tidemark.Sequence) {
	if s.pending[user] == nil {
		s.pending[user] = map[tidemark.ChatID]tidemark.Sequence{}
	}
	s.pending[user][chat] = first
}

// Clear implements storage.Pending.
func (s *Store) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	if err := s.enterBatch(ctx, len(items)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	cleared := make([]bool, len(items))
	for i, item := range items {
		rows := s.pending[item.User]
		first, stands := rows[item.Chat]
		//rule:pending_or_delivered.clear-rows-in-range-only
		if !stands || first == 0 || first > item.Through {
			continue
		}
		cleared[i] = true
		//rule:R_CLEAR.clear-at-head-only
		if item.Through >= s.head(item.Chat) {
			delete(rows, item.Chat)
			//rule:R_STANDS.count-removed-row
			if c := s.chats[item.Chat]; c != nil {
				c.cleared++
			}
		} else {
			//rule:R_CLEAR.trim-row
			rows[item.Chat] = item.Through + 1
		}
	}
	return cleared, nil
}

// PendingOf implements storage.Pending.
func (s *Store) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	var rows []storage.PendingRow
	for _, id := range slices.Sorted(maps.Keys(s.pending[user])) {
		if id > after {
			rows = append(rows, storage.PendingRow{
				PendingDelivery: tidemark.PendingDelivery{
					UserID:           user,
					ChatID:           id,
					FirstUndelivered: s.pending[user][id],
				},
				Acked: s.state(user, id).Acked,
			})
		}
	}
	rows, more := page(rows, limit)
	return rows, more, nil
}

// Behind implements storage.Pending.
func (s *Store) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, "", false, err
	}
	defer s.mu.Unlock()
	var lags []storage.Lag
	for _, id := range slices.Sorted(maps.Keys(s.memberOf[user])) {
		c, acked := s.memberOf[user][id], s.state(user, id).Acked
		//rule:R_EPOCH.active-chats-in-memory
		active := q.ActiveSince(c.activity)
		//rule:R_PROOF.one-message-behind-counts
		behind := c.Head > acked
		if id > q.After && (behind || active) && (c.Large || !q.LargeOnly) {
			lags = append(lags, storage.Lag{Chat: id, Head: c.Head, Acked: acked, Active: active})
		}
	}
	lags, more := page(lags, q.Limit)
	if !more {
		return lags, "", false, nil
	}
	return lags, lags[len(lags)-1].Chat, true, nil
}
