package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/sessions"
)

// SessionInfo is a session of a user.
type SessionInfo struct {
	Session tidemark.SessionID
	// Node has the session.
	Node tidemark.NodeID
	// Device is "" if the client named none.
	Device tidemark.DeviceID
}

// Sessions returns the user's sessions on all nodes, ordered by device and id. A session stays in
// the list for Config.ResumeWindow after its connection has ended. The one of a node that was
// killed stays for Config.LeaseTTL.
//
// Error: Unavailable if the registry does not answer.
func (s *Server) Sessions(
	ctx context.Context, user tidemark.UserID,
) ([]SessionInfo, error) {
	leases, certain := s.leases.Lookup(ctx, []tidemark.UserID{user})
	if !certain {
		return nil, sessions.ErrUncertain
	}
	list := make([]SessionInfo, len(leases[0]))
	for i, lease := range leases[0] {
		list[i] = SessionInfo{
			Session: lease.Session, Node: lease.Node, Device: lease.Device,
		}
		if string(lease.Device) == string(lease.Session) {
			list[i].Device = ""
		}
	}
	slices.SortFunc(list, func(a, b SessionInfo) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Session, b.Session))
	})
	return list, nil
}

// EndSession ends one of the user's sessions, on whatever node it is. What its device has not
// acknowledged gets pending rows, and its connection ends with Replaced. It does nothing if the
// user has no such session.
//
// Error: Unavailable if the session may still be there. Repeat the call.
func (s *Server) EndSession(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID,
) error {
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	//rule:sessions_end_when_told.end-on-any-node
	if err := s.sessions.End(ctx, user, id); tidemark.CodeOf(err) != tidemark.Gone {
		return err
	}
	return nil
}

// endAtOnce is how many sessions of a user are ended at a time.
const endAtOnce = 32

// EndSessions ends all of the user's sessions but one. except is "" if all are to end. The error is
// that of EndSession: a session that cannot be reached does not keep the others.
func (s *Server) EndSessions(
	ctx context.Context, user tidemark.UserID, except tidemark.SessionID,
) error {
	list, err := s.Sessions(ctx, user)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(info SessionInfo) bool { return info.Session == except })
	failed := make([]error, len(list))
	var ending sync.WaitGroup
	for first := 0; first < len(list); first += endAtOnce {
		for i := first; i < min(first+endAtOnce, len(list)); i++ {
			//rule:sessions_end_when_told.end-beside-unreachable-ones
			ending.Go(func() { failed[i] = s.EndSession(ctx, user, list[i].Session) })
		}
		ending.Wait()
	}
	return errors.Join(failed...)
}
