package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
)

// write writes files, and returns their paths.
func write(t *testing.T, texts ...string) []string {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, len(texts))
	for i, text := range texts {
		paths[i] = filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(paths[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// TestWalk_finds_each_value, and where it is.
func TestWalk_finds_each_value(t *testing.T) {
	for name, tc := range map[string]struct {
		layout Layout
		files  []string
		want   []string
	}{
		"an object": {
			Layout{}, []string{` {"a" : 1, "b":[ {"x":"}\"]"} , [2] , "s"], "c":{}, "d":[]} `},
			[]string{"1 a 1", `1 b {"x":"}\"]"}`, "1 b [2]", `1 b "s"`, "1 c {}"},
		},
		"objects": {
			Layout{}, []string{"{\"a\":1}\n{\"a\":2}\n", `[{"a":3},{"a":4}]`, "[]", "", "{}"},
			[]string{"1 a 1", "2 a 2", "3 a 3", "4 a 4"},
		},
		"values": {
			Layout{Values: true}, []string{`[{"a":1}, {"b":[2]}]`, `{"c":[{"d":3}]}`},
			[]string{`1  {"a":1}`, `1  {"b":[2]}`, `2 c {"d":3}`},
		},
		"within": {
			Layout{Within: "all"}, []string{`{"n":1,"all":[{"a":2},{"a":3}],"m":true}`},
			[]string{"1 n 1", "2 a 2", "3 a 3", "3 m true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			paths := write(t, tc.files...)
			var got []string
			err := Walk(t.Context(), paths, tc.layout, func(item Item) error {
				got = append(got, fmt.Sprint(item.Group, " ", item.Key, " ", string(item.Raw)))
				file, err := os.ReadFile(paths[item.at.file])
				if err != nil {
					return err
				}
				there := string(file[item.at.offset : item.at.offset+int64(item.at.length)])
				if there != string(item.Raw) {
					t.Errorf("at the place of %s is %s", item.Raw, there)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWalk_refuses_what_is_no_JSON, with the place.
func TestWalk_refuses_what_is_no_JSON(t *testing.T) {
	for _, text := range []string{
		"x", "7", `"s"`, "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":"x`, `{"a":[1`,
		`{"a" 1}`, `{1:2}`, "[1]", "[{}", "[{},", `{"a":{"b":1}`,
	} {
		paths := write(t, text)
		err := Walk(t.Context(), paths, Layout{}, func(Item) error { return nil })
		if tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(err.Error(), paths[0]) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	err := Walk(t.Context(), []string{missing}, Layout{}, func(Item) error { return nil })
	if tidemark.CodeOf(err) != tidemark.NotFound {
		t.Errorf("of a missing file, got %v", err)
	}
	said := errors.New("the test says so")
	err = Walk(t.Context(), write(t, `{"a":1}`), Layout{}, func(Item) error { return said })
	if !errors.Is(err, said) {
		t.Errorf("got %v, want the error of the caller", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err = Walk(ctx, write(t, `{"a":[1,2,3]}`), Layout{}, func(Item) error {
		n++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("after the end of the context, got %d values, %v", n, err)
	}
}

// at returns a time so many minutes after the beginning.
func at(minutes int) time.Time {
	return time.Date(2024, 1, 1, 0, minutes, 0, 0, time.UTC)
}

// parse returns the message of a value: [minutes, author].
func parse(raw json.RawMessage) (importer.Message, error) {
	var m struct {
		Minutes int
		Author  string
	}
	err := json.Unmarshal(raw, &m)
	return importer.Message{ID: fmt.Sprint(m.Minutes), Author: m.Author, At: at(m.Minutes)}, err
}

// export returns an export with the messages of a chat.
func export(t *testing.T, change func(*Room), texts ...string) *Export {
	t.Helper()
	e := &Export{Paths: write(t, texts...)}
	room := e.Room("c")
	err := Walk(t.Context(), e.Paths, Layout{Values: true}, func(item Item) error {
		m, err := parse(item.Raw)
		if err == nil {
			room.Add(&item, &m, m.At.Unix(), 0)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	change(room)
	return e
}

// lines returns records as texts. Reads are left out, but for those of one user.
func lines(t *testing.T, e *Export, reader string) (all []string) {
	t.Helper()
	for r, err := range e.records(t.Context(), parse) {
		if err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case importer.Chat:
			all = append(all, fmt.Sprint(r.Type, " ", r.Members))
		case importer.Member:
			all = append(all, fmt.Sprint(r.User, " left: ", r.Left))
		case importer.Message:
			all = append(all, r.ID+" "+r.Author)
		case importer.Read:
			if r.User == reader {
				all = append(all, fmt.Sprint(r.User, " has read ", r.Position))
			}
		case importer.End:
			all = append(all, "end")
		}
	}
	return all
}

const (
	later   = `[{"Minutes":9,"Author":"a"},{"Minutes":3,"Author":"b"}]`
	earlier = `[{"Minutes":5,"Author":"a"},{"Minutes":1,"Author":"a"}]`
)

// TestRecords_are_in_order, however the files are.
func TestRecords_are_in_order(t *testing.T) {
	members := []importer.Member{{User: "a"}, {User: "b", At: at(2)}}
	for name, tc := range map[string]struct {
		change func(*Room)
		want   string
	}{
		"members are not known": {
			func(*Room) {},
			"group [], 1 a, 3 b, 5 a, 9 a, b has read 4, end",
		},
		"members are known": {
			func(r *Room) { r.Changes, r.All = members, true },
			"group [], a left: false, 1 a, b left: false, 3 b, 5 a, 9 a, b has read 4, end",
		},
		"an author has left": {
			func(r *Room) { r.Changes, r.All = members[:1], true },
			"group [], a left: false, 1 a, 3 b, 5 a, 9 a, b left: true, b has read 4, end",
		},
		"what was read": {
			func(r *Room) {
				r.Changes, r.Reads = members, map[string]int64{"b": at(5).Unix()}
			},
			"group [], a left: false, 1 a, b left: false, 3 b, 5 a, 9 a, b has read 3, end",
		},
		"nothing was read": {
			func(r *Room) { r.Changes, r.Reads = members, map[string]int64{"a": 0} },
			"group [], a left: false, 1 a, b left: false, 3 b, 5 a, 9 a, end",
		},
		"a pair": {
			func(r *Room) {
				r.Pair()
				r.Changes, r.All = members, true
			},
			"direct [a b], 1 a, 3 b, 5 a, 9 a, b has read 4, end",
		},
		"a pair in which another one wrote": {
			func(r *Room) {
				r.Pair()
				r.Changes = []importer.Member{{User: "a"}, {User: "c"}}
			},
			"group [], a left: false, c left: false, 1 a, 3 b, 5 a, 9 a, b has read 4, end",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := export(t, tc.change, later, earlier, later) // One file is there twice.
			if got := strings.Join(lines(t, e, "b"), ", "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestRecords_of_files_that_change meanwhile end with an error.
func TestRecords_of_files_that_change(t *testing.T) {
	e := export(t, func(*Room) {}, later)
	if err := os.Truncate(e.Paths[0], 10); err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range e.records(t.Context(), parse) {
		last = err
	}
	if want := "it ends too early; it must not change"; tidemark.CodeOf(last) != tidemark.Invalid ||
		!strings.Contains(tidemark.DetailOf(last), want) {
		t.Errorf("got %v, want %q", last, want)
	}
	n := 0
	for range e.records(t.Context(), parse) {
		if n++; n == 1 {
			break // A consumer may leave.
		}
	}
	if err := new(Export).check(); tidemark.CodeOf(err) != tidemark.Invalid {
		t.Errorf("an export without chats: %v", err)
	}
}
