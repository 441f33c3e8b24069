// Package access says which users may use the server: those who are not suspended, with
// credentials that are newer than their last sign-out (docs/moderation.md).
//
// What it says comes from one small document of each user, which it keeps in memory. Nodes tell
// each other of changes (Forget). So what is in memory is right while publications reach this node.
// A node that may miss one reads again after untold.
package access

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// told is how long a record is used while changes reach this node. untold is how long it is
	// used while they may not.
	told   = time.Minute
	untold = 5 * time.Second
	// unread is how long a record is used while the store does not answer.
	unread = 10 * time.Minute
	// pause is the least time between a failed read of a record and the next one.
	pause = time.Second
	// maxKnown is the most records in memory. If there are more, the older half is forgotten.
	maxKnown = 100_000
)

// Config has what Access needs. Documents may be nil: then every user may use the server.
type Config struct {
	Documents storage.Documents
	// Terms says in which term all changes reach this node.
	Terms Terms
	// Now returns the time of day.
	Now func() time.Time
}

// Terms says whether changes reach this node. chat.Cache implements it.
type Terms interface {
	// Term returns the present term, or chat.NoTerm if a change may be missed now.
	Term() chat.Term
}

// Access says which users may use the server. It is safe for concurrent use.
type Access struct {
	cfg Config

	mu sync.Mutex
	// later has the records that were read last, and earlier those before. Each has at most half of
	// maxKnown.
	later, earlier map[tidemark.UserID]known
	// changes counts calls of Forget, so that a read which began before one is not kept.
	changes uint64
}

// known is a record in memory.
type known struct {
	record Record
	// read is when it was read, and term the term of then.
	read time.Time
	term chat.Term
	// failed is when it was last to be read again, and the store did not answer.
	failed time.Time
}

// New returns an Access that knows nothing.
func New(cfg Config) *Access { return &Access{cfg: cfg} }

// Check returns nil if a user may use the server with credentials that were issued at a time. It
// reads the user's document at most once in told.
//
// Errors: those of Record.Refusal, and Unavailable.
func (a *Access) Check(ctx context.Context, user tidemark.UserID, issued time.Time) error {
	record, err := a.Of(ctx, user)
	if err != nil {
		return err
	}
	return record.Refusal(issued, a.cfg.Now())
}

// Of returns the record of a user, from memory if it is recent. Error: Unavailable.
func (a *Access) Of(ctx context.Context, user tidemark.UserID) (Record, error) {
	if a.cfg.Documents == nil {
		return Record{}, nil
	}
	for {
		before, at, there := a.recall(user)
		now, term := time.Now(), a.cfg.Terms.Term()
		if there && before.serves(now, term) {
			return before.record, nil
		}
		all, err := a.read(ctx, []tidemark.UserID{user})
		if err != nil {
			if there && now.Sub(before.read) < unread && ctx.Err() == nil {
				before.failed = time.Now()
				a.keep(user, before, at)
				return before.record, nil
			}
			return Record{}, err
		}
		//rule:suspended_does_nothing.keep-no-older-read
		if a.keep(user, known{record: all[0], read: now, term: term}, at) {
			return all[0], nil
		}
	}
}

// serves reports whether a record may be used now, in a term.
func (k known) serves(now time.Time, term chat.Term) bool {
	age := now.Sub(k.read)
	if now.Sub(k.failed) < pause {
		return age < unread
	}
	//rule:suspended_does_nothing.read-again-when-untold
	if term == chat.NoTerm || term != k.term {
		return age < untold
	}
	return age < told
}

// recall returns what is known of a user, and the number of changes so far.
func (a *Access) recall(user tidemark.UserID) (k known, changes uint64, there bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k, there = a.later[user]; !there {
		k, there = a.earlier[user]
	}
	return k, a.changes, there
}

// keep remembers a record that was read after a number of changes. It returns false if there were
// more since: the record may be older than they are.
func (a *Access) keep(user tidemark.UserID, k known, changes uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes != changes {
		return false
	}
	if len(a.later) >= maxKnown/2 {
		a.earlier, a.later = a.later, nil
	}
	if a.later == nil {
		a.later = make(map[tidemark.UserID]known)
	}
	a.later[user] = k
	return true
}

// Forget records that the document of a user has changed.
func (a *Access) Forget(user tidemark.UserID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	delete(a.later, user)
	delete(a.earlier, user)
}

// All returns the records of users as they are stored now, in their order. Error: Unavailable.
func (a *Access) All(ctx context.Context, users []tidemark.UserID) ([]Record, error) {
	if a.cfg.Documents == nil || len(users) == 0 {
		return make([]Record, len(users)), nil
	}
	return a.read(ctx, users)
}

func (a *Access) read(ctx context.Context, users []tidemark.UserID) ([]Record, error) {
	keys := make([]storage.DocumentKey, len(users))
	for i, user := range users {
		keys[i] = keyOf(user)
	}
	found, err := a.cfg.Documents.DocumentsOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	all := make([]Record, len(users))
	for i, d := range found {
		if all[i], err = parse(d.Value); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Change says what to change of a record.
type Change struct {
	// Suspends says that Suspension, which may be nil, replaces that of the record. A suspension
	// that lasts keeps its Since.
	Suspends   bool
	Suspension *Suspension
	// SignsOut raises ValidAfter to a time. It is 0 if the user does not sign out.
	SignsOut tidemark.Millis
}

func (c Change) apply(r Record, now time.Time) Record {
	r.ValidAfter = max(r.ValidAfter, c.SignsOut)
	if !c.Suspends {
		return r
	}
	before := r.Suspension
	r.Suspension = c.Suspension
	if r.Suspension != nil && before.Lasts(now) {
		next := *r.Suspension
		next.Since = before.Since
		r.Suspension = &next
	}
	return r
}

// Edit changes the record of a user in one step, and returns the new one. The caller tells the
// nodes, also after Unavailable: the change may have happened.
//
// Errors: Invalid (this server keeps no records), Unavailable.
func (a *Access) Edit(
	ctx context.Context, user tidemark.UserID, change Change,
) (after Record, err error) {
	if a.cfg.Documents == nil {
		return Record{}, tidemark.Errorf(tidemark.Invalid,
			"this server does not keep who is suspended or has signed out")
	}
	_, _, err = storage.EditDocument(ctx, a.cfg.Documents, keyOf(user),
		func(value []byte) ([]byte, error) {
			before, err := parse(value)
			if err != nil {
				return nil, err
			}
			if after = change.apply(before, a.cfg.Now()); after == (Record{}) {
				return nil, nil
			}
			return json.Marshal(after)
		})
	return after, err
}

// Erase removes the record of a user who was erased. It may be repeated. Error: Unavailable.
func (a *Access) Erase(ctx context.Context, user tidemark.UserID) error {
	if a.cfg.Documents == nil {
		return nil
	}
	defer a.Forget(user)
	//rule:erased_nowhere.suspension
	_, _, err := storage.EditDocument(ctx, a.cfg.Documents, keyOf(user),
		func([]byte) ([]byte, error) { return nil, nil })
	return err
}
