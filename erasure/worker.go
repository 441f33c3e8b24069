package erasure

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/chores"
	"github.com/tidemark-im/tidemark/storage"
)

// Store is what a Worker needs of a store.
type Store interface {
	storage.Documents
	storage.Erasures
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
}

// Core is what a Worker needs of the server.
type Core interface {
	// EndSessions ends all sessions of a user on all nodes, except "".
	EndSessions(ctx context.Context, user tidemark.UserID, except tidemark.SessionID) error
	// LeaveForGood ends a membership, and closes a direct chat. If there is none, it does nothing.
	LeaveForGood(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID) error
	// Reread makes all nodes drop what they have cached of a chat.
	Reread(ctx context.Context, chat tidemark.ChatID, through tidemark.Sequence)
	// AnnounceErased tells the members of a chat which messages were wiped. A repeated call with
	// the same key tells them nothing more.
	AnnounceErased(ctx context.Context, chat tidemark.ChatID, alias tidemark.UserID, key string,
		erased []tidemark.Sequence) error
}

// Keeper keeps something of users beside chats, such as their devices.
type Keeper interface {
	// Forget removes all that is kept of a user. It may be repeated.
	Forget(ctx context.Context, user tidemark.UserID) error
	// Kinds are the kinds of its documents that are named by users.
	Kinds() []string
}

// Entries is the audit log. It may have too many entries for one step.
type Entries interface {
	// Forget replaces the id of a user in the next entries below a position. The first position is
	// "". The next one is next. more reports whether there are entries below it. It may be
	// repeated.
	Forget(ctx context.Context, user tidemark.UserID, below storage.AuditID) (
		next storage.AuditID, more bool, err error)
}

// Files keeps the files that messages name.
type Files interface {
	// Remove removes those files of a user that attachments of a message name. It may be repeated.
	Remove(ctx context.Context, user tidemark.UserID, attachments json.RawMessage) error
	// RemoveAll removes the next files of a user. done reports that none is left. It may be
	// repeated. No request of the user is under way.
	RemoveAll(ctx context.Context, user tidemark.UserID) (done bool, err error)
}

// Config configures a Worker. All fields but Keepers, Entries and Files are required.
type Config struct {
	Register *Register
	Store    Store
	Core     Core
	Keepers  []Keeper
	Entries  Entries
	Files    Files
	Log      *slog.Logger
}

// Worker erases users. Create it with New. It is safe for concurrent use.
type Worker struct {
	cfg            Config
	erased, failed atomic.Int64
}

// New returns a Worker. It works only in Run and Replay.
func New(cfg Config) *Worker { return &Worker{cfg: cfg} }

// Erased returns how many users this process has erased. It only grows.
func (w *Worker) Erased() int64 { return w.erased.Load() }

// Failed returns how many attempts of this process have failed. It only grows.
func (w *Worker) Failed() int64 { return w.failed.Load() }

// jobsAtOnce is how many documents are read at once.
const jobsAtOnce = 100

// Run erases users until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	w.cfg.Register.job.Run(ctx, func() time.Duration {
		unfinished, err := w.look(ctx)
		if err != nil && ctx.Err() == nil {
			w.failed.Add(1)
			w.cfg.Log.Warn("erasures could not be looked for; it is tried again", "error", err)
		}
		if unfinished {
			return refuseFor / 2
		}
		return chores.Every
	})
}

// look goes through the queue, and takes the next step of each job. unfinished reports that some
// are not done.
func (w *Worker) look(ctx context.Context) (unfinished bool, err error) {
	for after, more := "", true; more; {
		var found []storage.Document
		found, more, err = w.cfg.Store.Documents(ctx, queueKind, after, jobsAtOnce)
		if err != nil {
			return unfinished, err
		}
		keys := make([]storage.DocumentKey, len(found))
		for i, queued := range found {
			after, keys[i] = queued.Name, jobKey(hash(queued.Name))
		}
		jobs, err := w.cfg.Store.DocumentsOf(ctx, keys)
		if err != nil {
			return unfinished, err
		}
		for i, d := range jobs {
			if d.Value == nil {
				continue // Begin is under way, or has ended here and will be repeated.
			}
			ended, err := w.settle(ctx, d)
			unfinished = unfinished || !ended
			if ended && err == nil {
				queued := found[i]
				queued.Value = nil
				_, err = w.cfg.Store.PutDocument(ctx, queued)
			}
			switch {
			case ctx.Err() != nil:
				return unfinished, ctx.Err()
			case tidemark.CodeOf(err) == tidemark.Conflict:
				// Another process has taken it over.
			case err != nil:
				w.failed.Add(1)
				w.cfg.Log.Warn("a user could not be erased; it is tried again", "erasure", d.Name,
					"error", err)
			}
		}
	}
	return unfinished, nil
}

// settle takes as many steps of a job as are due. ended reports that it is done.
//
// Conflict: the document has changed meanwhile.
func (w *Worker) settle(ctx context.Context, d storage.Document) (ended bool, err error) {
	var j job
	if err := json.Unmarshal(d.Value, &j); err != nil {
		return true, damaged(err)
	}
	for j.Step != done {
		now := w.cfg.Register.millis()
		//rule:bounded_use.one-process-erases-a-user
		if chores.Ahead(now, j.ClaimedUntil, chores.ClaimFor) ||
			chores.Ahead(now, j.RestUntil, againAfter) ||
			chores.Ahead(now, j.StepAt+j.Step.rest().Milliseconds(), settleFor) {
			return false, nil
		}
		whole, err := w.take(ctx, &d, &j)
		if err != nil || !whole {
			return false, err
		}
		j.advance(w.cfg.Register.millis())
		if err := w.put(ctx, &d, &j); err != nil {
			return false, err
		}
		if j.Step == done {
			w.erased.Add(1)
		}
	}
	return true, nil
}

// take does the work of a step. whole reports that all of it is done.
func (w *Worker) take(ctx context.Context, d *storage.Document, j *job) (whole bool, err error) {
	switch j.Step {
	case refusing:
		return w.refuse(ctx, d, j)
	case wiping, wipingAgain:
		return w.pass(ctx, d, j)
	case recording:
		//rule:erased_nowhere.ledger-before-the-end
		return true, w.record(ctx, j.User)
	case settling, done:
	}
	return true, nil
}

// refuse makes sure that the nodes have had the time of the step to read the tombstone. The process
// that has begun may have ended before it stored one. Then the step begins again, and so does the
// name of the tombstone: nodes look only for those that are not old.
func (w *Worker) refuse(ctx context.Context, d *storage.Document, j *job) (whole bool, err error) {
	there, err := w.cfg.Register.buried(ctx, hash(d.Name), j)
	if err != nil || there {
		return there, err
	}
	now := w.cfg.Register.millis()
	//rule:erased_nowhere.late-tombstone
	j.AskedAt, j.StepAt = now, now
	if err := w.put(ctx, d, j); err != nil {
		return false, err
	}
	return false, w.cfg.Register.bury(ctx, hash(d.Name), j)
}

// pass goes through the audit log and all chats, from where the job is. The second pass then
// removes all files of the user. whole reports that it left nothing out.
func (w *Worker) pass(ctx context.Context, d *storage.Document, j *job) (whole bool, err error) {
	if j.RestUntil != 0 {
		j.RestUntil, j.After, j.Held, j.Left = 0, "", 0, 0
	}
	claim := func() error {
		j.ClaimedUntil = w.cfg.Register.millis() + chores.ClaimFor.Milliseconds()
		return w.put(ctx, d, j)
	}
	started := j.After != ""
	failed, err := chores.Repeat(ctx, claim, func() (bool, error) {
		if !started {
			if err := w.start(ctx, j.User); err != nil {
				return false, err
			}
			started = true
		}
		if j.After == "" {
			more, err := w.entries(ctx, j)
			if err != nil {
				return false, err
			}
			//rule:erased_nowhere.a-part-of-the-audit-log-at-once
			if more {
				return false, w.put(ctx, d, j)
			}
		}
		return w.page(ctx, d, j)
	})
	if err = cmp.Or(err, failed); err != nil {
		return false, err
	}
	//rule:held_is_kept.erasure-waits
	if j.Held+j.Left > 0 {
		j.RestUntil, j.ClaimedUntil = w.cfg.Register.millis()+againAfter.Milliseconds(), 0
		return false, w.put(ctx, d, j)
	}
	// A chat on hold keeps the files of messages that say nothing any more, too. And in the first
	// pass, an announcement may be under way that has written an entry, and no file yet.
	//rule:erased_nowhere.all-files
	if j.Step == wipingAgain && w.cfg.Files != nil {
		failed, err = chores.Repeat(ctx, claim, func() (bool, error) {
			return w.cfg.Files.RemoveAll(ctx, j.User)
		})
	}
	err = cmp.Or(err, failed)
	return err == nil, err
}

// put stores the state of a job. Conflict: it has changed meanwhile.
func (w *Worker) put(ctx context.Context, d *storage.Document, j *job) error {
	value, err := json.Marshal(j)
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the erasure cannot be recorded")
	}
	d.Value = value
	d.Version, err = w.cfg.Store.PutDocument(ctx, *d)
	return err
}
