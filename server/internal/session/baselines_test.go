package session

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
)

func TestStatuses_shown_within_real_after_a_change_baselines_are_read_again(t *testing.T) {
	ann := statusKey{"c", "ann"}
	var s statuses
	s.learn(baselinesOf("c", "ann"))
	s.raise(ann, tidemark.Boundary{Acked: 5, Read: 5})
	left := s.left
	s.receiptsChanged()
	if got := s.pending[ann].state; got != needBaseline || len(s.unread) != 1 {
		t.Errorf("after the change: state %d, %d unread, want needBaseline and 1",
			got, len(s.unread))
	}
	if s.left == left {
		t.Error("what is being read since before the change is not void")
	}
}

func TestStatuses_shown_within_real_nothing_is_ready_without_its_setting(t *testing.T) {
	ann := statusKey{"c", "ann"}
	var s statuses
	s.learn(baselinesOf("c", "ann"))
	s.raise(ann, tidemark.Boundary{Acked: 5, Read: 5})
	for i := range maxStatuses {
		s.learn(baselinesOf(tidemark.ChatID(fmt.Sprint("c", i)), "ann"))
	}
	if _, known := s.baselines.hides["c"]; known {
		t.Fatal("the setting of chat c is still known")
	}
	if got := s.pending[ann].state; got != needBaseline || len(s.unread) != 1 {
		t.Errorf("without the setting: state %d, %d unread, want needBaseline and 1",
			got, len(s.unread))
	}
	if n := len(s.baselines.members); n > maxStatuses {
		t.Errorf("%d chats are known, want at most %d", n, maxStatuses)
	}
}

func TestStatuses_shown_within_real_after_a_policy_the_baselines_of_the_chat_are_read_again(
	t *testing.T,
) {
	ann, other := statusKey{"c", "ann"}, statusKey{"d", "ann"}
	s := statuses{snapshot: true}
	s.learn(baselinesOf("c", "ann"))
	s.learn(baselinesOf("d", "ann"))
	s.raise(ann, tidemark.Boundary{Acked: 5, Read: 5})
	s.raise(other, tidemark.Boundary{Acked: 5, Read: 5})
	left := s.left
	s.policyChanged("c")
	if got, rest := s.pending[ann].state, s.pending[other].state; got != needBaseline ||
		rest != ready || len(s.unread) != 1 {
		t.Errorf("after the change: states %d and %d, %d unread, want needBaseline, ready and 1",
			got, rest, len(s.unread))
	}
	if len(s.refresh) != 1 || s.refresh[0] != "c" {
		t.Errorf("the session refreshes %v, want c", s.refresh)
	}
	if s.left == left {
		t.Error("what is being read since before the change is not void")
	}
}
