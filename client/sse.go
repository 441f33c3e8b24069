package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/r3labs/sse/v2"
	"gopkg.in/cenkalti/backoff.v1"

	"github.com/tidemark-im/tidemark"
)

// eventStream is a stream over Server-Sent Events. The library reads one answer, and never connects
// again by itself: the position and the pauses are ours.
type eventStream struct {
	// events and ended come from the goroutine that reads.
	events  chan event
	ended   chan error
	cancel  context.CancelFunc
	reading sync.WaitGroup
}

// newSSE begins to read.
func newSSE(ctx context.Context, c *Client, token string, at position, w *watch) *eventStream {
	query := at.query(c.cfg.Device)
	query.Del("session_id")
	query.Del("after_event_id")
	s := &eventStream{events: make(chan event), ended: make(chan error, 1)}
	reader := sse.NewClient(c.base+"/events?"+query.Encode(), sse.ClientMaxBufferSize(maxEvent))
	header := http.Header{}
	c.sign(header, token)
	for name := range header {
		reader.Headers[name] = header.Get(name)
	}
	if at.session != "" {
		reader.Headers["Last-Event-ID"] = fmt.Sprintf("%s.%d", at.session, at.after)
	}
	reader.ReconnectStrategy = &backoff.StopBackOff{}
	connection := *c.http
	connection.Transport = blocksOnly{over: c.http.Transport, heard: func() {
		w.heard(c.timing.session)
	}}
	reader.Connection = &connection
	reader.ResponseValidator = validate
	ctx, s.cancel = context.WithCancel(ctx)
	s.reading.Go(func() { s.ended <- s.read(ctx, reader) })
	return s
}

// validate returns why an answer is no stream.
func validate(_ *sse.Client, response *http.Response) error {
	kind := response.Header.Get("Content-Type")
	if response.StatusCode == http.StatusOK && kind == "text/event-stream" {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fail(lost, err, "the answer was cut off")
	}
	if f := answered(response.StatusCode, response.Header, body); f != nil {
		return f
	}
	return fail(blocked, nil, "an answer of type %q", kind)
}

// read reads until the stream ends, and returns why.
func (s *eventStream) read(ctx context.Context, reader *sse.Client) error {
	var retry time.Duration
	var last *failure
	err := reader.SubscribeRawWithContext(ctx, func(block *sse.Event) {
		if n, err := strconv.ParseUint(string(block.Retry), 10, 31); err == nil {
			retry = bounded(time.Duration(n) * time.Millisecond)
		}
		if last != nil || len(block.Event) == 0 {
			return
		}
		e := event{Type: tidemark.EventType(block.Event), Payload: block.Data}
		if e.Type == tidemark.EventProblem {
			last = problemOf(block.Data, retry)
			return
		}
		// Without an id of its own, a block has that of the block before: the position stays.
		id := block.ID[bytes.LastIndexByte(block.ID, '.')+1:]
		e.ID, _ = strconv.ParseUint(string(id), 10, 64)
		select {
		case s.events <- e:
		case <-ctx.Done():
		}
	})
	var f *failure
	switch {
	case last != nil:
		return last
	case errors.As(err, &f):
		return f
	case err != nil:
		return fail(lost, err, "the stream broke")
	}
	f = fail(lost, nil, "the stream ended")
	if f.after = retry; retry > 0 {
		f.ending = busy
	}
	return f
}

// next implements stream.
func (s *eventStream) next(ctx context.Context) (event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case err := <-s.ended:
		return event{}, err
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	}
}

// close implements stream.
func (s *eventStream) close() {
	s.cancel()
	s.reading.Wait()
}

// blocksOnly lets the bodies of answers arrive in whole blocks. The library would take what is cut
// off at the end of a stream for an event. Each arrival is a sign of life, comments too.
type blocksOnly struct {
	over  http.RoundTripper
	heard func()
}

// RoundTrip implements http.RoundTripper.
func (b blocksOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.over.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK {
		response.Body = &wholeBlocks{ReadCloser: response.Body, heard: b.heard}
	}
	return response, err
}

// wholeBlocks is a body of which only whole blocks can be read.
type wholeBlocks struct {
	io.ReadCloser
	heard func()
	// buffer has what was read. Its first whole bytes are whole blocks.
	buffer []byte
	whole  int
	err    error
}

// blockEnd ends a block.
var blockEnd = []byte("\n\n")

// Read implements io.Reader.
func (w *wholeBlocks) Read(p []byte) (int, error) {
	for w.whole == 0 {
		if w.err != nil {
			return 0, w.err
		}
		if len(w.buffer) > maxEvent {
			return 0, fail(lost, nil, "an event of more than %d bytes", maxEvent)
		}
		chunk := make([]byte, 8<<10)
		n, err := w.ReadCloser.Read(chunk)
		if n > 0 {
			w.heard()
		}
		from := max(0, len(w.buffer)-1)
		w.buffer, w.err = append(w.buffer, chunk[:n]...), err
		//rule:client_skips_nothing.only-whole-blocks
		if i := bytes.LastIndex(w.buffer[from:], blockEnd); i >= 0 {
			w.whole = from + i + len(blockEnd)
		}
	}
	n := copy(p, w.buffer[:w.whole])
	w.buffer, w.whole = w.buffer[n:], w.whole-n
	return n, nil
}
