package server

import (
	"bytes"
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/internal/sessions"
)

// OpenRequest is a request for a new session.
type OpenRequest = sessions.OpenRequest

// ResumeRequest names a session that a client resumes.
type ResumeRequest = sessions.ResumeRequest

// ErrUncertain is Resume's error if another node may have the session, but the registry does not
// answer. Its code is Unavailable.
var ErrUncertain = sessions.ErrUncertain

// Open opens a session. The first Next returns the `session` event.
//
// Errors: Exhausted (Config.SessionsPerUser), Unavailable (stopping), those of Allowed. An
// unreachable registry is no error: the session then reconciles and leaves no proof.
func (s *Server) Open(ctx context.Context, r OpenRequest) (*Connection, error) {
	if err := s.calls.begin(); err != nil {
		return nil, err
	}
	defer s.calls.end()
	if err := s.erased(r.User); err != nil {
		return nil, err
	}
	reader, err := s.sessions.Open(ctx, r)
	c, refused := s.connect(ctx, reader, r.Issued, err)
	if refused != nil && err == nil {
		// Nobody knows its id. If the user is barred, it has ended already.
		_, _ = s.sessions.Close(ctx, reader.Session().Ending(session.Closed))
	}
	return c, refused
}

// Resume attaches a client to its session and replaces an older connection. If the session is on
// another node, it moves to this one.
//
// Errors: Gone if the session is unknown, ended, or another user's; ErrUncertain; Unavailable if
// the server is stopping, or another connection has requested the session; those of Allowed.
func (s *Server) Resume(ctx context.Context, r ResumeRequest) (*Connection, error) {
	if err := s.calls.begin(); err != nil {
		return nil, err
	}
	defer s.calls.end()
	if err := s.erased(r.User); err != nil {
		return nil, err
	}
	reader, err := s.sessions.Resume(ctx, r)
	return s.connect(ctx, reader, r.Issued, err)
}

// connect returns the connection of a reader, whose client has credentials that were issued at a
// time. It asks once more whether the user may use the server. So an open that began before a
// suspension or a sign-out ends, whether or not the session was in the table when the nodes were
// told.
func (s *Server) connect(
	ctx context.Context, r *session.Reader, issued time.Time, err error,
) (*Connection, error) {
	if err != nil {
		return nil, err
	}
	if err := s.vouch(ctx, r.Session(), issued); err != nil {
		r.Detach()
		return nil, err
	}
	return &Connection{server: s, reader: r}, nil
}

// Connection is one connection's hold on a session. A newer connection of the session replaces it.
// Next, Wait and Follow must not be called at the same time; the other methods are safe for
// concurrent use.
type Connection struct {
	server *Server
	reader *session.Reader
}

// Session returns the id of the session.
func (c *Connection) Session() tidemark.SessionID { return c.reader.Session().ID() }

func (c *Connection) user() tidemark.UserID { return c.reader.Session().User() }

// Next appends events to buf, about a page, and returns as soon as it has some. If there are none,
// it waits for one; with wait false, it returns buf unchanged. The caller must not change the
// payloads, which are shared. A failed read of storage is repeated until ctx ends. With wait false,
// Next then returns no events, and the reader is woken when it is time to repeat the read.
//
// Errors: Replaced if a newer connection owns the session; Gone if it has ended; Unavailable if the
// node is stopping; ctx.Err(). With an error, buf is returned as it was given.
func (c *Connection) Next(
	ctx context.Context, buf []tidemark.Event, wait bool,
) ([]tidemark.Event, error) {
	return c.reader.Next(ctx, buf, wait)
}

// Wait returns nil when Next may have events or an error, and ctx.Err() when ctx ends first. It
// needs less stack than a Next that waits.
func (c *Connection) Wait(ctx context.Context) error { return c.reader.Wait(ctx) }

// Waker is what a session sets when Next may have events or an error. Set must not block, and must
// not call the connection.
type Waker = session.Waker

// Follow makes the session set flag, and no longer end Wait. What happened before Follow does not
// set flag, so the caller must call Next once after Follow. A signal.Runner needs no goroutine
// while nothing happens.
func (c *Connection) Follow(flag Waker) { c.reader.Follow(flag) }

// Stored records that the client has stored a message from this stream, and so everything before
// it.
func (c *Connection) Stored(chat tidemark.ChatID, acked tidemark.Sequence) {
	c.reader.Stored(chat, acked)
}

// Detach records that the connection has closed. The session waits for another one during its
// resume window.
func (c *Connection) Detach() { c.reader.Detach() }

// Ack takes acknowledgements and reads. It does not wait for storage: they are buffered, and
// written as soon as Config.AckInterval has passed since the last write. One that is refused is
// counted and dropped (ADR-008 §3.1, fire-and-forget).
func (c *Connection) Ack(acks ...Ack) {
	for _, a := range acks {
		if c.server.present(a) != nil {
			c.server.receipts.Count.Beyond.Add(1)
			continue
		}
		c.server.receipts.Add(c.reader.Session(), a.Chat, a.Acked, a.Read)
		//rule:ack_fire_and_forget.stored-by-the-stream
		if a.Acked > 0 {
			c.Stored(a.Chat, a.Acked)
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

// SendConfirmed is SendAll for a client that wants confirmations in place of the events of its own
// messages. requests has the request id of each draft, or "".
//
// taken says for which drafts Next returns the confirmation. The caller answers the others. A
// confirmation with an ID is the event of the message. Without one, the message has an event of its
// own, perhaps later.
func (c *Connection) SendConfirmed(
	ctx context.Context, drafts []tidemark.Draft, requests []string,
) (results []Sent, taken []bool) {
	c.reader.Sending(drafts)
	results = c.SendAll(ctx, drafts)
	confirmations := make([]session.Confirmation, len(results))
	for i, result := range results {
		// A relation has an event of its own: another message may have changed, which the client
		// does not know. Reactions and pins do as edits do, so that a client has one way. So does a
		// message that is not stored as it was sent.
		//rule:asked_before_stored.show-what-replaced
		if result.Err == nil && result.Message.Relation == nil &&
			result.Message.Content == drafts[i].Content &&
			bytes.Equal(result.Message.Metadata, drafts[i].Metadata) {
			payload := tidemark.Confirmation{Message: &result.Message, Duplicate: result.Duplicate}
			confirmations[i] = session.Confirmation{
				Sequence: result.Message.Sequence,
				Event: tidemark.Event{
					Type:      tidemark.EventConfirmation,
					RequestID: requests[i],
					Payload:   payload.AppendJSON(nil),
				},
			}
		}
	}
	return results, c.reader.Sent(drafts, confirmations)
}

// Sync is Server.Sync for the session's user.
func (c *Connection) Sync(ctx context.Context, r SyncRequest) (SyncResponse, error) {
	return c.server.Sync(ctx, c.user(), r)
}

// Typing is Server.Typing for the session's user. It drops errors, because a notice may be lost.
func (c *Connection) Typing(ctx context.Context, chat tidemark.ChatID) {
	_ = c.server.Typing(ctx, c.user(), chat)
}

// Close ends the session because the client said goodbye. It writes buffered acknowledgements,
// marks what is not acknowledged, and releases the lease. If the connection was replaced, Close
// only detaches it.
func (c *Connection) Close(ctx context.Context) error {
	c.Detach()
	//rule:pending_once.flush-at-goodbye
	c.server.receipts.Flush(ctx)
	_, err := c.server.sessions.Close(ctx, c.reader.Ending())
	return err
}
