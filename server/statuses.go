package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
)

// statuses pushes boundaries that moved: at once if nothing was pushed for the member and chat within Config.StatusInterval, else when it is over,
// the highest of what came meanwhile. It is safe for concurrent use.
type statuses struct {
	server *Server
	signal chan struct{}

	mu      sync.Mutex
	entries map[statusKey]*statusEntry
	ready   []statusKey
	cooling []cooling
}

// statusEntry is a boundary on its way out, or one that was pushed a moment ago.
type statusEntry struct {
	boundary tidemark.Boundary
	dirty    bool
	cooling  bool
}

type cooling struct {
	due time.Time
	key statusKey
}

// maxStatusEntries bounds the members and chats under way. Beyond it a push is dropped: it is a hint, and the query is the arbiter.
const maxStatusEntries = 200_000

func newStatuses(s *Server) *statuses {
	return &statuses{server: s, signal: make(chan struct{}, 1), entries: make(map[statusKey]*statusEntry)}
}

// moved takes in that a user's watermarks moved. The news of two writes may come in the wrong order: what is pushed is the highest that is known.
func (t *statuses) moved(st tidemark.DeliveryState) {
	t.mu.Lock()
	t.pushLocked(statusKey{st.ChatID, st.UserID}, t.server.known.raise(st).Exposed())
	t.mu.Unlock()
}

// recompute orders the least boundary of a chat's members to be read and pushed.
func (t *statuses) recompute(chat tidemark.ChatID) {
	t.mu.Lock()
	t.pushLocked(statusKey{chat: chat}, tidemark.Boundary{})
	t.mu.Unlock()
}

func (t *statuses) pushLocked(key statusKey, b tidemark.Boundary) {
	e := t.entries[key]
	if e == nil {
		if len(t.entries) >= maxStatusEntries {
			return
		}
		e = &statusEntry{}
		t.entries[key] = e
	}
	e.boundary = e.boundary.Merge(b)
	first := !e.dirty && !e.cooling
	e.dirty = true
	if first {
		t.ready = append(t.ready, key)
		signal(t.signal)
	}
}

// loop pushes until ctx ends.
func (t *statuses) loop(ctx context.Context) {
	for {
		due, next := t.due(time.Now())
		for chat, updates := range due {
			if err := t.publish(ctx, chat, updates); err != nil && ctx.Err() == nil {
				t.server.log.Warn("status updates were not pushed", "chat", chat, "error", err)
			}
		}
		if !wait(ctx, t.signal, next, next > 0) {
			return
		}
	}
}

// due takes what is to be pushed now, by chat, and says how long it is until an entry has cooled down; 0 if there is none.
func (t *statuses) due(now time.Time) (due map[tidemark.ChatID][]tidemark.StatusUpdate, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n < len(t.cooling) && !t.cooling[n].due.After(now) {
		key := t.cooling[n].key
		n++
		e := t.entries[key]
		e.cooling = false
		if e.dirty {
			t.ready = append(t.ready, key)
		} else {
			delete(t.entries, key)
		}
	}
	if n > 0 {
		t.cooling = append(t.cooling[:0], t.cooling[n:]...)
	}
	if len(t.ready) > 0 {
		due = make(map[tidemark.ChatID][]tidemark.StatusUpdate)
	}
	for _, key := range t.ready {
		e := t.entries[key]
		e.dirty, e.cooling = false, true
		due[key.chat] = append(due[key.chat], tidemark.StatusUpdate{ChatID: key.chat, UserID: key.user, Boundary: e.boundary})
		t.cooling = append(t.cooling, cooling{due: now.Add(t.server.cfg.StatusInterval), key: key})
	}
	t.ready = t.ready[:0]
	if len(t.cooling) > 0 {
		next = max(t.cooling[0].due.Sub(now), time.Millisecond)
	}
	return due, next
}

// publish tells the members of a chat. In a chat above tidemark.StatusFanoutLimit the members' updates become one entry of the chat
// itself, so that the least boundary is computed once for all of them.
func (t *statuses) publish(ctx context.Context, chat tidemark.ChatID, updates []tidemark.StatusUpdate) error {
	s := t.server
	p, err := s.people(ctx, s.hot.get(chat), 0)
	if err != nil {
		return err
	}
	if len(p.users) > tidemark.StatusFanoutLimit {
		if !slices.ContainsFunc(updates, func(u tidemark.StatusUpdate) bool { return u.UserID == "" }) {
			t.recompute(chat)
			return nil
		}
		sum, err := s.storage.Summary(ctx, chat, 0)
		if err != nil {
			return err
		}
		updates = []tidemark.StatusUpdate{{ChatID: chat, Boundary: sum.Least}}
	}
	s.count.statuses.Add(int64(len(updates)))
	for _, to := range byNode(s.lookup(ctx, p.users)) {
		event := bus.Status{Updates: updates, Version: p.Version, Leases: to.leases}
		if err := s.bus.Publish(ctx, to.node, bus.Event{Status: &event}); err != nil {
			s.count.busErrors.Add(1)
		}
	}
	return nil
}

// receiveStatus hands updates to the sessions, except to those whose user is known to have left since.
func (s *Server) receiveStatus(e *bus.Status) {
	var few [8]*Session
	for _, sess := range s.sessions.held(few[:0], e.Leases) {
		if sess == nil {
			continue
		}
		if p := s.hot.get(e.Updates[0].ChatID).people.Load(); p != nil && p.Version > e.Version {
			if _, ok := p.Member(sess.user); !ok {
				continue
			}
		}
		sess.status(e.Updates)
	}
}
