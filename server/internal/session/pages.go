package session

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// reconcilePage is how many chats a page covers at most. readMissed also reads up to
	// activeMessages messages of each of up to activePage chats.
	reconcilePage  = 256
	activePage     = 32
	activeMessages = 200
	// clockSlack is more than the clocks of two nodes may differ. readMissed compares times of day.
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
	case readMissed:
		return s.readMissed(ctx, r, ordered)
	}
	found, last, more, err := s.readBehind(ctx, ordered)
	if err != nil {
		return err
	}
	return s.takePage(r, ordered, last, more, func() {
		for _, f := range found {
			s.found(f)
		}
	})
}

// takePage calls take with the session locked, to apply a page that ended with the chat last. more
// says that more pages follow. It skips take if the session has begun another reconciliation or
// page since.
func (s *Session) takePage(
	r *Reader, ordered reconcile, last tidemark.ChatID, more bool, take func(),
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(r); err != nil {
		return err
	}
	//rule:R_EPOCH.drop-page-of-an-older-comparison
	if s.reconcile.reads(ordered) {
		take()
		s.reconcile.advance(last, more)
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
	lags, last, more, err := s.behind(ctx, storage.BehindQuery{
		LargeOnly: ordered.phase == readLarge, After: ordered.after, Limit: reconcilePage,
	})
	if err != nil {
		return nil, "", false, err
	}
	for _, lag := range lags {
		found = append(found, findOf(lag, ordered.phase == readAll))
	}
	return found, last, more, nil
}

// behind compares heads with the user's watermarks, and counts the calls under way.
func (s *Session) behind(
	ctx context.Context, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	s.host.Count.Compares.Add(1)
	s.host.Count.Comparing.Add(1)
	defer s.host.Count.Comparing.Add(-1)
	return s.host.Storage.Behind(ctx, s.User(), q)
}

// findOf returns the find of a chat in which the user is behind.
func findOf(lag storage.Lag, mayBePending bool) find {
	return find{
		chat: lag.Chat, first: tidemark.First(lag.Acked), acked: lag.Acked, head: lag.Head,
		mayBePending: mayBePending,
	}
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
	if s.statuses.snapshot && s.statuses.recent.uses&forStatuses == 0 {
		s.statuses.refreshChat(f.chat)
	}
}

// expectFound makes `caught_up` wait for a chat that a reconciliation found.
func (s *Session) expectFound(p *progress) {
	if p.queued && s.catchUp.state != caughtUp {
		s.catchUp.expect(p)
	}
}

// readMissed reads a page of the chats in which the session may have missed messages. These are the
// chats in which the user is behind, and those that were active since the session was last certain.
// In an active chat that the session does not know, it begins with the first message since then.
//
// Watermarks do not show messages that were not published to this session, if another device has
// acknowledged them. The device may therefore receive again what it had before it opened the
// session.
func (s *Session) readMissed(ctx context.Context, r *Reader, ordered reconcile) error {
	since := ordered.since.Add(-clockSlack)
	lags, last, more, err := s.behind(ctx, storage.BehindQuery{
		//rule:R_EPOCH.look-at-quiet-chats
		Since: since, After: ordered.after, Limit: reconcilePage,
	})
	if err != nil {
		return err
	}
	var pages []chat.History
	reads := 0
	for i, lag := range lags {
		before := s.unknownBefore(lag, ordered.began.Add(-unsettledFor))
		if before <= 1 {
			continue
		}
		//rule:bounded_use.limit-messages-of-a-comparison
		if reads++; reads > activePage {
			lags, last, more = lags[:i], lags[i-1].Chat, true
			break
		}
		page, err := s.host.Chats.Before(ctx, s.User(), lag.Chat, before, activeMessages)
		if code := tidemark.CodeOf(err); code == tidemark.NotMember || code == tidemark.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		pages = append(pages, page)
	}
	return s.takePage(r, ordered, last, more, func() {
		for _, page := range pages {
			s.beginActive(&page, since)
		}
		for _, lag := range lags {
			s.missing(lag)
		}
	})
}

// missing applies a chat of readMissed. A chat that has grown becomes ready. If the session knows
// it, it sends what follows its position, whatever the user has acknowledged.
func (s *Session) missing(lag storage.Lag) {
	//rule:R_EPOCH.raise-known-heads
	if p := s.chats.get(lag.Chat); p != nil && lag.Head > p.head {
		p.raise(lag.Head)
		p.waitsSince(s.host.Now())
		s.chats.queue(p)
		s.expectFound(p)
	}
	//rule:R_EPOCH.find-what-is-not-acknowledged
	if lag.Head > lag.Acked {
		s.found(findOf(lag, true))
	}
}

// unknownBefore returns the sequence below which the session may have missed messages of a chat. It
// returns 0 if the chat was not active, or if the session has known it for longer than
// unsettledFor.
func (s *Session) unknownBefore(lag storage.Lag, unsettled time.Time) tidemark.Sequence {
	if !lag.Active {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := s.chats.get(lag.Chat); {
	case p == nil:
		return lag.Head + 1
	//rule:R_EPOCH.trust-older-positions-only
	case int64(p.firstSeen) >= unsettled.Unix():
		return p.start
	default:
		return 0
	}
}

// beginActive begins a chat at the first message since a time, unless the session begins lower.
func (s *Session) beginActive(page *chat.History, since time.Time) {
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
