package transports_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/reachtest"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/attachments"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/longpoll"
	"github.com/tidemark-im/tidemark/transports/push"
	"github.com/tidemark-im/tidemark/transports/sse"
	"github.com/tidemark-im/tidemark/transports/transporttest"
	adapter "github.com/tidemark-im/tidemark/transports/websocket"
)

// matrix is a server as an outsider meets it: every adapter, no development mode, and every kind of
// credentials.
type matrix struct {
	t        *testing.T
	contract *apitest.Contract
	core     *server.Server
	url      string
	// put uploads a file of a user, and returns its id.
	put func(user tidemark.UserID) string
	// stop ends every connection. Afterwards nothing that clients asked for is still under way.
	stop func()

	secret   []byte
	rsa      *rsa.PrivateKey
	ec       *ecdsa.PrivateKey
	ed       ed25519.PrivateKey
	stranger *rsa.PrivateKey // a key of no issuer
	apiKey   string

	groups int
	cells  int
	// refused holds the checks that refused calls changed nothing. end runs them.
	refused []func()
}

// newMatrix starts a matrix on a store. Its tickets live for ttl.
func newMatrix(t *testing.T, store storage.Store, ttl time.Duration) *matrix {
	t.Helper()
	secret := []byte("0123456789abcdef0123456789abcdef")
	w := &matrix{t: t, contract: apitest.Load(t), secret: secret}
	cfg := auth.Config{JWTSecret: w.secret, TicketTTL: ttl}
	cfg.JWKS = w.issuer()
	cfg.APIKeys = w.backends()

	log := slog.New(slog.DiscardHandler)
	reg := registrymemory.New()
	kept, dir := attachmentstest.Kept(t, store)
	w.put = func(user tidemark.UserID) string { return attachmentstest.Put(t, kept, dir, user) }
	core, err := server.New(server.Config{
		Storage:     store,
		Attachments: kept,
		Documents:   store,
		Registry:    reg,
		Nodes:       reg,
		Bus:         local.New(),
		Logger:      log,
		AckInterval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.core = core
	auth := auth.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { auth.Run(ctx); close(watched) }()

	sockets := adapter.New(adapter.Config{Server: core, Auth: auth, Logger: log})
	events := sse.New(sse.Config{Server: core, Auth: auth, Logger: log})
	polls := longpoll.New(longpoll.Config{Server: core, Auth: auth})
	notices := push.New(push.Config{
		Server: core, Auth: auth, Devices: devices.New(store), Platforms: reachtest.Platforms(),
	})
	files := attachments.New(attachments.Config{
		Server: core, Auth: auth, Attachments: kept, Dir: dir,
	})
	h, err := transports.New(transports.Config{
		Server: core, Auth: auth, Logger: log, Events: events.Handle, Poll: polls.Handle,
		WebSocket: sockets.Handle, Mounts: []transports.Mount{notices.Mount, files.Mount},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "http://" + l.Addr().String()
	front := h.HTTPServer("")
	served := make(chan error, 1)
	go func() { served <- front.Serve(l) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
		defer cancel()
		for _, err := range []error{
			sockets.Shutdown(ctx), events.Shutdown(ctx), polls.Shutdown(ctx), front.Shutdown(ctx),
		} {
			if err != nil {
				t.Errorf("stopping: %v", err)
			}
		}
		<-served
	}
	t.Cleanup(func() {
		w.stop()
		cancel()
		<-watched
		if err := core.Stop(context.Background()); err != nil {
			t.Errorf("stopping the core: %v", err)
		}
	})
	deadline := time.Now().Add(wait.Hang)
	for ; auth.Ready() != nil; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the keys of the issuer were not fetched")
		}
	}
	return w
}

// issuer publishes one key each for RS256, ES256 and EdDSA.
func (w *matrix) issuer() *auth.JWKS {
	w.t.Helper()
	var err error
	for _, k := range []**rsa.PrivateKey{&w.rsa, &w.stranger} {
		if *k, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		w.t.Fatal(err)
	}
	if _, w.ed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		w.t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: w.rsa.Public(), KeyID: "r"}, {Key: w.ec.Public(), KeyID: "e"},
		{Key: w.ed.Public(), KeyID: "d"},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	endpoint := httptest.NewServer(http.HandlerFunc(
		func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(set) }))
	w.t.Cleanup(endpoint.Close)
	keys, err := auth.NewJWKS(auth.JWKSConfig{
		URL:    endpoint.URL,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return keys
}

func (w *matrix) backends() *auth.APIKeys {
	w.t.Helper()
	key, keys := transporttest.APIKey(w.t)
	w.apiKey = key
	return keys
}

// sign returns a header with a token. A nil claim removes the default one.
func (w *matrix) sign(
	method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims,
) http.Header {
	w.t.Helper()
	all := jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	token := jwt.NewWithClaims(method, all)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	if err != nil {
		w.t.Fatal(err)
	}
	return bearer(text)
}

// token returns a header with a valid token of a user.
func (w *matrix) token(user tidemark.UserID) http.Header {
	return w.sign(jwt.SigningMethodHS256, w.secret, "", jwt.MapClaims{"sub": string(user)})
}

// key returns the header of a backend that calls for user, or without a user if user is "".
func (w *matrix) key(user tidemark.UserID) http.Header {
	h := bearer(w.apiKey)
	if user != "" {
		h.Set("X-User-ID", string(user))
	}
	return h
}

func bearer(credentials string) http.Header {
	return http.Header{"Authorization": {"Bearer " + credentials}}
}

// publicBytes returns the issuer's public RSA key, which a forger could use as a secret.
func (w *matrix) publicBytes() []byte {
	w.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(w.rsa.Public())
	if err != nil {
		w.t.Fatal(err)
	}
	return der
}

// people are the users of one cell and their chat. No other cell uses them.
type people struct {
	// file is in the second message.
	file string

	w                                       *matrix
	owner, member, former, stranger, reader tidemark.UserID
	chat                                    tidemark.ChatID
	unknown                                 bool
}

// canary is part of every name, message and id that a refusal must not show.
const canary = "canary"

// people returns new users and their chat of a kind. A group and a large chat have an owner, a
// member and a former member. A direct chat has the owner and the member. For unknown there is no
// chat. The owner has sent all messages.
func (w *matrix) people(kind string) *people {
	w.t.Helper()
	w.groups++
	name := func(role string) tidemark.UserID {
		return tidemark.UserID(fmt.Sprintf("%s-%d", role, w.groups))
	}
	c := &people{
		w:        w,
		owner:    name("owner"),
		member:   name("member"),
		former:   name("former"),
		stranger: name("stranger"),
		reader:   name(canary),
	}
	r := server.CreateChatRequest{
		ChatID:    tidemark.ChatID(fmt.Sprintf("room-%d", w.groups)),
		Type:      tidemark.Group,
		Name:      canary,
		MemberIDs: []tidemark.UserID{c.member, c.former, c.reader},
	}
	switch kind {
	case "group":
	case "direct":
		r.Type, r.MemberIDs = tidemark.Direct, []tidemark.UserID{c.member}
		c.reader = c.owner
	case "large":
		for n := range tidemark.StatusFanoutLimit {
			r.MemberIDs = append(r.MemberIDs, name(fmt.Sprintf("%s-%d", canary, n)))
		}
	case "unknown":
		c.chat, c.unknown = tidemark.ChatID(fmt.Sprintf("chat-%d", w.groups)), true
		c.file = attachmentstest.Picture
		return c
	default:
		w.t.Fatalf("no such chat: %s", kind)
	}
	ctx := w.t.Context()
	chat, _, err := w.core.CreateChat(ctx, server.Caller{User: c.owner}, r)
	if err != nil {
		w.t.Fatal(err)
	}
	c.chat = chat.ID
	c.file = w.put(c.owner)
	for _, content := range []string{canary + "1", canary + "2"} {
		draft := tidemark.Draft{
			ChatID:          c.chat,
			ClientMessageID: content,
			Content:         content,
			ContentType:     tidemark.DefaultContentType,
			Attachments:     json.RawMessage(`[{"s3_ref":"` + c.file + `"}]`),
		}
		if _, err := w.core.Send(ctx, c.owner, draft); err != nil {
			w.t.Fatal(err)
		}
	}
	if kind != "direct" {
		c.acknowledge(server.Ack{Acked: 1}, c.former)
		owner := server.Caller{User: c.owner}
		if err := w.core.RemoveMember(ctx, owner, c.chat, c.former); err != nil {
			w.t.Fatal(err)
		}
	}
	// The author's watermarks are raised to the head, because their messages do so a moment later.
	c.acknowledge(server.Ack{Acked: 2, Read: 2}, c.owner)
	c.acknowledge(server.Ack{Acked: 1}, c.member)
	return c
}

func (c *people) acknowledge(ack server.Ack, user tidemark.UserID) {
	c.w.t.Helper()
	ack.Chat = c.chat
	results, err := c.w.core.Acknowledge(c.w.t.Context(), user, []server.Ack{ack})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		c.w.t.Fatalf("%s acknowledges in %s: %v", user, c.chat, err)
	}
}

// user returns the user of a column of the tables, "" if there is none, and whether a backend calls
// for them.
func (c *people) user(column string) (tidemark.UserID, bool) {
	if column == "key" {
		return "", true
	}
	name, backend := strings.CutPrefix(column, "key/")
	switch name {
	case "owner":
		return c.owner, backend
	case "member":
		return c.member, backend
	case "former":
		return c.former, backend
	case "stranger":
		return c.stranger, backend
	}
	c.w.t.Fatalf("no such caller: %s", column)
	return "", false
}

// state is all that a refused call could have changed.
type state struct {
	Chat    tidemark.Chat
	Members []tidemark.Member
	States  []tidemark.DeliveryState
	// Of is the number of chats of each user.
	Of []int
}

func (c *people) state() state {
	c.w.t.Helper()
	var s state
	ctx := context.Background()
	users := []tidemark.UserID{c.owner, c.member, c.former, c.stranger, c.reader}
	for _, user := range users {
		page, err := c.w.core.Chats(ctx, user, 100, "")
		if err != nil {
			c.w.t.Fatal(err)
		}
		s.Of = append(s.Of, len(page.Chats))
		states, err := c.w.core.DeliveryStates(ctx, user, 100, "")
		if err != nil {
			c.w.t.Fatal(err)
		}
		s.States = append(s.States, states.States...)
	}
	if c.unknown {
		return s
	}
	view, err := c.w.core.Chat(ctx, server.Caller{User: c.owner}, c.chat)
	if err != nil {
		c.w.t.Fatal(err)
	}
	s.Chat = view.Chat
	members, err := c.w.core.Members(ctx, server.Caller{User: c.owner}, c.chat, 1000, "")
	if err != nil {
		c.w.t.Fatal(err)
	}
	s.Members = members.Members
	return s
}

// checkUnchanged records the state. end compares it with the state at the end.
func (c *people) checkUnchanged(what string) {
	before := c.state()
	c.w.refused = append(c.w.refused, func() {
		if diff := cmp.Diff(before, c.state()); diff != "" {
			c.w.t.Errorf("%s was refused, but changed something (-before +after):\n%s", what, diff)
		}
	})
}

// end stops the server and checks that no refused call changed anything.
func (w *matrix) end() {
	w.t.Helper()
	w.stop()
	for _, same := range w.refused {
		same()
	}
}

// do makes a call and compares the answer with openapi.yaml. It does not read the body of a stream.
func (w *matrix) do(method, path, body string, header http.Header) (*http.Response, []byte) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if res.Header.Get("Content-Type") == "text/event-stream" {
		w.t.Cleanup(func() { _ = res.Body.Close() })
		return res, nil
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	w.contract.Answer(w.t, method, path, res, raw)
	return res, raw
}

// outcome returns the tables' word for an answer.
func outcome(res *http.Response, raw []byte) string {
	if res.StatusCode < 400 {
		return fmt.Sprint(res.StatusCode)
	}
	return fmt.Sprintf("%d%s", res.StatusCode, letter(answer{res, raw}.code()))
}

// letter returns the tables' letter for a code. N, D and F distinguish a foreign chat, a forbidden
// call and a missing chat. Other statuses have only one code each.
func letter(code string) string {
	switch tidemark.Code(code) {
	case tidemark.NotMember:
		return "N"
	case tidemark.Denied:
		return "D"
	case tidemark.NotFound:
		return "F"
	}
	return ""
}

// socket opens a WebSocket and reads `session`. It returns the connection and that frame, or
// the code of its close.
func (w *matrix) socket(
	query string, header http.Header,
) (conn *websocket.Conn, open map[string]any, code int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Hang)
	defer cancel()
	dialed, _, err := websocket.Dial(ctx, w.url+transports.BasePath+"/ws"+query,
		&websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		w.t.Fatalf("connecting: %v", err)
	}
	w.t.Cleanup(func() { _ = dialed.CloseNow() })
	_, raw, err := dialed.Read(ctx)
	if err == nil && bytes.Contains(raw, []byte(`"type":"hello"`)) {
		_, raw, err = dialed.Read(ctx)
	}
	if err != nil {
		return nil, nil, int(websocket.CloseStatus(err))
	}
	w.contract.Schema(w.t, "SessionEvent", raw)
	var frame struct {
		Type    string
		Payload map[string]any
	}
	if err := json.Unmarshal(raw, &frame); err != nil || frame.Type != "session" {
		w.t.Fatalf("the first frame is %s, %v", raw, err)
	}
	return dialed, frame.Payload, 0
}
