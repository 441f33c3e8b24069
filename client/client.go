package client

import (
	"context"
	"crypto/rand"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Transport is a way to receive events. All carry the same ones.
type Transport string

// The transports.
const (
	WebSocket Transport = "websocket"
	SSE       Transport = "sse"
	LongPoll  Transport = "longpoll"
)

// Config configures a Client. URL, User and Token are required.
type Config struct {
	// URL is the address of the server, without /api/v1: https://chat.example.com.
	URL string
	// User is the user for whom the client sends and receives.
	User tidemark.UserID
	// Token returns an API key or a token of the user. It is called when the client needs one: at
	// the start, when four fifths of a token's life are over, and when the server refused it. One
	// call is under way at a time, for at most 30 s.
	//
	// An error counts as trouble of the network, and Token is called again later. A *tidemark.Error
	// with the code Unauthenticated says that there will be no token: Run and Send return it.
	Token func(context.Context) (string, error)
	// Device names the device, if it has a lasting name. Two clients with one name replace each
	// other. Empty stands for a random name.
	Device tidemark.DeviceID
	// Cursors stores what was handled. If it is nil, the server's watermark is the cursor: a new
	// process begins after what was acknowledged.
	Cursors CursorStore
	// Transports are tried in this order. The default is WebSocket, SSE, LongPoll.
	Transports []Transport
	// Concurrent is how many chats are handled at a time. The default is 8. The messages of one
	// chat are always handled one after the other.
	Concurrent int
	// HTTP makes the requests. Its Timeout and CheckRedirect are not used. The default has a
	// transport of its own.
	HTTP *http.Client
	// Logger gets what happens to the connection. The default discards it.
	Logger *slog.Logger
}

// Client receives, acknowledges and sends as one user. It is safe for concurrent use.
type Client struct {
	cfg    Config
	base   string // the URL of the API
	http   *http.Client
	tokens *tokens
	timing timing

	mu sync.Mutex // guards the fields below
	// run is the Run under way, or nil.
	run *run
}

// timing has the times of a client. Tests shorten them.
type timing struct {
	// call bounds a call.
	call time.Duration
	// first bounds the wait for the first byte of a stream, session for its session.
	first, session time.Duration
	// wait is how long a poll waits for an event. grace is how much later its answer may come.
	wait, grace time.Duration
	// acks is how long a handled message waits to be acknowledged.
	acks time.Duration
	// confirm is after how long an acknowledgement by a frame is repeated by a call.
	confirm time.Duration
	// farewell bounds what Run does after its context ended.
	farewell time.Duration
}

func defaultTiming() timing {
	return timing{
		call: 15 * time.Second, first: 5 * time.Second, session: 12 * time.Second,
		wait: 25 * time.Second, grace: 10 * time.Second, acks: 5 * time.Second,
		confirm: 30 * time.Second, farewell: 5 * time.Second,
	}
}

// basePath is where the API is below the server's URL.
const basePath = "/api/v1"

// New returns a client. It makes no request and starts no goroutine.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, tidemark.BadParam(tidemark.Invalid, "URL",
			"is %q; it must look like https://chat.example.com", cfg.URL)
	}
	if err := tidemark.CheckID("User", cfg.User); err != nil {
		return nil, err
	}
	if cfg.Token == nil {
		return nil, tidemark.BadParam(tidemark.Invalid, "Token", "is missing")
	}
	if cfg.Device == "" {
		cfg.Device = tidemark.DeviceID(rand.Text())
	}
	if err := tidemark.CheckID("Device", cfg.Device); err != nil {
		return nil, err
	}
	if len(cfg.Transports) == 0 {
		cfg.Transports = []Transport{WebSocket, SSE, LongPoll}
	}
	cfg.Transports = slices.Clone(cfg.Transports)
	for _, t := range cfg.Transports {
		if t != WebSocket && t != SSE && t != LongPoll {
			return nil, tidemark.BadParam(tidemark.Invalid, "Transports", "names %q", t)
		}
	}
	if cfg.Concurrent <= 0 {
		cfg.Concurrent = 8
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{
		cfg:    cfg,
		base:   strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/") + basePath,
		http:   httpClient(cfg.HTTP),
		tokens: newTokens(cfg.Token),
		timing: defaultTiming(),
	}, nil
}

// httpClient returns a client that follows no redirects, because a redirect is no answer of the
// server. The deadlines are those of the contexts, so that a stream has none.
func httpClient(given *http.Client) *http.Client {
	own := &http.Client{}
	if given != nil {
		*own = *given
	}
	if own.Transport == nil {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
		transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 8, 90*time.Second
		own.Transport = transport
	}
	own.Timeout = 0
	own.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	return own
}

// Run receives until ctx ends, and calls handle for each message of others. It returns nil after
// ctx has ended, and otherwise why the client cannot go on: the device was taken over (REPLACED),
// the server refused the token or the request, or the CursorStore could not be loaded. Everything
// else is repeated.
//
// The messages of a chat are handled in order, one at a time. If handle returns an error, it is
// called again with the same message after a pause, which grows up to 30 s. Other chats go on
// meanwhile. A message is acknowledged only after handle has returned nil, and the CursorStore has
// saved it. So after a crash some messages are handled again: handle must not mind. What handle
// sends should have an ID that it derives from the message, as the example of the package does.
//
// The context of handle ends with ctx. Run waits for handlers that are under way. At the end it
// acknowledges what was handled, and ends the session. That takes at most 5 s more.
//
// A Client has at most one Run or Messages at a time. Another one gets a Conflict.
func (c *Client) Run(
	ctx context.Context, handle func(context.Context, tidemark.Message) error,
) error {
	r := newRun(c, handle)
	c.mu.Lock()
	if c.run != nil {
		c.mu.Unlock()
		return tidemark.Errorf(tidemark.Conflict, "the client is already running")
	}
	c.run = r
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.run = nil
	}()
	return r.run(ctx)
}

// running returns the Run under way, or nil.
func (c *Client) running() *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// Messages receives as Run does, in a loop: a message counts as handled when the loop asks for the
// next one. If the loop ends by break, its last message does not count. The loop ends when ctx
// does, or with an error of Run.
func (c *Client) Messages(ctx context.Context) iter.Seq2[tidemark.Message, error] {
	return func(yield func(tidemark.Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		messages, handled := make(chan tidemark.Message), make(chan struct{})
		left, ended := make(chan struct{}), make(chan error, 1)
		var turn sync.Mutex // held by the handler whose message is in the loop
		var running sync.WaitGroup
		running.Go(func() {
			ended <- c.Run(ctx, func(ctx context.Context, m tidemark.Message) error {
				turn.Lock()
				defer turn.Unlock()
				select {
				case messages <- m:
				case <-ctx.Done():
					return stopped(ctx)
				}
				select {
				case <-handled:
					return nil
				case <-left:
					return tidemark.Errorf(tidemark.Unavailable, "the loop was left")
				}
			})
		})
		defer running.Wait()
		defer cancel()
		defer close(left)
		for {
			select {
			case m := <-messages:
				if !yield(m, nil) {
					return
				}
				handled <- struct{}{}
			case err := <-ended:
				if err != nil {
					yield(tidemark.Message{}, err)
				}
				return
			}
		}
	}
}
