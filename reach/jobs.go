package reach

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// advance takes outlets to their next state. Each outlet has one process that does so. After
// Times.Dead, no process can settle by an older list (R_LIST).
func (e *Engine) advance(ctx context.Context, l list) error {
	known := e.processes.known(l.version)
	for i := range l.Outlets {
		s := &l.Outlets[i]
		if !e.processes.owns(outletName(s.ID)) {
			continue
		}
		if s.Disabling != nil {
			if err := e.announceDisabled(ctx, s); err != nil {
				return err
			}
		}
		switch {
		case s.State == Starting:
			e.job(ctx, s.ID, e.sweep)
		case s.State == Joining:
			//rule:told_or_owed.active-when-all-know
			if known < e.times.Dead {
				continue
			}
			if err := e.move(ctx, s.ID, Joining, Active); err != nil {
				return err
			}
		case s.State == Deleting && known >= e.clearAfter(s):
			e.job(ctx, s.ID, e.clear)
		case s.State == Active && s.Walk != nil:
			e.job(ctx, s.ID, e.walk)
		}
	}
	return nil
}

// clearAfter returns the wait between the deletion of an outlet and the removal of its data. After
// this time all processes know of the deletion: none marks a chat or opens a backlog for it.
func (e *Engine) clearAfter(s *Spec) time.Duration {
	if s.wantsReceipts() {
		return max(e.times.Dead, e.times.Quiet)
	}
	return e.times.Dead
}

// move changes the state of an outlet, if it is still the one that is named.
func (e *Engine) move(ctx context.Context, id storage.OutletID, from, to State) error {
	_, err := editList(ctx, e.cfg.Store, func(l *list) error {
		if s := l.find(id); s != nil && s.State == from {
			s.State = to
		}
		return nil
	})
	if err == nil {
		e.wake.Set()
	}
	return err
}

// job runs a job for an outlet in the background, unless one is under way.
func (e *Engine) job(
	ctx context.Context, id storage.OutletID, do func(context.Context, storage.OutletID) error,
) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobs[id] {
		return
	}
	e.jobs[id] = true
	e.running.Go(func() {
		if err := do(ctx, id); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("a job for an outlet failed; trying again", "outlet", id, "error", err)
		}
		e.mu.Lock()
		delete(e.jobs, id)
		e.mu.Unlock()
	})
}

// beyond is a position above that of every chat.
var beyond = storage.Position{
	Sequence: math.MaxInt64, Members: math.MaxInt64, Version: math.MaxInt64,
}

// sweep settles the backlogs that chats have from the time before the first outlet. No outlet wants
// this news.
func (e *Engine) sweep(ctx context.Context, id storage.OutletID) error {
	if err := e.settleEverywhere(ctx, storage.AllOutlets, e.trust); err != nil {
		return err
	}
	return e.move(ctx, id, Starting, Joining)
}

// clear removes the backlogs of a deleted outlet, and then the outlet.
func (e *Engine) clear(ctx context.Context, id storage.OutletID) error {
	for _, backlogs := range []storage.OutletID{id, receiptsOf(id), pendingOf(id)} {
		err := e.settleEverywhere(ctx, backlogs, func() bool { return true })
		if err != nil {
			return err
		}
	}
	if err := e.dropDocuments(ctx, id); err != nil {
		return err
	}
	_, err := editList(ctx, e.cfg.Store, func(l *list) error {
		for i := range l.Outlets {
			if l.Outlets[i].ID == id && l.Outlets[i].State == Deleting {
				l.Outlets = append(l.Outlets[:i], l.Outlets[i+1:]...)
				return nil
			}
		}
		return nil
	})
	return err
}

// settleEverywhere settles all backlogs for an outlet up to the ends of their chats, as long as it
// may.
func (e *Engine) settleEverywhere(
	ctx context.Context, outlet storage.OutletID, may func() bool,
) error {
	q := storage.BacklogQuery{Outlet: outlet, Shards: allShards(), Limit: listed}
	for more := true; more; {
		var found []storage.Backlog
		var err error
		if found, more, err = e.cfg.Store.Backlogs(ctx, q); err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		items := make([]storage.Settlement, len(found))
		for i, b := range found {
			items[i] = storage.Settlement{Backlog: b, To: beyond}
			q.After = b
		}
		if !may() {
			return tidemark.Errorf(tidemark.Unavailable,
				"this process has not shown for too long that it works")
		}
		if _, err := e.cfg.Store.Settle(ctx, items); err != nil {
			return err
		}
	}
	return nil
}

// allShards returns the numbers of all shards.
func allShards() []int {
	shards := make([]int, storage.Shards)
	for i := range shards {
		shards[i] = i
	}
	return shards
}

// walk opens backlogs of an outlet for all chats, from where a time begins.
func (e *Engine) walk(ctx context.Context, id storage.OutletID) error {
	for ctx.Err() == nil {
		l, err := readList(ctx, e.cfg.Store)
		if err != nil {
			return err
		}
		s := l.find(id)
		if s == nil || s.Walk == nil {
			return nil
		}
		walk := *s.Walk
		if walk.Opened {
			return e.endWalk(ctx, id)
		}
		chats, next, more, err := e.cfg.Store.EachChat(ctx, walk.After, listed)
		if err != nil {
			return err
		}
		open, err := e.since(ctx, chats, walk.Since)
		if err != nil {
			return err
		}
		for i := range open {
			open[i].Outlet = id
		}
		if err := e.cfg.Store.Rewind(ctx, open); err != nil {
			return err
		}
		_, err = editList(ctx, e.cfg.Store, func(l *list) error {
			s := l.find(id)
			if s == nil || s.Walk == nil || *s.Walk != walk {
				return nil // Another replay was asked for, or another process is ahead.
			}
			switch {
			case more:
				s.Walk.After = next
			case walk.First:
				s.Walk.After, s.Walk.Opened = "", true
			default:
				s.Walk = nil
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// endWalk ends the first walk of an outlet when it has no own backlog. Later ones are noted in
// their chats.
func (e *Engine) endWalk(ctx context.Context, id storage.OutletID) error {
	q := storage.BacklogQuery{Outlet: id, Shards: allShards(), Limit: 1}
	found, _, err := e.cfg.Store.Backlogs(ctx, q)
	if err != nil || len(found) > 0 {
		return err
	}
	_, err = editList(ctx, e.cfg.Store, func(l *list) error {
		if s := l.find(id); s != nil && s.Walk != nil && s.Walk.Opened {
			s.Walk = nil
		}
		return nil
	})
	return err
}

// slack is how much the clocks of nodes may differ. The messages of a chat are in the order of
// their times only so far.
const slack = time.Minute

// since returns backlogs of chats that begin before the first message that is not older than a
// time, less slack. Chats without such a message are left out. With a zero time, all news of each
// chat count. What was delivered of changes of the chats and their members is not in them. What may
// be undelivered is: a worker that finds such a backlog leaves it that.
func (e *Engine) since(
	ctx context.Context, chats []tidemark.ChatID, at time.Time,
) ([]storage.Backlog, error) {
	var open []storage.Backlog
	if at.IsZero() {
		for _, chat := range chats {
			open = append(open, storage.Backlog{Chat: chat})
		}
		return open, nil
	}
	searches, err := e.search(ctx, chats, at.Add(-slack))
	if err != nil || len(searches) == 0 {
		return nil, err
	}
	ends, err := e.ends(ctx, searches)
	if err != nil {
		return nil, err
	}
	q := storage.BacklogQuery{}
	for i, s := range searches {
		ends[i].Sequence = s.low
		open = append(open, storage.Backlog{Chat: s.chat, From: ends[i]})
		q.Chats = append(q.Chats, s.chat)
	}
	undelivered, _, err := e.cfg.Store.Backlogs(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, b := range undelivered {
		i := slices.Index(q.Chats, b.Chat)
		//rule:told_or_owed.replay-what-is-undelivered
		open[i].From = open[i].From.Least(b.From)
	}
	return open, nil
}

// search is a binary search for the first message of a chat that is young enough: it is after low,
// and at most after high.
type search struct {
	chat      tidemark.ChatID
	low, high tidemark.Sequence
}

// search finds in each chat the first message that is not older than a time. It leaves out chats
// without one. It looks at one message of every chat in each call, the last one first.
func (e *Engine) search(
	ctx context.Context, chats []tidemark.ChatID, at time.Time,
) ([]search, error) {
	heads, err := e.cfg.Store.Heads(ctx, chats)
	if err != nil {
		return nil, err
	}
	var all []search
	for i, chat := range chats {
		if heads[i] > 0 {
			all = append(all, search{chat: chat, high: heads[i]})
		}
	}
	for last := true; ; last = false {
		var ranges []storage.Range
		var of []int
		for i, s := range all {
			n := (s.low + s.high) / 2
			if last {
				n = s.high - 1
			}
			if s.low < s.high {
				ranges = append(ranges, storage.Range{Chat: s.chat, After: n, Limit: 1, Bare: true})
				of = append(of, i)
			}
		}
		if len(ranges) == 0 {
			return all, nil
		}
		pages, err := e.cfg.Store.Ranges(ctx, ranges)
		if err != nil {
			return nil, err
		}
		for k, i := range of {
			if n := ranges[k].After; len(pages[k]) == 0 || !pages[k][0].CreatedAt.Before(at) {
				all[i].high = n
			} else {
				all[i].low = n + 1
			}
		}
		if last {
			all = slices.DeleteFunc(all, func(s search) bool { return s.low > 0 })
		}
	}
}

// endsAtOnce is how many chats ends reads at once.
const endsAtOnce = 16

// ends returns the positions of all news of some chats.
func (e *Engine) ends(ctx context.Context, of []search) ([]storage.Position, error) {
	ends, errs := make([]storage.Position, len(of)), make([]error, len(of))
	slots := make(chan struct{}, endsAtOnce)
	var group sync.WaitGroup
	for i := range of {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			var chat tidemark.Chat
			chat, errs[i] = e.cfg.Store.Chat(ctx, of[i].chat)
			ends[i] = storage.PositionOf(&chat)
		})
	}
	group.Wait()
	return ends, errors.Join(errs...)
}
