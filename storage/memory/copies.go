package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

var (
	_ storage.CopySource = (*Store)(nil)
	_ storage.CopyTarget = (*Store)(nil)
)

// Incarnations implements storage.CopySource.
func (s *Store) Incarnations() []tidemark.Incarnation { return lives.IDs(s.lives) }

// Nodes implements storage.CopySource. No other process works on the data.
func (s *Store) Nodes(ctx context.Context) ([]string, error) { return nil, s.Check(ctx) }

// Activity implements storage.CopySource.
func (s *Store) Activity(ctx context.Context, id tidemark.ChatID) (time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return time.Time{}, err
	}
	return c.activity, nil
}

// MessageFacts implements storage.CopySource.
func (s *Store) MessageFacts(
	ctx context.Context, q storage.FactsQuery,
) ([]storage.MessageFacts, error) {
	if err := s.enterBatch(ctx, int(q.To+1-q.From)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	c, err := s.find(q.Chat)
	if err != nil {
		return nil, err
	}
	facts := make([]storage.MessageFacts, 0, q.To+1-q.From)
	for n := q.From; n <= q.To; n++ {
		f := storage.MessageFacts{Life: c.lives[n-1]}
		if m := &c.messages[n-1]; q.Mentions && m.Kind.Counts() {
			names, changed := c.mentions[n]
			if !changed {
				names = m.Mentions
			}
			if f.Mentions.All = names.All; !names.All {
				f.Mentions = tidemark.NewMentions(false, slices.DeleteFunc(
					slices.Clone(names.Users), func(user tidemark.UserID) bool {
						return !slices.Contains(q.Users, user)
					}))
			}
		}
		facts = append(facts, f)
	}
	return facts, nil
}

// Entries implements storage.CopySource. A position is the place of an entry in their order.
func (s *Store) Entries(
	ctx context.Context, kind storage.EntryKind, after string, limit int,
) ([]storage.Entry, string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, "", err
	}
	defer s.mu.Unlock()
	all := map[string]storage.Entry{}
	switch kind {
	case storage.EntryDocument:
		for _, documents := range s.documents {
			for _, d := range documents {
				all[d.Kind+"\x00"+d.Name] = storage.Entry{Document: d}
			}
		}
	case storage.EntryBlock:
		for user, blocks := range s.blocks {
			for blocked, at := range blocks {
				all[string(user)+"\x00"+string(blocked)] = storage.Entry{
					User: user, Blocked: storage.Block{User: blocked, At: at},
				}
			}
		}
	case storage.EntryReceipts:
		for key, hides := range s.hides {
			all[string(key.User)+"\x00"+string(key.Chat)] = storage.Entry{
				User: key.User, Chat: key.Chat, Receipts: settingOf(hides),
			}
		}
	case storage.EntryBacklog:
		for key, b := range s.backlogs {
			all[string(key.outlet)+"\x00"+string(key.chat)] = storage.Entry{Backlog: b}
		}
	case storage.EntryAudit:
		for id, e := range s.audit {
			all[string(id)] = storage.Entry{Audit: e}
		}
	}
	names := slices.SortedFunc(maps.Keys(all), strings.Compare)
	names = slices.DeleteFunc(names, func(name string) bool { return name <= after })
	names, more := page(names, limit)
	entries, next := make([]storage.Entry, len(names)), ""
	for i, name := range names {
		if entries[i] = all[name]; more {
			next = name
		}
	}
	return entries, next, nil
}

// PutLives implements storage.CopyTarget.
func (s *Store) PutLives(ctx context.Context, of []tidemark.Incarnation) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.lives = lives.Copied(s.lives, of)
	return nil
}

// PutChat implements storage.CopyTarget.
func (s *Store) PutChat(ctx context.Context, copied storage.CopiedChat) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c := s.chats[copied.ID]
	if c == nil {
		c = &chat{
			keys:     map[sendKey]tidemark.Sequence{},
			mentions: map[tidemark.Sequence]tidemark.Mentions{},
			members:  map[tidemark.UserID]tidemark.Member{},
			changed:  map[tidemark.UserID]uint64{},
			bans:     map[tidemark.UserID]time.Time{},
		}
		s.chats[copied.ID] = c
	}
	c.Chat, c.roster = copied.Chat, nil
	c.activity = copied.Activity
	c.outbox = outbox{open: copied.Open, from: copied.From, split: copied.Split}
	for tidemark.Sequence(len(c.messages)) < c.Head {
		c.messages, c.lives = append(c.messages, tidemark.Message{}), append(c.lives, 0)
	}
	if copied.Pair != "" {
		s.direct[copied.Pair] = c
	}
	return nil
}

// PutMembers implements storage.CopyTarget.
func (s *Store) PutMembers(
	ctx context.Context, id tidemark.ChatID, members []storage.CopiedMember,
) error {
	if err := s.enterBatch(ctx, len(members)); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return err
	}
	for _, m := range members {
		c.put(m.Version, m.Member)
		if delete(s.memberOf[m.UserID], id); m.Intervals.Open() {
			s.link(m.UserID, c)
		}
		state := m.State
		if state.Hides = false; state != s.state(m.UserID, id) {
			s.states[storage.StateKey{User: m.UserID, Chat: id}] = state
		}
		if delete(s.pending[m.UserID], id); m.Pending {
			s.setPending(m.UserID, id, m.FirstUndelivered)
		}
	}
	c.roster = nil
	return nil
}

// PutMessages implements storage.CopyTarget.
func (s *Store) PutMessages(
	ctx context.Context, id tidemark.ChatID, messages []storage.CopiedMessage,
) error {
	if err := s.enterBatch(ctx, len(messages)); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return err
	}
	for i := range messages {
		m := &messages[i]
		key := sendKey{m.SenderID, m.ClientMessageID}
		if known := cmp.Or(c.keys[key], m.Sequence); known != m.Sequence {
			return storage.KeyOfTwo(id, known, m.Sequence)
		}
		c.keys[key] = m.Sequence
		c.messages[m.Sequence-1], c.lives[m.Sequence-1] = m.Message, m.Life
		if m.Revision != nil {
			c.mentions[m.Sequence] = m.MessageFacts.Mentions
		}
	}
	return nil
}

// DropChat implements storage.CopyTarget.
func (s *Store) DropChat(ctx context.Context, id tidemark.ChatID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c := s.chats[id]
	if c == nil {
		return nil
	}
	for user := range c.members {
		delete(s.states, storage.StateKey{User: user, Chat: id})
		delete(s.pending[user], id)
		delete(s.memberOf[user], id)
	}
	maps.DeleteFunc(s.direct, func(_ string, of *chat) bool { return of == c })
	delete(s.chats, id)
	return nil
}
