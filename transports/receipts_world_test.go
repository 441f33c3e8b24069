package transports_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/fcm"
	"github.com/tidemark-im/tidemark/reach/push/pusher"
	"github.com/tidemark-im/tidemark/reach/push/queue"
	"github.com/tidemark-im/tidemark/reach/reachtest"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/attachments"
	auditcall "github.com/tidemark-im/tidemark/transports/audit"
	"github.com/tidemark-im/tidemark/transports/auth"
	erasures "github.com/tidemark-im/tidemark/transports/erasure"
	"github.com/tidemark-im/tidemark/transports/longpoll"
	"github.com/tidemark-im/tidemark/transports/outlets"
	pushcalls "github.com/tidemark-im/tidemark/transports/push"
	"github.com/tidemark-im/tidemark/transports/sse"
	"github.com/tidemark-im/tidemark/transports/transporttest"
	adapter "github.com/tidemark-im/tidemark/transports/websocket"
)

// world is a whole server, with outlets and push, in the time of a synctest bubble. Its network
// is net.Pipe. It notes all that leaves the server.
type world struct {
	t     *testing.T
	ctx   context.Context
	began time.Time
	store *memory.Store
	core  *server.Server
	// stack has what exchanges need: the address and the API key.
	stack *transporttest.Stack
	// over reaches the server from streams.
	over  *http.Transport
	conns chan net.Conn

	mu sync.Mutex
	// got has what each receiver got, since the last call of take.
	got map[string][]string
	// types has the types of events that others than bob got.
	types map[string]bool
	// running are the clients of streams.
	running sync.WaitGroup
}

// newWorld starts a server. It stops when the returned function is called.
func newWorld(t *testing.T) (w *world, stop func()) {
	t.Helper()
	w = &world{
		t: t, began: time.Now(), store: memory.New(), conns: make(chan net.Conn),
		got: map[string][]string{}, types: map[string]bool{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	log := slog.New(slog.DiscardHandler)
	reg := registrymemory.New()
	registered := devices.New(w.store)
	engine, notifies, run := w.outlets(reg, registered, log)
	store := engine.Hinting(notifies.Reading(w.store))
	register, err := erasure.OpenRegister(ctx, w.store, nil, log, time.Now)
	w.ok(err)
	_, err = register.Begin(ctx, "yan")
	w.ok(err)
	entries, err := audit.New(audit.Config{
		Store: w.store, Days: 1, Logger: log, Clock: time.Now, Erasures: register,
	})
	w.ok(err)
	kept, dir := attachmentstest.Kept(t, w.store)
	w.core, err = server.New(server.Config{
		Storage: store, Registry: reg, Nodes: reg, Bus: local.New(), Logger: log,
		Documents: w.store, Attachments: kept, Erasures: register, Audit: entries,
	})
	w.ok(err)
	w.ok(w.core.Start(ctx))
	key, keys := transporttest.APIKey(t)
	w.stack = &transporttest.Stack{
		URL: "http://tidemark" + transports.BasePath, Backend: key, Server: w.core,
	}
	auth := auth.New(auth.Config{
		Dev: true, APIKeys: keys, JWTSecret: []byte("the secret of a test, 32 bytes.."),
		Access: w.core, Erasures: register,
	})
	sockets := adapter.New(adapter.Config{Server: w.core, Auth: auth, Logger: log})
	events := sse.New(sse.Config{Server: w.core, Auth: auth, Logger: log})
	polls := longpoll.New(longpoll.Config{Server: w.core, Auth: auth})
	h, err := transports.New(transports.Config{
		Server: w.core, Auth: auth, Logger: log, Audit: entries, WebSocket: sockets.Handle,
		Events: events.Handle, Poll: polls.Handle,
		Mounts: []transports.Mount{
			outlets.New(outlets.Config{Engine: engine, Auth: auth, Audit: entries}).Mount,
			pushcalls.New(pushcalls.Config{
				Server: w.core, Auth: auth, Devices: registered, Platforms: reachtest.Platforms(),
				VAPIDKey: reachtest.VAPIDKey, Acknowledged: reachtest.Acknowledged,
			}).Mount,
			attachments.New(attachments.Config{
				Server: w.core, Auth: auth, Attachments: kept, Dir: dir,
			}).Mount,
			erasures.New(erasures.Config{
				Server: w.core, Register: register, Auth: auth, Audit: entries,
				Exporter: &erasure.Exporter{Store: w.store, Clock: time.Now},
			}).Mount,
			auditcall.New(auditcall.Config{Server: w.core, Log: entries, Auth: auth}).Mount,
		},
	})
	w.ok(err)
	front := h.HTTPServer("")
	var serving sync.WaitGroup
	serving.Go(func() { run(ctx) })
	serving.Go(func() { _ = front.Serve(pipes{w.conns, ctx}) })
	w.over = &http.Transport{DialContext: w.dial}
	return w, func() {
		cancel()
		w.running.Wait()
		w.over.CloseIdleConnections()
		for _, shutdown := range []func(context.Context) error{
			sockets.Shutdown, events.Shutdown, polls.Shutdown, front.Shutdown, w.core.Stop,
		} {
			w.ok(shutdown(context.Background()))
		}
		serving.Wait()
	}
}

// outlets returns what delivers to outlets and devices, and the loop of both.
func (w *world) outlets(
	reg *registrymemory.Registry, registered *devices.Registry, log *slog.Logger,
) (*reach.Engine, *pusher.Pusher, func(context.Context)) {
	w.t.Helper()
	online := func(
		ctx context.Context, users []tidemark.UserID,
	) ([][]tidemark.DeviceID, error) {
		leases, err := reg.Lookup(ctx, users)
		found := make([][]tidemark.DeviceID, len(users))
		for i := range leases {
			for _, lease := range leases[i] {
				found[i] = append(found[i], lease.Device)
			}
		}
		return found, err
	}
	notifies, err := pusher.New(pusher.Config{
		Store: w.store, Devices: registered, Online: online, Resume: time.Minute,
		Queues: map[devices.Platform]*queue.Queue{devices.FCM: queue.New(provider{w})},
		Habits: map[devices.Platform]pusher.Habits{
			devices.FCM: {Clears: fcm.Clears, Form: fcm.Form},
		},
		Secret: make([]byte, 32), Log: log,
	})
	w.ok(err)
	sealer, err := reach.NewSealer(make([]byte, 32))
	w.ok(err)
	engine := reach.New(reach.Config{
		Store: w.store, Sealer: sealer, Log: log, Online: online,
		// Few heartbeats, for hints tell of all news.
		Times: reach.Times{Poll: 5 * time.Second, Trust: 30 * time.Second, Dead: time.Minute},
		Kinds: map[string]reach.Kind{
			"webhook": {
				NewSecret: func() string { return "secret" },
				Open: func(s *reach.Spec, _ []string) (outlet.Client, error) {
					return &receiver{w, "outlet " + string(s.ID)}, nil
				},
			},
			"push": {
				Open: func(*reach.Spec, []string) (outlet.Client, error) { return notifies, nil },
				Own:  "push", Events: []outlet.Type{outlet.MessagePersisted},
			},
		},
	})
	return engine, notifies, func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() { engine.Run(ctx) })
		running.Go(func() { notifies.Run(ctx) })
		running.Wait()
	}
}

// provider is a push.Provider that notes what each user gets.
type provider struct{ *world }

// Send implements push.Provider.
func (p provider) Send(_ context.Context, to push.Target, n push.Notification) push.Result {
	p.note("push to "+string(to.User), "%s %q %q %d clears %v", n.Kind, n.Title, n.Body, n.Badge,
		n.Clears)
	return push.Result{Outcome: push.Sent}
}

// Lane implements push.Provider.
func (p provider) Lane(push.Target) string { return "" }

// receiver is an outlet that notes what it gets.
type receiver struct {
	*world
	name string
}

// Deliver implements outlet.Client.
func (r *receiver) Deliver(
	_ context.Context, events []outlet.Event,
) (int, *outlet.Refusal) {
	for i := range events {
		r.note(r.name, "%s", events[i].AppendBody(nil, false))
		r.saw("outlet " + string(events[i].Type))
	}
	return len(events), nil
}

// Limits implements outlet.Client.
func (r *receiver) Limits() outlet.Limits { return outlet.Limits{Events: 1} }

// Close implements outlet.Client.
func (r *receiver) Close() error { return nil }

// pipes is the listener of a world.
type pipes struct {
	conns chan net.Conn
	ctx   context.Context
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, http.ErrServerClosed
	}
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (w *world) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case w.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// random are the fields whose texts differ in every run.
var random = []string{
	"message_id", "session_id", "request_id", "entry_id", "attachment_id", "id", "incarnation",
	"ticket", "token", "secret", "url", "next_cursor",
}

// plain returns JSON without the texts of random fields. It is faster than a regular expression.
func plain(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, `":"`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(`":"`)
		text = after
		name := before[strings.LastIndexByte(before, '"')+1:]
		if end := strings.IndexByte(text, '"'); end >= 0 && slices.Contains(random, name) {
			text = text[end:]
		}
	}
}

// note notes something that a receiver got.
func (w *world) note(who, format string, args ...any) {
	text := plain(fmt.Sprintf(format, args...))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got[who] = append(w.got[who], text)
}

// saw notes that somebody got an event of a type.
func (w *world) saw(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.types[kind] = true
}

// take returns what all receivers got since the last call.
func (w *world) take() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.got
	w.got = map[string][]string{}
	return got
}

// event notes an event of a stream, and that its number was used: others may be skipped. Messages
// have the time at which they came, for nothing holds them up.
func (w *world) event(who string, id uint64, kind string, payload []byte) {
	if id > 0 {
		w.note(who, "event %d", id)
	}
	if !strings.HasPrefix(who, "bob") {
		w.saw("stream " + kind)
	}
	if kind == string(tidemark.EventMessage) {
		w.note(who, "%v message %s", time.Since(w.began), payload)
	} else if kind != "ping" {
		w.note(who, "%s %s", kind, payload)
	}
}

// request returns the request of a stream.
func (w *world) request(who, path string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.stack.URL+path, nil)
	w.ok(err)
	r.Header.Set("Authorization", "Bearer dev:"+who)
	return r
}

// socket opens a WebSocket, and notes its frames.
func (w *world) socket(who string) *websocket.Conn {
	w.t.Helper()
	conn, _, err := websocket.Dial(w.ctx, w.stack.URL+"/ws", &websocket.DialOptions{
		HTTPHeader:   http.Header{"Authorization": {"Bearer dev:" + who}},
		HTTPClient:   &http.Client{Transport: w.over},
		Subprotocols: []string{adapter.Subprotocol},
	})
	w.ok(err)
	w.running.Go(func() {
		defer func() { _ = conn.CloseNow() }()
		for {
			_, raw, err := conn.Read(w.ctx)
			if err != nil {
				return
			}
			var frame struct {
				ID      uint64
				Type    string
				Payload json.RawMessage
			}
			if err := json.Unmarshal(raw, &frame); err != nil {
				w.t.Errorf("the frame %s: %v", raw, err)
			}
			w.event(who+" by WebSocket", frame.ID, frame.Type, frame.Payload)
		}
	})
	return conn
}

// send sends a frame over a WebSocket.
func (w *world) send(conn *websocket.Conn, frame string) {
	w.t.Helper()
	w.ok(conn.Write(w.ctx, websocket.MessageText, []byte(frame)))
}

// events opens a stream of SSE, and notes its events.
func (w *world) events(who string) {
	w.t.Helper()
	res, err := w.over.RoundTrip(w.request(who, "/events"))
	w.ok(err)
	w.running.Go(func() {
		defer func() { _ = res.Body.Close() }()
		id, kind := uint64(0), ""
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "id":
				_, number, _ := strings.Cut(value, ".")
				_, _ = fmt.Sscan(number, &id)
			case "event":
				kind = value
			case "data":
				w.event(who+" by SSE", id, kind, []byte(value))
				id = 0
			}
		}
	})
}

// poll polls for ever, and notes the events.
func (w *world) poll(who string) {
	w.running.Go(func() {
		query := ""
		for w.ctx.Err() == nil {
			res, err := w.over.RoundTrip(w.request(who, "/poll?wait_seconds=20"+query))
			if err != nil {
				return
			}
			var page struct {
				Session string `json:"session_id"`
				Events  []struct {
					ID      uint64
					Type    string
					Payload json.RawMessage
				}
			}
			err = json.NewDecoder(res.Body).Decode(&page)
			_ = res.Body.Close()
			if err != nil || page.Session == "" {
				return
			}
			for _, ev := range page.Events {
				w.event(who+" by long-poll", ev.ID, ev.Type, ev.Payload)
				query = fmt.Sprintf("&session_id=%s&after_event_id=%d", page.Session, ev.ID)
			}
		}
	})
}

// park puts an event of the outlet crm aside.
func (w *world) park() {
	w.t.Helper()
	text, err := json.Marshal(reach.Parked{
		Event: outlet.Event{
			ID: reachtest.ParkedEvent, Type: outlet.ChatUpdated, Chat: "team", Time: time.Now(),
			Data: []byte(`{"chat_id":"team","version":1}`),
		},
		At: time.Now(), Status: http.StatusInternalServerError, Detail: "refused",
	})
	w.ok(err)
	_, err = w.store.PutDocument(w.ctx, storage.Document{
		Kind: "parked:crm", Name: reachtest.ParkedEvent, Value: text,
	})
	w.ok(err)
}
