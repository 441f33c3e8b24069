package storage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
)

// TestSchema_schema_fits checks which program may work with which store, and what a refusal says.
func TestSchema_schema_fits(t *testing.T) {
	for _, tc := range []struct {
		store Schema
		words string // of the refusal, "" for none
	}{
		{Schema{Version: 0, Compatible: 0, Needed: 1}, "version 0, and this program needs 1; run " +
			"tidemark migrate up"},
		{Schema{Version: 1, Compatible: 1, Needed: 1}, ""},
		{Schema{Version: 1, Compatible: 1, Needed: 2}, "tidemark migrate up"},
		{Schema{Version: 2, Compatible: 1, Needed: 1}, ""},
		{Schema{Version: 3, Compatible: 2, Needed: 2}, ""},
		{Schema{Version: 3, Compatible: 2, Needed: 1}, "version 3, for programs that need " +
			"version 2 or a later one, and this program needs 1; run a newer program"},
		// The migration to 3 has begun, and takes something away.
		{Schema{Version: 2, Compatible: 3, Needed: 2}, "run a newer program"},
		{Schema{Version: 2, Compatible: 3, Needed: 3}, "tidemark migrate up"},
		// A migration of a newer program does not concern this one, also if it fails.
		{Schema{Version: 2, Compatible: 1, Needed: 1, Dirty: true}, ""},
		{Schema{Version: 2, Compatible: 1, Needed: 2, Dirty: true}, "to version 2 failed half-way"},
		{Schema{Version: 1, Compatible: 1, Needed: 2, Dirty: true}, "to version 1 failed half-way"},
		{Schema{Version: 2, Compatible: 2, Needed: 1, Dirty: true}, "run a newer program"},
		// The first migration, of this program or of a newer one.
		{Schema{Version: 1, Needed: 1, Dirty: true}, "to version 1 failed half-way"},
		{Schema{Version: 2, Needed: 1, Dirty: true}, "to version 2 failed half-way"},
	} {
		t.Run(fmt.Sprintf("%+v", tc.store), func(t *testing.T) {
			err := tc.store.Fit()
			if tc.words == "" && err != nil {
				t.Errorf("got %v, want no error", err)
			}
			if tc.words != "" && (tidemark.CodeOf(err) != tidemark.Conflict ||
				!strings.Contains(err.Error(), tc.words)) {
				t.Errorf("got %v, want a Conflict with %q", err, tc.words)
			}
			err = tc.store.Reversible()
			if tc.store.Version <= tc.store.Needed {
				if err != nil {
					t.Errorf("Reversible: got %v, want no error", err)
				}
			} else if !strings.Contains(fmt.Sprint(err), "with the newer program") {
				t.Errorf("Reversible: got %v, want the words of what to do", err)
			}
		})
	}
}

// TestSchema_schema_fits_is_damaged: a version whose compatible programs are unknown is refused,
// unless the first migration may not have ended.
func TestSchema_schema_fits_is_damaged(t *testing.T) {
	for _, tc := range []struct {
		store Schema
		want  tidemark.Code
	}{
		{Schema{Needed: 1}, ""},
		{Schema{Version: 1, Compatible: 1, Needed: 1}, ""},
		{Schema{Version: 1, Needed: 1}, tidemark.Conflict},
		{Schema{Version: 2, Needed: 1}, tidemark.Conflict},
		{Schema{Version: 1, Needed: 1, Dirty: true}, ""},
	} {
		err := tc.store.Whole()
		if tidemark.CodeOf(err) != tc.want ||
			err != nil && !strings.Contains(err.Error(), "restore a backup") {
			t.Errorf("%+v: got %v, want %q and what to do", tc.store, err, tc.want)
		}
	}
}
