package memory

import (
	"context"
	"maps"
	"slices"
	"sort"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Advance implements storage.Deliveries.
func (s *Store) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	if err := s.enterBatch(ctx, len(advances)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := storage.CheckDistinct(advances); err != nil {
		return nil, err
	}
	results := make([]storage.Advanced, len(advances))
	for i, a := range advances {
		c, err := s.alive(a.Chat)
		if err == nil {
			//rule:watermark_bounded_by_counter.check-against-head-in-memory
			err = a.Bounded(c.Head)
		}
		if err != nil {
			//rule:ack_cumulative.refuse-one-acknowledgement
			results[i] = storage.Advanced{Err: err}
			continue
		}
		//rule:shown_within_real.decide-in-the-step-in-memory
		a.Hidden = s.hidden(a.User, a.Chat)
		results[i] = s.advance(&a)
	}
	return results, nil
}

// advance applies a raise. It does not check the head. The mutex is held.
func (s *Store) advance(a *storage.Advance) storage.Advanced {
	done := a.Of(s.state(a.User, a.Chat), stored(a.Now))
	if done.Moved {
		s.states[storage.StateKey{User: a.User, Chat: a.Chat}] = done.State
	}
	return done
}

// state returns the delivery state, with watermarks 0 if none is stored. The mutex is held.
func (s *Store) state(user tidemark.UserID, id tidemark.ChatID) tidemark.DeliveryState {
	if state, found := s.states[storage.StateKey{User: user, Chat: id}]; found {
		return state
	}
	return tidemark.DeliveryState{UserID: user, ChatID: id}
}

// States implements storage.Deliveries.
func (s *Store) States(
	ctx context.Context, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	if err := s.enterBatch(ctx, len(keys)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	states := make([]tidemark.DeliveryState, len(keys))
	for i, key := range keys {
		states[i] = s.state(key.User, key.Chat)
		states[i].Hides = s.hidden(key.User, key.Chat)
	}
	return states, nil
}

// StatesOf implements storage.Deliveries.
func (s *Store) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	var states []tidemark.DeliveryState
	for _, id := range slices.Sorted(maps.Keys(s.memberOf[user])) {
		if state, found := s.states[storage.StateKey{User: user, Chat: id}]; found && id > after {
			states = append(states, state)
		}
	}
	states, more := page(states, limit)
	return states, more, nil
}

// StatesIn implements storage.Deliveries.
func (s *Store) StatesIn(
	ctx context.Context, id tidemark.ChatID, after tidemark.UserID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	c := s.chats[id]
	if c == nil {
		return nil, false, nil
	}
	members := c.current().Members
	next := sort.Search(len(members), func(i int) bool { return members[i].UserID > after })
	members, more := page(members[next:], limit)
	states := make([]tidemark.DeliveryState, len(members))
	for i, m := range members {
		states[i] = s.state(m.UserID, id)
	}
	return states, more, nil
}

// Summary implements storage.Deliveries.
func (s *Store) Summary(
	ctx context.Context, id tidemark.ChatID, sequence tidemark.Sequence, author tidemark.UserID,
) (storage.Summary, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Summary{}, err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return storage.Summary{}, err
	}
	var summary storage.Summary
	for _, m := range c.current().Members {
		summary.Count(s.state(m.UserID, id), sequence, author)
	}
	return summary, nil
}
