package webhook

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/reach/webhook/webhooktest"
)

func TestMain(m *testing.M) {
	if !webhooktest.Serve() {
		goleak.VerifyTestMain(m)
	}
}

// BenchmarkDeliver measures the CPU time of the sender for each event, to a receiver over TLS and
// HTTP/2 in another process, with as many deliveries at once as the engine makes.
//
//	go test -run xxx -bench Deliver ./reach/webhook
func BenchmarkDeliver(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprint("events=", size), func(b *testing.B) { benchmark(b, size) })
	}
}

func benchmark(b *testing.B, size int) {
	o := elsewhere(b)
	all := events(size)
	work := make(chan struct{})
	var running sync.WaitGroup
	for range connections {
		running.Go(func() {
			for range work {
				if n, refused := o.Deliver(b.Context(), all); n != size {
					b.Errorf("got %d, %+v", n, refused)
				}
			}
		})
	}
	sent := 0
	before := cpu(b)
	for b.Loop() {
		work <- struct{}{}
		sent += size
	}
	close(work)
	running.Wait()
	used := cpu(b) - before
	b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(sent), "CPU-µs/event")
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "events/s")
}

// elsewhere returns an outlet for a receiver in another process.
func elsewhere(b *testing.B) *Outlet {
	b.Helper()
	r := webhooktest.Start(b)
	o, err := New(Config{
		URL: r.URL, Secrets: []string{NewSecret()}, Batch: true, Allow: loopback, Roots: r.Roots,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { o.Close() })
	return o
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
