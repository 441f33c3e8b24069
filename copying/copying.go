// Package copying moves all data of a store to another store, of the same or another kind, and
// compares the two. docs/move-over.md is for operators.
//
// Run copies everything while no server works on either store (Nodes). Before it, Ahead may copy
// most of the chats while servers work on the source. Then Run reads only the chats that have
// changed since (part.equals), writes what is new in them, and drops a chat of the target that has
// what the source has no more (part.outgrows). So nothing is left there of what was redacted,
// expired, erased or deleted.
//
// A copy that was interrupted goes on when it is run again. A document in the target says how far
// it is. Everything that it repeats overwrites what is there with the same.
//
// Messages keep all that they have. The counts that backends store beside them are counted anew
// from the messages that are kept, because backends store them in different ways. The present
// incarnation of the target stays, and those of the source become earlier ones. So every client
// that comes from the source compares its position once, and finds that it is shared.
package copying

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Store is a store that can be copied.
type Store interface {
	storage.Store
	storage.CopySource
	storage.CopyTarget
}

// Config says what is copied.
type Config struct {
	From, To Store
	// Workers is how many chats, or entries of a kind, are copied at once, 8 by default.
	Workers int
	// Reread makes Ahead and Run read each chat, also if it looks unchanged. It is for a source
	// that may change a message without its chat (part.equals): DynamoDB.
	Reread bool
	// Ran is nil, or a Copier whose Run has ended. Then Verify leaves out the chats that it found
	// as Ahead had copied them.
	Ran *Copier
	// Clock returns the present time.
	Clock func() time.Time
}

const (
	defaultWorkers = 8
	// chatsAtOnce is how many chats a page has. Behind each, the target knows how far the copy is.
	chatsAtOnce = 100
	// A page of messages has at most so many messages, and about so many bytes.
	messagesAtOnce = 500
	bytesAtOnce    = 1 << 20
	// membersAtOnce is how many members are read or written at once, entriesAtOnce how many
	// entries, and documentsAtOnce how many documents, of up to storage.MaxDocument bytes each.
	membersAtOnce   = 500
	entriesAtOnce   = 1_000
	documentsAtOnce = 20
	// savedEvery is after how many pages of messages of a chat the target knows how far it is.
	savedEvery = 8
	// keysKept is for how long the keys of messages are kept, at least (storage.Messages).
	keysKept = 8 * 24 * time.Hour
)

// Report says how far a copy, or a comparison, is.
type Report struct {
	Chats    int64 `json:"chats"`
	Messages int64 `json:"messages"`
	// Bytes are those of the contents, attachments and metadata of the messages.
	Bytes int64 `json:"bytes"`
	// Unchanged is how many of the chats were in the target already, and so were not read.
	Unchanged int64 `json:"unchanged,omitempty"`
	// Differences are the first ones that were found. Different is their number.
	Different   int64    `json:"different"`
	Differences []string `json:"differences,omitempty"`
}

// A Copier copies a store once, and compares it. Use New.
type Copier struct {
	cfg                               Config
	chats, unchanged, messages, bytes atomic.Int64

	mu          sync.Mutex
	different   int64
	differences []string
	// state is what the target is to know of the copy. saving is held while it is written. saved is
	// what was written, or read, last.
	state  state
	saving sync.Mutex
	saved  []byte
	// touched has the chats that were written. If resumed is set, another Copier has written some.
	touched filter
	resumed bool
}

// New returns a Copier.
func New(cfg Config) *Copier {
	if cfg.Workers <= 0 {
		cfg.Workers = defaultWorkers
	}
	return &Copier{cfg: cfg}
}

// Report returns how far the Copier is. It may be called at any time.
func (c *Copier) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Report{
		Chats: c.chats.Load(), Messages: c.messages.Load(), Bytes: c.bytes.Load(),
		Unchanged: c.unchanged.Load(),
		Different: c.different, Differences: c.differences[:len(c.differences):len(c.differences)],
	}
}

// Run copies the source to the target. After an error it may be run again, with another Copier, and
// goes on.
//
// Conflict: the target has other data, or an unfinished copy of another source; the source is the
// target, or is an unfinished copy; two messages have one key, and the target cannot hold both
// (storage.KeyOfTwo). Unavailable: one of the stores.
func (c *Copier) Run(ctx context.Context) error {
	if err := c.begin(ctx, unfinished); err != nil {
		return err
	}
	if c.state.Step == done {
		return nil
	}
	if c.state.Step == finishing {
		if err := c.settle(ctx); err != nil {
			return err
		}
	}
	if err := c.cfg.To.PutLives(ctx, c.cfg.From.Incarnations()); err != nil {
		return err
	}
	// A block that comes first changes no chat. Settings need the chats and their members, and
	// backlogs of outlets need the positions of the chats.
	if err := c.eachEntry(ctx, storage.EntryBlock, c.putBlock); err != nil {
		return err
	}
	if err := c.copyChats(ctx); err != nil {
		return err
	}
	if err := c.dropUnknown(ctx); err != nil {
		return err
	}
	for _, rest := range []struct {
		kind storage.EntryKind
		put  func(context.Context, storage.Entry) error
	}{
		{storage.EntryReceipts, c.putReceipts},
		{storage.EntryBacklog, c.putBacklog},
		{storage.EntryDocument, c.putDocument},
		{storage.EntryAudit, c.putAudit},
	} {
		if err := c.eachEntry(ctx, rest.kind, rest.put); err != nil {
			return err
		}
	}
	c.state.Step = done
	return c.save(ctx)
}

// copyChats copies all chats behind those that the target has.
func (c *Copier) copyChats(ctx context.Context) error {
	for more := true; more; {
		var ids []tidemark.ChatID
		var next tidemark.ChatID
		var err error
		ids, next, more, err = c.cfg.From.EachChat(ctx, c.state.After, chatsAtOnce)
		if err != nil {
			return err
		}
		if err := together(ctx, c.cfg.Workers, ids, c.copyChat); err != nil {
			return err
		}
		if more {
			c.state.After, c.state.Through = next, nil
			if err := c.save(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// together calls do for items, as many at once as there are workers. It returns the first error,
// after which it starts no more calls.
func together[T any](
	ctx context.Context, workers int, items []T, do func(context.Context, T) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan T)
	var calls sync.WaitGroup
	for range min(workers, len(items)) {
		calls.Go(func() {
			for item := range todo {
				if ctx.Err() != nil {
					continue
				}
				if err := do(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		todo <- item
	}
	close(todo)
	calls.Wait()
	return context.Cause(ctx)
}
