package reach

import (
	"context"
	"slices"
	"time"
)

// relied says of which kinds an outlet is active in a list that was read at a time, and
// whether a process lived then that delivers.
type relied struct {
	read   time.Time
	kinds  []string
	served bool
}

// rely notes a list that was read at a time or later. A process that stands aside looks whether
// another one delivers.
func (e *Engine) rely(ctx context.Context, l *list, began time.Time) {
	now := relied{read: began, served: !e.cfg.Aside}
	for i := range l.Outlets {
		if s := &l.Outlets[i]; s.State == Active {
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
