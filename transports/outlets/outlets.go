// Package outlets is the adapter of the admin API of outlets, below /admin/outlets. openapi.yaml is
// its contract. It is for API keys with the scope admin.
//
// The handlers only call the engine (reach). An outlet that a call names may be served by another
// process: the list of outlets is stored, and all processes read it.
package outlets

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Config configures an Adapter. Engine and Auth are required.
type Config struct {
	Engine *reach.Engine
	Auth   *auth.Authenticator
	// Limit bounds the calls of an API key. nil: no bound.
	Limit *limit.Limiter
	// Audit records changes. nil: nothing is recorded.
	Audit *audit.Log
}

// Adapter serves the admin API of outlets. It is safe for concurrent use.
type Adapter struct {
	engine *reach.Engine
	auth   *auth.Authenticator
	limit  *limit.Limiter
	audit  *audit.Log
}

// New returns an adapter. It starts no goroutine.
func New(cfg Config) *Adapter {
	return &Adapter{engine: cfg.Engine, auth: cfg.Auth, limit: cfg.Limit, audit: cfg.Audit}
}

// Mount adds the routes below a base path.
func (a *Adapter) Mount(e *echo.Echo, base string) {
	const all, one = "/admin/outlets", "/admin/outlets/:outlet_id"
	for _, route := range []struct {
		method, path string
		cost         int
		handle       func(call) error
	}{
		{http.MethodGet, all, limit.Call, a.list},
		{http.MethodPost, all, limit.LargeCall, a.create},
		{http.MethodGet, one, limit.Call, a.get},
		{http.MethodPatch, one, limit.Call, a.update},
		{http.MethodDelete, one, limit.Call, a.delete},
		{http.MethodPost, one + "/secret", limit.Call, a.rotate},
		{http.MethodPost, one + "/test", limit.LargeCall, a.test},
		{http.MethodPost, one + "/replay", limit.LargeCall, a.replay},
		{http.MethodGet, one + "/failures", limit.LargeCall, a.failures},
		{http.MethodGet, one + "/parked", limit.LargeCall, a.parked},
		{http.MethodPost, one + "/parked/:event_id/resend", limit.LargeCall, a.resend},
	} {
		e.Add(route.method, base+route.path, a.guarded(route.cost, route.handle))
	}
}

// call is a call of an operator. ctx outlives a client that does not wait.
type call struct {
	echo.Context
	ctx    context.Context
	outlet reach.OutletID
}

// guarded authenticates the caller, counts the call, and checks the id of the outlet.
func (a *Adapter) guarded(cost int, handle func(call) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := a.auth.HeaderOrKey(c.Request())
		if err != nil {
			return err
		}
		//rule:caller_does_only_what_they_may.outlets-need-the-scope
		if err := id.Permits(auth.ScopeAdmin); err != nil {
			return err
		}
		quota, err := a.limit.Call(id.Payer(), cost)
		quota.Put(c.Response().Header())
		if err != nil {
			return err
		}
		//rule:caller_does_only_what_they_may.outlets-for-keys-only
		if err := id.Operates(auth.ScopeAdmin); err != nil {
			return err
		}
		name := api.PathParam(c, "outlet_id")
		if name != "" {
			if err := tidemark.CheckID("outlet_id", name); err != nil {
				return err
			}
		}
		ctx, cancel := api.Detached(c.Request()) // A test delivery may take 15 s.
		defer cancel()
		ctx = audit.WithActor(ctx, audit.Actor{Key: id.KeyName(), User: id.User})
		return handle(call{Context: c, ctx: ctx, outlet: reach.OutletID(name)})
	}
}

// audited changes the outlet of a call, between the two writes of its entry in the audit log. chat
// is "" if the call names none.
func (a *Adapter) audited(
	c call, operation string, chat tidemark.ChatID, change func() error,
) error {
	target := audit.Target{Chat: chat, Outlet: string(c.outlet)}
	return a.audit.Do(c.ctx, operation, target, change)
}

// answer writes a JSON body, which no cache may keep.
func (c call) answer(status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(status, "application/json", text)
}

func (a *Adapter) list(c call) error {
	infos, err := a.engine.Outlets(c.ctx)
	if err != nil {
		return err
	}
	views := make([]view, len(infos))
	for i := range infos {
		views[i] = newView(infos[i], "")
	}
	return c.answer(http.StatusOK, struct {
		Outlets []view `json:"outlets"`
	}{views})
}

func (a *Adapter) create(c call) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	asked, err := wire.DecodeNewOutlet(raw)
	if err != nil {
		return err
	}
	wanted := reach.NewOutlet{
		ID: reach.OutletID(asked.ID), Kind: asked.Type, URL: asked.URL,
		Events: types(asked.Events), Content: asked.Content, Batch: asked.Batch,
		FromStart: asked.FromStart,
	}
	c.outlet = wanted.Name()
	var made reach.Created
	err = a.audited(c, "createOutlet", "", func() (err error) {
		made, err = a.engine.Create(c.ctx, wanted)
		return err
	})
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if made.Existed {
		status = http.StatusOK
	}
	return c.answer(status, newView(made.Info, made.Secret))
}

// types returns the types of events with these names.
func types(names []string) []outlet.Type {
	var types []outlet.Type
	for _, name := range names {
		types = append(types, outlet.Type(name))
	}
	return types
}

func (a *Adapter) get(c call) error {
	info, err := a.engine.Outlet(c.ctx, c.outlet)
	if err != nil {
		return err
	}
	waiting, err := a.engine.Waiting(c.ctx, c.outlet)
	if err != nil {
		return err
	}
	v := newView(info, "")
	v.Waiting = &waiting
	return c.answer(http.StatusOK, v)
}

func (a *Adapter) update(c call) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	asked, err := wire.DecodeOutletChange(raw)
	if err != nil {
		return err
	}
	change := reach.Change{
		URL: asked.URL, Content: asked.Content, Batch: asked.Batch, Paused: asked.Paused,
	}
	if asked.Events != nil {
		events := types(*asked.Events)
		change.Events = &events
	}
	var info reach.Info
	err = a.audited(c, "updateOutlet", "", func() (err error) {
		info, err = a.engine.Update(c.ctx, c.outlet, change)
		return err
	})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, newView(info, ""))
}

func (a *Adapter) delete(c call) error {
	err := a.audited(c, "deleteOutlet", "", func() error {
		return a.engine.Delete(c.ctx, c.outlet)
	})
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.NoContent(http.StatusNoContent)
}

func (a *Adapter) rotate(c call) error {
	var info reach.Info
	var secret string
	err := a.audited(c, "createOutletSecret", "", func() (err error) {
		info, secret, err = a.engine.Rotate(c.ctx, c.outlet)
		return err
	})
	if err != nil {
		return err
	}
	return c.answer(http.StatusCreated, newView(info, secret))
}

func (a *Adapter) replay(c call) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	asked, err := wire.DecodeOutletReplay(raw)
	if err != nil {
		return err
	}
	err = a.audited(c, "replayOutlet", asked.Chat, func() error {
		return a.engine.Replay(c.ctx, c.outlet, asked.Chat, asked.From, asked.Since)
	})
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.NoContent(http.StatusNoContent)
}

// attempt is what came of a delivery that an operator asked for.
type attempt struct {
	Accepted bool `json:"accepted"`
	// Status is that of the receiver's answer, null if there was none.
	Status *int   `json:"status"`
	Detail string `json:"detail"`
}

func newAttempt(why *outlet.Refusal) attempt {
	if why == nil {
		return attempt{Accepted: true}
	}
	return attempt{Status: orNil(why.Status), Detail: why.Detail}
}

// orNil returns nil for a status of 0.
func orNil(status int) *int {
	if status == 0 {
		return nil
	}
	return &status
}

func (a *Adapter) test(c call) error {
	refused, err := a.engine.Test(c.ctx, c.outlet)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, newAttempt(refused))
}

func (a *Adapter) resend(c call) error {
	event := api.PathParam(c, "event_id")
	if err := tidemark.CheckID("event_id", event); err != nil {
		return err
	}
	refused, err := a.engine.Resend(c.ctx, c.outlet, event)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, newAttempt(refused))
}

func (a *Adapter) failures(c call) error {
	found, err := a.engine.Failures(c.ctx, c.outlet)
	if err != nil {
		return err
	}
	views := make([]failureView, len(found))
	for i, f := range found {
		views[i] = failureView{
			At: f.At.Format(tidemark.TimeLayout), Event: f.Event, Type: f.Type,
			Chat: chatOrNil(f.Chat), Status: orNil(f.Status), Detail: f.Detail,
		}
	}
	return c.answer(http.StatusOK, struct {
		Failures []failureView `json:"failures"`
	}{views})
}

func (a *Adapter) parked(c call) error {
	size, err := wire.ParsePage(c.QueryParams())
	if err != nil {
		return err
	}
	cursor := c.QueryParam("cursor")
	if cursor != "" {
		if err := tidemark.CheckID("cursor", cursor); err != nil {
			return err
		}
	}
	found, more, err := a.engine.ParkedEvents(c.ctx, c.outlet, cursor, size)
	if err != nil {
		return err
	}
	page := parkedPage{Parked: make([]parkedView, len(found))}
	for i := range found {
		page.Parked[i] = newParkedView(&found[i])
	}
	if page.Pagination.HasMore = more; more {
		page.Pagination.Next = &found[len(found)-1].Event.ID
	}
	return c.answer(http.StatusOK, page)
}
