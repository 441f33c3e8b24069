package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

// core is a running Server on a store that counts calls, with short forms of the calls that tests
// make.
type core struct {
	*server.Server
	t     *testing.T
	ctx   context.Context
	store *storagetest.Counting
	reg   *registrymemory.Registry
	bus   *local.Bus
	sent  int
	node  tidemark.NodeID
}

// quiet returns a logger that discards everything.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// start starts a Server inside the bubble of a test. The Server stops when the test ends.
func start(t *testing.T, change ...func(*server.Config)) *core {
	t.Helper()
	return startOn(t, stores.Open(t), registrymemory.New(), local.New(), change...)
}

func startOn(
	t *testing.T, store storage.Store, reg *registrymemory.Registry, b *local.Bus,
	change ...func(*server.Config),
) *core {
	t.Helper()
	c := &core{t: t, ctx: context.Background(), store: storagetest.Count(store), reg: reg, bus: b}
	cfg := server.Config{Storage: c.store, Registry: reg, Nodes: reg, Bus: b, Logger: quiet()}
	for _, f := range change {
		f(&cfg)
	}
	c.node = cfg.Node
	var err error
	if c.Server, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(c.ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(c.ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return c
}

// chat creates a chat of users. The first of them is its owner.
func (c *core) chat(id tidemark.ChatID, users ...tidemark.UserID) tidemark.ChatID {
	c.t.Helper()
	kind := tidemark.Group
	if len(users) == 2 {
		kind = tidemark.Direct
	}
	_, _, err := c.CreateChat(c.ctx, server.Caller{User: users[0]}, server.CreateChatRequest{
		ChatID:    id,
		Type:      kind,
		MemberIDs: users,
	})
	if err != nil {
		c.t.Fatalf("CreateChat(%s): %v", id, err)
	}
	return id
}

// send sends a message with content of its own and returns its sequence.
func (c *core) send(user tidemark.UserID, chat tidemark.ChatID) tidemark.Sequence {
	c.t.Helper()
	c.sent++
	sent, err := c.Send(c.ctx, user, tidemark.Draft{
		ChatID:          chat,
		ClientMessageID: fmt.Sprintf("%s-%d", c.node, c.sent),
		Content:         fmt.Sprintf("message %d", c.sent),
	})
	if err != nil {
		c.t.Fatalf("Send(%s, %s): %v", user, chat, err)
	}
	return sent.Message.Sequence
}

// ack acknowledges by the API, outside a session.
func (c *core) ack(
	user tidemark.UserID, chat tidemark.ChatID, acked, read tidemark.Sequence,
) tidemark.DeliveryState {
	c.t.Helper()
	results, err := c.Acknowledge(c.ctx, user, []server.Ack{{Chat: chat, Acked: acked, Read: read}})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		c.t.Fatalf("Acknowledge(%s, %s, %d, %d): %v", user, chat, acked, read, err)
	}
	return results[0].State
}

// openRequest is how a client connects: over a stream or, with Poll, by long-poll.
type openRequest struct {
	User     tidemark.UserID
	Device   tidemark.DeviceID
	Session  tidemark.SessionID
	After    uint64
	Statuses bool
	Poll     bool
	Left     func() bool
}

// Open connects a client as the adapters do. If the session is gone, a stream opens a new one; a
// poll gets the error.
func (c *core) Open(ctx context.Context, r openRequest) (*server.Connection, error) {
	return connect(ctx, c.Server, r)
}

func connect(ctx context.Context, s *server.Server, r openRequest) (*server.Connection, error) {
	open := server.OpenRequest{User: r.User, Device: r.Device, Statuses: r.Statuses}
	if r.Session == "" {
		return s.Open(ctx, open)
	}
	conn, err := s.Resume(ctx, server.ResumeRequest{
		User: r.User, Session: r.Session, After: r.After, Announce: !r.Poll, Yield: r.Left,
	})
	if r.Poll || tidemark.CodeOf(err) != tidemark.Gone && !errors.Is(err, server.ErrUncertain) {
		return conn, err
	}
	open.Reset = tidemark.ResetUnknownSession
	return s.Open(ctx, open)
}

// client is a client's connection. last is the id of the last event it got.
type client struct {
	*server.Connection
	core *core
	t    *testing.T
	user tidemark.UserID
	last uint64
}

func (c *core) open(user tidemark.UserID, change ...func(*openRequest)) *client {
	c.t.Helper()
	r := openRequest{User: user}
	for _, f := range change {
		f(&r)
	}
	conn, err := c.Open(c.ctx, r)
	if err != nil {
		c.t.Fatalf("Open(%s): %v", user, err)
	}
	return &client{Connection: conn, core: c, t: c.t, user: user}
}

// resuming resumes a session after an event id.
func resuming(session tidemark.SessionID, after uint64) func(*openRequest) {
	return func(r *openRequest) { r.Session, r.After = session, after }
}

func withStatuses(r *openRequest) { r.Statuses = true }

func onDevice(id tidemark.DeviceID) func(*openRequest) {
	return func(r *openRequest) { r.Device = id }
}

// line returns an event in the short form of the tests: "message chat 3", "gap chat 2-5", "status
// chat bob 3 2", "own chat 3 2 from 0: 1 0" (acknowledged, read, mark, unread and mentions),
// "caught_up", "confirmed chat 3" for a confirmation in place of an event, "answered chat 3",
// "presence chat alice+ bob- carol@" (online, offline, and seen before), "presence chat 80".
func line(t *testing.T, e tidemark.Event) string {
	t.Helper()
	var p struct {
		ChatID    string `json:"chat_id"`
		UserID    string `json:"user_id"`
		Sequence  uint64 `json:"sequence"`
		From      uint64 `json:"from_sequence"`
		To        uint64 `json:"to_sequence"`
		Acked     uint64 `json:"last_acked_sequence"`
		Read      uint64 `json:"last_read_sequence"`
		AllAcked  uint64 `json:"all_acked_sequence"`
		AllRead   uint64 `json:"all_read_sequence"`
		Version   uint64 `json:"version"`
		Mark      uint64 `json:"unread_from_sequence"`
		Unread    int64  `json:"unread_count"`
		Mentions  int64  `json:"mention_count"`
		Change    string `json:"change"`
		Reason    string `json:"reason"`
		Role      string `json:"role"`
		Resumed   bool   `json:"resumed"`
		SessionID string `json:"session_id"`
		Through   *uint64
		Online    int `json:"online_count"`
		Members   []struct {
			UserID   string  `json:"user_id"`
			Online   bool    `json:"online"`
			LastSeen *string `json:"last_seen_at"`
		} `json:"members"`
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatalf("payload of %s: %v: %s", e.Type, err, e.Payload)
	}
	switch e.Type {
	case tidemark.EventSession:
		return fmt.Sprintf("open resumed=%v", p.Resumed)
	case tidemark.EventMessage:
		return fmt.Sprintf("message %s %d", p.ChatID, p.Sequence)
	case tidemark.EventConfirmation:
		if e.ID == 0 {
			return fmt.Sprintf("answered %s %d", p.ChatID, p.Sequence)
		}
		return fmt.Sprintf("confirmed %s %d", p.ChatID, p.Sequence)
	case tidemark.EventGap:
		return fmt.Sprintf("gap %s %d-%d", p.ChatID, p.From, p.To)
	case tidemark.EventStatus:
		if p.UserID == "" {
			return fmt.Sprintf("status %s all %d %d", p.ChatID, p.AllAcked, p.AllRead)
		}
		return fmt.Sprintf("status %s %s %d %d", p.ChatID, p.UserID, p.Acked, p.Read)
	case tidemark.EventChatUpdated:
		return fmt.Sprintf("updated %s %d", p.ChatID, p.Version)
	case tidemark.EventOwnState:
		return fmt.Sprintf("own %s %d %d from %d: %d %d",
			p.ChatID, p.Acked, p.Read, p.Mark, p.Unread, p.Mentions)
	case tidemark.EventMembership:
		text := fmt.Sprintf("membership %s %s %s", p.ChatID, p.UserID, p.Change)
		asCreated := p.Role == string(tidemark.Owner) || p.Role == string(tidemark.Ordinary)
		if p.Role != "" && (p.Change != string(tidemark.Added) || !asCreated) {
			text += " " + p.Role
		}
		return text
	case tidemark.EventReset:
		if p.Through != nil {
			return fmt.Sprintf("reset %s %s %d", p.Reason, p.ChatID, *p.Through)
		}
		return "reset " + p.Reason
	case tidemark.EventTyping:
		return fmt.Sprintf("typing %s %s", p.ChatID, p.UserID)
	case tidemark.EventPresence:
		if p.Members == nil {
			return fmt.Sprintf("presence %s %d", p.ChatID, p.Online)
		}
		text := "presence " + p.ChatID
		for _, m := range p.Members {
			switch text += " " + m.UserID; {
			case m.Online:
				text += "+"
			case m.LastSeen != nil:
				text += "@"
			default:
				text += "-"
			}
		}
		return text
	default:
		return string(e.Type)
	}
}

// drain reads everything that is due once the bubble is idle, and returns its lines.
func (c *client) drain() []string {
	c.t.Helper()
	var lines []string
	for {
		synctest.Wait()
		events, err := c.Next(context.Background(), nil, false)
		if err != nil {
			c.t.Fatalf("Next of %s: %v", c.user, err)
		}
		if len(events) == 0 {
			return lines
		}
		for _, e := range events {
			if e.ID != 0 {
				if e.ID <= c.last {
					c.t.Errorf("event id %d after %d: ids must grow", e.ID, c.last)
				}
				c.last = e.ID
			}
			lines = append(lines, line(c.t, e))
		}
	}
}

// settle waits until coalesced acknowledgements and statuses have been written and sent.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// nodesTrust waits until nodes trust their caches: for the life of their first lease, other nodes
// may not know them yet.
func nodesTrust() { time.Sleep(10 * time.Second) }

// since returns the calls to the store, and their effects, since a snapshot.
func (c *core) since(before storagetest.Counts) storagetest.Counts {
	now := c.store.Snapshot()
	for method, n := range before.Calls {
		if now.Calls[method] -= n; now.Calls[method] == 0 {
			delete(now.Calls, method)
		}
	}
	now.Appended -= before.Appended
	now.Marked -= before.Marked
	now.Cleared -= before.Cleared
	now.Moved -= before.Moved
	return now
}
