package sqlite

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestRanges_while_messages_expire: the floor rises between the two statements of a read. That is
// no damage.
func TestRanges_while_messages_expire(t *testing.T) {
	s, _ := openNew(t)
	const messages = 300
	for n := range messages {
		send(t, s, fmt.Sprint(n+1))
	}
	chat := draft("1", "").ChatID
	before := time.Now().Add(-storage.MinAge)
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer close(ended)
		for range messages - 1 {
			if _, err := s.Expire(t.Context(), chat, before, 1); err != nil {
				t.Error(err)
			}
		}
	})
	for reading := true; reading; {
		select {
		case <-ended:
			reading = false
		default:
		}
		pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: chat, Limit: messages}})
		if err != nil || len(pages[0]) == 0 ||
			pages[0][len(pages[0])-1].Sequence != tidemark.Sequence(messages) {
			t.Fatalf("a page of %d messages, %v", len(pages[0]), err)
		}
	}
	running.Wait()
}
