package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// PutLook records which chats the client of one of the caller's sessions shows.
func (h *Handler) PutLook(c echo.Context, id string) error {
	session, err := sessionID("session_id", id)
	if err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	chats, err := wire.DecodeLook(raw)
	if err != nil {
		return err
	}
	if err := h.server.Look(c.Request().Context(), caller(c).User, session, chats); err != nil {
		return err
	}
	return nothing(c)
}

// GetPresence returns who of chats is online, and whether the caller is visible.
func (h *Handler) GetPresence(c echo.Context, params GetPresenceParams) error {
	var ids []tidemark.ChatID
	if params.ChatId != nil {
		for _, id := range *params.ChatId {
			ids = append(ids, tidemark.ChatID(id))
		}
	}
	ctx, user := c.Request().Context(), caller(c).User
	visible, err := h.server.Visible(ctx, user)
	if err != nil {
		return err
	}
	all, err := h.server.Presence(ctx, user, ids)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendPresence(nil, visible, all))
}

// PutPresenceSettings hides the caller, or shows them again.
func (h *Handler) PutPresenceSettings(c echo.Context) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	visible, err := wire.DecodePresenceSettings(raw)
	if err != nil {
		return err
	}
	err = h.server.SetVisible(c.Request().Context(), caller(c).User, visible)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendPresenceSettings(nil, visible))
}
