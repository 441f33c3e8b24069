package stores

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// beyond makes HTTP calls outside of all bubbles of testing/synctest. A connection that is kept has a goroutine that waits for the network, so within
// a bubble no time would ever pass. To the bubble a call takes no time.
type beyond struct {
	transport *http.Transport
	tickets   chan *ticket
	closing   chan struct{}
	ended     chan struct{}
}

// ticket is for one call. Its channels are made outside: those that are made in a bubble may be used only there.
type ticket struct {
	call      chan call
	answer    chan answer
	cancelled chan struct{}
}

// call is what a request says, without its context, which belongs to the bubble.
type call struct {
	method, url, host string
	header            http.Header
	body              []byte
}

type answer struct {
	response *http.Response
	err      error
}

// newBeyond is to be called outside of all bubbles. Somebody has to call run there.
func newBeyond() *beyond {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost = 4 // A service on this machine answers no faster over more, and what the heap holds is looked at by tests.
	return &beyond{
		transport: transport,
		tickets:   make(chan *ticket),
		closing:   make(chan struct{}),
		ended:     make(chan struct{}),
	}
}

// run hands out tickets until close is called, and waits for the calls then.
func (b *beyond) run() {
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

// close ends run. Nobody may make calls any more.
func (b *beyond) close() {
	close(b.closing)
	<-b.ended
}

// RoundTrip implements http.RoundTripper. It may be called within a bubble.
func (b *beyond) RoundTrip(r *http.Request) (*http.Response, error) {
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

func (b *beyond) perform(t *ticket) {
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
func (b *beyond) roundTrip(ctx context.Context, c call) (*http.Response, error) {
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
