package access

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// counted counts the reads of documents, and fails them on demand.
type counted struct {
	*memory.Store
	reads int
	fails bool
}

func (c *counted) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	c.reads++
	if c.fails {
		return nil, tidemark.Wrap(tidemark.Unavailable, errors.New("down"), "the store is down")
	}
	return c.Store.DocumentsOf(ctx, keys)
}

// in is a term that lasts.
type in chat.Term

func (t in) Term() chat.Term { return chat.Term(t) }

func TestRecord_refuses(t *testing.T) {
	now := time.Date(2026, 1, 31, 10, 0, 0, 500_000_000, time.UTC)
	ms := tidemark.Millis(now.UnixMilli())
	for what, tt := range map[string]struct {
		record Record
		issued time.Time
		want   tidemark.Code
	}{
		"nobody":    {Record{}, time.Unix(0, 0), ""},
		"suspended": {Record{Suspension: &Suspension{}}, now, tidemark.Denied},
		"suspended until later": {
			Record{Suspension: &Suspension{Until: ms + 1}}, now, tidemark.Denied,
		},
		"suspended until now": {Record{Suspension: &Suspension{Until: ms}}, now, ""},
		"signed out before":   {Record{ValidAfter: ms - 1}, now, ""},
		"signed out now":      {Record{ValidAfter: ms}, now, tidemark.Unauthenticated},
		"signed out, undated": {
			Record{ValidAfter: ms}, time.Unix(0, 0), tidemark.Unauthenticated,
		},
		"signed out, a key": {Record{ValidAfter: ms}, time.Time{}, ""},
	} {
		if got := tidemark.CodeOf(tt.record.Refusal(tt.issued, now)); got != tt.want {
			t.Errorf("%s: got %q, want %q", what, got, tt.want)
		}
	}
}

func TestCheck_reads_once_in_a_while(t *testing.T) {
	for what, tt := range map[string]struct {
		term  chat.Term
		times int
	}{
		"while changes reach the node": {1, 2},
		"while one may be missed":      {chat.NoTerm, 13},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				docs := &counted{Store: memory.New()}
				a := New(Config{
					Documents: docs, Now: time.Now, Terms: in(tt.term),
				})
				for range 61 {
					if err := a.Check(t.Context(), "bob", time.Time{}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if docs.reads != tt.times {
					t.Errorf("61 calls in a minute read %d times, want %d", docs.reads, tt.times)
				}
			})
		})
	}
}

func TestCheck_while_the_store_does_not_answer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &counted{Store: memory.New()}
		a := New(Config{
			Documents: docs, Now: time.Now, Terms: in(1),
		})
		if err := a.Check(t.Context(), "bob", time.Time{}); err != nil {
			t.Fatal(err)
		}
		docs.fails, docs.reads = true, 0
		time.Sleep(2 * time.Minute)
		for range 5 {
			if err := a.Check(t.Context(), "bob", time.Time{}); err != nil {
				t.Errorf("a record of two minutes ago: %v", err)
			}
		}
		if docs.reads != 1 {
			t.Errorf("5 calls at a time read %d times, want once", docs.reads)
		}
		for _, tt := range []struct {
			user  tidemark.UserID
			after time.Duration
			want  tidemark.Code
		}{
			{"bob", 7 * time.Minute, ""},
			{"eve", 0, tidemark.Unavailable},
			{"bob", 2 * time.Minute, tidemark.Unavailable},
		} {
			time.Sleep(tt.after)
			err := a.Check(t.Context(), tt.user, time.Time{})
			if got := tidemark.CodeOf(err); got != tt.want {
				t.Errorf("%s: got %q, want %q", tt.user, got, tt.want)
			}
		}
	})
}

// TestEdit_signed_out_stays_out_by_a_clock_behind: each sign-out moves the time on, also past a
// token that was issued since by a node whose clock is ahead.
func TestEdit_signed_out_stays_out_by_a_clock_behind(t *testing.T) {
	a := New(Config{Documents: memory.New(), Now: time.Now, Terms: in(1)})
	at := tidemark.Millis(1_700_000_000_500)
	for _, tt := range []struct {
		change Change
		want   tidemark.Millis
	}{
		{Change{SignsOut: at}, at},
		{Change{Suspends: true}, at},
		{Change{SignsOut: at - 100}, at + 1},
		{Change{SignsOut: at + 1}, at + 2},
		{Change{SignsOut: at + 100}, at + 100},
	} {
		after, err := a.Edit(t.Context(), "bob", tt.change)
		if err != nil || after.ValidAfter != tt.want {
			t.Errorf("%+v: got %d (%v), want %d", tt.change, after.ValidAfter, err, tt.want)
		}
	}
}
