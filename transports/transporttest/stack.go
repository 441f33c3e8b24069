package transporttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/reachtest"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	"github.com/tidemark-im/tidemark/server/registry"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/attachments"
	auditcall "github.com/tidemark-im/tidemark/transports/audit"
	"github.com/tidemark-im/tidemark/transports/auth"
	erasures "github.com/tidemark-im/tidemark/transports/erasure"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/longpoll"
	"github.com/tidemark-im/tidemark/transports/origin"
	"github.com/tidemark-im/tidemark/transports/outlets"
	"github.com/tidemark-im/tidemark/transports/push"
	"github.com/tidemark-im/tidemark/transports/sse"
	"github.com/tidemark-im/tidemark/transports/websocket"
)

// Options changes the parts of a Stack. The zero value has the defaults.
type Options struct {
	// Core is the configuration of the core, without its storage, registry and bus.
	Core server.Config
	// Auth is the configuration of authentication. `Bearer dev:<user>` is always accepted.
	Auth auth.Config
	// Limit bounds sends and calls. If it is nil, there is no limit.
	Limit *limit.Limiter
	// Gate bounds how many clients catch up at a time. If it is nil, there is no bound.
	Gate *limit.Gate
	// Origins decides which pages may call. If it is nil, only pages of the server's own host may.
	Origins *origin.Policy
	// WriteTimeout is the write timeout of all adapters.
	WriteTimeout time.Duration
	// Storage is the store of the test run by default (package stores).
	Storage storage.Store
	// Registry, if not nil, returns what the core gets in place of its registry.
	Registry func(registry.Registry) registry.Registry
	// Contract records what is seen of openapi.yaml. By default the stack has its own.
	Contract *apitest.Contract
	// HTTP changes the HTTP server before it serves, if it is not nil.
	HTTP func(*http.Server)
	// HTTP2 serves HTTP/2 without encryption too.
	HTTP2 bool
}

// Stack is a server with all adapters on a loopback port, with the outlets of package reachtest and
// the file of package attachmentstest.
// It stops when the test ends; the test fails if that takes longer than stopTime.
type Stack struct {
	Server *server.Server
	// Erasures knows who was erased. Nobody erases them.
	Erasures *erasure.Register
	// URL is the address of the API, without a slash at the end: http://127.0.0.1:PORT/api/v1.
	URL string
	// Backend is an API key, unless Options has keys of its own.
	Backend string

	WebSocket *websocket.Adapter
	SSE       *sse.Adapter
	LongPoll  *longpoll.Adapter
	// entries is the audit log.
	entries  *audit.Log
	t        testing.TB
	contract *apitest.Contract
	http     *http.Server
	served   chan error
	chats    int
}

// stopTime is how long a Stack may take to stop.
const stopTime = wait.Hang

// New starts a Stack.
func New(t testing.TB, o Options) *Stack {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	reg := registrymemory.New()
	if o.Storage == nil {
		o.Storage = stores.Open(t)
	}
	if o.Contract == nil {
		o.Contract = apitest.Load(t)
	}
	o.Core.Storage, o.Core.Registry, o.Core.Nodes, o.Core.Bus = o.Storage, reg, reg, local.New()
	if o.Registry != nil {
		o.Core.Registry = o.Registry(reg)
	}
	o.Core.Logger, o.Core.Documents = logger, o.Storage
	kept, dir := attachmentstest.Kept(t, o.Storage)
	o.Core.Attachments = kept
	register, err := erasure.OpenRegister(t.Context(), o.Storage, nil, logger, time.Now)
	if err != nil {
		t.Fatalf("who was erased: %v", err)
	}
	o.Core.Erasures, o.Auth.Erasures = register, register
	entries, err := audit.New(audit.Config{
		Store: o.Storage, Days: 1, Logger: logger, Clock: time.Now, Erasures: register,
	})
	if err != nil {
		t.Fatalf("the audit log: %v", err)
	}
	o.Core.Audit = entries
	core, err := server.New(o.Core)
	if err != nil {
		t.Fatalf("the core: %v", err)
	}
	if err := core.Start(context.Background()); err != nil {
		t.Fatalf("starting the core: %v", err)
	}
	o.Auth.Dev = true
	backend := ""
	if o.Auth.APIKeys == nil {
		backend, o.Auth.APIKeys = APIKey(t)
	}
	if o.Auth.JWTSecret == nil {
		o.Auth.JWTSecret = []byte("the secret of a test, 32 bytes..")
	}
	o.Auth.Access = core
	auth := auth.New(o.Auth)
	s := &Stack{
		Backend: backend, t: t, Server: core, Erasures: register, entries: entries,
		contract: o.Contract, served: make(chan error, 1),
	}
	s.WebSocket = websocket.New(websocket.Config{
		Server: core, Auth: auth, Limit: o.Limit, Gate: o.Gate, Origins: o.Origins, Logger: logger,
		WriteTimeout: o.WriteTimeout,
	})
	s.SSE = sse.New(sse.Config{
		Server:       core,
		Auth:         auth,
		Limit:        o.Limit,
		Gate:         o.Gate,
		WriteTimeout: o.WriteTimeout,
	})
	s.LongPoll = longpoll.New(longpoll.Config{
		Server:       core,
		Auth:         auth,
		Limit:        o.Limit,
		Gate:         o.Gate,
		WriteTimeout: o.WriteTimeout,
	})
	admin := outlets.New(outlets.Config{
		Engine: reachtest.Engine(t, o.Storage), Auth: auth, Limit: o.Limit, Audit: entries,
	})
	notices := push.New(push.Config{
		Server: core, Auth: auth, Limit: o.Limit, Devices: devices.New(o.Storage),
		Platforms: reachtest.Platforms(), VAPIDKey: reachtest.VAPIDKey,
		Acknowledged: reachtest.Acknowledged,
	})
	files := attachments.New(attachments.Config{
		Server: core, Auth: auth, Limit: o.Limit, Attachments: kept, Dir: dir,
	})
	erases := erasuresOf(s, o.Storage, auth, o.Limit)
	listed := auditcall.New(auditcall.Config{
		Server: core, Log: entries, Auth: auth, Limit: o.Limit,
	})
	mounts := []transports.Mount{
		admin.Mount, notices.Mount, files.Mount, erases, listed.Mount,
	}
	handler, err := transports.New(transports.Config{
		Server: core, Auth: auth, Limit: o.Limit, Origins: o.Origins, Logger: logger,
		WebSocket: s.WebSocket.Handle, Events: s.SSE.Handle, Poll: s.LongPoll.Handle,
		Mounts: mounts, Audit: entries,
	})
	if err != nil {
		t.Fatalf("the handler: %v", err)
	}
	s.http = handler.HTTPServer("")
	if o.HTTP2 {
		s.http.Protocols = new(http.Protocols)
		s.http.Protocols.SetHTTP1(true)
		s.http.Protocols.SetUnencryptedHTTP2(true)
	}
	if o.HTTP != nil {
		o.HTTP(s.http)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	s.URL = "http://" + listener.Addr().String() + transports.BasePath
	go func() { s.served <- s.http.Serve(listener) }()
	t.Cleanup(s.stop)
	return s
}

// erasuresOf returns the calls that erase and export users. Nobody erases them.
func erasuresOf(
	s *Stack, store storage.Store, auth *auth.Authenticator, limit *limit.Limiter,
) transports.Mount {
	return erasures.New(erasures.Config{
		Server: s.Server, Register: s.Erasures, Auth: auth, Limit: limit, Audit: s.entries,
		Exporter: &erasure.Exporter{
			Store: store, Clock: time.Now,
			Parts: []erasure.Part{{Type: "push", Read: devices.New(store).Export}},
		},
	}).Mount
}

// APIKey returns the API key of a backend, and the keys that know it. Without scopes it has all.
func APIKey(t testing.TB, scopes ...auth.Scope) (key string, keys *auth.APIKeys) {
	t.Helper()
	key, line, err := auth.NewAPIKey("backend", scopes...)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "api-keys")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if keys, err = auth.LoadAPIKeys(file, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return key, keys
}

// SmallSendBuffers makes the kernel buffer little of what the server writes (Options.HTTP). So a
// client that does not read blocks the server after a few KB, on every machine.
func SmallSendBuffers(h *http.Server) {
	h.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(1 << 10) // if this fails, the test needs more data
		}
		return ctx
	}
}

// SmallReceiveBuffers returns a Dialer whose connections buffer little of what their client does
// not read. With SmallSendBuffers in the server, a few answers fill both, on every machine.
func SmallReceiveBuffers() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1<<10)
		})
		return errors.Join(err, failed)
	}}
}

// Transport returns the RoundTripper of the test's clients. It compares every exchange with
// openapi.yaml.
func (s *Stack) Transport(t testing.TB) http.RoundTripper {
	return s.TransportOver(t, http.DefaultTransport)
}

// TransportOver is Transport for a client with another RoundTripper.
func (s *Stack) TransportOver(t testing.TB, over http.RoundTripper) http.RoundTripper {
	return s.contract.Transport(t, over)
}

// stop stops the adapters, the HTTP server and the core, in the order of the program.
func (s *Stack) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for name, stop := range map[string]func(context.Context) error{
		"WebSocket": s.WebSocket.Shutdown, "SSE": s.SSE.Shutdown, "long-poll": s.LongPoll.Shutdown,
	} {
		if err := stop(ctx); err != nil {
			s.t.Errorf("stopping %s: %v", name, err)
		}
	}
	if err := s.http.Shutdown(ctx); err != nil {
		s.t.Errorf("stopping the HTTP server: %v", err)
	}
	if err := <-s.served; err != http.ErrServerClosed {
		s.t.Errorf("serving: %v", err)
	}
	if err := s.Server.Stop(ctx); err != nil {
		s.t.Errorf("stopping the core: %v", err)
	}
}

// Group creates a group of the users and returns its id. The first user is the owner.
func (s *Stack) Group(users ...tidemark.UserID) tidemark.ChatID {
	s.t.Helper()
	s.chats++
	id := tidemark.ChatID(fmt.Sprintf("chat-%d", s.chats))
	_, _, err := s.Server.CreateChat(context.Background(), server.Caller{User: users[0]},
		server.CreateChatRequest{
			ChatID: id, Type: tidemark.Group, MemberIDs: users,
		})
	if err != nil {
		s.t.Fatalf("creating %s: %v", id, err)
	}
	return id
}

// Send stores count messages of a user, with the contents first, first+1, and so on.
func (s *Stack) Send(user tidemark.UserID, chat tidemark.ChatID, first, count int) {
	s.t.Helper()
	for n := first; n < first+count; n++ {
		s.SendText(user, chat, strconv.Itoa(n), strconv.Itoa(n))
	}
}

// SendText stores a message of a user.
func (s *Stack) SendText(user tidemark.UserID, chat tidemark.ChatID, key, content string) {
	s.t.Helper()
	_, err := s.Server.Send(context.Background(), user, tidemark.Draft{
		ChatID: chat, ClientMessageID: key, Content: content,
		ContentType: tidemark.DefaultContentType,
	})
	if err != nil {
		s.t.Fatalf("sending %s to %s: %v", key, chat, err)
	}
}

// Acknowledge raises a user's watermark as REST does, and waits until it is stored.
func (s *Stack) Acknowledge(user tidemark.UserID, chat tidemark.ChatID, acked tidemark.Sequence) {
	s.t.Helper()
	results, err := s.Server.Acknowledge(context.Background(), user,
		[]server.Ack{{Chat: chat, Acked: acked}})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		s.t.Fatalf("acknowledging %d of %s: %v", acked, chat, err)
	}
}

// Eventually polls until the condition holds, and fails the test if it does not within wait.Hang.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	wait.Until(t, what, condition)
}
