package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// room is a chat in the sequential specification. It is a value that == compares. Each method
// returns the room afterwards, and the result as text.
type room struct {
	mode    tidemark.HistoryMode
	version uint64
	head    tidemark.Sequence
	// log has a line for each message.
	log   string
	seats [len(seatNames)]seat
}

// seatNames are the names of the people, ascending.
var seatNames = [...]string{"alice", "bob", "carol", "dave"}

// seat is the state of one person in a room.
type seat struct {
	// ever says that the person was a member at some time. intervals is Intervals.Text.
	ever      bool
	intervals string
	acked     tidemark.Sequence
	read      tidemark.Sequence
	// ackedAt and readAt are when the watermarks last moved, since at(0).
	ackedAt, readAt time.Duration
	// marked is the first undelivered sequence of the pending row, 0 if there is no row.
	marked tidemark.Sequence
}

func newRoom(mode tidemark.HistoryMode, members int) room {
	r := room{mode: mode, version: 1}
	for i := range members {
		r.seats[i] = seat{ever: true, intervals: tidemark.Intervals{{From: 1}}.Text()}
	}
	return r
}

func (s seat) visible() tidemark.Intervals {
	intervals, err := tidemark.ParseIntervals(s.intervals)
	if err != nil {
		panic(err) // impossible: Intervals.Text wrote it
	}
	return intervals
}

func (s seat) member() bool { return s.visible().Open() }

func (s seat) state() tidemark.DeliveryState {
	state := tidemark.DeliveryState{Acked: s.acked, Read: s.read}
	if s.ackedAt != 0 {
		state.AckedAt = at(0).Add(s.ackedAt)
	}
	if s.readAt != 0 {
		state.ReadAt = at(0).Add(s.readAt)
	}
	return state
}

// with returns the seat with a delivery state.
func (s seat) with(state tidemark.DeliveryState) seat {
	s.acked, s.read = state.Acked, state.Read
	if !state.AckedAt.IsZero() {
		s.ackedAt = state.AckedAt.Sub(at(0))
	}
	if !state.ReadAt.IsZero() {
		s.readAt = state.ReadAt.Sub(at(0))
	}
	return s
}

// stateText describes a delivery state.
func stateText(s tidemark.DeliveryState) string {
	since := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.Sub(at(0)).String()
	}
	return fmt.Sprintf("%d moved %s, %d moved %s", s.Acked, since(s.AckedAt), s.Read,
		since(s.ReadAt))
}

// sent is a draft as text. No field contains a space.
type sent struct{ sender, key, text, id string }

func (d sent) line(version uint64) string {
	return fmt.Sprintf("%s %s %s %s v%d\n", d.sender, d.key, d.text, d.id, version)
}

// messageText describes a stored message as room does.
func messageText(n tidemark.Sequence, line string) string {
	return fmt.Sprintf("%d: %s", n, strings.TrimSuffix(line, "\n"))
}

// append returns the result of each draft, in their order. A draft that the store refused alone as
// Unavailable changes nothing: a store may refuse any draft, and then has not stored it.
func (r room) append(drafts []sent, refused []bool) (room, string) {
	var answers []string
	for i, d := range drafts {
		answer := string(tidemark.Unavailable)
		//rule:send_idempotent.refused-draft-is-not-stored
		if !refused[i] {
			r, answer = r.appendOne(d)
		}
		answers = append(answers, answer)
	}
	return r, strings.Join(answers, "; ")
}

func (r room) appendOne(d sent) (room, string) {
	n := tidemark.Sequence(0)
	for line := range strings.Lines(r.log) {
		n++
		if strings.HasPrefix(line, d.sender+" "+d.key+" ") {
			if strings.Fields(line)[2] != d.text {
				return r, string(tidemark.Conflict)
			}
			return r, messageText(n, line) + " again"
		}
	}
	if !r.seats[slices.Index(seatNames[:], d.sender)].member() {
		return r, string(tidemark.NotMember)
	}
	r.head++
	line := d.line(r.version)
	r.log += line
	return r, messageText(r.head, line)
}

// page describes the messages from..to.
func (r room) page(from, to tidemark.Sequence) string {
	var lines []string
	n := tidemark.Sequence(0)
	for line := range strings.Lines(r.log) {
		if n++; n >= from && n <= to {
			lines = append(lines, messageText(n, line))
		}
	}
	return strings.Join(lines, "; ")
}

func (r room) advance(who int, raise tidemark.Raise, now time.Time) (room, string) {
	if err := raise.Bounded(r.head); err != nil {
		return r, string(tidemark.CodeOf(err))
	}
	state, moved := raise.Apply(r.seats[who].state(), now)
	r.seats[who] = r.seats[who].with(state)
	return r, advancedText(state, moved)
}

func advancedText(state tidemark.DeliveryState, moved bool) string {
	return fmt.Sprintf("%s, by this %t", stateText(state), moved)
}

func (r room) add(people []int, now time.Time) (room, string) {
	var joined []string
	for _, who := range people {
		s := &r.seats[who]
		if !s.member() {
			s.intervals = s.visible().Joined(r.head, r.mode, s.ever).Text()
			if !s.ever && r.mode == tidemark.HistorySinceJoin {
				r, _ = r.advance(who, tidemark.Raise{Acked: r.head, Read: r.head}, now)
				s = &r.seats[who]
			}
			s.ever = true
			joined = append(joined, seatNames[who])
		}
	}
	if len(joined) > 0 {
		r.version++
	}
	return r, addedText(r.version, r.head, joined)
}

func addedText(version uint64, head tidemark.Sequence, joined []string) string {
	return fmt.Sprintf("v%d at %d, new: %s", version, head, strings.Join(joined, " "))
}

func (r room) remove(who int) (room, string) {
	s := &r.seats[who]
	if !s.member() {
		return r, string(tidemark.NotMember)
	}
	s.intervals, s.marked = s.visible().Left(r.head).Text(), 0
	r.version++
	return r, removedText(r.version, r.head)
}

func removedText(version uint64, head tidemark.Sequence) string {
	return fmt.Sprintf("v%d at %d", version, head)
}

func (r room) mark(who int, first tidemark.Sequence) (room, string) {
	s := &r.seats[who]
	if s.marked != 0 && s.marked <= first {
		return r, "stands"
	}
	s.marked = first
	return r, "written"
}

func (r room) clear(who int, through tidemark.Sequence) (room, string) {
	s := &r.seats[who]
	switch {
	case s.marked == 0 || s.marked > through:
		return r, "left"
	case through >= r.head:
		s.marked = 0
	default:
		s.marked = through + 1
	}
	return r, "cleared"
}

// pending describes a pending row with its watermark.
func (r room) pending(who int) string {
	if r.seats[who].marked == 0 {
		return "none"
	}
	return pendingText(r.seats[who].marked, r.seats[who].acked)
}

func pendingText(first, acked tidemark.Sequence) string {
	return fmt.Sprintf("from %d, acked %d", first, acked)
}

func (r room) behind(who int) string {
	if s := r.seats[who]; !s.member() || r.head <= s.acked {
		return "no"
	}
	return fmt.Sprintf("head %d", r.head)
}

// members describes the roster.
func (r room) members() string {
	var members []string
	for who, s := range r.seats {
		if s.member() {
			members = append(members, seatNames[who]+" "+s.intervals)
		}
	}
	return rosterText(r.version, members)
}

func rosterText(version uint64, members []string) string {
	return fmt.Sprintf("v%d: %s", version, strings.Join(members, ", "))
}

// info describes the chat.
func (r room) info() string {
	members := 0
	for _, s := range r.seats {
		if s.member() {
			members++
		}
	}
	return infoText(tidemark.Chat{Head: r.head, MemberCount: members, MembersVersion: r.version})
}

func infoText(c tidemark.Chat) string {
	return fmt.Sprintf("head %d, %d members, v%d", c.Head, c.MemberCount, c.MembersVersion)
}
