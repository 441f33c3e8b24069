package delivery

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

// certainAfter is how long after its SendBy a message may still become stored: an attempt began in
// time on a node whose clock is behind, and takes up to writeTimeout.
const certainAfter = time.Minute

// Late resolves a draft that came after its SendBy. It stores nothing. If an earlier send stored
// the message, it hands that message over as Send does.
//
// Errors: Expired (the message is not stored, and never will be), Conflict, NotFound, NotMember,
// Denied (a tidemark.Reader), Unavailable (also while an earlier attempt may still store it).
func (d *Delivery) Late(ctx context.Context, draft tidemark.Draft) Result {
	ctx, cancel := Detach(ctx)
	defer cancel()
	appended, err := d.late(ctx, &draft)
	if err != nil {
		return Result{Err: err}
	}
	all := []message{d.stored(draft, appended, chat.NoTerm)}
	d.wipe(ctx, all)
	d.handOver(ctx, all)
	return all[0].result()
}

func (d *Delivery) late(ctx context.Context, draft *tidemark.Draft) (storage.Appended, error) {
	appended, found, err := d.Storage.Sent(ctx, storage.SendKeyOf(draft))
	switch {
	case err != nil:
		return storage.Appended{}, err
	//rule:send_idempotent.late-is-first-message
	case found:
		return appended, appended.Message.Repeats(draft)
	}
	_, member, err := d.Chats.Member(ctx, draft.SenderID, draft.ChatID)
	switch {
	//rule:caller_does_only_what_they_may.late-send-by-members
	case err != nil:
		return storage.Appended{}, err
	//rule:caller_does_only_what_they_may.late-send-not-by-readers
	case member.Role == tidemark.Reader:
		return storage.Appended{}, storage.NotSender(draft.ChatID, draft.SenderID, true)
	//rule:send_idempotent.expired-when-certain
	case d.Now().Before(draft.SendBy.Add(certainAfter)):
		return storage.Appended{}, tidemark.BadParam(tidemark.Unavailable, "send_by",
			"is over, and an earlier send of this message may still store it; in a minute the "+
				"same send tells whether it did")
	default:
		return storage.Appended{}, tidemark.BadParam(tidemark.Expired, "send_by",
			"is over, and the message is not stored; send it with a new client_message_id, "+
				"or tell its author that it was not sent")
	}
}
