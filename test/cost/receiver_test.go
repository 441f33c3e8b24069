package cost

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/webhook"
	"github.com/tidemark-im/tidemark/storage"
)

// receiverVariable makes the test's binary a receiver, so that its CPU time is not measured.
const receiverVariable = "TIDEMARK_COST_RECEIVER"

func TestMain(m *testing.M) {
	if os.Getenv(receiverVariable) != "" {
		serveReceiver()
		return
	}
	os.Exit(m.Run())
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
			_, _ = io.Copy(io.Discard, r.Body) // The sender notices what fails.
			w.WriteHeader(http.StatusNoContent)
		}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	if json.NewEncoder(os.Stdout).Encode(place{s.URL, s.Certificate().Raw}) == nil {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// receiver is a server of webhooks in another process.
type receiver struct {
	url   string
	roots *x509.CertPool
}

// startReceiver starts a receiver, which ends with the test.
func startReceiver(t *testing.T) *receiver {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env, child.Stderr = append(os.Environ(), receiverVariable+"=1"), os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	})
	var at place
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &at)
	}
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(at.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{url: at.URL, roots: x509.NewCertPool()}
	r.roots.AddCert(certificate)
	return r
}

// nothing is an outlet that accepts everything at once. It shows what outlets cost without a
// receiver.
type nothing struct{}

func (nothing) Deliver(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
	return len(events), nil
}
func (nothing) Limits() outlet.Limits { return outlet.Limits{Events: 100, Bytes: 256 << 10} }
func (nothing) Close() error          { return nil }

// engine returns an engine for a store, with webhooks that lead to the receiver, and outlets that
// lead nowhere.
func (r *receiver) engine(t *testing.T, store storage.Store, times reach.Times) *reach.Engine {
	t.Helper()
	sealer, err := reach.NewSealer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return reach.New(reach.Config{
		Store: store, Sealer: sealer, Times: times, Log: slog.New(slog.DiscardHandler),
		Kinds: map[string]reach.Kind{
			"webhook": {
				NewSecret: webhook.NewSecret,
				Open: func(s *reach.Spec, secrets []string) (outlet.Client, error) {
					return webhook.New(webhook.Config{
						URL: s.URL, Secrets: secrets, Batch: s.Batch, Roots: r.roots,
						Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
					})
				},
			},
			"nothing": {Open: func(*reach.Spec, []string) (outlet.Client, error) {
				return nothing{}, nil
			}},
		},
	})
}
