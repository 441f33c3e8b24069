package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// claimWithin is how long a node waits for the one that has a session, altogether; claimSteps how often it follows one that has moved on.
const (
	claimWithin = time.Second
	claimSteps  = 3
)

// A session's id begins with nodeTag characters that name the node of its birth.
const (
	nodeTag   = 4
	sessionID = 22
)

// newSessionID returns an id that names the node.
func newSessionID(n registry.Node) tidemark.SessionID {
	var b [14]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return tidemark.SessionID(tagOf(n) + base64.RawURLEncoding.EncodeToString(b[:])[:sessionID-nodeTag])
}

// tagOf is how a node is named in the ids of its sessions.
func tagOf(n registry.Node) string {
	sum := sha256.Sum256([]byte(string(n.ID) + "\x00" + n.Boot))
	return base64.RawURLEncoding.EncodeToString(sum[:3])
}

// fetch lets a session that another node has go on here, and returns it; nil if nobody has it, or nobody answers in time. The lease is taken first: what is handed
// over from then on arrives here, and what arrives at the other node after it has given the session is marked, and finds this lease
// (R_ADDR, R_RELOOK).
func (s *Server) fetch(ctx context.Context, r OpenRequest) *session.Session {
	owner, device, found := s.owner(ctx, r.User, r.Session)
	if !found {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimWithin) // a session that was given is not given again
	defer cancel()
	s.count.claims.Add(1)
	defer func(began time.Time) { s.count.claimTime.Add(time.Since(began).Microseconds()) }(time.Now())
	sess := s.share.Arriving(registry.Lease{User: r.User, Device: device, Node: s.node.ID, Boot: s.node.Boot, Session: r.Session})
	if !s.sessions.Add(sess, s.cfg.SessionsPerUser) {
		return nil
	}
	epoch, err := s.registry.Epoch(ctx)
	var opened registry.Opened
	if err == nil {
		opened, err = s.registry.Open(ctx, sess.Lease, s.cfg.LeaseTTL)
	}
	if err != nil {
		s.registryFailed("a session does not move, since it has no lease", err)
	} else if state := s.claim(ctx, bus.Claim{Session: r.Session, User: r.User}, owner); state != nil && sess.Take(state, opened.Moved, epoch) {
		s.count.claimed.Add(1)
		return sess
	}
	s.count.claimsFailed.Add(1)
	if _, err := s.closeSessions(ctx, []session.Ending{sess.Ending()}); err != nil {
		s.log.Warn("a session that did not arrive was not closed cleanly", "session", sess.ID, "error", err)
	}
	return nil
}

// owner returns the node that has a session, and its device: by its lease, or, if the registry has forgotten that, by its name.
func (s *Server) owner(ctx context.Context, user tidemark.UserID, id tidemark.SessionID) (registry.Node, tidemark.DeviceID, bool) {
	for _, leases := range s.find(ctx, []tidemark.UserID{user}) {
		for _, lease := range leases {
			if lease.Session == id {
				return registry.Node{ID: lease.Node, Boot: lease.Boot}, lease.Device, lease.Node != s.node.ID || lease.Boot != s.node.Boot
			}
		}
	}
	for _, n := range s.pulse.Nodes() {
		if n != s.node && len(id) == sessionID && tagOf(n) == string(id[:nodeTag]) {
			return n, tidemark.DeviceID(id), true
		}
	}
	return registry.Node{}, "", false
}

// claim asks a node about a session, and whoever it says has it now. It returns the State of the answer, nil if nobody has the session.
func (s *Server) claim(ctx context.Context, question bus.Claim, owner registry.Node) []byte {
	for range claimSteps {
		answer := s.moves.Ask(ctx, owner, question)
		if answer == nil || answer.State != nil || answer.Moved == nil || *answer.Moved == s.node {
			if answer == nil {
				return nil
			}
			return answer.State
		}
		owner = *answer.Moved
	}
	return nil
}

// goToOn sets the positions of a session that another node has, and reports whether it did.
func (s *Server) goToOn(ctx context.Context, owner registry.Node, user tidemark.UserID, id tidemark.SessionID, to session.GoingTo) bool {
	text, err := json.Marshal(to)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	return s.claim(ctx, bus.Claim{Session: id, User: user, GoTo: text}, owner) != nil
}

// answer does what another node asks.
func (s *Server) answer(c *bus.Claim) bus.Claimed {
	var answer bus.Claimed
	sess := s.sessions.Get(c.Session)
	switch {
	case sess == nil:
	case c.GoTo != nil:
		var to session.GoingTo
		if sess.User == c.User && json.Unmarshal(c.GoTo, &to) == nil && sess.GoTo(to) {
			answer.State = c.GoTo
			return answer
		}
	default:
		if answer.State = sess.Give(c.User); answer.State != nil {
			s.sessions.Remove(sess)
			s.count.given.Add(1)
			s.moves.Gave(c.Session, c.From)
			return answer
		}
	}
	answer.Moved = s.moves.Who(c.Session)
	return answer
}
