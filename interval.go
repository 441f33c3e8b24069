package tidemark

import (
	"strconv"
	"strings"
)

// Interval is a range of sequences, both ends included. If To is 0, the range is open: it has no
// end.
type Interval struct{ From, To Sequence }

// Intervals are the ranges of a chat that one user may see. A range covers what was sent during a
// membership, or before it if the chat shows its full history. The ranges ascend, are disjoint, and
// none is empty. The last one is open exactly if the user is a member now.
type Intervals []Interval

// GapReason says why a range is not shown.
type GapReason string

// The reasons of gaps.
const (
	// GapNotMember means that the messages were sent while the user was not a member.
	GapNotMember GapReason = "not_a_member"
	// GapExpired means that the messages have expired: nobody can see them any more.
	GapExpired GapReason = "expired"
)

// Gap is a range of a chat that the user may not see, both ends included.
// A client counts it as received.
type Gap struct {
	ChatID   ChatID
	From, To Sequence
	Reason   GapReason
}

// Open reports whether the user is a member now.
func (iv Intervals) Open() bool { return len(iv) > 0 && iv[len(iv)-1].To == 0 }

// Contains reports whether the user may see the message at sequence.
func (iv Intervals) Contains(sequence Sequence) bool {
	for _, i := range iv {
		//rule:nothing_outside_membership.interval-ends
		if sequence >= i.From && (i.To == 0 || sequence <= i.To) {
			return true
		}
	}
	return false
}

// Joined returns the intervals after the user joins a chat with the given head.
// The first join shows everything or what follows, as the history mode says.
// A later join (returning) adds what follows to what the user could see before.
// If the user is a member already, Joined returns iv unchanged.
func (iv Intervals) Joined(head Sequence, history HistoryMode, returning bool) Intervals {
	if iv.Open() {
		return iv
	}
	//rule:nothing_outside_membership.new-member-starts-above-head
	from := head + 1
	//rule:nothing_outside_membership.full-history-for-new-members-only
	if !returning && history == HistoryFull {
		from = 1
	}
	joined := append(Intervals(nil), iv...)
	if n := len(joined); n > 0 && joined[n-1].To+1 == from {
		joined[n-1].To = 0
		return joined
	}
	return append(joined, Interval{From: from})
}

// Left returns the intervals after the user leaves a chat with the given head.
// The open interval ends at the head, and disappears if nothing was sent in it.
func (iv Intervals) Left(head Sequence) Intervals {
	if !iv.Open() {
		return iv
	}
	left := append(Intervals(nil), iv...)
	last := &left[len(left)-1]
	//rule:nothing_outside_membership.drop-empty-interval
	if last.From > head {
		return left[:len(left)-1]
	}
	//rule:nothing_outside_membership.end-interval-at-head
	last.To = head
	return left
}

// Visible returns the end of the first piece of [from, to], and whether the user may see that
// piece. A piece is the longest run of sequences that are all visible, or all not. from must be at
// least 1 and at most to.
func (iv Intervals) Visible(from, to Sequence) (end Sequence, visible bool) {
	for _, i := range iv {
		switch {
		case i.To != 0 && i.To < from:
			continue
		case i.From > from:
			//rule:nothing_outside_membership.nothing-before-the-interval
			return min(to, i.From-1), false
		case i.To == 0:
			return to, true
		default:
			//rule:nothing_outside_membership.stop-at-the-end-of-the-interval
			return min(to, i.To), true
		}
	}
	return to, false
}

// Within returns the visible pieces of the range from..to, both ends included.
func (iv Intervals) Within(from, to Sequence) []Interval {
	var pieces []Interval
	for from <= to && from > 0 {
		end, visible := iv.Visible(from, to)
		if visible {
			pieces = append(pieces, Interval{From: from, To: end})
		}
		from = end + 1
	}
	return pieces
}

// Before returns the start of the last piece of [1, to], and whether the user may see that piece.
// It is Visible backwards. to must be at least 1.
func (iv Intervals) Before(to Sequence) (from Sequence, visible bool) {
	from = 1
	for _, i := range iv {
		if i.From > to {
			break
		}
		if i.To == 0 || i.To >= to {
			return i.From, true
		}
		from = i.To + 1
	}
	//rule:nothing_outside_membership.nothing-visible-before
	return from, false
}

// Gaps returns the ranges of [from, to] that the user may not see, in ascending order.
func (iv Intervals) Gaps(chat ChatID, from, to Sequence) []Gap {
	var gaps []Gap
	for from <= to && from > 0 {
		end, visible := iv.Visible(from, to)
		if !visible {
			gaps = append(gaps, Gap{ChatID: chat, From: from, To: end, Reason: GapNotMember})
		}
		from = end + 1
	}
	return gaps
}

// Text returns the intervals as "1-5,9-", the form in which the SQL backends store them.
// No intervals give "".
func (iv Intervals) Text() string {
	var b []byte
	for n, i := range iv {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendUint(b, uint64(i.From), 10), '-')
		//rule:nothing_outside_membership.write-the-end-of-an-interval
		if i.To != 0 {
			b = strconv.AppendUint(b, uint64(i.To), 10)
		}
	}
	return string(b)
}

// ParseIntervals returns the intervals that Text wrote as text.
// It returns an Internal error for any other text.
func ParseIntervals(text string) (Intervals, error) {
	if text == "" {
		return nil, nil
	}
	var intervals Intervals
	for part := range strings.SplitSeq(text, ",") {
		from, to, found := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 64)
		var last uint64
		if err == nil && to != "" {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		if err != nil || !found {
			return nil, Errorf(Internal, "the database contains malformed intervals: %q", text)
		}
		intervals = append(intervals, Interval{From: Sequence(first), To: Sequence(last)})
	}
	return intervals, nil
}
