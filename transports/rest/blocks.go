package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// ListBlocks returns a page of those whom the caller has blocked.
func (h *Handler) ListBlocks(c echo.Context, params ListBlocksParams) error {
	limit, cursor, err := pageOf(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	page, err := h.server.Blocks(c.Request().Context(), caller(c).User, limit, cursor)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendBlocks(nil, page))
}

// PutBlock blocks a user.
func (h *Handler) PutBlock(c echo.Context, userID UserId) error {
	err := h.server.Block(c.Request().Context(), caller(c).User, tidemark.UserID(userID))
	if err != nil {
		return err
	}
	return nothing(c)
}

// RemoveBlock lifts a block.
func (h *Handler) RemoveBlock(c echo.Context, userID UserId) error {
	err := h.server.Unblock(c.Request().Context(), caller(c).User, tidemark.UserID(userID))
	if err != nil {
		return err
	}
	return nothing(c)
}

// ListBans returns a page of those who are banned from a group.
func (h *Handler) ListBans(c echo.Context, id ChatId, params ListBansParams) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	limit, cursor, err := pageOf(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	page, err := h.server.Bans(c.Request().Context(), caller(c), chat, limit, cursor)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendBans(nil, page))
}

// PutBan bans a user from a group.
func (h *Handler) PutBan(c echo.Context, id ChatId, userID UserId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	if err := tidemark.CheckID("user_id", userID); err != nil {
		return err
	}
	user := tidemark.UserID(userID)
	err = h.audited(c, "putBan", audit.Target{User: user, Chat: chat}, func() error {
		return h.server.Ban(c.Request().Context(), caller(c), chat, user)
	})
	if err != nil {
		return err
	}
	return nothing(c)
}

// RemoveBan lifts a ban.
func (h *Handler) RemoveBan(c echo.Context, id ChatId, userID UserId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	if err := tidemark.CheckID("user_id", userID); err != nil {
		return err
	}
	user := tidemark.UserID(userID)
	err = h.audited(c, "removeBan", audit.Target{User: user, Chat: chat}, func() error {
		return h.server.Unban(c.Request().Context(), caller(c), chat, user)
	})
	if err != nil {
		return err
	}
	return nothing(c)
}
