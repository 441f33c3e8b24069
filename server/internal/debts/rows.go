package debts

import (
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// maxTries is how often PayMarks asks at most. To find one row among storage.MaxBatch takes less than 30.
const maxTries = 256

// RowsFor returns a row for each of some users.
func RowsFor(users []tidemark.UserID, chat tidemark.ChatID, first tidemark.Sequence) []tidemark.PendingDelivery {
	rows := make([]tidemark.PendingDelivery, len(users))
	for i, user := range users {
		rows[i] = tidemark.PendingDelivery{UserID: user, ChatID: chat, FirstUndelivered: first}
	}
	return rows
}

// PayMarks has rows marked, batch by batch. A batch that is refused, for another reason than that storage cannot be reached, is halved until it is known which rows of it
// are refused alone: these are returned, with the last error, and not owed any more, since nothing says that they ever can be marked. Having lost them is owed instead. The
// other rows that are not marked are owed again.
func (d *Debts) PayMarks(rows []tidemark.PendingDelivery, mark func([]tidemark.PendingDelivery) error) (refused []tidemark.PendingDelivery, last error) {
	parts := slices.Collect(slices.Chunk(rows, storage.MaxBatch))
	slices.Reverse(parts) // the last is the next
	for tries := 0; len(parts) > 0 && tries < maxTries; tries++ {
		part := parts[len(parts)-1]
		err := mark(part)
		if err != nil {
			last = err
		}
		//rule:pending_or_delivered.retry-unavailable-only
		if tidemark.CodeOf(err) == tidemark.Unavailable {
			break
		}
		parts = parts[:len(parts)-1]
		if half := len(part) / 2; err != nil && half > 0 {
			parts = append(parts, part[half:], part[:half])
		} else if err != nil {
			refused = append(refused, part...)
		}
	}
	for _, part := range parts {
		//rule:pending_or_delivered.retry-failed-rows
		d.Mark(part)
	}
	//rule:pending_or_delivered.raise-epoch-after-refusal
	if len(refused) > 0 {
		d.Lose()
	}
	return refused, last
}
