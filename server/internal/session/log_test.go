package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// Messages with consecutive numbers and sequences are one run. After a rewind or a gap a new run
// begins, because a run has only its first message and a count.
func TestRunLog_remembers_what_was_sent_in_as_few_runs_as_can_be(t *testing.T) {
	sent := []struct {
		event    uint64
		chat     tidemark.ChatID
		sequence tidemark.Sequence
	}{
		{1, "a", 4}, {2, "a", 5}, {3, "b", 1}, {4, "a", 6}, {5, "a", 7}, {6, "a", 5}, {7, "a", 6},
		{8, "a", 9}, {10, "a", 10},
	}
	var log eventLog
	for _, m := range sent {
		log.add(run{
			event:    m.event,
			count:    1,
			kind:     runMessages,
			chat:     m.chat,
			sequence: m.sequence,
		})
	}
	type span struct {
		Event    uint64
		Count    uint32
		Chat     tidemark.ChatID
		Sequence tidemark.Sequence
	}
	var got []span
	for _, r := range log.rewind(0) {
		got = append(got, span{r.event, r.count, r.chat, r.sequence})
	}
	want := []span{
		{1, 2, "a", 4}, {3, 1, "b", 1}, {4, 2, "a", 6}, {6, 2, "a", 5}, {8, 1, "a", 9},
		{10, 1, "a", 10},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
