package device

import (
	"strings"
	"testing"
)

func TestChecker_says_what_is_wrong(t *testing.T) {
	type step struct {
		sequence uint64
		resumed  bool // before the message
		rewound  bool // before the message
	}
	for _, tc := range []struct {
		name  string
		steps []step
		head  uint64
		want  string // part of the first problem; "" for none
	}{
		{"in order", []step{{sequence: 1}, {sequence: 2}, {sequence: 3}}, 3, ""},
		{"nothing sent", nil, 0, ""},
		{"lost at the end", []step{{sequence: 1}, {sequence: 2}}, 3, "never got message 3 of"},
		{"all lost", nil, 2, "never got 2 messages, the first of them 1,"},
		{"lost in the middle", []step{{sequence: 1}, {sequence: 3}}, 3, "got 3 of chat c before 2"},
		{"out of order", []step{{sequence: 1}, {sequence: 3}, {sequence: 2}}, 3, "got 3 of chat c before 2"},
		{"begun with his second, and gone back", []step{{sequence: 2}, {sequence: 3}, {sequence: 1}, {sequence: 2}, {sequence: 3}, {sequence: 4}}, 4, ""},
		{"begun with the second, and the first never came", []step{{sequence: 2}, {sequence: 3}}, 3, "never got message 1 of"},
		{"gone back twice", []step{{sequence: 2}, {sequence: 1}, {sequence: 2}, {sequence: 1}}, 2, "got 1 of chat c twice"},
		{"doubled", []step{{sequence: 1}, {sequence: 2}, {sequence: 2}}, 2, "got 2 of chat c twice"},
		{"an old one doubled", []step{{sequence: 1}, {sequence: 2}, {sequence: 1}}, 2, "got 1 of chat c twice"},
		{"more than the head", []step{{sequence: 1}, {sequence: 2}}, 1, "up to 2, but its head is 1"},
		{"re-sent after a resume", []step{{sequence: 1}, {sequence: 2}, {sequence: 1, resumed: true}, {sequence: 2}, {sequence: 3}}, 3, ""},
		{"nothing re-sent after a resume", []step{{sequence: 1}, {sequence: 2, resumed: true}}, 2, ""},
		{"a hole in what is re-sent", []step{{sequence: 1}, {sequence: 2}, {sequence: 3}, {sequence: 1, resumed: true}, {sequence: 3}}, 3, "got 3 of chat c twice"},
		{"re-sent once more without a resume", []step{{sequence: 1}, {sequence: 1, resumed: true}, {sequence: 1}}, 1, "got 1 of chat c twice"},
		{"doubled after a resume that re-sent nothing", []step{{sequence: 1}, {sequence: 2, resumed: true}, {sequence: 1}}, 2, "got 1 of chat c twice"},
		{"doubled after the re-sent ones", []step{{sequence: 1}, {sequence: 1, resumed: true}, {sequence: 2}, {sequence: 1}}, 2, "got 1 of chat c twice"},
		{"re-sent from a position that was given late", []step{{sequence: 1}, {sequence: 1, resumed: true}, {sequence: 2, rewound: true}, {sequence: 3}, {sequence: 1}, {sequence: 2}, {sequence: 3}, {sequence: 4}}, 4, ""},
		{"re-sent twice from it", []step{{sequence: 1}, {sequence: 2, rewound: true}, {sequence: 1}, {sequence: 2}, {sequence: 1}}, 2, "got 1 of chat c twice"},
		{"a hole in what is re-sent from it", []step{{sequence: 1}, {sequence: 2}, {sequence: 3, rewound: true}, {sequence: 1}, {sequence: 3}}, 3, "got 3 of chat c twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewChecker("bob")
			for _, s := range tc.steps {
				if s.resumed {
					c.Resumed()
				}
				if s.rewound {
					c.Rewound("c")
				}
				c.Observe([]byte("c"), s.sequence, s.sequence*1000)
			}
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
	c.Observe([]byte("c"), 2, 7) // the same message twice, the other one never
	c.Finish("c", 2, 7+9)
	if c.found != 1 || !strings.Contains(c.problems[0], "not the ones that were sent") {
		t.Errorf("problems %q, want one about the contents", c.problems)
	}
}

func TestChecker_prefix_is_what_may_be_acknowledged(t *testing.T) {
	c := NewChecker("bob")
	for _, tc := range []struct{ sequence, want uint64 }{{1, 1}, {2, 2}, {5, 2}, {3, 3}, {4, 5}, {6, 6}} {
		if got, fresh := c.Observe([]byte("c"), tc.sequence, 0); got != tc.want || !fresh {
			t.Errorf("after %d: prefix %d, fresh %v, want %d, true", tc.sequence, got, fresh, tc.want)
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
