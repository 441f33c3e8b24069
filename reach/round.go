package reach

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// deliver delivers the news of a task to all outlets of its list. What one does not accept in time
// waits in its own backlog. deliver returns how far it came, and for which outlets backlogs of the
// chat may be open now. Error: that of the store.
func (e *Engine) deliver(
	ctx context.Context, t *task,
) (to storage.Position, now split, err error) {
	b, from, known := &t.backlog, t.to, t.split
	chat := tidemark.Chat{
		ID: b.Chat, Large: b.Large, Head: b.End.Sequence, MembersVersion: b.End.Members,
		Version: b.End.Version,
	}
	if !t.onlyMessages() {
		if chat, err = e.cfg.Store.Chat(ctx, b.Chat); err != nil {
			return from, known, err
		}
	}
	r := reader{store: e.cfg.Store, chat: chat, at: from, page: t.page, asOf: t.asOf}
	round := round{
		e: e, chat: b.Chat, waiting: map[storage.OutletID]bool{},
		pending: map[storage.OutletID]storage.OutletID{},
	}
	for i := range t.list.Outlets {
		s := &t.list.Outlets[i]
		if !s.State.keeps() {
			continue
		}
		round.outlets = append(round.outlets, s)
		if s.wantsPending() && !chat.Large {
			round.pending[pendingOf(s.ID)] = s.ID
		}
	}
	if err := round.findWaiting(ctx, known); err != nil {
		return from, known, err
	}
	for !r.done() {
		before := r.at
		steps, err := r.next(ctx)
		if err == nil {
			err = round.deliver(ctx, before, steps)
		}
		if err != nil {
			return before, max(known, round.split()), err
		}
	}
	return r.at, round.split(), nil
}

// round delivers the news of a chat to the outlets. An outlet that waits has an own backlog, which
// covers all that the round reads: it was opened, or found, after this news was stored (R_FRESH).
type round struct {
	e       *Engine
	chat    tidemark.ChatID
	outlets []*Spec
	waiting map[storage.OutletID]bool
	// pending has the outlets that get outlet.PendingCreated, by the ids of these backlogs. Their
	// messages always wait there.
	pending map[storage.OutletID]storage.OutletID
}

// split returns for which outlets backlogs are open.
func (r *round) split() split {
	s := unsplit
	for id := range r.waiting {
		if _, pending := r.pending[id]; !pending {
			return splitNews
		}
		s = splitPending
	}
	return s
}

// findWaiting looks for own backlogs of the chat (R_OWED). Without a split there are only those of
// outlets that get the chat for the first time: these get it from its beginning.
func (r *round) findWaiting(ctx context.Context, known split) error {
	begin := make(map[storage.OutletID]storage.Position)
	for id := range r.pending {
		if known == unsplit {
			break
		}
		if err := r.findWaitingFor(ctx, id); err != nil {
			return err
		}
	}
	for _, s := range r.outlets {
		first := s.Walk != nil && s.Walk.First
		if known < splitNews && !first {
			continue
		}
		err := r.findWaitingFor(ctx, s.ID)
		switch {
		case err != nil:
			return err
		case r.waiting[s.ID]:
		//rule:told_in_order.begin-at-the-beginning
		case first && !s.Walk.Opened:
			begin[s.ID] = storage.Position{}
		}
	}
	return r.wait(ctx, begin)
}

// findWaitingFor looks for an own backlog of the chat.
func (r *round) findWaitingFor(ctx context.Context, id storage.OutletID) error {
	open, err := r.e.joined.waiting.one(ctx, backlogName{id, r.chat})
	//rule:told_in_order.wait-behind-own-backlog
	if open {
		r.waiting[id] = true
	}
	return err
}

// deliver delivers some steps, which begin at a position. When it returns nil, each outlet has
// accepted them, or waits.
func (r *round) deliver(ctx context.Context, before storage.Position, steps []step) error {
	if len(steps) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	started, left := r.start(steps)
	late := r.collect(before, steps, started)
	for _, id := range left {
		late[id] = before
	}
	for id := range r.pending {
		//rule:pending_told.wait-for-the-look
		if !r.waiting[id] && hasMessage(steps) {
			late[id] = before
		}
	}
	return r.wait(ctx, late)
}

// start starts the deliveries to the outlets that do not wait. left has those of them for which
// none can start now.
func (r *round) start(steps []step) (started []delivery, left []storage.OutletID) {
	for _, s := range r.outlets {
		id := s.ID
		receiver := r.e.receiver(id)
		if r.waiting[id] {
			if receiver != nil {
				receiver.further(line{chat: r.chat})
			}
			continue
		}
		if receiver == nil || !receiver.health.prompt() || receiver.full() {
			left = append(left, id)
			continue
		}
		done := receiver.start(line{chat: r.chat}, steps)
		if done == nil {
			left = append(left, id)
			continue
		}
		started = append(started, delivery{id, receiver, done, r.e.cfg.Kinds[s.Kind].Urgent})
	}
	slices.SortStableFunc(started, urgentFirst)
	return started, left
}

// collect waits for the outcomes of deliveries, the urgent ones first, as long as others may wait
// for them. late has the outlets that did not accept all, and from where on.
func (r *round) collect(
	before storage.Position, steps []step, started []delivery,
) (late map[storage.OutletID]storage.Position) {
	late = make(map[storage.OutletID]storage.Position)
	linger := time.NewTimer(r.e.times.Linger)
	defer linger.Stop()
	over := false
	for i, d := range started {
		if i > 0 && !d.urgent && started[i-1].urgent {
			linger.Reset(min(r.e.times.Linger, urgentLinger))
			over = false
		}
		var out outcome // Until there is one, nothing is accepted.
		select {
		case out = <-d.done:
		default:
			if !over {
				select {
				case out = <-d.done:
				case <-linger.C:
					over = true
				}
			}
			if over {
				d.receiver.health.late()
			}
		}
		if out.refused != nil && out.refused.Action == outlet.Later {
			d.receiver.later(line{chat: r.chat}, out.refused)
		}
		if out.accepted < len(steps) {
			late[d.id] = before
			if out.accepted > 0 {
				late[d.id] = steps[out.accepted-1].after
			}
		}
	}
	return late
}

// delivery is one that a round has started.
type delivery struct {
	id       storage.OutletID
	receiver *receiver
	done     <-chan outcome
	urgent   bool
}

// urgentLinger is how long the news of a chat waits for other outlets, after an urgent one has
// answered.
const urgentLinger = 100 * time.Millisecond

func urgentFirst(a, b delivery) int {
	switch {
	case a.urgent == b.urgent:
		return 0
	case a.urgent:
		return -1
	}
	return 1
}

// wait opens own backlogs.
func (r *round) wait(ctx context.Context, late map[storage.OutletID]storage.Position) error {
	if len(late) == 0 {
		return nil
	}
	var open []storage.Backlog
	for id, from := range late {
		open = append(open, storage.Backlog{Outlet: id, Chat: r.chat, From: from})
	}
	//rule:told_or_owed.rewind-before-settling
	if err := r.e.joined.rewind.all(context.WithoutCancel(ctx), open); err != nil {
		return err
	}
	for id := range late {
		r.waiting[id] = true
		if of, pending := r.pending[id]; pending {
			if receiver := r.e.receiver(of); receiver != nil {
				receiver.later(line{r.chat, feedPending}, &outlet.Refusal{After: missedAfter})
			}
			continue
		}
		if receiver := r.e.receiver(id); receiver != nil {
			receiver.count(countDeferred, 1)
			receiver.news.wake.Set()
		}
	}
	return nil
}
