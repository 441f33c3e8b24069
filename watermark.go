package tidemark

import "time"

// Watermark is the highest sequence that a user acknowledged, or read, with nothing missing below
// it. It only grows (ADR-008 Appendix E, watermark_monotonic).
type Watermark = Sequence

// DeliveryState holds both watermarks of one user in one chat, as this user sees them.
// Other members see Exposed: of Read only what the user shows.
type DeliveryState struct {
	UserID UserID
	ChatID ChatID
	// Acked is `last_acked_sequence`: one of the user's devices has everything up to it.
	Acked Watermark
	// Read is `last_read_sequence`: the user has seen everything up to it. It may be above Acked.
	Read Watermark
	// UnreadFrom, if not 0, is where the messages begin that the user marked as unread, although
	// they have read them. It is at most Read, and ends when Read moves. Others do not see it.
	UnreadFrom Sequence
	// AckedAt is when Acked last moved, and ReadAt when Read did. Zero: never.
	AckedAt, ReadAt time.Time
	// HiddenFrom, if not 0, is where the messages begin that the user has read while they hid what
	// they read. It is from 1 to Read. A read that is not hidden ends it.
	HiddenFrom Sequence `json:",omitzero"`
	// ShownAt is ReadAt as it was when HiddenFrom was set. It is zero if HiddenFrom is 0.
	ShownAt time.Time `json:",omitzero"`
	// Hides says whether a read of the user would have been hidden when the state was read. Only
	// States of a store sets it.
	Hides bool `json:",omitzero"`
}

// ShownRead returns what others see of Read.
func (s DeliveryState) ShownRead() Watermark {
	//rule:shown_within_real.hidden-is-not-shown
	if s.HiddenFrom != 0 {
		return s.HiddenFrom - 1
	}
	return s.Read
}

// Shown returns the state as others see it: without what is hidden, and without a mark of unread
// messages.
func (s DeliveryState) Shown() DeliveryState {
	//rule:shown_within_real.time-of-what-is-shown
	if s.HiddenFrom != 0 {
		s.Read, s.ReadAt = s.ShownRead(), s.ShownAt
	}
	s.UnreadFrom, s.HiddenFrom, s.ShownAt, s.Hides = 0, 0, time.Time{}, false
	return s
}

// ShownTo returns the state as another member sees it whose own state in the chat is given. While
// they hide what they read, they do not see what others read, only what was delivered.
func (s DeliveryState) ShownTo(other DeliveryState) DeliveryState {
	s = s.Shown()
	//rule:shown_within_real.states-to-who-hides
	if other.Hides && other.UserID != s.UserID {
		if s.Read > s.Acked {
			s.Acked, s.AckedAt = s.Read, s.ReadAt
		}
		s.Read, s.ReadAt = 0, time.Time{}
	}
	return s
}

// UpdatedAt returns when a watermark last moved, or zero if none ever did.
func (s DeliveryState) UpdatedAt() time.Time {
	if s.ReadAt.After(s.AckedAt) {
		return s.ReadAt
	}
	return s.AckedAt
}

// UnreadAfter returns the last message that does not count as unread: Read, unless the user marked
// messages as unread.
func (s DeliveryState) UnreadAfter() Sequence {
	if s.UnreadFrom != 0 {
		return s.UnreadFrom - 1
	}
	return s.Read
}

// MarkUnread returns the state after the user marked the messages from a sequence on as unread, or
// took that back (0). What is not read is unread anyway, so a mark above Read is none.
func (s DeliveryState) MarkUnread(from Sequence) DeliveryState {
	if s.UnreadFrom = 0; from <= s.Read {
		s.UnreadFrom = from
	}
	return s
}

// Boundary holds a member's watermarks as other members see them.
// Read implies delivered, so Acked is never below Read (delivery.md §5, read_implies_delivered).
type Boundary struct {
	Acked, Read Watermark
	// AckedAt and ReadAt are when the watermarks last moved. The zero value: never, or it is not
	// known.
	AckedAt, ReadAt Millis `json:",omitempty"`
}

// Millis is a time in milliseconds since 1970, or 0 for none.
type Millis int64

// millis returns a time as Millis.
func millis(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Marks returns the user's own watermarks, as a boundary.
func (s DeliveryState) Marks() Boundary {
	return Boundary{
		Acked: s.Acked, Read: s.Read, AckedAt: millis(s.AckedAt), ReadAt: millis(s.ReadAt),
	}
}

// Exposed returns the boundary that others see.
func (s DeliveryState) Exposed() Boundary {
	//rule:shown_within_real.expose-what-is-shown
	return s.Shown().Marks().Exposed()
}

// Exposed returns the boundary that others see of a user's own watermarks. What they read before
// they acknowledged it was delivered when they read it. Once they acknowledge it, AckedAt is the
// time of that.
func (b Boundary) Exposed() Boundary {
	//rule:read_implies_delivered.read-counts-as-delivered
	if b.Read > b.Acked {
		b.Acked, b.AckedAt = b.Read, b.ReadAt
	}
	return b
}

// Unread returns the boundary without what was read. That is what a user sees of others while they
// hide what they read themselves.
func (b Boundary) Unread() Boundary {
	//rule:shown_within_real.hiding-is-mutual
	b.Read, b.ReadAt = 0, 0
	return b
}

// Merge returns the higher value of each watermark, with its time.
// Clients, sessions and caches merge updates, which may be late, repeated or out of order.
func (b Boundary) Merge(other Boundary) Boundary {
	//rule:tick_monotone.merge-keeps-highest
	if other.Acked > b.Acked {
		b.Acked, b.AckedAt = other.Acked, other.AckedAt
	}
	//rule:tick_monotone.merge-keeps-highest-read
	if other.Read > b.Read {
		b.Read, b.ReadAt = other.Read, other.ReadAt
	}
	return b
}

// Least returns the lower value of each watermark, which is what both members have
// (group_delivered_requires_all_members). It has no times.
func (b Boundary) Least(other Boundary) Boundary {
	//rule:group_delivered_requires_all_members.least-of-all
	return Boundary{Acked: min(b.Acked, other.Acked), Read: min(b.Read, other.Read)}
}

// Raise is a request to move a user's watermarks in a chat. A zero field moves nothing.
type Raise struct {
	// Acked is the least value of the acknowledged watermark after the raise.
	Acked Watermark
	// AckedFrom, if not 0, says that the user wrote all messages of [AckedFrom, Acked]. This run
	// counts as acknowledged only if the watermark is at least AckedFrom − 1 when the raise is
	// written (delivery.md §6, "does the author count").
	AckedFrom Sequence
	// Read is the least value of the read watermark after the raise.
	Read Watermark
	// ReadWithinAcked limits Read to the acknowledged watermark after this raise.
	// So a message that never reached the user is never shown as read
	// (delivery.md §6, "reply implies read").
	ReadWithinAcked bool
	// Hidden says that others do not see the raise of Read. A store sets it in the step of Advance,
	// whatever the caller says.
	Hidden bool
}

// Apply returns the state after the raise, and whether a watermark moved.
// It never lowers a watermark. It does not check the chat's head: see Bounded.
func (r Raise) Apply(s DeliveryState, now time.Time) (DeliveryState, bool) {
	acked, read := s.Acked, s.Read
	//rule:watermark_monotonic.raise-acknowledged
	if target := r.Acked; target > acked && (r.AckedFrom == 0 || s.Acked+1 >= r.AckedFrom) {
		acked = target
	}
	target := r.Read
	//rule:read_implies_delivered.read-within-acknowledged
	if r.ReadWithinAcked {
		target = min(target, acked)
	}
	//rule:watermark_monotonic.raise-read
	read = max(read, target)
	//rule:conditional_write_prevents_regression.unchanged-writes-nothing
	if acked == s.Acked && read == s.Read {
		return s, false
	}
	//rule:watermark_monotonic.time-of-each
	if acked != s.Acked {
		s.Acked, s.AckedAt = acked, now
	}
	if read != s.Read {
		switch {
		case !r.Hidden:
			//rule:shown_within_real.shown-again-reveals-all
			s.HiddenFrom, s.ShownAt = 0, time.Time{}
		case s.HiddenFrom == 0:
			//rule:shown_within_real.hide-from-the-next-read-on
			s.HiddenFrom, s.ShownAt = s.Read+1, s.ReadAt
		}
		s.Read, s.ReadAt = read, now
		//rule:unread_exact.newer-read-ends-mark
		s.UnreadFrom = 0
	}
	return s, true
}

// Bounded returns an InvalidSequence error if the raise names a sequence above the head
// (ADR-008 Appendix E, watermark_bounded_by_counter).
func (r Raise) Bounded(head Sequence) error {
	//rule:watermark_bounded_by_counter.acknowledged-at-most-head
	if r.Acked > head {
		return BadParam(InvalidSequence, "last_acked_sequence",
			"is %d, but the chat ends at %d", r.Acked, head)
	}
	//rule:watermark_bounded_by_counter.read-at-most-head
	if r.Read > head {
		return BadParam(InvalidSequence, "last_read_sequence",
			"is %d, but the chat ends at %d", r.Read, head)
	}
	return nil
}

// Tick is the mark that senders see beside their message. It is derived, never stored.
type Tick string

// The ticks (ADR-008 §8.1).
const (
	// TickSending ○: the server has not confirmed the message yet.
	TickSending Tick = "sending"
	// TickSent ✓: the message is stored.
	TickSent Tick = "sent"
	// TickDelivered ✓✓: the message has reached a device of every recipient.
	TickDelivered Tick = "delivered"
	// TickRead blue ✓✓: every recipient has read the message.
	TickRead Tick = "read"
	// TickFailed ✗: the client gave up sending the message.
	TickFailed Tick = "failed"
)

// TickOf returns the tick of a stored message, given the boundary of its recipient.
// In a group, b is the least boundary of all recipients. It is the specification's tick_state.
func TickOf(sequence Sequence, b Boundary) Tick {
	switch {
	//rule:ack_cumulative.read-includes-own-sequence
	case sequence <= b.Read:
		return TickRead
	//rule:ack_cumulative.delivered-includes-own-sequence
	case sequence <= b.Acked:
		return TickDelivered
	default:
		return TickSent
	}
}

// ImplicitRead returns the raise of the read watermark that a run of replies implies for their
// author, who wrote all of [from, to]. The author has read everything before the run, up to what
// the client says it showed. If the client does not say, the raise stops at what had reached the
// author. Who has read everything before the run has also read the run.
func ImplicitRead(from, to Sequence, seen Seen) Raise {
	switch {
	case !seen.Stated:
		//rule:read_implies_delivered.reply-reads-within-acknowledged
		return Raise{Read: to, ReadWithinAcked: true}
	//rule:group_delivered_requires_all_members.author-reads-own-run
	case seen.Through > 0 && seen.Through+1 >= from:
		return Raise{Read: to}
	default:
		//rule:read_implies_delivered.reply-reads-what-was-seen
		return Raise{Read: seen.Through}
	}
}
