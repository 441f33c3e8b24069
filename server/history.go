package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

// HistoryRequest asks for messages of a chat after After or before Before, both exclusive. If both
// are nil, it asks for the newest messages.
type HistoryRequest struct {
	Chat          tidemark.ChatID
	After, Before *tidemark.Sequence
	// Limit is from 1 to 1,000.
	Limit int
}

// History is a page of messages, and the gaps in it.
type History = chat.History

// History returns a page of the messages that a member may see.
//
// Errors: NotFound, NotMember, Invalid (both After and Before are given).
func (s *Server) History(
	ctx context.Context, user tidemark.UserID, r HistoryRequest,
) (History, error) {
	if r.After != nil && r.Before != nil {
		return History{}, tidemark.Errorf(tidemark.Invalid,
			"give after_sequence or before_sequence, not both")
	}
	heads, err := s.storage.Heads(ctx, []tidemark.ChatID{r.Chat})
	if err != nil {
		return History{}, err
	}
	if r.After != nil {
		return s.chats.After(ctx, user, r.Chat, *r.After, heads[0], r.Limit)
	}
	before := heads[0] + 1
	if r.Before != nil {
		before = min(before, *r.Before)
	}
	return s.chats.Before(ctx, user, r.Chat, before, r.Limit)
}

// Message returns one message that a member may see. Errors: NotFound, NotMember.
func (s *Server) Message(
	ctx context.Context, user tidemark.UserID, ref tidemark.MessageRef,
) (tidemark.Message, error) {
	after := max(ref.Sequence, 1) - 1
	//rule:nothing_outside_membership.one-message-as-history
	h, err := s.History(ctx, user, HistoryRequest{Chat: ref.ChatID, After: &after, Limit: 1})
	switch {
	case err != nil:
		return tidemark.Message{}, err
	case len(h.Messages) == 0 || h.Messages[0].Sequence != ref.Sequence:
		return tidemark.Message{}, tidemark.Errorf(tidemark.NotFound,
			"the chat %s has no message %d that you may see", ref.ChatID, ref.Sequence)
	}
	return h.Messages[0], nil
}

// messages reads one range from storage.
func (s *Server) messages(ctx context.Context, r storage.Range) ([]tidemark.Message, error) {
	pages, err := s.storage.Ranges(ctx, []storage.Range{r})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}
