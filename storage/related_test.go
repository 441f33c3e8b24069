package storage_test

import (
	"context"
	"strings"
	"testing"

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
						{ChatID: "c", Sequence: r.After + 1, Content: strings.Repeat("x", large)},
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
