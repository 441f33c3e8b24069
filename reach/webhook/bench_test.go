package webhook

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// receiverVariable makes the test's binary a receiver, so that its CPU time is not the sender's.
const receiverVariable = "TIDEMARK_WEBHOOK_RECEIVER"

func TestMain(m *testing.M) {
	if os.Getenv(receiverVariable) != "" {
		serveReceiver()
		return
	}
	goleak.VerifyTestMain(m)
}

// place says where a receiver is, and by which certificate it is known.
type place struct {
	URL         string
	Certificate []byte
}

// serveReceiver accepts what comes until stdin ends. It writes its place to stdout.
func serveReceiver() {
	s := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNoContent)
		}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	json.NewEncoder(os.Stdout).Encode(place{s.URL, s.Certificate().Raw})
	io.Copy(io.Discard, os.Stdin)
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
	child := exec.CommandContext(b.Context(), os.Args[0])
	child.Env = append(os.Environ(), receiverVariable+"=1")
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	var at place
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &at)
	}
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(at.Certificate)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	o, err := New(Config{
		URL: at.URL, Secrets: []string{NewSecret()}, Batch: true, Allow: loopback, Roots: roots,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		o.Close()
		stdin.Close()
		child.Wait()
	})
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
