package dynamodb

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// Incarnation implements storage.Lives.
func (s *Store) Incarnation() tidemark.Incarnation { return s.life().ID }

// life returns the present life of the data.
func (s *Store) life() lives.Life { return s.lives[len(s.lives)-1] }

// Shared implements storage.Lives.
func (s *Store) Shared(
	ctx context.Context, claims []storage.Claim,
) ([]tidemark.Sequence, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "shared", len(claims))
	if err != nil {
		return nil, err
	}
	defer leave()
	shared, err := lives.Shared(s.lives, claims, func(m []lives.Message) ([]int64, error) {
		return c.livesOf(ctx, m)
	})
	return shared, call.Public(err)
}

// livesOf returns the number of the life that stored each message.
func (c caller) livesOf(ctx context.Context, messages []lives.Message) ([]int64, error) {
	keys, place := make([]call.Item, 0, len(messages)), make(map[lives.Message]int64, len(messages))
	for _, m := range messages {
		if _, twice := place[m]; !twice {
			place[m] = lives.Never
			keys = append(keys, call.Item{
				"chat_id": call.Text(m.Chat), "sequence": call.Number(m.Sequence),
			})
		}
	}
	items, err := c.GetAll(ctx, call.Read{
		Table: record.Messages, Only: []string{"chat_id", "sequence", "life"},
	}, keys)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		reader := call.Reader{Item: it}
		m := lives.Message{
			Chat: tidemark.ChatID(reader.Text("chat_id")), Sequence: reader.Sequence("sequence"),
		}
		if err := reader.Err; err != nil {
			return nil, err
		}
		if place[m], err = record.LifeOf(it); err != nil {
			return nil, err
		}
	}
	found := make([]int64, len(messages))
	var missing []tidemark.ChatID
	for i, m := range messages {
		if found[i] = place[m]; found[i] == lives.Never {
			missing = append(missing, m.Chat)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	counters, err := c.Counters(ctx, missing, false)
	if err != nil {
		return nil, err
	}
	for i, m := range messages {
		counter := counters[m.Chat]
		//rule:restore_is_noticed.expired-messages-are-shared-in-dynamodb
		if found[i] == lives.Never && counter != nil && m.Sequence < counter.Floor {
			found[i] = lives.Expired
		}
	}
	return found, nil
}
