package importer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Store is what an Importer needs of a store.
type Store interface {
	storage.Imports
	CreateChat(ctx context.Context, new storage.NewChat) (chat tidemark.Chat, created bool,
		err error)
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)
	AddMembers(ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
		role tidemark.Role, now time.Time) (storage.Added, error)
	RemoveMember(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
		now time.Time) (storage.Removed, error)
	UpdateMember(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
		change storage.MemberChange) (storage.UpdatedMember, error)
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
	Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error)
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
	Advance(ctx context.Context, advances []storage.Advance) ([]storage.Advanced, error)
	Backlogs(ctx context.Context, q storage.BacklogQuery) (backlogs []storage.Backlog, more bool,
		err error)
	Settle(ctx context.Context, items []storage.Settlement) (settled []bool, err error)
}

// Config configures an Importer. Format and Clock are required.
type Config struct {
	// Store is nil in a dry run, which checks all records, and looks at no stored chat.
	Store Store
	// Format names the kind of source. A chat is only continued by the format that began it.
	Format string
	// Continue leaves out chats that are refused. Otherwise the first one ends the import.
	Continue bool
	// SkipOversize stores a stub in place of a message that exceeds a limit. Otherwise its chat is
	// refused.
	SkipOversize bool
	// Erased returns Denied if a user was erased. A chat that names such a user is refused. nil
	// stands for a store of which nobody was erased.
	Erased func(user tidemark.UserID) error
	// Clock returns the time of day.
	Clock func() time.Time
}

// storeTime bounds a call of the store. Until then the store itself tries again.
const storeTime = 5 * time.Minute

// maxRefused bounds the refusals that a Report lists.
const maxRefused = 1_000

// ErrInterrupted is the error of a Run whose ctx has ended.
var ErrInterrupted = errors.New("interrupted; the same command continues the import")

// Importer imports chats, one after the other. Create it with New.
type Importer struct {
	cfg   Config
	store Store

	mu     sync.Mutex
	report Report
}

// New returns an Importer.
func New(cfg Config) *Importer {
	i := &Importer{cfg: cfg, store: cfg.Store}
	if i.report.Refused = []Refusal{}; cfg.Store == nil {
		i.store, i.report.DryRun = &nowhere{}, true
	}
	return i
}

// Report says what an Importer has done. Numbers are those of this run.
type Report struct {
	DryRun bool `json:"dry_run"`
	// Chats were finished, and Unchanged had been finished by an earlier run.
	Chats     int64 `json:"chats"`
	Unchanged int64 `json:"chats_unchanged"`
	// Messages were stored, and Before had been stored by an earlier run. Stubs are those of both
	// that say nothing (Lack).
	Messages int64 `json:"messages"`
	Before   int64 `json:"messages_before"`
	Stubs    int64 `json:"stubs"`
	// Joined counts joins of members, Senders those among them that the source does not mention,
	// and Left the ends of memberships.
	Joined  int64 `json:"members_joined"`
	Senders int64 `json:"senders_joined"`
	Left    int64 `json:"members_left"`
	// Reads is the number of members of whom the source says what they have read.
	Reads int64 `json:"reads"`
	// RefusedChats were not finished. Refused has the first ones.
	RefusedChats int64     `json:"chats_refused"`
	Refused      []Refusal `json:"refused"`
}

// Refusal says why a chat was refused.
type Refusal struct {
	Chat   string        `json:"chat"`
	Code   tidemark.Code `json:"code"`
	Reason string        `json:"reason"`
}

// Report returns what was done so far. It may be called while Run runs.
func (i *Importer) Report() Report {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.report
}

// count changes the report.
func (i *Importer) count(change func(*Report)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.report)
}

// Run imports the chats of a source. When ctx ends, it ends after the call of the store that is
// under way. It is called once.
//
// Errors: that of the source; of the store; ErrInterrupted; of a chat that was refused. If
// Config.Continue is set, an error at the end says how many were.
func (i *Importer) Run(ctx context.Context, records iter.Seq2[Record, error]) error {
	var m *move
	refused := false
	name := ""
	for r, err := range records {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		if err != nil {
			return err
		}
		switch c, begins := r.(Chat); {
		case begins && m != nil:
			err = tidemark.Errorf(tidemark.Internal, "the source has no end of the chat")
		case begins:
			name, refused = c.ID, false
			m, err = i.begin(ctx, &c)
		case m != nil:
			err = m.take(ctx, r)
		case !refused:
			err = tidemark.Errorf(tidemark.Internal, "the source has a record of no chat")
		}
		if _, ends := r.(End); ends {
			m = nil
		}
		if err == nil {
			continue
		}
		if !refuses(err) {
			return fmt.Errorf("the chat %q: %w", name, err)
		}
		m, refused = nil, true
		i.refuse(name, err)
		if !i.cfg.Continue {
			return fmt.Errorf("the chat %q is refused: %s", name, tidemark.DetailOf(err))
		}
	}
	switch n := i.Report().RefusedChats; {
	case ctx.Err() != nil:
		return ErrInterrupted
	case m != nil:
		return tidemark.Errorf(tidemark.Invalid, "the source ends within the chat %q", name)
	case n > 0:
		return fmt.Errorf("%d chats were refused; the report says why", n)
	}
	return nil
}

// refuses reports whether an error is about a chat. Any other one ends the import.
func refuses(err error) bool {
	switch tidemark.CodeOf(err) {
	case tidemark.Unavailable, tidemark.Internal:
		return false
	}
	return true
}

func (i *Importer) refuse(chat string, err error) {
	i.count(func(r *Report) {
		r.RefusedChats++
		if len(r.Refused) < maxRefused {
			r.Refused = append(r.Refused, Refusal{
				Chat: chat, Code: tidemark.CodeOf(err), Reason: tidemark.DetailOf(err),
			})
		}
	})
}

// call returns the context of a call of the store. It does not end with ctx: a call that has begun
// runs to its end.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTime)
}
