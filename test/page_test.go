package test

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/web"
)

// maxPageBytes and maxConsoleBytes bound what a browser loads for each, compressed.
const (
	maxPageBytes    = 63 << 10
	maxConsoleBytes = 25 << 10
	// These parts are loaded when they are shown: files of messages, changes of messages,
	// reactions, pins, who has received them, and what is under the hood.
	maxLaterBytes = 11<<10 + 512
)

// TestPage_is_built_from_its_sources builds the page anew. The embedded files are the same, byte
// for byte.
func TestPage_is_built_from_its_sources(t *testing.T) {
	t.Parallel() // It waits for another process.
	npm := lookPath(t, "npm", "nodejs npm")
	if _, err := os.Stat("../web/app/node_modules/vite"); err != nil {
		t.Fatalf("vite is missing (%v). Run this, then the test again:\n  make web-deps", err)
	}
	built := filepath.Join(t.TempDir(), "page")
	cmd := exec.CommandContext(t.Context(), npm, "run", "--silent", "build")
	cmd.Dir = "../web/app"
	cmd.Env = append(os.Environ(), "TIDEMARK_PAGE="+built)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the page: %v\n%s", err, out)
	}
	got, want := filesOf(t, web.App()), filesOf(t, os.DirFS(built))
	names := slices.Concat(slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("web/dist/%s is not what web/app builds. Run make page, and commit it", name)
		}
	}
}

// TestPage_is_small: all files that open the page are together small enough for a slow phone. So
// are those of the console, and the parts that are loaded when they are shown. Neither loads the
// other's files, and the service worker of the page keeps none of the console's.
func TestPage_is_small(t *testing.T) {
	page, console, later := 0, 0, 0
	for name, content := range filesOf(t, web.App()) {
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		must(t, err)
		_, err = w.Write(content)
		must(t, err)
		must(t, w.Close())
		t.Logf("%6d of %6d bytes: %s", packed.Len(), len(content), name)
		switch {
		case strings.Contains(name, "console"):
			console += packed.Len()
		case strings.Contains(name, "Attachments"), strings.Contains(name, "Change"),
			strings.Contains(name, "Hood"), strings.Contains(name, "Panel"),
			strings.Contains(name, "Pins"), strings.Contains(name, "Presence"),
			strings.Contains(name, "Reactions"), strings.Contains(name, "WhoHasIt"),
			strings.Contains(name, "/status-"): // It is shared by two of these parts.
			later += packed.Len()
		default:
			page += packed.Len()
		}
		if name == "sw.js" && bytes.Contains(content, []byte("console")) {
			t.Error("the service worker of the page keeps files of the console")
		}
	}
	t.Logf("%6d bytes of the page, %d of the console, %d loaded later", page, console, later)
	if page == 0 || page > maxPageBytes {
		t.Errorf("the page has %d compressed bytes, at most %d are allowed", page, maxPageBytes)
	}
	if later == 0 || later > maxLaterBytes {
		t.Errorf("what is loaded later has %d compressed bytes, at most %d are allowed",
			later, maxLaterBytes)
	}
	if console == 0 || console > maxConsoleBytes {
		t.Errorf("the console has %d compressed bytes, at most %d are allowed",
			console, maxConsoleBytes)
	}
}

// filesOf returns the content of every file by its name.
func filesOf(t *testing.T, tree fs.FS) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	must(t, fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(tree, name)
		return err
	}))
	return files
}
