package sessions

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
)

// A node remembers a bounded number of replaced sessions, the latest, until the time of each is
// over.
func TestReplaced_remembers_the_latest_for_a_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r replaced
		id := func(n int) tidemark.SessionID { return tidemark.SessionID(fmt.Sprint("s", n)) }
		const all = 3 * maxReplaced
		for n := range all {
			r.remember(id(n), refusal{"bob", time.Now().Add(time.Minute), errOvertaken})
		}
		if n := len(r.later) + len(r.earlier); n > maxReplaced {
			t.Errorf("%d are remembered, want at most %d", n, maxReplaced)
		}
		for n, want := range map[int]error{0: nil, all - maxReplaced/2: errOvertaken,
			all - 1: errOvertaken} {
			if got := r.of("bob", id(n)); got != want {
				t.Errorf("session %d: got %v, want %v", n, got, want)
			}
		}
		if got := r.of("ann", id(all-1)); got != nil {
			t.Errorf("another user gets %v", got)
		}
		time.Sleep(time.Minute + time.Second)
		if got := r.of("bob", id(all-1)); got != nil {
			t.Errorf("after its time: got %v", got)
		}
	})
}
