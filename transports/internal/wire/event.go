package wire

import (
	"strconv"

	"github.com/tidemark-im/tidemark"
)

// AppendFrame appends an event in the form of a WebSocket text frame, which is also an element of a
// long-poll answer: {"id":N,"type":T,"request_id":R,"payload":{…}}. It leaves out an id of 0, and
// a request_id of "". It copies the payload's bytes as they are.
func AppendFrame(b []byte, ev tidemark.Event) []byte {
	b = append(b, '{')
	if ev.ID != 0 {
		b = append(b, `"id":`...)
		b = strconv.AppendUint(b, ev.ID, 10)
		b = append(b, ',')
	}
	b = append(b, `"type":"`...)
	b = append(b, ev.Type...)
	b = append(b, '"')
	if ev.RequestID != "" {
		b = append(b, `,"request_id":`...)
		b = tidemark.AppendString(b, ev.RequestID)
	}
	b = append(b, `,"payload":`...)
	b = append(b, ev.Payload...)
	return append(b, '}')
}

// AppendSSE appends an event as a block of an event stream: the lines `id:`, `event:` and `data:`
// and an empty line. An ephemeral event has no `id:` line. Payloads hold no line break, so they
// cannot add lines.
func AppendSSE(b []byte, session tidemark.SessionID, ev tidemark.Event) []byte {
	if ev.ID != 0 {
		//rule:resume_lossless.position-in-event
		b = append(b, "id: "...)
		b = AppendPosition(b, session, ev.ID)
		b = append(b, '\n')
	}
	b = append(b, "event: "...)
	b = append(b, ev.Type...)
	b = append(b, "\ndata: "...)
	b = append(b, ev.Payload...)
	return append(b, '\n', '\n')
}

// AppendPoll appends a long-poll answer. more says that the next poll returns events at once.
func AppendPoll(b []byte, session tidemark.SessionID, events []tidemark.Event, more bool) []byte {
	b = append(b, `{"session_id":`...)
	b = tidemark.AppendString(b, string(session))
	b = append(b, `,"events":[`...)
	for i, ev := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendFrame(b, ev)
	}
	b = append(b, `],"has_more":`...)
	b = strconv.AppendBool(b, more)
	return append(b, '}')
}
