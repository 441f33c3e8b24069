package server

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
)

// NodeFigures is what a node answered to Survey. Figures is nil if Err is set. ID and Boot name one
// life of a node.
type NodeFigures struct {
	ID      tidemark.NodeID
	Boot    string
	Figures []byte
	Err     error
}

// Survey asks all nodes for their figures, a text that the core does not read. own has those of
// this node. It returns one element for each node that has a lease, ordered by id, within a second.
// A node that does not answer has an Err, and is not left out.
func (s *Server) Survey(ctx context.Context, own []byte) []NodeFigures {
	answers := s.surveys.Ask(ctx, own)
	all := make([]NodeFigures, len(answers))
	for i, a := range answers {
		all[i] = NodeFigures{ID: a.Node.ID, Boot: a.Node.Boot, Figures: a.Figures, Err: a.Err}
	}
	return all
}

// Question is a question of another node for the figures of this one.
type Question struct{ survey bus.Survey }

// NextQuestion waits for the next question of another node. It returns the error of ctx when that
// ends. While nobody calls it, other nodes get no figures of this one.
func (s *Server) NextQuestion(ctx context.Context) (Question, error) {
	q, err := s.surveys.Next(ctx)
	return Question{q}, err
}

// AnswerQuestion sends the figures of this node to the one that asked. If that fails, the node that
// asked reports that this one did not answer.
func (s *Server) AnswerQuestion(ctx context.Context, q Question, figures []byte) error {
	return s.surveys.Answer(ctx, q.survey, figures)
}

// SlowSession is a session of this node whose client has left messages unacknowledged.
type SlowSession struct {
	Session tidemark.SessionID
	User    tidemark.UserID
	// Device is "" if the client named none.
	Device tidemark.DeviceID
	// Connected says that a connection reads the session.
	Connected bool
	// Chats is the number of chats with such messages, Messages that of the messages, and Unsent
	// that of the chats with messages that wait to be sent.
	Chats, Unsent int
	Messages      int64
	// Since is about when the first of these messages reached the session. It is up to Config.Grace
	// too early. A session that came from another node begins anew.
	Since time.Time
}

// SlowSessions returns the sessions of this node with the oldest unacknowledged messages, the
// oldest first, at most n. It visits all sessions of the node.
func (s *Server) SlowSessions(n int) []SlowSession {
	lagging := s.table.Slowest(n)
	list := make([]SlowSession, len(lagging))
	for i, l := range lagging {
		list[i] = SlowSession{
			Session: l.Lease.Session, User: l.Lease.User, Device: l.Lease.Device,
			Connected: l.Connected, Chats: l.Chats, Unsent: l.Unsent, Messages: l.Messages,
			Since: l.Since,
		}
		if string(l.Lease.Device) == string(l.Lease.Session) {
			list[i].Device = ""
		}
	}
	return list
}
