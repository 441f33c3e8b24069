package session

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// reconcilePage and recentPage are how many chats a page covers; recentPage is for readRecent.
	// recentMessages is how many messages readRecent reads of a chat.
	reconcilePage  = 256
	recentPage     = 32
	recentMessages = 200
	// clockSlack is more than the clocks of two nodes may differ. readRecent compares times of day.
	clockSlack = 10 * time.Minute
	// unsettledFor is longer than a lost notification can go unnoticed. In a chat that the session
	// learned of more recently, an earlier message may have been missed.
	unsettledFor = 5 * time.Minute
)

// find is a chat in which a reconciliation found unsent messages.
type find struct {
	chat         tidemark.ChatID
	first, acked tidemark.Sequence
	// head is 0 if only storage knows where the chat ends.
	head tidemark.Sequence
	// mayBePending says that a pending row exists or may exist.
	mayBePending bool
}

// readPage reads the page that ordered describes.
func (s *Session) readPage(ctx context.Context, r *Reader, ordered reconcile) error {
	switch ordered.phase {
	case idle:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reconcile.order == ordered.order {
			s.reconcile.beginQueued(s.host.Now())
		}
		return nil
	case readKnown:
		return s.readKnown(ctx, r, ordered)
	case readRecent:
		return s.readRecent(ctx, r, ordered)
	}
	found, last, more, err := s.readBehind(ctx, ordered)
	if err != nil {
		return err
	}
	return s.takePage(r, ordered, func() (tidemark.ChatID, time.Time, bool) {
		for _, f := range found {
			s.found(f)
		}
		return last, time.Time{}, more
	})
}

// takePage calls take with the session locked. It skips take if the session has begun another
// reconciliation or page since. take applies the page, and returns where the page ended and whether
// more follow.
func (s *Session) takePage(
	r *Reader, ordered reconcile, take func() (last tidemark.ChatID, activity time.Time, more bool),
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(r); err != nil {
		return err
	}
	if s.reconcile.reads(ordered) {
		s.reconcile.advance(take())
	}
	return nil
}

// readBehind reads a page of pending rows, or of chats whose head is above the user's watermark.
func (s *Session) readBehind(
	ctx context.Context, ordered reconcile,
) (found []find, last tidemark.ChatID, more bool, err error) {
	if ordered.phase == readRows {
		s.host.Count.Listings.Add(1)
		rows, more, err := s.host.Storage.PendingOf(ctx, s.User(), ordered.after, reconcilePage)
		if err != nil {
			return nil, "", false, err
		}
		for _, row := range rows {
			found = append(found, find{
				chat: row.ChatID, first: row.FirstUndelivered, acked: row.Acked, mayBePending: true,
			})
			last = row.ChatID
		}
		return found, last, more, nil
	}
	s.host.Count.Compares.Add(1)
	lags, last, more, err := s.host.Storage.Behind(ctx, s.User(), storage.BehindQuery{
		LargeOnly: ordered.phase == readLarge, After: ordered.after, Limit: reconcilePage,
	})
	if err != nil {
		return nil, "", false, err
	}
	for _, lag := range lags {
		found = append(found, find{
			chat: lag.Chat, first: tidemark.First(lag.Acked), acked: lag.Acked, head: lag.Head,
			mayBePending: ordered.phase == readAll,
		})
	}
	return found, last, more, nil
}

// found applies one find.
func (s *Session) found(f find) {
	// A listed chat without a first sequence is one that writes no rows.
	if f.first == 0 {
		//rule:pending_or_delivered.compare-large-chats
		s.reconcile.rowless = true
		return
	}
	//rule:pending_or_delivered.row-may-be-above-head
	p := s.reach(f.chat, f.first)
	if p == nil {
		return
	}
	// A row may begin above the watermark, because rows of earlier messages may still be unwritten.
	//rule:R_MIN.watermark-of-the-chat
	s.learnAcked(p, f.acked)
	p.mayBePending = p.mayBePending || f.mayBePending
	if f.head == 0 {
		// The row may name a message above the head, so storage decides where the chat ends.
		//rule:pending_or_delivered.row-reaches-to-the-end
		p.openEnded = true
	} else {
		p.raise(f.head)
		p.waitsSince(s.host.Now())
	}
	s.chats.queue(p)
	s.expectFound(p)
	// The chats of an open, or of missed events, are listed with a bound (listRecent).
	//rule:bounded_use.bound-statuses-of-found-chats
	if s.statuses.snapshot && s.statuses.recent&forStatuses == 0 {
		s.statuses.refreshChat(f.chat)
	}
}

// expectFound makes `caught_up` wait for a chat that a reconciliation found.
func (s *Session) expectFound(p *progress) {
	if p.queued && s.catchUp.state != caughtUp {
		s.catchUp.expect(p)
	}
}

// readKnown reads a page of heads of the chats that the session knows. Chats that have grown become
// ready.
func (s *Session) readKnown(ctx context.Context, r *Reader, ordered reconcile) error {
	ids := s.knownAfter(ordered.after)
	heads, err := s.host.Heads.Heads(ctx, ids)
	if err != nil {
		return err
	}
	return s.takePage(r, ordered, func() (tidemark.ChatID, time.Time, bool) {
		for i, id := range ids {
			if p := s.chats.get(id); p != nil && heads[i] > p.head {
				p.raise(heads[i])
				p.waitsSince(s.host.Now())
				s.chats.queue(p)
				s.expectFound(p)
			}
		}
		if len(ids) < reconcilePage {
			return "", time.Time{}, false
		}
		return ids[len(ids)-1], time.Time{}, true
	})
}

// knownAfter returns a page of the chats that the session knows, sorted.
func (s *Session) knownAfter(after tidemark.ChatID) []tidemark.ChatID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []tidemark.ChatID
	for id := range maps.Keys(s.chats.byID) {
		if id > after {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), reconcilePage)]
}

// readRecent reads a page of the user's chats, latest activity first, back to when the session was
// last certain. In chats that the session does not know, it begins with the first message since
// then.
//
// Watermarks do not show messages that were not published to this session, if another device has
// acknowledged them. The device may therefore receive again what it had before it opened the
// session.
func (s *Session) readRecent(ctx context.Context, r *Reader, ordered reconcile) error {
	since := ordered.since.Add(-clockSlack)
	active, more, err := s.host.Storage.ChatsOf(ctx, s.User(), storage.ChatsPage{
		Limit: recentPage, Activity: ordered.activity, ChatID: ordered.after, Brief: true,
	})
	if err != nil {
		return err
	}
	var last tidemark.ChatID
	var activity time.Time
	var pages []chat.History
	for _, chat := range active {
		last, activity = chat.Chat.ID, chat.Activity
		if chat.Activity.Before(since) {
			more = false
			break
		}
		before := s.unknownBefore(chat.Chat, ordered.began.Add(-unsettledFor))
		if before <= 1 {
			continue
		}
		page, err := s.host.Chats.Before(ctx, s.User(), chat.Chat.ID, before, recentMessages)
		if code := tidemark.CodeOf(err); code == tidemark.NotMember || code == tidemark.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		pages = append(pages, page)
	}
	return s.takePage(r, ordered, func() (tidemark.ChatID, time.Time, bool) {
		for _, page := range pages {
			s.beginRecent(&page, since)
		}
		return last, activity, more
	})
}

// unknownBefore returns the sequence below which the session may have missed messages of a chat. It
// returns 0 if the session has known the chat for longer than unsettledFor.
func (s *Session) unknownBefore(chat tidemark.Chat, unsettled time.Time) tidemark.Sequence {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := s.chats.get(chat.ID); {
	case p == nil:
		return chat.Head + 1
	//rule:R_EPOCH.trust-older-positions-only
	case int64(p.firstSeen) >= unsettled.Unix():
		return p.start
	default:
		return 0
	}
}

// beginRecent begins a chat at the first message since a time, unless the session begins lower.
func (s *Session) beginRecent(page *chat.History, since time.Time) {
	messages := page.Messages
	for i := range messages {
		m := &messages[i]
		if p := s.chats.get(m.ChatID); p != nil && p.start <= m.Sequence {
			return
		}
		//rule:session_in_order.skip-messages-before-the-doubt
		if m.CreatedAt.Before(since) {
			continue
		}
		// Earlier messages may exist, so the client has to give its cursors.
		if i == 0 && page.HasMore {
			s.reset(tidemark.Reset{Reason: tidemark.ResetOverflow})
		}
		//rule:R_EPOCH.read-quiet-chat-from-doubt
		s.raiseHead(m.ChatID, m.Sequence)
		if p := s.raiseHead(m.ChatID, messages[len(messages)-1].Sequence); p != nil {
			s.expectFound(p)
		}
		return
	}
}
