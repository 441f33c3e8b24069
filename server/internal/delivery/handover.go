package delivery

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// lateAfter is the age from which members may have found and acknowledged a message that is handed
// over. Those get no row. Their sessions are notified: another device may lack the message.
const lateAfter = 2 * time.Second

// later reports whether others hand over what is stored from now on.
func (d *Delivery) later() bool { return d.Workers != nil && d.Workers.HandOver() }

// handOverHere does what is left to do on this node for messages that another one hands over. An
// author who is behind others' messages gets their message, or a row, as only this node knows that
// (ackbuffer). A duplicate is handed over whole: its first send may be of a time when no other node
// did so.
func (d *Delivery) handOverHere(ctx context.Context, all []message) {
	var here []message
	var at []int
	for i := range all {
		m := all[i]
		//rule:R_LATER.author-is-of-this-node
		if !m.duplicate && !m.covered {
			m.to = toAuthor
		}
		if m.to != toAll {
			here, at = append(here, m), append(at, i)
		}
	}
	d.handOver(ctx, here)
	for j, i := range at {
		all[i].err = here[j].err
	}
}

// HandOver hands over messages that any node has stored, in order, and returns the error of each.
// It is idempotent: the caller repeats what failed. The authors get no rows; those are the affair
// of the nodes that took the sends.
//
// The leases are looked up now. So a session that opened since the message was stored is notified,
// and a user who is away by now gets a row (R_LATER).
//
// Errors: NotFound (no such chat), Unavailable.
func (d *Delivery) HandOver(ctx context.Context, messages []tidemark.Message) []error {
	ctx, cancel := Detach(ctx)
	defer cancel()
	all := make([]message, len(messages))
	for i := range messages {
		stored := &messages[i]
		m := message{
			draft:   tidemark.Draft{ChatID: stored.ChatID, SenderID: stored.SenderID},
			stored:  stored,
			encoded: stored.AppendJSON(nil),
			version: stored.MembersVersion,
			//rule:R_LATER.no-rows-for-authors
			covered: true,
		}
		//rule:R_LATER.late-message-goes-to-all-sessions
		m.late = d.Now().Sub(stored.CreatedAt) >= lateAfter
		all[i] = m
	}
	//rule:R_WIPE.tell-by-worker
	d.wipe(ctx, all)
	d.tryHandOver(ctx, all)
	errs := make([]error, len(all))
	for i := range all {
		errs[i] = all[i].err
	}
	return errs
}
