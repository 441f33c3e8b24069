package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// AnswerTimeout is the longest wait for the answer to a request, or for room to write.
const AnswerTimeout = 30 * time.Second

// URL is the base URL of a server under load.
type URL struct {
	secure bool
	host   string // the Host header, with the port if the URL has one
	path   string // the part before /api/v1, usually ""
}

// ParseURL parses the base URL of a server.
func ParseURL(raw string) (URL, error) {
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return URL{}, fmt.Errorf("the server's URL is %q; it must look like "+
			"http://127.0.0.1:8080", raw)
	}
	u := URL{secure: parsed.Scheme == "https", host: parsed.Host, path: parsed.Path}
	for len(u.path) > 0 && u.path[len(u.path)-1] == '/' {
		u.path = u.path[:len(u.path)-1]
	}
	return u, nil
}

func (u URL) address() string {
	if _, _, err := net.SplitHostPort(u.host); err == nil {
		return u.host
	}
	if u.secure {
		return net.JoinHostPort(u.host, "443")
	}
	return net.JoinHostPort(u.host, "80")
}

// dial opens a connection. The connection adds the bytes that it receives to received.
func (u URL) dial(ctx context.Context, received *atomic.Int64) (net.Conn, error) {
	d := net.Dialer{Timeout: AnswerTimeout}
	nc, err := d.DialContext(ctx, "tcp", u.address())
	if err != nil {
		return nil, err
	}
	counted := &countingConn{Conn: nc, received: received}
	if !u.secure {
		return counted, nil
	}
	host, _, _ := net.SplitHostPort(u.address())
	return tls.Client(counted, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}), nil
}

// countingConn counts the bytes that it reads.
type countingConn struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// Conn is one keep-alive HTTP/1.1 connection of one user. One goroutine uses it.
type Conn struct {
	url      URL
	token    string
	received *atomic.Int64
	buffer   int // size of the read buffer

	nc     net.Conn
	br     *bufio.Reader
	out    []byte
	body   []byte
	closed atomic.Bool
	// after is the Retry-After of the last answer.
	after time.Duration
	// stop unregisters the function that closes nc when the context ends.
	stop func() bool
}

// NewConn returns a connection that dials when it is first used.
func NewConn(u URL, token string, received *atomic.Int64, buffer int) *Conn {
	return &Conn{url: u, token: token, received: received, buffer: buffer}
}

// Refused is an answer with a status of 400 or above.
type Refused struct {
	Call   string
	Status int
	Body   string
}

// Error implements error.
func (r *Refused) Error() string {
	return fmt.Sprintf("%s was answered by %d %s", r.Call, r.Status, r.Body)
}

// Do performs a request and returns the body of the answer, which is valid until the next call.
// If the server has closed the connection between two requests, Do opens it again and repeats the
// request. Every call of the load generator may be repeated.
func (c *Conn) Do(
	ctx context.Context, method, path string, body []byte, timeout time.Duration,
) ([]byte, error) {
	fresh := c.nc == nil
	status, answer, err := c.try(ctx, method, path, body, timeout)
	if err != nil && !fresh && ctx.Err() == nil && !c.closed.Load() && lost(err) {
		status, answer, err = c.try(ctx, method, path, body, timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status >= 400 {
		return nil, later(c.after, &Refused{
			Call:   method + " " + path,
			Status: status,
			Body:   Shorten(answer),
		})
	}
	return answer, nil
}

// retryAfter returns the Retry-After of an answer, or 0.
func retryAfter(r *http.Response) time.Duration {
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func (c *Conn) try(
	ctx context.Context, method, path string, body []byte, timeout time.Duration,
) (int, []byte, error) {
	response, err := c.request(ctx, method, path, "application/json", body, timeout)
	if err != nil {
		return 0, nil, err
	}
	c.body, err = readAll(response.Body, c.body[:0])
	if err != nil {
		c.drop()
		return 0, nil, err
	}
	if response.Close {
		c.drop()
	}
	c.after = retryAfter(response)
	return response.StatusCode, c.body, nil
}

// request writes a request and reads the head of its response.
func (c *Conn) request(
	ctx context.Context, method, path, accept string, body []byte, timeout time.Duration,
) (*http.Response, error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	b := append(c.out[:0], method...)
	b = append(b, ' ')
	b = append(b, c.url.path...)
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, c.url.host...)
	b = append(b, "\r\nAccept: "...)
	b = append(b, accept...)
	if c.token != "" {
		b = append(b, "\r\nAuthorization: Bearer "...)
		b = append(b, c.token...)
	}
	if body != nil {
		b = fmt.Appendf(b, "\r\nContent-Type: application/json\r\nContent-Length: %d", len(body))
	}
	b = append(b, "\r\n\r\n"...)
	b = append(b, body...)
	c.out = b
	if err := c.nc.SetDeadline(time.Now().Add(timeout)); err != nil {
		c.drop()
		return nil, err
	}
	if _, err := c.nc.Write(b); err != nil {
		c.drop()
		return nil, err
	}
	response, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.drop()
		return nil, err
	}
	return response, nil
}

func (c *Conn) open(ctx context.Context) error {
	if c.nc != nil {
		return nil
	}
	nc, err := c.url.dial(ctx, c.received)
	if err != nil {
		return err
	}
	c.nc = nc
	c.stop = context.AfterFunc(ctx, func() { _ = nc.Close() })
	if c.br == nil {
		c.br = bufio.NewReaderSize(nc, c.buffer)
	} else {
		c.br.Reset(nc)
	}
	return nil
}

func (c *Conn) drop() {
	if c.nc == nil {
		return
	}
	c.stop()
	_ = c.nc.Close()
	c.nc = nil
}

// Close closes the connection. The owner calls it after its last request.
func (c *Conn) Close() {
	c.closed.Store(true)
	c.drop()
}

func readAll(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// lost reports whether err means that the connection broke.
func lost(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &op)
}

// Shorten returns the first 300 bytes of b, for an error text.
func Shorten(b []byte) string {
	const most = 300
	if len(b) > most {
		b = b[:most]
	}
	return string(b)
}
