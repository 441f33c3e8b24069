package reach

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

const (
	// deliveries is how many deliveries to one receiver run at once.
	deliveries = 16
	// maxQueued is how many events wait for a delivery. Further ones wait in the store.
	maxQueued = 1_000
	// maxAgain is of how many lines a receiver knows that they were refused. Others are tried
	// earlier, and parked later.
	maxAgain = 10_000
)

// line names a sequence of events that are delivered one after the other. Each chat has a line for
// each feed. The line without a chat has the notices.
type line struct {
	chat tidemark.ChatID
	feed feed
}

// feed is a part of what happens in a chat.
type feed int

// The feeds: messages and changes of the chat and its members; receipts; what members have missed.
const (
	feedNews feed = iota
	feedReceipts
	feedPending
)

// lineOf returns the line of an event.
func lineOf(e *outlet.Event) line {
	switch e.Type {
	case outlet.DeliveryUpdated, outlet.ReadUpdated:
		return line{e.Chat, feedReceipts}
	case outlet.PendingCreated:
		return line{e.Chat, feedPending}
	}
	return line{chat: e.Chat}
}

// receiver is an open outlet with what this process knows of it. It is safe for concurrent use.
type receiver struct {
	spec   Spec
	client outlet.Client
	health health
	lane   *batch.Batcher[outlet.Event, *outlet.Refusal]
	queued atomic.Int64
	// counts are its own figures, and total those of all receivers.
	counts counts
	total  *counts
	// failures gets what the receiver refused.
	failures *failures
	receipts receipts
	// news and pending drain the backlogs of these feeds.
	news, pending drainer
	// end ends the work on the outlet's backlogs. It is set by until.
	end   context.CancelFunc
	calls sync.WaitGroup

	mu sync.Mutex
	chatsUnder
}

// chatsUnder is what receiver.mu guards.
type chatsUnder struct {
	// closed says that no delivery begins any more.
	closed bool
	// busy has the lines with a delivery under way. Each line has one delivery at a time.
	busy map[line]struct{}
	// drained has the lines of which a backlog is worked on, and those whose work ended since the
	// last page was asked for: that page may show them as they were before.
	drained map[line]bool
	// told has the missed messages that the outlet has accepted, while their backlogs stand.
	told map[tidemark.ChatID]map[tidemark.UserID]tidemark.Sequence
	// again has the lines with a refused event, and when to try them again.
	again map[line]retry
}

// retry says when a chat is tried again.
type retry struct {
	refusals int
	// since is when it was refused first.
	since, at time.Time
	// waits is outlet.Refusal.Waits, or nil. news says that the chat has further events since the
	// work on its backlog began: then waits does not count.
	waits func() time.Duration
	news  bool
}

// figure is something that is counted of a receiver, since the start of the process.
type figure int

// The figures: events that were accepted, deliveries that were refused, how often a chat had to
// wait in an own backlog, and events that were parked.
const (
	countAccepted figure = iota
	countRefused
	countDeferred
	countParked
	// countHintsDropped counts hints for which there was no room, of all receivers only.
	countHintsDropped
	figures
)

// counts are the figures of a receiver, or of all.
type counts [figures]atomic.Uint64

// newReceiver starts the lane of an outlet. failures gets what it refuses, and total gets what is
// counted, too.
func newReceiver(
	spec Spec, client outlet.Client, failures *failures, total *counts, quiet time.Duration,
) *receiver {
	r := &receiver{
		spec: spec, client: client, failures: failures, total: total,
		chatsUnder: chatsUnder{
			busy: map[line]struct{}{}, drained: map[line]bool{}, again: map[line]retry{},
			told: map[tidemark.ChatID]map[tidemark.UserID]tidemark.Sequence{},
		},
		receipts: newReceipts(quiet),
		news:     newDrainer(feedNews, spec.ID),
		pending:  newDrainer(feedPending, pendingOf(spec.ID)),
	}
	r.lane = batch.New(batch.Config{
		Name: "the outlet " + string(spec.ID), Workers: deliveries,
		Most: max(client.Limits().Events, 1),
	}, r.deliver)
	r.lane.Start()
	return r
}

// count adds to a figure.
func (r *receiver) count(f figure, n int) {
	r.counts[f].Add(uint64(n))
	r.total[f].Add(uint64(n))
}

// until returns the context of the work on the outlet's backlogs, which ends with ctx or by end.
func (r *receiver) until(ctx context.Context) context.Context {
	ctx, r.end = context.WithCancel(ctx)
	return ctx
}

// close ends the deliveries under way. Later ones do not begin.
func (r *receiver) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.lane.Abort()
	r.calls.Wait()
	_ = r.client.Close() // It has nothing to lose.
}

// deliver delivers the events of several calls. Each call has events of one chat, in order.
func (r *receiver) deliver(
	ctx context.Context, collect func() []outlet.Event,
) ([]*outlet.Refusal, error) {
	events := collect()
	refusals := make([]*outlet.Refusal, len(events))
	refused := map[line]*outlet.Refusal{}
	limits := r.client.Limits()
	for first := 0; first < len(events); {
		if why := refused[lineOf(&events[first])]; why != nil {
			refusals[first] = why
			first++
			continue
		}
		end, size := first, 0
		for end < len(events) && refused[lineOf(&events[end])] == nil {
			size += len(events[end].Data)
			if end > first && (end-first >= limits.Events || size > limits.Bytes) {
				break
			}
			end++
		}
		r.some(ctx, events[first:end], refused, refusals[first:end])
		first = end
	}
	//rule:told_or_owed.nothing-aborted-is-accepted
	if err := ctx.Err(); err != nil {
		return nil, err // What was not tried has no refusal, and must not count as accepted.
	}
	return refusals, nil
}

// some delivers events in one call, or in halves if the receiver refuses them together. It sets the
// refusals, and notes the chats of the refused events.
func (r *receiver) some(
	ctx context.Context, events []outlet.Event, refused map[line]*outlet.Refusal,
	refusals []*outlet.Refusal,
) {
	if len(events) == 0 || ctx.Err() != nil {
		return // If ctx has ended, deliver answers for none of them.
	}
	if client, is := r.client.(outlet.Each); is {
		r.each(ctx, client, events, refused, refusals)
		return
	}
	taken, why := r.client.Deliver(ctx, events)
	r.count(countAccepted, taken)
	if taken > 0 || why == nil {
		r.health.succeeded()
	}
	if why == nil {
		return
	}
	left := events[taken:]
	refusals = refusals[taken:]
	if why.Action == outlet.Split && len(left) > 1 {
		half := len(left) / 2
		r.some(ctx, left[:half], refused, refusals[:half])
		r.rest(ctx, left[half:], refused, refusals[half:])
		return
	}
	failure := why.Action != outlet.Later
	if failure {
		r.count(countRefused, 1)
	}
	if failure && ctx.Err() == nil {
		r.health.failed(why.After)
		r.failures.add(r.spec.ID, &left[0], why)
	}
	//rule:told_in_order.refuse-the-rest-of-the-chat
	refused[lineOf(&left[0])], refusals[0] = why, why
	if len(left) == 1 {
		return
	}
	if failure && len(events) > 1 && taken == 0 {
		// All were refused together.
		for i := range left {
			refused[lineOf(&left[i])], refusals[i] = why, why
		}
		return
	}
	r.rest(ctx, left[1:], refused, refusals[1:])
}

// each delivers events in one call of a client that answers for each of them.
func (r *receiver) each(
	ctx context.Context, client outlet.Each, events []outlet.Event,
	refused map[line]*outlet.Refusal, refusals []*outlet.Refusal,
) {
	taken := 0
	var first *outlet.Refusal
	for i, why := range client.DeliverEach(ctx, events) {
		if refusals[i] = why; why == nil {
			taken++
			continue
		}
		failure := why.Action != outlet.Later
		if failure {
			first = cmp.Or(first, why)
		}
		if of := lineOf(&events[i]); refused[of] == nil {
			refused[of] = why
			if failure {
				r.count(countRefused, 1)
			}
			if failure && ctx.Err() == nil {
				r.failures.add(r.spec.ID, &events[i], why)
			}
		}
	}
	r.count(countAccepted, taken)
	if taken > 0 {
		r.health.succeeded()
	}
	if first != nil && ctx.Err() == nil {
		r.health.failed(first.After)
	}
}

// rest is some without the events of chats that were refused.
func (r *receiver) rest(
	ctx context.Context, events []outlet.Event, refused map[line]*outlet.Refusal,
	refusals []*outlet.Refusal,
) {
	for first := 0; first < len(events); {
		end := first
		for end < len(events) && refused[lineOf(&events[end])] == nil {
			end++
		}
		r.some(ctx, events[first:end], refused, refusals[first:end])
		for first = end; first < len(events) && refused[lineOf(&events[first])] != nil; first++ {
			refusals[first] = refused[lineOf(&events[first])]
		}
	}
}

// full reports whether so many events wait that further ones should wait in the store.
func (r *receiver) full() bool { return r.queued.Load() >= maxQueued }

// outcome says how many steps a receiver has accepted, and why it has not accepted the next one.
type outcome struct {
	accepted int
	refused  *outlet.Refusal
	// unanswered reports that the delivery was ended, or goes on.
	unanswered bool
}

// start delivers the steps that the outlet wants, in the background. It returns nil if a delivery
// of the line is under way. The channel gets the outcome.
func (r *receiver) start(of line, steps []step) <-chan outcome {
	done := make(chan outcome, 1)
	var events []outlet.Event
	var place []int
	for i := range steps {
		if r.spec.wants(steps[i].Type) {
			events, place = append(events, steps[i].Event), append(place, i)
		}
	}
	if len(events) == 0 {
		done <- outcome{accepted: len(steps)}
		return done
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.health.abandoned()
		done <- outcome{unanswered: true}
		return done
	}
	if _, under := r.busy[of]; under {
		return nil
	}
	r.busy[of] = struct{}{}
	r.queued.Add(int64(len(events)))
	r.calls.Go(func() {
		refusals, err := r.lane.Do(context.Background(), events)
		r.queued.Add(-int64(len(events)))
		r.mu.Lock()
		delete(r.busy, of)
		r.mu.Unlock()
		out := outcome{accepted: len(steps), unanswered: err != nil}
		if err != nil {
			out.accepted = 0
			r.health.abandoned()
		}
		for i, why := range refusals {
			if why != nil {
				out.accepted, out.refused = place[i], why
				break
			}
		}
		done <- out
	})
	return done
}

// retryLater records a refusal of a line, and returns its retry.
func (r *receiver) retryLater(of line, why *outlet.Refusal) retry {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.again[of]
	if a.refusals++; a.refusals == 1 {
		a.since = time.Now()
	}
	a.at = time.Now().Add(retryWait(a.refusals, why.After))
	r.setAgain(of, a)
	return a
}

// later records that a line must wait, which is no failure (outlet.Later).
func (r *receiver) later(of line, why *outlet.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.again[of]
	a.at, a.waits = time.Now().Add(why.After), why.Waits
	r.setAgain(of, a)
}

// further notes that a line, which waits in an own backlog, has further events: they must be read.
func (r *receiver) further(of line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, there := r.again[of]
	if there || r.drained[of] {
		a.news = true
		r.setAgain(of, a)
	}
}

// setAgain sets when a line is tried again. If there are too many, another one is forgotten. The
// mutex is held.
func (r *receiver) setAgain(of line, a retry) {
	if _, there := r.again[of]; !there && len(r.again) >= maxAgain {
		for other := range r.again {
			delete(r.again, other)
			break
		}
	}
	r.again[of] = a
}

// accepted notes that a line was accepted.
func (r *receiver) accepted(of line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.again, of)
}

// newPage begins a page of backlogs of a feed. It is called before the page is read.
func (r *receiver) newPage(of feed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.drained, func(l line, under bool) bool { return l.feed == of && !under })
}

// ready reports whether the work on the backlog of a line may begin.
func (r *receiver) ready(of line) bool {
	r.mu.Lock()
	_, drained := r.drained[of]
	ready, a := !drained && r.readyLocked(of), r.again[of]
	r.mu.Unlock()
	//rule:push_is_owed_until_sent.read-what-came-meanwhile
	if !ready || a.waits == nil || a.news {
		return ready
	}
	rest := a.waits()
	if rest <= 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, there := r.again[of]; there {
		a.at = time.Now().Add(rest)
		r.again[of] = a
	}
	return false
}

// readyFor reports whether a delivery of a line may begin.
func (r *receiver) readyFor(of line) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readyLocked(of)
}

// readyLocked is readyFor. The mutex is held.
func (r *receiver) readyLocked(of line) bool {
	_, under := r.busy[of]
	return !under && !time.Now().Before(r.again[of].at)
}

// drain notes that the work on the backlog of a line begins or ends. It begins before the line is
// read.
func (r *receiver) drain(of line, under bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drained[of] = under
	if a, there := r.again[of]; under && there {
		a.news = false
		r.again[of] = a
	}
}
