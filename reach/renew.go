package reach

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/internal/reread"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// fresh is the age up to which a message is delivered as it was read.
	fresh = 5 * time.Second
	// unreadAfter is when a delivery begins again whose messages could not be read.
	unreadAfter = time.Second
)

// renewing is a client that reads messages again which have waited: before each attempt, those that
// were read longer than fresh ago. They may have been edited or redacted meanwhile.
type renewing struct {
	outlet.Client
	store Store
}

// renewingEach is renewing for an outlet.Each.
type renewingEach struct {
	renewing
	each outlet.Each
}

// newRenewing returns a client that reads messages again before it delivers by another one.
func newRenewing(client outlet.Client, store Store) outlet.Client {
	r := renewing{client, store}
	if each, is := client.(outlet.Each); is {
		return renewingEach{r, each}
	}
	return r
}

// Deliver implements outlet.Client.
func (r renewing) Deliver(
	ctx context.Context, events []outlet.Event,
) (accepted int, refused *outlet.Refusal) {
	now, unread := r.renew(ctx, events)
	if len(now) == 0 {
		return 0, unread
	}
	if size := sizeOf(now); len(now) > 1 && size > max(r.Limits().Bytes, sizeOf(events)) {
		return 0, &outlet.Refusal{Action: outlet.Split} // Edits have made the messages longer.
	}
	if accepted, refused = r.Client.Deliver(ctx, now); refused != nil {
		return accepted, refused
	}
	return len(now), unread
}

// DeliverEach implements outlet.Each.
func (r renewingEach) DeliverEach(ctx context.Context, events []outlet.Event) []*outlet.Refusal {
	now, unread := r.renew(ctx, events)
	var refusals []*outlet.Refusal
	if len(now) > 0 {
		refusals = r.each.DeliverEach(ctx, now)
	}
	for len(refusals) < len(events) {
		refusals = append(refusals, unread)
	}
	return refusals
}

func sizeOf(events []outlet.Event) (size int) {
	for i := range events {
		size += len(events[i].Data)
	}
	return size
}

// renew returns the events with messages that are fresh. They end before the first message that
// cannot be read, and then unread says why not.
func (r renewing) renew(
	ctx context.Context, events []outlet.Event,
) (now []outlet.Event, unread *outlet.Refusal) {
	var keys []storage.MessageKey
	var at []int
	for i := range events {
		e := &events[i]
		//rule:redacted_stays.read-again-before-an-attempt
		if e.Type == outlet.MessagePersisted && time.Since(e.AsOf) >= fresh {
			keys, at = append(keys, keyOf(e)), append(at, i)
		}
	}
	if len(keys) == 0 {
		return events, nil
	}
	began := time.Now()
	now = slices.Clone(events)
	for k, found := range reread.Messages(ctx, r.store, keys) {
		if found.Err != nil {
			return now[:at[k]], &outlet.Refusal{
				Action: outlet.Later, After: unreadAfter, Detail: tidemark.DetailOf(found.Err),
			}
		}
		e := &now[at[k]]
		e.Data, e.AsOf = found.Message.AppendJSON(nil), began
	}
	return now, nil
}

// keyOf returns the key of the message of an event.
func keyOf(e *outlet.Event) storage.MessageKey {
	return storage.MessageKey{Chat: e.Chat, Sequence: tidemark.Sequence(e.Sequence)}
}
