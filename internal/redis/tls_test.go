package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestMain makes the certificate that this process trusts, because the process reads trusted
// certificates once.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tidemark-tls-")
	if err == nil {
		err = certify(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("SSL_CERT_FILE", filepath.Join(dir, "trusted.pem"))
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// certify writes two certificates for 127.0.0.1 with their keys: trusted and strange.
func certify(dir string) error {
	for _, name := range []string{"trusted", "strange"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		template := x509.Certificate{
			SerialNumber:          big.NewInt(1),
			NotBefore:             time.Now().Add(-time.Hour),
			NotAfter:              time.Now().Add(time.Hour),
			IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
			IsCA:                  true,
			BasicConstraintsValid: true,
		}
		certificate, err := x509.CreateCertificate(rand.Reader, &template, &template,
			&key.PublicKey, key)
		if err != nil {
			return err
		}
		private, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return err
		}
		for file, block := range map[string]*pem.Block{
			name + ".pem": {Type: "CERTIFICATE", Bytes: certificate},
			name + ".key": {Type: "EC PRIVATE KEY", Bytes: private},
		} {
			text := pem.EncodeToMemory(block)
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// withTLS starts a server with TLS and one of the certificates, and returns its address.
func withTLS(t *testing.T, name string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	at := filepath.Join(filepath.Dir(os.Getenv("SSL_CERT_FILE")), name)
	service.Start(t, "tls-port "+port, "tls-cert-file "+at+".pem", "tls-key-file "+at+".key",
		"tls-auth-clients no")
	return "127.0.0.1:" + port
}

// timely repeats a call while it is Unavailable: on a busy machine a handshake may take longer than
// the client waits.
func timely(call func(n int) error) (err error) {
	n := 0
	wait.Poll(func() (int, bool) {
		err = call(n)
		n++
		return 0, tidemark.CodeOf(err) != tidemark.Unavailable
	})
	return err
}

func TestTLS(t *testing.T) {
	trusted := withTLS(t, "trusted")
	if err := timely(func(int) error {
		return open(t, "rediss://"+trusted).Check(t.Context())
	}); err != nil {
		t.Errorf("with a certificate that is trusted: %v", err)
	}
	if err := timely(func(n int) error {
		got, err := redis.Only(open(t, "rediss://"+trusted).Run(t.Context(),
			[]redis.Call{script(fmt.Sprint("n", n))}))
		if err == nil && fmt.Sprint(got) != "[1 <nil>]" {
			t.Errorf("a script: %v", got)
		}
		return err
	}); err != nil {
		t.Errorf("a script: %v", err)
	}
	if err := timely(func(int) error {
		s, err := open(t, "rediss://"+trusted).Subscribe(t.Context(), "channel")
		if err == nil {
			s.Close()
		}
		return err
	}); err != nil {
		t.Errorf("a subscription: %v", err)
	}
	err := open(t, "redis://"+trusted).Check(t.Context())
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("without TLS: %v, want %s", err, tidemark.Unavailable)
	}
	strange := withTLS(t, "strange")
	if err := timely(func(int) error {
		return open(t, "rediss://"+strange).Check(t.Context())
	}); tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(err.Error(), "x509") {
		t.Errorf("with a certificate that nobody knows: %v, want %s", err, tidemark.Invalid)
	}
}
