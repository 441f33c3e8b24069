package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tidemark-im/tidemark"
)

// hotChat is what the node remembers of a chat: who is a member, and the last messages. Both can be forgotten at any time.
type hotChat struct {
	id tidemark.ChatID
	// used is set by every use and cleared by the sweep that looks for chats to forget.
	used atomic.Bool
	// people is replaced as a whole; nil until it was read.
	people atomic.Pointer[people]

	mu   sync.Mutex
	tail tail
	// gone says that the chat was forgotten: what is put into its tail would be counted for ever.
	gone bool
}

// people is a roster and the ids of its members, as the registry is asked for them.
type people struct {
	*tidemark.Roster
	users []tidemark.UserID
}

// hotChats is the bounded set of hot chats. It is safe for concurrent use.
type hotChats struct {
	most         int
	mostBytes    int64
	tailMessages int
	bytes        atomic.Int64

	mu    sync.RWMutex
	chats map[tidemark.ChatID]*hotChat
}

func newHotChats(cfg Config) *hotChats {
	return &hotChats{
		most: cfg.HotChats, mostBytes: int64(cfg.TailBytes), tailMessages: cfg.TailMessages,
		chats: make(map[tidemark.ChatID]*hotChat),
	}
}

// tailBytesPerChat bounds the tail of one chat.
const tailBytesPerChat = 1 << 20

// get returns the hot chat of an id, a new and empty one if need be.
func (h *hotChats) get(id tidemark.ChatID) *hotChat {
	h.mu.RLock()
	c := h.chats[id]
	h.mu.RUnlock()
	if c != nil {
		if !c.used.Load() {
			c.used.Store(true)
		}
		return c
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c = h.chats[id]; c == nil {
		if len(h.chats) >= h.most {
			h.sweepLocked()
		}
		c = &hotChat{id: id}
		h.chats[id] = c
	}
	c.used.Store(true)
	return c
}

// put adds a message to its chat's tail.
func (h *hotChats) put(c *hotChat, e entry) {
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return
	}
	grown := c.tail.put(e, h.tailMessages, tailBytesPerChat)
	c.mu.Unlock()
	if h.bytes.Add(int64(grown)) > h.mostBytes {
		h.mu.Lock()
		if h.bytes.Load() > h.mostBytes {
			h.sweepLocked()
		}
		h.mu.Unlock()
	}
}

// sweepLocked forgets chats, in the map's random order, that were not used since the sweep before met them, until an eighth of the
// number and of the bytes is free again; at most two rounds, so that it ends when all of them are in use.
func (h *hotChats) sweepLocked() {
	most, mostBytes := h.most-h.most/8, h.mostBytes-h.mostBytes/8
	for range 2 {
		for id, c := range h.chats {
			if len(h.chats) <= most && h.bytes.Load() <= mostBytes {
				return
			}
			if c.used.Swap(false) {
				continue
			}
			delete(h.chats, id)
			c.mu.Lock()
			c.gone = true
			h.bytes.Add(int64(-c.tail.bytes))
			c.tail = tail{}
			c.mu.Unlock()
		}
	}
}

// people returns the members of a chat at a membership version of at least atLeast, from memory if it can. NotFound if there is no such
// chat.
func (s *Server) people(ctx context.Context, c *hotChat, atLeast uint64) (*people, error) {
	if p := c.people.Load(); p != nil && p.Version >= atLeast {
		return p, nil
	}
	all, err := s.readPeople(ctx, []*hotChat{c})
	if err != nil {
		return nil, err
	}
	if all[0] == nil {
		return nil, tidemark.Errorf(tidemark.NotFound, "there is no chat %s", c.id)
	}
	return all[0], nil
}

// readPeople reads the members of chats from storage and remembers them; nil for a chat that does not exist.
func (s *Server) readPeople(ctx context.Context, chats []*hotChat) ([]*people, error) {
	ids := make([]tidemark.ChatID, len(chats))
	for i, c := range chats {
		ids[i] = c.id
	}
	rosters, err := s.storage.Rosters(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := make([]*people, len(chats))
	for i, roster := range rosters {
		if roster == nil {
			continue
		}
		p := &people{Roster: roster, users: make([]tidemark.UserID, len(roster.Members))}
		for j, m := range roster.Members {
			p.users[j] = m.UserID
		}
		all[i] = chats[i].remember(p)
	}
	return all, nil
}

// remember keeps the newer of two rosters and returns it.
func (c *hotChat) remember(p *people) *people {
	for {
		old := c.people.Load()
		if old != nil && old.Version >= p.Version {
			return old
		}
		if c.people.CompareAndSwap(old, p) {
			return p
		}
	}
}

// outdate forgets a roster that is older than version.
func (c *hotChat) outdate(version uint64) {
	for {
		old := c.people.Load()
		if old == nil || old.Version >= version || c.people.CompareAndSwap(old, nil) {
			return
		}
	}
}

// member returns the membership of a user in a chat, and the people. What memory says is believed when it says yes; a no is read again.
// NotFound (no such chat) or NotMember.
func (s *Server) member(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID) (*people, tidemark.Member, error) {
	c := s.hot.get(chat)
	p, err := s.people(ctx, c, 0)
	if err != nil {
		return nil, tidemark.Member{}, err
	}
	m, ok := p.Member(user)
	if !ok {
		if p, err = s.people(ctx, c, p.Version+1); err != nil {
			return nil, tidemark.Member{}, err
		}
		if m, ok = p.Member(user); !ok {
			return nil, tidemark.Member{}, notMember(user, chat)
		}
	}
	return p, m, nil
}

func notMember(user tidemark.UserID, chat tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotMember, "%s is not a member of chat %s", user, chat)
}
