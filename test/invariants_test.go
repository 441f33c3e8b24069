package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/test/mutate/table"
)

// TestInvariants_breaks_fit_the_code: a break whose old text is gone, or is there twice, would break nothing, or something else.
func TestInvariants_breaks_fit_the_code(t *testing.T) {
	for _, b := range breaks(t) {
		source, err := os.ReadFile(filepath.Join("..", b.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := b.Apply(string(source)); err != nil {
			t.Error(err)
		}
	}
}

func breaks(t *testing.T) []table.Break {
	t.Helper()
	all, err := table.Read("mutate")
	if err != nil {
		t.Fatal(err)
	}
	return all
}
