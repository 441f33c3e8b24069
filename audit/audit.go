// Package audit records who did what to others: with which API key or as which user, when, and with
// what outcome. It records no content.
//
// A call writes its entry before it changes anything, and the outcome afterwards. So a call that
// had an effect has an entry, also if its process ends in between. Such an entry stays begun. If
// the entry cannot be written, the call is refused. Calls that are noted (Log.Note) are exceptions.
// The entry of a user's call that is refused is removed again.
//
// Erasing a user replaces their id in all entries (Log.Forget). Old entries are removed (Log.Run).
package audit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/chores"
	"github.com/tidemark-im/tidemark/storage"
)

// MaxDays is the longest time for which entries can be kept, in days.
const MaxDays = 3650

// finishWithin is how long the outcome of a call may take to be written. The call waits for it.
const finishWithin = 5 * time.Second

// Entry is an entry of the log.
type Entry = storage.AuditEntry

// Target is whom and what a call concerned.
type Target = storage.AuditTarget

// Actor is who makes a call. Key is the name of an API key, or "" for a user. User is the user who
// calls, or for whom the key does, or "".
type Actor struct {
	Key  string
	User tidemark.UserID
}

// actorKey is the key of an actor in a context.
type actorKey struct{}

// WithActor returns a context of a call that an actor makes.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// Erasures knows who was erased.
type Erasures interface {
	// Erased returns an error if a user was erased. It does no I/O.
	Erased(user tidemark.UserID) error
}

// Config configures a Log. Store, Logger and Clock are required.
type Config struct {
	Store storage.Audit
	// Days is for how many days entries are kept. 0: none are written or removed.
	Days   int
	Logger *slog.Logger
	// Clock returns the time of day.
	Clock func() time.Time
	// Erasures, if not nil, knows whose ids are not written any more.
	Erasures Erasures
}

// Log writes and reads entries. Create it with New. It is safe for concurrent use. A nil Log writes
// nothing.
type Log struct {
	cfg               Config
	recorded, removed atomic.Int64
	failed            atomic.Int64
}

// New returns a Log. It starts nothing.
//
// Invalid: Days is negative or above MaxDays.
func New(cfg Config) (*Log, error) {
	if cfg.Days < 0 || cfg.Days > MaxDays {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"entries can be kept for 0 to %d days, and not for %d", MaxDays, cfg.Days)
	}
	return &Log{cfg: cfg}, nil
}

// Counters returns the metrics by name. They only grow.
func (l *Log) Counters() map[string]int64 {
	return map[string]int64{
		"audit_entries_total":  l.recorded.Load(),
		"audit_removed_total":  l.removed.Load(),
		"audit_failures_total": l.failed.Load(),
	}
}

// Do makes a call between the two writes of its entry, and returns its error.
//
// Unavailable: the entry could not be written, and the call was not made.
func (l *Log) Do(
	ctx context.Context, operation string, target Target, call func() error,
) error {
	end, err := l.Begin(ctx, operation, target)
	if err != nil {
		return err
	}
	err = call()
	end(err)
	return err
}

// Begin writes the entry of a call, which may then have its effect. The actor is that of the
// context. The caller calls end with the result of the call.
//
// Unavailable: the entry could not be written. The call must not be made.
func (l *Log) Begin(
	ctx context.Context, operation string, target Target,
) (end func(error), err error) {
	if l == nil || l.cfg.Days == 0 {
		return func(error) {}, nil
	}
	e := l.entry(ctx, operation, target)
	//rule:audited_before_done.entry-comes-first
	if err := l.cfg.Store.RecordAudit(ctx, e); err != nil {
		l.failed.Add(1)
		code := tidemark.Unavailable
		if tidemark.CodeOf(err) == tidemark.Internal {
			code = tidemark.Internal // A bug does not go away.
		}
		return nil, tidemark.Wrap(code, err, "the audit log cannot be written, so nothing "+
			"was done; try again")
	}
	l.recorded.Add(1)
	return func(err error) { l.finish(ctx, e.ID, endOf(&e, err)) }, nil
}

// Note writes the entry of a call that has had its effect. It is for calls that say only then whom
// they concerned, and that leave another trace of who made them. If the entry cannot be written, a
// warning is logged.
func (l *Log) Note(ctx context.Context, operation string, target Target) {
	if l == nil || l.cfg.Days == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	e := l.entry(ctx, operation, target)
	e = e.Finish(storage.AuditEnd{State: storage.AuditDone, At: l.now()})
	if err := l.cfg.Store.RecordAudit(ctx, e); err != nil {
		l.failed.Add(1)
		l.cfg.Logger.Warn("a call that had its effect could not be written to the audit log",
			"operation", operation, "request_id", e.Request, "error", err)
		return
	}
	l.recorded.Add(1)
}

// entry returns a new entry of a call by the actor of the context.
func (l *Log) entry(ctx context.Context, operation string, target Target) Entry {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	target.User, target.Chat = known(target.User), known(target.Chat)
	target.Outlet = known(target.Outlet)
	e := Entry{
		ID: storage.NewAuditID(l.cfg.Clock()), Key: actor.Key, Actor: actor.User,
		Request: tidemark.RequestIDOf(ctx), Operation: operation, Target: target,
		State: storage.AuditBegun,
	}
	for _, user := range []tidemark.UserID{e.Actor, e.Target.User} {
		if user != "" && l.cfg.Erasures != nil && l.cfg.Erasures.Erased(user) != nil {
			//rule:erased_nowhere.new-entries-use-an-alias
			e = e.Rename(user, alias())
		}
	}
	return e
}

// known returns an id of a target, or "" for what cannot be one: nothing has it, and its length has
// no bound. The call is refused for it.
func known[T ~string](id T) T {
	//rule:bounded_input.entries-name-only-ids
	if !tidemark.ValidID(strings.TrimPrefix(string(id), string(tidemark.ErasedID("")))) {
		return ""
	}
	return id
}

// now returns the time, as it is stored.
func (l *Log) now() time.Time { return l.cfg.Clock().UTC().Truncate(time.Millisecond) }

// outcome returns how a call ended that returned an error.
func outcome(err error) storage.AuditEnd {
	code := tidemark.CodeOf(err)
	if code == "" {
		return storage.AuditEnd{State: storage.AuditDone}
	}
	//rule:audited_before_done.doubt-is-no-refusal
	if code == tidemark.Unavailable || code == tidemark.Internal {
		return storage.AuditEnd{State: storage.AuditUnknown, Code: code}
	}
	return storage.AuditEnd{State: storage.AuditRefused, Code: code}
}

// endOf returns how the call of an entry ended that returned an error. A user who is refused leaves
// no entry. They could fill the log with calls that have no effect.
func endOf(e *Entry, err error) storage.AuditEnd {
	end := outcome(err)
	//rule:audited_before_done.refused-users-leave-nothing
	if end.State == storage.AuditRefused && e.Key == "" && e.Actor != "" {
		return storage.AuditEnd{State: storage.AuditWithdrawn}
	}
	return end
}

// finish writes the outcome of a call. If that fails, the entry stays begun.
func (l *Log) finish(ctx context.Context, id storage.AuditID, end storage.AuditEnd) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	end.At = l.now()
	if err := l.cfg.Store.FinishAudit(ctx, id, end); err != nil {
		l.failed.Add(1)
		l.cfg.Logger.Warn("the outcome of a call could not be written to the audit log; its entry "+
			"stays begun", "entry", id, "outcome", end.State,
			"request_id", tidemark.RequestIDOf(ctx), "error", err)
	}
}

// alias returns what takes the place of an erased user's id. Each entry gets another one, so that
// entries about different chats do not show that they name the same user.
func alias() tidemark.UserID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // It never fails.
	return tidemark.ErasedID(hex.EncodeToString(b[:]))
}

// Forget replaces the id of a user in the next entries below a position (erasure.Entries). The
// first position is "". The next one is next. more reports whether there are entries below it.
func (l *Log) Forget(
	ctx context.Context, user tidemark.UserID, below storage.AuditID,
) (next storage.AuditID, more bool, err error) {
	entries, more, err := l.cfg.Store.ListAudit(ctx,
		storage.AuditPage{Below: below, Limit: storage.MaxAudit})
	if err != nil {
		return below, false, err
	}
	next = below
	for _, e := range entries {
		next = e.ID
		if !e.Names(user) {
			continue
		}
		//rule:erased_nowhere.rename-in-entries
		if err := l.cfg.Store.RenameAudit(ctx, e.ID, user, alias()); err != nil {
			return below, false, err
		}
	}
	return next, more, nil
}

// trimEvery is the time between two looks for old entries.
const trimEvery = time.Hour

// Run removes old entries until ctx ends. Several processes may do so at once.
func (l *Log) Run(ctx context.Context) {
	if l.cfg.Days == 0 {
		return
	}
	chores.New().Run(ctx, func() time.Duration {
		if err := l.Trim(ctx); err != nil && ctx.Err() == nil {
			l.failed.Add(1)
			l.cfg.Logger.Warn("old entries of the audit log could not be removed; it is tried "+
				"again", "error", err)
			return chores.Every
		}
		return trimEvery
	})
}

// Trim removes all entries that are too old. Run calls it.
func (l *Log) Trim(ctx context.Context) error {
	//rule:audited_before_done.kept-for-their-days
	below := storage.AuditIDAt(l.cfg.Clock().AddDate(0, 0, -l.cfg.Days))
	failed, err := chores.Repeat(ctx, func() error { return nil }, func() (bool, error) {
		removed, done, err := l.cfg.Store.TrimAudit(ctx, below, storage.MaxAudit)
		l.removed.Add(int64(removed))
		return done, err
	})
	if err != nil {
		return err
	}
	return failed
}
