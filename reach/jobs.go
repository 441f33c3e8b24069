package reach

import (
	"context"
	"math"
	"sort"
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

// sweep settles the backlogs that chats have from the time before the first outlet. Nobody wants
// these news.
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
	if err := e.dropParked(ctx, id); err != nil {
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
		var open []storage.Backlog
		for _, chat := range chats {
			from, found, err := e.since(ctx, chat, walk.Since)
			if err != nil {
				return err
			}
			if found {
				open = append(open, storage.Backlog{Outlet: id, Chat: chat, From: from})
			}
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

// since returns the position before the first message of a chat that is not older than a time, less
// slack. found is false if there is none. With a zero time, all news of the chat count.
func (e *Engine) since(
	ctx context.Context, id tidemark.ChatID, at time.Time,
) (from storage.Position, found bool, err error) {
	if at.IsZero() {
		return storage.Position{}, true, nil
	}
	chat, err := e.cfg.Store.Chat(ctx, id)
	if err != nil {
		return storage.Position{}, false, err
	}
	// The first message that is young enough is at first+1.
	first := sort.Search(int(chat.Head), func(n int) bool {
		if err != nil {
			return true
		}
		var pages [][]tidemark.Message
		pages, err = e.cfg.Store.Ranges(ctx,
			[]storage.Range{{Chat: id, After: tidemark.Sequence(n), Limit: 1}})
		return err != nil || len(pages[0]) == 0 || !pages[0][0].CreatedAt.Before(at.Add(-slack))
	})
	from = storage.PositionOf(&chat)
	from.Sequence = tidemark.Sequence(first)
	return from, first < int(chat.Head), err
}
