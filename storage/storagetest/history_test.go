package storagetest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// busy is a store in which AddMembers holds a lock on its chat for one millisecond. A draft for a
// locked chat is refused alone as Unavailable, and is not stored. Some fields make busy break
// rules.
type busy struct {
	storage.Store
	mu     sync.Mutex
	locked map[tidemark.ChatID]int
	// refused counts the refused drafts.
	refused int
	// code is the code of a refusal, Unavailable if it is empty.
	code tidemark.Code
	// stores says that a refused draft is stored.
	stores bool
	// refusesUnlocked says that drafts are refused for chats without a lock.
	refusesUnlocked bool
	// altersText says that a draft is stored with another text than the result has.
	altersText bool
	// namesStranger says that a result has another sender, whom the history does not know.
	namesStranger bool
}

func (b *busy) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role, now time.Time,
) (storage.Added, error) {
	b.lock(chat, 1)
	defer b.lock(chat, -1)
	<-time.After(time.Millisecond)
	return b.Store.AddMembers(ctx, chat, users, role, now)
}

func (b *busy) lock(chat tidemark.ChatID, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locked[chat] += by
}

// refuses reports whether a draft of this chat is refused now.
func (b *busy) refuses(chat tidemark.ChatID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	refuses := b.locked[chat] > 0
	if b.refusesUnlocked {
		refuses = b.refused < 3
	}
	if refuses {
		b.refused++
	}
	return refuses
}

func (b *busy) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	refusal := tidemark.Errorf(tidemark.Unavailable, "somebody holds a lock on the chat")
	if b.code != "" {
		refusal = tidemark.Errorf(b.code, "no")
	}
	results := make([]storage.Appended, len(drafts))
	var taken []tidemark.Draft
	var at []int
	for i, d := range drafts {
		refused := b.refuses(d.ChatID)
		if refused {
			results[i].Err = refusal
		}
		if !refused || b.stores {
			taken, at = append(taken, d), append(at, i)
		}
	}
	if b.altersText && len(taken) > 0 {
		taken[0].Content += "!"
	}
	appended, err := b.Store.Append(ctx, taken)
	if err != nil {
		return nil, err
	}
	for i, a := range appended {
		if b.namesStranger && a.Err == nil {
			a.Message.SenderID = "nobody"
		}
		if results[at[i]].Err == nil {
			results[at[i]] = a
			if b.altersText && i == 0 && a.Err == nil && !a.Duplicate {
				results[at[i]].Message.Content = strings.TrimSuffix(a.Message.Content, "!")
			}
		}
	}
	return results, nil
}

// TestHistories_a_draft_may_be_refused_alone_and_then_is_not_stored runs histories until ten of
// them had refused drafts. A correct store passes all of them. Every other store fails one.
func TestHistories_a_draft_may_be_refused_alone_and_then_is_not_stored(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault func(b *busy)
		want  string
	}{
		{"correct", func(*busy) {}, ""},
		{
			"stores what it refuses",
			func(b *busy) { b.stores = true }, "no order of these operations",
		},
		{
			"refuses for no reason",
			func(b *busy) { b.refusesUnlocked = true }, "no other write to the chat",
		},
		{
			"says Internal",
			func(b *busy) { b.code = tidemark.Internal }, "no order of these operations",
		},
		{
			"says NotMember",
			func(b *busy) { b.code = tidemark.NotMember }, "no order of these operations",
		},
		{
			"stores another text",
			func(b *busy) { b.altersText = true }, "no order of these operations",
		},
		{
			"names a stranger",
			func(b *busy) { b.namesStranger = true }, `"nobody"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			found := ""
			for runs, histories := 0, 0; histories < 10 && found == ""; runs++ {
				if runs == 1_000 {
					t.Fatal("no draft was refused")
				}
				b := &busy{Store: memory.New(), locked: map[tidemark.ChatID]int{}}
				tc.fault(b)
				h := newHistory(newSuite(b).fixture(t), nil)
				h.run()
				if b.refused > 0 {
					histories++
				}
				for _, chat := range h.rooms {
					broken, _ := h.check(chat)
					found += broken + h.unexplained(chat)
				}
			}
			if tc.want == "" && found != "" {
				t.Errorf("a correct store failed: %s", found)
			}
			if !strings.Contains(found, tc.want) {
				t.Errorf("got %q, want it to say %q", found, tc.want)
			}
		})
	}
}

// TestHistories_an_undecided_search_counts_for_nothing: a search without time decides nothing. Such
// a history does not count, and does not fail the test alone.
func TestHistories_an_undecided_search_counts_for_nothing(t *testing.T) {
	var sum tally
	for _, searchTime := range []time.Duration{0, searchTime} {
		h := newHistory(newSuite(memory.New()).fixture(t), nil)
		h.searchTime = searchTime
		sum.add(t, h, 10)
	}
	if sum.histories != 1 || sum.undecided != 1 {
		t.Errorf("%d histories count and %d are undecided, want 1 and 1",
			sum.histories, sum.undecided)
	}
}
