package chat

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// History is a page of messages in ascending order, and the gaps before, between and after them.
type History struct {
	Messages []tidemark.Message
	Gaps     []tidemark.Gap
	// HasMore reports that the chat continues in the direction of the request. Next is then the
	// next page.
	HasMore bool
	Next    tidemark.Sequence
	// newest is the highest membership version among the messages.
	newest uint64
	// short reports that a message was not there, which may have expired.
	short bool
}

// historyBytes bounds a page of history.
const historyBytes = 1 << 20

// After returns what a member may see of (after, head]: at most limit messages, the first ones.
// Errors: NotFound, NotMember.
func (c *Cache) After(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, after, head tidemark.Sequence,
	limit int,
) (History, error) {
	return c.asMember(ctx, user, chat, func(v view) (History, error) {
		h := History{Next: after}
		for h.Next < head && len(h.Messages) < limit {
			end, why := v.piece(h.Next+1, head)
			if why != "" {
				//rule:nothing_outside_membership.report-gap-in-history
				h.Gaps = append(h.Gaps, tidemark.Gap{
					ChatID: chat, From: h.Next + 1, To: end, Reason: why,
				})
				h.Next = end
				continue
			}
			messages, err := c.messages(ctx, storage.Range{
				Chat: chat, After: h.Next, Limit: limit - len(h.Messages), MaxBytes: historyBytes,
			})
			if err != nil {
				return History{}, err
			}
			if h.short = len(messages) == 0 || messages[0].Sequence > h.Next+1; h.short {
				break
			}
			for _, m := range messages {
				//rule:nothing_outside_membership.end-history-at-membership
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
	})
}

// Before returns what a member may see of [1, before): at most limit messages, the last ones.
// Errors: NotFound, NotMember.
func (c *Cache) Before(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, before tidemark.Sequence,
	limit int,
) (History, error) {
	return c.asMember(ctx, user, chat, func(v view) (History, error) {
		h := History{Next: before}
		for h.Next > 1 && len(h.Messages) < limit {
			first, why := v.before(h.Next - 1)
			if why != "" {
				h.Gaps = append(h.Gaps, tidemark.Gap{
					ChatID: chat, From: first, To: h.Next - 1, Reason: why,
				})
				h.Next = first
				continue
			}
			messages, err := c.messages(ctx, storage.Range{
				Chat:     chat,
				After:    tidemark.After(first),
				Before:   h.Next,
				Limit:    limit - len(h.Messages),
				MaxBytes: historyBytes,
			})
			if err != nil {
				return History{}, err
			}
			if h.short = len(messages) == 0; h.short {
				break
			}
			for _, m := range messages {
				h.newest = max(h.newest, m.MembersVersion)
			}
			h.Messages = append(messages[:len(messages):len(messages)], h.Messages...)
			if h.Next = messages[0].Sequence; h.Next > first {
				break // the page is full
			}
		}
		slices.Reverse(h.Gaps)
		h.HasMore = h.Next > 1
		return h, nil
	})
}

// Pick returns those of some messages that a member may see, in the order of wanted. It leaves out
// what has expired. Errors: NotFound, NotMember.
func (c *Cache) Pick(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, wanted []tidemark.Sequence,
) ([]tidemark.Message, error) {
	h, err := c.asMember(ctx, user, chat, func(v view) (History, error) {
		var ranges []storage.Range
		for _, n := range wanted {
			//rule:nothing_outside_membership.pick-within-membership
			if v.contains(n) {
				ranges = append(ranges, storage.Range{
					Chat: chat, After: tidemark.After(n), Limit: 1,
				})
			}
		}
		var h History
		if len(ranges) == 0 {
			return h, nil
		}
		pages, err := c.storage.Ranges(ctx, ranges)
		if err != nil {
			return h, err
		}
		for i, page := range pages {
			if len(page) == 0 || page[0].Sequence != ranges[i].After+1 {
				continue
			}
			h.Messages = append(h.Messages, page[0])
			h.newest = max(h.newest, page[0].MembersVersion)
		}
		return h, nil
	})
	return h.Messages, err
}

// asMember reads the messages that a member may see. If a message was stored under a newer roster
// than the one that decided, or may have expired since that was read, asMember reads the roster and
// starts again.
func (c *Cache) asMember(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	read func(view) (History, error),
) (History, error) {
	for {
		roster, m, err := c.Member(ctx, user, chat)
		if err != nil {
			return History{}, err
		}
		seen := viewOf(roster, &m)
		h, err := read(seen)
		if err != nil {
			return h, err
		}
		h.hideTargets(seen)
		if h.short {
			now, err := c.Current(ctx, chat)
			if err != nil {
				return History{}, err
			}
			if now.Floor > seen.floor {
				continue
			}
		}
		//rule:nothing_outside_membership.history-by-current-roster
		if h.newest <= roster.Version {
			return h, nil
		}
		if _, err := c.Roster(ctx, chat, h.newest); err != nil {
			return History{}, err
		}
	}
}

// hideTargets removes the targets that a member may not see.
func (h *History) hideTargets(v view) {
	for i := range h.Messages {
		m := &h.Messages[i]
		//rule:nothing_outside_membership.no-invisible-target-in-history
		if m.Relation != nil && !v.contains(m.Relation.Sequence) {
			*m = m.WithoutTarget()
		}
	}
}

// messages reads one range from storage.
func (c *Cache) messages(ctx context.Context, r storage.Range) ([]tidemark.Message, error) {
	pages, err := c.storage.Ranges(ctx, []storage.Range{r})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}
