package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// receiver is the user whose pending rows the sole writers write.
const receiver tidemark.UserID = "cleo"

// soleWriter is the only writer of a chat and of one user's pending row in it, over all nodes, one
// call at a time. So it knows the possible values of the row.
type soleWriter struct {
	*history
	chat tidemark.ChatID
	sent int
	// head is exact: the writer sends until it is answered.
	head tidemark.Sequence
	// possible are the possible first sequences of the row, 0 for no row. A refused call may have
	// happened, or may happen later.
	possible map[tidemark.Sequence]bool
	late     []change
	// again are confirmed changes that may happen once more until a time.
	again []repetition
}

// repetition is a change that may happen again.
type repetition struct {
	change
	confirmed time.Time
}

// passed reports whether the change cannot happen again any more.
func (o *soleWriter) passed(r repetition) bool {
	if o.history.late {
		return r.confirmed.UnixNano() < o.calm.Load()
	}
	return time.Since(r.confirmed) > o.repeatWindow
}

// change returns the possible values of a row after a Mark or Clear, from its value before.
type change func(first tidemark.Sequence) []tidemark.Sequence

// step makes one call.
func (o *soleWriter) step(ctx context.Context, w *worker) {
	w.node = w.random.IntN(len(w.stores))
	switch what := w.random.IntN(5); {
	case what < 2 || o.head == 0:
		o.sent++
		s := w.compose(o.chat, fmt.Sprintf("o%d", o.sent))
		for !w.append(ctx, []*send{s}) && ctx.Err() == nil && !o.ending.Load() {
			<-time.After(10 * time.Millisecond)
		}
		o.appended() // it is stored, or will be when everything has settled
		if s.sequence != 0 && s.sequence != o.head {
			w.broken("%s: message %d of its only sender is confirmed at %d",
				o.chat, o.head, s.sequence)
		}
	case what == 2:
		first := o.head - tidemark.Sequence(w.random.Int64N(min(int64(o.head), 5)))
		o.did(w.call(ctx, "Mark", func(ctx context.Context, s storage.Store) error {
			_, err := s.Mark(ctx, []tidemark.PendingDelivery{
				{UserID: receiver, ChatID: o.chat, FirstUndelivered: first},
			})
			return err
		}), func(was tidemark.Sequence) []tidemark.Sequence {
			if was != 0 && was < first {
				return []tidemark.Sequence{was}
			}
			return []tidemark.Sequence{first}
		})
	case what == 3:
		through := o.head - tidemark.Sequence(w.random.Int64N(min(int64(o.head), 5)))
		o.did(w.call(ctx, "Clear", func(ctx context.Context, s storage.Store) error {
			_, err := s.Clear(ctx, []storage.Clear{
				{User: receiver, Chat: o.chat, Through: through},
			})
			return err
		}), o.clearing(through))
	default:
		o.look(ctx, w)
	}
}

// clearing returns the change of a Clear that is called now.
func (o *soleWriter) clearing(through tidemark.Sequence) change {
	head := o.head
	return func(was tidemark.Sequence) []tidemark.Sequence {
		switch {
		case was == 0 || was > through:
			return []tidemark.Sequence{was}
		case through < head:
			return []tidemark.Sequence{through + 1}
		case o.head > head: // it happened late
			return []tidemark.Sequence{0, through + 1}
		default:
			return []tidemark.Sequence{0}
		}
	}
}

// appended notes a message. A Clear that happens after it leaves a row.
func (o *soleWriter) appended() {
	o.head++
	o.widen()
}

// did notes a change.
func (o *soleWriter) did(confirmed bool, c change) {
	if !confirmed {
		o.late = append(o.late, c)
	} else {
		after := map[tidemark.Sequence]bool{}
		for first := range o.possible {
			for _, then := range c(first) {
				after[then] = true
			}
		}
		o.possible = after
		if o.repeatWindow > 0 || o.history.late {
			o.again = append(o.again, repetition{c, time.Now()})
		}
	}
	o.widen()
}

// widen adds the possible results of changes that may still happen.
func (o *soleWriter) widen() {
	for len(o.again) > 0 && o.passed(o.again[0]) {
		o.again = o.again[1:]
	}
	changes := slices.Clone(o.late)
	for _, r := range o.again {
		changes = append(changes, r.change)
	}
	for n := -1; n != len(o.possible); {
		n = len(o.possible)
		for first := range maps.Clone(o.possible) {
			for _, c := range changes {
				for _, then := range c(first) {
					o.possible[then] = true
				}
			}
		}
	}
}

// look reads the row, and reports whether the call succeeded.
func (o *soleWriter) look(ctx context.Context, w *worker) bool {
	var rows []storage.PendingRow
	if !w.call(ctx, "PendingOf", func(ctx context.Context, s storage.Store) (err error) {
		rows, _, err = s.PendingOf(ctx, receiver, "", 1000)
		return err
	}) {
		return false
	}
	var first tidemark.Sequence
	for _, row := range rows {
		if row.ChatID == o.chat {
			first = row.FirstUndelivered
		}
	}
	if !o.possible[first] {
		w.broken("%s (head %d): the pending row begins at %d, and can only be one of %v",
			o.chat, o.head, first, slices.Sorted(maps.Keys(o.possible)))
	}
	o.possible = map[tidemark.Sequence]bool{first: true}
	o.widen()
	return true
}

// TestSoleWriter_a_late_clear_may_leave_a_row: a Clear up to the head got no answer. If it happens
// after the next message, it leaves a row that begins with that message.
func TestSoleWriter_a_late_clear_may_leave_a_row(t *testing.T) {
	o := &soleWriter{
		history: &history{}, head: 1, possible: map[tidemark.Sequence]bool{1: true},
	}
	o.did(false, o.clearing(1))
	o.appended()
	got := slices.Sorted(maps.Keys(o.possible))
	if want := []tidemark.Sequence{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("the row can be one of %v, want %v", got, want)
	}
}
