// Package queue stands in front of a provider of push notifications, so that no caller waits for
// it. It bounds what waits and what is under way, and replaces older notifications by newer ones.
package queue

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/reach/push"
)

// SendTimeout is how long one request to a provider may take.
const SendTimeout = 10 * time.Second

// maxReports is how many reports wait to be read. A report that is lost comes again with the next
// notification to its target.
const maxReports = 10_000

// fresh is the age up to which a notification is sent unchanged. One that was formed from older
// readings is checked by Look.
const fresh = time.Second

// obsolete is the outcome of a notification that Look no longer needs.
const obsolete push.Outcome = "obsolete"

// Look brings a notification that has waited up to date, and reports whether it is still needed. It
// is called before each attempt, and ends with ctx. After an error, the notification waits again.
type Look func(
	ctx context.Context, to push.Target, n push.Notification,
) (now push.Notification, needed bool, err error)

// Queue sends notifications by one provider. Its memory is bounded by MaxQueued. Nothing in it
// survives the process. It is safe for concurrent use.
type Queue struct {
	provider push.Provider
	look     Look // nil: notifications are sent as they came
	// wake says that there may be something to send, and told that there is a report.
	wake, told signal.Flag

	mu       sync.Mutex // guards what follows; never held during a request
	schedule schedule
	reports  []Report
}

// Report is a result that somebody must act on: a registration to end, or a notification that was
// refused.
type Report struct {
	To     push.Target
	Result push.Result
}

// Counts are what a Queue has counted since it was made, for metrics.
type Counts struct {
	// Enqueued is all that came. Each is at last in one of the others.
	Enqueued uint64
	// Sent, Dead, Refused and Withheld are those that ended with such an answer.
	Sent, Dead, Refused, Withheld uint64
	// Obsolete are those that Look dropped.
	Obsolete uint64
	// Replaced gave way to a newer one of the same name, Dropped to newer ones in a full queue or
	// with their registration, and Expired were older than MaxAge.
	Replaced, Dropped, Expired uint64
	// Retried are requests that failed.
	Retried uint64
}

func (c *Counts) count(o push.Outcome) {
	switch o {
	case push.Sent:
		c.Sent++
	case push.Retry:
		c.Retried++
	case push.DropTarget:
		c.Dead++
	case push.Refused:
		c.Refused++
	case push.Withheld:
		c.Withheld++
	case obsolete:
		c.Obsolete++
	}
}

// Gauges are what a Queue has at a moment.
type Gauges struct {
	// Queued are the notifications that wait, and InFlight those under way.
	Queued, InFlight int
	// Stopped is the number of lanes whose breaker is open.
	Stopped int
}

// New returns a queue. It sends nothing before Run.
func New(provider push.Provider) *Queue {
	return &Queue{
		provider: provider, wake: signal.New(), told: signal.New(),
		schedule: schedule{
			laneOf:  provider.Lane,
			entries: make(map[entryKey]*entry), lanes: make(map[string]*lane),
		},
	}
}

// LookAgain sets the check of notifications that have waited. Call it before Run.
func (q *Queue) LookAgain(look Look) { q.look = look }

// Enqueue takes a notification up. It takes constant time and never waits. The notification
// replaces an earlier one of the same device and name that is not sent yet.
func (q *Queue) Enqueue(to push.Target, n push.Notification) {
	q.EnqueueReadAt(time.Now(), to, n)
}

// EnqueueReadAt is Enqueue for a notification that was formed from what was read at a time. It may
// have taken long to form.
func (q *Queue) EnqueueReadAt(at time.Time, to push.Target, n push.Notification) {
	q.mu.Lock()
	q.schedule.put(job{to: to, n: n, came: time.Now(), read: at})
	q.mu.Unlock()
	q.wake.Set()
}

// Holds reports whether the notification of a name for a device waits, or is under way.
func (q *Queue) Holds(to push.Target, n push.Notification) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, there := q.schedule.entries[keyOf(job{to: to, n: n})]
	return there
}

// Room returns how many further notifications the queue takes without dropping one. Those under way
// keep their place, since they may have to wait again.
func (q *Queue) Room() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return MaxQueued - q.schedule.ages.Len() - q.schedule.inFlight
}

// Run sends until ctx ends. Then it waits for the requests under way, which end with ctx. At most
// one Run is under way.
func (q *Queue) Run(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	for ctx.Err() == nil {
		e, next := q.take()
		if e != nil {
			requests.Go(func() { q.send(ctx, e) })
		} else if _, ok := q.wake.WaitUntil(ctx, next); !ok {
			return
		}
	}
}

// take returns the next entry to send, or nil and when to look again.
func (q *Queue) take() (e *entry, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e = q.schedule.take(time.Now()); e == nil {
		next = q.schedule.next()
	}
	return e, next
}

func (q *Queue) send(ctx context.Context, e *entry) {
	result, asked := q.ask(ctx, e)

	q.mu.Lock()
	q.schedule.finish(time.Now(), e, result, asked)
	if result.Outcome == push.DropTarget || result.Outcome == push.Refused {
		if len(q.reports) == maxReports {
			q.reports = q.reports[1:]
		}
		q.reports = append(q.reports, Report{e.to, result})
	}
	q.mu.Unlock()
	q.wake.Set()
	q.told.Set()
}

// ask sends a notification, unless it has waited and is not needed any more. asked reports whether
// the provider was asked.
func (q *Queue) ask(ctx context.Context, e *entry) (result push.Result, asked bool) {
	ctx, cancel := context.WithTimeout(ctx, SendTimeout)
	defer cancel()
	n := e.n
	if q.look != nil && time.Since(e.read) >= fresh {
		now, needed, err := q.look(ctx, e.to, n)
		switch {
		case err != nil:
			return push.Result{Outcome: push.Retry, Detail: tidemark.DetailOf(err)}, false
		//rule:push_is_needed.look-before-it-leaves
		case !needed:
			return push.Result{Outcome: obsolete}, false
		}
		n = now
	}
	return q.provider.Send(ctx, e.to, n), true
}

// Reports waits until there are reports, and returns them once. ok is false if ctx ends first.
func (q *Queue) Reports(ctx context.Context) (reports []Report, ok bool) {
	for {
		q.mu.Lock()
		reports, q.reports = q.reports, nil
		q.mu.Unlock()
		if len(reports) > 0 {
			return reports, true
		}
		if !q.told.Wait(ctx) {
			return nil, false
		}
	}
}

// Stats returns the counts and gauges.
func (q *Queue) Stats() (Counts, Gauges) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := Gauges{Queued: q.schedule.ages.Len(), InFlight: q.schedule.inFlight}
	for _, l := range q.schedule.lanes {
		if l.breaker.state == breakerOpen {
			g.Stopped++
		}
	}
	return q.schedule.counts, g
}
