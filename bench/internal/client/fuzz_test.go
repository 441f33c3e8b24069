package client

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// FuzzSSE_Next checks that every stream ends, and that it has no more events than data fields.
// It also checks that an event is read as it was written, with a buffer of any size.
func FuzzSSE_Next(f *testing.F) {
	for _, s := range []string{
		"id: s.1\nevent: open\ndata: {}\n\n", "retry: 5\n\n:\n\nevent: error\ndata: {}\n\n",
		"data\n\n", "data:\n\n", ":", "\n\n\n", "id\nid:\nid: .\n\n", "data: a\ndata: b\r\n\r\n",
		"data: " + strings.Repeat("x", 100) + "\n\n", "event: x\n\ndata: y\n\n",
		"id: 99999999999999999999999\ndata: z\n\n", "\x00: \xff\n", "nothing",
	} {
		f.Add([]byte(s), uint8(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, size uint8) {
		events := readSSE(t, raw, int(size)+16)
		if len(events) > bytes.Count(raw, []byte("data")) {
			t.Errorf("%q has %d events", raw, len(events))
		}
		// A payload of the server contains no line breaks.
		payload := bytes.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return -1
			}
			return r
		}, raw)
		if len(payload) == 0 {
			return
		}
		text := fmt.Sprintf(":\n\nid: s.%d\nevent: message\ndata: %s\n\n", len(raw), payload)
		got := readSSE(t, []byte(text), int(size)+16)
		want := fmt.Sprintf("%d message %s", len(raw), payload)
		if len(got) != 1 || got[0] != want {
			t.Errorf("%q was read as %q", text, got)
		}
	})
}

// readSSE reads a stream to its end and returns its events as "id kind payload".
func readSSE(t *testing.T, raw []byte, buffer int) (events []string) {
	t.Helper()
	s := &sse{lines: bufio.NewReaderSize(bytes.NewReader(raw), buffer)}
	for {
		ev, err := s.Next()
		if err != nil {
			return events
		}
		events = append(events, fmt.Sprintf("%d %s %s", ev.ID, ev.Kind, ev.Payload))
		if len(events) > len(raw) {
			t.Fatalf("%q has no end", raw)
		}
	}
}
