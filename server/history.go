package server

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// HistoryRequest asks for messages of a chat: those after After, those before Before, or the newest if both are nil. Both are exclusive.
type HistoryRequest struct {
	Chat          tidemark.ChatID
	After, Before *tidemark.Sequence
	// Limit is at least 1 and at most 1,000.
	Limit int
}

// History is a page of messages in ascending order, and the gaps between, before and after them within the stretch that the page covers.
type History struct {
	Messages []tidemark.Message
	Gaps     []tidemark.Gap
	// HasMore says that the chat goes on in the direction of the request; Next is the After, or Before, of the next page.
	HasMore bool
	Next    tidemark.Sequence
	// newest is the highest membership version of the messages.
	newest uint64
}

// historyBytes bounds a page of history.
const historyBytes = 1 << 20

// History returns a page of what a member may see. NotFound, NotMember, Invalid (both After and Before).
func (s *Server) History(ctx context.Context, user tidemark.UserID, r HistoryRequest) (History, error) {
	if r.After != nil && r.Before != nil {
		return History{}, tidemark.Errorf(tidemark.Invalid, "give after_sequence or before_sequence, not both")
	}
	return s.asMember(ctx, user, r.Chat, func(iv tidemark.Intervals) (History, error) { return s.history(ctx, r, iv) })
}

// asMember reads messages for a member, by what he may see. If one of them was stored under a newer membership than the one that was looked at, it
// looks and reads again.
func (s *Server) asMember(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, read func(tidemark.Intervals) (History, error)) (History, error) {
	for {
		p, m, err := s.feed.Member(ctx, user, chat)
		if err != nil {
			return History{}, err
		}
		h, err := read(m.Intervals)
		if err != nil || h.newest <= p.Version {
			return h, err
		}
		if _, err := s.feed.People(ctx, chat, h.newest); err != nil {
			return History{}, err
		}
	}
}

// history reads a page for one who may see the intervals.
func (s *Server) history(ctx context.Context, r HistoryRequest, iv tidemark.Intervals) (History, error) {
	heads, err := s.storage.Heads(ctx, []tidemark.ChatID{r.Chat})
	if err != nil {
		return History{}, err
	}
	if r.After != nil {
		return s.historyAfter(ctx, r.Chat, iv, *r.After, heads[0], r.Limit)
	}
	before := heads[0] + 1
	if r.Before != nil {
		before = min(before, *r.Before)
	}
	return s.historyBefore(ctx, r.Chat, iv, before, r.Limit)
}

// historyAfter reads (after, head], as far as limit goes.
func (s *Server) historyAfter(ctx context.Context, chat tidemark.ChatID, iv tidemark.Intervals, after, head tidemark.Sequence, limit int) (History, error) {
	h := History{Next: after}
	for h.Next < head && len(h.Messages) < limit {
		end, visible := iv.Visible(h.Next+1, head)
		if !visible {
			h.Gaps = append(h.Gaps, tidemark.Gap{ChatID: chat, From: h.Next + 1, To: end, Reason: tidemark.GapNotMember})
			h.Next = end
			continue
		}
		messages, err := s.messages(ctx, storage.Range{
			Chat: chat, After: h.Next, Limit: limit - len(h.Messages), MaxBytes: historyBytes,
		})
		if err != nil {
			return History{}, err
		}
		for _, m := range messages {
			if m.Sequence > end {
				break
			}
			h.Messages = append(h.Messages, m)
			h.Next = m.Sequence
			h.newest = max(h.newest, m.MembersVersion)
		}
		if h.Next < end {
			break // the page is full
		}
	}
	h.HasMore = h.Next < head
	return h, nil
}

// historyBefore reads [1, before), from its end as far back as limit goes.
func (s *Server) historyBefore(ctx context.Context, chat tidemark.ChatID, iv tidemark.Intervals, before tidemark.Sequence, limit int) (History, error) {
	h := History{Next: before}
	for h.Next > 1 && len(h.Messages) < limit {
		first, visible := iv.Before(h.Next - 1)
		if !visible {
			h.Gaps = append(h.Gaps, tidemark.Gap{ChatID: chat, From: first, To: h.Next - 1, Reason: tidemark.GapNotMember})
			h.Next = first
			continue
		}
		messages, err := s.messages(ctx, storage.Range{
			Chat: chat, After: tidemark.After(first), Before: h.Next, Limit: limit - len(h.Messages), MaxBytes: historyBytes,
		})
		if err != nil {
			return History{}, err
		}
		for _, m := range messages {
			h.newest = max(h.newest, m.MembersVersion)
		}
		h.Messages = append(messages[:len(messages):len(messages)], h.Messages...)
		if len(messages) > 0 {
			h.Next = messages[0].Sequence
		}
		if h.Next > first {
			break // the page is full
		}
	}
	slices.Reverse(h.Gaps)
	h.HasMore = h.Next > 1
	return h, nil
}

// messages reads one range.
func (s *Server) messages(ctx context.Context, r storage.Range) ([]tidemark.Message, error) {
	pages, err := s.storage.Ranges(ctx, []storage.Range{r})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}
