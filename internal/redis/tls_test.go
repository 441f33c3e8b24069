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
	"github.com/tidemark-im/tidemark/test/services/process"
	service "github.com/tidemark-im/tidemark/test/services/redis"
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
func withTLS(t *testing.T, name string) (address string) {
	t.Helper()
	at := filepath.Join(filepath.Dir(os.Getenv("SSL_CERT_FILE")), name)
	var server *service.Server
	err := process.OnFreePort(func(port int) (err error) {
		address = fmt.Sprint("127.0.0.1:", port)
		server, err = service.Serve(fmt.Sprint("tls-port ", port), "tls-cert-file "+at+".pem",
			"tls-key-file "+at+".key", "tls-auth-clients no")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return address
}

func TestTLS(t *testing.T) {
	trusted := withTLS(t, "trusted")
	c := open(t, "rediss://"+trusted)
	if err := c.Check(t.Context()); err != nil {
		t.Errorf("with a certificate that is trusted: %v", err)
	}
	got, err := redis.Only(c.Run(t.Context(), []redis.Call{script("n")}))
	if err != nil || fmt.Sprint(got) != "[1 <nil>]" {
		t.Errorf("a script: %v, %v", got, err)
	}
	if s, err := c.Subscribe(t.Context(), "channel"); err != nil {
		t.Errorf("a subscription: %v", err)
	} else {
		s.Close()
	}
	err = open(t, "redis://"+trusted).Check(t.Context())
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("without TLS: %v, want %s", err, tidemark.Unavailable)
	}
	err = open(t, "rediss://"+withTLS(t, "strange")).Check(t.Context())
	if tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(err.Error(), "x509") {
		t.Errorf("with a certificate that nobody knows: %v, want %s", err, tidemark.Invalid)
	}
}
