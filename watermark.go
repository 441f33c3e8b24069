package tidemark

import "time"

// Watermark is the highest sequence that a user acknowledged, or read, with nothing missing below it.
// It only grows (ADR-008 Appendix E, watermark_monotonic).
type Watermark = Sequence

// DeliveryState is both watermarks of one user in one chat, raw, as the user himself sees them.
// Others see Exposed.
type DeliveryState struct {
	UserID UserID
	ChatID ChatID
	// Acked is `last_acked_sequence`: everything up to it is delivered to one of his devices.
	Acked Watermark
	// Read is `last_read_sequence`: everything up to it he has seen. It may be above Acked.
	Read Watermark
	// UpdatedAt is when either last moved; zero if neither ever did.
	UpdatedAt time.Time
}

// Boundary is what others see of a member: read implies delivered, so Acked is never below Read
// (delivery.md §5, read_implies_delivered).
type Boundary struct{ Acked, Read Watermark }

// Exposed returns the boundary that others see.
func (s DeliveryState) Exposed() Boundary {
	//rule:read_implies_delivered.read-counts-as-delivered
	return Boundary{Acked: max(s.Acked, s.Read), Read: s.Read}
}

// Merge returns the higher of each watermark: how a client, a session or a cache takes in news that may be
// late, doubled or out of order.
func (b Boundary) Merge(other Boundary) Boundary {
	//rule:tick_monotone.merge-keeps-highest
	return Boundary{Acked: max(b.Acked, other.Acked), Read: max(b.Read, other.Read)}
}

// Least returns the lower of each watermark: what "all of them" have (group_delivered_requires_all_members).
func (b Boundary) Least(other Boundary) Boundary {
	//rule:group_delivered_requires_all_members.least-of-all
	return Boundary{Acked: min(b.Acked, other.Acked), Read: min(b.Read, other.Read)}
}

// Raise is one request to move the watermarks of a user in a chat. Zero fields leave their watermark.
type Raise struct {
	// Acked is where the acknowledged watermark shall be at least.
	Acked Watermark
	// AckedFrom, if not 0, is the first message of a run that the user wrote himself, [AckedFrom, Acked]: it
	// counts as acknowledged only if everything before it is, that is, if the watermark is at least
	// AckedFrom − 1 when the raise is written (delivery.md §6, "does the author count").
	AckedFrom Sequence
	// Read is where the read watermark shall be at least.
	Read Watermark
	// ReadWithinAcked bounds Read by the acknowledged watermark as this raise leaves it: what never reached him is
	// never shown as read (delivery.md §6, "reply implies read").
	ReadWithinAcked bool
}

// Apply returns the state after the raise, and whether anything moved. It never lowers a watermark.
// It does not look at the head: see Bounded.
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
	s.Acked, s.Read, s.UpdatedAt = acked, read, now
	return s, true
}

// Bounded returns an InvalidSequence error if the raise names a sequence above the head
// (ADR-008 Appendix E, watermark_bounded_by_counter).
func (r Raise) Bounded(head Sequence) error {
	//rule:watermark_bounded_by_counter.acknowledged-at-most-head
	if r.Acked > head {
		return Errorf(InvalidSequence, "last_acked_sequence is %d, but the chat ends at %d", r.Acked, head)
	}
	//rule:watermark_bounded_by_counter.read-at-most-head
	if r.Read > head {
		return Errorf(InvalidSequence, "last_read_sequence is %d, but the chat ends at %d", r.Read, head)
	}
	return nil
}

// Tick is what a sender sees beside his message. It is derived, never stored.
type Tick string

// The ticks (ADR-008 §8.1).
const (
	// TickSending ○: not yet confirmed.
	TickSending Tick = "sending"
	// TickSent ✓: stored.
	TickSent Tick = "sent"
	// TickDelivered ✓✓: it reached a device of every recipient.
	TickDelivered Tick = "delivered"
	// TickRead blue ✓✓: every recipient has read it.
	TickRead Tick = "read"
	// TickFailed ✗: given up.
	TickFailed Tick = "failed"
)

// TickOf is the specification's tick_state: the tick of a stored message given the boundary of its
// recipient, or the least boundary of all of them.
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

// ImplicitRead is the raise that a reply at sequence implies for its author: everything before the reply, up
// to what the client says it had shown (seen, 0 if it says nothing), or else to what had reached him.
func ImplicitRead(reply, seen Sequence) Raise {
	if seen > 0 {
		//rule:read_implies_delivered.reply-reads-what-was-seen
		return Raise{Read: min(reply-1, seen)}
	}
	//rule:read_implies_delivered.reply-reads-within-acknowledged
	return Raise{Read: reply - 1, ReadWithinAcked: true}
}
