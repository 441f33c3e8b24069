package frame_test

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
)

// updated returns the update of a chat for some users.
func updated(version uint64, receipts bool, users ...tidemark.UserID) bus.Event {
	return bus.Event{To: leases(users...), Update: &bus.Update{
		ChatUpdate:     tidemark.ChatUpdate{ChatID: "c", Version: version},
		MembersVersion: 7, Receipts: receipts,
	}}
}
