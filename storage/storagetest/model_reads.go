package storagetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func (m *model) readRange(rt *rapid.T) {
	chat := m.drawChat(rt)
	r := storage.Range{
		Chat:     chat,
		After:    m.drawSequence(rt, chat),
		Before:   m.drawSequence(rt, chat),
		Limit:    rapid.IntRange(1, 6).Draw(rt, "limit"),
		MaxBytes: rapid.IntRange(0, 60).Draw(rt, "bytes"),
	}
	m.both(fmt.Sprintf("Range %+v", r), func(f *fixture) (any, error) { return f.read(r) })
}

func (m *model) readAnnotations(rt *rapid.T) {
	chat, limit := m.drawChat(rt), rapid.IntRange(1, 3).Draw(rt, "limit")
	target, after := m.drawSequence(rt, chat), m.drawSequence(rt, chat)
	m.both("Reactors", func(f *fixture) (any, error) {
		reactions, more, err := f.store.Reactors(f.ctx, chat, max(1, target), after, limit)
		return []any{reactions, more}, err
	})
	q := storage.ReactionsQuery{Chat: chat, From: max(1, target), User: m.drawUser(rt)}
	q.To = q.From + tidemark.Sequence(limit)
	m.both("Reactions", func(f *fixture) (any, error) {
		found, through, err := f.store.Reactions(f.ctx, q)
		return []any{found, through}, err
	})
}

func (m *model) readLists(rt *rapid.T) {
	user, limit := m.drawUser(rt), rapid.IntRange(1, 3).Draw(rt, "limit")
	large := rapid.Bool().Draw(rt, "large")
	m.bothEventually("ChatsOf", func(f *fixture) any { return f.chatsOf(user, limit) })
	q := storage.BehindQuery{Limit: limit, LargeOnly: large}
	if rapid.Bool().Draw(rt, "since") {
		q.Since = at(rapid.IntRange(0, m.now).Draw(rt, "time"))
	}
	m.bothEventually("Behind", func(f *fixture) any { return f.lags(user, q) })
	m.bothEventually("StatesOf", func(f *fixture) any { return m.kept(f.statesOf(user, limit)) })
	after := m.drawChat(rt)
	if len(m.gone) > 0 {
		return // A page may have them.
	}
	m.both("PendingOf", func(f *fixture) (any, error) {
		rows, more, err := f.store.PendingOf(f.ctx, user, after, limit)
		return []any{rows, more}, err
	})
}

func (m *model) readStatuses(rt *rapid.T) {
	chat, limit := m.drawChat(rt), rapid.IntRange(1, 3).Draw(rt, "limit")
	sequence := m.drawSequence(rt, chat)
	m.bothEventually("StatesIn", func(f *fixture) any { return f.statesIn(chat, limit) })
	author := rapid.SampledFrom(append([]tidemark.UserID{""}, m.everyone...)).Draw(rt, "author")
	m.bothEventually("Summary", func(f *fixture) any {
		summary, err := f.store.Summary(f.ctx, chat, sequence, author)
		return []any{summary, tidemark.CodeOf(err)}
	})
	m.both("Chat", func(f *fixture) (any, error) { return f.store.Chat(f.ctx, chat) })
}

// compareStates compares all rosters, heads, watermarks and pending rows.
func (m *model) compareStates() {
	m.both("Rosters", func(f *fixture) (any, error) { return f.store.Rosters(f.ctx, m.rooms) })
	m.both("Heads", func(f *fixture) (any, error) { return f.store.Heads(f.ctx, m.rooms) })
	var keys []storage.StateKey
	for _, user := range m.everyone {
		for _, chat := range m.rooms {
			keys = append(keys, storage.StateKey{User: user, Chat: chat})
		}
		m.both("PendingOf", func(f *fixture) (any, error) {
			rows := f.pending(user)
			for chat := range m.gone {
				delete(rows, chat)
			}
			return rows, nil
		})
	}
	m.bothEventually("Policies", func(f *fixture) any { return f.policies(m.rooms...) })
	m.bothEventually("States", func(f *fixture) any {
		states, err := f.store.States(f.ctx, keys)
		f.ok(err)
		return m.kept(states)
	})
	m.bothEventually("Unread", func(f *fixture) any {
		counts, err := f.store.Unread(f.ctx, keys)
		f.ok(err)
		return counts
	})
	for _, user := range m.everyone {
		m.bothEventually("UnreadOf", func(f *fixture) any { return f.unreadOf(user) })
	}
}

// kept returns states without those in deleted chats.
func (m *model) kept(states []tidemark.DeliveryState) []tidemark.DeliveryState {
	return slices.DeleteFunc(slices.Clone(states), func(s tidemark.DeliveryState) bool {
		return m.gone[s.ChatID]
	})
}

// compareMessages compares all messages.
func (m *model) compareMessages() {
	for _, chat := range m.rooms {
		m.both("Range",
			func(f *fixture) (any, error) { return f.messages(storage.Range{Chat: chat}), nil })
		m.both("annotations", func(f *fixture) (any, error) { return f.annotated(chat), nil })
		if m.specHead(chat) > 0 {
			m.whole(chat)
		}
	}
}
