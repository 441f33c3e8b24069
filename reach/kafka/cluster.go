package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tidemark-im/tidemark"
)

// defaultPort is the port of brokers whose address has none.
const defaultPort = "9092"

// Cluster says how a cluster of Kafka is reached. ParseURL returns it.
type Cluster struct {
	// Brokers has the host:port of some brokers. They name the others.
	Brokers []string
	// TLS is nil for connections without it.
	TLS *tls.Config
	// Dial connects to a broker, nil for the usual way. With it, TLS does not count.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	login sasl.Mechanism
}

// ParseURL parses a URL of this form:
//
//	kafka://[user:password@]host[:port],…[?sasl=MECHANISM&ca=FILE&cert=FILE&key=FILE]
//
// kafkas in place of kafka means TLS. MECHANISM is scram-sha-512, the default, or scram-sha-256, or
// plain, which needs TLS. ca has the authorities in PEM, in place of those of the system. cert has
// the client's certificate, with those between it and its authority, and key its private key, both
// in PEM. The error is Invalid and contains no password.
func ParseURL(raw string) (Cluster, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	if scheme != "kafka" && scheme != "kafkas" {
		return Cluster{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of Kafka needs the scheme kafka, or kafkas for TLS")
	}
	var c Cluster
	if scheme == "kafkas" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	rest, query, _ := strings.Cut(rest, "?")
	options, err := url.ParseQuery(query)
	if err != nil || strings.Contains(raw, "#") {
		return Cluster{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of Kafka is malformed; write ? and # in a password as %%3F and %%23")
	}
	for name, values := range options {
		if !slices.Contains([]string{"sasl", "ca", "cert", "key"}, name) || len(values) > 1 {
			return Cluster{}, tidemark.Errorf(tidemark.Invalid,
				"the URL of Kafka takes the options sasl, ca, cert and key only, once each")
		}
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := c.logIn(rest[:at], options.Get("sasl")); err != nil {
			return Cluster{}, err
		}
		rest = rest[at+1:]
	} else if options.Has("sasl") {
		return Cluster{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of Kafka has the option sasl, but no user and password")
	}
	if err := c.trust(options.Get("ca")); err != nil {
		return Cluster{}, err
	}
	if err := c.present(options.Get("cert"), options.Get("key")); err != nil {
		return Cluster{}, err
	}
	return c, c.hosts(strings.TrimSuffix(rest, "/"))
}

// logIn sets the mechanism from a part USER:PASSWORD.
func (c *Cluster) logIn(login, mechanism string) error {
	user, password, _ := strings.Cut(login, ":")
	user, userErr := url.PathUnescape(user)
	password, passwordErr := url.PathUnescape(password)
	if userErr != nil || passwordErr != nil || user == "" || password == "" {
		return tidemark.Errorf(tidemark.Invalid,
			"the URL of Kafka needs USER:PASSWORD before the @, with %%XX for special characters")
	}
	switch mechanism {
	case "", "scram-sha-512":
		c.login = scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "scram-sha-256":
		c.login = scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "plain":
		if c.TLS == nil {
			return tidemark.Errorf(tidemark.Invalid, "sasl=plain would send the password of Kafka "+
				"in clear text; use the scheme kafkas, or another mechanism")
		}
		c.login = plain.Auth{User: user, Pass: password}.AsMechanism()
	default:
		return tidemark.Errorf(tidemark.Invalid,
			"sasl in the URL of Kafka must be scram-sha-512, scram-sha-256 or plain")
	}
	return nil
}

// trust sets the authorities from a file, if it is named.
func (c *Cluster) trust(file string) error {
	if file == "" {
		return nil
	}
	if c.TLS == nil {
		return tidemark.Errorf(tidemark.Invalid, "ca in the URL of Kafka needs the scheme kafkas")
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return tidemark.Wrap(tidemark.Invalid, err, "the authorities of Kafka cannot be read")
	}
	c.TLS.RootCAs = x509.NewCertPool()
	if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
		return tidemark.Errorf(tidemark.Invalid, "the file %q, ca of the URL of Kafka, has no "+
			"certificate in PEM", file)
	}
	return nil
}

// present sets the client's certificate from two files, if they are named. They are read again for
// each connection, so that they can be renewed.
func (c *Cluster) present(cert, key string) error {
	switch {
	case cert == "" && key == "":
		return nil
	case c.TLS == nil:
		return tidemark.Errorf(tidemark.Invalid,
			"cert and key in the URL of Kafka need the scheme kafkas")
	case cert == "" || key == "":
		return tidemark.Errorf(tidemark.Invalid,
			"the URL of Kafka needs both cert and key, or none of them")
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return tidemark.Wrap(tidemark.Invalid, err, "the client's certificate for Kafka (cert and "+
			"key in its URL) cannot be used; it needs two files in PEM")
	}
	c.TLS.GetClientCertificate = load
	return nil
}

// hosts sets the addresses of the brokers.
func (c *Cluster) hosts(list string) error {
	for host := range strings.SplitSeq(list, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), defaultPort
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 || name == "" || strings.ContainsAny(name, "/ ") {
			return tidemark.Errorf(tidemark.Invalid,
				"the URL of Kafka needs HOST:PORT of one or more brokers, divided by commas")
		}
		c.Brokers = append(c.Brokers, net.JoinHostPort(name, port))
	}
	return nil
}

const (
	// batchLimit bounds one record. The topic usually has a lower bound.
	batchLimit = 16 << 20
	// tries is how often the client repeats a batch that Kafka refused for a temporary reason. With
	// backoff, this takes 1.5 s, and other chats wait meanwhile. After that, the engine retries the
	// chats of the batch, and the others no longer wait.
	tries = 4
	// dialTimeout bounds a connect with its handshake. answerTimeout bounds how long Kafka waits
	// for replicas. The client waits for the same time again.
	dialTimeout   = 3 * time.Second
	answerTimeout = 5 * time.Second
)

// backoff returns the wait before the nth attempt in a row.
func backoff(n int) time.Duration { return min(100*time.Millisecond<<min(n, 4), time.Second) }

// client returns an idempotent producer, which sends only during Flush.
func (c *Cluster) client(hooks ...kgo.Hook) (*kgo.Client, error) {
	options := append(c.Options(), kgo.WithHooks(hooks...),
		kgo.RequestTimeoutOverhead(answerTimeout), kgo.ProduceRequestTimeout(answerTimeout),
		kgo.UnknownTopicRetries(tries/2), kgo.RecordRetries(tries),
		kgo.ProducerBatchMaxBytes(batchLimit), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0))
	//rule:told_in_order.whole-batches-of-kafka
	options = append(options, kgo.ManualFlushing())
	return kgo.NewClient(options...)
}

// Options returns how a client reaches the cluster.
func (c *Cluster) Options() []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID("tidemark"), kgo.DisableClientMetrics(),
		kgo.DialTimeout(dialTimeout), kgo.RetryBackoffFn(backoff),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	switch {
	case c.Dial != nil:
		options = append(options, kgo.Dialer(c.Dial))
	case c.TLS != nil:
		options = append(options, kgo.DialTLSConfig(c.TLS))
	}
	if c.login != nil {
		options = append(options, kgo.SASL(c.login))
	}
	return options
}
