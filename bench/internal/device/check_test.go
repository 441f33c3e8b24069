package device

import (
	"strconv"
	"strings"
	"testing"
)

// observe gives a checker the steps of a scene, all in chat c. A number is a message, "resume" a
// resumed connection, and "rewind" a position given to the server.
func observe(t *testing.T, c *Checker, steps string) {
	t.Helper()
	for _, step := range strings.Fields(steps) {
		switch step {
		case "resume":
			c.Resumed()
		case "rewind":
			c.Rewound("c")
		default:
			sequence, err := strconv.ParseUint(step, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			c.Observe([]byte("c"), sequence, sequence*1000)
		}
	}
}

func TestChecker_says_what_is_wrong(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps string
		head  uint64
		want  string // part of the first problem; "" for none
	}{
		{"in order", "1 2 3", 3, ""},
		{"nothing sent", "", 0, ""},
		{"lost at the end", "1 2", 3, "never got message 3 of"},
		{"all lost", "", 2, "never got 2 messages, the first of them 1,"},
		{"lost in the middle", "1 3", 3, "got 3 of chat c before 2"},
		{"out of order", "1 3 2", 3, "got 3 of chat c before 2"},
		{"begun with the second, and gone back", "2 3 1 2 3 4", 4, ""},
		{"begun with the second, and the first never came", "2 3", 3, "never got message 1 of"},
		{"gone back twice", "2 1 2 1", 2, "got 1 of chat c twice"},
		{"doubled", "1 2 2", 2, "got 2 of chat c twice"},
		{"an old one doubled", "1 2 1", 2, "got 1 of chat c twice"},
		{"more than the head", "1 2", 1, "up to 2, but its head is 1"},
		{"re-sent after a resume", "1 2 resume 1 2 3", 3, ""},
		{"nothing re-sent after a resume", "1 resume 2", 2, ""},
		{"a hole in what is re-sent", "1 2 3 resume 1 3", 3, "got 3 of chat c twice"},
		{"re-sent once more without a resume", "1 resume 1 1", 1, "got 1 of chat c twice"},
		{"doubled after an empty re-send", "1 resume 2 1", 2, "got 1 of chat c twice"},
		{"doubled after the re-sent ones", "1 resume 1 2 1", 2, "got 1 of chat c twice"},
		{"re-sent from a position given late", "1 resume 1 rewind 2 3 1 2 3 4", 4, ""},
		{"re-sent twice from it", "1 rewind 2 1 2 1", 2, "got 1 of chat c twice"},
		{"a hole in what is re-sent from it", "1 2 rewind 3 1 3", 3, "got 3 of chat c twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewChecker("bob")
			observe(t, c, tc.steps)
			var digest uint64
			for s := uint64(1); s <= tc.head; s++ {
				digest += s * 1000
			}
			c.Finish("c", tc.head, digest)
			switch {
			case tc.want == "" && c.found != 0:
				t.Errorf("problems %q, want none", c.problems)
			case tc.want != "" && (c.found == 0 || !strings.Contains(c.problems[0], tc.want)):
				t.Errorf("problems %q, want the first to say %q", c.problems, tc.want)
			}
		})
	}
}

func TestChecker_sees_other_messages_under_the_right_sequences(t *testing.T) {
	c := NewChecker("bob")
	c.Observe([]byte("c"), 1, 7)
	c.Observe([]byte("c"), 2, 7) // the same message twice, and the other one never
	c.Finish("c", 2, 7+9)
	if c.found != 1 || !strings.Contains(c.problems[0], "not the ones that were sent") {
		t.Errorf("problems %q, want one about the contents", c.problems)
	}
}

func TestChecker_prefix_is_what_may_be_acknowledged(t *testing.T) {
	c := NewChecker("bob")
	for _, tc := range []struct{ sequence, want uint64 }{
		{1, 1}, {2, 2}, {5, 2}, {3, 3}, {4, 5}, {6, 6},
	} {
		if got, fresh := c.Observe([]byte("c"), tc.sequence, 0); got != tc.want || !fresh {
			t.Errorf("after %d: prefix %d, fresh %v, want %d, true",
				tc.sequence, got, fresh, tc.want)
		}
	}
	if got := c.Gap([]byte("c"), 7, 9); got != 9 {
		t.Errorf("after a gap to 9: prefix %d, want 9", got)
	}
}

func TestChecker_chats_are_apart(t *testing.T) {
	c := NewChecker("bob")
	c.Observe([]byte("a"), 1, 0)
	c.Observe([]byte("b"), 1, 0)
	if c.found != 0 {
		t.Errorf("problems %q, want none", c.problems)
	}
}
