package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// GetReceiptsSettings returns whether others see what the caller reads.
func (h *Handler) GetReceiptsSettings(c echo.Context, params GetReceiptsSettingsParams) error {
	var chat tidemark.ChatID
	if params.ChatId != nil {
		chat = tidemark.ChatID(*params.ChatId)
		if err := tidemark.CheckID("chat_id", chat); err != nil {
			return err
		}
	}
	found, err := h.server.Receipts(c.Request().Context(), caller(c).User, chat)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendReceiptsSettings(nil, found))
}

// PutReceiptsSettings hides what the caller reads, or shows it again.
func (h *Handler) PutReceiptsSettings(c echo.Context) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	chat, setting, err := wire.DecodeReceiptsSettings(raw)
	if err != nil {
		return err
	}
	stored, err := h.server.SetReceipts(c.Request().Context(), caller(c).User, chat, setting)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendReceiptsSettings(nil, stored))
}
