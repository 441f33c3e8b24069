package pusher

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
)

// BenchmarkWatched is what storing that a user has read something costs more, if nobody was
// notified of it: while there are no banners, and while there are as many as are remembered.
func BenchmarkWatched(b *testing.B) {
	for _, banners := range []int{0, maxWatched} {
		b.Run(fmt.Sprint(banners), func(b *testing.B) {
			var w watched
			for n := range banners {
				w.add(pair{tidemark.UserID(fmt.Sprint("user", n)), "chat"}, 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				w.take(pair{"bob", "chat"}, 1)
			}
		})
	}
}
