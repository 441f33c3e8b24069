package server

import (
	"context"
	"slices"
	"sort"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/pagetoken"
	"github.com/tidemark-im/tidemark/storage"
)

// ReactionCount says how many users have reacted to a message with an emoji.
type ReactionCount = storage.ReactionCount

// Reactions are the reactions to the messages of a page.
type Reactions struct {
	// Of has the counts of each message of the page, in its order. A redacted message has none.
	Of [][]ReactionCount
	// Through is a sequence: exactly the reactions and redactions at or below it count. It is 0 if
	// the page has no messages.
	Through tidemark.Sequence
}

// HistoryWithReactions is History with the reactions to the messages. The messages of a page are
// within storage.MaxReactionsRange sequences, so a page may end before its limit.
func (s *Server) HistoryWithReactions(
	ctx context.Context, user tidemark.UserID, r HistoryRequest,
) (History, Reactions, error) {
	r.Limit = min(r.Limit, storage.MaxReactionsRange)
	h, err := s.History(ctx, user, r)
	if err != nil || len(h.Messages) == 0 {
		return h, Reactions{}, err
	}
	if r.After != nil {
		keepFirst(&h)
	} else {
		keepLast(&h)
	}
	found, through, err := s.storage.Reactions(ctx, storage.ReactionsQuery{
		Chat: r.Chat, User: user,
		From: h.Messages[0].Sequence, To: h.Messages[len(h.Messages)-1].Sequence,
	})
	if err != nil {
		return History{}, Reactions{}, err
	}
	reactions := Reactions{Of: make([][]ReactionCount, len(h.Messages)), Through: through}
	for i := range h.Messages {
		m := &h.Messages[i]
		//rule:annotations_counted.none-of-what-was-redacted
		if m.Redacted() {
			continue
		}
		reactions.Of[i] = of(m.Sequence, found)
	}
	return h, reactions, nil
}

// of returns those of some counts that are of a message. They ascend.
func of(n tidemark.Sequence, all []ReactionCount) []ReactionCount {
	at := func(n tidemark.Sequence) int {
		return sort.Search(len(all), func(i int) bool { return all[i].Sequence >= n })
	}
	return all[at(n):at(n+1)]
}

// keepFirst shortens a page, which ascends from its request, to what one call counts the reactions
// of.
func keepFirst(h *History) {
	end := h.Messages[0].Sequence + storage.MaxReactionsRange
	n := slices.IndexFunc(h.Messages, func(m tidemark.Message) bool { return m.Sequence >= end })
	if n < 0 {
		return
	}
	h.Messages = h.Messages[:n]
	h.Next, h.HasMore = h.Messages[n-1].Sequence, true
	h.Gaps = slices.DeleteFunc(h.Gaps, func(g tidemark.Gap) bool { return g.From > h.Next })
}

// keepLast is keepFirst of a page that descends from its request.
func keepLast(h *History) {
	first := h.Messages[len(h.Messages)-1].Sequence
	n := slices.IndexFunc(h.Messages, func(m tidemark.Message) bool {
		return m.Sequence+storage.MaxReactionsRange > first
	})
	if n == 0 {
		return
	}
	h.Messages = h.Messages[n:]
	h.Next, h.HasMore = h.Messages[0].Sequence, true
	h.Gaps = slices.DeleteFunc(h.Gaps, func(g tidemark.Gap) bool { return g.From < h.Next })
}

// ReactionPage is a page of the reactions to a message, the oldest first. NextCursor is empty on
// the last page.
type ReactionPage struct {
	Reactions  []storage.Reaction
	NextCursor string
}

// Reactions returns a page of the reactions that stand to a message. A redacted message has none.
// limit is at least 1.
//
// Errors: Invalid (the cursor), NotFound (also if the user may not see the message), NotMember.
func (s *Server) Reactions(
	ctx context.Context, user tidemark.UserID, to tidemark.MessageRef, limit int, cursor string,
) (ReactionPage, error) {
	after, err := pagetoken.DecodeSequence(pagetoken.Reactions, cursor)
	if err != nil {
		return ReactionPage{}, err
	}
	//rule:nothing_outside_membership.no-reactions-to-the-invisible
	m, err := s.Message(ctx, user, to)
	if err != nil || m.Redacted() {
		return ReactionPage{}, err
	}
	found, more, err := s.storage.Reactors(ctx, to.ChatID, to.Sequence, after, limit)
	page := ReactionPage{Reactions: found}
	if more {
		last := uint64(found[len(found)-1].Sequence)
		page.NextCursor = pagetoken.Encode(pagetoken.Reactions, strconv.FormatUint(last, 10))
	}
	return page, err
}

// Pin is a pin, and the message that is pinned. Message is nil if the caller may not see it.
type Pin struct {
	storage.Pin
	Message *tidemark.Message
}

// Pins returns the pins of a chat, the latest first. Members get those whose messages they may see.
// Members who may pin, and backends, get the others without their messages. Each pin counts against
// tidemark.MaxPins, so they must be able to undo it.
//
// Errors: NotFound, NotMember.
func (s *Server) Pins(ctx context.Context, c Caller, chat tidemark.ChatID) ([]Pin, error) {
	if _, _, err := s.chats.Member(ctx, c.User, chat); err != nil {
		return nil, err
	}
	all, err := s.storage.Pins(ctx, chat)
	if err != nil {
		return nil, err
	}
	targets := make([]tidemark.Sequence, len(all))
	for i, pin := range all {
		targets[i] = pin.Target
	}
	messages, err := s.chats.Pick(ctx, c.User, chat, targets)
	if err != nil {
		return nil, err
	}
	unseen := false
	if len(messages) < len(all) {
		if unseen, err = s.mayPin(ctx, c, chat); err != nil {
			return nil, err
		}
	}
	pins := make([]Pin, 0, len(all))
	for _, pin := range all {
		i := slices.IndexFunc(messages,
			func(m tidemark.Message) bool { return m.Sequence == pin.Target })
		switch {
		case i >= 0:
			pins = append(pins, Pin{Pin: pin, Message: &messages[i]})
		case unseen:
			pins = append(pins, Pin{Pin: pin})
		}
	}
	return pins, nil
}

// mayPin reports whether the caller, who acts for a member, may pin and unpin messages of a chat.
// Before it says so of a member, it reads the members from storage, because the cached ones may be
// old.
func (s *Server) mayPin(ctx context.Context, c Caller, chat tidemark.ChatID) (bool, error) {
	if c.Backend {
		return true, nil
	}
	roster, m, err := s.chats.Member(ctx, c.User, chat)
	//rule:nothing_outside_membership.unseen-pins-for-those-who-may-pin
	if err != nil || !m.Role.MayPin(roster.Type) {
		return false, err
	}
	//rule:nothing_outside_membership.unseen-pins-by-stored-roles
	roster, err = s.chats.Current(ctx, chat)
	if err != nil {
		return false, err
	}
	m, there := roster.Member(c.User)
	return there && m.Role.MayPin(roster.Type), nil
}
