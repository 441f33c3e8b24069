package client

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const (
	alice tidemark.UserID = "alice"
	bob   tidemark.UserID = "bob"
)

// every are all transports, each on its own.
var every = []Transport{WebSocket, SSE, LongPoll}

// overEvery runs a test over each transport.
func overEvery(t *testing.T, test func(t *testing.T, over Transport)) {
	for _, over := range every {
		t.Run(string(over), func(t *testing.T) { test(t, over) })
	}
}

// network is between a client and the server: it can be cut, broken for good, and led to another
// server.
type network struct {
	URL string

	listener net.Listener
	relays   sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	target string     // "" refuses
	conns  map[net.Conn]bool
}

func newNetwork(t testing.TB, target string) *network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{
		URL: "http://" + listener.Addr().String(), listener: listener,
		conns: map[net.Conn]bool{},
	}
	n.lead(target)
	n.relays.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			n.relays.Go(func() { n.relay(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		n.cut()
		n.relays.Wait()
	})
	return n
}

// lead sends new connections to the server of a URL, or nowhere.
func (n *network) lead(target string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.target = ""
	if u, err := url.Parse(target); err == nil {
		n.target = u.Host
	}
}

func (n *network) hold(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = true
}

func (n *network) drop(c net.Conn) {
	_ = c.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// cut breaks all connections.
func (n *network) cut() {
	n.mu.Lock()
	conns := slices.Collect(maps.Keys(n.conns))
	n.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

func (n *network) relay(client net.Conn) {
	n.hold(client)
	defer n.drop(client)
	n.mu.Lock()
	target := n.target
	n.mu.Unlock()
	if target == "" {
		return
	}
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	n.hold(up)
	defer n.drop(up)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, up)
		_ = client.Close()
	})
	_, _ = io.Copy(up, client)
	_ = up.Close()
	back.Wait()
}

// proxied returns the URL of a reverse proxy before a server. first may answer in its place, and
// reports whether it did.
func proxied(
	t testing.TB, target string, first func(http.ResponseWriter, *http.Request) bool,
) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = ""
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// blocked answers with a page of a proxy, as one does that does not know WebSocket.
func blockedPage(w http.ResponseWriter) bool {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, "<h1>no</h1>")
	return true
}

// bot is a client under test: what it handled, and how its Run ended.
type bot struct {
	*Client
	t      testing.TB
	cancel context.CancelFunc
	ended  chan error
	// restarts is how often Run starts again after REPLACED, as a supervisor would.
	restarts int

	mu      sync.Mutex // guards the fields below
	handled []tidemark.Message
	// answer returns what the handler returns. nil: nothing.
	answer func(ctx context.Context, m tidemark.Message) error
	opened []string // the transports of the streams that were opened
}

// newBot returns a client of bob that is not running. edit may change its configuration.
func newBot(t testing.TB, url string, edit ...func(*Config)) *bot {
	t.Helper()
	b := &bot{t: t, ended: make(chan error, 1)}
	cfg := Config{
		URL: strings.TrimSuffix(url, basePath), User: bob,
		Token:  func(context.Context) (string, error) { return "dev:bob", nil },
		Logger: slog.New(opens{b, slog.DiscardHandler}),
	}
	for _, f := range edit {
		f(&cfg)
	}
	var err error
	if b.Client, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	b.timing.acks, b.timing.farewell = 20*time.Millisecond, wait.Hang
	return b
}

// only is an edit of newBot: the transports of the client.
func only(over ...Transport) func(*Config) {
	return func(c *Config) { c.Transports = over }
}

// opens notes the streams that are opened.
type opens struct {
	b *bot
	slog.Handler
}

func (o opens) Enabled(context.Context, slog.Level) bool { return true }

func (o opens) Handle(_ context.Context, r slog.Record) error {
	o.b.t.Log(r.Message, attributes(r))
	if r.Message != "the stream is open" {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "transport" {
			o.b.mu.Lock()
			defer o.b.mu.Unlock()
			o.b.opened = append(o.b.opened, a.Value.String())
		}
		return true
	})
	return nil
}

func attributes(r slog.Record) string {
	var all []string
	r.Attrs(func(a slog.Attr) bool {
		all = append(all, a.String())
		return true
	})
	return strings.Join(all, " ")
}

// start runs the bot until stop is called, at the latest when the test ends.
func (b *bot) start() *bot {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	running := make(chan struct{})
	go func() {
		defer close(running)
		err := b.Run(ctx, b.handle)
		for ; b.restarts > 0 && tidemark.CodeOf(err) == tidemark.Replaced; b.restarts-- {
			err = b.Run(ctx, b.handle)
		}
		b.ended <- err
	}()
	b.t.Cleanup(func() {
		cancel()
		<-running
	})
	return b
}

// stop ends Run and returns its error.
func (b *bot) stop() error {
	b.cancel()
	return b.end()
}

// end waits until Run has ended, and returns its error.
func (b *bot) end() error {
	b.t.Helper()
	select {
	case err := <-b.ended:
		return err
	case <-time.After(wait.Hang):
		b.t.Fatal("Run does not end")
		return nil
	}
}

func (b *bot) handle(ctx context.Context, m tidemark.Message) error {
	b.mu.Lock()
	answer := b.answer
	b.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, m); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handled = append(b.handled, m)
	return nil
}

// contents returns the contents of the messages of a chat that were handled.
func (b *bot) contents(chat tidemark.ChatID) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.handled {
		if m.ChatID == chat {
			all = append(all, m.Content)
		}
	}
	return all
}

// streams returns the transports of the streams that were opened.
func (b *bot) streams() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.opened)
}

// gets waits until the bot has handled the contents from–to of a chat, in order and once.
func (b *bot) gets(chat tidemark.ChatID, from, to int) {
	b.t.Helper()
	want := numbers(from, to)
	wait.For(b.t, fmt.Sprintf("the bot handles %d to %d of %s", from, to, chat),
		func() (int, bool) {
			got := b.contents(chat)
			return len(got), len(got) >= len(want)
		})
	if got := b.contents(chat); !slices.Equal(got, want) {
		b.t.Fatalf("handled %v, want %v", got, want)
	}
}

func numbers(from, to int) (all []string) {
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprint(n))
	}
	return all
}

// marks returns the watermarks of a user.
func marks(
	t testing.TB, s *transporttest.Stack, user tidemark.UserID, chat tidemark.ChatID,
) tidemark.DeliveryState {
	t.Helper()
	state, err := s.Server.DeliveryState(context.Background(), user, chat)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// isAcked waits until a user has acknowledged everything of a chat up to n.
func isAcked(
	t testing.TB, s *transporttest.Stack, user tidemark.UserID, chat tidemark.ChatID,
	n tidemark.Sequence,
) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%s has acknowledged %d of %s", user, n, chat), func() bool {
		return marks(t, s, user, chat).Acked == n
	})
}

// cursors is a CursorStore in memory.
type cursors struct {
	mu    sync.Mutex // guards the fields below
	saved map[tidemark.ChatID]Cursor
	// fails returns the error of a Save.
	fails func() error
	// history are all saves.
	history []Cursor
}

func (c *cursors) Load(context.Context) (map[tidemark.ChatID]Cursor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.saved), nil
}

func (c *cursors) Save(_ context.Context, chat tidemark.ChatID, cursor Cursor) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		if err := c.fails(); err != nil {
			return err
		}
	}
	if c.saved == nil {
		c.saved = map[tidemark.ChatID]Cursor{}
	}
	c.saved[chat] = cursor
	c.history = append(c.history, cursor)
	return nil
}

func (c *cursors) of(chat tidemark.ChatID) Cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saved[chat]
}

// stored is an edit of newBot: its cursors.
func stored(c *cursors) func(*Config) { return func(cfg *Config) { cfg.Cursors = c } }

// quick is a core whose sessions and acknowledgements are fast.
func quick() transporttest.Options {
	return transporttest.Options{Core: server.Config{AckInterval: time.Millisecond}}
}
