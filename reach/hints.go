package reach

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// hinting is a store that hints at each chat that has news.
type hinting struct {
	storage.Store
	engine *Engine
}

// Hinting returns a store that passes all calls to s, and calls Hint for each chat that has news
// afterwards. It changes no arguments and no results. The engine itself uses s.
func (e *Engine) Hinting(s storage.Store) storage.Store { return &hinting{s, e} }

// after hints at a chat if a call has succeeded. A call without an answer may have, too: its news
// are found by the next poll.
func (h *hinting) after(chat tidemark.ChatID, err error) {
	if err == nil {
		h.engine.Hint(chat)
	}
}

func (h *hinting) CreateChat(
	ctx context.Context, new storage.NewChat,
) (tidemark.Chat, bool, error) {
	chat, created, err := h.Store.CreateChat(ctx, new)
	h.after(chat.ID, err)
	return chat, created, err
}

func (h *hinting) UpdateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	chat, err := h.Store.UpdateChat(ctx, id, change)
	h.after(id, err)
	return chat, err
}

func (h *hinting) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID, role tidemark.Role,
	now time.Time,
) (storage.Added, error) {
	added, err := h.Store.AddMembers(ctx, chat, users, role, now)
	h.after(chat, err)
	return added, err
}

func (h *hinting) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	removed, err := h.Store.RemoveMember(ctx, chat, user, now)
	h.after(chat, err)
	return removed, err
}

func (h *hinting) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	updated, err := h.Store.UpdateMember(ctx, chat, user, change)
	h.after(chat, err)
	return updated, err
}

func (h *hinting) Append(
	ctx context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
	appended, err := h.Store.Append(ctx, drafts)
	for i := range appended {
		h.after(drafts[i].ChatID, appended[i].Err)
	}
	return appended, err
}
