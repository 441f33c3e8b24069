package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

func TestParseURL(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"kafka://a":                                 "a:9092",
		"kafka://a:1,b,[::1]:2/":                    "a:1 b:9092 [::1]:2",
		"kafkas://[::1]":                            "[::1]:9092",
		"kafka://u:p%3F%23@a":                       "a:9092",
		"kafkas://u:p@a?sasl=plain":                 "a:9092",
		"kafka://u:p@a?sasl=scram-sha-256":          "a:9092",
		"http://a":                                  "needs the scheme kafka",
		"a:9092":                                    "needs the scheme kafka",
		"kafka://":                                  "needs HOST:PORT",
		"kafka://a,":                                "needs HOST:PORT",
		"kafka://a:0":                               "needs HOST:PORT",
		"kafka://a:99999":                           "needs HOST:PORT",
		"kafka://a/b":                               "needs HOST:PORT",
		"kafka://secret@a":                          "needs USER:PASSWORD",
		"kafka://u:secret%zz@a":                     "needs USER:PASSWORD",
		"kafka://u:sec#ret@a":                       "malformed",
		"kafka://a?x=1":                             "options sasl, ca, cert and key only",
		"kafkas://u:secret@a?sasl=plain&sasl=gs":    "options sasl, ca, cert and key only",
		"kafka://a?sasl=plain":                      "no user and password",
		"kafka://a?cert=/a&key=/b":                  "need the scheme kafkas",
		"kafkas://a?cert=/a":                        "both cert and key",
		"kafkas://a?cert=/none&key=/none":           "cannot be used",
		"kafka://u:secret@a?sasl=plain":             "in clear text",
		"kafka://u:secret@a?sasl=gssapi":            "must be scram-sha-512",
		"kafka://a?ca=" + url.QueryEscape(empty):    "needs the scheme kafkas",
		"kafkas://a?ca=" + url.QueryEscape(empty):   "has no certificate",
		"kafkas://a?ca=" + url.QueryEscape("/none"): "cannot be read",
	} {
		cluster, err := kafka.ParseURL(raw)
		got := strings.Join(cluster.Brokers, " ")
		if err != nil {
			got = err.Error()
			if tidemark.CodeOf(err) != tidemark.Invalid || strings.Contains(got, "secret") {
				t.Errorf("%s: %v", raw, err)
			}
		}
		if err == nil && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
		if err == nil && strings.HasPrefix(raw, "kafkas:") != (cluster.TLS != nil) {
			t.Errorf("%s: TLS is %v", raw, cluster.TLS)
		}
	}
}

func TestNew_refuses(t *testing.T) {
	here := kafka.Cluster{Brokers: []string{"127.0.0.1:1"}}
	long := "kafka:" + strings.Repeat("a", 201)
	for name, c := range map[string]struct {
		cfg  kafka.Config
		want string
	}{
		"no cluster":      {kafka.Config{URL: "kafka:t"}, "type"},
		"no URL":          {kafka.Config{Cluster: here}, "url"},
		"another URL":     {kafka.Config{Cluster: here, URL: "https://a/"}, "url"},
		"a cluster":       {kafka.Config{Cluster: here, URL: "kafka://a"}, "url"},
		"no prefix":       {kafka.Config{Cluster: here, URL: "kafka:"}, "url"},
		"a dot at first":  {kafka.Config{Cluster: here, URL: "kafka:."}, "url"},
		"a long prefix":   {kafka.Config{Cluster: here, URL: long}, "url"},
		"another content": {kafka.Config{Cluster: here, URL: "kafka:t", Content: "x"}, "content"},
		"batches":         {kafka.Config{Cluster: here, URL: "kafka:t", Batch: true}, "batch"},
	} {
		_, err := kafka.New(c.cfg)
		if tidemark.CodeOf(err) != tidemark.Invalid ||
			!strings.HasPrefix(tidemark.DetailOf(err), c.want) {
			t.Errorf("%s: %v, want Invalid %s", name, err, c.want)
		}
	}
	if _, err := kafka.New(kafka.Config{Cluster: here, URL: "kafka:a.b-c_D9"}); err != nil {
		t.Error(err)
	}
}

// TestDeliver_with_TLS_and_a_password connects as a URL says. A wrong password is not shown.
func TestDeliver_with_TLS_and_a_password(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(&block), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := fake(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "tidemark", "right"),
		kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates}))
	brokers := strings.Join(cluster.ListenAddrs(), ",")
	right, err := kafka.ParseURL("kafkas://tidemark:right@" + brokers + "?ca=" +
		url.QueryEscape(ca))
	if err != nil {
		t.Fatal(err)
	}
	p := kafkatest.NewPlace(t, cluster.ListenAddrs(), kgo.DialTLSConfig(right.TLS.Clone()),
		kgo.SASL(scram.Auth{User: "tidemark", Pass: "right"}.AsSha512Mechanism()))
	p.Create(1, nil)
	deliver := func(c kafka.Cluster) *outlet.Refusal {
		o := p.Open(nil, func(cfg *kafka.Config) { cfg.Cluster, cfg.Timeout = c, 10*time.Second })
		_, why := o.Deliver(t.Context(), []outlet.Event{kafkatest.Message("c", 1, 10)})
		return why
	}
	if why := deliver(right); why != nil {
		t.Fatalf("refused: %+v", why)
	}
	if got := p.Messages()["c"]; !slices.Equal(got, []uint64{1}) {
		t.Errorf("there are the messages %v", got)
	}
	for name, raw := range map[string]string{
		"a wrong password": "kafkas://tidemark:wrongsecret@" + brokers + "?ca=" +
			url.QueryEscape(ca),
		"other roots": "kafkas://tidemark:right@" + brokers,
		"no TLS":      "kafka://tidemark:right@" + brokers,
	} {
		c, err := kafka.ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		why := deliver(c)
		if why == nil || strings.Contains(why.Detail, "wrongsecret") {
			t.Errorf("%s: %+v", name, why)
		}
	}
}

// TestDeliver_with_a_client_certificate logs in by a certificate: the broker refuses connections
// without it.
func TestDeliver_with_a_client_certificate(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	dir := t.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return url.QueryEscape(path)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tidemark"},
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	cluster := fake(t, kfake.NumBrokers(1), kfake.TLS(&tls.Config{
		Certificates: server.TLS.Certificates, ClientCAs: clients,
		ClientAuth: tls.RequireAndVerifyClientCert,
	}))
	address := "kafkas://" + cluster.ListenAddrs()[0] + "?ca=" +
		file("ca.pem", "CERTIFICATE", server.Certificate().Raw)
	with, err := kafka.ParseURL(address + "&cert=" + file("cert.pem", "CERTIFICATE", der) +
		"&key=" + file("key.pem", "PRIVATE KEY", private))
	if err != nil {
		t.Fatal(err)
	}
	without, err := kafka.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	p := kafkatest.NewPlace(t, cluster.ListenAddrs(), kgo.DialTLSConfig(with.TLS.Clone()))
	p.Create(1, nil)
	deliver := func(c kafka.Cluster) *outlet.Refusal {
		o := p.Open(nil, func(cfg *kafka.Config) { cfg.Cluster, cfg.Timeout = c, 10*time.Second })
		_, why := o.Deliver(t.Context(), []outlet.Event{kafkatest.Message("c", 1, 10)})
		return why
	}
	if why := deliver(without); why == nil {
		t.Error("without a certificate the broker takes an event")
	}
	if why := deliver(with); why != nil {
		t.Errorf("refused: %+v", why)
	}
}

// TestDeliver_redacted_stays: a message that waited too long for the round trips of others is not
// stored as it was, nor are the later ones of its chat. The engine reads them again.
func TestDeliver_redacted_stays(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.NumBrokers(1))
	p := kafkatest.NewPlace(t, cluster.ListenAddrs())
	p.Create(1, nil)
	o := p.Open(&kafkatest.Link{}, nil)
	text := rand.Text()
	event := func(chat tidemark.ChatID, n uint64, age time.Duration) outlet.Event {
		e := kafkatest.Message(chat, n, 10)
		e.AsOf = time.Now().Add(-age)
		return e
	}
	old := event("old", 1, time.Minute)
	old.Data = []byte(`{"chat_id":"old","sequence":1,"content":"` + text + `"}`)
	refusals := o.DeliverEach(t.Context(), []outlet.Event{
		event("new", 1, 0), old, event("old", 2, 0), event("new", 2, 5*time.Second),
	})
	for i, why := range refusals {
		if late := i == 1 || i == 2; late != (why != nil) || late && why.Action != outlet.Later {
			t.Errorf("event %d: %+v", i, why)
		}
	}
	for _, r := range p.Read(".messages") {
		if strings.Contains(string(r.Value), text) {
			t.Errorf("stored %s", r.Value)
		}
	}
	if got := p.Messages(); len(got["new"]) != 2 || len(got["old"]) != 0 {
		t.Errorf("there are the messages %v", got)
	}
}
