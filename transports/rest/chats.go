package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// ListChats returns a page of the caller's chats.
func (h *Handler) ListChats(c echo.Context, params ListChatsParams) error {
	limit, cursor, err := pageOf(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	page, err := h.server.Chats(c.Request().Context(), caller(c).User, limit, cursor)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendChats(nil, page, caller(c).Backend))
}

// CreateChat creates a chat. It answers 201, or 200 with the direct chat that already exists.
func (h *Handler) CreateChat(c echo.Context) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	req, err := wire.DecodeCreateChat(raw)
	if err != nil {
		return err
	}
	if err := h.countMembers(c, len(req.MemberIDs)); err != nil {
		return err
	}
	chat, created, err := h.server.CreateChat(c.Request().Context(), caller(c), req)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return answer(c, status, wire.AppendChat(nil, visible(c, &chat), caller(c).Backend))
}

// visible returns a chat without what is the user's own, if the caller may not read for them.
func visible(c echo.Context, view *server.ChatView) *server.ChatView {
	//rule:caller_does_only_what_they_may.managing-keys-read-nothing
	if identity(c).Permits(auth.ScopeAct) == nil {
		return view
	}
	return &server.ChatView{Chat: view.Chat}
}

// countMembers counts what a call with many members costs beside the call itself.
func (h *Handler) countMembers(c echo.Context, members int) error {
	return counted(c)(h.limit.Call(identity(c).Payer(), members/limit.MembersPerCall))
}

// GetChat returns one chat.
func (h *Handler) GetChat(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	view, err := h.server.Chat(c.Request().Context(), caller(c), chat)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendChat(nil, &view, caller(c).Backend))
}

// UpdateChat changes the name, the metadata or the policy of a chat.
func (h *Handler) UpdateChat(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	change, err := wire.DecodeChatChange(raw)
	if err != nil {
		return err
	}
	var view server.ChatView
	update := func() (err error) {
		view, err = h.server.UpdateChat(c.Request().Context(), caller(c), chat, change)
		return err
	}
	//rule:audited_before_done.what-may-be-removed
	if change.KeepDays != nil || change.Hold != nil || change.Receipts != nil {
		err = h.audited(c, "updateChat", audit.Target{Chat: chat}, update)
	} else {
		err = update()
	}
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendChat(nil, visible(c, &view), caller(c).Backend))
}

// DeleteChat deletes a chat.
func (h *Handler) DeleteChat(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	err = h.audited(c, "deleteChat", audit.Target{Chat: chat}, func() error {
		return h.server.DeleteChat(c.Request().Context(), caller(c), chat)
	})
	if err != nil {
		return err
	}
	return nothing(c)
}

// ListMembers returns a page of a chat's members.
func (h *Handler) ListMembers(c echo.Context, id ChatId, params ListMembersParams) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	limit, cursor, err := pageOf(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	page, err := h.server.Members(c.Request().Context(), caller(c), chat, limit, cursor)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendMembers(nil, page))
}

// AddMembers adds members to a group.
func (h *Handler) AddMembers(c echo.Context, id ChatId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	users, role, err := wire.DecodeAddMembers(raw)
	if err != nil {
		return err
	}
	if err := h.countMembers(c, len(users)); err != nil {
		return err
	}
	var page server.MemberPage
	add := func() (err error) {
		page, err = h.server.AddMembers(c.Request().Context(), caller(c), chat, users, role)
		return err
	}
	//rule:audited_before_done.roles-of-new-members
	if role != "" && role != tidemark.Ordinary {
		target := audit.Target{Chat: chat}
		if len(users) == 1 {
			target.User = users[0]
		}
		err = h.audited(c, "addMembers", target, add)
	} else {
		err = add()
	}
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendMembers(nil, page))
}

// UpdateMember changes the role or the metadata of a member.
func (h *Handler) UpdateMember(c echo.Context, id ChatId, userID UserId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	if err := tidemark.CheckID("user_id", userID); err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	change, err := wire.DecodeMemberChange(raw)
	if err != nil {
		return err
	}
	user := tidemark.UserID(userID)
	var view server.MemberView
	update := func() (err error) {
		view, err = h.server.UpdateMember(c.Request().Context(), caller(c), chat, user, change)
		return err
	}
	if change.Role != "" {
		err = h.auditedUnless(user, c, "updateMember", audit.Target{User: user, Chat: chat}, update)
	} else {
		err = update()
	}
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendUpdatedMember(nil, view))
}

// RemoveMember removes a member from a group. Members may remove themselves.
func (h *Handler) RemoveMember(c echo.Context, id ChatId, userID UserId) error {
	chat, err := chatID(id)
	if err != nil {
		return err
	}
	if err := tidemark.CheckID("user_id", userID); err != nil {
		return err
	}
	user := tidemark.UserID(userID)
	remove := func() error {
		return h.server.RemoveMember(c.Request().Context(), caller(c), chat, user)
	}
	err = h.auditedUnless(user, c, "removeMember", audit.Target{User: user, Chat: chat}, remove)
	if err != nil {
		return err
	}
	return nothing(c)
}
