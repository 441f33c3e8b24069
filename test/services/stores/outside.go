package stores

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// outside makes HTTP calls outside of all bubbles of testing/synctest. A kept connection has a
// goroutine that waits for the network. Within a bubble, such a goroutine would stop the clock. A
// call takes no time of the bubble.
type outside struct {
	transport *http.Transport
	tickets   chan *ticket
	closing   chan struct{}
	ended     chan struct{}
}

// ticket is for one call. Its channels are made outside, because those made in a bubble may be used
// only there.
type ticket struct {
	call      chan call
	answer    chan answer
	cancelled chan struct{}
}

// call is the content of a request, without its context, which belongs to the bubble.
type call struct {
	method, url, host string
	header            http.Header
	body              []byte
}

type answer struct {
	response *http.Response
	err      error
}

// newOutside must be called outside of all bubbles. A goroutine outside must call run.
func newOutside() *outside {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// More connections to a service on this machine are not faster, and some tests measure the
	// heap.
	transport.MaxConnsPerHost = 4
	return &outside{
		transport: transport,
		tickets:   make(chan *ticket),
		closing:   make(chan struct{}),
		ended:     make(chan struct{}),
	}
}

// run hands out tickets until close is called. Then it waits for the calls.
func (b *outside) run() {
	defer close(b.ended)
	var calls sync.WaitGroup
	defer b.transport.CloseIdleConnections()
	defer calls.Wait()
	for {
		t := &ticket{
			call:      make(chan call),
			answer:    make(chan answer, 1),
			cancelled: make(chan struct{}),
		}
		select {
		case b.tickets <- t:
			calls.Go(func() { b.perform(t) })
		case <-b.closing:
			return
		}
	}
}

// close ends run. No calls may be made any more.
func (b *outside) close() {
	close(b.closing)
	<-b.ended
}

// RoundTrip implements http.RoundTripper. It may be called within a bubble.
func (b *outside) RoundTrip(r *http.Request) (*http.Response, error) {
	c := call{method: r.Method, url: r.URL.String(), host: r.Host, header: r.Header.Clone()}
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if c.body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	t := <-b.tickets
	t.call <- c
	select {
	case a := <-t.answer:
		if a.err == nil {
			a.response.Request = r
		}
		return a.response, a.err
	case <-r.Context().Done():
		close(t.cancelled)
		return nil, context.Cause(r.Context())
	}
}

func (b *outside) perform(t *ticket) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, done := <-t.call, make(chan struct{})
	go func() {
		defer close(done)
		response, err := b.roundTrip(ctx, c) //nolint:bodyclose // it is read and closed there
		t.answer <- answer{response, err}
	}()
	select {
	case <-t.cancelled:
		cancel()
	case <-done:
	}
	<-done
}

// roundTrip makes the call, and reads the answer to its end.
func (b *outside) roundTrip(ctx context.Context, c call) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, c.method, c.url, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	request.Host, request.Header = c.host, c.header
	response, err := b.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
