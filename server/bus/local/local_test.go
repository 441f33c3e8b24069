package local_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/bustest"
	"github.com/tidemark-im/tidemark/server/bus/local"
	"github.com/tidemark-im/tidemark/server/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// After stop, a node ends its sessions, so no call may be under way.
func TestSubscribe_stop_waits_for_the_calls_under_way(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, node := local.New(), registry.Node{ID: "a", Boot: "1"}
		begun, release := make(chan struct{}), make(chan struct{})
		stop, err := b.Subscribe(t.Context(), node, bus.Subscriber{
			Receive: func(bus.Event) { close(begun); <-release },
		})
		if err != nil {
			t.Fatal(err)
		}
		var ended atomic.Bool
		go func() { _ = bus.PublishOne(t.Context(), b, node, bus.Event{}) }()
		<-begun
		go func() { stop(); ended.Store(true) }()
		synctest.Wait()
		if ended.Load() {
			t.Error("stop has returned while a call is under way")
		}
		close(release)
		synctest.Wait()
		if !ended.Load() {
			t.Error("stop does not return although no call is under way")
		}
	})
}

func TestBus(t *testing.T) {
	bustest.Run(t, func(*testing.T) bus.Bus { return local.New() })
}
