package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// chat holds a chat with its messages and members.
type chat struct {
	tidemark.Chat
	// messages holds message n at index n − 1. It only grows, and relations change its elements.
	// Those below the floor are zero.
	messages []tidemark.Message
	// activity is the time of the last message, or of the creation.
	activity time.Time
	// mentions holds those with which changed messages were stored. They decide what counts.
	mentions map[tidemark.Sequence]tidemark.Mentions
	// lives holds the number of the life that stored message n at index n − 1.
	lives []int64
	// keys maps each idempotency key to the sequence of its message.
	keys map[sendKey]tidemark.Sequence
	// members holds all present and former members. A user who returns must be distinguished from a
	// new one, even if no message was sent while they were a member.
	members map[tidemark.UserID]tidemark.Member
	// changed holds the membership version of the last change of each of them.
	changed map[tidemark.UserID]uint64
	// roster is the roster of the current version, or nil if it is not built yet.
	roster *tidemark.Roster
	outbox outbox
	// bans holds when users were banned.
	bans map[tidemark.UserID]time.Time
	// cleared is how many of the chat's pending rows Clear has removed.
	cleared uint64
	// purged is how many of messages PurgeChat has looked at.
	purged int
}

// CreateChat implements storage.Chats.
func (s *Store) CreateChat(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	if err := s.enter(ctx); err != nil {
		return tidemark.Chat{}, false, err
	}
	defer s.mu.Unlock()
	if new.Type == tidemark.Direct {
		if existing := s.direct[directKey(new)]; existing != nil {
			return existing.Chat, false, nil
		}
		//rule:blocked_is_closed.no-new-chat-in-memory
		if new.State == tidemark.ChatLive && s.apart(new.Members[0], new.Members[1]) {
			return tidemark.Chat{}, false, storage.Closed()
		}
	}
	if s.chats[new.ID] != nil {
		return tidemark.Chat{}, false, storage.Taken(new.ID)
	}
	c := &chat{
		Chat:     new.Chat(stored(new.CreatedAt)),
		activity: stored(new.CreatedAt),
		keys:     map[sendKey]tidemark.Sequence{},
		mentions: map[tidemark.Sequence]tidemark.Mentions{},
		members:  map[tidemark.UserID]tidemark.Member{},
		changed:  map[tidemark.UserID]uint64{},
		bans:     map[tidemark.UserID]time.Time{},
	}
	for _, user := range new.Members {
		role := tidemark.Ordinary
		if user == new.Creator {
			role = tidemark.Owner
		}
		c.put(c.MembersVersion, tidemark.Member{
			UserID:    user,
			Role:      role,
			Intervals: tidemark.Intervals{{From: 1}},
			JoinedAt:  c.CreatedAt,
		})
		s.link(user, c)
	}
	s.chats[c.ID] = c
	s.addStandingRows(c)
	s.news(c, storage.Position{})
	if new.Type == tidemark.Direct {
		s.direct[directKey(new)] = c
	}
	return c.Chat, true, nil
}

func directKey(new storage.NewChat) string {
	return tidemark.DirectKey(new.Members[0], new.Members[1])
}

// Chat implements storage.Chats.
func (s *Store) Chat(ctx context.Context, id tidemark.ChatID) (tidemark.Chat, error) {
	if err := s.enter(ctx); err != nil {
		return tidemark.Chat{}, err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return tidemark.Chat{}, err
	}
	return c.Chat, nil
}

// UpdateChat implements storage.Chats.
func (s *Store) UpdateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	if err := s.enter(ctx); err != nil {
		return tidemark.Chat{}, err
	}
	defer s.mu.Unlock()
	c, err := s.alive(id)
	if err != nil {
		return tidemark.Chat{}, err
	}
	before := storage.PositionOf(&c.Chat)
	c.Chat, _ = change.Apply(c.Chat)
	s.news(c, before)
	return c.Chat, nil
}

// ChatsOf implements storage.Chats.
func (s *Store) ChatsOf(
	ctx context.Context, user tidemark.UserID, p storage.ChatsPage,
) ([]storage.ChatListItem, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	position := func(c *chat) storage.ChatsPage {
		return storage.ChatsPage{Activity: c.activity, ChatID: c.ID}
	}
	var chats []*chat
	for _, c := range s.memberOf[user] {
		if p.ChatID == "" || later(p, position(c)) < 0 {
			chats = append(chats, c)
		}
	}
	slices.SortFunc(chats, func(a, b *chat) int { return later(position(a), position(b)) })
	chats, more := page(chats, p.Limit)
	items := make([]storage.ChatListItem, len(chats))
	for i, c := range chats {
		items[i] = s.listItem(user, c, p.Brief)
	}
	return items, more, nil
}

// later orders chats as in a list: the latest activity first, equal times by id.
func later(a, b storage.ChatsPage) int {
	return cmp.Or(b.Activity.Compare(a.Activity), cmp.Compare(a.ChatID, b.ChatID))
}

func (s *Store) listItem(user tidemark.UserID, c *chat, brief bool) storage.ChatListItem {
	member := c.members[user]
	v := storage.ChatListItem{Chat: c.Chat, State: s.state(user, c.ID), Activity: c.activity}
	if brief {
		return v
	}
	v.Role = member.Role
	if last := c.message(c.Head); last != nil && member.Intervals.Contains(c.Head) {
		copied := *last
		v.Last = &copied
	}
	v.Unread = c.unread(user, v.State)
	return v
}

// Heads implements storage.Chats.
func (s *Store) Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error) {
	if err := s.enterBatch(ctx, len(chats)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	heads := make([]tidemark.Sequence, len(chats))
	for i, id := range chats {
		heads[i] = s.head(id)
	}
	return heads, nil
}
