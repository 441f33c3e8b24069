package memory

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// annotations returns the messages of a kind that stand, and that annotate a message from one
// sequence to another. They ascend. The mutex is held.
func (c *chat) annotations(
	kind tidemark.Kind, from, to tidemark.Sequence,
) (found []*tidemark.Message) {
	for i := range c.messages {
		m := &c.messages[i]
		//rule:annotations_counted.until-it-is-redacted
		if m.Kind != kind || m.Redacted() {
			continue
		}
		//rule:annotations_counted.until-the-target-expires
		if n := m.Relation.Sequence; n >= max(from, c.Floor) && n <= to {
			found = append(found, m)
		}
	}
	return found
}

// standing returns what a draft that annotates a message meets. The mutex is held.
func (c *chat) standing(d *tidemark.Draft) (s tidemark.Standing) {
	from, to := d.Relation.Sequence, d.Relation.Sequence
	if d.Kind == tidemark.KindPin {
		from, to = 1, c.Head
	}
	for _, m := range c.annotations(d.Kind, from, to) {
		if d.Kind == tidemark.KindReact && m.SenderID != d.SenderID {
			continue
		}
		s.Count++
		if m.Relation.Sequence == d.Relation.Sequence && m.Relation.Emoji == d.Relation.Emoji {
			s.Same = m.Sequence
		}
	}
	return s
}

// reactions returns the reactions that stand to the messages of a range. The mutex is held.
func (c *chat) reactions(from, to tidemark.Sequence) (found []storage.Reaction) {
	for _, m := range c.annotations(tidemark.KindReact, from, to) {
		found = append(found, storage.Reaction{
			Target: m.Relation.Sequence, User: m.SenderID, Emoji: m.Relation.Emoji,
			Sequence: m.Sequence, At: m.CreatedAt,
		})
	}
	return found
}

// Reactions implements storage.Annotations.
func (s *Store) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) (found []storage.ReactionCount, through tidemark.Sequence, err error) {
	if err := storage.CheckReactions(&q); err != nil {
		return nil, 0, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	c := s.chats[q.Chat]
	if c == nil {
		return nil, 0, nil
	}
	return storage.CountReactions(c.reactions(q.From, q.To), q.User), c.Head, nil
}

// Reactors implements storage.Annotations.
func (s *Store) Reactors(
	ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence, limit int,
) (reactions []storage.Reaction, more bool, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	c := s.chats[chat]
	if c == nil {
		return nil, false, nil
	}
	all := slices.DeleteFunc(c.reactions(target, target),
		func(r storage.Reaction) bool { return r.Sequence <= after })
	reactions, more = page(all, limit)
	return reactions, more, nil
}

// Pins implements storage.Annotations.
func (s *Store) Pins(ctx context.Context, chat tidemark.ChatID) ([]storage.Pin, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	c := s.chats[chat]
	if c == nil {
		return nil, nil
	}
	var pins []storage.Pin
	for _, m := range c.annotations(tidemark.KindPin, 1, c.Head) {
		pins = append(pins, storage.Pin{
			Target: m.Relation.Sequence, Sequence: m.Sequence, By: m.SenderID, At: m.CreatedAt,
		})
	}
	slices.Reverse(pins)
	return pins, nil
}
