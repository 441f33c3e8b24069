// Package webhooktest has a receiver of webhooks in another process, so that its CPU time is not
// the sender's. The process is the binary of the test, which becomes the receiver by Serve.
package webhooktest

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
)

// variable makes the test's binary a receiver.
const variable = "TIDEMARK_WEBHOOK_RECEIVER"

// Receiver accepts what comes, by TLS and HTTP/2.
type Receiver struct {
	URL string
	// Roots has the certificate of the receiver.
	Roots *x509.CertPool
}

// place is what a receiver writes to its parent: where it is, and its certificate.
type place struct {
	URL         string
	Certificate []byte
}

// Serve is the receiver, if Start has started this process. Then it returns true when the parent
// has ended the receiver. TestMain calls it first, and returns if it was one.
func Serve() bool {
	if os.Getenv(variable) == "" {
		return false
	}
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
	return true
}

// Start starts a receiver, which ends with the test. The test's TestMain calls Serve.
func Start(t testing.TB) *Receiver {
	t.Helper()
	child := exec.Command(os.Args[0]) //nolint:noctx // it ends with its stdin
	child.Env, child.Stderr = append(os.Environ(), variable+"=1"), os.Stderr
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
	r := &Receiver{URL: at.URL, Roots: x509.NewCertPool()}
	r.Roots.AddCert(certificate)
	return r
}
