package postgres

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A missing message is damage, and never taken for the end of the chat or of a page.
func TestRanges_hole_is_Unavailable(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("COMMIT")
	var drafts []tidemark.Draft
	for n := range 6 {
		drafts = append(drafts, message("c", "anna", fmt.Sprint(n+1), "hello"))
	}
	if _, err := s.Append(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	for _, missing := range []int{1, 3, 6} {
		t.Run(fmt.Sprintf("message %d of 6", missing), func(t *testing.T) {
			r.t = t
			r.do("BEGIN")
			r.do("CREATE TABLE lost AS SELECT * FROM messages WHERE sequence = $1", missing)
			r.do("DELETE FROM messages WHERE sequence = $1", missing)
			r.do("COMMIT")
			for _, tc := range []struct {
				name        string
				wanted      storage.Range
				first, last int
			}{
				{"all, up", storage.Range{Limit: 100}, 1, 6},
				{"all, down", storage.Range{Before: 7, Limit: 100}, 1, 6},
				{"a full page, up", storage.Range{After: 1, Limit: 2}, 2, 3},
				{"a full page, down", storage.Range{Before: 4, Limit: 2}, 2, 3},
				{"the end", storage.Range{After: 4, Limit: 2}, 5, 6},
				{"the last ones", storage.Range{Before: 100, Limit: 2}, 5, 6},
				{"the beginning", storage.Range{Limit: 2}, 1, 2},
				{"up to some bytes", storage.Range{Limit: 100, MaxBytes: 10}, 1, 2},
			} {
				tc.wanted.Chat = "c"
				pages, err := s.Ranges(t.Context(), []storage.Range{
					{Chat: "d", Limit: 1}, tc.wanted,
				})
				switch {
				case missing >= tc.first && missing <= tc.last:
					if tidemark.CodeOf(err) != tidemark.Unavailable {
						t.Errorf("%s: got %v and %v, want Unavailable", tc.name, pages, err)
					} else {
						wantError(t, err, tidemark.Unavailable, "corrupt")
					}
				case err != nil || len(pages[1]) != tc.last-tc.first+1:
					t.Errorf("%s, where nothing is missing: got %v and %v", tc.name, pages, err)
				}
			}
			r.do("INSERT INTO messages SELECT * FROM lost")
			r.do("DROP TABLE lost")
		})
	}
}
