package receipts

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// maxStatuses bounds the members and chats in statuses. Beyond it an update is dropped; clients can
// still query the state.
const maxStatuses = 200_000

// statuses holds raised boundaries until they are published.
//
//	state     raised    published   pause is over
//	(none)    waiting   -           -
//	waiting   waiting   paused      -
//	paused    raised    -           (none)
//	raised    raised    -           waiting
//
// A boundary is published at once, and then at most once in Config.StatusInterval.
type statuses struct {
	flag signal.Flag

	mu      sync.Mutex
	entries map[statusKey]*status
	// waiting has the keys to publish now, and pauses the times when keys may be published again.
	waiting []statusKey
	pauses  []pause
}

// statusKey names a member of a chat. With an empty user it names the aggregate of all members.
type statusKey struct {
	chat tidemark.ChatID
	user tidemark.UserID
}

type status struct {
	boundary tidemark.Boundary
	state    statusState
}

type statusState uint8

const (
	waiting statusState = iota
	paused
	raised
)

type pause struct {
	over time.Time
	key  statusKey
}

func newStatuses() statuses {
	return statuses{flag: signal.New(), entries: make(map[statusKey]*status)}
}

// moved records that a user's watermarks rose. Two writes may be reported in the wrong order, so
// the highest known boundary is published.
func (r *Receipts) moved(st tidemark.DeliveryState) {
	r.statuses.mu.Lock()
	defer r.statuses.mu.Unlock()
	//rule:read_implies_delivered.push-exposed-boundary
	r.raiseLocked(statusKey{st.ChatID, st.UserID}, r.Watermarks.Raise(st).Exposed())
}

// Recompute makes StatusLoop read and publish the least boundary of a chat's members. If the chat
// has become small, it publishes the boundary of each.
func (r *Receipts) Recompute(chat tidemark.ChatID) {
	r.statuses.mu.Lock()
	defer r.statuses.mu.Unlock()
	r.raiseLocked(statusKey{chat: chat}, tidemark.Boundary{})
}

// raiseLocked records a boundary. The caller holds r.statuses.mu.
func (r *Receipts) raiseLocked(key statusKey, b tidemark.Boundary) {
	s := &r.statuses
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= maxStatuses {
			r.Count.UpdatesDropped.Add(1)
			return
		}
		e = &status{}
		s.entries[key] = e
		s.waiting = append(s.waiting, key)
		s.flag.Set()
	}
	//rule:tick_monotone.merge-pushed-boundary
	e.boundary = e.boundary.Merge(b)
	//rule:delivered_is_eventually_consistent.collect-statuses
	if e.state == paused {
		e.state = raised
	}
}

// due takes what has to be published now, by chat. next is when the next pause is over, or zero.
func (s *statuses) due(
	now time.Time, interval time.Duration,
) (due map[tidemark.ChatID][]tidemark.StatusUpdate, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.pauses) && !s.pauses[n].over.After(now) {
		key := s.pauses[n].key
		n++
		//rule:delivered_is_eventually_consistent.push-after-pause
		if e := s.entries[key]; e.state == raised {
			e.state = waiting
			s.waiting = append(s.waiting, key)
		} else {
			delete(s.entries, key)
		}
	}
	if n > 0 {
		s.pauses = append(s.pauses[:0], s.pauses[n:]...)
	}
	if len(s.waiting) > 0 {
		due = make(map[tidemark.ChatID][]tidemark.StatusUpdate)
	}
	for _, key := range s.waiting {
		e := s.entries[key]
		e.state = paused
		due[key.chat] = append(due[key.chat], tidemark.StatusUpdate{
			ChatID: key.chat, UserID: key.user, Boundary: e.boundary,
		})
		s.pauses = append(s.pauses, pause{over: now.Add(interval), key: key})
	}
	s.waiting = s.waiting[:0]
	if len(s.pauses) > 0 {
		next = s.pauses[0].over
	}
	return due, next
}

// StatusLoop publishes boundaries until ctx ends.
func (r *Receipts) StatusLoop(ctx context.Context) {
	var again uncertain
	for {
		due, next := r.statuses.due(time.Now(), r.StatusInterval)
		if !r.publish(ctx, due, false) {
			//rule:tick_monotone.retry-untold-statuses
			again.add(due, time.Now())
		}
		if later := again.due(time.Now()); len(later) > 0 && r.publish(ctx, later, true) {
			again.clear()
		}
		if _, ok := r.statuses.flag.WaitUntil(ctx, again.next(next)); !ok {
			return
		}
	}
}

// publish publishes boundaries, by chat. If the leases of members are unknown, certain is false.
// Then it sent nothing if onlyCertain, else it told the sessions of this node.
func (r *Receipts) publish(
	ctx context.Context, due map[tidemark.ChatID][]tidemark.StatusUpdate, onlyCertain bool,
) (certain bool) {
	var all []delivery.Announcement
	for _, chat := range slices.Sorted(maps.Keys(due)) {
		a, updates, err := r.announce(ctx, chat, due[chat])
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("status updates were not published; clients get the state when they ask "+
				"for it", "chat", chat, "error", err)
		}
		if updates > 0 {
			r.Count.Updates.Add(int64(updates))
			all = append(all, a)
		}
	}
	return len(all) == 0 || r.Delivery.Publish(ctx, all, onlyCertain)
}

// announce returns the announcement for a chat's members, and the number of its updates. In a chat
// above tidemark.StatusFanoutLimit, updates of members become one update of the chat. Its least
// boundary is then read once for all of them. If that was asked for and the chat has become small
// meanwhile, the boundaries of all members are read: those that rose before were not published.
func (r *Receipts) announce(
	ctx context.Context, chat tidemark.ChatID, updates []tidemark.StatusUpdate,
) (delivery.Announcement, int, error) {
	roster, err := r.Chats.Roster(ctx, chat, 0)
	if err != nil {
		return delivery.Announcement{}, 0, err
	}
	aggregate := func(u tidemark.StatusUpdate) bool { return u.UserID == "" }
	switch asked := slices.ContainsFunc(updates, aggregate); {
	//rule:group_delivered_requires_all_members.aggregate-for-large-chats
	case len(roster.Users) <= tidemark.StatusFanoutLimit:
		//rule:group_delivered_requires_all_members.each-member-after-shrinking
		if asked {
			keys := make([]storage.StateKey, len(roster.Users))
			for i, user := range roster.Users {
				keys[i] = storage.StateKey{User: user, Chat: chat}
			}
			states, err := r.Storage.States(ctx, keys)
			if err != nil {
				return delivery.Announcement{}, 0, err
			}
			updates = r.Watermarks.Statuses(states)
		}
	case !asked:
		r.Recompute(chat)
		return delivery.Announcement{}, 0, nil
	default:
		sum, err := r.Storage.Summary(ctx, chat, 0, "")
		if err != nil {
			return delivery.Announcement{}, 0, err
		}
		updates = []tidemark.StatusUpdate{{ChatID: chat, Boundary: sum.Least}}
	}
	event := bus.Event{Status: &bus.Status{Updates: updates, Version: roster.Version}}
	return delivery.Announcement{To: roster.Users, Event: event}, len(updates), nil
}

// Receive passes updates to the sessions that hold the leases. It skips users who are known to have
// left the chat.
func (r *Receipts) Receive(to []registry.Lease, e *bus.Status) {
	chat := r.Chats.Chat(e.Updates[0].ChatID)
	// The session decides by the roster whether it sends the boundaries of members or an aggregate.
	//rule:group_delivered_requires_all_members.outdate-roster-on-status
	chat.Invalidate(e.Version)
	for _, u := range e.Updates {
		if u.UserID != "" {
			//rule:tick_monotone.remember-status-from-nodes
			r.Watermarks.Announce(u)
		}
	}
	for _, s := range r.Sessions.Held(nil, to) {
		if s == nil {
			continue
		}
		mayKnow := func() bool {
			member, certain := chat.MayKnow(s.User(), e.Version)
			return member && certain
		}
		member, _ := chat.MayKnow(s.User(), e.Version)
		if member && !s.Raised(e.Updates, mayKnow) {
			s.RefreshStatuses(chat.ID) // the session reads them only for a member
		}
	}
}
