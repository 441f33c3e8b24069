package webhook

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http2"
)

// short is the bound of a delivery to a receiver that gives no whole answer.
const short = 3 * time.Second

// raw is a TLS server of single connections, with a certificate of an authority of its own.
type raw struct {
	address string
	roots   *x509.CertPool
	// opened counts the connections, and open those that are open.
	opened, open atomic.Int64
}

// listen starts a server that gives each connection and its number, from 1, to a function. The
// function returns when the context ends.
func listen(
	t *testing.T, protos []string, serve func(ctx context.Context, n int64, c net.Conn),
) *raw {
	t.Helper()
	certificate, roots := authority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate}, NextProtos: protos,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{address: l.Addr().String(), roots: roots}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // It is closed.
			}
			n := r.opened.Add(1)
			r.open.Add(1)
			running.Go(func() {
				defer r.open.Add(-1)
				ctx, end := context.WithCancel(t.Context())
				context.AfterFunc(ctx, func() { c.Close() })
				defer end()
				if c.(*tls.Conn).HandshakeContext(ctx) == nil {
					serve(ctx, n, c)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return r
}

// authority returns a certificate for this machine and hook.test, and the authority that signed it.
func authority(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	var keys [2]*ecdsa.PrivateKey
	var made [2]*x509.Certificate
	for i := range keys {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), IsCA: i == 0, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			DNSNames: []string{"hook.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		parent := template
		if i == 1 {
			parent = made[0]
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, keys[0])
		if err != nil {
			t.Fatal(err)
		}
		if made[i], err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(made[0])
	return tls.Certificate{Certificate: [][]byte{made[1].Raw}, PrivateKey: keys[1]}, roots
}

// outlet returns an outlet for the server.
func (r *raw) outlet(t *testing.T, change func(*Config)) *Outlet {
	t.Helper()
	cfg := Config{
		URL: "https://" + r.address + "/hook", Secrets: []string{NewSecret()}, Roots: r.roots,
		Allow: loopback,
	}
	if change != nil {
		change(&cfg)
	}
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// request reads a request from a connection of HTTP/1.1, and reports whether there was one.
func readRequest(in *bufio.Reader) bool {
	request, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, request.Body)
	return err == nil
}

// drip writes a text again and again, slowly or as quickly as it can, until the connection ends. It
// returns how many bytes the connection took.
func drip(ctx context.Context, c net.Conn, text string, every time.Duration) (written int) {
	for {
		if every > 0 {
			select {
			case <-ctx.Done():
				return written
			case <-time.After(every):
			}
		}
		n, err := io.WriteString(c, text)
		if written += n; err != nil {
			return written
		}
	}
}

// mostTaken bounds what a receiver can write, most of which the buffers of its sockets take.
const mostTaken = 24 << 20

// TestDeliver_ends_whatever_comes: nothing that a receiver does, or leaves out, holds a delivery
// for longer than its bound, or makes it read much.
func TestDeliver_ends_whatever_comes(t *testing.T) {
	const slow = 20 * time.Millisecond
	for name, tc := range map[string]struct {
		begin string
		text  string
		every time.Duration
		// close ends the connection after begin, and hangs says that no whole answer comes.
		close, hangs bool
		accepted     int
		status       int
		want         string
	}{
		"silent": {hangs: true, want: "no answer within"},
		"a status, then silent": {
			begin: "HTTP/1.1 200 OK\r\n", hangs: true, want: "no answer within",
		},
		"closed":          {close: true, want: "cannot be reached"},
		"closed half-way": {begin: "HTTP/1.1 20", close: true, want: "cannot be reached"},
		"drips a header": {
			begin: "HTTP/1.1 200 OK\r\nX: ", text: "x", every: slow, hangs: true,
			want: "no answer within",
		},
		"endless header": {
			begin: "HTTP/1.1 200 OK\r\n", text: "X: " + strings.Repeat("x", 1000) + "\r\n",
			want: "cannot be reached",
		},
		"endless hints": {
			text: "HTTP/1.1 103 Early Hints\r\nX: " + strings.Repeat("x", 1000) + "\r\n\r\n",
			want: "cannot be reached",
		},
		"drips a body": {
			begin: "HTTP/1.1 502 Bad\r\n\r\n", text: "x", every: slow, hangs: true,
			status: 502, want: "xxx",
		},
		"endless body": {
			begin: "HTTP/1.1 502 Bad\r\n\r\n", text: strings.Repeat("x", 1000), status: 502,
			want: strings.Repeat("x", 1000),
		},
		"a body cut off": {
			begin: "HTTP/1.1 502 Bad\r\nContent-Length: 9\r\n\r\nxx", close: true, status: 502,
			want: "xx",
		},
		// The status says that it is accepted. What follows changes nothing.
		"accepts and drips": {
			begin: "HTTP/1.1 200 OK\r\n\r\n", text: "x", every: slow, hangs: true,
			accepted: 1,
		},
		// Its body is the connection, whose reads no context ends.
		"another protocol": {
			begin: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
				"Upgrade: x\r\n\r\n",
			status: 101, want: "101 Switching Protocols",
		},
		"no HTTP": {begin: "\x00\x1b[2J\r\n\r\n", want: "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := listen(t, nil, func(ctx context.Context, _ int64, c net.Conn) {
				if !readRequest(bufio.NewReader(c)) {
					return
				}
				io.WriteString(c, tc.begin)
				if tc.close {
					return
				}
				if tc.text == "" {
					<-ctx.Done()
				} else if n := drip(ctx, c, tc.text, tc.every); n > mostTaken {
					t.Errorf("%d bytes of an answer were taken", n)
				}
			})
			o := r.outlet(t, func(c *Config) {
				if tc.hangs {
					c.Timeout = short
				}
			})
			start := time.Now()
			n, refused := o.Deliver(t.Context(), events(1))
			if took := time.Since(start); took > 3*short {
				t.Errorf("the delivery took %v", took)
			}
			if n != tc.accepted || (refused == nil) != (tc.accepted == 1) {
				t.Fatalf("got %d, %+v", n, refused)
			}
			if refused == nil {
				return
			}
			if refused.Status != tc.status || !strings.Contains(refused.Detail, tc.want) {
				t.Errorf("got %+v, want the status %d and %.100q", refused, tc.status, tc.want)
			}
			checkDetail(t, refused.Detail)
		})
	}
}

// checkDetail checks that an operator can be shown a detail.
func checkDetail(t *testing.T, detail string) {
	t.Helper()
	if len(detail) > 5<<10 {
		t.Errorf("the detail has %d bytes", len(detail))
	}
	if !utf8.ValidString(detail) || strings.ContainsFunc(detail, unicode.IsControl) {
		t.Errorf("the detail is %.200q", detail)
	}
}

// TestDeliver_no_handshake: a receiver that accepts the connection, and no more, is left.
func TestDeliver_no_handshake(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := (&raw{address: l.Addr().String()}).outlet(t, func(c *Config) {
		c.Timeout = short
	})
	start := time.Now()
	n, refused := o.Deliver(t.Context(), events(1))
	if took := time.Since(start); n != 0 || refused == nil || took > 3*short {
		t.Errorf("got %d, %+v after %v", n, refused, took)
	}
}

// TestDeliver_detail_is_plain: what a receiver writes into a status or a header cannot change the
// terminal of an operator, or fill the store.
func TestDeliver_detail_is_plain(t *testing.T) {
	for name, answer := range map[string]string{
		"reason": "HTTP/1.1 500 \x1b[31m\xff" + strings.Repeat("\x01", 10_000) +
			"\r\nContent-Length: 0\r\n\r\n",
		"body": "HTTP/1.1 500 Bad\r\nContent-Length: 4096\r\n\r\n" +
			strings.Repeat("\x1b", 4_096),
		"location": "HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nLocation: \xff\x1b" +
			strings.Repeat("é", 5_000) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := listen(t, nil, func(ctx context.Context, _ int64, c net.Conn) {
				if readRequest(bufio.NewReader(c)) {
					io.WriteString(c, answer)
				}
				<-ctx.Done()
			})
			n, refused := r.outlet(t, nil).Deliver(t.Context(), events(1))
			if n != 0 || refused == nil {
				t.Fatalf("%d events were accepted", n)
			}
			checkDetail(t, refused.Detail)
		})
	}
}

// TestDeliver_connection_that_the_receiver_closed: servers close connections that are idle. A
// delivery that is under way then is sent again at once, over another connection.
func TestDeliver_connection_that_the_receiver_closed(t *testing.T) {
	r := listen(t, nil, func(_ context.Context, n int64, c net.Conn) {
		in := bufio.NewReader(c)
		if readRequest(in) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		in.Peek(1) // The next delivery begins, and the connection is closed.
	})
	o := r.outlet(t, nil)
	for i := range 3 {
		if n, refused := o.Deliver(t.Context(), events(1)); n != 1 {
			t.Errorf("delivery %d: got %d, %+v", i, n, refused)
		}
	}
	if got := r.opened.Load(); got != 3 {
		t.Errorf("there were %d connections, want 3", got)
	}
}

// TestDeliver_GOAWAY: a receiver that stops takes what is under way, or says that it has not. Then
// the delivery is sent again at once.
func TestDeliver_GOAWAY(t *testing.T) {
	var requests atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1)%2 == 1 {
			w.Header().Set("Connection", "close") // HTTP/2 sends it as GOAWAY.
		}
	})
	next := make(conns)
	server := &http.Server{Handler: handler}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(next) })
	t.Cleanup(func() {
		close(next)
		server.Close()
		serving.Wait()
	})
	r := listen(t, []string{"h2"}, func(ctx context.Context, n int64, c net.Conn) {
		if n == 1 {
			refuse(t, c)
			return
		}
		next <- c
		<-ctx.Done()
	})
	o := r.outlet(t, nil)
	for i := range 4 {
		if n, refused := o.Deliver(t.Context(), events(1)); n != 1 {
			t.Errorf("delivery %d: got %d, %+v", i, n, refused)
		}
	}
	if got := requests.Load(); got != 4 {
		t.Errorf("the receiver took %d deliveries, want 4", got)
	}
	// net/http may open one more while it waits for one that ends.
	if got := r.opened.Load(); got < 4 {
		t.Errorf("there were %d connections, want at least 4", got)
	}
}

// conns is a listener that gives the connections of a channel.
type conns chan net.Conn

func (c conns) Accept() (net.Conn, error) {
	if next, more := <-c; more {
		return next, nil
	}
	return nil, net.ErrClosed
}

func (conns) Close() error   { return nil }
func (conns) Addr() net.Addr { return &net.TCPAddr{} }

// refuse answers the first request of a connection of HTTP/2 by GOAWAY: nothing was taken.
func refuse(t *testing.T, c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		t.Errorf("no preface came: %v", err)
		return
	}
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		t.Error(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if frame.Header().Type == http2.FrameHeaders {
			if err := framer.WriteGoAway(0, http2.ErrCodeNo, nil); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDeliver_dead_connection: a connection of HTTP/2 on which nothing comes any more, and that
// nobody closed, is not used for ever.
func TestDeliver_dead_connection(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	way := newWay(t, r.Listener.Addr().String())
	o := r.outlet(t, func(c *Config) {
		c.URL, c.Timeout = "https://"+way.address, short
	})
	if n, refused := o.Deliver(t.Context(), events(1)); n != 1 {
		t.Fatalf("got %d, %+v", n, refused)
	}
	way.cut()
	if n, refused := o.Deliver(t.Context(), events(1)); n != 0 || refused == nil {
		t.Errorf("got %d, %+v, though nothing can come back", n, refused)
	}
	if n, refused := o.Deliver(t.Context(), events(1)); n != 1 {
		t.Errorf("got %d, %+v: the dead connection is still in use", n, refused)
	}
}

// way is a proxy of connections.
type way struct {
	address string
	// dead is how many of the first connections are dead: they take bytes and pass none on.
	dead, opened atomic.Int64
}

// cut makes the connections so far dead.
func (w *way) cut() { w.dead.Store(w.opened.Load()) }

// newWay starts a way to an address.
func newWay(t *testing.T, to string) *way {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{address: l.Addr().String()}
	var running sync.WaitGroup
	pass := func(n int64, from, to net.Conn) {
		running.Go(func() {
			defer to.Close()
			buffer := make([]byte, 32<<10)
			for {
				size, err := from.Read(buffer)
				if err != nil {
					return
				}
				if n <= w.dead.Load() {
					continue
				}
				if _, err := to.Write(buffer[:size]); err != nil {
					return
				}
			}
		})
	}
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				in.Close()
				return
			}
			context.AfterFunc(t.Context(), func() { in.Close(); out.Close() })
			n := w.opened.Add(1)
			pass(n, in, out)
			pass(n, out, in)
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return w
}

// TestDeliver_connections_are_bounded_and_reused over HTTP/1.1, where each delivery needs one.
func TestDeliver_connections_are_bounded_and_reused(t *testing.T) {
	var most atomic.Int64
	full := make(chan struct{})
	var r *raw
	r = listen(t, nil, func(_ context.Context, n int64, c net.Conn) {
		if most.Store(max(most.Load(), r.open.Load())); n == connections {
			close(full)
		}
		for in := bufio.NewReader(c); readRequest(in); {
			select {
			case <-full:
			case <-t.Context().Done():
			}
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	o := r.outlet(t, func(c *Config) { c.Timeout = time.Minute })
	var running sync.WaitGroup
	for range 4 * connections {
		running.Go(func() {
			if n, refused := o.Deliver(t.Context(), events(1)); n != 1 {
				t.Errorf("got %d, %+v", n, refused)
			}
		})
	}
	running.Wait()
	if got := r.opened.Load(); got != connections || most.Load() > connections {
		t.Errorf("there were %d connections, %d at once, want %d", got, most.Load(), connections)
	}
}
