package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// ChatUnread is what is unread for a user in a chat.
type ChatUnread struct {
	State  tidemark.DeliveryState
	Unread storage.Unread
}

// UnreadTotal is what is unread for a user in all their chats.
type UnreadTotal = storage.UnreadTotal

// Unread returns what is unread for a user in all their chats.
func (s *Server) Unread(ctx context.Context, user tidemark.UserID) (UnreadTotal, error) {
	return s.storage.UnreadOf(ctx, user)
}

// MarkUnread marks the messages of a chat from a sequence on as unread, or takes that back (0). The
// watermarks stay: nobody else sees it. It ends when the user reads further.
//
// Errors: NotFound, NotMember, InvalidSequence (from is above the head), Unavailable.
func (s *Server) MarkUnread(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from tidemark.Sequence,
) (ChatUnread, error) {
	if err := s.calls.begin(); err != nil {
		return ChatUnread{}, err
	}
	defer s.calls.end()
	if _, _, err := s.chats.Member(ctx, user, chat); err != nil {
		return ChatUnread{}, err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	// What the user has read before on this node is written first. Otherwise it would end the mark.
	//rule:unread_exact.mark-after-earlier-reads
	s.receipts.Flush(ctx)
	state, err := s.storage.MarkUnread(ctx, user, chat, from)
	if err != nil {
		return ChatUnread{}, concealed(Caller{User: user}, chat, err)
	}
	//rule:own_state_reaches_devices.mark-set
	s.receipts.OwnChanged(user, chat)
	counts, err := s.storage.Unread(ctx, []storage.StateKey{{User: user, Chat: chat}})
	if err != nil {
		return ChatUnread{}, err
	}
	return ChatUnread{State: state, Unread: counts[0]}, nil
}
