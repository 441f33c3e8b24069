package dynamodb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestCost_of_messages_that_expire measures what a batch of Expire costs for each message of 200
// bytes that it removes, without mentions. It prints the units of a million.
func TestCost_of_messages_that_expire(t *testing.T) {
	t.Parallel()
	const messages, atOnce = 500, 25
	m := newMeter(t)
	s := metered(t, newTables(t), m)
	chat := chatNo(1)
	agedChat(t, s, chat, 0)
	for i := 0; i < messages; i += atOnce {
		drafts := make([]tidemark.Draft, atOnce)
		for n := range drafts {
			drafts[n] = textBy("alice", chat)[0]
			drafts[n].ClientMessageID = fmt.Sprint("k", i+n)
			drafts[n].Content, drafts[n].CreatedAt = strings.Repeat("x", 200), longAgo
		}
		must(t, appendAll(t, s, drafts))
	}
	m.take()
	expired, err := s.Expire(t.Context(), chat, cutoff, storage.MaxExpired)
	must(t, err)
	calls, reads, writes := m.take()
	if expired.Removed != messages {
		t.Fatalf("%d messages expired, want %d", expired.Removed, messages)
	}
	t.Logf("%s; a million expired messages: %.2f million write and %.2f million read units", calls,
		writes/messages, reads/messages)
	if got := writes / messages; got > 1.1 {
		t.Errorf("%.2f write units a message, want at most 1.1", got)
	}
	if got := reads / messages; got > 0.6 {
		t.Errorf("%.2f read units a message, want at most 0.6", got)
	}
}
