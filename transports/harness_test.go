package transports_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/reachtest"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/attachments"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/outlets"
	"github.com/tidemark-im/tidemark/transports/push"
)

// api is a server on a loopback port, with the contract that its answers must fit.
type api struct {
	t        *testing.T
	contract *apitest.Contract
	core     *server.Server
	handler  *transports.Handler
	http     *http.Server
	url      string
}

// options changes the parts of an api.
type options struct {
	auth   auth.Config
	limit  *limit.Limiter
	events echo.HandlerFunc
	poll   echo.HandlerFunc
	page   fs.FS
	files  string
	// connections bounds the connections. 0: no bound.
	connections int
	alive       func() error
	// metricsToken is the token of /metrics, or "".
	metricsToken string
	degraded     func() error
	// storage is the store of the test run by default.
	storage storage.Store
	// log is the logger of the handler and its server, if it is not nil.
	log *slog.Logger
	// adapters is called after the core has started and before the first request, if it is not nil.
	adapters func(a *api, auth *auth.Authenticator)
}

func dev() options { return options{auth: auth.Config{Dev: true}} }

func start(t *testing.T, o options) *api {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	reg := registrymemory.New()
	if o.storage == nil {
		o.storage = stores.Open(t)
	}
	core, err := server.New(server.Config{
		Storage:  o.storage,
		Registry: reg,
		Nodes:    reg,
		Bus:      local.New(),
		Logger:   logger,

		Documents: o.storage,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o.page == nil {
		o.page = fstest.MapFS{
			"index.html": {Data: []byte("<!doctype html><title>Tidemark</title>")},
			"app.js":     {Data: []byte("export {}")},
		}
	}
	o.auth.Access = core
	auth := auth.New(o.auth)
	admin := outlets.New(outlets.Config{
		Engine: reachtest.Engine(t, o.storage), Auth: auth, Limit: o.limit,
	})
	notices := push.New(push.Config{
		Server: core, Auth: auth, Limit: o.limit, Devices: devices.New(o.storage),
		Platforms: reachtest.Platforms(), VAPIDKey: reachtest.VAPIDKey,
		Acknowledged: reachtest.Acknowledged,
	})
	files := attachments.New(attachments.Config{Server: core, Auth: auth, Limit: o.limit})
	erases := erasuresOf(t, o.storage, core, auth, o.limit)
	if o.log != nil {
		logger = o.log
	}
	h, err := transports.New(transports.Config{
		Server: core, Auth: auth, Limit: o.limit, Events: o.events, Poll: o.poll, Page: o.page,
		Files: o.files, Logger: logger, Alive: o.alive, Degraded: o.degraded,
		MetricsToken: o.metricsToken,
		Mounts:       []transports.Mount{admin.Mount, notices.Mount, files.Mount, erases},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &api{
		t:        t,
		contract: apitest.Load(t),
		core:     core,
		handler:  h,
		http:     h.HTTPServer(""),
		url:      "http://" + l.Addr().String(),
	}
	if o.adapters != nil {
		o.adapters(a, auth)
	}
	served := make(chan error, 1)
	bounded := limit.NewListener(l.(*net.TCPListener),
		limit.ListenerConfig{Connections: o.connections})
	go func() { served <- a.http.Serve(bounded) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
		defer cancel()
		if err := a.http.Shutdown(ctx); err != nil {
			t.Errorf("stopping the HTTP server: %v", err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("serving: %v", err)
		}
		if err := core.Stop(ctx); err != nil {
			t.Errorf("stopping the core: %v", err)
		}
	})
	return a
}

// as is an api with the credentials of one user.
type as struct {
	*api
	credentials string
	header      http.Header
}

func (a *api) as(user string) as { return as{api: a, credentials: "Bearer dev:" + user} }

// with returns the same caller with one more header.
func (u as) with(name, value string) as {
	u.header = u.header.Clone()
	if u.header == nil {
		u.header = http.Header{}
	}
	u.header.Set(name, value)
	return u
}

// answer is a response with its whole body.
type answer struct {
	*http.Response
	body []byte
}

// code returns the code of a problem, or "".
func (r answer) code() string {
	var p struct{ Code, Detail string }
	_ = json.Unmarshal(r.body, &p)
	return p.Code
}

// param returns the parameter that a problem names, or "".
func (r answer) param() string {
	var p struct{ Param string }
	_ = json.Unmarshal(r.body, &p)
	return p.Param
}

// do makes a call and compares the answer with the contract. A path that begins with two slashes is
// absolute; any other is below the base path.
func (u as) do(method, path, body string) answer {
	u.t.Helper()
	full := transports.BasePath + path
	if strings.HasPrefix(path, "//") {
		full = path[1:]
	}
	req, err := http.NewRequestWithContext(u.t.Context(), method, u.url+full,
		bytes.NewReader([]byte(body)))
	if err != nil {
		u.t.Fatal(err)
	}
	if u.credentials != "" {
		req.Header.Set("Authorization", u.credentials)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range u.header {
		req.Header[name] = values
	}
	res, err := u.contract.Transport(u.t, http.DefaultTransport).RoundTrip(req)
	if err != nil {
		u.t.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		u.t.Fatal(err)
	}
	return answer{res, raw}
}

// get makes a call, checks its status, and returns its JSON body.
func get[T any](u as, status int, method, path, body string) T {
	u.t.Helper()
	r := u.do(method, path, body)
	var v T
	if r.StatusCode != status {
		u.t.Fatalf("%s %s: %d %s, want %d", method, path, r.StatusCode, r.body, status)
	}
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &v); err != nil {
			u.t.Fatalf("%s %s: %v in %s", method, path, err, r.body)
		}
	}
	return v
}
