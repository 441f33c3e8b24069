package session

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/feed"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// slack is by how much the clocks of the nodes may differ, and more: what a session may have missed in chats of which it knows nothing is looked for by time.
	slack = 10 * time.Minute
	// doubt is how young a position is, when a look is ordered, that may have begun with a message behind one that was lost. It is longer than a loss goes unnoticed.
	doubt = 5 * time.Minute
	// quietChats is how many such chats one page of a look asks for, quietMessages how far back each is read.
	quietChats    = 32
	quietMessages = 200
)

// lookForQuiet reads a page of the user's chats, latest activity first, as far as they were active since the session knew for certain what there is, and lets those
// begin that are not in its map: what was not handed over to this session may have reached another device of the user, which has acknowledged it, so that
// no comparison with his watermark finds it. It may send again what the device had before it opened the session.
func (s *Session) lookForQuiet(ctx context.Context, c *Connection, l look) error {
	since := l.since.Add(-slack)
	active, more, err := s.node.Storage.ChatsOf(ctx, s.User, storage.ChatsPage{Limit: quietChats, Activity: l.activity, ChatID: l.after, Brief: true})
	if err != nil {
		return err
	}
	last := look{}
	var pages []feed.History
	for _, chat := range active {
		last.activity, last.after = chat.Activity, chat.Chat.ID
		if chat.Activity.Before(since) {
			more = false
			break
		}
		before := s.unknownBefore(chat.Chat, l.began.Add(-doubt))
		if before <= 1 {
			continue
		}
		page, err := s.node.Feed.Before(ctx, s.User, chat.Chat.ID, before, quietMessages)
		if code := tidemark.CodeOf(err); code == tidemark.NotMember || code == tidemark.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		pages = append(pages, page)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil {
		return err
	}
	if s.look.order != l.order || s.look.after != l.after || s.look.mode != l.mode {
		return nil
	}
	for _, page := range pages {
		s.begins(&page, since)
	}
	if more {
		s.look.activity, s.look.after = last.activity, last.after
		return nil
	}
	s.look.mode, s.look.after, s.look.activity = lookCompare, "", time.Time{}
	return nil
}

// unknownBefore returns the sequence before which the session may have missed messages of a chat; 0 if it has not, since its place there is older than doubtful.
func (s *Session) unknownBefore(chat tidemark.Chat, doubtful time.Time) tidemark.Sequence {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := s.chats[chat.ID]; {
	case p == nil:
		return chat.Head + 1
	//rule:R_EPOCH.trust-older-positions-only
	case int64(p.born) >= doubtful.Unix():
		return p.start
	default:
		return 0
	}
}

// begins lets the session begin a chat with the first of some messages that was stored since a time, unless it begins before them anyway.
func (s *Session) begins(page *feed.History, since time.Time) {
	messages := page.Messages
	for i := range messages {
		m := &messages[i]
		if p := s.chats[m.ChatID]; p != nil && p.start <= m.Sequence {
			return
		}
		//rule:session_in_order.skip-messages-before-the-doubt
		if m.CreatedAt.Before(since) {
			continue
		}
		if i == 0 && page.HasMore { // there may be more before it than is looked at: the client gives its cursors
			s.reset(tidemark.Reset{Reason: tidemark.ResetOverflow})
		}
		//rule:R_EPOCH.read-quiet-chat-from-doubt
		s.touch(m.ChatID, m.Sequence)
		if p := s.touch(m.ChatID, messages[len(messages)-1].Sequence); p != nil {
			s.owes(p)
		}
		return
	}
}
