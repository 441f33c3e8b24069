package reach

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

// relied says of which kinds an outlet is active in a list that was read at a time, and
// whether a process lived then that delivers.
type relied struct {
	read   time.Time
	kinds  []string
	served bool
}

// reliance shows the other processes that this one relies on an outlet (Kind.Fixed), so that none
// deletes it meanwhile. It looks at the documents of the others, too, and removes those of dead
// ones.
type reliance struct {
	processes
	// since is from when on the document was there without a gap, and shown when it was last
	// written. next is when it is written again.
	since, shown, next time.Time
}

// show writes the document, if this process relies on an outlet of the list. A document that is not
// written for twice Times.Dead has a gap: another process may remove it after twice that time.
func (e *Engine) show(ctx context.Context, l *list) {
	fixed, relies := false, false
	for i := range l.Outlets {
		kind := e.cfg.Kinds[l.Outlets[i].Kind]
		fixed, relies = fixed || kind.Fixed, relies || kind.Fixed && !kind.Off
	}
	r, now := &e.reliance, time.Now()
	if !fixed || now.Before(r.next) {
		return
	}
	if !relies {
		if r.look(ctx) == nil {
			r.next = now.Add(e.times.Dead / 2)
		}
		return
	}
	if r.beat(ctx, l.version) != nil {
		return // The next look at the list tries again.
	}
	if now.Sub(r.shown) > 2*e.times.Dead {
		r.since = time.Now()
	}
	r.shown, r.next = now, now.Add(e.times.Dead/2)
}

// seen reports whether each deletion that is not under way sees the document of this process.
// Between the look at the documents and the deletion, at most Times.Trust may pass (mayDelete).
func (e *Engine) seen() bool {
	r := &e.reliance
	//rule:R_LATER.rely-only-visibly
	return !r.since.IsZero() && time.Since(r.since) >= 2*e.times.Trust &&
		time.Since(r.shown) <= 2*e.times.Dead
}

// relyNoMore ends the reliance, and removes the document.
func (e *Engine) relyNoMore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.times.Trust)
	defer cancel()
	e.hints.relied.Store(nil)
	e.reliance.leave(ctx)
}

// mayDelete returns Conflict if a process relies on outlets. ctx must end within Times.Trust, and
// with it the deletion.
func (e *Engine) mayDelete(ctx context.Context, id OutletID) error {
	found, _, err := e.cfg.Store.Documents(ctx, reliantKind, "", maxProcesses)
	//rule:R_LATER.delete-what-nobody-relies-on
	if err == nil && len(found) > 0 {
		err = tidemark.Errorf(tidemark.Conflict, "%d other nodes use the outlet %s; delete it "+
			"when none does any more. A node that was killed counts for another %v", len(found), id,
			4*e.times.Dead)
	}
	return err
}

// rely notes a list that was read at a time or later. A process that stands aside looks whether
// another one delivers.
func (e *Engine) rely(ctx context.Context, l *list, began time.Time) {
	e.show(ctx, l)
	now := relied{read: began, served: !e.cfg.Aside}
	for i := range l.Outlets {
		s := &l.Outlets[i]
		if s.State == Active && (!e.cfg.Kinds[s.Kind].Fixed || e.seen()) {
			now.kinds = append(now.kinds, s.Kind)
		}
	}
	if e.cfg.Aside && len(now.kinds) > 0 && e.processes.look(ctx) == nil {
		now.served = e.processes.anyLives()
	}
	e.hints.relied.Store(&now)
}

// Delivers reports whether the own outlet of a kind gets everything that is stored from now on, and
// a process lives that delivers, as this process knew less than Times.Trust ago. It never blocks.
//
// If it is true before something is stored, and after it, then no process settles that for all
// outlets without the outlet (R_LIST).
func (e *Engine) Delivers(kind string) bool {
	known := e.hints.relied.Load()
	//rule:R_LATER.only-with-a-fresh-list
	return known != nil && known.served &&
		time.Since(known.read) < e.times.Trust && slices.Contains(known.kinds, kind)
}

// anyLives reports whether another process has shown lately that it works.
func (p *processes) anyLives() bool {
	for _, s := range p.seen {
		if time.Since(s.changed) <= p.dead {
			return true
		}
	}
	return false
}
