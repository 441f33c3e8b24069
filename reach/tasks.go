package reach

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// listed is how many backlogs are read at once.
const listed = 500

func shardName(shard int) string { return "shard/" + strconv.Itoa(shard) }

func outletName(id storage.OutletID) string { return "outlet/" + string(id) }

// maxOpen is how many chats are worked on, or wait to be settled, at most. Further ones wait in the
// store.
const maxOpen = 100_000

// turn looks for backlogs for all outlets, and begins to work on them, until a time: Run must show
// again and again that it works. It looks for those that hints announced. With all, it also settles
// what is done, and goes on with the list of those of its shards.
func (e *Engine) turn(ctx context.Context, all bool, until time.Time) error {
	hinted := e.hints.take()
	e.mu.Lock()
	kept, own := e.list.kept(), e.own
	e.mu.Unlock()
	if !kept || len(own) == 0 {
		return nil
	}
	e.passReceipts(hinted)
	halfway := time.Now().Add(time.Until(until) / 2)
	for of := range hinted {
		if !time.Now().Before(halfway) {
			break // The list has them, too.
		}
		if of.feed == feedNews && e.hints.own(of.chat) {
			if err := e.one(ctx, of.chat, until); err != nil {
				return err
			}
		}
	}
	if !all {
		return nil
	}
	if err := e.settle(ctx, false); err != nil {
		return err
	}
	return e.some(ctx, own, until)
}

// one begins to work on a chat, if it has a backlog.
func (e *Engine) one(ctx context.Context, chat tidemark.ChatID, until time.Time) error {
	found, _, err := e.cfg.Store.Backlogs(ctx, storage.BacklogQuery{Chat: chat, Limit: 1})
	if err != nil || len(found) == 0 {
		return err
	}
	_, err = e.offer(ctx, &found[0], until)
	return err
}

// some goes on with the list of the backlogs for all outlets, where the last call ended, until its
// end or a time.
func (e *Engine) some(ctx context.Context, own []int, until time.Time) error {
	for {
		//rule:told_or_owed.work-visibly-during-a-long-list
		if !time.Now().Before(until) || e.openChats() >= maxOpen {
			return nil
		}
		found, more, err := e.cfg.Store.Backlogs(ctx,
			storage.BacklogQuery{Shards: own, After: e.after, Limit: listed})
		if err != nil {
			return err
		}
		quiet := e.quiet(ctx, found)
		for i := range found {
			if !quiet[found[i].Chat] {
				if begun, err := e.offer(ctx, &found[i], until); !begun || err != nil {
					return err
				}
			}
			e.after = found[i]
		}
		if !more || len(found) == 0 {
			e.after = storage.Backlog{}
			return nil
		}
	}
}

// quiet returns the chats whose backlogs only need to be settled: this process has delivered their
// news, and they have no further messages. It checks all of them in one call, because most backlogs
// of a list are like that. Settling finds other news that came without a hint.
func (e *Engine) quiet(
	ctx context.Context, found []storage.Backlog,
) map[tidemark.ChatID]bool {
	var ranges []storage.Range
	e.mu.Lock()
	for i := range found {
		b := &found[i]
		p := e.chats[b.Chat]
		if p != nil && !p.busy && p.from == b.From && p.to != p.from {
			ranges = append(ranges,
				storage.Range{Chat: b.Chat, After: p.to.Sequence, Limit: 1, MaxBytes: 1})
		}
	}
	e.mu.Unlock()
	if len(ranges) == 0 {
		return nil
	}
	pages, err := e.cfg.Store.Ranges(ctx, ranges)
	if err != nil {
		return nil // One chat may be the cause. They are looked at one by one.
	}
	quiet := make(map[tidemark.ChatID]bool, len(ranges))
	for i := range ranges {
		quiet[ranges[i].Chat] = len(pages[i]) == 0
	}
	return quiet
}

// openChats returns how many chats are worked on, or wait to be settled.
func (e *Engine) openChats() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.chats)
}

// firstSave returns when the position of a chat is saved for the first time, if it is never quiet.
// That is soon. Otherwise processes that never live for Times.Save would all begin where the first
// of them did.
func (e *Engine) firstSave(now time.Time) time.Time {
	return now.Add(min(e.times.Linger*5/4, e.times.Save))
}

// offer begins to work on a backlog, unless that is under way. begun is false if no slot became
// free in time.
func (e *Engine) offer(
	ctx context.Context, b *storage.Backlog, until time.Time,
) (begun bool, err error) {
	e.mu.Lock()
	p := e.chats[b.Chat]
	now := time.Now()
	switch {
	case p == nil:
		p = &progress{
			from: b.From, to: b.From, split: splitOf(b), moved: now, save: e.firstSave(now),
		}
		e.chats[b.Chat] = p
	case p.busy:
		p.again = true
		e.mu.Unlock()
		return true, nil
	case p.from != b.From && b.From.Covers(p.from):
		// Another process has settled it.
		p.from, p.to, p.split = b.From, p.to.Most(b.From), max(p.split, splitOf(b))
	}
	p.busy = true
	list := e.list
	e.mu.Unlock()
	if err := e.slot(ctx, until); err != nil {
		e.put(b.Chat, p, p.to, p.split)
		return false, ctx.Err()
	}
	e.running.Go(func() {
		defer func() { <-e.slots }()
		to, split, err := e.deliver(ctx, b.Chat, p.to, p.split, list)
		e.put(b.Chat, p, to, split)
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("the news of a chat cannot be delivered now; trying again",
				"chat", b.Chat, "error", err)
		}
	})
	return true, nil
}

// slot waits for a free slot, until a time.
func (e *Engine) slot(ctx context.Context, until time.Time) error {
	select {
	case e.slots <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case e.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// put ends the work on a chat. If the list of outlets has changed meanwhile, nothing is noted: news
// may have been delivered without a new outlet.
func (e *Engine) put(chat tidemark.ChatID, p *progress, to storage.Position, split split) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.busy = false
	if p.again {
		p.again = false
		e.note(line{chat: chat})
	}
	if e.chats[chat] != p {
		return
	}
	if p.to != to {
		p.to, p.moved = to, time.Now()
	}
	p.split = split
}

// deliver delivers the news of a chat from a position on to all outlets of the list. What one does
// not accept in time waits in its own backlog. deliver returns how far it came, and whether an
// outlet may have an own backlog of the chat.
func (e *Engine) deliver(
	ctx context.Context, id tidemark.ChatID, from storage.Position, split split, l list,
) (to storage.Position, splits split, err error) {
	chat, err := e.cfg.Store.Chat(ctx, id)
	if err != nil {
		return from, split, err
	}
	r := reader{store: e.cfg.Store, chat: chat, at: from}
	if r.done() {
		return from, split, nil
	}
	round := round{
		e: e, chat: id, waiting: map[storage.OutletID]bool{},
		pending: map[storage.OutletID]storage.OutletID{},
	}
	for i := range l.Outlets {
		s := &l.Outlets[i]
		if !s.State.keeps() {
			continue
		}
		round.outlets = append(round.outlets, s)
		if s.wantsPending() && !chat.Large {
			round.pending[pendingOf(s.ID)] = s.ID
		}
	}
	if err := round.findWaiting(ctx, split); err != nil {
		return from, split, err
	}
	for !r.done() {
		before := r.at
		steps, err := r.next(ctx)
		if err == nil {
			err = round.deliver(ctx, before, steps)
		}
		if err != nil {
			return before, max(split, round.split()), err
		}
	}
	return r.at, round.split(), nil
}

// round delivers the news of a chat to the outlets. An outlet that waits has an own backlog, which
// covers all that the round reads: it was opened, or found, after these news were stored (R_FRESH).
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
func (r *round) findWaiting(ctx context.Context, split split) error {
	begin := make(map[storage.OutletID]storage.Position)
	for id := range r.pending {
		if split == unsplit {
			break
		}
		if err := r.findWaitingFor(ctx, id); err != nil {
			return err
		}
	}
	for _, s := range r.outlets {
		first := s.Walk != nil && s.Walk.First
		if split < splitNews && !first {
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
	found, _, err := r.e.cfg.Store.Backlogs(ctx,
		storage.BacklogQuery{Outlet: id, Chat: r.chat, Limit: 1})
	//rule:told_in_order.wait-behind-own-backlog
	if len(found) > 0 {
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
	late := make(map[storage.OutletID]storage.Position)
	var all []pending
	for id := range r.pending {
		//rule:pending_told.wait-for-the-look
		if !r.waiting[id] && hasMessage(steps) {
			late[id] = before
		}
	}
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
			late[id] = before
			continue
		}
		done := receiver.start(line{chat: r.chat}, steps)
		if done == nil {
			late[id] = before
			continue
		}
		all = append(all, pending{id, receiver, done, r.e.cfg.Kinds[s.Kind].Urgent})
	}
	slices.SortStableFunc(all, urgentFirst)
	linger := time.NewTimer(r.e.times.Linger)
	defer linger.Stop()
	over := false
	for i, p := range all {
		if i > 0 && !p.urgent && all[i-1].urgent {
			linger.Reset(min(r.e.times.Linger, urgentLinger))
			over = false
		}
		var out outcome // Until there is one, nothing is accepted.
		select {
		case out = <-p.done:
		default:
			if !over {
				select {
				case out = <-p.done:
				case <-linger.C:
					over = true
				}
			}
			if over {
				p.receiver.health.late()
			}
		}
		if out.refused != nil && out.refused.Action == outlet.Later {
			p.receiver.later(line{chat: r.chat}, out.refused)
		}
		if out.accepted < len(steps) {
			late[p.id] = before
			if out.accepted > 0 {
				late[p.id] = steps[out.accepted-1].after
			}
		}
	}
	return r.wait(ctx, late)
}

// pending is a delivery of a round.
type pending struct {
	id       storage.OutletID
	receiver *receiver
	done     <-chan outcome
	urgent   bool
}

// urgentLinger is how long the news of a chat wait for other outlets, after an urgent one has
// answered.
const urgentLinger = 100 * time.Millisecond

func urgentFirst(a, b pending) int {
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
	if err := r.e.cfg.Store.Rewind(context.WithoutCancel(ctx), open); err != nil {
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

func (e *Engine) receiver(id storage.OutletID) *receiver {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.receivers[id]
}

// settle settles the backlogs of chats that are quiet, and saves how far those came that are not.
// At the end, all are saved.
func (e *Engine) settle(ctx context.Context, end bool) error {
	for e.trust() {
		items := e.settleable(end)
		if len(items) == 0 {
			return nil
		}
		if err := e.settleSome(ctx, items); err != nil {
			return err
		}
		if len(items) < storage.MaxBatch {
			return nil
		}
	}
	return nil
}

// settleable returns settlements of what is done, at most storage.MaxBatch of them. They are noted
// as done.
func (e *Engine) settleable(end bool) []storage.Settlement {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	var items []storage.Settlement
	for chat, p := range e.chats {
		quiet := now.Sub(p.moved) >= e.times.Linger
		due := p.to != p.from && (end || !now.Before(p.save))
		if p.busy || !quiet && !due {
			continue
		}
		items = append(items, storage.Settlement{
			Backlog: storage.Backlog{Chat: chat, From: p.from}, To: p.to,
			NowSplit: p.split != unsplit,
		})
		if p.from, p.save = p.to, now.Add(e.times.Save); quiet {
			delete(e.chats, chat)
		}
		if len(items) == storage.MaxBatch {
			break
		}
	}
	return items
}

// settleSome settles.
func (e *Engine) settleSome(ctx context.Context, items []storage.Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, e.times.Trust)
	defer cancel()
	settled, err := e.cfg.Store.Settle(ctx, items)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range items {
		// What another process has settled, or what may be settled or not, is read again.
		if err != nil || !settled[i] {
			if p := e.chats[items[i].Chat]; p != nil && !p.busy {
				delete(e.chats, items[i].Chat)
			}
		}
	}
	return err
}
