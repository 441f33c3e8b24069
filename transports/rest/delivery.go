package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// GetDeliveryState returns the caller's own watermarks in a chat.
func (h *Handler) GetDeliveryState(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	state, err := h.server.DeliveryState(c.Request().Context(), caller(c).User, chat)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendState(nil, state))
}

// UpdateDeliveryState raises the caller's watermarks in a chat (ADR-008 Appendix F.2).
func (h *Handler) UpdateDeliveryState(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	ack, err := wire.DecodeState(raw, chat)
	if err != nil {
		return err
	}
	results, err := h.server.Acknowledge(c.Request().Context(), caller(c).User, []server.Ack{ack})
	if err != nil {
		return err
	}
	if results[0].Err != nil {
		return results[0].Err
	}
	return answer(c, http.StatusOK, wire.AppendState(nil, results[0].State))
}

// MarkUnread marks messages of a chat as unread for the caller, or takes that back.
func (h *Handler) MarkUnread(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	from, err := wire.DecodeUnread(raw)
	if err != nil {
		return err
	}
	marked, err := h.server.MarkUnread(c.Request().Context(), caller(c).User, chat, from)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendUnread(nil, marked))
}

// GetUnread returns what is unread for the caller in all their chats.
func (h *Handler) GetUnread(c echo.Context) error {
	total, err := h.server.Unread(c.Request().Context(), caller(c).User)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendUnreadTotal(nil, total))
}

// ListDeliveryStates returns a page of the caller's own watermarks.
func (h *Handler) ListDeliveryStates(c echo.Context, params ListDeliveryStatesParams) error {
	limit, cursor, err := pageOf(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	page, err := h.server.DeliveryStates(c.Request().Context(), caller(c).User, limit, cursor)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendStates(nil, page))
}

// GetDeliveryStatus returns how far the members of a chat have received and read it (ADR-008
// Appendix F.1).
func (h *Handler) GetDeliveryStatus(
	c echo.Context, id ChatId, params GetDeliveryStatusParams,
) error {
	if err := counted(c)(h.limit.Status(identity(c).Payer(), 1)); err != nil {
		return err
	}
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	req := server.DeliveryStatusRequest{Chat: chat}
	if req.Limit, req.Cursor, err = pageOf(params.Limit, params.Cursor); err != nil {
		return err
	}
	if params.ForSequence != nil {
		n, err := wire.ParseSequence(*params.ForSequence, "for_sequence",
			1, tidemark.InvalidSequence)
		if err != nil {
			return err
		}
		req.ForSequence = &n
	}
	status, err := h.server.DeliveryStatus(c.Request().Context(), caller(c), req)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendDeliveryStatus(nil, status))
}

// Acknowledge raises the caller's watermarks in several chats. A wrong entry fails alone.
func (h *Handler) Acknowledge(c echo.Context) error {
	raw, err := body.Read(c, true)
	if err != nil {
		return err
	}
	items, err := wire.DecodeAcks(raw)
	if err != nil {
		return err
	}
	more := len(items) / limit.AcksPerCall
	if err := counted(c)(h.limit.Call(caller(c), more)); err != nil {
		return err
	}
	good := make([]server.Ack, 0, len(items))
	for _, item := range items {
		if item.Err == nil {
			good = append(good, item.Ack)
		}
	}
	accepted, err := h.server.Acknowledge(c.Request().Context(), caller(c).User, good)
	if err != nil {
		return err
	}
	results := make([]server.AckResult, len(items))
	next := 0
	for i, item := range items {
		if item.Err != nil {
			results[i].Err = item.Err
			continue
		}
		results[i] = accepted[next]
		next++
	}
	return answer(c, http.StatusOK, wire.AppendAckResults(nil, items, results))
}

// ListStatuses returns what status updates would say of several chats.
func (h *Handler) ListStatuses(c echo.Context, params ListStatusesParams) error {
	if err := counted(c)(h.limit.Status(caller(c), max(1, len(params.ChatId)))); err != nil {
		return err
	}
	ids := make([]tidemark.ChatID, len(params.ChatId))
	for i, id := range params.ChatId {
		ids[i] = tidemark.ChatID(id)
	}
	all, err := h.server.Statuses(c.Request().Context(), caller(c).User, ids)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendStatuses(nil, all))
}

// ListPending returns a page of the caller's own pending rows.
func (h *Handler) ListPending(c echo.Context, params ListPendingParams) error {
	limit, cursor, err := pageOf(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	page, err := h.server.Pending(c.Request().Context(), caller(c).User, limit, cursor)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendPending(nil, page))
}
