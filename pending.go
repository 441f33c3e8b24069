package tidemark

// PendingDelivery says that a user still has to receive the messages of a chat from FirstUndelivered on.
// There is at most one for a user and chat, and later messages do not change it
// (pending-deliveries-table.md; delivery.md §5, pending_once).
type PendingDelivery struct {
	UserID UserID
	ChatID ChatID
	// FirstUndelivered is inclusive: the first message that he has not received. 0 stands in the row of a Large chat, which is there as long
	// as he is a member, whatever he has received: it says that the head has to be compared.
	FirstUndelivered Sequence
}

// After converts an inclusive first sequence to the exclusive position that the API and range reads use:
// everything after it. It is the only place where the two meet.
func After(first Sequence) Sequence {
	if first == 0 {
		return 0
	}
	//rule:sync_position_from_watermark.after-is-below-first
	return first - 1
}

// First converts an exclusive position, such as a watermark or a cursor, to the first sequence after it.
func First(after Sequence) Sequence { return after + 1 }
