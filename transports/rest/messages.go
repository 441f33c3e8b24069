package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// SendMessage stores a message. It answers 201, or 200 if the message was stored before.
func (h *Handler) SendMessage(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	req, err := wire.DecodeSend(raw, chat)
	if err != nil {
		return err
	}
	caller(c).Author(&req)
	user := caller(c).User
	if err := counted(c)(h.limit.Send(caller(c), req.Kind)); err != nil {
		return err
	}
	sent, err := h.server.Send(c.Request().Context(), user, req)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if sent.Duplicate {
		status = http.StatusOK
	}
	return answer(c, status, sent.Message.AppendJSON(nil))
}

// ListMessages returns a page of a chat's messages.
func (h *Handler) ListMessages(c echo.Context, id ChatId, params ListMessagesParams) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	req := server.HistoryRequest{Chat: chat}
	if req.Limit, err = limitOf(params.Limit); err != nil {
		return err
	}
	if req.After, err = position("after_sequence", params.AfterSequence); err != nil {
		return err
	}
	if req.Before, err = position("before_sequence", params.BeforeSequence); err != nil {
		return err
	}
	if req.After != nil && req.Before != nil {
		return tidemark.Errorf(tidemark.Invalid,
			"after_sequence and before_sequence exclude each other; give one of them")
	}
	reactions := false
	if params.Reactions != nil {
		if reactions, err = wire.ParseFlag(*params.Reactions, "reactions"); err != nil {
			return err
		}
	}
	ctx, user := c.Request().Context(), caller(c).User
	if !reactions {
		history, err := h.server.History(ctx, user, req)
		if err != nil {
			return err
		}
		return answer(c, http.StatusOK, wire.AppendHistory(nil, history, nil))
	}
	history, counts, err := h.server.HistoryWithReactions(ctx, user, req)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendHistory(nil, history, &counts))
}

// ListReactions returns a page of the reactions to a message.
func (h *Handler) ListReactions(
	c echo.Context, id ChatId, sequence MessageSequence, params ListReactionsParams,
) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	to := tidemark.MessageRef{ChatID: chat}
	to.Sequence, err = wire.ParseSequence(sequence, "sequence", 1, tidemark.Invalid)
	if err != nil {
		return err
	}
	limit, cursor, err := pageOf(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	page, err := h.server.Reactions(c.Request().Context(), caller(c).User, to, limit, cursor)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendReactions(nil, page))
}

// ListPins returns the pins of a chat.
func (h *Handler) ListPins(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	pins, err := h.server.Pins(c.Request().Context(), caller(c), chat)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendPins(nil, pins))
}

// position returns an exclusive position of the query, or nil if there is none. 0 is valid.
func position(field string, s *string) (*tidemark.Sequence, error) {
	if s == nil {
		return nil, nil
	}
	n, err := wire.ParseSequence(*s, field, 0, tidemark.Invalid)
	return &n, err
}

// Sync returns what is new after the cursors of a device.
func (h *Handler) Sync(c echo.Context) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	req, err := wire.DecodeSync(raw)
	if err != nil {
		return err
	}
	res, err := h.server.Sync(c.Request().Context(), caller(c).User, req)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendSync(nil, res))
}

// SendTyping tells the other members that the caller is typing.
func (h *Handler) SendTyping(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	if err := h.server.Typing(c.Request().Context(), caller(c).User, chat); err != nil {
		return err
	}
	return nothing(c)
}
