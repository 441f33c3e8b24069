package memory

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// SetReceipts implements storage.Receipts.
func (s *Store) SetReceipts(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
	setting tidemark.ReceiptsSetting,
) error {
	if err := storage.CheckReceipts(chat, setting); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if chat != "" {
		if _, err := s.alive(chat); err != nil {
			return err
		}
	}
	key := storage.StateKey{User: user, Chat: chat}
	if setting == tidemark.ReceiptsDefault {
		delete(s.hides, key)
	} else {
		s.hides[key] = setting == tidemark.ReceiptsOff
	}
	return nil
}

// ReceiptsOf implements storage.Receipts.
func (s *Store) ReceiptsOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (inChat, inAll tidemark.ReceiptsSetting, err error) {
	if err := s.enter(ctx); err != nil {
		return "", "", err
	}
	defer s.mu.Unlock()
	inChat, inAll = tidemark.ReceiptsDefault, tidemark.ReceiptsOn
	if hides, set := s.hides[storage.StateKey{User: user, Chat: chat}]; set && chat != "" {
		inChat = settingOf(hides)
	}
	if s.hides[storage.StateKey{User: user}] {
		inAll = tidemark.ReceiptsOff
	}
	return inChat, inAll, nil
}

func settingOf(hides bool) tidemark.ReceiptsSetting {
	if hides {
		return tidemark.ReceiptsOff
	}
	return tidemark.ReceiptsOn
}

// hidden reports whether what a user reads in a chat is hidden. The mutex is held.
func (s *Store) hidden(user tidemark.UserID, chat tidemark.ChatID) bool {
	hides, set := s.hides[storage.StateKey{User: user, Chat: chat}]
	if !set {
		hides = s.hides[storage.StateKey{User: user}]
	}
	//rule:shown_within_real.policy-first-in-memory
	if c := s.chats[chat]; c != nil {
		return c.Policy.Receipts.Hides(hides)
	}
	return hides
}
