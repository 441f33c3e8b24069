package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/internal/sessions"
)

// OpenRequest is a request for a new session.
type OpenRequest = sessions.OpenRequest

// ResumeRequest is a request for a session that exists.
type ResumeRequest = sessions.ResumeRequest

// ErrUncertain is Resume's error if another node may have the session, and the registry could not be
// asked. Its code is Unavailable.
var ErrUncertain = sessions.ErrUncertain

// Open opens a session. The first Next gives the `open` event.
//
// Errors: Exhausted (Config.SessionsPerUser), Unavailable (stopping). A registry that cannot be
// reached does not prevent a session: it reconciles, and leaves no proof.
func (s *Server) Open(ctx context.Context, r OpenRequest) (*Connection, error) {
	if err := s.calls.begin(); err != nil {
		return nil, err
	}
	defer s.calls.end()
	return s.connect(s.sessions.Open(ctx, r))
}

// Resume lets a client go on with its session, on this node or another one, and takes it over from an
// older connection.
//
// Errors: Gone (unknown, ended, or another user's), ErrUncertain, Unavailable (stopping, or another
// connection asks for the session at the same time).
func (s *Server) Resume(ctx context.Context, r ResumeRequest) (*Connection, error) {
	if err := s.calls.begin(); err != nil {
		return nil, err
	}
	defer s.calls.end()
	return s.connect(s.sessions.Resume(ctx, r))
}

func (s *Server) connect(r *session.Reader, err error) (*Connection, error) {
	if err != nil {
		return nil, err
	}
	return &Connection{server: s, reader: r}, nil
}

// Connection is one connection's hold on a session. A newer connection of the session replaces it.
// Next and Wait belong to one goroutine; the other methods may be called concurrently.
type Connection struct {
	server *Server
	reader *session.Reader
}

// Session returns the id of the session.
func (c *Connection) Session() tidemark.SessionID { return c.reader.Session().ID() }

func (c *Connection) user() tidemark.UserID { return c.reader.Session().User() }

// Next appends the events that are due to buf, about a page of them, and returns as soon as it has
// some. If there is none it waits for one, or, with wait false, returns buf as it is. Payloads are
// shared and must not be changed. A read of storage that fails is tried again until ctx ends.
//
// Errors: Replaced once a newer connection owns the session, Gone when it has ended, Unavailable when
// the node is stopping, and ctx.Err(). With an error buf is returned as it was given.
func (c *Connection) Next(
	ctx context.Context, buf []tidemark.Event, wait bool,
) ([]tidemark.Event, error) {
	return c.reader.Next(ctx, buf, wait)
}

// Wait returns when there may be events for Next, or the connection has lost its session; ctx.Err()
// when ctx ends first. It needs less stack than a Next that waits.
func (c *Connection) Wait(ctx context.Context) error { return c.reader.Wait(ctx) }

// Confirm takes in that the client has stored a message that it got on this stream, and so everything
// before it.
func (c *Connection) Confirm(chat tidemark.ChatID, acked tidemark.Sequence) {
	c.reader.Confirm(chat, acked)
}

// Detach says that the connection is gone. The session waits for its resume window for another one.
func (c *Connection) Detach() { c.reader.Detach() }

// Ack takes acknowledgements and reads. It never waits for storage: they are buffered, and written
// within Config.AckInterval. One that is refused is counted and dropped (ADR-008 §3.1,
// fire-and-forget).
func (c *Connection) Ack(acks ...Ack) {
	for _, a := range acks {
		c.server.receipts.Add(c.user(), a.Chat, a.Acked, a.Read)
		//rule:ack_fire_and_forget.confirm-on-the-stream
		if a.Acked > 0 {
			c.Confirm(a.Chat, a.Acked)
		}
	}
}

// Send is Server.Send for the session's user.
func (c *Connection) Send(ctx context.Context, d tidemark.Draft) (Sent, error) {
	return c.server.Send(ctx, c.user(), d)
}

// SendAll is Server.SendAll for the session's user.
func (c *Connection) SendAll(ctx context.Context, drafts []tidemark.Draft) []Sent {
	return c.server.SendAll(ctx, c.user(), drafts)
}

// Sync is Server.Sync for the session's user.
func (c *Connection) Sync(ctx context.Context, r SyncRequest) (SyncResponse, error) {
	return c.server.Sync(ctx, c.user(), r)
}

// Typing tells the other members' sessions that the session's user is typing. Errors are dropped, as
// the notice may be.
func (c *Connection) Typing(ctx context.Context, chat tidemark.ChatID) {
	c.server.sendTyping(ctx, c.user(), chat)
}

// Close ends the session at once, because its client said goodbye: acknowledgements that wait are
// written, what is not acknowledged is marked, and the lease is released. It only detaches if the
// connection was replaced.
func (c *Connection) Close(ctx context.Context) error {
	c.Detach()
	//rule:pending_once.flush-at-goodbye
	c.server.receipts.Flush(ctx)
	_, err := c.server.sessions.Close(ctx, c.reader.Ending())
	return err
}
