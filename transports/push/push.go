// Package push is the adapter of push notifications, below /push. openapi.yaml is its contract.
// Users register devices and choose what they are told. The handler of a notification acknowledges
// it by its token, without other credentials.
package push

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/pusher"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Config configures an Adapter. Server, Auth and Devices are required.
type Config struct {
	Server  *server.Server
	Auth    *auth.Authenticator
	Devices *devices.Registry
	// Platforms are those that are served, each with a check of addresses, or nil.
	Platforms map[devices.Platform]func(address string) error
	// VAPIDKey is the public key with which browsers subscribe, in base64url, or "".
	VAPIDKey string
	// Acknowledged returns what a token acknowledges (pusher.Pusher). nil: no token counts.
	Acknowledged func(ctx context.Context, token string) (pusher.Ack, error)
	// Limit bounds the calls of a user. nil: no bound.
	Limit *limit.Limiter
}

// Adapter serves the calls of push notifications. It is safe for concurrent use.
type Adapter struct{ cfg Config }

// New returns an adapter. It starts no goroutine.
func New(cfg Config) *Adapter { return &Adapter{cfg} }

// Mount adds the routes below a base path.
func (a *Adapter) Mount(e *echo.Echo, base string) {
	for _, route := range []struct {
		method, path string
		handle       func(call) error
	}{
		{http.MethodGet, "/push", a.get},
		{http.MethodPut, "/push/settings", a.putSettings},
		{http.MethodPut, "/push/devices/:device_id", a.putDevice},
		{http.MethodDelete, "/push/devices/:device_id", a.dropDevice},
	} {
		e.Add(route.method, base+route.path, a.guarded(route.handle))
	}
	e.POST(base+"/push/acks", a.acknowledge)
}

// call is a call of a user. ctx outlives a client that does not wait.
type call struct {
	echo.Context
	ctx  context.Context
	user tidemark.UserID
}

func (a *Adapter) guarded(handle func(call) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		a.name(c)
		id, err := a.cfg.Auth.Header(c.Request())
		if err != nil {
			return err
		}
		//rule:caller_does_only_what_they_may.devices-need-the-scope
		if err := id.Permits(auth.ScopeAct); err != nil {
			return err
		}
		quota, err := a.cfg.Limit.Call(id.Payer(), limit.Call)
		quota.Put(c.Response().Header())
		if err != nil {
			return err
		}
		ctx, cancel := api.Detached(c.Request())
		defer cancel()
		return handle(call{c, ctx, id.User})
	}
}

// name says which data the answer is about, and that no cache may keep it.
func (a *Adapter) name(c echo.Context) {
	h := c.Response().Header()
	h.Set(api.IncarnationHeader, string(a.cfg.Server.Incarnation()))
	h.Set("Cache-Control", "no-store")
}

// answer writes a JSON body.
func (c call) answer(body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", text)
}

// state is what GET /push answers.
type state struct {
	Platforms []devices.Platform `json:"platforms"`
	VAPIDKey  *string            `json:"vapid_public_key"`
	Devices   []device           `json:"devices"`
	Settings  settings           `json:"settings"`
}

// device is a registration as the API has it. The address stays with the server.
type device struct {
	ID           tidemark.DeviceID `json:"device_id"`
	Platform     devices.Platform  `json:"platform"`
	App          *string           `json:"app"`
	Environment  *string           `json:"environment"`
	RegisteredAt string            `json:"registered_at"`
}

func newDevice(d *devices.Device) device {
	return device{
		d.ID, d.Platform, orNil(d.App), orNil(string(d.Environment)),
		d.RegisteredAt.Format(tidemark.TimeLayout),
	}
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// settings are those of a user as the API has them.
type settings struct {
	DisplayName string         `json:"display_name"`
	Preview     push.Preview   `json:"preview"`
	Quiet       *devices.Quiet `json:"quiet_hours"`
	Mutes       []mute         `json:"mutes"`
}

type mute struct {
	Chat tidemark.ChatID `json:"chat_id"`
	Ends *string         `json:"ends_at"`
}

func newSettings(s *devices.Settings) settings {
	v := settings{s.DisplayName, s.Preview, s.Quiet, make([]mute, len(s.Mutes))}
	if v.Preview == "" {
		v.Preview = push.PreviewFull
	}
	for i, m := range s.Mutes {
		v.Mutes[i] = mute{Chat: m.Chat}
		if !m.Until.IsZero() {
			text := m.Until.UTC().Format(tidemark.TimeLayout)
			v.Mutes[i].Ends = &text
		}
	}
	return v
}

func (a *Adapter) get(c call) error {
	found, err := a.cfg.Devices.Of(c.ctx, []tidemark.UserID{c.user})
	if err != nil {
		return err
	}
	v := state{
		Platforms: a.platforms(), VAPIDKey: orNil(a.cfg.VAPIDKey), Devices: []device{},
		Settings: newSettings(&found[0].Settings),
	}
	for i := range found[0].Devices {
		v.Devices = append(v.Devices, newDevice(&found[0].Devices[i]))
	}
	return c.answer(v)
}

// platforms returns those that are served, ascending.
func (a *Adapter) platforms() []devices.Platform {
	served := []devices.Platform{}
	for platform := range a.cfg.Platforms {
		served = append(served, platform)
	}
	slices.Sort(served)
	return served
}

func (a *Adapter) putDevice(c call) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	asked, err := wire.DecodePushDevice(raw)
	if err != nil {
		return err
	}
	d := devices.Device{
		ID:       tidemark.DeviceID(api.PathParam(c, "device_id")),
		Platform: devices.Platform(asked.Platform),
		App:      asked.App, Environment: push.Environment(asked.Environment),
		Address: asked.Address, P256dh: asked.P256dh, Auth: asked.Auth,
	}
	if err := d.Check(); err != nil {
		return err
	}
	check, served := a.cfg.Platforms[d.Platform]
	if !served {
		return tidemark.BadParam(tidemark.Invalid, "platform",
			"is not served here; GET /push names those that are: %v", a.platforms())
	}
	if check != nil {
		if err := check(d.Address); err != nil {
			return tidemark.BadParam(tidemark.Invalid, "address", "is refused: %s",
				strings.TrimSuffix(tidemark.DetailOf(err), "."))
		}
	}
	registered, err := a.cfg.Devices.Put(c.ctx, c.user, d)
	if err != nil {
		return err
	}
	return c.answer(newDevice(&registered))
}

func (a *Adapter) dropDevice(c call) error {
	id := tidemark.DeviceID(api.PathParam(c, "device_id"))
	if err := tidemark.CheckID("device_id", id); err != nil {
		return err
	}
	if err := a.cfg.Devices.Drop(c.ctx, c.user, id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (a *Adapter) putSettings(c call) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	asked, err := wire.DecodePushSettings(raw)
	if err != nil {
		return err
	}
	s := devices.Settings{DisplayName: asked.DisplayName, Preview: push.Preview(asked.Preview)}
	if asked.Quiet != nil {
		s.Quiet = &devices.Quiet{
			Start: asked.Quiet.Start, End: asked.Quiet.End, Zone: asked.Quiet.Zone,
		}
	}
	for _, m := range asked.Mutes {
		s.Mutes = append(s.Mutes, devices.Mute{Chat: m.Chat, Until: m.Ends})
	}
	stored, err := a.cfg.Devices.PutSettings(c.ctx, c.user, s)
	if err != nil {
		return err
	}
	return c.answer(newSettings(&stored))
}

// acknowledge takes the token of a notification. A forged one costs no access to the storage.
func (a *Adapter) acknowledge(c echo.Context) error {
	a.name(c)
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	token, err := wire.DecodePushAck(raw)
	if err != nil {
		return err
	}
	if a.cfg.Acknowledged == nil {
		return tidemark.Errorf(tidemark.Unauthenticated,
			"this server sends no notifications, so no token of it exists")
	}
	ctx, cancel := api.Detached(c.Request())
	defer cancel()
	ack, err := a.cfg.Acknowledged(ctx, token)
	if err != nil {
		return err
	}
	// The token is one of a device, which a sign-out does not concern.
	if err := a.cfg.Server.Allowed(ctx, ack.User, time.Time{}); err != nil {
		return err
	}
	quota, err := a.cfg.Limit.Call(server.Caller{User: ack.User}, limit.Call)
	quota.Put(c.Response().Header())
	if err != nil {
		return err
	}
	acks := []server.Ack{{Chat: ack.Chat, Acked: ack.Through}}
	done, err := a.cfg.Server.Acknowledge(ctx, ack.User, acks)
	if err != nil {
		return err
	}
	if done[0].Err != nil {
		return done[0].Err
	}
	return c.NoContent(http.StatusNoContent)
}
