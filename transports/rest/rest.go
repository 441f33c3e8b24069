// Package rest is the REST adapter. openapi.yaml is its contract: its routes and parameters are
// generated into api.gen.go. Package wire decodes and encodes the bodies. The handlers here only
// call the core.
//
// The generated types of bodies are for Go clients and for tests. The server does not use them:
// encoding/json does not refuse what wire refuses, and writes times in another form.
package rest

//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../../openapi.yaml

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Config configures a Handler. If Limit is nil, there is no limit.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	Limit  *limit.Limiter
	// Admitted, if not nil, is called for each call whose caller may make it, before its handler.
	// It may change the request. It is a callback, because only then is known who may have a trace.
	Admitted func(echo.Context)
	// Audit records calls with power over others. nil: nothing is recorded.
	Audit *audit.Log
}

// Handler serves the REST calls. It is safe for concurrent use.
type Handler struct {
	server *server.Server
	auth   *auth.Authenticator
	limit  *limit.Limiter
	// admitted is not nil.
	admitted func(echo.Context)
	audit    *audit.Log
}

var _ ServerInterface = (*Handler)(nil)

// Register mounts the REST calls under base. Each one requires authentication.
func Register(e *echo.Echo, base string, cfg Config) {
	h := &Handler{
		server: cfg.Server, auth: cfg.Auth, limit: cfg.Limit, admitted: cfg.Admitted,
		audit: cfg.Audit,
	}
	if h.admitted == nil {
		h.admitted = func(echo.Context) {}
	}
	RegisterHandlersWithOptions(e, h, RegisterHandlersOptions{
		BaseURL:              base,
		OperationMiddlewares: h.guards(),
	})
}

// guards returns the authentication, the scope and the cost of every operation. An operation that
// is missing here fails, because its handler needs the identity. A guard for a group of routes
// would not do: the router would answer 404 instead of 405.
func (h *Handler) guards() map[string][]echo.MiddlewareFunc {
	guards := make(map[string][]echo.MiddlewareFunc)
	add := func(scopes []auth.Scope, costs map[string]int) {
		for operation, cost := range costs {
			//rule:caller_does_only_what_they_may.header-credentials-for-calls
			check := h.auth.Header
			if operation == "acknowledge" {
				check = h.auth.Beacon
			}
			g := guard{check: check, scopes: scopes, cost: cost}
			//rule:caller_does_only_what_they_may.only-these-need-no-user
			if without, ok := withoutUser[operation]; ok {
				g.check, g.without = h.auth.HeaderOrKey, without
			}
			guards[operation] = []echo.MiddlewareFunc{h.guarded(g)}
		}
	}
	add([]auth.Scope{auth.ScopeAct}, map[string]int{
		"listChats": limit.LargeCall, "getChat": limit.Call, "listMembers": limit.LargeCall,
		"listMessages": limit.LargeCall, "sync": limit.LargeCall,
		"listReactions": limit.LargeCall, "listPins": limit.LargeCall,
		"getDeliveryState": limit.Call, "updateDeliveryState": limit.Call,
		"markUnread": limit.Call, "getUnread": limit.LargeCall,
		"getDeliveryStatus": 0, "listStatuses": 0, // which count as statuses
		"acknowledge": limit.Call, "createTicket": limit.Call,
		"endSession": limit.LargeCall, "endSessions": limit.LargeCall,
		"putLook": limit.Call, "getPresence": limit.LargeCall, "putPresenceSettings": limit.Call,
		"listBlocks": limit.LargeCall, "putBlock": limit.Call, "removeBlock": limit.Call,
		"getReceiptsSettings": limit.Call, "putReceiptsSettings": limit.LargeCall,
	})
	//rule:caller_does_only_what_they_may.operators-see-no-message
	add([]auth.Scope{auth.ScopeAct, auth.ScopeStats}, map[string]int{
		"listDeliveryStates": limit.LargeCall, "listPending": limit.LargeCall,
		"listSessions": limit.Call,
	})
	add([]auth.Scope{auth.ScopeSend}, map[string]int{
		"sendMessage": 0, // which counts as a send
		"sendTyping":  limit.Call,
	})
	add([]auth.Scope{auth.ScopeChats}, map[string]int{
		"createChat": limit.LargeCall, "updateChat": limit.Call, "deleteChat": limit.LargeCall,
		"addMembers": limit.LargeCall, "removeMember": limit.Call,
		"updateMember": limit.Call,
		"listBans":     limit.LargeCall, "putBan": limit.Call, "removeBan": limit.Call,
	})
	add([]auth.Scope{auth.ScopeTokens}, map[string]int{"createToken": limit.Call})
	add([]auth.Scope{auth.ScopeModerate}, map[string]int{
		"getSuspension": limit.Call, "putSuspension": limit.Call, "deleteSuspension": limit.Call,
		"signOutUser": limit.Call, "signOut": limit.Call,
	})
	return guards
}

// withoutUser holds the operations that an API key may call without a user, with the scopes of
// which it then needs one. They manage chats and tokens, or show operators where a chat stands. All
// other operations read or write data of a user.
var withoutUser = map[string][]auth.Scope{
	//rule:caller_does_only_what_they_may.managing-needs-no-user
	"createChat": {auth.ScopeChats}, "getChat": {auth.ScopeChats, auth.ScopeStats},
	"updateChat": {auth.ScopeChats}, "deleteChat": {auth.ScopeChats},
	"listMembers": {auth.ScopeChats},
	"addMembers":  {auth.ScopeChats}, "updateMember": {auth.ScopeChats},
	"removeMember": {auth.ScopeChats}, "createToken": {auth.ScopeTokens},
	"getDeliveryStatus": {auth.ScopeStats},
	"getSuspension":     {auth.ScopeModerate}, "putSuspension": {auth.ScopeModerate},
	"deleteSuspension": {auth.ScopeModerate}, "signOutUser": {auth.ScopeModerate},
	"listBans": {auth.ScopeChats}, "putBan": {auth.ScopeChats}, "removeBan": {auth.ScopeChats},
}

// guard says what an operation requires of its caller.
type guard struct {
	check func(*http.Request) (auth.Identity, error)
	// scopes are those of which an API key needs one to call for a user, and without those of which
	// it needs one to call without a user.
	scopes, without []auth.Scope
	cost            int
}

// identityKey is the key under which guarded stores the caller for the handlers.
const identityKey = "identity"

// guarded authenticates the caller and counts the call against their limit. A client that closes
// its write side still gets its answer.
func (h *Handler) guarded(g guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			// Also an answer that refuses the call is one about these data.
			c.Response().Header().Set(api.IncarnationHeader, string(h.server.Incarnation()))
			//rule:trace_bounded.no-trace-without-credentials
			id, err := g.check(c.Request())
			if err != nil {
				return err
			}
			scopes := g.scopes
			//rule:caller_does_only_what_they_may.own-scope-without-user
			if id.User == "" {
				scopes = g.without
			}
			//rule:caller_does_only_what_they_may.calls-need-the-scope
			if err := id.Permits(scopes...); err != nil {
				return err
			}
			c.Set(identityKey, id)
			if err := counted(c)(h.limit.Call(id.Payer(), g.cost)); err != nil {
				return err
			}
			h.admitted(c)
			ctx, cancel := api.Detached(c.Request())
			defer cancel()
			ctx = audit.WithActor(ctx, audit.Actor{Key: id.KeyName(), User: id.User})
			c.SetRequest(c.Request().WithContext(ctx))
			return next(c)
		}
	}
}

// audited makes a call that has power over others, between the two writes of its entry in the audit
// log.
func (h *Handler) audited(
	c echo.Context, operation string, target audit.Target, call func() error,
) error {
	return h.audit.Do(c.Request().Context(), operation, target, call)
}

// auditedUnless is audited, unless a user makes the call about themselves.
func (h *Handler) auditedUnless(
	self tidemark.UserID, c echo.Context, operation string, target audit.Target, call func() error,
) error {
	//rule:audited_before_done.keys-always-users-about-others
	if !caller(c).Backend && caller(c).User == self {
		return call()
	}
	return h.audited(c, operation, target, call)
}

// counted puts what a limit says of the caller into the answer, and returns the limit's error.
func counted(c echo.Context) func(limit.Quota, error) error {
	return func(quota limit.Quota, err error) error {
		quota.Put(c.Response().Header())
		return err
	}
}

func identity(c echo.Context) auth.Identity { return c.Get(identityKey).(auth.Identity) }

func caller(c echo.Context) server.Caller { return identity(c).Caller }

// answer writes a JSON body. No cache may keep it, because it is about one caller and changes.
func answer(c echo.Context, status int, b []byte) error {
	//rule:bounded_input.answers-are-not-cached
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(status, "application/json", b)
}

// nothing answers that the call is done.
func nothing(c echo.Context) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.NoContent(http.StatusNoContent)
}

// chatID returns the chat of the path. It returns Invalid if the id cannot name a chat.
func chatID(id ChatId) (tidemark.ChatID, error) {
	return tidemark.ChatID(id), tidemark.CheckID("chat_id", id)
}

// pageOf returns the limit and the cursor of a list.
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
		return 0, tidemark.BadParam(tidemark.Invalid,
			"limit", "is empty; it must be an integer of at least 1")
	}
	return wire.ParseLimit(*limit)
}

// CreateTicket issues a ticket for the query of a stream.
func (h *Handler) CreateTicket(c echo.Context) error {
	ticket, expires, err := h.auth.Issue(c.Request().Context(), identity(c))
	if err != nil {
		return err
	}
	return answer(c, http.StatusCreated, wire.AppendTicket(nil, ticket, expires))
}

// CreateToken makes a token of the user whom a backend names, in the body or in X-User-ID.
func (h *Handler) CreateToken(c echo.Context) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	req, err := wire.DecodeTokenRequest(raw, auth.MaxTokenTTL)
	if err != nil {
		return err
	}
	token, expires, err := h.auth.IssueToken(c.Request().Context(), identity(c), req.User, req.TTL)
	if err != nil {
		return err
	}
	return answer(c, http.StatusCreated, wire.AppendToken(nil, token, expires))
}
