package websocket

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// writes counts the writes of a connection.
type writes struct {
	net.Conn
	n int
}

func (w *writes) Write(p []byte) (int, error)      { w.n++; return len(p), nil }
func (w *writes) SetWriteDeadline(time.Time) error { return nil }

func TestAnswer_of_many_sends_is_one_write(t *testing.T) {
	var conn writes
	c := newConnection(&Adapter{})
	c.conn.out.Init(&conn, c.conn.pool, time.Second)
	frames := make([]wire.Frame, 8)
	results := make([]server.Sent, len(frames))
	results[3].Err = tidemark.Errorf(tidemark.NotMember, "no member")
	c.answer(frames, results, make([]bool, len(frames)))
	if conn.n != 1 {
		t.Errorf("%d writes, want 1", conn.n)
	}
}

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
