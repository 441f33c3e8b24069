package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// maxSessionID is the greatest length of a session's id, in bytes.
const maxSessionID = 22

// ListSessions returns the caller's sessions.
func (h *Handler) ListSessions(c echo.Context) error {
	list, err := h.server.Sessions(c.Request().Context(), caller(c).User)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendSessions(nil, list, caller(c).Backend))
}

// EndSession ends one of the caller's sessions.
func (h *Handler) EndSession(c echo.Context, id string) error {
	session, err := sessionID("session_id", id)
	if err != nil {
		return err
	}
	return h.end(c, "endSession", func(user tidemark.UserID) error {
		return h.server.EndSession(c.Request().Context(), user, session)
	})
}

// EndSessions ends all of the caller's sessions, or all but one.
func (h *Handler) EndSessions(c echo.Context, params EndSessionsParams) error {
	var except tidemark.SessionID
	if params.Except != nil {
		var err error
		if except, err = sessionID("except", *params.Except); err != nil {
			return err
		}
	}
	return h.end(c, "endSessions", func(user tidemark.UserID) error {
		return h.server.EndSessions(c.Request().Context(), user, except)
	})
}

// end ends sessions of the caller. The log has it if an API key does.
func (h *Handler) end(
	c echo.Context, operation string, sessions func(tidemark.UserID) error,
) error {
	user := caller(c).User
	err := h.auditedUnless(user, c, operation, audit.Target{User: user}, func() error {
		return sessions(user)
	})
	if err != nil {
		return err
	}
	return nothing(c)
}

// sessionID returns an id of a parameter. It returns Invalid if it cannot name a session: a mistake
// in except would end the caller's own.
func sessionID(param, id string) (tidemark.SessionID, error) {
	if len(id) > maxSessionID {
		return "", tidemark.BadParam(tidemark.Invalid, param,
			"is %d bytes long; the id of a session has at most %d", len(id), maxSessionID)
	}
	return tidemark.SessionID(id), tidemark.CheckID(param, tidemark.SessionID(id))
}
