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
	"github.com/tidemark-im/tidemark/test/wait"
)

// faultyStore is a store that breaks a rule now and then.
type badStore struct {
	storage.Store
	calls   atomic.Int64
	append  func(s storage.Store, n int64, drafts []tidemark.Draft) ([]storage.Appended, error)
	advance func(n int64, advanced []storage.Advanced)
	clear   func(items []storage.Clear)
	ranges  func(n int64, pages [][]tidemark.Message)
	rows    func(rows []storage.PendingRow) []storage.PendingRow
	behind  func(n int64, chats []storage.Lag) []storage.Lag
	add     func(
		s storage.Store, chat tidemark.ChatID, users []tidemark.UserID, now time.Time,
	) (storage.Added, error)
	create func(s storage.Store, new storage.NewChat) storage.NewChat
	// stay reports that members who leave stay.
	stay bool
	// hang is how long the fifth call of Heads takes, whatever its deadline.
	hang time.Duration
}

// Append implements storage.Messages.
func (l *badStore) Append(
	ctx context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
	if l.append != nil {
		return l.append(l.Store, l.calls.Add(1), drafts)
	}
	return l.Store.Append(ctx, drafts)
}

// Advance implements storage.Deliveries.
func (l *badStore) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	advanced, err := l.Store.Advance(ctx, advances)
	if l.advance != nil && err == nil {
		l.advance(l.calls.Add(1), advanced)
	}
	return advanced, err
}

// Clear implements storage.Pending.
func (l *badStore) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	if l.clear != nil {
		l.clear(items)
	}
	return l.Store.Clear(ctx, items)
}

// Behind implements storage.Pending.
func (l *badStore) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	chats, next, more, err := l.Store.Behind(ctx, user, q)
	if l.behind != nil && err == nil {
		chats = l.behind(l.calls.Add(1), chats)
	}
	return chats, next, more, err
}

// PendingOf implements storage.Pending.
func (l *badStore) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	rows, more, err := l.Store.PendingOf(ctx, user, after, limit)
	if l.rows != nil && err == nil {
		rows = l.rows(rows)
	}
	return rows, more, err
}

// CreateChat implements storage.Chats.
func (l *badStore) CreateChat(
	ctx context.Context, new storage.NewChat,
) (tidemark.Chat, bool, error) {
	if l.create != nil {
		new = l.create(l.Store, new)
	}
	return l.Store.CreateChat(ctx, new)
}

// AddMembers implements storage.Members.
func (l *badStore) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (storage.Added, error) {
	if l.add != nil {
		return l.add(l.Store, chat, users, now)
	}
	return l.Store.AddMembers(ctx, chat, users, role, now)
}

// Ranges implements storage.Messages.
func (l *badStore) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	pages, err := l.Store.Ranges(ctx, ranges)
	if l.ranges != nil && err == nil {
		l.ranges(l.calls.Add(1), pages)
	}
	return pages, err
}

// RemoveMember implements storage.Members.
func (l *badStore) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	removed, err := l.Store.RemoveMember(ctx, chat, user, now)
	if l.stay && err == nil {
		_, err = l.AddMembers(ctx, chat, []tidemark.UserID{user}, tidemark.Ordinary, now)
	}
	return removed, err
}

// Heads implements storage.Chats.
func (l *badStore) Heads(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Sequence, error) {
	if l.hang > 0 && l.calls.Add(1) == 5 {
		<-time.After(l.hang)
	}
	return l.Store.Heads(ctx, chats)
}

// TestHistory_notices_stores_that_lie shows that the comparison finds each breach. On a correct
// store it finds nothing, even if the store loses replies and is slow.
func TestHistory_notices_stores_that_lie(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		store *badStore
		want  string // a part of one of the violations; "" if there must be none
	}{
		"honest": {&badStore{}, ""},
		"loses replies and requests": {&badStore{append: func(
			s storage.Store, n int64, drafts []tidemark.Draft,
		) ([]storage.Appended, error) {
			if n%5 == 1 {
				return nil, tidemark.Errorf(tidemark.Unavailable, "not reached")
			}
			appended, err := s.Append(ctx, drafts)
			if n%5 == 2 {
				return nil, tidemark.Errorf(tidemark.Unavailable, "reply lost")
			}
			return appended, err
		}}, ""},
		"loses a confirmed message": {&badStore{append: func(
			s storage.Store, n int64, drafts []tidemark.Draft,
		) ([]storage.Appended, error) {
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
		"stores one twice": {&badStore{append: func(
			s storage.Store, n int64, drafts []tidemark.Draft,
		) ([]storage.Appended, error) {
			if n == 30 {
				again := drafts[0]
				if again.SenderID == "Ben" {
					again.SenderID = "ann"
				} else {
					again.SenderID = "Ben"
				}
				if _, err := s.Append(ctx, []tidemark.Draft{again}); err != nil {
					return nil, err
				}
			}
			return s.Append(ctx, drafts)
		}}, "is stored at"},
		"answers Internal": {&badStore{append: func(
			s storage.Store, n int64, drafts []tidemark.Draft,
		) ([]storage.Appended, error) {
			if n == 30 {
				return nil, tidemark.Wrap(tidemark.Internal, errors.New("x"), "a bug")
			}
			return s.Append(ctx, drafts)
		}}, "want Unavailable"},
		"a watermark goes back": {&badStore{advance: func(n int64, advanced []storage.Advanced) {
			if n > 20 {
				advanced[0].State.Acked = 1
			}
		}}, "is read as 1, after"},
		"a watermark is answered and not stored": {&badStore{advance: func(
			n int64, advanced []storage.Advanced,
		) {
			if n == 20 {
				advanced[0].State.Acked += 1_000_000
			}
		}}, "a caller got 1000"},
		"clears too much": {
			&badStore{clear: func(items []storage.Clear) {
				items[0].Through = tidemark.MaxSequence
			}},
			"can only be one of",
		},
		"clears nothing": {
			&badStore{clear: func(items []storage.Clear) { items[0].User = "nobody" }},
			"can only be one of",
		},
		"a hole in a page": {&badStore{ranges: func(_ int64, pages [][]tidemark.Message) {
			if len(pages[0]) > 5 {
				pages[0] = slices.Concat(pages[0][:2], pages[0][3:])
			}
		}}, "is that of sequence"},
		"a page that ends before the head": {&badStore{ranges: func(
			n int64, pages [][]tidemark.Message,
		) {
			if n < 1000 {
				pages[0] = nil
			}
		}}, "its head was read as"},
		"who leaves stays": {&badStore{stay: true}, "is a member of"},
		"a user who is behind is listed as not " +
			"behind": {&badStore{behind: func(_ int64, chats []storage.Lag) []storage.Lag {
			return chats[len(chats)/2:]
		}}, "is behind in"},
		"the members are added in two calls": {&badStore{add: func(
			s storage.Store, chat tidemark.ChatID, users []tidemark.UserID, now time.Time,
		) (added storage.Added, err error) {
			for half := range slices.Chunk(users, max(1, len(users)/2)) {
				if added, err = s.AddMembers(ctx, chat, half, tidemark.Ordinary, now); err != nil {
					return added, err
				}
			}
			return added, nil
		}}, "has version"},
		"one new member is forgotten": {&badStore{add: func(
			s storage.Store, chat tidemark.ChatID, users []tidemark.UserID, now time.Time,
		) (storage.Added, error) {
			return s.AddMembers(ctx, chat, users[:max(1, len(users)-1)], tidemark.Ordinary, now)
		}}, "who came"},
		"a chat begins without its last member": {&badStore{create: func(
			_ storage.Store, new storage.NewChat,
		) storage.NewChat {
			if len(new.Members) > 4 {
				new.Members = new.Members[:len(new.Members)-1]
			}
			return new
		}}, "was created"},
		"the rows of a Large chat are not there": {&badStore{rows: func(
			rows []storage.PendingRow,
		) []storage.PendingRow {
			return slices.DeleteFunc(rows,
				func(r storage.PendingRow) bool { return r.FirstUndelivered == 0 })
		}}, "for the Large chat"},
		"two people have two direct chats": {&badStore{create: func(
			_ storage.Store, new storage.NewChat,
		) storage.NewChat {
			if new.Type == tidemark.Direct {
				new.Type = tidemark.Group
			}
			return new
		}}, "have two direct chats"},
		"hangs": {&badStore{hang: 20 * time.Second}, "with a deadline of"},
		"stuck": {&badStore{append: func(
			s storage.Store, n int64, drafts []tidemark.Draft,
		) ([]storage.Appended, error) {
			if n > 100 && drafts[0].ChatID == "B" {
				return nil, tidemark.Errorf(tidemark.Unavailable, "for ever")
			}
			return s.Append(ctx, drafts)
		}}, "not within 1s after the fault"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.store.Store = memory.New()
			h := newHistory(t, tc.store, tc.store)
			if name == "stuck" {
				h.patience = time.Second
			}
			h.creators = append(h.creators, &groupCreator{
				history: h,
				name:    "creator",
				perStep: perStepLarge,
			})
			h.run(func() {
				_, enough := wait.Poll(func() (calls int, enough bool) {
					h.mu.Lock()
					defer h.mu.Unlock()
					for _, n := range h.calls {
						calls += n
					}
					return calls, len(h.calls) >= 17 && h.least("CreateChat") >= 15 &&
						h.calls["CreateChat"] >= 6 || len(h.violations) > 0
				})
				if !enough {
					t.Errorf("no call has ended for %v", wait.Hang)
				}
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
