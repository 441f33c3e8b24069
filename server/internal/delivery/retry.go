package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/retry"
)

// retryPause is the time between two attempts.
const retryPause = time.Second

// RetryLoop retries queued work until ctx ends.
func (d *Delivery) RetryLoop(ctx context.Context) {
	for d.Retry.Flag().Wait(ctx) {
		for !d.TryAgain(ctx) {
			if !signal.Pause(ctx, retryPause) {
				return
			}
		}
	}
}

// TryAgain tries all queued work once. It reports whether the queue is empty afterwards.
func (d *Delivery) TryAgain(ctx context.Context) (done bool) {
	due := d.Retry.Take()
	//rule:R_EPOCH.tell-registry-of-lost-retries
	if due.Overflow {
		if err := d.Leases.RaiseEpoch(ctx); err != nil {
			d.Log.Warn("the retry queue overflowed, and the node cannot join the registry; it "+
				"tries again", "error", err)
			d.Retry.Overflow()
		}
	}
	for _, draft := range due.Sends {
		d.sendAgain(ctx, draft)
	}
	d.markAgain(ctx, due.Marks)
	//rule:R_RELOOK.look-up-in-chunks
	for rows := range slices.Chunk(due.Notify, lookupUsers) {
		d.notifyMarked(ctx, rows)
	}
	for entries := range slices.Chunk(due.Follow, lookupUsers) {
		d.follow(ctx, entries)
	}
	return d.Retry.Len() == 0
}

// markAgain retries rows that were not marked.
func (d *Delivery) markAgain(ctx context.Context, rows []tidemark.PendingDelivery) {
	b := retry.Bisect(rows)
	for part := b.Next(); part != nil; part = b.Next() {
		b.Took(d.markBatch(ctx, part))
	}
	if refused, err := d.Retry.Requeue(b); err != nil {
		d.Log.Warn("pending rows were not written; they are tried again, except those that "+
			"storage refused: for these, all sessions reconcile",
			"rows", len(rows), "refused", refused, "error", err)
	}
}

// sendAgain resolves an append by its idempotency key, and then hands the message over. A refusal
// needs no retry: the sender was already told.
func (d *Delivery) sendAgain(ctx context.Context, draft tidemark.Draft) {
	appended, err := d.Storage.Append(ctx, []tidemark.Draft{draft})
	if err == nil {
		err = appended[0].Err
	}
	if err == nil {
		d.handOver(ctx, []message{d.stored(draft, appended[0])})
		return
	}
	if code := tidemark.CodeOf(err); code == tidemark.Unavailable || code == tidemark.Internal {
		//rule:logs_hold_no_secret.log-names-only
		d.Log.Warn("the outcome of a send is still unknown; the node asks again", "chat",
			draft.ChatID, "error", err)
		//rule:pending_or_delivered.retry-failed-send
		d.Retry.Send(draft)
	}
}
