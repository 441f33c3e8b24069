package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/storage"
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

// resolve appends a draft, or finds its message if its time is over.
func (d *Delivery) resolve(
	ctx context.Context, draft *tidemark.Draft,
) (storage.Appended, error) {
	//rule:send_idempotent.late-after-send-by
	if draft.LateAt(d.Now()) {
		return d.late(ctx, draft)
	}
	return storage.AppendOne(ctx, d.Storage, *draft)
}

// sendAgain resolves an append by its idempotency key, and then hands the message over. A refusal
// needs no retry: the sender was already told, or asks again.
func (d *Delivery) sendAgain(ctx context.Context, draft tidemark.Draft) {
	appended, err := d.resolve(ctx, &draft)
	if err == nil {
		all := []message{d.stored(draft, appended, chat.NoTerm)}
		//rule:R_WIPE.tell-after-retry
		d.wipe(ctx, all)
		d.handOver(ctx, all)
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
