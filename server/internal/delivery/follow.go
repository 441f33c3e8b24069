package delivery

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// follow notifies sessions that were not on the node where their notification arrived (R_FOLLOW).
// It looks up the lease of the same session:
//
//	lease              what happens
//	none               nothing: the session is over, and the row stays
//	on another node    the session is notified there
//	the same           the session is notified here, if it has come back
//	unknown            the entry stays in the retry queue
//
// If the lease is the same and has no session here, the entry stays too: the session may have come
// and gone. That ends, because a lease without a session is not refreshed.
//
// Other leases of the user need nothing. Their sessions were notified themselves, or have read the
// row when they opened.
func (d *Delivery) follow(ctx context.Context, entries []retry.Follow) {
	users := make([]tidemark.UserID, len(entries))
	for i, f := range entries {
		users[i] = f.Lease.User
	}
	leases, certain := d.Leases.Lookup(ctx, users)
	if !certain {
		d.Retry.Follow(entries)
		return
	}
	var notices []notice
	var of, again []retry.Follow
	for i, f := range entries {
		lease, there := sameSession(leases[i], f.Lease)
		switch {
		case !there:
		case lease == f.Lease:
			//rule:R_FOLLOW.notify-who-came-back
			if !d.notifyHere(f) {
				//rule:R_FOLLOW.look-up-again
				again = append(again, f)
			}
		default:
			n := bus.Notification{Chat: f.Chat, Sequence: f.Sequence, Marked: true}
			//rule:R_FOLLOW.wake-moved-session
			notices = append(notices, notice{Notification: n, to: [][]registry.Lease{{lease}}})
			of = append(of, f)
		}
	}
	d.notify(ctx, notices)
	for i, n := range notices {
		if len(n.unknown) > 0 {
			again = append(again, of[i])
		}
	}
	d.Retry.Follow(again)
}

// sameSession returns the lease that belongs to the same session as of.
func sameSession(leases []registry.Lease, of registry.Lease) (lease registry.Lease, there bool) {
	for _, l := range leases {
		//rule:R_FOLLOW.same-session-only
		if l.Session == of.Session && l.Device == of.Device {
			return l, true
		}
	}
	return registry.Lease{}, false
}

// notifyHere notifies the session of this node that holds the lease. It returns false if there is
// none.
func (d *Delivery) notifyHere(f retry.Follow) bool {
	held := d.Sessions.Held(nil, []registry.Lease{f.Lease})[0]
	return held != nil &&
		held.Notify(session.Notification{Chat: f.Chat, Sequence: f.Sequence, Marked: true})
}
