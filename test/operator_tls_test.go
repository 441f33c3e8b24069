package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestOperations_postgres_over_tls: as docs/postgres.md says, Tidemark accepts only a database with
// a certificate of the given authority for its address.
func TestOperations_postgres_over_tls(t *testing.T) {
	t.Parallel()
	o := newOperator(t, postgres.Start(t))
	o.roles()
	mode := "?sslmode=verify-full&sslrootcert="
	if !strings.Contains(o.guide, "`sslmode=verify-full&sslrootcert=/etc/tidemark/db-ca.pem`") {
		t.Error("docs/postgres.md says it in another way")
	}
	certificate, key := selfSigned(t)
	other, _ := selfSigned(t)
	put(t, filepath.Join(o.dir, "db-ca.pem"), certificate)
	put(t, filepath.Join(o.dir, "other.pem"), other)
	script := `umask 077
		printf %s "$KEY" > "$DATA/server.key"; printf %s "$CERTIFICATE" > "$DATA/server.crt"
		psql --set=ON_ERROR_STOP=1 "$URL" --command="ALTER SYSTEM SET ssl = on" \
			--command="SELECT pg_reload_conf()"`
	if out, err := o.server.Shell(script, "KEY="+key, "CERTIFICATE="+certificate,
		"DATA="+o.server.Data(), "URL="+o.server.URL("postgres")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	until(t, "the database has TLS",
		func() bool { return o.ask("SHOW ssl") == "on" }, func() string { return o.server.Log() })

	p := processOf(t, o.binary)
	said, err := p.command("migrate", "status", "--store", o.store()+mode+o.dir+"/db-ca.pem")
	if err != nil || !strings.Contains(said, "schema 12, compatible 1, needed 12") {
		t.Errorf("with its certificate: %v: %s", err, said)
	}
	for name, store := range map[string]string{
		"another authority": o.store() + mode + o.dir + "/other.pem",
		"another name": strings.Replace(o.store(), "127.0.0.1", "localhost", 1) +
			mode + o.dir + "/db-ca.pem",
		"no authority": o.store() + mode + o.dir + "/nowhere.pem",
	} {
		said, err := p.command("migrate", "status", "--store", store)
		if err == nil || !strings.Contains(said, "x509") && !strings.Contains(said, "nowhere.pem") {
			t.Errorf("%s: %v: %s", name, err, said)
		}
	}
	p.url, p.migrated = o.store()+mode+o.dir+"/db-ca.pem", true
	p.serve()
	as(p.address, "alice").direct(t, "bob")
	if got := o.ask("SELECT bool_and(ssl) FROM pg_stat_ssl " +
		"JOIN pg_stat_activity USING (pid) WHERE usename = 'tidemark_app'"); got != "t" {
		t.Errorf("all connections of the server have TLS: %q", got)
	}
	p.stop()
}

// selfSigned returns a certificate for 127.0.0.1 that is its own authority, and its key.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: fmt.Sprint("database of ", t.Name())},
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey,
		private)
	must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	return certificate, key
}
