// Package retention removes old messages. An operator says for how long messages of all chats are
// kept, and a backend says it for a single chat (tidemark.Policy).
//
// A pass looks at the first message of each chat, and expires what is too old. There is one pass a
// day, whatever the number of processes: a document says who works on it and how far it is
// (storage.Documents). Each process that runs a Sweeper may go on where another one ended.
package retention

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/chores"
	"github.com/tidemark-im/tidemark/storage"
)

// MinKeep is the shortest time for which messages can be kept.
const MinKeep = storage.MinAge

// forEver is for how long messages are kept if nobody sets a time.
const forEver = tidemark.MaxKeepDays * day

const day = 24 * time.Hour

const (
	// passEvery is the time between the beginnings of two passes.
	passEvery = chores.Day
	// pageChats is how many chats are looked at in one read.
	pageChats = 200
)

// Store is what a Sweeper needs of a store.
type Store interface {
	storage.Retention
	storage.Documents
	EachChat(ctx context.Context, after tidemark.ChatID, limit int) (chats []tidemark.ChatID,
		next tidemark.ChatID, more bool, err error)
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
}

// Config configures a Sweeper. All fields but Keep are required.
type Config struct {
	Store Store
	// Keep is for how long messages are kept, unless their chat says that it is shorter. It is at
	// least MinKeep, or 0: for ever.
	Keep time.Duration
	Log  *slog.Logger
	// Clock returns the time of day.
	Clock func() time.Time
}

// Sweeper removes old messages. Create it with New.
type Sweeper struct {
	cfg Config
	// name tells the processes apart.
	name            string
	removed, failed atomic.Int64
}

// New returns a Sweeper. Invalid: Keep is too short.
func New(cfg Config) (*Sweeper, error) {
	if cfg.Keep != 0 && cfg.Keep < MinKeep {
		return nil, tidemark.Errorf(tidemark.Invalid, "messages can be kept for %v at least, and "+
			"not for %v: until then their keys are needed to notice repeated sends",
			MinKeep, cfg.Keep)
	}
	return &Sweeper{cfg: cfg, name: rand.Text()}, nil
}

// Removed returns how many messages this process has removed. It only grows.
func (s *Sweeper) Removed() int64 { return s.removed.Load() }

// Failed returns how many attempts of this process have failed. It only grows.
func (s *Sweeper) Failed() int64 { return s.failed.Load() }

// Run removes old messages until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	chores.New().Run(ctx, func() time.Duration {
		looked, err := s.turn(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && !errors.Is(err, errOvertaken):
			s.failed.Add(1)
			s.cfg.Log.Warn("old messages could not be removed; it is tried again", "error", err)
		case looked > 0:
			return chores.RestAfter(looked)
		}
		return chores.Every
	})
}

// pass is the state of the present pass, or of the last one, as the document has it.
type pass struct {
	// DueAt is when a process may take the pass over, or begin the next one, in milliseconds since
	// 1970.
	DueAt int64 `json:"due_at"`
	// BeganAt is when the pass began. It is 0 if it has ended.
	BeganAt int64 `json:"began_at"`
	// Owner is the process that works on it, or that worked on it last.
	Owner string `json:"owner"`
	// After is the last chat that the pass has looked at.
	After tidemark.ChatID `json:"after"`
	// Busy is the chat whose messages are being removed, or "". If the process ended meanwhile,
	// some may be left that only Expire finds.
	Busy tidemark.ChatID `json:"busy"`
	// Removed is the number of messages that the pass has removed.
	Removed int64 `json:"removed"`
}

// key names the document with the pass.
var key = storage.DocumentKey{Kind: "retention", Name: "pass"}

// edit changes the pass in one step. change returns false to leave it as it is.
func (s *Sweeper) edit(
	ctx context.Context, change func(p *pass) bool,
) (p pass, wrote bool, err error) {
	_, wrote, err = storage.EditDocument(ctx, s.cfg.Store, key,
		func(value []byte) ([]byte, error) {
			p = pass{}
			if value != nil {
				if err := json.Unmarshal(value, &p); err != nil {
					return nil, tidemark.Wrap(tidemark.Internal, err,
						"the document retention/pass is damaged; remove it")
				}
			}
			if !change(&p) {
				return value, nil
			}
			return json.Marshal(p)
		})
	return p, wrote, err
}

// errOvertaken says that another process works on the pass now, because this one took too long.
var errOvertaken = errors.New("another process has taken the pass over")

// own changes the pass that this process works on. The error is errOvertaken if it is another's.
func (s *Sweeper) own(ctx context.Context, change func(p *pass)) (pass, error) {
	p, wrote, err := s.edit(ctx, func(p *pass) bool {
		//rule:bounded_use.only-the-owner-goes-on
		if p.Owner != s.name {
			return false
		}
		change(p)
		return true
	})
	if err == nil && !wrote && p.Owner != s.name {
		err = errOvertaken
	}
	return p, err
}

// millis returns the time of day in milliseconds since 1970.
func (s *Sweeper) millis() int64 { return s.cfg.Clock().UnixMilli() }

// claim takes the pass, if it is due.
func (s *Sweeper) claim(ctx context.Context) (p pass, mine bool, err error) {
	return s.edit(ctx, func(p *pass) bool {
		now := s.millis()
		//rule:bounded_use.one-process-expires-at-a-time
		if chores.Ahead(now, p.DueAt, passEvery) {
			return false
		}
		if p.BeganAt == 0 {
			p.BeganAt, p.Removed = now, 0
		}
		p.Owner, p.DueAt = s.name, now+chores.ClaimFor.Milliseconds()
		return true
	})
}

// turn looks at a page of chats, if that is due, and removes what is old in them. It returns how
// long it has looked, without the time in which it removed something, after which it has rested.
func (s *Sweeper) turn(ctx context.Context) (looked time.Duration, err error) {
	began := time.Now()
	p, mine, err := s.claim(ctx)
	if err != nil || !mine {
		return 0, err
	}
	chats, next, more, err := s.cfg.Store.EachChat(ctx, p.After, pageChats)
	if err != nil {
		return 0, err
	}
	kept, busy, err := s.kept(ctx, chats, p.Busy)
	if err != nil {
		return 0, err
	}
	old, err := s.old(ctx, kept)
	if err != nil {
		return 0, err
	}
	looked = max(time.Since(began), time.Millisecond)
	for _, chat := range append(busy, old...) {
		if err := s.expire(ctx, chat.id, chat.before); err != nil {
			return looked, err
		}
	}
	p, err = s.own(ctx, func(p *pass) {
		p.After, p.Busy, p.DueAt = next, "", s.millis()
		if !more {
			p.After, p.DueAt, p.BeganAt = "", p.BeganAt+passEvery.Milliseconds(), 0
		}
	})
	if err == nil && !more {
		s.cfg.Log.Info("old messages were removed from all chats", "messages", p.Removed)
	}
	return looked, err
}

// dated is a chat of which messages expire that were created before a time.
type dated struct {
	id     tidemark.ChatID
	before time.Time
}

// kept returns the chats of a page whose messages expire at all. busy has the chat on which a
// process was working, if there is one. If that chat is now kept for ever, only what was begun is
// finished.
func (s *Sweeper) kept(
	ctx context.Context, chats []tidemark.ChatID, working tidemark.ChatID,
) (kept, busy []dated, err error) {
	all := chats
	if working != "" && !slices.Contains(chats, working) {
		all = append(slices.Clone(chats), working)
	}
	policies, err := s.cfg.Store.Policies(ctx, all)
	if err != nil {
		return nil, nil, err
	}
	now := s.cfg.Clock()
	for i, chat := range all {
		policy := policies[i]
		keep := forEver
		if s.cfg.Keep > 0 {
			keep = s.cfg.Keep
		}
		if own := time.Duration(policy.KeepDays) * day; own > 0 {
			//rule:held_is_kept.shorter-time-wins
			keep = min(keep, own)
		}
		one := dated{chat, now.Add(-keep)}
		//rule:floor_recorded.finish-what-was-begun
		if chat == working {
			busy = append(busy, one)
		}
		//rule:held_is_kept.hold-beats-all
		if i < len(chats) && keep < forEver && !policy.Hold {
			kept = append(kept, one)
		}
	}
	return kept, busy, nil
}

// old returns the chats whose first message is old. It leaves out chats that cannot be read.
func (s *Sweeper) old(ctx context.Context, chats []dated) (old []dated, err error) {
	if len(chats) == 0 {
		return nil, nil
	}
	ranges := make([]storage.Range, len(chats))
	for i, chat := range chats {
		ranges[i] = storage.Range{Chat: chat.id, Limit: 1, Bare: true}
	}
	firsts, err := s.cfg.Store.Ranges(ctx, ranges)
	if err != nil && len(chats) > 1 {
		// One chat may be the cause.
		for i := range chats {
			one, err := s.old(ctx, chats[i:i+1])
			if err != nil {
				return nil, err
			}
			old = append(old, one...)
		}
		return old, nil
	}
	if err != nil {
		s.gaveUp(chats[0].id, err)
		return nil, ctx.Err()
	}
	for i, first := range firsts {
		if len(first) > 0 && first[0].CreatedAt.Before(chats[i].before) {
			old = append(old, chats[i])
		}
	}
	return old, nil
}

// gaveUp records that a chat is left to the next pass.
func (s *Sweeper) gaveUp(chat tidemark.ChatID, err error) {
	s.failed.Add(1)
	s.cfg.Log.Warn("old messages of a chat could not be removed; the next pass tries again",
		"chat_id", chat, "error", err)
}

// expire removes all messages of a chat that are old. If the store fails several times, it leaves
// the chat to the next pass. Error: errOvertaken, or that of ctx.
func (s *Sweeper) expire(ctx context.Context, chat tidemark.ChatID, before time.Time) error {
	removed := int64(0)
	failed, err := chores.Repeat(ctx, func() error {
		return s.working(ctx, chat, &removed)
	}, func() (done bool, err error) {
		expired, err := s.cfg.Store.Expire(ctx, chat, before, storage.MaxExpired)
		s.removed.Add(int64(expired.Removed))
		removed += int64(expired.Removed)
		if tidemark.CodeOf(err) == tidemark.Conflict {
			return true, nil // The chat was put on hold meanwhile.
		}
		return expired.Removed < storage.MaxExpired, err
	})
	if err != nil {
		return err
	}
	if failed != nil {
		s.gaveUp(chat, failed)
	}
	return s.working(ctx, "", &removed)
}

// working says on which chat this process works, or "" when it is done with one, and adds what it
// has removed.
func (s *Sweeper) working(ctx context.Context, chat tidemark.ChatID, removed *int64) error {
	_, err := s.own(ctx, func(p *pass) {
		p.Busy, p.DueAt = chat, s.millis()+chores.ClaimFor.Milliseconds()
		p.Removed += *removed
	})
	if err == nil {
		*removed = 0
	}
	return err
}
