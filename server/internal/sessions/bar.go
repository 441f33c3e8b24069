package sessions

import (
	"context"

	"github.com/tidemark-im/tidemark/server/internal/session"
)

// Bar ends a session of this node, because its user may not use the server any more. Its client
// gets err. What is not acknowledged gets pending rows, so nothing is lost.
func (s *Sessions) Bar(ctx context.Context, sess *session.Session, err error) {
	if _, failed := s.Close(ctx, sess.Barring(err)); failed != nil {
		s.Log.Warn("a session of a user who may not use the server any more was ended, and "+
			"writing its pending rows failed; the node tries again",
			"session", sess.ID(), "error", failed)
	}
}
