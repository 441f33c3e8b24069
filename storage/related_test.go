package storage_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestRelated_reads_few_more_targets_than_fit: a page of edits of large messages reads the targets
// in parts.
func TestRelated_reads_few_more_targets_than_fit(t *testing.T) {
	const pageSize, large = 1_000, 60_000
	for _, before := range []tidemark.Sequence{0, 2*pageSize + 1} {
		targets := 0
		read := func(_ context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
			pages := make([][]tidemark.Message, len(ranges))
			for i, r := range ranges {
				if r.Bare {
					targets++
					pages[i] = []tidemark.Message{
						{
							ChatID: "c", Sequence: r.After + 1, Content: strings.Repeat("x", large),
							Revision: &tidemark.Revision{Sequence: 2 * pageSize},
						},
					}
					continue
				}
				for n := range tidemark.Sequence(pageSize) {
					pages[i] = append(pages[i], tidemark.Message{
						ChatID: "c", Sequence: pageSize + 1 + n, Kind: tidemark.KindEdit,
						Relation: &tidemark.Relation{Sequence: 1 + n},
					})
				}
			}
			return pages, nil
		}
		pages, err := storage.Related(t.Context(), []storage.Range{{
			Chat: "c", After: pageSize, Before: before, Limit: pageSize, MaxBytes: 1 << 20,
		}}, read)
		if err != nil {
			t.Fatal(err)
		}
		page := pages[0]
		if len(page) != 1<<20/large+1 || targets > 2*len(page) {
			t.Errorf("before %d: got %d messages by reading %d targets, want 18 by at most 36",
				before, len(page), targets)
		}
		want := tidemark.Sequence(pageSize + 1)
		if before != 0 {
			want = before - tidemark.Sequence(len(page))
		}
		for i, m := range page {
			if m.Sequence != want+tidemark.Sequence(i) ||
				m.Relation.Target.Sequence != m.Sequence-pageSize {
				t.Fatalf("before %d: message %d is %d with the target %d", before, i, m.Sequence,
					m.Relation.Target.Sequence)
			}
		}
	}
}

// TestRelated_serves_no_target_from_before_its_relation: a store may show a relation before the
// change of its target. The page then ends before it.
func TestRelated_serves_no_target_from_before_its_relation(t *testing.T) {
	old := tidemark.Message{ChatID: "c", Sequence: 1, Content: "secret"}
	for name, test := range map[string]struct {
		revision *tidemark.Revision
		want     int
	}{
		"none":            {nil, 1},
		"an earlier edit": {&tidemark.Revision{Sequence: 2, Kind: tidemark.KindEdit}, 1},
		"this redaction":  {&tidemark.Revision{Sequence: 3, Kind: tidemark.KindRedact}, 2},
		"an earlier redaction": {
			&tidemark.Revision{Sequence: 2, Kind: tidemark.KindRedact}, 2,
		},
		"a later edit": {&tidemark.Revision{Sequence: 4, Kind: tidemark.KindEdit}, 2},
	} {
		target := old
		target.Revision = test.revision
		relation := tidemark.Message{
			ChatID: "c", Sequence: 3, Kind: tidemark.KindRedact,
			Relation: &tidemark.Relation{Sequence: 1},
		}
		read := func(_ context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
			if ranges[0].Bare {
				return [][]tidemark.Message{{target}}, nil
			}
			return [][]tidemark.Message{{{ChatID: "c", Sequence: 2}, relation}}, nil
		}
		pages, err := storage.Related(t.Context(),
			[]storage.Range{{Chat: "c", After: 1, Limit: 10}}, read)
		if err != nil || len(pages[0]) != test.want {
			t.Errorf("%s: got %+v, %v, want %d messages", name, pages, err, test.want)
		}
		appended := storage.Appended{Message: relation}
		err = storage.Relate(t.Context(), &appended, read)
		if (tidemark.CodeOf(err) == tidemark.Unavailable) != (test.want == 1) {
			t.Errorf("%s: the answer to a send is %+v, %v", name, appended, err)
		}
	}
}

// TestRelated_reads_no_target_of_an_annotation: reactions and pins change nothing of theirs.
func TestRelated_reads_no_target_of_an_annotation(t *testing.T) {
	page := []tidemark.Message{
		{
			ChatID: "c", Sequence: 2, Kind: tidemark.KindReact,
			Relation: &tidemark.Relation{Sequence: 1, Emoji: "👍"},
		},
		{
			ChatID: "c", Sequence: 3, Kind: tidemark.KindPin,
			Relation: &tidemark.Relation{Sequence: 1},
		},
	}
	read := func(_ context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
		if ranges[0].Bare {
			t.Errorf("the targets %+v are read", ranges)
			return make([][]tidemark.Message, len(ranges)), nil
		}
		return [][]tidemark.Message{page}, nil
	}
	pages, err := storage.Related(t.Context(), []storage.Range{{Chat: "c", Limit: 10}}, read)
	if err != nil || len(pages[0]) != len(page) {
		t.Fatalf("got %+v, %v, want %d messages", pages, err, len(page))
	}
	for i := range page {
		if got := pages[0][i].Relation; !cmp.Equal(got, page[i].Relation) {
			t.Errorf("message %d: got the relation %+v", page[i].Sequence, got)
		}
		appended := storage.Appended{Message: page[i]}
		if err := storage.Relate(t.Context(), &appended, read); err != nil {
			t.Errorf("the answer to a send of %s: %v", page[i].Kind, err)
		}
	}
}
