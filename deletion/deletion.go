// Package deletion removes what is left of deleted chats.
//
// Before a chat is deleted, Worker.Begin stores a document that names it. So if a process ends at
// any moment, another one finds the work. A Worker removes the messages first, and the members a
// minute later. Until then another process may write a state or a pending row for them, from what
// it has in memory. At last the Worker removes the document.
package deletion

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

const (
	// lateFor is for how long after the deletion other processes may write from what they have in
	// memory.
	lateFor = 60 * chores.Unit
	// undecidedFor is how long after Begin the deletion may still follow.
	undecidedFor = time.Hour
	// pageSize is how many documents are read at once.
	pageSize = 100
)

// kind is that of the documents. Their names are the ids of the chats.
const kind = "deletion"

// Store is what a Worker needs of a store.
type Store interface {
	storage.Documents
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)
	PurgeChat(ctx context.Context, chat tidemark.ChatID, limit int, members bool) (removed int,
		done bool, err error)
}

// Config configures a Worker. All fields are required.
type Config struct {
	Store Store
	Log   *slog.Logger
	// Clock returns the time of day.
	Clock func() time.Time
}

// Worker removes what is left of deleted chats. Create it with New. It is safe for concurrent use.
type Worker struct {
	cfg             Config
	job             chores.Job
	deleted, failed atomic.Int64
}

// New returns a Worker. It works only in Run.
func New(cfg Config) *Worker { return &Worker{cfg: cfg, job: chores.New()} }

// Deleted returns how many deleted chats this process has removed completely. It only grows.
func (w *Worker) Deleted() int64 { return w.deleted.Load() }

// Failed returns how many attempts of this process have failed. It only grows.
func (w *Worker) Failed() int64 { return w.failed.Load() }

// request is the value of a document. The times are in milliseconds since 1970, and 0 for none.
type request struct {
	// AskedAt is when Begin was called.
	AskedAt int64 `json:"asked_at"`
	// ClaimedUntil is when another process may take the chat over.
	ClaimedUntil int64 `json:"claimed_until,omitempty"`
	// MessagesGoneAt is when the messages had been removed. The members are left then.
	MessagesGoneAt int64 `json:"messages_gone_at,omitempty"`
}

// Begin implements server.Deletions.
func (w *Worker) Begin(ctx context.Context, chat tidemark.ChatID) error {
	value, err := json.Marshal(request{AskedAt: w.millis()})
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "the deletion cannot be recorded")
	}
	_, _, err = storage.EditDocument(ctx, w.cfg.Store,
		storage.DocumentKey{Kind: kind, Name: string(chat)},
		func([]byte) ([]byte, error) { return value, nil })
	return err
}

// Wake implements server.Deletions.
func (w *Worker) Wake() { w.job.Wake() }

// millis returns the time of day in milliseconds since 1970.
func (w *Worker) millis() int64 { return w.cfg.Clock().UnixMilli() }

// since reports whether at is less than d ago. A time in the future counts, unless a wrong clock
// must have written it.
func (w *Worker) since(at int64, d time.Duration) bool {
	ago := time.Duration(w.millis()-at) * time.Millisecond
	return ago < d && ago > -undecidedFor
}

// Run removes what is left of deleted chats until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	w.job.Run(ctx, func() time.Duration {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.failed.Add(1)
			w.cfg.Log.Warn("deleted chats could not be looked for; it is tried again",
				"error", err)
		}
		return chores.Every
	})
}

// look goes through all documents.
func (w *Worker) look(ctx context.Context) error {
	for after, more := "", true; more; {
		began := time.Now()
		var found []storage.Document
		var err error
		found, more, err = w.cfg.Store.Documents(ctx, kind, after, pageSize)
		if err != nil {
			return err
		}
		if !chores.Rest(ctx, began) {
			return ctx.Err()
		}
		for _, d := range found {
			after = d.Name
			err := w.settle(ctx, d)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case tidemark.CodeOf(err) == tidemark.Conflict:
				// Another process has taken it over, or Begin was called again.
			case err != nil:
				w.failed.Add(1)
				w.cfg.Log.Warn("what is left of a deleted chat could not be removed; it is tried "+
					"again", "chat_id", d.Name, "error", err)
			}
		}
	}
	return nil
}

// settle takes the next step of a deletion, by its document and by the state of the chat.
//
// Conflict: the document has changed meanwhile.
func (w *Worker) settle(ctx context.Context, d storage.Document) error {
	var r request
	if err := json.Unmarshal(d.Value, &r); err != nil {
		return tidemark.Wrap(tidemark.Internal, err,
			"the document deletion/"+d.Name+" is damaged; remove it")
	}
	began := time.Now()
	chat, err := w.cfg.Store.Chat(ctx, tidemark.ChatID(d.Name))
	if err != nil && tidemark.CodeOf(err) != tidemark.NotFound {
		return err
	}
	if !chores.Rest(ctx, began) {
		return ctx.Err()
	}
	if chat.State != tidemark.ChatDeleted {
		//rule:deleted_is_gone.wait-for-the-step
		if w.since(r.AskedAt, undecidedFor) {
			return nil
		}
		return w.put(ctx, &d, nil)
	}
	members := r.MessagesGoneAt != 0
	//rule:deleted_is_gone.remove-members-when-nobody-writes
	if members && w.since(r.MessagesGoneAt, lateFor) {
		return nil
	}
	//rule:bounded_use.one-process-purges-a-chat
	if chores.Ahead(w.millis(), r.ClaimedUntil, chores.ClaimFor) {
		return nil
	}
	if err := w.purge(ctx, &d, &r, members); err != nil {
		return err
	}
	if !members {
		r.MessagesGoneAt, r.ClaimedUntil = w.millis(), 0
		return w.put(ctx, &d, &r)
	}
	err = w.put(ctx, &d, nil)
	if err == nil {
		w.deleted.Add(1)
	}
	return err
}

// purge removes what is left of a chat, with the members or without them. If that fails, the chat
// waits until the claim ends.
func (w *Worker) purge(ctx context.Context, d *storage.Document, r *request, members bool) error {
	failed, err := chores.Repeat(ctx, func() error {
		r.ClaimedUntil = w.millis() + chores.ClaimFor.Milliseconds()
		return w.put(ctx, d, r)
	}, func() (done bool, err error) {
		_, done, err = w.cfg.Store.PurgeChat(ctx, tidemark.ChatID(d.Name), storage.MaxExpired,
			members)
		return done, err
	})
	return cmp.Or(err, failed)
}

// put stores the state of a document, or removes the document. Conflict: it has changed meanwhile.
func (w *Worker) put(ctx context.Context, d *storage.Document, r *request) (err error) {
	d.Value = nil
	if r != nil {
		if d.Value, err = json.Marshal(r); err != nil {
			return tidemark.Wrap(tidemark.Internal, err, "the deletion cannot be recorded")
		}
	}
	d.Version, err = w.cfg.Store.PutDocument(ctx, *d)
	return err
}
