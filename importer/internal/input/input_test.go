package input

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
)

// line has a field of each type.
type line struct {
	Text  string   `json:"text"`
	Yes   bool     `json:"yes"`
	Int   int64    `json:"int"`
	Count *uint64  `json:"count"`
	Size  float64  `json:"size"`
	At    Time     `json:"at"`
	Users []string `json:"users"`
	Of    struct {
		Name string `json:"name"`
	} `json:"of"`
}

// TestDecode_says_what_is_wrong in words of the file: which field, what it has, and what it must
// be.
func TestDecode_says_what_is_wrong(t *testing.T) {
	for text, want := range map[string]string{
		`{"text":7}`:        "text has a number where a string must be",
		`{"text":{}}`:       "text has an object where a string must be",
		`{"text":["x"]}`:    "text has an array where a string must be",
		`{"yes":"true"}`:    "yes has a string where true or false must be",
		`{"int":1.5}`:       "int has the number 1.5 where a whole number must be",
		`{"int":true}`:      "int has a boolean where a whole number must be",
		`{"count":-1}`:      "count has the number -1 where a whole number from 0 on must be",
		`{"size":"1"}`:      "size has a string where a number must be",
		`{"users":"a"}`:     "users has a string where an array must be",
		`{"users":["a",1]}`: "users has a number where a string must be",
		`{"of":1}`:          "of has a number where an object must be",
		`{"of":{"name":1}}`: "of.name has a number where a string must be",
		`{"at":"24-01-02"}`: `at has the value "24-01-02" where a time such as`,
		`{"at":17}`:         "at has the value 17 where a time such as",
		`["x"]`:             "it has an array where an object must be",
		`x`:                 "it is no JSON: invalid character 'x'",
		`{"text":"x`:        "it is no JSON: ",
		`{"colour":1}`:      `the field "colour" is unknown`,
		`{"text":"x"}{}`:    "something follows the object",
		`{"at":"` + strings.Repeat("x", 99) + `"}`: "x… where",
	} {
		err := DecodeStrictly([]byte(text), &line{})
		got := tidemark.DetailOf(err)
		if tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(got, want) ||
			strings.Contains(got, "Go ") || strings.Contains(got, "json:") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{
		`{"text":"x","at":"2024-01-02T03:04:05Z","count":3}`, `{"at":null,"text":null}`,
	} {
		if err := DecodeStrictly([]byte(text), &line{}); err != nil {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if err := Decode([]byte(`{"colour":1,"text":"x"}`), &line{}); err != nil {
		t.Errorf("of an unknown field, got %v", err)
	}
	if err := Decode([]byte(`{"text":7}`), &line{}); tidemark.ParamOf(err) != "text" {
		t.Errorf("got %v, with the field %q", err, tidemark.ParamOf(err))
	}
}

// TestOpen_says_why a file cannot be opened.
func TestOpen_says_why(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	for path, want := range map[string]string{
		missing: missing + " cannot be opened: no such file or directory",
		dir:     dir + " cannot be opened: it is a directory",
	} {
		_, err := Open(path)
		if tidemark.CodeOf(err) != tidemark.NotFound ||
			!strings.HasPrefix(tidemark.DetailOf(err), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(there)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestUnreadable_says_why.
func TestUnreadable_says_why(t *testing.T) {
	for err, want := range map[error]string{
		&fs.PathError{Op: "read", Path: "f", Err: fs.ErrPermission}: "f cannot be read: permission",
		io.ErrUnexpectedEOF:        "f cannot be read: it ends too early",
		errors.New("it is broken"): "f cannot be read: it is broken",
	} {
		got := Unreadable("f", err)
		if tidemark.CodeOf(got) != tidemark.Invalid || !errors.Is(got, err) ||
			!strings.HasPrefix(tidemark.DetailOf(got), want) {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}
