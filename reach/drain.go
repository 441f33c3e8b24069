package reach

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// drainer is the work on the backlogs of one feed of a single outlet.
type drainer struct {
	feed feed
	// backlogs is the id under which they stand.
	backlogs storage.OutletID
	// wake says that there may be backlogs to deliver. slots holds a value for each of them that is
	// worked on.
	wake  signal.Flag
	slots chan struct{}
	// one delivers a backlog, as far as the outlet accepts it.
	one func(context.Context, *receiver, storage.Backlog) error
}

// newDrainer returns the work on the backlogs of a feed.
func newDrainer(of feed, backlogs storage.OutletID) drainer {
	return drainer{
		feed: of, backlogs: backlogs, wake: signal.New(),
		slots: make(chan struct{}, deliveries/2),
	}
}

// drain delivers the backlogs of a feed of a single outlet until ctx ends.
func (e *Engine) drain(ctx context.Context, r *receiver, d *drainer) {
	var p pass
	for ctx.Err() == nil {
		next := time.Now().Add(e.times.Poll)
		more, err := e.drainPage(ctx, r, d, &p)
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("the backlog of an outlet cannot be read; trying again",
				"outlet", r.spec.ID, "error", err)
		}
		if more && err == nil {
			continue
		}
		// Each delivery and each new backlog wakes this loop. Without a pause, many backlogs that
		// wait for a retry would be read again each time, and load the store.
		if rest := min(restAfter*p.read, e.times.Poll); rest > 0 {
			signal.Pause(ctx, rest)
		}
		p.read = 0
		d.wake.WaitUntil(ctx, next)
	}
}

// restAfter is the pause after a pass, as a multiple of the time that its queries took. Times.Poll
// bounds the pause.
const restAfter = 4

// pass is the position in the list of an outlet's backlogs: it continues after the backlog after.
// read is how long its queries took.
type pass struct {
	after storage.Backlog
	read  time.Duration
}

// opening reports whether an outlet gets everything from the beginning, and not all of its backlogs
// are open.
func (e *Engine) opening(id storage.OutletID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.list.find(id)
	return s != nil && s.Walk != nil && s.Walk.First && !s.Walk.Opened
}

// drainPage starts deliveries for the next page of a pass, and advances the pass. It reports
// whether a further page can follow at once.
func (e *Engine) drainPage(
	ctx context.Context, r *receiver, d *drainer, p *pass,
) (more bool, err error) {
	if d.feed == feedNews && e.opening(r.spec.ID) {
		return false, nil // Otherwise the walk would open again what is delivered already.
	}
	if !r.health.ready() {
		return false, nil
	}
	e.mu.Lock()
	own := e.own
	e.mu.Unlock()
	if len(own) == 0 {
		return false, nil
	}
	r.newPage(d.feed)
	began := time.Now()
	found, more, err := e.cfg.Store.Backlogs(ctx, storage.BacklogQuery{
		Outlet: d.backlogs, Shards: own, After: p.after, Limit: listed,
	})
	p.read += time.Since(began)
	if err != nil {
		return false, err
	}
	for i := range found {
		p.after = found[i]
		of := line{found[i].Chat, d.feed}
		if !r.ready(of) {
			continue
		}
		select {
		case d.slots <- struct{}{}:
		case <-ctx.Done():
			return false, nil
		}
		if !r.health.begin() {
			<-d.slots
			return false, nil
		}
		b := found[i]
		r.drain(of, true)
		e.running.Go(func() {
			defer func() {
				r.drain(of, false)
				<-d.slots
				d.wake.Set()
			}()
			if err := d.one(ctx, r, b); err != nil && ctx.Err() == nil {
				//rule:bounded_use.rest-after-a-failure
				r.later(of, &outlet.Refusal{After: e.times.Poll})
				e.cfg.Log.Warn("the backlog of a chat cannot be delivered now; trying again",
					"outlet", r.spec.ID, "chat", b.Chat, "error", err)
			}
		})
	}
	if !more {
		p.after = storage.Backlog{}
	}
	return more, nil
}

// importPause is how long the backlog of a single outlet waits for the end of an import.
const importPause = 10 * time.Second

// drainOne delivers the backlog of one chat to one outlet, as far as the outlet accepts it.
func (e *Engine) drainOne(ctx context.Context, r *receiver, b storage.Backlog) error {
	defer r.health.abandoned() // If nothing was delivered.
	chat, err := e.cfg.Store.Chat(ctx, b.Chat)
	if err != nil {
		return err
	}
	//rule:import_once.a-replay-waits-for-its-end
	if chat.State == tidemark.ChatImporting {
		r.later(line{chat: b.Chat}, &outlet.Refusal{After: importPause})
		return nil
	}
	read := reader{store: e.cfg.Store, chat: chat, at: b.From}
	save, whole := e.firstSave(time.Now()), true
	to := b.From
	for whole && !read.done() {
		var steps []step
		if steps, err = read.next(ctx); err != nil {
			break
		}
		for i := range steps {
			steps[i].Again = true
		}
		var done int
		if done, whole, err = e.drainSteps(ctx, r, line{chat: b.Chat}, steps); done > 0 {
			to = steps[done-1].after
		}
		if whole {
			to = read.at
		}
		if whole && !time.Now().Before(save) {
			if settled, err := e.settleOwn(ctx, b, to); err != nil || !settled {
				return err
			}
			b.From, save = to, time.Now().Add(e.times.Save)
		}
	}
	if to == b.From && !read.done() {
		return err
	}
	_, settleErr := e.settleOwn(ctx, b, to)
	return errors.Join(err, settleErr)
}

// settleOwn settles the backlog of a single outlet.
func (e *Engine) settleOwn(
	ctx context.Context, b storage.Backlog, to storage.Position,
) (settled bool, err error) {
	return e.joined.settle.one(context.WithoutCancel(ctx), storage.Settlement{Backlog: b, To: to})
}

// drainSteps delivers steps of a line to one outlet. It returns how many of them were accepted or
// parked, from the first one on, and whether these are all.
func (e *Engine) drainSteps(
	ctx context.Context, r *receiver, of line, steps []step,
) (done int, whole bool, err error) {
	for done < len(steps) {
		answer := r.start(of, steps[done:])
		if answer == nil {
			return done, false, nil
		}
		var out outcome
		select {
		case out = <-answer:
		case <-ctx.Done():
			return done, false, nil
		}
		if done += out.accepted; done == len(steps) {
			break
		}
		if out.unanswered {
			return done, false, nil
		}
		if out.refused.Action == outlet.Later {
			r.later(of, out.refused)
			return done, false, nil
		}
		refused := &steps[done].Event
		again := r.retryLater(of, out.refused)
		switch {
		case out.refused.Action == outlet.Disable:
			return done, false, e.disable(ctx, r.spec.ID, out.refused.Detail)
		case e.hopeless(r, refused, again):
			if err := e.park(ctx, r, refused, out.refused, again.since); err != nil {
				return done, false, err
			}
			done++
		default:
			return done, false, nil
		}
	}
	r.accepted(of)
	return done, true, nil
}
