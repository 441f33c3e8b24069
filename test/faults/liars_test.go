package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// liar is a store that breaks a rule now and then.
type liar struct {
	storage.Store
	calls   atomic.Int64
	append  func(s storage.Store, n int64, drafts []tidemark.Draft) ([]storage.Appended, error)
	advance func(n int64, advanced []storage.Advanced)
	clear   func(items []storage.Clear)
	ranges  func(n int64, pages [][]tidemark.Message)
	rows    func(rows []storage.PendingRow) []storage.PendingRow
	behind  func(n int64, chats []storage.Lag) []storage.Lag
	add     func(s storage.Store, chat tidemark.ChatID, users []tidemark.UserID, now time.Time) (storage.Added, error)
	create  func(s storage.Store, new storage.NewChat) storage.NewChat
	// stay says that who leaves stays.
	stay bool
	// hang is how long the fifth call of Heads takes, whatever its deadline.
	hang time.Duration
}

// Append implements storage.Messages.
func (l *liar) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	if l.append != nil {
		return l.append(l.Store, l.calls.Add(1), drafts)
	}
	return l.Store.Append(ctx, drafts)
}

// Advance implements storage.Deliveries.
func (l *liar) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	advanced, err := l.Store.Advance(ctx, advances)
	if l.advance != nil && err == nil {
		l.advance(l.calls.Add(1), advanced)
	}
	return advanced, err
}

// Clear implements storage.Pending.
func (l *liar) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	if l.clear != nil {
		l.clear(items)
	}
	return l.Store.Clear(ctx, items)
}

// Behind implements storage.Pending.
func (l *liar) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	chats, next, more, err := l.Store.Behind(ctx, user, q)
	if l.behind != nil && err == nil {
		chats = l.behind(l.calls.Add(1), chats)
	}
	return chats, next, more, err
}

// PendingOf implements storage.Pending.
func (l *liar) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	rows, more, err := l.Store.PendingOf(ctx, user, after, limit)
	if l.rows != nil && err == nil {
		rows = l.rows(rows)
	}
	return rows, more, err
}

// CreateChat implements storage.Chats.
func (l *liar) CreateChat(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	if l.create != nil {
		new = l.create(l.Store, new)
	}
	return l.Store.CreateChat(ctx, new)
}

// AddMembers implements storage.Members.
func (l *liar) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID, now time.Time,
) (storage.Added, error) {
	if l.add != nil {
		return l.add(l.Store, chat, users, now)
	}
	return l.Store.AddMembers(ctx, chat, users, now)
}

// Ranges implements storage.Messages.
func (l *liar) Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	pages, err := l.Store.Ranges(ctx, ranges)
	if l.ranges != nil && err == nil {
		l.ranges(l.calls.Add(1), pages)
	}
	return pages, err
}

// RemoveMember implements storage.Members.
func (l *liar) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	removed, err := l.Store.RemoveMember(ctx, chat, user, now)
	if l.stay && err == nil {
		_, err = l.AddMembers(ctx, chat, []tidemark.UserID{user}, now)
	}
	return removed, err
}

// Heads implements storage.Chats.
func (l *liar) Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error) {
	if l.hang > 0 && l.calls.Add(1) == 5 {
		<-time.After(l.hang)
	}
	return l.Store.Heads(ctx, chats)
}

// TestHistory_notices_stores_that_lie shows what the comparison is worth: on an honest store, also one that loses replies and is slow, it finds
// nothing, and it finds each lie.
func TestHistory_notices_stores_that_lie(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		liar *liar
		want string // in one of the violations; none if it is empty
	}{
		"honest": {&liar{}, ""},
		"loses replies and requests": {&liar{append: func(s storage.Store, n int64, drafts []tidemark.Draft) ([]storage.Appended, error) {
			if n%5 == 1 {
				return nil, tidemark.Errorf(tidemark.Unavailable, "not reached")
			}
			appended, err := s.Append(ctx, drafts)
			if n%5 == 2 {
				return nil, tidemark.Errorf(tidemark.Unavailable, "reply lost")
			}
			return appended, err
		}}, ""},
		"loses a confirmed message": {&liar{append: func(s storage.Store, n int64, drafts []tidemark.Draft) ([]storage.Appended, error) {
			if n != 30 {
				return s.Append(ctx, drafts)
			}
			heads, err := s.Heads(ctx, []tidemark.ChatID{drafts[0].ChatID})
			if err != nil {
				return nil, err
			}
			appended := []storage.Appended{}
			for i, d := range drafts {
				appended = append(appended, storage.Appended{
					Message: d.Message(heads[0]+1+tidemark.Sequence(i), 1),
				})
			}
			return appended, nil
		}}, "stored at 0"},
		"stores one twice": {&liar{append: func(s storage.Store, n int64, drafts []tidemark.Draft) ([]storage.Appended, error) {
			if n == 30 {
				again := drafts[0]
				again.SenderID = map[bool]tidemark.UserID{true: "ann", false: "Ben"}[again.SenderID == "Ben"]
				if _, err := s.Append(ctx, []tidemark.Draft{again}); err != nil {
					return nil, err
				}
			}
			return s.Append(ctx, drafts)
		}}, "is stored at"},
		"answers Internal": {&liar{append: func(s storage.Store, n int64, drafts []tidemark.Draft) ([]storage.Appended, error) {
			if n == 30 {
				return nil, tidemark.Wrap(tidemark.Internal, errors.New("x"), "a bug")
			}
			return s.Append(ctx, drafts)
		}}, "want Unavailable"},
		"a watermark goes back": {&liar{advance: func(n int64, advanced []storage.Advanced) {
			if n > 20 {
				advanced[0].State.Acked = 1
			}
		}}, "is told as 1, after"},
		"a watermark is told and not stored": {&liar{advance: func(n int64, advanced []storage.Advanced) {
			if n == 20 {
				advanced[0].State.Acked += 1_000_000
			}
		}}, "somebody was told 1000"},
		"clears too much": {
			&liar{clear: func(items []storage.Clear) { items[0].Through = tidemark.MaxSequence }},
			"can only be one of",
		},
		"clears nothing": {
			&liar{clear: func(items []storage.Clear) { items[0].User = "nobody" }},
			"can only be one of",
		},
		"a hole in a page": {&liar{ranges: func(_ int64, pages [][]tidemark.Message) {
			if len(pages[0]) > 5 {
				pages[0] = slices.Concat(pages[0][:2], pages[0][3:])
			}
		}}, "is that of sequence"},
		"a page that ends before the head": {&liar{ranges: func(n int64, pages [][]tidemark.Message) {
			if n < 1000 {
				pages[0] = nil
			}
		}}, "its head was told as"},
		"who leaves stays": {&liar{stay: true}, "is a member of"},
		"one who is behind is told that he is " +
			"not": {&liar{behind: func(_ int64, chats []storage.Lag) []storage.Lag {
			return chats[len(chats)/2:]
		}}, "is behind in"},
		"a crowd is added one by one": {&liar{add: func(s storage.Store, chat tidemark.ChatID, users []tidemark.UserID, now time.Time) (added storage.Added, err error) {
			for half := range slices.Chunk(users, max(1, len(users)/2)) {
				if added, err = s.AddMembers(ctx, chat, half, now); err != nil {
					return added, err
				}
			}
			return added, nil
		}}, "has version"},
		"one of a crowd is forgotten": {&liar{add: func(s storage.Store, chat tidemark.ChatID, users []tidemark.UserID, now time.Time) (storage.Added, error) {
			return s.AddMembers(ctx, chat, users[:max(1, len(users)-1)], now)
		}}, "who came"},
		"a chat begins without its last member": {&liar{create: func(_ storage.Store, new storage.NewChat) storage.NewChat {
			if len(new.Members) > 4 {
				new.Members = new.Members[:len(new.Members)-1]
			}
			return new
		}}, "was created"},
		"the rows of a Large chat are not there": {&liar{rows: func(rows []storage.PendingRow) []storage.PendingRow {
			return slices.DeleteFunc(rows,
				func(r storage.PendingRow) bool { return r.FirstUndelivered == 0 })
		}}, "for the Large chat"},
		"two people have two direct chats": {&liar{create: func(_ storage.Store, new storage.NewChat) storage.NewChat {
			if new.Type == tidemark.Direct {
				new.Type = tidemark.Group
			}
			return new
		}}, "have two direct chats"},
		"hangs": {&liar{hang: 7 * time.Second}, "with a deadline of"},
		"stuck": {&liar{append: func(s storage.Store, n int64, drafts []tidemark.Draft) ([]storage.Appended, error) {
			if n > 100 && drafts[0].ChatID == "B" {
				return nil, tidemark.Errorf(tidemark.Unavailable, "for ever")
			}
			return s.Append(ctx, drafts)
		}}, "not within 1s after the fault"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.liar.Store = memory.New()
			h := newHistory(t, tc.liar, tc.liar)
			if name == "stuck" {
				h.patience = time.Second
			}
			h.founders = append(h.founders, &founder{
				history: h,
				name:    "founder",
				crowd:   largeCrowd,
			})
			h.run(func() {
				h.await(30*time.Second, "enough is done", func() bool {
					return len(h.calls) >= 17 && h.least("CreateChat") >= 15 &&
						h.calls["CreateChat"] >= 6 || len(h.violations) > 0
				})
			})
			if tc.want == "" && len(h.violations) > 0 || h.confirmed == 0 {
				t.Errorf("seed %d: an honest store is accused of %d violations: %s",
					h.seed, len(h.violations), h.violations[:min(5, len(h.violations))])
			}
			if tc.want != "" && !strings.Contains(strings.Join(h.violations, "\n"), tc.want) {
				t.Errorf("seed %d: the violations are %q, want one with %q",
					h.seed, h.violations[:min(5, len(h.violations))], tc.want)
			}
		})
	}
}
