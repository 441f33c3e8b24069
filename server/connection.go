package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

// Connection is one connection's hold on a session. A newer connection of the session fences it off.
// Next belongs to one goroutine; the other methods may be called concurrently with it and with each other.
//
// Beside the methods here it has those of the session: Next, Wait and Detach.
type Connection struct {
	*session.Reader
	server *Server
	user   tidemark.UserID
}

// Session returns the id of the session.
func (c *Connection) Session() tidemark.SessionID { return c.Reader.Session().ID() }

// Ack takes acknowledgements and reads. It never blocks on storage: they are coalesced and written within Config.AckInterval. One that turns
// out to be wrong is counted and dropped (ADR-008 §3.1, fire-and-forget).
func (c *Connection) Ack(acks ...Ack) {
	for _, a := range acks {
		c.server.ticks.Add(c.user, a.Chat, a.Acked, a.Read)
		//rule:ack_fire_and_forget.confirm-on-the-stream
		if a.Acked > 0 {
			c.Confirm(a.Chat, a.Acked)
		}
	}
}

// Send is Server.Send for the session's user.
func (c *Connection) Send(ctx context.Context, r SendRequest) (Sent, error) {
	return c.server.Send(ctx, c.user, r)
}

// SendAll is Server.SendAll for the session's user.
func (c *Connection) SendAll(ctx context.Context, requests []SendRequest) []SendResult {
	return c.server.SendAll(ctx, c.user, requests)
}

// Sync is Server.Sync for the session's user.
func (c *Connection) Sync(ctx context.Context, r SyncRequest) (SyncResponse, error) {
	return c.server.Sync(ctx, c.user, r)
}

// Typing tells the other members' sessions that the session's user is typing. Errors are dropped, as the notice may be.
func (c *Connection) Typing(ctx context.Context, chat tidemark.ChatID) {
	c.server.typing(ctx, c.user, chat)
}

// Close ends the session at once, because its client said goodbye: acknowledgements that wait are written, what is unacknowledged is marked, and the lease
// is released. It only detaches if the connection was replaced.
func (c *Connection) Close(ctx context.Context) error {
	c.Detach()
	//rule:pending_once.flush-at-goodbye
	c.server.ticks.Flush(ctx)
	_, err := c.server.closeSessions(ctx, []session.Ending{c.Ending()})
	return err
}
