package pushtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/reach/push"
)

// Trouble is how a fake provider answers one request.
type Trouble string

// The troubles. Each fake says in its provider's words what the first group means.
const (
	// OK: the request is judged as the real provider judges it.
	OK Trouble = ""
	// Gone: the app was removed from the device, an hour ago.
	Gone Trouble = "gone"
	// Mistaken: the address was never one of this sender.
	Mistaken Trouble = "mistaken"
	// Busy: too many requests; come back after RetryAfter.
	Busy Trouble = "busy"
	// Failed: an error of the provider's own.
	Failed Trouble = "failed"
	// Unavailable: the provider is away; come back after RetryAfter.
	Unavailable Trouble = "unavailable"
	// TooLarge: the payload is too large for the provider.
	TooLarge Trouble = "too large"
	// Barred: the sender's credentials do not count, whatever they are.
	Barred Trouble = "barred"
	// Expired: the sender's present credentials do not count any more. New ones do.
	Expired Trouble = "expired"

	// GoAwayBefore: HTTP/2 GOAWAY that leaves the request out. GoAwayAfter: one that includes it,
	// and the end of the connection. GoAwayLater: one that lets everything under way end.
	GoAwayBefore Trouble = "GOAWAY before the request"
	GoAwayAfter  Trouble = "GOAWAY after the request"
	GoAwayLater  Trouble = "GOAWAY for later requests"
	// Slow: the answer comes after five seconds. Silent: none comes.
	Slow   Trouble = "slow"
	Silent Trouble = "silent"
	// Half: the connection ends in the middle of the answer.
	Half Trouble = "half an answer"
)

// RetryAfter is what Busy and Unavailable demand.
const RetryAfter = 70 * time.Second

// Protocol is what a fake provider knows of the real one. Calls come one at a time.
type Protocol interface {
	// Accept judges a request as the provider does. Without a refusal it returns what the device
	// gets.
	Accept(r *http.Request, body []byte, now time.Time) (Received, *Refusal)
	// Refuse returns the provider's answer for one of the first group of troubles.
	Refuse(trouble Trouble, now time.Time) Refusal
	// Expire makes the sender's present credentials worthless.
	Expire(r *http.Request)
	// Login answers a request that is no notification, or returns nil.
	Login(r *http.Request, body []byte, now time.Time) *Refusal
	// Skew is how far the provider's clock is ahead.
	Skew() time.Duration
}

// Refusal is an answer other than the usual one.
type Refusal struct {
	Status int
	Header http.Header
	Body   string
}

// Received is what a device gets.
type Received struct {
	push.Data
	// TTL is how long the provider keeps it. Urgent: it wakes the device.
	TTL    time.Duration
	Urgent bool
	// Collapse is the name by which the provider itself replaces notifications; "" is none.
	Collapse string
}

// Server is a fake provider on a real socket: TLS with a CA of its own, and HTTP/2.
type Server struct {
	// URL is where it listens: https://127.0.0.1:PORT.
	URL string
	// TLS trusts its CA, and CA is the certificate of the CA, as PEM.
	TLS *tls.Config
	CA  []byte

	protocol Protocol
	server   *http.Server

	mu       sync.Mutex // guards what follows
	script   []Trouble
	received []Received
	captured [][]byte
	refusals []string
	requests int
	// conns are the connections that there were, with the number of answers.
	conns map[net.Conn]int
}

// Start starts a fake provider for a test.
func Start(t *testing.T, protocol Protocol) *Server {
	t.Helper()
	certificate, ca := authority(t)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		URL: "https://" + listener.Addr().String(), protocol: protocol,
		TLS:   &tls.Config{RootCAs: roots},
		CA:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}),
		conns: make(map[net.Conn]int),
	}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	s.server = &http.Server{
		Handler: s, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Protocols: &protocols, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conns[c] = 0
			return context.WithValue(ctx, connection{}, c)
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- s.server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = s.server.Close()
		<-ended
	})
	return s
}

type connection struct{}

// Script says how the next requests are answered, each by one trouble. The following are OK.
func (s *Server) Script(next ...Trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = next
}

// Do calls a function while no request is judged. It may change and read the fake.
func (s *Server) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Received returns what devices got since the last call.
func (s *Server) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	received := s.received
	s.received = nil
	return received
}

// Refusals returns why requests were refused that the script did not refuse, since the last call.
func (s *Server) Refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	refusals := s.refusals
	s.refusals = nil
	return refusals
}

// Captured returns all bytes of headers and bodies that came so far.
func (s *Server) Captured() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.captured
}

// Seen returns how many notifications were requested, and over how many connections.
func (s *Server) Seen() (requests, connections int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, len(s.conns)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	s.mu.Lock()
	now := time.Now().Add(s.protocol.Skew())
	s.captured = append(s.captured,
		fmt.Appendf(nil, "%s %s %v\n%s", r.Method, r.URL, r.Header, body))
	if answer := s.protocol.Login(r, body, now); answer != nil {
		s.mu.Unlock()
		answer.date(now)
		answer.write(w)
		return
	}
	s.requests++
	conn := r.Context().Value(connection{}).(net.Conn)
	trouble := s.next(conn)
	s.mu.Unlock()
	if s.breaks(w, r, conn, trouble) {
		return
	}
	s.judge(r, body, trouble).write(w)
	s.mu.Lock()
	s.conns[conn]++
	s.mu.Unlock()
}

// next returns the next trouble of the script. GOAWAY waits for a connection that has answered:
// before that, the server may not have written its SETTINGS, which come first.
func (s *Server) next(conn net.Conn) Trouble {
	if len(s.script) == 0 {
		return OK
	}
	trouble := s.script[0]
	switch trouble {
	case GoAwayBefore, GoAwayAfter, GoAwayLater:
		if s.conns[conn] == 0 {
			return OK
		}
	}
	s.script = s.script[1:]
	return trouble
}

// judge returns the answer to a request.
func (s *Server) judge(r *http.Request, body []byte, trouble Trouble) *Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if trouble == Expired {
		s.protocol.Expire(r)
	}
	now := time.Now().Add(s.protocol.Skew())
	switch trouble {
	case Gone, Mistaken, Busy, Failed, Unavailable, TooLarge, Barred:
		refusal := s.protocol.Refuse(trouble, now)
		refusal.date(now)
		return &refusal
	}
	received, refusal := s.protocol.Accept(r, body, now)
	if refusal != nil && trouble != Expired {
		s.refusals = append(s.refusals, fmt.Sprint(refusal.Status, " ", refusal.Body))
	}
	if refusal == nil {
		s.received = append(s.received, received)
		refusal = &Refusal{Status: http.StatusOK}
		if accepted, ok := s.protocol.(interface{ Accepted() Refusal }); ok {
			*refusal = accepted.Accepted()
		}
	}
	refusal.date(now)
	return refusal
}

// breaks troubles the connection. It reports whether the request has got what it gets.
func (s *Server) breaks(
	w http.ResponseWriter, r *http.Request, conn net.Conn, trouble Trouble,
) bool {
	switch trouble {
	case GoAwayBefore:
		_, _ = conn.Write(goAway(0))
		panic(http.ErrAbortHandler)
	case GoAwayAfter:
		_, _ = conn.Write(goAway(1<<31 - 1))
		conn.Close()
		return true
	case GoAwayLater:
		_, _ = conn.Write(goAway(1<<31 - 1))
	case Slow:
		select {
		case <-time.After(5 * time.Second):
			return false
		case <-r.Context().Done():
			return true
		}
	case Silent:
		<-r.Context().Done()
		return true
	case Half:
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, `{"na`)
		_ = http.NewResponseController(w).Flush()
		conn.Close()
		return true
	}
	return false
}

// goAway returns the frame GOAWAY (RFC 9113 §6.8), with the last stream that counts.
func goAway(last uint32) []byte {
	debug := `{"reason":"Shutdown"}`
	frame := []byte{0, 0, byte(8 + len(debug)), 0x07, 0, 0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint32(frame, last)
	frame = binary.BigEndian.AppendUint32(frame, 0) // NO_ERROR
	return append(frame, debug...)
}

func (f *Refusal) date(now time.Time) {
	if f.Header == nil {
		f.Header = make(http.Header)
	}
	f.Header.Set("Date", now.UTC().Format(http.TimeFormat))
}

func (f *Refusal) write(w http.ResponseWriter) {
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.Status)
	_, _ = io.WriteString(w, f.Body)
}

// authority makes a CA, and a certificate for this machine from it.
func authority(t *testing.T) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (
		*x509.Certificate, *ecdsa.PrivateKey,
	) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, by = template, key
		}
		template.NotBefore = time.Now().Add(-time.Hour)
		template.NotAfter = time.Now().Add(time.Hour)
		template.BasicConstraintsValid = true
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return certificate, key
	}
	ca, caKey := issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of a test"},
		IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	leaf, leafKey := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "fake provider"},
		KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, caKey)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: leafKey}, ca
}

// Problem returns a refusal with a status and a text.
func Problem(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Body: fmt.Sprintf(format, args...)}
}
