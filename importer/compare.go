package importer

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// compareEvery and compareLast say which stored messages are compared with the source: one of
	// compareEvery, the first one, and the last compareLast.
	compareEvery = 1_000
	compareLast  = 100
	// compareAtOnce is how many messages are read in one call.
	compareAtOnce = 100
)

// identity is what a message must have in common with the stored one of its sequence. An edit does
// not change it.
type identity struct {
	sequence tidemark.Sequence
	sender   tidemark.UserID
	key      string
	at       time.Time
}

func (i identity) String() string {
	return fmt.Sprintf("%q by %s at %s", i.key, i.sender, i.at.Format(tidemark.TimeLayout))
}

// compared are messages that an earlier run has stored, and that wait to be compared.
type compared struct {
	waiting []identity
	// last is the last one that the source has had. It waits until the end.
	last identity
}

// compare notes a message that is stored already. All that wait are compared before anything is
// appended.
func (m *move) compare(ctx context.Context, d *tidemark.Draft) error {
	c := &m.compared
	c.last = identity{m.at, d.SenderID, d.ClientMessageID, d.CreatedAt}
	if m.at != 1 && m.at%compareEvery != 0 && m.head-m.at >= compareLast {
		return nil
	}
	c.waiting, c.last = append(c.waiting, c.last), identity{}
	if m.at < m.head && len(c.waiting) < compareAtOnce {
		return nil
	}
	return m.compareAll(ctx)
}

// compareAll compares the messages that wait. Conflict: one is another message than the stored one.
func (m *move) compareAll(ctx context.Context) error {
	c := &m.compared
	if len(c.waiting) == 0 {
		return nil
	}
	ranges := make([]storage.Range, len(c.waiting))
	for n, want := range c.waiting {
		ranges[n] = storage.Range{Chat: m.id, After: want.sequence - 1, Limit: 1, Bare: true}
	}
	within, cancel := call(ctx)
	defer cancel()
	pages, err := m.i.store.Ranges(within, ranges)
	if err != nil {
		return err
	}
	for n, want := range c.waiting {
		if len(pages[n]) == 0 {
			if err := m.expired(within, want.sequence); err != nil {
				return err
			}
			continue
		}
		s := &pages[n][0]
		if s.Sequence != want.sequence {
			continue // It has expired: the page begins at the floor.
		}
		got := identity{s.Sequence, s.SenderID, s.ClientMessageID, s.CreatedAt}
		//rule:import_once.stored-is-the-same
		if got.sender != want.sender || got.key != want.key || !got.at.Equal(want.at) {
			return m.wrong(want.sequence, tidemark.Errorf(tidemark.Conflict,
				"the source has %s, and the store %s", want, got))
		}
	}
	c.waiting = c.waiting[:0]
	return nil
}

// expired returns nil if a message has expired. Unavailable: it cannot be read.
func (m *move) expired(ctx context.Context, n tidemark.Sequence) error {
	chat, err := m.i.store.Chat(ctx, m.id)
	if err != nil {
		return err
	}
	if n >= chat.Floor {
		return tidemark.Errorf(tidemark.Unavailable, "message %d of the chat %s cannot be read",
			n, m.id)
	}
	return nil
}
