package debts

import "github.com/tidemark-im/tidemark"

// RowsFor returns a row for each of some users.
func RowsFor(users []tidemark.UserID, chat tidemark.ChatID, first tidemark.Sequence) []tidemark.PendingDelivery {
	rows := make([]tidemark.PendingDelivery, len(users))
	for i, user := range users {
		rows[i] = tidemark.PendingDelivery{UserID: user, ChatID: chat, FirstUndelivered: first}
	}
	return rows
}
