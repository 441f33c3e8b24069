package ticks

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// statuses is the boundaries that moved: pushed at once if nothing was pushed for the member and chat within Config.StatusInterval, else when it is over,
// the highest of what came meanwhile.
type statuses struct {
	signal chan struct{}

	mu      sync.Mutex
	entries map[statusKey]*statusEntry
	ready   []statusKey
	cooling []cooling
}

// statusKey names a member of a chat, or, with an empty user, all of them.
type statusKey struct {
	chat tidemark.ChatID
	user tidemark.UserID
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

// moved takes in that a user's watermarks moved. The news of two writes may come in the wrong order: what is pushed is the highest that is known.
func (t *Ticks) moved(st tidemark.DeliveryState) {
	t.statuses.mu.Lock()
	defer t.statuses.mu.Unlock()
	//rule:read_implies_delivered.push-exposed-boundary
	t.pushLocked(statusKey{st.ChatID, st.UserID}, t.cfg.Known.Raise(st).Exposed())
}

// Recompute orders the least boundary of a chat's members to be read and pushed.
func (t *Ticks) Recompute(chat tidemark.ChatID) {
	t.statuses.mu.Lock()
	defer t.statuses.mu.Unlock()
	t.pushLocked(statusKey{chat: chat}, tidemark.Boundary{})
}

// pushLocked takes on a boundary. The caller holds the lock of the statuses.
func (t *Ticks) pushLocked(key statusKey, b tidemark.Boundary) {
	s := &t.statuses
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= maxStatusEntries {
			t.Count.UpdatesDropped.Add(1)
			return
		}
		e = &statusEntry{}
		s.entries[key] = e
	}
	//rule:tick_monotone.merge-pushed-boundary
	e.boundary = e.boundary.Merge(b)
	//rule:delivered_is_eventually_consistent.collect-statuses
	if !e.dirty && !e.cooling {
		s.ready = append(s.ready, key)
		signal(s.signal)
	}
	e.dirty = true
}

// StatusLoop pushes until ctx ends.
func (t *Ticks) StatusLoop(ctx context.Context) {
	var untold untold
	for {
		due, next := t.statuses.due(time.Now(), t.cfg.StatusInterval)
		if !t.tell(ctx, due, false) {
			//rule:tick_monotone.retry-untold-statuses
			untold.add(due, time.Now())
		}
		if later := untold.due(time.Now()); len(later) > 0 && t.tell(ctx, later, true) {
			untold.clear()
		}
		next = untold.next(next, time.Now())
		if !wait(ctx, t.statuses.signal, next, next > 0) {
			return
		}
	}
}

// tell pushes boundaries, by chat. It reports false if some of those who have to know are not known. With again only others than those on this node are to be told: nobody is, if that is so.
func (t *Ticks) tell(ctx context.Context, due map[tidemark.ChatID][]tidemark.StatusUpdate, again bool) bool {
	var pushes []Push
	for _, chat := range slices.Sorted(maps.Keys(due)) {
		push, err := t.push(ctx, chat, due[chat])
		if err != nil && ctx.Err() == nil {
			t.cfg.Log.Warn("status updates were not pushed", "chat", chat, "error", err)
		}
		if len(push.Updates) > 0 {
			t.Count.Updates.Add(int64(len(push.Updates)))
			pushes = append(pushes, push)
		}
	}
	return len(pushes) == 0 || t.cfg.Publish(ctx, pushes, again)
}

// due takes what is to be pushed now, by chat, and says how long it is until an entry has cooled down; 0 if there is none.
func (s *statuses) due(now time.Time, interval time.Duration) (due map[tidemark.ChatID][]tidemark.StatusUpdate, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.cooling) && !s.cooling[n].due.After(now) {
		key := s.cooling[n].key
		n++
		e := s.entries[key]
		e.cooling = false
		//rule:delivered_is_eventually_consistent.push-after-pause
		if e.dirty {
			s.ready = append(s.ready, key)
		} else {
			delete(s.entries, key)
		}
	}
	if n > 0 {
		s.cooling = append(s.cooling[:0], s.cooling[n:]...)
	}
	if len(s.ready) > 0 {
		due = make(map[tidemark.ChatID][]tidemark.StatusUpdate)
	}
	for _, key := range s.ready {
		e := s.entries[key]
		e.dirty, e.cooling = false, true
		due[key.chat] = append(due[key.chat], tidemark.StatusUpdate{ChatID: key.chat, UserID: key.user, Boundary: e.boundary})
		s.cooling = append(s.cooling, cooling{due: now.Add(interval), key: key})
	}
	s.ready = s.ready[:0]
	if len(s.cooling) > 0 {
		next = max(s.cooling[0].due.Sub(now), time.Millisecond)
	}
	return due, next
}

// push says what the members of a chat are told. In a chat above tidemark.StatusFanoutLimit the members' updates become one entry of the chat
// itself, so that the least boundary is computed once for all of them.
func (t *Ticks) push(ctx context.Context, chat tidemark.ChatID, updates []tidemark.StatusUpdate) (Push, error) {
	p, err := t.cfg.Feed.People(ctx, chat, 0)
	if err != nil {
		return Push{}, err
	}
	aggregate := func(u tidemark.StatusUpdate) bool { return u.UserID == "" }
	switch asked := slices.ContainsFunc(updates, aggregate); {
	//rule:group_delivered_requires_all_members.aggregate-for-large-chats
	case len(p.Users) <= tidemark.StatusFanoutLimit:
		return Push{p, slices.DeleteFunc(updates, aggregate)}, nil
	case !asked:
		t.Recompute(chat)
		return Push{}, nil
	}
	sum, err := t.cfg.Storage.Summary(ctx, chat, 0)
	if err != nil {
		return Push{}, err
	}
	return Push{p, []tidemark.StatusUpdate{{ChatID: chat, Boundary: sum.Least}}}, nil
}
