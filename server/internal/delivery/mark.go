package delivery

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// notice is a notification of one message for several users.
type notice struct {
	bus.Notification
	// to has the leases of each user.
	to [][]registry.Lease
	// missed has the rows of users whom a publication did not reach. unknown has those of them that
	// may be reached by a retry. The others' node has died or is joining again, so their sessions
	// reconcile.
	missed, unknown []tidemark.PendingDelivery
}

// notify publishes notices in order, in one call of the bus, with one publication for each notice
// and node. It fills missed and unknown.
func (d *Delivery) notify(ctx context.Context, notices []notice) {
	var publications []bus.Publication
	var of []*notice
	for i := range notices {
		n := &notices[i]
		for _, to := range registry.ByNode(n.to) {
			event := bus.Event{To: to.Leases, Notification: &n.Notification}
			publications, of = append(publications,
				bus.Publication{Node: to.Node, Event: event}), append(of, n)
		}
	}
	for i, err := range d.publish(ctx, publications) {
		if err == nil {
			continue
		}
		for _, lease := range publications[i].Event.To {
			row := tidemark.PendingDelivery{
				UserID: lease.User, ChatID: of[i].Chat, FirstUndelivered: of[i].Sequence,
			}
			of[i].missed = append(of[i].missed, row)
			//rule:bounded_use.drop-wakes-of-dead-nodes
			if tidemark.CodeOf(err) != tidemark.NotFound {
				of[i].unknown = append(of[i].unknown, row)
			}
		}
	}
}

// Mark writes pending rows. It then looks up their users again and notifies those who came online
// in the meantime (R_RELOOK). After an error some rows may be unwritten; the caller queues all of
// them.
func (d *Delivery) Mark(ctx context.Context, rows []tidemark.PendingDelivery) error {
	for len(rows) > 0 {
		n := min(len(rows), storage.MaxBatch)
		if err := d.markBatch(ctx, rows[:n]); err != nil {
			return err
		}
		//rule:pending_or_delivered.mark-all-batches
		rows = rows[n:]
	}
	return nil
}

// MarkOrRetry marks rows, and after an error queues them for a retry.
func (d *Delivery) MarkOrRetry(ctx context.Context, rows []tidemark.PendingDelivery) error {
	err := d.Mark(ctx, rows)
	//rule:pending_or_delivered.retry-rows-not-marked
	if err != nil {
		d.Retry.Mark(rows)
	}
	return err
}

func (d *Delivery) markBatch(ctx context.Context, rows []tidemark.PendingDelivery) error {
	written, err := d.Storage.Mark(ctx, rows)
	if err != nil {
		d.Count.StorageErrors.Add(1)
		return err
	}
	d.Count.Marks.Add(int64(len(rows)))
	for _, wrote := range written {
		if wrote {
			d.Count.MarksWritten.Add(1)
		}
	}
	//rule:R_RELOOK.look-again-after-mark
	d.notifyMarked(ctx, rows)
	return nil
}

// notifyMarked notifies the online users of rows. If a publication fails, it is retried: a session
// that is open does not read the row.
func (d *Delivery) notifyMarked(ctx context.Context, rows []tidemark.PendingDelivery) {
	if len(rows) == 0 {
		return
	}
	users := make([]tidemark.UserID, len(rows))
	for i, row := range rows {
		users[i] = row.UserID
	}
	leases, certain := d.Leases.Lookup(ctx, users)
	if !certain {
		//rule:R_RELOOK.retry-lookup
		d.Retry.Notify(rows)
	}
	var notices []notice
	for from := 0; from < len(rows); {
		// Rows of one message are adjacent, and need one publication for each node.
		to := from + 1
		for to < len(rows) && rows[to].ChatID == rows[from].ChatID &&
			rows[to].FirstUndelivered == rows[from].FirstUndelivered {
			to++
		}
		n := bus.Notification{Chat: rows[from].ChatID, Sequence: rows[from].FirstUndelivered}
		//rule:R_CLEAR.wake-says-row-stands
		n.Marked = true
		notices = append(notices, notice{Notification: n, to: leases[from:to]})
		from = to
	}
	d.notify(ctx, notices)
	for _, n := range notices {
		//rule:R_RELOOK.retry-failed-wake
		d.Retry.Notify(n.unknown)
	}
}

// Receive notifies the sessions that hold the leases in to. If a lease has no session here, its
// user is marked, even if the device has a newer session (R_ADDR). If a row is marked already, the
// retry queue follows the session, which may have moved (R_FOLLOW). Receive does not block.
func (d *Delivery) Receive(to []registry.Lease, n *bus.Notification) {
	d.Count.Notifications.Add(int64(len(to)))
	//rule:R_WIPE.drop-when-told
	if n.Relation {
		d.Chats.Relate(n.Chat, n.Sequence)
	}
	if n.Message != nil {
		d.Storage.Observe(n.Message)
		d.Chats.Put(d.Chats.Chat(n.Chat), n.Message, n.Encoded)
	}
	//rule:trace_to_acknowledgement.follow-before-notify
	d.Traces.Notified(to, n)
	var few [8]*session.Session
	var rows []tidemark.PendingDelivery
	var follow []retry.Follow
	notification := session.Notification{
		Chat: n.Chat, Sequence: n.Sequence, Message: n.Message, Marked: n.Marked,
	}
	for i, s := range d.Sessions.Held(few[:0], to) {
		switch {
		case s != nil && s.Notify(notification):
		case n.Marked:
			//rule:R_FOLLOW.look-up-who-is-not-here
			follow = append(follow, retry.Follow{Lease: to[i], Chat: n.Chat, Sequence: n.Sequence})
		default:
			rows = append(rows, tidemark.PendingDelivery{
				UserID: to[i].User, ChatID: n.Chat, FirstUndelivered: n.Sequence,
			})
		}
	}
	//rule:R_NOBODY.mark-for-missing-session
	d.Retry.Mark(rows)
	d.Retry.Follow(follow)
}
