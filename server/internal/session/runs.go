package session

import "github.com/tidemark-im/tidemark"

// maxRuns is how many runs a session remembers (delivery.md §3).
const maxRuns = 1024

// runKind says what a run of events carried.
type runKind uint8

const (
	runMessages runKind = iota // count messages of chat, from sequence on
	runGap                     // one gap of chat, from sequence to to
	runStatus                  // one status update of chat
	runCaughtUp                // caught_up
	runControl                 // one membership or reset event: what it carried
)

// run is consecutive events that a session sent, as far as it must remember to send them again.
type run struct {
	event    uint64
	count    uint32
	kind     runKind
	chat     tidemark.ChatID
	sequence tidemark.Sequence
	to       tidemark.Sequence
	control  *control
}

// last is the number of the run's last event.
func (r run) last() uint64 { return r.event + uint64(r.count) - 1 }

// runLog is what a session remembers of the events after the position base. It is not safe for concurrent use.
type runLog struct {
	// base is the lowest position from which the session can go on: everything up to it was confirmed or forgotten.
	base uint64
	runs []run
}

// add remembers an event. The oldest run is forgotten beyond maxRuns.
func (l *runLog) add(r run) {
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
		// Forget an eighth at once, so that a long log is not moved for every event.
		drop := maxRuns / 8
		//rule:resume_lossless.raise-base-with-dropped-runs
		l.base = l.runs[drop-1].last()
		l.runs = append(l.runs[:0], l.runs[drop:]...)
	}
	l.runs = append(l.runs, r)
}

// forgetControls lets no event about a chat be sent again.
func (l *runLog) forgetControls(chat tidemark.ChatID) {
	for i := range l.runs {
		if r := &l.runs[i]; r.kind == runControl && r.control.chat == chat {
			r.kind, r.chat = runStatus, chat // nothing but the chat's statuses would be sent again
		}
	}
}

// confirm forgets everything up to a position.
func (l *runLog) confirm(position uint64) {
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

// confirmMessage forgets everything up to the event that carried a message, if it is remembered.
func (l *runLog) confirmMessage(chat tidemark.ChatID, sequence tidemark.Sequence) {
	for i := len(l.runs) - 1; i >= 0; i-- {
		r := &l.runs[i]
		if r.chat != chat || r.kind > runGap || sequence < r.sequence {
			continue
		}
		if r.kind == runMessages && sequence < r.sequence+tidemark.Sequence(r.count) {
			//rule:resume_lossless.trim-acknowledged-runs
			l.confirm(r.event + uint64(sequence-r.sequence))
		}
		if r.kind == runGap && sequence <= r.to {
			l.confirm(r.event)
		}
		return
	}
}

// rewind returns what was sent after a position and forgets all of it: the caller sends it again. The position must be at least base.
func (l *runLog) rewind(position uint64) []run {
	l.confirm(position)
	again := l.runs
	l.runs = nil
	return again
}

// after cuts off the events up to a position, which lies before the run's end.
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
