package kafka

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/test/services/process"
)

func TestMain(m *testing.M) {
	process.EndIfAsked(func() (int, *process.Home, error) {
		s, err := start()
		if err != nil {
			return 0, nil, err
		}
		return s.PID(), s.home, nil
	})
	goleak.VerifyTestMain(m)
}

// TestStart_ends_with_the_process_however_that_ends is not parallel to the other tests: Java takes
// several seconds of a core to start.
func TestStart_ends_with_the_process_however_that_ends(t *testing.T) { process.Ends(t, 1) }

// TestSuite_on_Apache_Kafka: reach/kafka runs the same suite on a fake cluster. Nothing of the
// broker is left then.
func TestSuite_on_Apache_Kafka(t *testing.T) {
	var s *Server
	t.Run("broker", func(t *testing.T) {
		s = Start(t)
		kafkatest.Run(t, []string{s.Address()})
	})
	if left := process.Left(s.home.Dir(), s.PID()); len(left) > 0 {
		t.Errorf("there is left: %q", left)
	}
}

// TestKill_told_in_order kills the broker with SIGKILL while messages are delivered, starts it
// again, and freezes it. What was accepted is stored, for the first time after all earlier messages
// of its chat.
func TestKill_told_in_order(t *testing.T) {
	s := Start(t)
	p := kafkatest.NewPlace(t, []string{s.Address()})
	p.Create(3, nil)
	o := p.Open(&kafkatest.Link{}, func(cfg *kafka.Config) { cfg.Timeout = 3 * time.Second })
	const chats = 4
	var names []tidemark.ChatID
	var counts [chats]atomic.Uint64
	var delivering sync.WaitGroup
	ended := make(chan struct{})
	for i := range counts {
		chat := tidemark.ChatID(fmt.Sprint("c", i))
		names = append(names, chat)
		delivering.Go(func() {
			for over := false; !over && t.Context().Err() == nil; {
				select {
				case <-ended:
					over = true // One more delivery, to a broker that works.
				default:
				}
				var events []outlet.Event
				for n := range uint64(5) {
					events = append(events, kafkatest.Message(chat, counts[i].Load()+n+1, 100))
				}
				accepted, _ := o.Deliver(t.Context(), events)
				counts[i].Add(uint64(accepted))
				over = over && accepted > 0
			}
		})
	}
	// progress waits until some messages of each chat are accepted.
	progress := func() {
		t.Helper()
		for i := range counts {
			until := counts[i].Load() + 50
			for end := time.Now().Add(time.Minute); counts[i].Load() < until; process.Pause() {
				if time.Now().After(end) {
					t.Fatalf("no messages of %s are accepted", names[i])
				}
			}
		}
	}
	progress()
	for range 2 {
		s.Kill(t)
		s.Run(t)
		progress()
		s.Freeze(t)
		<-time.After(4 * time.Second) // longer than a delivery may take
		s.Thaw(t)
		progress()
	}
	close(ended)
	delivering.Wait()
	repeated, accepted := 0, uint64(0)
	for i, chat := range names {
		repeated += p.InOrder([]tidemark.ChatID{chat}, counts[i].Load())
		accepted += counts[i].Load()
	}
	t.Logf("%d messages accepted, %d repetitions", accepted, repeated)
}
