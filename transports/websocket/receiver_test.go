package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// clientFrame returns a frame as a client sends it.
func clientFrame(first byte, payload string) []byte {
	mask := [4]byte{0x12, 0x34, 0x56, 0x78}
	b := appendHead(nil, opText, len(payload))
	b[0] = first
	b[1] |= maskBit
	b = append(b, mask[:]...)
	masked := []byte(payload)
	unmask(masked, mask)
	return append(b, masked...)
}

// received returns what a receiver reads from in, which comes in pieces: opcode:payload of each
// frame or message, and then the error.
func received(t *testing.T, in []byte, pieces func(left int) int) []string {
	t.Helper()
	server, client := net.Pipe()
	defer func() { _ = server.Close() }()
	go func() {
		defer func() { _ = client.Close() }()
		for len(in) > 0 {
			n := pieces(len(in))
			if _, err := client.Write(in[:n]); err != nil {
				return
			}
			in = in[n:]
		}
	}()
	var r receiver
	r.init(server, new(stream.Pool))
	defer r.close()
	var got []string
	for {
		kind, payload, err := opcode(0), []byte(nil), r.await()
		if err == nil {
			kind, payload, err = r.next()
		}
		if err != nil {
			return append(got, err.Error())
		}
		got = append(got, fmt.Sprintf("%x:%.20s", kind, payload))
		r.done()
	}
}

func TestReceiver_reads_what_RFC_6455_allows(t *testing.T) {
	join := func(frames ...[]byte) []byte { return bytes.Join(frames, nil) }
	most := strings.Repeat("x", wire.MaxBody)
	for _, tt := range []struct {
		name string
		in   []byte
		want string
	}{
		{"a text", clientFrame(0x81, "hello"), "1:hello EOF"},
		{"an empty text", clientFrame(0x81, ""), "1: EOF"},
		{"a binary frame", clientFrame(0x82, "x"), "2:x EOF"},
		{"a length of 16 bits", clientFrame(0x81, most[:300]), "1:" + most[:20] + " EOF"},
		{"a length of 64 bits", clientFrame(0x81, most), "1:" + most[:20] + " EOF"},
		{"two texts", join(clientFrame(0x81, "a"), clientFrame(0x81, "b")), "1:a 1:b EOF"},
		{"fragments", join(clientFrame(0x01, "a"), clientFrame(0x00, ""), clientFrame(0x80, "b")),
			"1:ab EOF"},
		{"a ping between fragments",
			join(clientFrame(0x01, "a"), clientFrame(0x89, "p"), clientFrame(0x80, "b")),
			"9:p 1:ab EOF"},
		{"a ping between fragments that leave no room",
			join(clientFrame(0x01, most), clientFrame(0x89, "p"), clientFrame(0x80, "")),
			"9:p 1:" + most[:20] + " EOF"},
		{"a pong", clientFrame(0x8a, "p"), "a:p EOF"},
		{"a close frame", clientFrame(0x88, "\x03\xe8bye"), "8:\x03\xe8bye EOF"},
		{"half a head", []byte{0x81}, "EOF"},
		{"half a payload", clientFrame(0x81, "hello")[:8], "EOF"},
		{"no mask", []byte{0x81, 0x01, 'x'}, "close 1002: a frame is not masked"},
		{"a reserved bit", clientFrame(0xc1, "x"), "close 1002: a reserved bit is set"},
		{"an opcode of data that does not exist", clientFrame(0x83, "x"),
			"close 1002: unknown opcode"},
		{"an opcode of control that does not exist", clientFrame(0x8b, "x"),
			"close 1002: unknown opcode"},
		{"a ping in fragments", clientFrame(0x09, "x"),
			"close 1002: a control frame is fragmented"},
		{"a ping of 126 bytes", clientFrame(0x89, most[:126]),
			"close 1002: a control frame is too long"},
		{"a fragment of nothing", clientFrame(0x80, "x"), "close 1002: a fragment of no message"},
		{"a message in a message", join(clientFrame(0x01, "a"), clientFrame(0x81, "b")),
			"close 1002: a message begins before the end of another"},
		{"a byte too many", clientFrame(0x81, most+"x"), "close 1009: "},
		{"a byte too many in fragments", join(clientFrame(0x01, most), clientFrame(0x80, "x")),
			"close 1009: "},
		{"the largest length", append([]byte{0x81, 0xff}, bytes.Repeat([]byte{0xff}, 12)...),
			"close 1009: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, pieces := range map[string]func(int) int{
				"at once":       func(left int) int { return left },
				"in small bits": func(left int) int { return min(left, 1+left/7) },
			} {
				if got := strings.Join(received(t, tt.in, pieces), " "); got != tt.want {
					t.Errorf("%s: got %q, want %q", name, got, tt.want)
				}
			}
		})
	}
}

// TestReceiver_random_fragments: however a client splits its messages, and the network their
// frames, the messages arrive.
func TestReceiver_random_fragments(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a repeatable test
		var in []byte
		var want []string
		for i := range 1 + random.IntN(20) {
			text := strings.Repeat(string(rune('a'+i)), random.IntN(9_000))
			want = append(want, fmt.Sprintf("1:%.20s", text))
			for first := byte(opText); ; first = byte(opContinuation) {
				n := random.IntN(len(text) + 1)
				if n == len(text) {
					in = append(in, clientFrame(first|finalBit, text)...)
					break
				}
				in = append(in, clientFrame(first, text[:n])...)
				text = text[n:]
			}
		}
		got := received(t, in, func(left int) int { return 1 + random.IntN(left) })
		if got, want := strings.Join(got, " "), strings.Join(want, " ")+" EOF"; got != want {
			t.Fatalf("seed %d: got %q, want %q", seed, got, want)
		}
	}
}

// FuzzReceiver: no bytes of a client make the receiver fail, or return more than it may.
func FuzzReceiver(f *testing.F) {
	f.Add(clientFrame(0x81, "hello"))
	f.Add(append(clientFrame(0x01, "a"), clientFrame(0x89, "p")...))
	f.Add([]byte{0x81, 0xfe, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		received(t, in, func(left int) int { return left })
		_ = parseClose(in)
	})
}

// TestReceiver_has_no_buffer_while_it_waits: this is what keeps an idle connection small.
func TestReceiver_has_no_buffer_while_it_waits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var r receiver
	r.init(server, new(stream.Pool))
	if r.raw == nil {
		t.Fatal("a socket is read with a buffer")
	}
	in := append(clientFrame(0x81, "a"), clientFrame(0x81, "b")...)
	if _, err := client.Write(in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b"} {
		if err := r.await(); err != nil {
			t.Fatal(err)
		}
		if _, payload, err := r.next(); err != nil || string(payload) != want {
			t.Fatalf("got %q, %v, want %q", payload, err, want)
		}
		r.done()
	}
	if r.in != nil || r.message != nil {
		t.Error("there is a buffer after the last frame")
	}
	ended := make(chan error)
	go func() { ended <- r.await() }()
	_ = server.Close()
	select {
	case err = <-ended:
	case <-wait.Context(t).Done():
		t.Fatal("closing does not end the wait")
	}
	if !errors.Is(err, net.ErrClosed) || r.in != nil {
		t.Errorf("after closing: %v, buffer %v", err, r.in != nil)
	}
}

func TestParseClose(t *testing.T) {
	for _, tt := range []struct {
		payload string
		want    string
	}{
		{"", "the client closed with 1005"},
		{"\x03\xe8", "the client closed with 1000"},
		{"\x03\xf6", "the client closed with 1014"},
		{"\x0f\xa0reason", "the client closed with 4000"},
		{"\x03", "close 1002: a close code has one byte"},
		{"\x03\xe7", "close 1002: bad close code"},
		{"\x03\xec", "close 1002: bad close code"},
		{"\x03\xed", "close 1002: bad close code"},
		{"\x03\xee", "close 1002: bad close code"},
		{"\x03\xf7", "close 1002: bad close code"},
		{"\x13\x88", "close 1002: bad close code"},
		{"\x03\xe8\xff", "close 1002: the reason of a close frame is not UTF-8"},
	} {
		if got := parseClose([]byte(tt.payload)).Error(); got != tt.want {
			t.Errorf("%x: %q, want %q", tt.payload, got, tt.want)
		}
	}
}

func TestHandshake(t *testing.T) {
	good := func() *http.Request {
		r := &http.Request{
			Method: http.MethodGet, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		}
		r.Header.Set("Connection", "keep-alive, Upgrade")
		r.Header.Set("Upgrade", "WebSocket")
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		return r
	}
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		want   string
	}{
		{"as in RFC 6455", func(*http.Request) {}, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="},
		{"by POST", func(r *http.Request) { r.Method = http.MethodPost }, "method"},
		{"by HTTP/1.0", func(r *http.Request) { r.ProtoMinor = 0 }, "HTTP/1.1"},
		{"no Connection", func(r *http.Request) { r.Header.Del("Connection") }, "Connection"},
		{"another Upgrade", func(r *http.Request) { r.Header.Set("Upgrade", "h2c") }, "Upgrade"},
		{"an old version", func(r *http.Request) { r.Header.Set("Sec-WebSocket-Version", "8") },
			"Version"},
		{"no key", func(r *http.Request) { r.Header.Del("Sec-WebSocket-Key") }, "Key"},
		{"a short key", func(r *http.Request) { r.Header.Set("Sec-WebSocket-Key", "AAAA") }, "Key"},
	} {
		r := good()
		tt.change(r)
		answer, err := handshake(r)
		got := fmt.Sprint(spelt(answer, "Sec-WebSocket-Accept"), err)
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	r := good()
	r.Header.Set("Sec-WebSocket-Protocol", "chat, "+Subprotocol)
	answer, err := handshake(r)
	if got := spelt(answer, "Sec-WebSocket-Protocol"); err != nil || len(got) != 1 ||
		got[0] != Subprotocol {
		t.Errorf("the subprotocol is %q, %v", got, err)
	}
}

// spelt returns the values of a field that is spelt as in RFC 6455, and not as package http does.
func spelt(h http.Header, name string) []string { return h[name] }
