package tidemark

// PendingDelivery is a pending row: a user has not received a chat's messages from
// FirstUndelivered on. A user has at most one row per chat, and later messages do not change it
// (pending-deliveries-table.md; delivery.md §5, pending_once).
type PendingDelivery struct {
	UserID UserID
	ChatID ChatID
	// FirstUndelivered is the first message that the user has not received (inclusive).
	// 0 marks the row of a Large chat. This row stays for as long as the user is a member.
	// It says that an opening session must compare the chat's head.
	FirstUndelivered Sequence
}

// After converts an inclusive first sequence to the exclusive position before it.
// The API and range reads use exclusive positions. 0 stays 0.
func After(first Sequence) Sequence {
	if first == 0 {
		return 0
	}
	//rule:sync_position_from_watermark.after-is-below-first
	return first - 1
}

// First converts an exclusive position, such as a watermark or a cursor, to the sequence after it.
func First(after Sequence) Sequence { return after + 1 }
