package session

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/storage"
)

// serve does one step that may need storage, and appends what it gives.
func (s *Session) serve(ctx context.Context, c *Connection, st step, buf []tidemark.Event) ([]tidemark.Event, error) {
	switch st.kind {
	case stepLook:
		return buf, s.lookFor(ctx, c, st.look)
	case stepAcked:
		return buf, s.readAcked(ctx, st.ids)
	case stepChats:
		return s.serveChats(ctx, c, st, buf)
	case stepHear:
		return buf, s.hear(ctx, c, st)
	case stepRecent:
		return buf, s.listRecent(ctx, c)
	default:
		return s.serveSnapshot(ctx, c, st, buf)
	}
}

// readAcked reads the watermarks from which chats that were woken for the first time begin.
func (s *Session) readAcked(ctx context.Context, ids []tidemark.ChatID) error {
	acked, err := s.node.acked(ctx, s.User, ids)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if p := s.chats[id]; p != nil {
			s.ackedIs(p, acked[id])
		}
	}
	return nil
}

// serveChats reads a page of each of some chats and sends it. What was read before a rewind, or for a connection that was replaced meanwhile, is
// thrown away.
func (s *Session) serveChats(ctx context.Context, c *Connection, st step, buf []tidemark.Event) ([]tidemark.Event, error) {
	var few [1]feed.Page
	pages, err := s.node.Feed.Pages(ctx, st.requests, few[:0])
	if err != nil {
		return buf, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:session_in_order.serve-current-connection-only
	if err := s.ownedBy(c); err != nil {
		return buf, err
	}
	short := false
	for i := range pages {
		p, page := st.chats[i].position, &pages[i]
		//rule:session_in_order.drop-page-after-rewind
		if p.rewinds != st.chats[i].rewinds {
			continue
		}
		if page.Gone {
			s.drop(p.chat)
			continue
		}
		for _, piece := range page.Pieces {
			r := run{kind: runMessages, chat: p.chat, sequence: piece.From, to: piece.To}
			kind := tidemark.EventMessage
			if piece.Gap {
				kind, r.kind = tidemark.EventGap, runGap
			}
			buf = append(buf, s.number(kind, piece.Payload, r))
		}
		//rule:session_in_order.continue-behind-page
		p.next = max(p.next, page.Through+1)
		if st.chats[i].toEnd {
			p.toEnd = p.toEnd && !page.End
			p.woken = max(p.woken, page.Through)
		}
		s.served(p)
		short = short || len(page.Pieces) == 0 && p.unserved()
	}
	if short {
		return buf, errShortRead
	}
	return buf, nil
}

// listRecent orders the snapshot of the most recently active chats.
func (s *Session) listRecent(ctx context.Context, c *Connection) error {
	recent, _, err := s.node.Storage.ChatsOf(ctx, s.User, storage.ChatsPage{Limit: snapshotChats, Brief: true})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil {
		return err
	}
	s.recent = false
	for _, r := range recent {
		//rule:tick_monotone.outdate-roster-for-snapshot
		s.node.Feed.Chat(r.Chat.ID).Outdate(r.Chat.MembersVersion) // this node may have missed the news of a member
		s.snapshot(r.Chat.ID)
	}
	return nil
}

// serveSnapshot reads and sends the statuses of chats. They are read again if the user left a chat meanwhile.
func (s *Session) serveSnapshot(ctx context.Context, c *Connection, st step, buf []tidemark.Event) ([]tidemark.Event, error) {
	updates, people, err := s.node.Boundaries(ctx, s.User, st.ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.ownedBy(c)
	}
	//rule:nothing_outside_membership.drop-snapshot-after-removal
	if err != nil || s.drops != st.drops {
		for _, id := range st.ids {
			s.snapshot(id)
		}
		return buf, err
	}
	s.hasHeard(people)
	for _, u := range updates {
		if u, waits := s.newest(u); !waits {
			buf = s.sendStatus(buf, u, true)
		}
	}
	return buf, nil
}
