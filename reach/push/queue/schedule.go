package queue

import (
	"container/list"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
)

// Bounds of a Queue.
const (
	// MaxQueued is how many notifications wait for a provider. One more takes the place of the
	// oldest.
	MaxQueued = 10_000
	// MaxAge is when a notification that was not sent is dropped.
	MaxAge = 60 * time.Minute

	// maxLanes is how many lanes without notifications are remembered because they failed.
	maxLanes = 1_000
	// firstWait is the wait after the first failure of a notification. Each further failure
	// doubles it, up to longestWait.
	firstWait   = time.Second
	longestWait = 5 * time.Minute
)

// entryStep says where a notification is.
//
//	step      put of the same name        take      finish
//	queued    replaced, keeps its place   sending
//	sending   the newer one waits here              gone; waiting if to be tried again
//	waiting   replaced, keeps its wait    queued, once the wait is over
type entryStep string

const (
	stepQueued  entryStep = "queued"
	stepSending entryStep = "sending"
	stepWaiting entryStep = "waiting"
)

// entryKey names what replaces each other: a device and a collapse name.
type entryKey struct {
	user   tidemark.UserID
	device tidemark.DeviceID
	name   string
}

// job is a notification for a target, when it came, and when that was read of which it was formed.
type job struct {
	to         push.Target
	n          push.Notification
	came, read time.Time
}

// keyOf returns the key of a job. A badge replaces only badges, whatever its name: in place of a
// banner it would hide a message.
func keyOf(j job) entryKey {
	k := entryKey{j.to.User, j.to.Device, j.n.Name}
	//rule:push_latest_replaces.badge-hides-no-banner
	if j.n.Kind == push.Badge {
		k.name = ""
	}
	return k
}

// entry is the newest job of a key.
type entry struct {
	job
	key      entryKey
	step     entryStep
	lane     *lane
	attempts int
	// newer is the job that replaces the one under way; nil if there is none.
	newer *job
	// age is the place in schedule.ages, inLane in lane.queue, and wait in schedule.wheel. Each
	// is nil if it is not there.
	age, inLane *list.Element
	wait        *place
}

// lane is what fails together.
type lane struct {
	name     string
	queue    list.List // of *entry in stepQueued
	inFlight int
	breaker  breaker
	// ready is the place in schedule.ready, and wait in schedule.wheel, while the breaker is open.
	ready *list.Element
	wait  *place
}

// schedule decides what is sent next. It does no I/O and has no clock. Each step takes constant
// time. It is not safe for concurrent use.
type schedule struct {
	laneOf   func(push.Target) string
	entries  map[entryKey]*entry
	lanes    map[string]*lane
	ages     list.List // of *entry that are queued or waiting, the oldest first
	ready    list.List // of *lane that have something to send and may send it
	wheel    wheel
	inFlight int
	counts   Counts
}

// put adds a job, or replaces an earlier one of its key. It drops a Clear if a banner of later
// messages is queued: that banner replaces what the Clear would remove.
func (s *schedule) put(j job) {
	s.counts.Enqueued++
	key := keyOf(j)
	e, there := s.entries[key]
	if !there {
		s.insert(j.came, &entry{key: key, job: j})
		return
	}
	latest := &e.job
	if e.newer != nil {
		latest = e.newer
	}
	//rule:clear_hides_no_unread.later-banner-stays-queued
	if j.n.Kind == push.Clear && latest.n.Kind == push.Banner && latest.n.To > j.n.To {
		s.counts.Replaced++
		return
	}
	switch e.step {
	case stepSending:
		if e.newer != nil {
			s.counts.Replaced++
		}
		e.newer = &j
	case stepQueued, stepWaiting:
		s.counts.Replaced++
		moved := e.to.Address != j.to.Address
		//rule:push_latest_replaces.newest-of-a-name
		e.job = j
		s.ages.MoveToBack(e.age)
		if moved {
			s.unplace(j.came, e)
			e.attempts = 0
			s.queue(j.came, e)
		}
	}
}

// insert queues a new entry. If the queue is full, the oldest one is dropped.
func (s *schedule) insert(now time.Time, e *entry) {
	//rule:push_queue_is_bounded.oldest-is-dropped
	if s.ages.Len() >= MaxQueued {
		s.drop(now, s.ages.Front().Value.(*entry))
		s.counts.Dropped++
	}
	s.entries[e.key] = e
	e.age = s.ages.PushBack(e)
	s.queue(now, e)
}

// queue puts an entry at the end of its lane.
func (s *schedule) queue(now time.Time, e *entry) {
	name := s.laneOf(e.to)
	l, there := s.lanes[name]
	if !there {
		l = &lane{name: name}
		s.lanes[name] = l
	}
	e.step, e.lane = stepQueued, l
	e.inLane = l.queue.PushBack(e)
	s.place(now, l)
}

// unplace takes an entry out of its lane or out of the wheel.
func (s *schedule) unplace(now time.Time, e *entry) {
	if e.inLane != nil {
		e.lane.queue.Remove(e.inLane)
		e.inLane = nil
		s.place(now, e.lane)
	}
	s.wheel.remove(e.wait)
	e.wait = nil
}

// drop forgets an entry that is queued or waiting.
func (s *schedule) drop(now time.Time, e *entry) {
	s.ages.Remove(e.age)
	s.unplace(now, e)
	delete(s.entries, e.key)
}

// place puts a lane where its state belongs: among the ready, in the wheel, or nowhere. An empty
// lane is forgotten at once if it has not failed, and else after a while.
func (s *schedule) place(now time.Time, l *lane) {
	bound := push.MaxInFlight
	if l.name != "" {
		//rule:push_queue_is_bounded.requests-of-a-lane
		bound = push.MaxInFlightOfLane
	}
	allowed := l.breaker.allows(now)
	if ready := l.queue.Len() > 0 && l.inFlight < bound && allowed; ready != (l.ready != nil) {
		if ready {
			l.ready = s.ready.PushBack(l)
		} else {
			s.ready.Remove(l.ready)
			l.ready = nil
		}
	}
	s.wheel.remove(l.wait)
	l.wait = nil
	switch {
	case l.empty() && (l.breaker.failures == 0 || len(s.lanes) > maxLanes):
		s.forget(l)
	case l.empty():
		l.wait = s.wheel.add(now, later(l.breaker.until, now.Add(longestWait+time.Minute)), l)
	case l.breaker.state == breakerOpen && !allowed:
		l.wait = s.wheel.add(now, l.breaker.until, l)
	}
}

func (s *schedule) forget(l *lane) {
	if s.lanes[l.name] == l {
		delete(s.lanes, l.name)
	}
}

// empty reports whether a lane has nothing to send and nothing under way.
func (l *lane) empty() bool { return l.queue.Len() == 0 && l.inFlight == 0 }

// take returns the next entry to send, in turn from each lane that may send. It returns nil if
// there is none.
func (s *schedule) take(now time.Time) *entry {
	s.tick(now)
	//rule:push_queue_is_bounded.requests-under-way
	if s.inFlight >= push.MaxInFlight || s.ready.Len() == 0 {
		return nil
	}
	l := s.ready.Front().Value.(*lane)
	e := l.queue.Front().Value.(*entry)
	l.queue.Remove(e.inLane)
	s.ages.Remove(e.age)
	e.inLane, e.age, e.step = nil, nil, stepSending
	l.breaker.began()
	l.inFlight++
	s.inFlight++
	s.ready.Remove(l.ready) // and to the end, so that lanes take turns
	l.ready = nil
	s.place(now, l)
	return e
}

// tick ends what is too old and what has waited long enough.
func (s *schedule) tick(now time.Time) {
	for s.ages.Len() > 0 {
		e := s.ages.Front().Value.(*entry)
		//rule:push_queue_is_bounded.too-old
		if now.Sub(e.came) < MaxAge {
			break
		}
		s.drop(now, e)
		s.counts.Expired++
	}
	for _, due := range s.wheel.take(now) {
		switch v := due.(type) {
		case *lane:
			v.wait = nil
			if v.empty() {
				s.forget(v)
			} else {
				s.place(now, v)
			}
		case *entry:
			v.wait = nil
			s.queue(now, v)
		}
	}
}

// next returns when take may return something that it does not return now, besides after put and
// finish. Zero is never.
func (s *schedule) next() time.Time { return s.wheel.next() }

// finish says what became of an entry that take has returned, and whether the provider was asked.
func (s *schedule) finish(now time.Time, e *entry, r push.Result, asked bool) {
	l := e.lane
	l.inFlight--
	s.inFlight--
	switch {
	case !asked:
		l.breaker.unasked()
	//rule:push_waits_as_told.one-target-stops-no-lane
	case r.Outcome == push.Retry && !r.OneTarget:
		l.breaker.failed(now, r.Wait)
	default:
		l.breaker.succeeded()
	}
	delete(s.entries, e.key)
	s.counts.count(r.Outcome)
	s.follow(now, e, r)
	s.place(now, l)
}

// follow decides what comes after an entry that was under way: the newer job of its key, another
// attempt, or nothing.
func (s *schedule) follow(now time.Time, e *entry, r push.Result) {
	next := &entry{key: e.key, job: e.job, attempts: e.attempts + 1}
	if e.newer != nil {
		next.job = *e.newer
		if r.Outcome == push.Retry {
			s.counts.Replaced++
		}
		if next.to.Address != e.to.Address || r.Outcome != push.Retry {
			if r.Drops(next.to) && next.to.Address == e.to.Address {
				s.counts.Dropped++
				return
			}
			next.attempts = 0
			s.insert(now, next)
			return
		}
	} else if r.Outcome != push.Retry {
		return
	}
	wait := min(firstWait<<min(next.attempts-1, 10), longestWait)
	//rule:push_waits_as_told.wait-of-a-notification
	wait = max(wait, r.Wait)
	switch due := now.Add(wait); {
	case due.Sub(next.came) >= MaxAge:
		s.counts.Expired++
	case s.ages.Len() >= MaxQueued:
		s.counts.Dropped++
	default:
		next.step, next.lane = stepWaiting, e.lane
		s.entries[next.key] = next
		next.wait = s.wheel.add(now, due, next)
		next.age = s.ages.PushFront(next) // it is older than what came while it was under way
	}
}
