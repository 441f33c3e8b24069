package chat

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
)

func TestFloors_bounded_use(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f floors
		fill := func() {
			for i := len(f.all); i < maxFloors; i++ {
				if !f.raise(tidemark.ChatID(fmt.Sprint("c", i)), 7) {
					t.Fatalf("no room for relation %d", i)
				}
			}
		}
		f.raise("c", 7)
		f.raise("c", 5)
		if got := f.of("c"); got != 7 {
			t.Errorf("got %d after an older relation, want 7", got)
		}
		fill()
		if f.raise("one more", 3) || len(f.all) > maxFloors {
			t.Errorf("room for one more: %d relations are remembered", len(f.all))
		}
		if got := f.of("one more"); got != 3 {
			t.Errorf("got %d for the latest, want 3", got)
		}
		fill()
		time.Sleep(lateFor)
		if !f.raise("later", 4) || len(f.all) != 1 {
			t.Errorf("after %v, %d relations are remembered, want 1", lateFor, len(f.all))
		}
	})
}
