package importer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestID_import_once_tells_ids_apart: ids that can be ids of Tidemark stay as they are, and no two
// become one.
func TestID_import_once_tells_ids_apart(t *testing.T) {
	for id, want := range map[string]string{
		"alice":            "alice",
		"A-1_b.c":          "A-1_b.c",
		"messaging:room":   "messaging:room",
		"usr7b-Z_x":        "usr7b-Z_x",
		"chat_42":          "chat_42",
		"a b":              "a:20b",
		"a/b":              "a:2fb",
		"é":                ":c3:a9",
		"+49 30":           ":2b49:2030",
		"a:2fb":            "a:3a2fb",
		"a:h":              "a:3ah",
		"a:":               "a:",
		"a:2":              "a:2",
		"a:2F":             "a:2F",
		".":                ":2e",
		"..":               ":2e.",
		"...":              "...",
		"erased:x":         ":65rased:x",
		"!members-x":       ":21members-x",
		"\x00":             ":00",
		"chat_" + letters:  ":63hat_" + letters,
		"chat_" + letters1: "chat_" + letters1,
	} {
		got, err := ID[tidemark.UserID](id)
		if err != nil || string(got) != want || !tidemark.ValidID(got) {
			t.Errorf("ID(%q) = %q, %v, want %q", id, got, err, want)
		}
	}
	if _, err := ID[tidemark.UserID](""); tidemark.CodeOf(err) != tidemark.Invalid {
		t.Errorf("of an empty id, got %v", err)
	}
	long := strings.Repeat("é", 64)
	got, err := ID[tidemark.ChatID](long)
	if err != nil || !tidemark.ValidID(got) || !strings.HasPrefix(string(got), ":h") {
		t.Errorf("ID of a long id = %q, %v", got, err)
	}
}

const (
	letters  = "abcdefghijklmnopqrstuvwxyz"
	letters1 = letters + "2"
)

// FuzzID: every id has a valid one, different ones have different ones, and what is no digest can
// be turned back.
func FuzzID(f *testing.F) {
	for _, id := range []string{"a", "a:2fb", "a/b", ":h", ":", "::2f", "chat_" + letters, ".."} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if id == "" {
			return
		}
		got, err := ID[tidemark.UserID](id)
		if err != nil || !tidemark.ValidID(got) {
			t.Fatalf("ID(%q) = %q, %v", id, got, err)
		}
		if strings.HasPrefix(string(got), ":h") {
			return
		}
		if back := unescape(string(got)); back != id {
			t.Errorf("%q becomes %q, and that %q", id, got, back)
		}
	})
}

// unescape turns an id back.
func unescape(id string) string {
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		if id[i] == ':' && i+2 < len(id) && isHex(id[i+1]) && isHex(id[i+2]) {
			var c byte
			fmt.Sscanf(id[i+1:i+3], "%02x", &c)
			b.WriteByte(c)
			i += 2
			continue
		}
		b.WriteByte(id[i])
	}
	return b.String()
}

// TestID_allows_what_is_valid: the bytes that stay as they are are those of tidemark.ValidID.
func TestID_allows_what_is_valid(t *testing.T) {
	for c := range 256 {
		id := "a" + string([]byte{byte(c)})
		if got, want := allowed(byte(c)), tidemark.ValidID(id); got != want {
			t.Errorf("the byte after a in %q: %t, want %t", id, got, want)
		}
	}
}

// TestKeyOf_import_once_has_the_position: messages of one id do not become one.
func TestKeyOf_import_once_has_the_position(t *testing.T) {
	for want, of := range map[string]string{"1:a": "a", "1:a:20b": "a b", "1": ""} {
		if got := keyOf(1, of); got != want || !tidemark.ValidID(got) {
			t.Errorf("the key of %q is %q, want %q", of, got, want)
		}
	}
	long := strings.Repeat("x", 500)
	last := keyOf(tidemark.MaxSequence, long)
	if !tidemark.ValidID(last) || keyOf(1, long) == keyOf(2, long) {
		t.Errorf("the key of a long id is %q", last)
	}
}

// TestMessageID_import_once_is_the_same_in_each_run, and has the time of the message.
func TestMessageID_import_once_is_the_same_in_each_run(t *testing.T) {
	at := time.UnixMilli(0x0123456789ab)
	a := messageID("c", 1, at)
	if !strings.HasPrefix(string(a), "01234567-89ab-7") || len(a) != 36 {
		t.Errorf("got %s", a)
	}
	if a != messageID("c", 1, at) || a == messageID("c", 2, at) || a == messageID("d", 1, at) {
		t.Error("the ids of messages are not their own")
	}
}

// TestStub_is_shown_or_not: each lack has a stub that can be stored.
func TestStub_is_shown_or_not(t *testing.T) {
	for lack, shown := range map[Lack]bool{
		Deleted: true, Empty: true, Oversize: true, Edit: false,
	} {
		d := lack.stub()
		if d.Kind.Shown() != shown || d.Kind.Counts() || tidemark.CheckMetadata(d.Metadata) != nil {
			t.Errorf("the stub of %s is %+v", lack, d)
		}
	}
}

// TestSchedule_puts_changes_between_messages by their times. Authors who are no members have left.
func TestSchedule_puts_changes_between_messages(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	text := func(changes []Member) string {
		var all []string
		for _, c := range changes {
			all = append(all, fmt.Sprint(c.User, " ", c.Left))
		}
		return strings.Join(all, ", ")
	}
	s := NewSchedule([]string{"a"}, []Member{
		{User: "c", At: at(5)}, {User: "b", At: at(2)}, {User: "b", Left: true, At: at(9)},
	})
	for i, want := range []string{"", "b false", "c false"} {
		m := Message{Author: []string{"a", "x", "b"}[i], At: at([]int{1, 3, 5}[i])}
		if got := text(s.Before(&m)); got != want {
			t.Errorf("before message %d come %q, want %q", i, got, want)
		}
	}
	// That b leaves is said twice, which is no more than once.
	if got, want := text(s.Rest(true, at(9))), "b true, b true, x true"; got != want {
		t.Errorf("at the end come %q, want %q", got, want)
	}
	unsure := NewSchedule(nil, nil)
	unsure.Before(&Message{Author: "x", At: at(1)})
	if got := text(unsure.Rest(false, at(1))); got != "" {
		t.Errorf("if not all members are known, %q come at the end", got)
	}
}
