package reach

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Raising a watermark writes no backlog. Instead, a process marks the chat before it raises a
// watermark there, and may then raise watermarks of the chat for a while (R_AHEAD). The mark is a
// backlog at the end of the chat, under an outlet id of its own (receiptsOf). Each mark gives it a
// new stamp (storage.Outbox.Rewind). While no outlet wants receipts, nothing is written.

// receiptsOf names the backlogs that mark the chats for an outlet that wants receipts. It is not
// the id of any outlet.
func receiptsOf(id storage.OutletID) storage.OutletID { return id + "/receipts" }

// ahead knows which chats this process has marked. It is safe for concurrent use.
type ahead struct {
	// markedFor is how long this process may raise watermarks of a chat, from the start of the call
	// that marks it. listedFor is how long a list of outlets may be used.
	markedFor, listedFor time.Duration

	mu sync.Mutex
	// wants has the outlets that want receipts. The list of outlets that says so was read at read.
	read  time.Time
	wants []storage.OutletID
	// young has the times of the marks since turned, and old has earlier ones. Entries of old that
	// are not renewed are dropped at the next turn.
	turned     time.Time
	young, old map[tidemark.ChatID]time.Time
}

// learn notes a list that was read at a time or later.
func (a *ahead) learn(l *list, began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if began.Before(a.read) {
		return
	}
	a.read = began
	var wants []storage.OutletID
	for i := range l.Outlets {
		if s := &l.Outlets[i]; s.State.keeps() && s.wantsReceipts() {
			wants = append(wants, receiptsOf(s.ID))
		}
	}
	//rule:receipts_converge.mark-for-all-that-want-them
	if !slices.Equal(wants, a.wants) {
		a.wants, a.young, a.old = wants, nil, nil
	}
}

// wanted reports whether an outlet wants receipts.
func (a *ahead) wanted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.wants) > 0
}

// missing returns the chats that must be marked before their watermarks rise, and the outlets to
// mark them for. known is false if the list must be read first.
func (a *ahead) missing(
	chats []tidemark.ChatID, now time.Time,
) (left []tidemark.ChatID, wants []storage.OutletID, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.read.IsZero() || now.Sub(a.read) >= a.listedFor {
		return nil, nil, false
	}
	if len(a.wants) == 0 {
		return nil, nil, true
	}
	if a.young == nil || now.Sub(a.turned) >= a.markedFor {
		a.turned, a.old, a.young = now, a.young, map[tidemark.ChatID]time.Time{}
	}
	seen := map[tidemark.ChatID]bool{}
	for _, chat := range chats {
		at, marked := a.young[chat]
		if !marked {
			at, marked = a.old[chat]
		}
		//rule:receipts_converge.raise-while-marked
		if marked && now.Sub(at) < a.markedFor || seen[chat] {
			continue
		}
		seen[chat] = true
		left = append(left, chat)
	}
	return left, a.wants, true
}

// marked records that chats were marked for these outlets at a time.
func (a *ahead) marked(chats []tidemark.ChatID, wants []storage.OutletID, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.wants, wants) || a.young == nil {
		return // The list has changed meanwhile.
	}
	for _, chat := range chats {
		a.young[chat] = at
	}
}

// mark marks chats before their watermarks rise, if an outlet wants receipts (R_AHEAD).
func (e *Engine) mark(ctx context.Context, chats []tidemark.ChatID) error {
	began := time.Now()
	left, wants, known := e.ahead.missing(chats, began)
	if !known {
		l, err := readList(ctx, e.cfg.Store)
		if err != nil {
			return err
		}
		e.ahead.learn(&l, began)
		began = time.Now()
		left, wants, _ = e.ahead.missing(chats, began)
	}
	if len(left) == 0 {
		return nil
	}
	rows := make([]storage.Backlog, 0, len(left)*len(wants))
	for _, outlet := range wants {
		for _, chat := range left {
			rows = append(rows, storage.Backlog{Outlet: outlet, Chat: chat, From: beyond})
		}
	}
	for len(rows) > 0 {
		n := min(len(rows), storage.MaxBatch)
		//rule:receipts_converge.mark-before-raising
		if err := e.cfg.Store.Rewind(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	e.ahead.marked(left, wants, began)
	return nil
}

// Advance marks the chats, and hints at those in which a watermark rose that others see.
func (h *hinting) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	chats := make([]tidemark.ChatID, len(advances))
	for i := range advances {
		chats[i] = advances[i].Chat
	}
	if err := h.engine.mark(ctx, chats); err != nil {
		return nil, err
	}
	advanced, err := h.Store.Advance(ctx, advances)
	for i := range advanced {
		if advanced[i].Shown {
			h.engine.hintReceipts(chats[i])
		}
	}
	return advanced, err
}
