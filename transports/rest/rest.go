// Package rest is the REST adapter. openapi.yaml is its contract: routes and parameters are generated from it (api.gen.go), bodies are
// read and written by package wire, and the handlers here only pass on what they read to the core.
//
// The generated types are for Go programs that call the interface, and for tests; the server does not use those of bodies,
// because encoding/json would neither refuse what wire refuses nor write times as Tidemark does.
package rest

//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../../openapi.yaml

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/auth"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// Config configures a Handler. Limit may be nil: no limit.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	Limit  *limit.Limiter
}

// Handler serves the REST calls. It is safe for concurrent use.
type Handler struct {
	server *server.Server
	auth   *auth.Authenticator
	limit  *limit.Limiter
}

var _ ServerInterface = (*Handler)(nil)

// Register mounts the REST calls under base, each behind authentication.
func Register(e *echo.Echo, base string, cfg Config) {
	h := &Handler{server: cfg.Server, auth: cfg.Auth, limit: cfg.Limit}
	RegisterHandlersWithOptions(e, h, RegisterHandlersOptions{
		BaseURL:              base,
		OperationMiddlewares: h.guards(),
	})
}

// guards returns the authentication and the limit of every operation. One that is missing here would be served to nobody: its handler asks for the identity. (A
// group of routes with a common guard would make the router answer 404 where 405 is due.)
func (h *Handler) guards() map[string][]echo.MiddlewareFunc {
	guards := make(map[string][]echo.MiddlewareFunc)
	for operation, cost := range map[string]int{
		"listChats": limit.LargeCall, "createChat": limit.LargeCall, "getChat": limit.Call,
		"renameChat":  limit.Call,
		"listMembers": limit.LargeCall, "addMembers": limit.LargeCall, "removeMember": limit.Call,
		"listMessages": limit.LargeCall, "sendMessage": 0, // which counts as a send
		"getDeliveryState": limit.Call, "updateDeliveryState": limit.Call,
		"listDeliveryStates": limit.LargeCall, "getDeliveryStatus": limit.LargeCall,
		"acknowledge": limit.Call, "sync": limit.LargeCall, "createTicket": limit.Call,
	} {
		//rule:caller_may_only_what_he_may.header-credentials-for-calls
		check := h.auth.Header
		if operation == "acknowledge" {
			check = h.auth.Beacon
		}
		guards[operation] = []echo.MiddlewareFunc{h.guard(check, cost)}
	}
	return guards
}

// callTimeout is how long the core may take for a call before it is answered with 503.
const callTimeout = 30 * time.Second

// identityKey is where guard leaves the caller for the handlers.
const identityKey = "identity"

// guard lets in who is known to check, and has called less than he may. A client that closes its side of the connection, because it will send no more, still
// gets its answer.
func (h *Handler) guard(
	check func(*http.Request) (auth.Identity, error), cost int,
) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			id, err := check(c.Request())
			if err != nil {
				return err
			}
			if err := h.limit.Call(id.User, cost); err != nil {
				return err
			}
			c.Set(identityKey, id)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()),
				callTimeout)
			defer cancel()
			c.SetRequest(c.Request().WithContext(ctx))
			return next(c)
		}
	}
}

func identity(c echo.Context) auth.Identity { return c.Get(identityKey).(auth.Identity) }

func caller(c echo.Context) server.Caller { return identity(c).Caller }

// answer writes a JSON body. Answers are about one caller and change; nobody may keep them.
func answer(c echo.Context, status int, b []byte) error {
	//rule:bounded_input.answers-are-not-cached
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(status, "application/json", b)
}

// chatID returns the chat of the path. An id that can name nothing is Invalid, and says what ids look like.
func chatID(id ChatId) (tidemark.ChatID, error) {
	return tidemark.ChatID(id), tidemark.CheckID("chat_id", id)
}

// pageOf reads limit and cursor.
func pageOf(limit *Limit, cursor *Cursor) (n int, position string, err error) {
	n, err = limitOf(limit)
	if cursor != nil {
		position = *cursor
	}
	return n, position, err
}

func limitOf(limit *Limit) (int, error) {
	switch {
	case limit == nil:
		return wire.DefaultLimit, nil
	case *limit == "":
		return 0, tidemark.Errorf(tidemark.Invalid,
			"limit is empty; it must be an integer of at least 1")
	}
	return wire.ParseLimit(*limit)
}

// CreateTicket makes a ticket for the query of a stream.
func (h *Handler) CreateTicket(c echo.Context) error {
	ticket, expires, err := h.auth.Issue(c.Request().Context(), identity(c))
	if err != nil {
		return err
	}
	return answer(c, http.StatusCreated, wire.AppendTicket(nil, ticket, expires))
}
