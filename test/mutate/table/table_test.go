package table_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/test/mutate/table"
)

// TestRead_refuses_what_no_break_can_be: a table that was misread would show nothing, and say that all is well.
func TestRead_refuses_what_no_break_can_be(t *testing.T) {
	const good = "name: a\nshows: x y\nfile: f.go\ntest: . ^TestX$/^y z$\n-old\n-text\n+new\n"
	for what, text := range map[string]string{
		"no breaks":          "# nothing\n",
		"a name twice":       good + "\n" + good,
		"no test":            "name: a\nshows: x\nfile: f.go\n-old\n+new\n",
		"no regexp":          "name: a\nshows: x\nfile: f.go\ntest: .\n-old\n+new\n",
		"no rule":            "name: a\nfile: f.go\ntest: . X\n-old\n+new\n",
		"no old text":        "name: a\nshows: x\nfile: f.go\ntest: . X\n+new\n",
		"the same text":      "name: a\nshows: x\nfile: f.go\ntest: . X\n-old\n+old\n",
		"a key that is none": good + "tset: . X\n",
	} {
		if breaks, err := read(t, text); err == nil {
			t.Errorf("%s: got %+v, want an error", what, breaks)
		}
	}
	breaks, err := read(t, good+"\n# a comment\n\nname: b\nshows: z\nfile: f.go\ntest: . X\n-old\n+\n")
	if err != nil || len(breaks) != 2 {
		t.Fatalf("got %+v, %v, want two breaks", breaks, err)
	}
	if b := breaks[0]; b.Old != "old\ntext" || b.New != "new" || b.Package != "." || b.Test != "^TestX$/^y z$" || len(b.Shows) != 2 {
		t.Errorf("got %+v", b)
	}
	if breaks[1].New != "" {
		t.Errorf("new text: got %q, want none", breaks[1].New)
	}
}

func TestApply_wants_the_old_text_once(t *testing.T) {
	b := table.Break{Name: "a", File: "f.go", Old: "x", New: "y"}
	for source, want := range map[string]string{"axb": "ayb", "ab": "", "axbx": ""} {
		got, err := b.Apply(source)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Apply(%q) = %q, %v, want %q", source, got, err, want)
		}
	}
}

func read(t *testing.T, text string) ([]table.Break, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return table.Read(dir)
}
