package chat

import "github.com/tidemark-im/tidemark"

// view is what a member may see of a chat: their intervals, from the floor on. The chat is cut into
// pieces: the longest runs of sequences that are all visible, or that are not for one reason.
type view struct {
	intervals tidemark.Intervals
	floor     tidemark.Sequence
}

// viewOf returns the view of a member of a roster.
func viewOf(r *Roster, m *tidemark.Member) view {
	return view{intervals: m.Intervals, floor: max(1, r.Floor)}
}

// contains reports whether the member may see a message.
func (v view) contains(n tidemark.Sequence) bool {
	return n >= v.floor && v.intervals.Contains(n)
}

// piece returns the end of the first piece of [from, to], and why the member may not see it, or ""
// if they may. from must be at least 1 and at most to.
func (v view) piece(from, to tidemark.Sequence) (end tidemark.Sequence, why tidemark.GapReason) {
	//rule:floor_recorded.gap-below-the-floor
	if from < v.floor {
		return min(to, v.floor-1), tidemark.GapExpired
	}
	//rule:nothing_outside_membership.page-within-membership
	end, visible := v.intervals.Visible(from, to)
	if !visible {
		return end, tidemark.GapNotMember
	}
	return end, ""
}

// before is piece backwards: it returns the start of the last piece of [1, to], and why the member
// may not see it. to must be at least 1.
func (v view) before(to tidemark.Sequence) (from tidemark.Sequence, why tidemark.GapReason) {
	if to < v.floor {
		return 1, tidemark.GapExpired
	}
	from, visible := v.intervals.Before(to)
	if !visible {
		return max(from, v.floor), tidemark.GapNotMember
	}
	return max(from, v.floor), ""
}
