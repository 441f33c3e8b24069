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
	"github.com/tidemark-im/tidemark/server/internal/chat"
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
//	(none)    raised    -           -            an aggregate, which is collecting
//	(none)    waiting   -           -
//	waiting   waiting   paused      -
//	paused    raised    -           (none)
//	raised    raised    -           waiting
//
// A boundary of a member is published at once, and then at most once in an interval. The interval
// grows with the members of the chat, because each update goes to each of them (pauseOf).
type statuses struct {
	flag signal.Flag

	mu      sync.Mutex
	entries map[statusKey]*status
	// waiting has the keys to publish now, and pauses the times when keys may be published again.
	waiting []statusKey
	pauses  [levels][]pause
}

// statusKey names what is published of a chat.
type statusKey struct {
	chat tidemark.ChatID
	// user is a member, or empty for the aggregate of all members.
	user tidemark.UserID
	to   audience
}

// audience says who gets what is published.
type audience uint8

const (
	toMembers audience = iota // the boundary of the user, or the aggregate
	toUser                    // the user's own sessions, which read the own state
)

type status struct {
	// boundary is what members get.
	boundary tidemark.Boundary
	// by is the only session that changed the own state since it was published, or empty. It knows
	// the change.
	by    tidemark.SessionID
	state statusState
	// level gives the length of the pause.
	level level
	// raised is when the aggregate may last have risen.
	raised time.Time
}

// level is a length of the pause between two updates: 1 to aggregateLevel-1 are multiples of
// Config.StatusInterval, aggregateLevel stands for the interval of Config.Least.
type level uint8

const (
	membersPerLevel       = 5
	aggregateLevel  level = 11
	levels                = aggregateLevel + 1
	// collecting stands for aggregates that wait for the first time, a fifth of their interval and
	// at most mostCollecting. Many members acknowledge a message in that time, and one read has
	// them all.
	collecting     level = 0
	mostCollecting       = 250 * time.Millisecond
)

// levelOf returns the level of the updates about each member of a chat.
func levelOf(members int) level {
	n := (members + membersPerLevel - 1) / membersPerLevel
	//rule:bounded_use.pause-grows-with-members
	return level(min(max(n, 1), int(aggregateLevel)-1))
}

// pauseOf returns how long a level pauses. It is at most the interval of aggregates, unless
// Config.StatusInterval is longer.
func (r *Receipts) pauseOf(l level) time.Duration {
	aggregates := max(r.Least.Interval(), r.StatusInterval)
	switch l {
	case collecting:
		return min(aggregates/5, mostCollecting)
	case aggregateLevel:
		return aggregates
	}
	return min(time.Duration(l)*r.StatusInterval, aggregates)
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

// known are the watermarks of a user that this node knew before a write, or 0: all, and what others
// see of them.
type known struct{ own, shown tidemark.Boundary }

// crossed returns the watermarks from which a raise moves others' ticks. after is the state after
// it. What is shown again has all been hidden since shown. What is hidden moves no tick.
func (k known) crossed(after tidemark.DeliveryState) tidemark.Boundary {
	b := k.own
	//rule:shown_within_real.tell-what-is-shown-again
	b.Read = k.shown.Read
	//rule:shown_within_real.hidden-read-crosses-nothing
	if after.HiddenFrom != 0 {
		b.Read = after.Read
	}
	return b
}

// moved records that a raise by a session moved a user's watermarks. Two writes may be reported in
// the wrong order, so boundary is the highest known one. A chat whose members are unknown may be
// large. Others are told nothing of a raise that they do not see, not even that there was one.
func (r *Receipts) moved(
	a *storage.Advance, done storage.Advanced, known known, boundary tidemark.Boundary,
	by tidemark.SessionID,
) {
	st := done.State
	before := known.crossed(st)
	r.statuses.mu.Lock()
	defer r.statuses.mu.Unlock()
	switch members := r.Chats.Known(st.ChatID); {
	//rule:shown_within_real.no-event-of-what-is-hidden
	case !done.Shown:
	//rule:published_if_a_tick_changes.aggregate-has-authors
	case members > r.StatusFanout:
		r.raiseLocked(statusKey{chat: st.ChatID}, aggregateLevel, tidemark.Boundary{}, "")
	case members > 0 && ownRun(a, before):
		// The chat may have grown large, and this node does not know it yet.
		r.Chats.Chat(st.ChatID).LeaveOut()
		if r.Chats.Known(st.ChatID) == members {
			break
		}
		// It learned of a change at this moment, and perhaps took the mark before it was set.
		fallthrough
	default:
		r.raiseLocked(statusKey{chat: st.ChatID, user: st.UserID}, levelOf(members), boundary, "")
	}
	if ownChanged(a, done, known.own.Read) {
		r.raiseLocked(statusKey{st.ChatID, st.UserID, toUser}, 1, tidemark.Boundary{}, by)
	}
}

// ownRun reports whether a raise crosses only messages that its user sent, so that it changes no
// tick. before is a lower bound of the watermarks before the write. If this node does not know that
// they had reached the run, an earlier raise may be stored whose answer was lost, so that nobody
// was told.
func ownRun(a *storage.Advance, before tidemark.Boundary) bool {
	//rule:published_if_a_tick_changes.read-of-others
	reads := a.Read > before.Read && before.Read+1 < a.AckedFrom
	//rule:published_if_a_tick_changes.lost-answer
	acks := before.Acked+1 < a.AckedFrom
	return a.AckedFrom > 0 && !reads && !acks
}

// ownChanged reports whether a raise may have changed what is unread for its user. read is the
// read watermark that is known from before, or 0. What a user sends was never unread for them.
func ownChanged(a *storage.Advance, done storage.Advanced, read tidemark.Sequence) bool {
	switch {
	case done.Unmarked:
		//rule:own_state_reaches_devices.mark-ended
		return true
	case a.Read == 0, done.State.Read > a.Read, done.State.Read <= read:
		return false
	default:
		//rule:own_state_reaches_devices.read-of-others
		return a.AckedFrom == 0 || a.AckedFrom > read+1
	}
}

// OwnChanged makes StatusLoop notify the user's sessions that their own state in a chat changed.
func (r *Receipts) OwnChanged(user tidemark.UserID, chat tidemark.ChatID) {
	r.statuses.mu.Lock()
	defer r.statuses.mu.Unlock()
	r.raiseLocked(statusKey{chat, user, toUser}, 1, tidemark.Boundary{}, "")
}

// Recompute makes StatusLoop read and publish the least boundary of a chat's members. If the chat
// has become small, it publishes the boundary of each.
func (r *Receipts) Recompute(chat tidemark.ChatID) {
	r.statuses.mu.Lock()
	defer r.statuses.mu.Unlock()
	r.raiseLocked(statusKey{chat: chat}, aggregateLevel, tidemark.Boundary{}, "")
}

// raiseLocked records a boundary, or a change of the own state by a session. The caller holds
// r.statuses.mu.
func (r *Receipts) raiseLocked(
	key statusKey, l level, b tidemark.Boundary, by tidemark.SessionID,
) {
	s := &r.statuses
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= maxStatuses {
			r.Count.UpdatesDropped.Add(1)
			return
		}
		e = &status{by: by}
		s.entries[key] = e
		//rule:least_is_shared.collect-acknowledgements
		if l == aggregateLevel {
			e.state = raised
			s.pauses[collecting] = append(s.pauses[collecting],
				pause{over: time.Now().Add(r.pauseOf(collecting)), key: key})
		} else {
			s.waiting = append(s.waiting, key)
		}
		s.flag.Set()
	}
	if e.level = l; l == aggregateLevel {
		e.raised = time.Now()
	}
	//rule:tick_monotone.merge-pushed-boundary
	e.boundary = e.boundary.Merge(b)
	//rule:delivered_is_eventually_consistent.collect-statuses
	if e.state == paused {
		e.state, e.by = raised, by
	}
	//rule:own_state_reaches_devices.two-sessions-know-half
	if e.by != by {
		e.by = ""
	}
}

// news is what has to be published.
type news struct {
	// updates has the boundaries, by chat.
	updates map[tidemark.ChatID][]tidemark.StatusUpdate
	// raised has the times after which aggregates have to be read.
	raised map[tidemark.ChatID]time.Time
	// own has the changed own states.
	own []ownNews
}

// ownNews says that a user's own state in a chat changed, by one session or by others.
type ownNews struct {
	storage.StateKey
	by tidemark.SessionID
}

func (n *news) none() bool { return len(n.updates) == 0 && len(n.own) == 0 }

// add adds what a key names.
func (n *news) add(key statusKey, e status) {
	if key.to == toUser {
		about := storage.StateKey{User: key.user, Chat: key.chat}
		n.own = append(n.own, ownNews{about, e.by})
		return
	}
	if n.updates == nil {
		n.updates = make(map[tidemark.ChatID][]tidemark.StatusUpdate)
	}
	if key.user == "" {
		if n.raised == nil {
			n.raised = make(map[tidemark.ChatID]time.Time)
		}
		n.raised[key.chat] = e.raised
	}
	n.updates[key.chat] = append(n.updates[key.chat], tidemark.StatusUpdate{
		ChatID: key.chat, UserID: key.user, Boundary: e.boundary,
	})
}

// due takes what has to be published now. next is when the next pause is over, or zero.
func (s *statuses) due(
	now time.Time, pauseOf func(level) time.Duration,
) (due news, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l, pauses := range s.pauses {
		n := 0
		for n < len(pauses) && !pauses[n].over.After(now) {
			key := pauses[n].key
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
			s.pauses[l] = append(pauses[:0], pauses[n:]...)
		}
	}
	for _, key := range s.waiting {
		e := s.entries[key]
		e.state = paused
		due.add(key, *e)
		s.pauses[e.level] = append(s.pauses[e.level],
			pause{over: now.Add(pauseOf(e.level)), key: key})
	}
	s.waiting = s.waiting[:0]
	for _, pauses := range s.pauses {
		if len(pauses) > 0 && (next.IsZero() || pauses[0].over.Before(next)) {
			next = pauses[0].over
		}
	}
	return due, next
}

// StatusLoop publishes boundaries until ctx ends.
func (r *Receipts) StatusLoop(ctx context.Context) {
	var again uncertain
	for {
		due, next := r.statuses.due(time.Now(), r.pauseOf)
		if !r.publish(ctx, due, false) {
			//rule:tick_monotone.retry-untold-statuses
			again.add(due, time.Now())
		}
		if later := again.due(time.Now()); !later.none() && r.publish(ctx, later, true) {
			again.clear()
		}
		if _, ok := r.statuses.flag.WaitUntil(ctx, again.next(next)); !ok {
			return
		}
	}
}

// aggregate is the least boundary of a chat's members at a version.
type aggregate struct {
	version     uint64
	acked, read tidemark.Sequence
}

// maxTold bounds the chats in Receipts.told. An aggregate beyond it is published again.
const maxTold = 10_000

// publish publishes boundaries and own states. If the leases of members are unknown, certain is
// false. Then it sent nothing if onlyCertain, else it told the sessions of this node.
func (r *Receipts) publish(ctx context.Context, due news, onlyCertain bool) (certain bool) {
	var all []delivery.Announcement
	for _, own := range due.own {
		r.Count.Own.Add(1)
		all = append(all, delivery.Announcement{
			To: []tidemark.UserID{own.User}, Except: own.by,
			Event: bus.Event{Own: &bus.Own{Chat: own.Chat}},
		})
	}
	for _, chat := range slices.Sorted(maps.Keys(due.updates)) {
		a, updates, err := r.announce(ctx, chat, due.updates[chat], due.raised[chat])
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("status updates were not published; they follow, or clients get the state "+
				"when they ask for it", "chat", chat, "error", err)
			r.raiseAgain(due.updates[chat], err)
		}
		if updates > 0 {
			r.Count.Updates.Add(int64(updates))
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return true
	}
	certain, failed := r.Delivery.Publish(ctx, all, onlyCertain)
	for i := range all {
		if status := all[i].Event.Status; certain && status != nil {
			r.published(status, failed[i])
		}
	}
	return certain
}

// raiseAgain raises boundaries of members that were not published, if that may succeed later.
func (r *Receipts) raiseAgain(updates []tidemark.StatusUpdate, err error) {
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		return
	}
	r.statuses.mu.Lock()
	defer r.statuses.mu.Unlock()
	for _, u := range updates {
		if u.UserID != "" {
			//rule:published_if_a_tick_changes.publish-again
			r.raiseLocked(statusKey{chat: u.ChatID, user: u.UserID},
				levelOf(r.Chats.Known(u.ChatID)), u.Boundary, "")
		}
	}
}

// published records that the members have an aggregate. If a node may not have got it, it is read
// and published again.
func (r *Receipts) published(e *bus.Status, failed bool) {
	u := e.Updates[0]
	switch {
	case u.UserID != "":
	//rule:delivered_is_eventually_consistent.publish-aggregate-again
	case failed:
		r.Recompute(u.ChatID)
	default:
		r.tell(u.ChatID, aggregate{e.Version, u.Acked, u.Read})
	}
}

// tell records what the members of a chat have.
func (r *Receipts) tell(chat tidemark.ChatID, a aggregate) {
	//rule:bounded_use.limit-told-aggregates
	if _, there := r.told[chat]; !there && len(r.told) >= maxTold {
		for other := range r.told { // the order of a map is random
			delete(r.told, other)
			break
		}
	}
	r.told[chat] = a
}

// announce returns the announcement for a chat's members, and the number of its updates. In a chat
// above StatusFanout, updates of members become one update of the chat, which leastOf returns. If
// updates ask for that, and the chat has become small meanwhile, announce reads the boundaries of
// all members instead: those that rose before were not published.
func (r *Receipts) announce(
	ctx context.Context, chat tidemark.ChatID, updates []tidemark.StatusUpdate, raised time.Time,
) (delivery.Announcement, int, error) {
	roster, err := r.Chats.Roster(ctx, chat, 0)
	if err != nil {
		return delivery.Announcement{}, 0, err
	}
	//rule:blocked_is_closed.publish-no-boundary
	if roster.State.Closed() {
		return delivery.Announcement{}, 0, nil
	}
	aggregate := func(u tidemark.StatusUpdate) bool { return u.UserID == "" }
	switch asked := slices.ContainsFunc(updates, aggregate); {
	//rule:group_delivered_requires_all_members.aggregate-for-large-chats
	case len(roster.Users) <= r.StatusFanout:
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
		if updates, err = r.leastOf(ctx, roster, raised); err != nil {
			return delivery.Announcement{}, 0, err
		}
	}
	event := bus.Event{Status: &bus.Status{Updates: updates, Version: roster.Version}}
	return delivery.Announcement{To: others(roster, updates), Event: event}, len(updates), nil
}

// others returns the members who need updates: all, except the subject of a lone update about a
// member. The subject's sessions get what was written from tellWritten.
func others(roster *chat.Roster, updates []tidemark.StatusUpdate) []tidemark.UserID {
	if len(updates) != 1 || updates[0].UserID == "" {
		return roster.Users
	}
	return slices.DeleteFunc(slices.Clone(roster.Users), func(user tidemark.UserID) bool {
		return user == updates[0].UserID
	})
}

// leastOf returns the aggregate of a chat as it was read after a time, unless the members have it.
// If it may not be read yet, or cannot be read, StatusLoop tries again after the pause.
//
// A session whose lease was not yet there when the members were told reads the aggregate itself,
// after it took the lease. It may have read a lower one if a member joined in between. The version
// of the members is then a newer one, and the same value is published again.
func (r *Receipts) leastOf(
	ctx context.Context, roster *chat.Roster, raised time.Time,
) ([]tidemark.StatusUpdate, error) {
	v, err := r.Least.Since(ctx, roster.ChatID, roster.Version, raised)
	if err != nil || v.Begun.IsZero() {
		//rule:delivered_is_eventually_consistent.read-aggregate-later
		r.Recompute(roster.ChatID)
		return nil, err
	}
	now := aggregate{roster.Version, v.Acked, v.Read}
	//rule:least_is_shared.publish-what-changed
	if r.told[roster.ChatID] == now {
		return nil, nil
	}
	if v.Acked == 0 && v.Read == 0 {
		r.tell(roster.ChatID, now) // a session that knows nothing needs no 0
		return nil, nil
	}
	return []tidemark.StatusUpdate{{ChatID: roster.ChatID, Boundary: v.Boundary}}, nil
}

// ReceiveOwn makes the sessions that hold the leases read and send their user's own state, or read
// whether the user hides what they read.
func (r *Receipts) ReceiveOwn(to []registry.Lease, e *bus.Own) {
	for _, s := range r.Sessions.Held(nil, to) {
		switch {
		case s == nil:
		case e.Chat == "":
			s.ReceiptsChanged()
		default:
			s.RefreshOwn(e.Chat)
		}
	}
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
