// Package erasure is the adapter of the calls that erase and export users, below /users.
// openapi.yaml is its contract. They are for API keys with the scope erase, and export for the one
// that reads.
package erasure

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Config configures an Adapter. All fields but Limit are required.
type Config struct {
	Server   *server.Server
	Register *erasure.Register
	Exporter *erasure.Exporter
	Auth     *auth.Authenticator
	// Limit bounds the calls of an API key. nil: no bound.
	Limit *limit.Limiter
	// Audit records erasures and exports. nil: nothing is recorded.
	Audit *audit.Log
}

// Adapter serves the calls. It is safe for concurrent use.
type Adapter struct{ cfg Config }

// New returns an adapter. It starts no goroutine.
func New(cfg Config) *Adapter { return &Adapter{cfg} }

// Mount adds the routes below a base path.
func (a *Adapter) Mount(e *echo.Echo, base string) {
	erase := []auth.Scope{auth.ScopeErase}
	read := []auth.Scope{auth.ScopeExport, auth.ScopeErase}
	for _, route := range []struct {
		method, path string
		scopes       []auth.Scope
		cost         int
		handle       func(echo.Context, tidemark.UserID) error
	}{
		{http.MethodPost, "/users/:user_id/erasure", erase, limit.LargeCall, a.begin},
		{http.MethodGet, "/users/:user_id/erasure", erase, limit.Call, a.get},
		{http.MethodGet, "/users/:user_id/export", read, limit.LargeCall, a.export},
	} {
		e.Add(route.method, base+route.path, a.guarded(route.scopes, route.cost, route.handle))
	}
}

// guarded authenticates the caller, counts the call, and checks the id of the user.
func (a *Adapter) guarded(
	scopes []auth.Scope, cost int, handle func(echo.Context, tidemark.UserID) error,
) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set(api.IncarnationHeader, string(a.cfg.Server.Incarnation()))
		id, err := a.cfg.Auth.HeaderOrKey(c.Request())
		if err != nil {
			return err
		}
		if err := id.Permits(scopes...); err != nil {
			return err
		}
		quota, err := a.cfg.Limit.Call(id.Payer(), cost)
		quota.Put(c.Response().Header())
		if err != nil {
			return err
		}
		if err := id.Operates(scopes[0]); err != nil {
			return err
		}
		user := tidemark.UserID(api.PathParam(c, "user_id"))
		if err := tidemark.CheckID("user_id", user); err != nil {
			return err
		}
		c.SetRequest(c.Request().WithContext(audit.WithActor(c.Request().Context(),
			audit.Actor{Key: id.KeyName(), User: id.User})))
		return handle(c, user)
	}
}

// view is the JSON of an erasure.
type view struct {
	UserID          tidemark.UserID `json:"user_id"`
	State           string          `json:"state"`
	Step            string          `json:"step"`
	AskedAt         json.RawMessage `json:"asked_at"`
	CompletedAt     json.RawMessage `json:"completed_at"`
	HeldChats       int             `json:"held_chats"`
	Chats           int             `json:"chats"`
	MessagesWiped   int             `json:"messages_wiped"`
	MessagesRenamed int             `json:"messages_renamed"`
}

func answer(c echo.Context, status int, user tidemark.UserID, s erasure.Status) error {
	text, err := json.Marshal(view{
		UserID: user, State: s.State, Step: s.Step, AskedAt: timeOf(s.AskedAt),
		CompletedAt: timeOf(s.CompletedAt), HeldChats: s.HeldChats, Chats: s.Chats,
		MessagesWiped: s.MessagesWiped, MessagesRenamed: s.MessagesRenamed,
	})
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(status, "application/json", text)
}

func timeOf(t time.Time) json.RawMessage {
	if t.IsZero() {
		return json.RawMessage("null")
	}
	return tidemark.AppendTime(nil, t)
}

func (a *Adapter) begin(c echo.Context, user tidemark.UserID) error {
	ctx, cancel := api.Detached(c.Request())
	defer cancel()
	var status erasure.Status
	err := a.cfg.Audit.Do(ctx, "startErasure", audit.Target{User: user}, func() (err error) {
		status, err = a.cfg.Register.Begin(ctx, user)
		return err
	})
	if err != nil {
		return err
	}
	return answer(c, http.StatusAccepted, user, status)
}

func (a *Adapter) get(c echo.Context, user tidemark.UserID) error {
	status, err := a.cfg.Register.Status(c.Request().Context(), user)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, user, status)
}

// writeWithin is how long a client may take nothing of what it is sent.
const writeWithin = 30 * time.Second

// export streams the lines of a user. If that fails after the first line, there is no line of the
// type end.
func (a *Adapter) export(c echo.Context, user tidemark.UserID) error {
	after := c.QueryParam("cursor")
	if err := erasure.CheckPosition(after); err != nil {
		return err
	}
	res := c.Response()
	control := http.NewResponseController(res.Writer)
	begun := false
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	end, err := a.cfg.Audit.Begin(ctx, "exportUser", audit.Target{User: user})
	if err != nil {
		return err
	}
	err = a.cfg.Exporter.Export(ctx, user, after, func(line []byte) error {
		if !begun {
			begun = true
			res.Header().Set("Cache-Control", "no-store")
			res.Header().Set(echo.HeaderContentType, "application/x-ndjson")
			res.WriteHeader(http.StatusOK)
		}
		if err := control.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return err
		}
		_, err := res.Write(append(line, '\n'))
		return err
	})
	end(exported(err, begun))
	if begun {
		// The client sees that the last line is missing.
		return nil //nolint:nilerr // The answer has begun.
	}
	return err
}

// exported returns the error by which the audit log knows the outcome of an export. After the first
// line, the caller has something of the user, so no error is a refusal.
func exported(err error, begun bool) error {
	//rule:audited_before_done.half-an-export-is-no-refusal
	if err != nil && begun {
		return tidemark.Wrap(tidemark.Unavailable, err, "the export broke off")
	}
	return err
}
