package session

import (
	"context"
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
)

// lookForMissed reads a page of the heads of the session's chats, and wakes those that have grown.
func (s *Session) lookForMissed(ctx context.Context, c *Connection, l look) error {
	chats := s.chatsAfter(l.after)
	heads, err := s.node.Heads.Heads(ctx, chats)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil {
		return err
	}
	if s.look.order != l.order || s.look.after != l.after || s.look.mode != l.mode {
		return nil
	}
	for i, chat := range chats {
		if p := s.chats[chat]; p != nil && heads[i] > p.woken {
			p.woken = heads[i]
			s.queue(p)
			s.owes(p)
		}
	}
	if len(chats) < lookPage {
		//rule:R_EPOCH.look-at-quiet-chats
		s.look.mode, s.look.after = lookQuiet, ""
		return nil
	}
	s.look.after = chats[len(chats)-1]
	return nil
}

// chatsAfter returns a page of the chats in the map, in ascending order.
func (s *Session) chatsAfter(after tidemark.ChatID) []tidemark.ChatID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var chats []tidemark.ChatID
	for chat := range maps.Keys(s.chats) {
		if chat > after {
			chats = append(chats, chat)
		}
	}
	slices.Sort(chats)
	return chats[:min(len(chats), lookPage)]
}
