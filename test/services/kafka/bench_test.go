package kafka

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

// BenchmarkDeliver measures how many events Kafka stores, and the CPU time of the sender for each.
// With one caller, it measures how long a call takes.
//
//	go test -run xxx -bench Deliver ./test/services/kafka
func BenchmarkDeliver(b *testing.B) {
	s := Start(b)
	for _, c := range []struct{ callers, events int }{{1, 1}, {16, 1}, {16, 100}} {
		b.Run(fmt.Sprintf("callers=%d,events=%d", c.callers, c.events), func(b *testing.B) {
			p := kafkatest.NewPlace(b, []string{s.Address()})
			p.Create(12, nil)
			o := p.Open(&kafkatest.Link{}, nil)
			// As the engine, a caller has no two deliveries of a chat at once.
			work := make(chan struct{})
			took := make([][]time.Duration, c.callers)
			var callers sync.WaitGroup
			for i := range c.callers {
				events := make([]outlet.Event, c.events)
				for n := range events {
					chat := tidemark.ChatID(fmt.Sprint("c", i, ".", n%10))
					events[n] = kafkatest.Message(chat, uint64(n/10+1), 300)
				}
				callers.Go(func() {
					for range work {
						began := time.Now()
						if _, why := o.Deliver(b.Context(), events); why != nil {
							b.Errorf("refused: %+v", why)
						}
						took[i] = append(took[i], time.Since(began))
					}
				})
			}
			work <- struct{}{} // The first call connects.
			sent, before := 0, cpu(b)
			for b.Loop() {
				work <- struct{}{}
				sent += c.events
			}
			close(work)
			callers.Wait()
			used, all := cpu(b)-before, slices.Concat(took...)
			slices.Sort(all)
			b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(sent), "CPU-µs/event")
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(all[len(all)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(all[len(all)*99/100].Seconds()*1e3, "p99-ms")
		})
	}
}

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
