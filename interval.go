package tidemark

import (
	"strconv"
	"strings"
)

// Interval is a range of sequences, both ends included. To 0 means open: without end.
type Interval struct{ From, To Sequence }

// Intervals are the ranges of a chat that one user may see, because he was a member when they were sent (or
// joined a chat that shows its full history). They ascend, are disjoint and none is empty; the last one is
// open exactly if he is a member now.
type Intervals []Interval

// GapReason says why a range is not shown.
type GapReason string

// GapNotMember means that the messages were sent while the user was not a member.
const GapNotMember GapReason = "not_a_member"

// Gap is a range of a chat, both ends included, that the user may not see. A client counts it as received.
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

// Joined returns the intervals after the user joins a chat whose head is head. A first join shows everything
// or what follows, as the history mode says; a user who returns sees what follows, besides what he saw before.
// It returns iv unchanged if he is a member already.
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

// Left returns the intervals after the user left a chat whose head is head: the open one ends there, and
// disappears if nothing was sent in it.
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

// Visible cuts [from, to] into what comes first: a gap that ends before the next visible message, or a range that may be
// shown. It returns the end of that piece, and whether it may be shown. from must be at least 1 and at most to.
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

// Before is Visible backwards: it returns where the piece of [1, to] begins that ends at to, and whether it may be shown. to must be at least 1.
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

// Gaps returns the ranges of [from, to] that the user may not see, ascending.
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

// Text returns the intervals as "1-5,9-", the form in which the SQL backends store them; "" for none.
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

// ParseIntervals reads what Text wrote. Anything else is an Internal error.
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
			return nil, Errorf(Internal, "the database holds the intervals %q, which are none", text)
		}
		intervals = append(intervals, Interval{From: Sequence(first), To: Sequence(last)})
	}
	return intervals, nil
}
