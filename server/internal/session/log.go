package session

import (
	"slices"

	"github.com/tidemark-im/tidemark"
)

// Limits of an eventLog.
const (
	maxRuns     = 1024 // remembered runs (delivery.md §3)
	maxControls = 256  // queued membership, chat_updated and reset events
)

// runKind says what the events of a run carried.
type runKind uint8

const (
	runMessages runKind = iota // count messages of chat, from sequence on
	runGap                     // one gap of chat, from sequence to to
	runStatus                  // one status update of chat
	runCaughtUp                // caught_up
	runControl                 // one membership, chat_updated or reset event, kept in control
	runOwn                     // one own state of chat
)

// run describes consecutive events that were sent, as far as needed to send them again.
type run struct {
	event    uint64
	count    uint32
	kind     runKind
	chat     tidemark.ChatID
	sequence tidemark.Sequence
	to       tidemark.Sequence
	control  *control
}

// control is a membership, chat_updated or reset event, which cannot be derived from stored state.
// If chat is set, only members of that chat may receive it.
type control struct {
	kind    tidemark.EventType
	payload []byte
	chat    tidemark.ChatID
}

// last returns the number of the run's last event.
func (r run) last() uint64 { return r.event + uint64(r.count) - 1 }

// lastSequence returns the last sequence that the run carried.
func (r run) lastSequence() tidemark.Sequence {
	if r.kind == runMessages {
		return r.sequence + tidemark.Sequence(r.count) - 1
	}
	return r.to
}

// after returns the part of the run after a position, which must lie before the run's end.
func (r run) after(position uint64) run {
	//rule:session_in_order.keep-acknowledged-event
	if position >= r.event {
		done := position - r.event + 1
		r.event += done
		r.count -= uint32(done)
		//rule:resume_lossless.cut-run-at-acknowledgement
		r.sequence += tidemark.Sequence(done)
	}
	return r
}

// eventLog numbers a session's events and remembers how to send them again. It also queues the few
// events that are not derived from stored state. Invariants: lastID never falls; base ≤ lastID.
type eventLog struct {
	// lastID is the number of the last event that was sent.
	lastID uint64
	// base is the lowest position from which a client can resume. Earlier events were confirmed, or
	// are forgotten.
	base uint64
	runs []run
	// opening is the queued `session` event, or nil.
	opening  *tidemark.SessionStart
	controls []control
}

// number assigns the next number to an event and remembers the event.
func (l *eventLog) number(kind tidemark.EventType, payload []byte, r run) tidemark.Event {
	l.lastID++
	r.event, r.count = l.lastID, 1
	l.add(r)
	return tidemark.Event{ID: l.lastID, Type: kind, Payload: payload}
}

// add remembers an event. Beyond maxRuns it forgets the oldest runs.
func (l *eventLog) add(r run) {
	if n := len(l.runs); n > 0 && r.kind == runMessages {
		//rule:resume_lossless.join-consecutive-runs
		if last := &l.runs[n-1]; last.kind == runMessages && last.chat == r.chat &&
			last.last()+1 == r.event && last.sequence+tidemark.Sequence(last.count) == r.sequence {
			last.count += r.count
			return
		}
	}
	//rule:bounded_use.limit-runs
	if len(l.runs) >= maxRuns {
		// An eighth is forgotten at once, so that the slice is not shifted for every event.
		drop := maxRuns / 8
		//rule:resume_lossless.raise-base-with-dropped-runs
		l.base = l.runs[drop-1].last()
		l.runs = append(l.runs[:0], l.runs[drop:]...)
	}
	l.runs = append(l.runs, r)
}

// continues reports whether a client can resume after a position.
func (l *eventLog) continues(position uint64) bool {
	//rule:resume_lossless.check-resume-position
	return l.base <= position && position <= l.lastID
}

// forget forgets the events up to a position.
func (l *eventLog) forget(position uint64) {
	if position <= l.base {
		return
	}
	l.base = position
	drop := 0
	for drop < len(l.runs) && l.runs[drop].last() <= position {
		drop++
	}
	if drop > 0 {
		l.runs = append(l.runs[:0], l.runs[drop:]...)
	}
	if len(l.runs) > 0 {
		l.runs[0] = l.runs[0].after(position)
	}
	if len(l.runs) == 0 && cap(l.runs) > 64 {
		l.runs = nil
	}
}

// forgetMessage forgets the events up to the one that carried a message, if that is remembered.
func (l *eventLog) forgetMessage(chat tidemark.ChatID, sequence tidemark.Sequence) {
	for i := len(l.runs) - 1; i >= 0; i-- {
		r := &l.runs[i]
		if r.chat != chat || r.kind > runGap || sequence < r.sequence {
			continue
		}
		if r.kind == runMessages && sequence < r.sequence+tidemark.Sequence(r.count) {
			//rule:resume_lossless.trim-acknowledged-runs
			l.forget(r.event + uint64(sequence-r.sequence))
		}
		if r.kind == runGap && sequence <= r.to {
			l.forget(r.event)
		}
		return
	}
}

// rewind forgets all runs, and returns those after a position so that the caller sends them again.
// The position must be at least base.
func (l *eventLog) rewind(position uint64) []run {
	l.forget(position)
	again := l.runs
	l.runs = nil
	return again
}

// push queues a control. If maxControls are queued, one reset replaces them all, and push returns
// false. The reset makes the client read everything again.
func (l *eventLog) push(c control) bool {
	if len(l.controls) < maxControls {
		l.controls = append(l.controls, c)
		return true
	}
	overflow := tidemark.Reset{Reason: tidemark.ResetOverflow}
	l.controls = append(l.controls[:0], resetControl(overflow))
	return false
}

func resetControl(r tidemark.Reset) control {
	return control{kind: tidemark.EventReset, payload: r.AppendJSON(nil)}
}

// leave drops the queued events of a chat that the user left, and never sends its earlier ones
// again.
func (l *eventLog) leave(chat tidemark.ChatID) {
	//rule:nothing_outside_membership.drop-waiting-events
	l.controls = slices.DeleteFunc(l.controls, func(c control) bool { return c.chat == chat })
	for i := range l.runs {
		if r := &l.runs[i]; r.kind == runControl && r.control.chat == chat {
			//rule:nothing_outside_membership.drop-remembered-events
			r.kind, r.chat = runStatus, chat // sending it again sends only statuses
		}
	}
}

// sendOpening returns the `session` event. Its number is the position before the connection's other
// events. It is not remembered, because a new connection gets its own.
func (l *eventLog) sendOpening() tidemark.Event {
	o := l.opening
	l.opening = nil
	l.lastID++
	o.EventID = l.lastID
	return tidemark.Event{ID: l.lastID, Type: tidemark.EventSession, Payload: o.AppendJSON(nil)}
}

// sendControls appends the queued controls to buf.
func (l *eventLog) sendControls(buf []tidemark.Event) []tidemark.Event {
	for i := range l.controls {
		c := l.controls[i]
		buf = append(buf, l.number(c.kind, c.payload, run{kind: runControl, control: &c}))
	}
	l.controls = l.controls[:0]
	return buf
}
