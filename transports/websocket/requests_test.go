package websocket

import (
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

func TestWork_bounds_what_is_under_way(t *testing.T) {
	for _, tt := range []struct{ size, want int }{
		{100, 64}, {slotBytes, 32}, {128 << 10, 7}, {maxWork * slotBytes * 2, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			c := &connection{
				work: batch.NewKeyed(maxWork, func(string, []wire.Frame, bool) { <-release }),
			}
			got, read := 0, make(chan struct{})
			go func() {
				defer close(read)
				for range 100 {
					c.do("chat", tt.size, wire.Frame{})
					got++
				}
			}()
			synctest.Wait()
			if got != tt.want {
				t.Errorf("%d frames of %d bytes are taken at once, want %d", got, tt.size, tt.want)
			}
			close(release)
			<-read
			c.work.Wait()
		})
	}
}
