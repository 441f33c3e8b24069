package transports_test

import (
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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/longpoll"
	"github.com/tidemark-im/tidemark/transports/sse"
	adapter "github.com/tidemark-im/tidemark/transports/websocket"
)

// world is a server as a stranger meets it: every adapter, no development mode, and every kind of credentials.
type world struct {
	t        *testing.T
	contract *apitest.Contract
	core     *server.Server
	url      string
	// stop ends every connection: afterwards all that clients asked for has been done.
	stop func()

	secret   []byte
	rsa      *rsa.PrivateKey
	ec       *ecdsa.PrivateKey
	ed       ed25519.PrivateKey
	stranger *rsa.PrivateKey // of no issuer
	apiKey   string

	casts int
	cells int
	// refused is the chats in which nothing may have changed at the end.
	refused []func()
}

// newWorld starts a world on a store, whose tickets live for ttl.
func newWorld(t *testing.T, store storage.Store, ttl time.Duration) *world {
	t.Helper()
	w := &world{t: t, contract: apitest.Load(t), secret: []byte("0123456789abcdef0123456789abcdef")}
	cfg := transports.AuthConfig{JWTSecret: w.secret, TicketTTL: ttl}
	cfg.JWKS = w.issuer()
	cfg.APIKeys = w.backends()

	log := slog.New(slog.DiscardHandler)
	reg := registrymemory.New()
	core, err := server.New(server.Config{
		Storage:     store,
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
	auth := transports.NewAuthenticator(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { auth.Run(ctx); close(watched) }()

	sockets := adapter.New(adapter.Config{Server: core, Auth: auth, Logger: log})
	events := sse.New(sse.Config{Server: core, Auth: auth, Logger: log})
	polls := longpoll.New(longpoll.Config{Server: core, Auth: auth})
	h, err := transports.New(transports.Config{
		Server: core, Auth: auth, Logger: log, Events: events.Handle, Poll: polls.Handle,
		WebSocket: sockets.Handle,
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
	for deadline := time.Now().Add(wait.Hang); auth.Ready() != nil; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the keys of the issuer were not fetched")
		}
	}
	return w
}

// issuer publishes a key for RS256, one for ES256 and one for EdDSA.
func (w *world) issuer() *transports.JWKS {
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
	endpoint := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(set) }))
	w.t.Cleanup(endpoint.Close)
	keys, err := transports.NewJWKS(transports.JWKSConfig{
		URL:    endpoint.URL,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return keys
}

func (w *world) backends() *transports.APIKeys {
	w.t.Helper()
	key, line, err := transports.NewAPIKey("backend")
	if err != nil {
		w.t.Fatal(err)
	}
	file := filepath.Join(w.t.TempDir(), "api-keys")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		w.t.Fatal(err)
	}
	keys, err := transports.LoadAPIKeys(file, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.apiKey = key
	return keys
}

// sign makes a token. Claims of nil are left out of the good ones.
func (w *world) sign(
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

// token is a good token of a user.
func (w *world) token(user tidemark.UserID) http.Header {
	return w.sign(jwt.SigningMethodHS256, w.secret, "", jwt.MapClaims{"sub": string(user)})
}

// key is the credentials of a backend that acts for a user.
func (w *world) key(user tidemark.UserID) http.Header {
	h := bearer(w.apiKey)
	h.Set("X-User-ID", string(user))
	return h
}

func bearer(credentials string) http.Header {
	return http.Header{"Authorization": {"Bearer " + credentials}}
}

// publicBytes is the RSA key of the issuer as anybody has it, to be misused as a secret.
func (w *world) publicBytes() []byte {
	w.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(w.rsa.Public())
	if err != nil {
		w.t.Fatal(err)
	}
	return der
}

// cast is the people of one cell, and its chat. Nobody else has to do with them.
type cast struct {
	w                                       *world
	owner, member, former, stranger, listen tidemark.UserID
	chat                                    tidemark.ChatID
	unknown                                 bool
}

// canary is in every name, message and id that a refusal must not show.
const canary = "canary"

// cast makes people, and a chat of a kind: group and large have an owner, a member, and somebody who was one; direct is of the owner and the
// member; unknown is none. All messages are the owner's.
func (w *world) cast(kind string) *cast {
	w.t.Helper()
	w.casts++
	name := func(role string) tidemark.UserID {
		return tidemark.UserID(fmt.Sprintf("%s-%d", role, w.casts))
	}
	c := &cast{
		w:        w,
		owner:    name("owner"),
		member:   name("member"),
		former:   name("former"),
		stranger: name("stranger"),
		listen:   name(canary),
	}
	r := server.CreateChatRequest{
		Type:      tidemark.Group,
		Name:      canary,
		MemberIDs: []tidemark.UserID{c.member, c.former, c.listen},
	}
	switch kind {
	case "group":
	case "direct":
		r.Type, r.MemberIDs = tidemark.Direct, []tidemark.UserID{c.member}
		c.listen = c.owner
	case "large":
		for n := range tidemark.StatusFanoutLimit {
			r.MemberIDs = append(r.MemberIDs, name(fmt.Sprintf("%s-%d", canary, n)))
		}
	case "unknown":
		c.chat, c.unknown = tidemark.ChatID(fmt.Sprintf("chat-%d", w.casts)), true
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
	for _, content := range []string{canary + "1", canary + "2"} {
		draft := tidemark.Draft{
			ChatID:          c.chat,
			ClientMessageID: content,
			Content:         content,
			ContentType:     tidemark.DefaultContentType,
		}
		if _, err := w.core.Send(ctx, c.owner, draft); err != nil {
			w.t.Fatal(err)
		}
	}
	if kind != "direct" {
		c.acknowledge(server.Ack{Acked: 1}, c.former)
		if err := w.core.RemoveMember(ctx, server.Caller{User: c.owner},
			c.chat, c.former); err != nil {
			w.t.Fatal(err)
		}
	}
	// As far as an author can get, since his messages raise his watermarks a moment later.
	c.acknowledge(server.Ack{Acked: 2, Read: 2}, c.owner)
	c.acknowledge(server.Ack{Acked: 1}, c.member)
	return c
}

func (c *cast) acknowledge(ack server.Ack, user tidemark.UserID) {
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

// user returns the user of a column of the tables, and whether a backend acts for him.
func (c *cast) user(column string) (tidemark.UserID, bool) {
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
	// Of is how many chats each of the people has.
	Of []int
}

func (c *cast) state() state {
	c.w.t.Helper()
	var s state
	ctx := context.Background()
	people := []tidemark.UserID{c.owner, c.member, c.former, c.stranger, c.listen}
	for _, user := range people {
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

// guard remembers how things are; at the end of the world they have to be the same.
func (c *cast) guard(what string) {
	before := c.state()
	c.w.refused = append(c.w.refused, func() {
		if diff := cmp.Diff(before, c.state()); diff != "" {
			c.w.t.Errorf("%s was refused, and changed something (-before +after):\n%s", what, diff)
		}
	})
}

// end stops the server, and looks whether something changed that was not to.
func (w *world) end() {
	w.t.Helper()
	w.stop()
	for _, same := range w.refused {
		same()
	}
}

// do makes a call, and compares the answer with openapi.yaml. The body of a stream that opened is not read.
func (w *world) do(method, path, body string, header http.Header) (*http.Response, []byte) {
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

// outcome is what the tables call an answer.
func outcome(res *http.Response, raw []byte) string {
	if res.StatusCode < 400 {
		return fmt.Sprint(res.StatusCode)
	}
	return fmt.Sprintf("%d%s", res.StatusCode, short(answer{res, raw}.code()))
}

// short is what the tables call a code: N, D and F tell a foreign chat from what one may not do and from nothing; other statuses have one code each.
func short(code string) string {
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

// socket opens a WebSocket, and returns it behind its first frame; or the code with which it was closed.
func (w *world) socket(
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
	if err != nil {
		return nil, nil, int(websocket.CloseStatus(err))
	}
	w.contract.Schema(w.t, "OpenEvent", raw)
	var frame struct {
		Type    string
		Payload map[string]any
	}
	if err := json.Unmarshal(raw, &frame); err != nil || frame.Type != "open" {
		w.t.Fatalf("the first frame is %s, %v", raw, err)
	}
	return dialed, frame.Payload, 0
}
