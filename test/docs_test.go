package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// maxColumns bounds the width of a line. Rows of tables, lines that a test writes, and records
	// of JSON Lines may be wider.
	maxColumns = 100
	// maxCellWords bounds the words of a cell of a table, without code. Longer text becomes a
	// section or a list.
	maxCellWords = 15
)

var (
	// bannedWords are pronouns that do not name a user: users are "they".
	bannedWords = regexp.MustCompile(`(?i)\b(he|his|him|himself|whoever)\b`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
	markdownTo  = regexp.MustCompile(`!?\[([^\]]*)\]\(([^)\s]+)\)`)
	wordIn      = regexp.MustCompile(`[\pL\pN]`)
)

// document is a Markdown file of the repository, line by line.
type document struct {
	path  string
	lines []documentLine
}

// documentLine is a line of a document; code reports that it is in a block of code, and record that
// the block has JSON Lines.
type documentLine struct {
	number       int
	text         string
	code, record bool
}

// documents returns all Markdown files, by their paths from this directory.
func documents(t *testing.T) map[string]document {
	t.Helper()
	found := map[string]document{}
	must(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" ||
			strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".."):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		found[path] = parseDocument(path, string(text))
		return err
	}))
	if len(found) < 20 {
		t.Fatalf("only %d documents were found", len(found))
	}
	return found
}

func parseDocument(path, text string) document {
	d := document{path: path}
	code, record := false, false
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		d.lines = append(d.lines, documentLine{i + 1, line, code || fence, record})
		if fence {
			code = !code
			record = code && strings.TrimSpace(line) == "```jsonl"
		}
	}
	return d
}

// prose returns the document without its code, in which brackets are no links.
func (d document) prose() string {
	var text strings.Builder
	for _, line := range d.lines {
		if !line.code {
			text.WriteString(codeSpan.ReplaceAllString(line.text, "`") + "\n")
		}
	}
	return text.String()
}

// anchors returns the anchors of the headings, as forges make them.
func (d document) anchors() map[string]bool {
	found := map[string]bool{}
	for _, line := range d.lines {
		title, is := strings.CutPrefix(strings.TrimLeft(line.text, "#"), " ")
		if line.code || !is || !strings.HasPrefix(line.text, "#") {
			continue
		}
		anchor := anchorOf(title)
		for n := 1; found[anchor]; n++ {
			anchor = fmt.Sprint(anchorOf(title), "-", n)
		}
		found[anchor] = true
	}
	return found
}

// anchorOf returns a heading in lower case, with dashes for spaces, and without punctuation.
func anchorOf(title string) string {
	title = markdownTo.ReplaceAllString(title, "$1")
	var anchor strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(title)) {
		switch {
		case r == ' ':
			anchor.WriteByte('-')
		case r == '-' || r == '_' || wordIn.MatchString(string(r)):
			anchor.WriteRune(r)
		}
	}
	return anchor.String()
}

// problems returns what breaks the style in the document.
func (d document) problems() (found []string) {
	complain := func(line documentLine, format string, args ...any) {
		found = append(found,
			fmt.Sprintf("%s:%d: ", d.path, line.number)+fmt.Sprintf(format, args...))
	}
	for _, line := range d.lines {
		row := !line.code && strings.HasPrefix(strings.TrimSpace(line.text), "|")
		columns, written := utf8.RuneCountInString(line.text), line.code && writtenByATest(d.path)
		if columns > maxColumns && !row && !written && !line.record {
			complain(line, "%d columns, and %d are enough", columns, maxColumns)
		}
		if line.code {
			continue
		}
		if word := bannedWords.FindString(codeSpan.ReplaceAllString(line.text, "")); word != "" {
			complain(line, "%q: users are they", word)
		}
		if !row {
			continue
		}
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line.text), "|"), "|") {
			text := codeSpan.ReplaceAllString(markdownTo.ReplaceAllString(cell, "$1"), "")
			words := slices.DeleteFunc(strings.Fields(text), func(word string) bool {
				return !wordIn.MatchString(word)
			})
			if len(words) > maxCellWords {
				complain(line, "a cell of %d words, and %d are enough: %s",
					len(words), maxCellWords, strings.TrimSpace(cell))
			}
		}
	}
	return found
}

// writtenByATest reports whether a test writes the blocks of code in a document.
func writtenByATest(path string) bool { return path == "../storage/postgres/plans.md" }

// TestStyle_documents_are_narrow_and_plain checks every document: lines, cells of tables, and
// pronouns.
func TestStyle_documents_are_narrow_and_plain(t *testing.T) {
	for _, d := range documents(t) {
		for _, problem := range d.problems() {
			t.Error(problem)
		}
	}
}

// TestStyle_documents_lint_complains shows that the check finds what it bans.
func TestStyle_documents_lint_complains(t *testing.T) {
	wide := strings.Repeat("x", maxColumns+1)
	long := strings.Repeat("word ", maxCellWords+1)
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"nothing":                     {"Users are *they*.\n\n```\nhe\n```\n", 0},
		"a wide line":                 {wide, 1},
		"a wide row":                  {"| `" + wide + "` |", 0},
		"a wide line of code":         {"```\n" + wide + "\n```", 1},
		"a wide record":               {"```jsonl\n" + wide + "\n```\n" + wide, 1},
		"a long cell":                 {"| a | " + long + "|", 1},
		"a long cell of code":         {"| `" + long + "` |", 0},
		"he, and Whoever":             {"as he wants\nWhoever", 2},
		"words that only begin alike": {"the hero of this history", 0},
	} {
		if got := parseDocument("x.md", c.text).problems(); len(got) != c.want {
			t.Errorf("%s: got %q, want %d", name, got, c.want)
		}
	}
}

// TestStyle_contract_is_plain checks the descriptions of openapi.yaml for the same style.
func TestStyle_contract_is_plain(t *testing.T) {
	text, err := os.ReadFile("../openapi.yaml")
	must(t, err)
	for i, line := range strings.Split(string(text), "\n") {
		if columns := utf8.RuneCountInString(line); columns > maxColumns {
			t.Errorf("openapi.yaml:%d: %d columns, and %d are enough", i+1, columns, maxColumns)
		}
		if word := bannedWords.FindString(codeSpan.ReplaceAllString(line, "")); word != "" {
			t.Errorf("openapi.yaml:%d: %q: users are they", i+1, word)
		}
	}
}

// TestStyle_documents_link_to_what_is_there checks that the file and the heading of every relative
// link exist.
func TestStyle_documents_link_to_what_is_there(t *testing.T) {
	all := documents(t)
	checked, anchored := 0, 0
	for path, d := range all {
		for _, found := range markdownTo.FindAllStringSubmatch(d.prose(), -1) {
			file, anchor, has := strings.Cut(found[2], "#")
			if strings.Contains(found[2], "://") {
				continue
			}
			checked++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s is not there", path, found[2])
			} else if page, is := all[target]; has && !(is && page.anchors()[anchor]) {
				t.Errorf("%s: %s has no heading #%s", path, target, anchor)
			}
			if has {
				anchored++
			}
		}
	}
	if checked < 150 || anchored < 40 {
		t.Errorf("only %d links were found, %d of them to a heading", checked, anchored)
	}
}

// TestStyle_documents_say_for_whom_they_are: each page of docs begins with its reader.
func TestStyle_documents_say_for_whom_they_are(t *testing.T) {
	for path, d := range documents(t) {
		if !strings.HasPrefix(path, "../docs/") {
			continue
		}
		if len(d.lines) < 3 || !strings.HasPrefix(d.lines[2].text, "For ") {
			t.Errorf("%s does not say for whom it is in its first sentence", path)
		}
	}
}
