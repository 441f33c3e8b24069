package websocket

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

func TestLanes_one_key_in_order_what_queued_together_and_keys_side_by_side(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		var mu sync.Mutex
		got := map[string][]int{}
		start := time.Now()
		for i := range 30 {
			key := string(rune('a' + i%3))
			l.do(key, 10, wire.Frame{RequestID: strconv.Itoa(i / 3)}, func(frames []wire.Frame) {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				for _, f := range frames {
					n, err := strconv.Atoi(f.RequestID)
					if err != nil {
						t.Error(err)
					}
					got[key] = append(got[key], n)
				}
			})
		}
		l.wait()
		if elapsed := time.Since(start); elapsed != 2*time.Second {
			t.Errorf("30 requests on 3 keys, one second for what is run together, took %v, want one and then the nine behind it", elapsed)
		}
		for key, order := range got {
			if len(order) != 10 {
				t.Errorf("%s ran %v, want ten", key, order)
			}
		}
		for key, order := range got {
			for i, n := range order {
				if n != i {
					t.Fatalf("%s ran in the order %v", key, order)
				}
			}
		}
		if l.queues != nil || l.used != 0 {
			t.Errorf("an idle connection keeps %v and %d slots", l.queues, l.used)
		}
	})
}

func TestLanes_bounds_what_is_under_way(t *testing.T) {
	for _, tt := range []struct{ size, most int }{{100, 64}, {slotBytes, 32}, {128 << 10, 7}, {maxWork * slotBytes * 2, 1}} {
		synctest.Test(t, func(t *testing.T) {
			var l lanes
			release := make(chan struct{})
			queued := 0
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 100 {
					l.do("key", tt.size, wire.Frame{}, func([]wire.Frame) { <-release })
					queued++
				}
			}()
			synctest.Wait()
			if queued != tt.most {
				t.Errorf("%d requests of %d bytes are taken at once, want %d", queued, tt.size, tt.most)
			}
			close(release)
			<-done
			l.wait()
		})
	}
}
