package queue

import (
	"container/list"
	"time"
)

// wheelSeconds is how far a wheel looks ahead: no wait is longer than an hour.
const wheelSeconds = 3_601

// wheel keeps values until a time, in steps of a second. Adding and removing take constant time.
type wheel struct {
	// slots are the values of each second that has any. Seconds count from origin, so that a
	// change of the wall clock changes no wait.
	slots  map[int64]*list.List
	origin time.Time
	// at is the last second whose values were taken. count is how many values there are.
	at    int64
	count int
}

// place is where a value is in a wheel.
type place struct {
	second  int64
	element *list.Element
}

// add keeps a value until due, or until the next second if due has passed.
func (w *wheel) add(now, due time.Time, value any) *place {
	if w.slots == nil {
		w.slots, w.origin = make(map[int64]*list.List), now
	}
	if w.count == 0 {
		w.at = w.second(now)
	}
	second := w.second(due.Add(time.Second - 1))
	second = min(max(second, w.at+1), w.at+wheelSeconds)
	slot, there := w.slots[second]
	if !there {
		slot = list.New()
		w.slots[second] = slot
	}
	w.count++
	return &place{second, slot.PushBack(value)}
}

func (w *wheel) second(t time.Time) int64 { return int64(t.Sub(w.origin) / time.Second) }

// remove forgets a value. A nil place is none, and a value that was taken is not there.
func (w *wheel) remove(p *place) {
	if p == nil || w.slots[p.second] == nil {
		return
	}
	slot := w.slots[p.second]
	slot.Remove(p.element)
	w.count--
	if slot.Len() == 0 {
		delete(w.slots, p.second)
	}
}

// take returns the values that are due.
func (w *wheel) take(now time.Time) (due []any) {
	for w.count > 0 && w.at < w.second(now) {
		w.at++
		slot := w.slots[w.at]
		for slot != nil && slot.Len() > 0 {
			due = append(due, slot.Remove(slot.Front()))
			w.count--
		}
		delete(w.slots, w.at)
	}
	return due
}

// next returns when the first value is due, or zero if there is none.
func (w *wheel) next() time.Time {
	for second := w.at + 1; w.count > 0; second++ {
		if w.slots[second] != nil {
			return w.origin.Add(time.Duration(second) * time.Second)
		}
	}
	return time.Time{}
}
