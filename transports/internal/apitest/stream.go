package apitest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// blocks is the body of an event stream. It compares each block with the contract when it has been
// read.
type blocks struct {
	io.ReadCloser
	contract *Contract
	t        testing.TB
	// figures says that the stream carries figures and not events.
	figures bool
	rest    []byte
}

// Read implements io.Reader.
func (b *blocks) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.rest = append(b.rest, p[:n]...)
	for {
		block, rest, found := bytes.Cut(b.rest, []byte("\n\n"))
		if !found {
			return n, err
		}
		b.rest = rest
		b.block(string(block))
	}
}

// block checks a block: comments alone, or the fields of one event, each once. A block without
// data is no event, and yet some parsers make an empty event of it. So `retry:` needs an event.
func (b *blocks) block(text string) {
	fields := make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if line == ":" {
			continue
		}
		if _, twice := fields[name]; !ok || twice ||
			!strings.Contains(" id event data retry ", " "+name+" ") {
			b.t.Errorf("the line %q in the event %q", line, text)
		}
		fields[name] = value
	}
	if len(fields) == 0 {
		return
	}
	if _, ok := fields["data"]; !ok {
		b.t.Errorf("the block %q has no data", text)
		return
	}
	if b.figures && fields["event"] == "stats" {
		b.contract.Schema(b.t, "Stats", []byte(fields["data"]))
		return
	}
	id := ""
	if position, ok := fields["id"]; ok {
		session, n, ok := wire.ParsePosition(position)
		if !ok || len(session) > 22 {
			b.t.Errorf("the position %q", position)
		}
		id = fmt.Sprintf(`"id":%d,`, n)
	}
	b.contract.Event(b.t, "sse",
		fmt.Appendf(nil, `{%s"type":%q,"payload":%s}`, id, fields["event"], fields["data"]))
}

// frames is a WebSocket connection. It compares each text frame with the contract when it has been
// read or written.
type frames struct {
	io.ReadWriteCloser
	contract *Contract
	t        testing.TB
	// opened is called for each `session` event, by which the server accepts the request.
	opened        func()
	read, written []byte
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	f.read = eachText(append(f.read, p[:n]...), func(text []byte) {
		f.contract.Event(f.t, "websocket", text)
		if bytes.Contains(text, []byte(`"type":"session"`)) {
			f.opened()
		}
	})
	return n, err
}

// Write implements io.Writer.
func (f *frames) Write(p []byte) (int, error) {
	f.written = eachText(append(f.written, p...), f.sent)
	return f.ReadWriteCloser.Write(p)
}

// sent checks a frame of the client: if the server accepts all of it, the contract must have it.
func (f *frames) sent(text []byte) {
	frame, err := wire.DecodeFrame(text)
	if err != nil || frame.Refused > 0 || frame.Type == wire.FrameSend && !storable(frame.Send) {
		return
	}
	f.contract.seen.add("frame " + string(frame.Type))
	if err := f.contract.Accepts("ClientFrame", text); err != nil {
		f.t.Errorf("a frame was accepted, but does not fit openapi.yaml: %v\n%.500s", err, text)
	}
}

// storable reports whether the core takes a draft, by what it can check without the sender.
func storable(d tidemark.Draft) bool {
	d.SenderID = "sender"
	return d.Check() == nil
}

// The parts of the head of a WebSocket frame (RFC 6455 §5.2).
const (
	textAndFinal = 0x81
	masked       = 0x80
	length16     = 126
	length64     = 127
)

// eachText calls visit with the content of every complete text frame of b. It returns the bytes
// after the last complete frame.
func eachText(b []byte, visit func([]byte)) []byte {
	for len(b) >= 2 {
		size, head := uint64(b[1]&^masked), 2
		switch size {
		case length16:
			head = 4
		case length64:
			head = 10
		}
		if len(b) < head {
			return b
		}
		switch size {
		case length16:
			size = uint64(binary.BigEndian.Uint16(b[2:]))
		case length64:
			size = binary.BigEndian.Uint64(b[2:])
		}
		mask := make([]byte, 4)
		if b[1]&masked != 0 {
			head += 4
			if len(b) < head {
				return b
			}
			mask = b[head-4 : head]
		}
		end := uint64(head) + size
		if uint64(len(b)) < end {
			return b
		}
		if b[0] == textAndFinal {
			text := bytes.Clone(b[head:end])
			for i := range text {
				text[i] ^= mask[i%4]
			}
			visit(text)
		}
		b = b[end:]
	}
	return b
}
