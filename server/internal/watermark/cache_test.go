package watermark_test

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/storage"
)

func TestKnown_remembers_no_more_than_its_bound(t *testing.T) {
	const most = 8
	k := watermark.New(most)
	remembered := 0
	for i := range 3 * most {
		k.Raise(tidemark.DeliveryState{
			UserID: "bob",
			ChatID: tidemark.ChatID(fmt.Sprintf("c%d", i)),
			Acked:  1,
		})
	}
	for i := range 3 * most {
		chat := tidemark.ChatID(fmt.Sprintf("c%d", i))
		if _, ok := k.Acked(storage.StateKey{User: "bob", Chat: chat}); ok {
			remembered++
		}
	}
	if remembered != most {
		t.Errorf("%d states are remembered, want %d", remembered, most)
	}
}

// A cached watermark only grows, whatever order the updates have.
func TestKnown_watermark_monotonic(t *testing.T) {
	k := watermark.New(8)
	st := tidemark.DeliveryState{UserID: "bob", ChatID: "c", Acked: 5, Read: 3}
	k.Raise(st)
	st.Acked, st.Read = 4, 4
	if got, _ := k.Raise(st); got.Acked != 5 || got.Read != 4 {
		t.Errorf("after 5, 3 and 4, 4: got %d, %d, want 5, 4", got.Acked, got.Read)
	}
}
