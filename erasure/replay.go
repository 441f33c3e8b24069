package erasure

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage"
)

// Users is what Replay needs of a store, to find all users.
type Users interface {
	EachChat(ctx context.Context, after tidemark.ChatID, limit int) (chats []tidemark.ChatID,
		next tidemark.ChatID, more bool, err error)
	MembersSince(ctx context.Context, q storage.MembersQuery) (changed []storage.ChangedMember,
		more bool, err error)
	storage.Traces
	ListAudit(ctx context.Context, page storage.AuditPage) (entries []storage.AuditEntry, more bool,
		err error)
}

const (
	// usersAtOnce is how many chats, members or documents Replay reads at once.
	usersAtOnce = 500
	// replays is how often Replay tries a user with whom another process is busy, too.
	replays      = 50
	replaysPause = 100 * time.Millisecond
)

// Replay erases the users again who are in the ledger, as far as the database has something of
// them. It is called before the server serves anybody, because a restored backup may have them.
// When it returns nil, their chats are wiped. Run does the rest: what comes after a minute.
//
// It reads all members of all chats. It reads the rest that names users, which takes long, only if
// the database does not say that this was done with the ledger (digested): after a restore, or at
// the first start.
func (w *Worker) Replay(ctx context.Context, users Users) error {
	if w.cfg.Register.ledger.empty() {
		return nil
	}
	digest := w.cfg.Register.ledger.digest()
	noted, err := w.cfg.Store.DocumentsOf(ctx, []storage.DocumentKey{digested})
	if err != nil {
		return err
	}
	found := map[tidemark.UserID]struct{}{}
	note := func(user tidemark.UserID) {
		//rule:erased_nowhere.replay-the-ledger
		if w.cfg.Register.ledger.has(user) {
			found[user] = struct{}{}
		}
	}
	if err := w.members(ctx, users, note); err != nil {
		return err
	}
	if err := w.documents(ctx, note); err != nil {
		return err
	}
	if string(noted[0].Value) != digest {
		//rule:erased_nowhere.replay-those-in-no-chat
		if err := named(ctx, users, note); err != nil {
			return err
		}
	}
	for user := range found {
		if err := w.again(ctx, user); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		w.cfg.Log.Warn("users were erased again, because the database had something of them: it "+
			"was restored from a backup", "users", len(found))
	}
	_, _, err = storage.EditDocument(ctx, w.cfg.Store, digested,
		func([]byte) ([]byte, error) { return []byte(digest), nil })
	return err
}

// digested names the document that has the digest of a ledger of which the database has nothing in
// blocks, bans, settings of receipts, mentions and the audit log. A backup has the document of its
// time, so it says nothing of later erasures.
var digested = storage.DocumentKey{Kind: "ledger", Name: "digest"}

// record writes a user to the ledger. They are erased by now, so the digest may move on, if the
// database had that of the ledger before. If another node has written to the ledger, or this
// process ends here, it does not move, and the next start reads more than it must.
func (w *Worker) record(ctx context.Context, user tidemark.UserID) error {
	ledger := w.cfg.Register.ledger
	before := ledger.digest()
	if err := ledger.record(user, w.cfg.Register.clock()); err != nil || ledger.empty() {
		return err
	}
	_, _, err := storage.EditDocument(ctx, w.cfg.Store, digested,
		func(noted []byte) ([]byte, error) {
			//rule:erased_nowhere.another-ledger-moves-nothing
			if string(noted) != before {
				return noted, nil
			}
			return []byte(ledger.digest()), nil
		})
	return err
}

// named calls note for each user in blocks, bans, settings of receipts, mentions and the audit log.
func named(ctx context.Context, users Users, note func(tidemark.UserID)) error {
	for after, more := "", true; more; {
		var found []tidemark.UserID
		var err error
		found, after, more, err = users.UsersNamed(ctx, after, usersAtOnce)
		if err != nil {
			return err
		}
		for _, user := range found {
			note(user)
		}
	}
	//rule:erased_nowhere.replay-those-in-the-audit-log
	return audited(ctx, users, note)
}

// audited calls note for each user whom entries of the audit log name.
func audited(ctx context.Context, users Users, note func(tidemark.UserID)) error {
	p := storage.AuditPage{Limit: storage.MaxAudit}
	for more := true; more; {
		var entries []storage.AuditEntry
		var err error
		if entries, more, err = users.ListAudit(ctx, p); err != nil {
			return err
		}
		for _, e := range entries {
			p.Below = e.ID
			note(e.Actor)
			note(e.Target.User)
		}
	}
	return nil
}

// members calls note for each present and former member of all chats.
func (w *Worker) members(
	ctx context.Context, users Users, note func(tidemark.UserID),
) error {
	for after, more := tidemark.ChatID(""), true; more; {
		var chats []tidemark.ChatID
		var err error
		chats, after, more, err = users.EachChat(ctx, after, usersAtOnce)
		if err != nil {
			return err
		}
		for _, id := range chats {
			q := storage.MembersQuery{Chat: id, Limit: usersAtOnce}
			for more := true; more; {
				var members []storage.ChangedMember
				members, more, err = users.MembersSince(ctx, q)
				if err != nil {
					return err
				}
				for _, m := range members {
					q.After = m.Member.UserID
					note(q.After)
				}
			}
		}
	}
	return nil
}

// documents calls note for each user who has documents of the keepers.
func (w *Worker) documents(ctx context.Context, note func(tidemark.UserID)) error {
	for _, k := range w.cfg.Keepers {
		for _, kind := range k.Kinds() {
			for after, more := "", true; more; {
				var found []storage.Document
				var err error
				found, more, err = w.cfg.Store.Documents(ctx, kind, after, usersAtOnce)
				if err != nil {
					return err
				}
				for _, d := range found {
					after = d.Name
					note(tidemark.UserID(d.Name))
				}
			}
		}
	}
	return nil
}

// again erases a user without rests, up to the step that waits for late writes.
func (w *Worker) again(ctx context.Context, user tidemark.UserID) error {
	for tries := 0; ; tries++ {
		// A job that is done in the backup has not found this.
		_, err := w.cfg.Register.begin(ctx, user, func(j *job) bool { return j.Step == done })
		if err == nil {
			err = w.wipe(ctx, user)
		}
		// Conflict: another node replays the ledger, too.
		if tidemark.CodeOf(err) != tidemark.Conflict || tries == replays {
			return err
		}
		if !signal.Pause(ctx, replaysPause) {
			return ctx.Err()
		}
	}
}

// wipe takes the first pass of a job. Chats on hold wait for Run.
func (w *Worker) wipe(ctx context.Context, user tidemark.UserID) error {
	found, err := w.cfg.Store.DocumentsOf(ctx,
		[]storage.DocumentKey{jobKey(hashOf(w.cfg.Register.key, user))})
	if err != nil {
		return err
	}
	var j job
	d := found[0]
	if err := json.Unmarshal(d.Value, &j); err != nil {
		return damaged(err)
	}
	// A pass of before the backup counts for nothing.
	j.Step, j.After, j.Entry, j.Held, j.Left = wiping, "", "", 0, 0
	if err := w.start(ctx, user); err != nil {
		return err
	}
	for more := true; more; {
		if more, err = w.entries(ctx, &j); err != nil {
			return err
		}
	}
	for ended := false; !ended; {
		if ended, err = w.page(ctx, &d, &j); err != nil {
			return err
		}
	}
	if j.Held+j.Left > 0 {
		j.RestUntil = w.cfg.Register.millis() + againAfter.Milliseconds()
	} else {
		j.advance(w.cfg.Register.millis())
	}
	return w.put(ctx, &d, &j)
}
