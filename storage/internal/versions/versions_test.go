package versions_test

import (
	"testing"
	"testing/fstest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/internal/versions"
)

func TestNewest(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		want       uint
		code       tidemark.Code
	}{
		{"the last of two", "sql/0012_b.up.sql", 12, ""},
		{"a file down", "sql/0012_b.down.sql", 2, ""},
		{"another folder", "other/0012_b.up.sql", 2, ""},
		{"no number", "sql/b.up.sql", 0, tidemark.Internal},
	} {
		files := fstest.MapFS{"sql/0002_a.up.sql": {}, tc.file: {}}
		got, err := versions.Newest(files, "sql")
		if got != tc.want || tidemark.CodeOf(err) != tc.code {
			t.Errorf("%s: got %d, %v, want %d, %q", tc.name, got, err, tc.want, tc.code)
		}
	}
	if _, err := versions.Newest(fstest.MapFS{}, "sql"); tidemark.CodeOf(err) != tidemark.Internal {
		t.Errorf("no files: got %v, want Internal", err)
	}
}
