package dir_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/dir"
)

// fixture is a directory, and a file of it.
type fixture struct {
	*testing.T
	*dir.Dir
	root string
	file attachments.File
}

func start(t *testing.T) *fixture {
	t.Helper()
	root := t.TempDir()
	files, err := dir.New(root, "/files")
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, files, root, attachments.File{
		ID: strings.Repeat("A", 26), Name: "a", Type: "a/b", Size: 5,
		Sum: sha256.Sum256([]byte("12345")),
	}}
}

// put uploads a body without a length.
func (f *fixture) put(body io.Reader) error {
	f.Helper()
	signed, err := f.SignUpload(f.Context(), "alice", &f.file, time.Now().Add(time.Minute))
	if err != nil {
		f.Fatal(err)
	}
	address, err := url.Parse(signed.URL)
	if err != nil {
		f.Fatal(err)
	}
	return f.Receive(dir.Put{
		ID: f.file.ID, Grant: address.Query().Get("grant"), Type: f.file.Type, Length: -1,
		Body: body,
	})
}

// left returns the files below the root, besides the key.
func (f *fixture) left() (paths []string) {
	f.Helper()
	err := filepath.WalkDir(f.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "key" {
			paths = append(paths, strings.TrimPrefix(path, f.root))
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	return paths
}

func (f *fixture) code(what string, err error, want tidemark.Code) {
	f.Helper()
	if got := tidemark.CodeOf(err); got != want {
		f.Errorf("%s: got %v, want %q", what, err, want)
	}
}

func TestDir_no_file_outside_membership(t *testing.T) {
	f := start(t)
	for _, id := range []string{
		"../key", "..", "", "AA", "/etc/passwd", strings.Repeat("A", 25) + "/",
		strings.Repeat("A", 27), strings.Repeat("a", 26),
	} {
		f.file.ID = id
		f.code("upload of "+id, f.put(strings.NewReader("12345")), tidemark.Invalid)
		_, err := f.Stored(t.Context(), &f.file)
		f.code("look at "+id, err, tidemark.Invalid)
		f.code("removal of "+id, f.Remove(t.Context(), id), tidemark.Invalid)
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
	if _, err := os.Stat(filepath.Join(f.root, "key")); err != nil {
		t.Error(err)
	}
}

func TestDir_bounded_input(t *testing.T) {
	f := start(t)
	f.code("one byte more", f.put(strings.NewReader("123456")), tidemark.TooLarge)
	f.code("one byte less", f.put(strings.NewReader("1234")), tidemark.Invalid)
	f.code("other bytes", f.put(strings.NewReader("12346")), tidemark.Invalid)
	f.code("a body that fails", f.put(io.MultiReader(strings.NewReader("123"), failing{})),
		tidemark.Internal)
	if left := f.left(); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
	f.code("the file", f.put(strings.NewReader("12345")), "")
}

// failing is a body that cannot be read.
type failing struct{}

// Read implements io.Reader.
func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// during calls a function before the first byte of a body.
type during struct {
	io.Reader
	call func()
}

// Read implements io.Reader.
func (d *during) Read(b []byte) (int, error) {
	if d.call != nil {
		d.call()
	}
	d.call = nil
	return d.Reader.Read(b)
}

// TestDir_first_upload_stays uploads a file while it is uploaded.
func TestDir_first_upload_stays(t *testing.T) {
	f := start(t)
	second := &during{strings.NewReader("12345"), func() {
		f.code("the first", f.put(strings.NewReader("12345")), "")
	}}
	f.code("the second", f.put(second), tidemark.Conflict)
	if left := f.left(); len(left) != 1 {
		t.Errorf("there are %v", left)
	}
}

// TestNew_keeps_its_key: URLs of a server are valid for the next one, and for others on the
// directory.
func TestNew_keeps_its_key(t *testing.T) {
	f := start(t)
	f.code("the file", f.put(strings.NewReader("12345")), "")
	link, err := f.SignDownload(
		t.Context(), "alice", &f.file, "attachment", time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	other, err := dir.New(f.root, "/files")
	if err != nil {
		t.Fatal(err)
	}
	got, err := other.Open(f.file.ID, address.Query().Get("grant"))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if content, err := io.ReadAll(got); err != nil || !bytes.Equal(content, []byte("12345")) {
		t.Errorf("%q, %v", content, err)
	}
	if err := os.WriteFile(filepath.Join(f.root, "key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = dir.New(f.root, "/files")
	f.code("a key that is cut off", err, tidemark.Unavailable)
}

// TestNew_removes_what_is_left removes what uploads of a killed server have left, after a day.
func TestNew_removes_what_is_left(t *testing.T) {
	f := start(t)
	for name, age := range map[string]time.Duration{"young": time.Hour, "old": 25 * time.Hour} {
		path := filepath.Join(f.root, "new", name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dir.New(f.root, "/files"); err != nil {
		t.Fatal(err)
	}
	if left := f.left(); len(left) != 1 || left[0] != "/new/young" {
		t.Errorf("there are %v", left)
	}
}
