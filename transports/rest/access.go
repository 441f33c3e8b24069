package rest

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// moderated returns the user of the path, if the caller is an API key.
func moderated(c echo.Context, id UserId) (tidemark.UserID, error) {
	//rule:caller_does_only_what_they_may.keys-moderate
	if err := identity(c).Operates(auth.ScopeModerate); err != nil {
		return "", err
	}
	return tidemark.UserID(id), tidemark.CheckID("user_id", id)
}

// GetSuspension returns whether a user is suspended.
func (h *Handler) GetSuspension(c echo.Context, id UserId) error {
	user, err := moderated(c, id)
	if err != nil {
		return err
	}
	s, err := h.server.SuspensionOf(c.Request().Context(), user)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendSuspension(nil, user, s))
}

// PutSuspension suspends a user.
func (h *Handler) PutSuspension(c echo.Context, id UserId) error {
	user, err := moderated(c, id)
	if err != nil {
		return err
	}
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	ends, reason, err := wire.DecodeSuspension(raw)
	if err != nil {
		return err
	}
	var s server.Suspension
	err = h.audited(c, "putSuspension", audit.Target{User: user}, func() (err error) {
		s, err = h.server.Suspend(c.Request().Context(), user, ends, reason)
		return err
	})
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendSuspension(nil, user, s))
}

// DeleteSuspension ends the suspension of a user.
func (h *Handler) DeleteSuspension(c echo.Context, id UserId) error {
	user, err := moderated(c, id)
	if err != nil {
		return err
	}
	err = h.audited(c, "deleteSuspension", audit.Target{User: user}, func() error {
		return h.server.EndSuspension(c.Request().Context(), user)
	})
	if err != nil {
		return err
	}
	return nothing(c)
}

// SignOutUser signs a user out.
func (h *Handler) SignOutUser(c echo.Context, id UserId) error {
	user, err := moderated(c, id)
	if err != nil {
		return err
	}
	return h.signOut(c, "signOutUser", user)
}

// SignOut signs the caller out.
func (h *Handler) SignOut(c echo.Context) error {
	return h.signOut(c, "signOut", caller(c).User)
}

func (h *Handler) signOut(c echo.Context, operation string, user tidemark.UserID) error {
	var at time.Time
	err := h.auditedUnless(user, c, operation, audit.Target{User: user}, func() (err error) {
		at, err = h.server.SignOut(c.Request().Context(), user)
		return err
	})
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, wire.AppendSignOut(nil, user, at))
}
