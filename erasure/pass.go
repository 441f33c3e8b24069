package erasure

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// chatsAtOnce is how many chats a step of a pass looks at. Its position is stored after it.
const chatsAtOnce = 100

// start forgets what belongs to no chat, except entries of the audit log and rows.
func (w *Worker) start(ctx context.Context, user tidemark.UserID) error {
	//rule:erased_nowhere.end-sessions
	if err := w.cfg.Core.EndSessions(ctx, user, ""); err != nil {
		return err
	}
	for _, k := range w.cfg.Keepers {
		if err := k.Forget(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

// entries forgets the user of a job in the next entries of the audit log. more reports whether
// there are others.
func (w *Worker) entries(ctx context.Context, j *job) (more bool, err error) {
	if w.cfg.Entries == nil {
		return false, nil
	}
	j.Entry, more, err = w.cfg.Entries.Forget(ctx, j.User, j.Entry)
	return more, err
}

// page does some chats of a pass. done reports that no chat is left.
func (w *Worker) page(
	ctx context.Context, d *storage.Document, j *job,
) (done bool, err error) {
	chats, next, more, err := w.cfg.Store.ChatsNaming(ctx, j.User, j.After, chatsAtOnce)
	if err != nil {
		return false, err
	}
	now := *j
	for _, id := range chats {
		if err := w.erase(ctx, &now, id); err != nil {
			return false, err
		}
	}
	if !more {
		if err := w.rows(ctx, j.User); err != nil {
			return false, err
		}
	}
	*j = now
	if !more {
		// If the process ends before the step does, the last page comes again, and not all chats.
		return true, nil
	}
	j.After = next
	return false, w.put(ctx, d, j)
}

// rows removes the rows that belong to no chat.
func (w *Worker) rows(ctx context.Context, user tidemark.UserID) error {
	for {
		done, err := w.cfg.Store.EraseUser(ctx, user, storage.MaxErased)
		if err != nil || done {
			return err
		}
	}
}

// erase forgets the user of a job in a chat. A chat that is on hold, or that is being deleted,
// imported or changed, is counted and left out.
func (w *Worker) erase(ctx context.Context, j *job, id tidemark.ChatID) error {
	err := w.eraseIn(ctx, j, id)
	switch tidemark.CodeOf(err) {
	case "":
		j.Chats++
		return nil
	case tidemark.NotFound:
		// PurgeChat removes what is left of it. Until then the job waits.
		j.Left++
		return nil
	case tidemark.Conflict, tidemark.Unavailable:
		chat, failed := w.cfg.Store.Chat(ctx, id)
		switch {
		case failed != nil:
			return failed
		case chat.Policy.Hold:
			j.Held++
		case chat.State == tidemark.ChatImporting || tidemark.CodeOf(err) == tidemark.Conflict:
			j.Left++
		default:
			return err
		}
		return nil
	}
	return err
}

func (w *Worker) eraseIn(ctx context.Context, j *job, id tidemark.ChatID) error {
	//rule:erased_nowhere.leave-before-wiping
	if err := w.cfg.Core.LeaveForGood(ctx, id, j.User); err != nil {
		return err
	}
	e := tidemark.Erasure{User: j.User, Alias: j.alias(id), At: time.UnixMilli(j.AskedAt)}
	page := storage.ErasePage{Limit: storage.MaxErased}
	var wiped []tidemark.Sequence
	for {
		if err := w.files(ctx, j, id, page); err != nil {
			return err
		}
		erased, err := w.cfg.Store.EraseMessages(ctx, id, e, page)
		if err != nil {
			return err
		}
		j.Wiped, j.Renamed = j.Wiped+erased.Wiped, j.Renamed+erased.Renamed
		if erased.Wiped+erased.Renamed > 0 {
			w.cfg.Core.Reread(ctx, id, erased.Through)
		}
		//rule:erasure_is_announced.before-the-chat-is-done
		wiped, err = w.announce(ctx, j, id, append(wiped, erased.Erased...), erased.Done)
		if err != nil {
			return err
		}
		if page.After = erased.Through; erased.Done {
			break
		}
	}
	// A process may have ended before it told the nodes. Then nothing is left to wipe here.
	//rule:erased_nowhere.tell-nodes-again
	w.cfg.Core.Reread(ctx, id, page.After)
	for {
		done, err := w.cfg.Store.EraseMember(ctx, id, e, storage.MaxErased)
		if err != nil || done {
			return err
		}
	}
}

// announce tells the members of a chat which messages are wiped, as many at once as a redaction may
// name. It returns the others, of which there are none if they are all. Each part has a key that
// follows from what it names. So a pass that is repeated announces nothing twice.
func (w *Worker) announce(
	ctx context.Context, j *job, id tidemark.ChatID, wiped []tidemark.Sequence, all bool,
) (left []tidemark.Sequence, err error) {
	for len(wiped) >= tidemark.MaxRedactions || all && len(wiped) > 0 {
		n := min(len(wiped), tidemark.MaxRedactions)
		part := wiped[:n:n]
		err := w.cfg.Core.AnnounceErased(ctx, id, j.alias(id), j.announcement(id, part), part)
		if err != nil {
			return nil, err
		}
		wiped = wiped[n:]
	}
	return wiped, nil
}

// files removes the user's files that messages of a page name, before the messages are wiped. A
// chat on hold keeps them.
func (w *Worker) files(
	ctx context.Context, j *job, id tidemark.ChatID, page storage.ErasePage,
) error {
	if w.cfg.Files == nil {
		return nil
	}
	chat, err := w.cfg.Store.Chat(ctx, id)
	if err == nil {
		err = storage.OnHold(id, chat.Policy)
	}
	if err != nil {
		return err
	}
	for last := page.After + tidemark.Sequence(page.Limit); page.After < last; {
		pages, err := w.cfg.Store.Ranges(ctx, []storage.Range{{
			Chat: id, After: page.After, Limit: page.Limit, MaxBytes: 1 << 20, Bare: true,
		}})
		if err != nil || len(pages[0]) == 0 {
			return err
		}
		for _, m := range pages[0] {
			page.After = m.Sequence
			if m.SenderID != j.User || m.Attachments == nil {
				continue
			}
			if err := w.cfg.Files.Remove(ctx, j.User, m.Attachments); err != nil {
				return err
			}
		}
	}
	return nil
}
