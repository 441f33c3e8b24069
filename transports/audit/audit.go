// Package audit is the adapter of the call that lists the audit log, GET /audit. openapi.yaml is
// its contract. It is for API keys with the scope audit.
package audit

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Config configures an Adapter. All fields but Limit are required.
type Config struct {
	Server *server.Server
	Log    *audit.Log
	Auth   *auth.Authenticator
	// Limit bounds the calls of an API key. nil: no bound.
	Limit *limit.Limiter
}

// Adapter serves the call. It is safe for concurrent use.
type Adapter struct{ cfg Config }

// New returns an adapter. It starts no goroutine.
func New(cfg Config) *Adapter { return &Adapter{cfg} }

// Mount adds the route below a base path.
func (a *Adapter) Mount(e *echo.Echo, base string) {
	e.GET(base+"/audit", a.list)
}

// list authenticates the caller, counts the call, and answers with a page of entries.
func (a *Adapter) list(c echo.Context) error {
	c.Response().Header().Set(api.IncarnationHeader, string(a.cfg.Server.Incarnation()))
	id, err := a.cfg.Auth.HeaderOrKey(c.Request())
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.audit-needs-the-scope
	if err := id.Permits(auth.ScopeAudit); err != nil {
		return err
	}
	quota, err := a.cfg.Limit.Call(id.Payer(), limit.LargeCall)
	quota.Put(c.Response().Header())
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.audit-for-keys-only
	if err := id.Operates(auth.ScopeAudit); err != nil {
		return err
	}
	q, err := query(c)
	if err != nil {
		return err
	}
	ctx, cancel := api.Detached(c.Request())
	defer cancel()
	page, err := a.cfg.Log.List(ctx, q)
	if err != nil {
		return err
	}
	text, err := json.Marshal(answer(page))
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", text)
}

// query returns what the query of a call selects.
func query(c echo.Context) (q audit.Query, err error) {
	given := c.QueryParams()
	for _, name := range []string{"user_id", "chat_id", "key", "operation"} {
		if !given.Has(name) {
			continue
		}
		if err := tidemark.CheckID(name, given.Get(name)); err != nil {
			return q, err
		}
	}
	q = audit.Query{
		User: tidemark.UserID(given.Get("user_id")), Chat: tidemark.ChatID(given.Get("chat_id")),
		Key: given.Get("key"), Operation: given.Get("operation"), Cursor: given.Get("cursor"),
		Limit: wire.DefaultLimit,
	}
	for name, to := range map[string]*time.Time{
		"begun_from": &q.From, "begun_before": &q.To,
	} {
		if !given.Has(name) {
			continue
		}
		if *to, err = time.Parse(time.RFC3339, given.Get(name)); err != nil {
			return q, tidemark.BadParam(tidemark.Invalid, name,
				"must be a time such as 2026-01-31T10:00:00Z")
		}
	}
	if given.Has("limit") {
		if given.Get("limit") == "" {
			return q, tidemark.BadParam(tidemark.Invalid, "limit",
				"is empty; it must be an integer of at least 1")
		}
		q.Limit, err = wire.ParseLimit(given.Get("limit"))
	}
	return q, err
}

// view is the JSON of an entry.
type view struct {
	EntryID   string          `json:"entry_id"`
	BegunAt   json.RawMessage `json:"begun_at"`
	EndedAt   json.RawMessage `json:"ended_at"`
	KeyName   *string         `json:"key_name"`
	ActorID   *string         `json:"actor_id"`
	RequestID *string         `json:"request_id"`
	Operation string          `json:"operation"`
	UserID    *string         `json:"user_id"`
	ChatID    *string         `json:"chat_id"`
	Sequence  *uint64         `json:"sequence"`
	OutletID  *string         `json:"outlet_id"`
	State     string          `json:"state"`
	Code      *string         `json:"code"`
}

// list is the JSON of a page.
type list struct {
	Entries    []view `json:"entries"`
	Pagination struct {
		HasMore    bool    `json:"has_more"`
		NextCursor *string `json:"next_cursor"`
	} `json:"pagination"`
}

func answer(page audit.Page) (l list) {
	l.Entries = make([]view, 0, len(page.Entries))
	for i := range page.Entries {
		l.Entries = append(l.Entries, viewOf(&page.Entries[i]))
	}
	l.Pagination.HasMore, l.Pagination.NextCursor = page.Next != "", text(page.Next)
	return l
}

func viewOf(e *audit.Entry) view {
	v := view{
		EntryID: string(e.ID), BegunAt: json.RawMessage("null"), EndedAt: json.RawMessage("null"),
		KeyName: text(e.Key), ActorID: text(e.Actor), RequestID: text(e.Request),
		Operation: e.Operation, UserID: text(e.Target.User), ChatID: text(e.Target.Chat),
		OutletID: text(e.Target.Outlet), State: string(e.State), Code: text(e.Code),
	}
	if at, err := e.ID.At(); err == nil {
		v.BegunAt = tidemark.AppendTime(nil, at)
	}
	if !e.EndedAt.IsZero() {
		v.EndedAt = tidemark.AppendTime(nil, e.EndedAt)
	}
	if e.Target.Sequence > 0 {
		n := uint64(e.Target.Sequence)
		v.Sequence = &n
	}
	return v
}

// text returns nil for a text that an entry does not have.
func text[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	t := string(s)
	return &t
}
