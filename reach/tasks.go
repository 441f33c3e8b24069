package reach

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
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
	if err := e.beginHinted(ctx, hinted, until); err != nil || !all {
		return err
	}
	if err := e.settle(ctx, false); err != nil {
		return err
	}
	return e.beginListed(ctx, own, until)
}

// beginHinted begins to work on the chats of some lines that have a backlog. The list has those for
// which half of the time is not enough.
func (e *Engine) beginHinted(
	ctx context.Context, lines map[line]struct{}, until time.Time,
) error {
	halfway := time.Now().Add(time.Until(until) / 2)
	chats := make([]tidemark.ChatID, 0, len(lines))
	for of := range lines {
		if of.feed == feedNews && e.hints.own(of.chat) {
			chats = append(chats, of.chat)
		}
	}
	for some := range slices.Chunk(chats, listed) {
		if !time.Now().Before(halfway) {
			break
		}
		found, _, err := e.cfg.Store.Backlogs(ctx, storage.BacklogQuery{Chats: some})
		if err == nil {
			_, err = e.begin(ctx, found, until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beginListed begins to work on the list of the backlogs for all outlets. It goes on where the last
// call ended, until the end of the list or a time.
func (e *Engine) beginListed(ctx context.Context, own []int, until time.Time) error {
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
		begun, err := e.begin(ctx, found, until)
		if begun > 0 {
			e.after = found[begun-1]
		}
		if begun < len(found) || err != nil {
			return err
		}
		if !more || len(found) == 0 {
			e.after = storage.Backlog{}
			return nil
		}
	}
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

// task is the news of a chat that is to be delivered.
type task struct {
	backlog storage.Backlog
	// place is that of the backlog among those that were read together.
	place int
	// progress is noted when the task ends. to and split are what it was at the beginning.
	progress *progress
	to       storage.Position
	split    split
	list     list
	// page has the first messages after to, or nothing, and asOf is when they were read.
	page []tidemark.Message
	asOf time.Time
}

// begin begins to work on backlogs, unless that is under way. begun is how many of them, from the
// first one on, need no more. The others have found no slot in time.
func (e *Engine) begin(
	ctx context.Context, found []storage.Backlog, until time.Time,
) (begun int, err error) {
	tasks := e.claim(found)
	e.readAhead(ctx, tasks)
	for i := range tasks {
		t := &tasks[i]
		if err := e.slot(ctx, until); err != nil {
			for _, left := range tasks[i:] {
				e.leave(&left)
			}
			return t.place, ctx.Err()
		}
		e.running.Go(func() {
			defer func() { <-e.slots }()
			to, split, err := e.deliver(ctx, t)
			e.put(t.backlog.Chat, t.progress, to, split)
			if err != nil && ctx.Err() == nil {
				e.cfg.Log.Warn("the news of a chat cannot be delivered now; trying again",
					"chat", t.backlog.Chat, "error", err)
			}
		})
	}
	return len(found), nil
}

// leave ends a task that has not begun. Nothing of it needs to be settled. Another task of the chat
// may have begun meanwhile; then its progress is kept.
func (e *Engine) leave(t *task) {
	chat, p := t.backlog.Chat, t.progress
	e.put(chat, p, t.to, t.split)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.chats[chat] == p && p.work == resting && p.from == p.to {
		delete(e.chats, chat)
	}
}

// claim returns the tasks of some backlogs. A backlog of which everything was delivered only needs
// to be settled. That of a chat that is being imported is left alone, also if the import has ended
// since it was read: before its end the importer settles it, so that outlets get nothing of it.
func (e *Engine) claim(found []storage.Backlog) []task {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	var tasks []task
	for i := range found {
		b := &found[i]
		//rule:import_once.outlets-leave-it-alone
		if b.Importing {
			continue
		}
		p := e.chats[b.Chat]
		switch {
		case p == nil:
			p = &progress{
				from: b.From, to: b.From, split: splitOf(b), moved: now, save: e.firstSave(now),
			}
			e.chats[b.Chat] = p
		case p.work != resting:
			p.work.news()
			continue
		case p.from != b.From && b.From.Covers(p.from):
			// Another process has settled it.
			p.from, p.to, p.split = b.From, p.to.Most(b.From), max(p.split, splitOf(b))
		}
		if p.to.Covers(b.End) {
			continue
		}
		p.work.begin()
		tasks = append(tasks, task{
			backlog: *b, place: i, progress: p, to: p.to, split: p.split, list: e.list,
		})
	}
	return tasks
}

// aheadBytes bounds what is read ahead for all tasks that begin together.
const aheadBytes = 8 << 20

// readAhead reads the first messages of several tasks in one call. Most tasks need nothing else.
func (e *Engine) readAhead(ctx context.Context, tasks []task) {
	var of []*task
	for i := range tasks {
		if t := &tasks[i]; t.onlyMessages() {
			of = append(of, t)
		}
	}
	if len(of) < 2 {
		return
	}
	ranges := make([]storage.Range, len(of))
	for i, t := range of {
		ranges[i] = storage.Range{
			Chat: t.backlog.Chat, After: t.to.Sequence,
			Limit:    min(pageMessages, int(t.backlog.End.Sequence-t.to.Sequence)),
			MaxBytes: min(pageBytes, aheadBytes/len(of)),
		}
	}
	asOf := time.Now()
	pages, err := e.cfg.Store.Ranges(ctx, ranges)
	if err != nil {
		return // One chat may be the cause. Each task reads its own messages.
	}
	for i, t := range of {
		t.page, t.asOf = pages[i], asOf
	}
}

// onlyMessages reports whether the chat and its members have not changed.
func (t *task) onlyMessages() bool {
	return t.to.Members >= t.backlog.End.Members && t.to.Version >= t.backlog.End.Version
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
	if p.work.end() {
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
		if p.work != resting || !quiet && !due {
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
			if p := e.chats[items[i].Chat]; p != nil && p.work == resting {
				delete(e.chats, items[i].Chat)
			}
		}
	}
	return err
}
