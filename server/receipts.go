package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// ReceiptsSettings says who sees what a user reads, in one chat or in all.
type ReceiptsSettings struct {
	// Chat is empty for the setting of all chats.
	Chat    tidemark.ChatID
	Setting tidemark.ReceiptsSetting
	// Policy is that of the chat. It comes before the settings. It is empty for all chats.
	Policy tidemark.ReceiptsPolicy
	// Hidden says that others do not see what the user reads now. It follows from the policy and
	// from both settings.
	Hidden bool
}

// Receipts returns a user's setting for a chat, or for all chats if chat is "", and what holds.
//
// Errors: Invalid (a bad id), NotFound, NotMember, Unavailable.
func (s *Server) Receipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (ReceiptsSettings, error) {
	if err := s.maySetReceipts(ctx, user, chat); err != nil {
		return ReceiptsSettings{}, err
	}
	inChat, inAll, err := s.storage.ReceiptsOf(ctx, user, chat)
	if err != nil {
		return ReceiptsSettings{}, err
	}
	hides := inChat.Or(inAll) == tidemark.ReceiptsOff
	if chat == "" {
		return ReceiptsSettings{Setting: inAll, Hidden: hides}, nil
	}
	stored, err := s.storage.Chat(ctx, chat)
	if err != nil {
		return ReceiptsSettings{}, err
	}
	policy := stored.Policy.Receipts
	return ReceiptsSettings{
		Chat: chat, Setting: inChat, Policy: policy, Hidden: policy.Hides(hides),
	}, nil
}

// SetReceipts stores a user's setting for a chat, or for all chats if chat is "". The setting
// decides about what is stored after the call has returned, on every node. So it also decides about
// a read that another node has accepted before the call, and not stored yet. The call may be
// repeated.
//
// Errors: Invalid (a bad id or setting), NotFound, NotMember, Unavailable (the setting may hold in
// some chats; repeat the call).
func (s *Server) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) (ReceiptsSettings, error) {
	if err := s.calls.begin(); err != nil {
		return ReceiptsSettings{}, err
	}
	defer s.calls.end()
	if err := storage.CheckReceipts(chat, setting); err != nil {
		return ReceiptsSettings{}, err
	}
	if err := s.maySetReceipts(ctx, user, chat); err != nil {
		return ReceiptsSettings{}, err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	// What the user has read before on this node is written first, under the setting before.
	//rule:shown_within_real.earlier-reads-first
	s.receipts.Flush(ctx)
	if err := s.storage.SetReceipts(ctx, user, chat, setting); err != nil {
		return ReceiptsSettings{}, concealed(Caller{User: user}, chat, err)
	}
	s.delivery.Publish(ctx, []delivery.Announcement{
		{To: []tidemark.UserID{user}, Event: bus.Event{Own: &bus.Own{}}},
	}, false)
	return s.Receipts(ctx, user, chat)
}

// maySetReceipts returns nil if a user may have a setting for a chat.
func (s *Server) maySetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) error {
	if chat == "" {
		return nil
	}
	if err := tidemark.CheckID("chat_id", chat); err != nil {
		return err
	}
	_, _, err := s.chats.Member(ctx, user, chat)
	return err
}
